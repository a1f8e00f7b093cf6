/* An array file as a dataset: the same file gives samples and their targets, of whatever shape it says. */
#ifndef DDP_TESTS_FUZZ_ARRAYS_H
#define DDP_TESTS_FUZZ_ARRAYS_H

#include "fuzz.h"
#include "runtime/data/array.h"
#include "runtime/data/datasets.h"

static void fuzz_arrays(const ddp_dataset_ops *ops, ddp_error *(*open)(const char *, ddp_array *),
                        const uint8_t *data, size_t bytes)
{
    ddp_array array;
    const char *path = fuzz_file(data, bytes);
    ddp_error *error = open(path, &array);
    if (error != NULL) {
        fuzz_drop(error);
        return;
    }
    int64_t columns = array.columns;
    ddp_array_close(&array);
    const char *labels[] = {path, path}; /* the settings of both formats */
    ddp_dataset_config config = {.settings = labels, .path = path};
    config.want = (ddp_sample){
        .input = DDP_F32, .input_count = columns, .target = DDP_F32, .target_count = columns, .items = 1};
    fuzz_dataset(ops, &config);
    config.want.target = DDP_I32;
    config.want.target_count = 1;
    config.want.classes = 100;
    fuzz_dataset(ops, &config);
}

#endif
