/* What the fuzz targets share. */
#include "fuzz.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define READ_ELEMENTS (1 << 20) /* of a sample; larger ones are opened only */

typedef struct memory_file {
    int fd; /* 0 = not made yet */
    char path[64];
} memory_file;

static const char *fill(memory_file *file, const uint8_t *data, size_t bytes)
{
    if (file->fd == 0) {
        file->fd = memfd_create("fuzz", 0);
        snprintf(file->path, sizeof file->path, "/proc/self/fd/%d", file->fd);
    }
    ddp_assert(ftruncate(file->fd, 0) == 0);
    ddp_assert(pwrite(file->fd, data, bytes, 0) == (ssize_t)bytes);
    return file->path;
}

const char *fuzz_file(const uint8_t *data, size_t bytes)
{
    static memory_file file;
    return fill(&file, data, bytes);
}

const char *fuzz_second_file(const uint8_t *data, size_t bytes)
{
    static memory_file file;
    return fill(&file, data, bytes);
}

void fuzz_drop(ddp_error *error)
{
    static FILE *nowhere;
    if (nowhere == NULL)
        nowhere = fopen("/dev/null", "w");
    if (error != NULL)
        ddp_error_print(error, "error", nowhere);
    ddp_error_free(error);
}

void fuzz_dataset(const ddp_dataset_ops *ops, const ddp_dataset_config *config)
{
    ddp_dataset *dataset;
    ddp_error *error = ops->open(config, &dataset);
    if (error != NULL) {
        fuzz_drop(error);
        return;
    }
    const ddp_sample *sample = &dataset->sample;
    const int64_t ids[] = {0, dataset->count / 2, dataset->count - 1};
    enum { IDS = sizeof ids / sizeof ids[0] };
    ddp_assert(dataset->count > 0 && sample->input_count > 0 && sample->target_count > 0);
    if (sample->input_count <= READ_ELEMENTS && sample->target_count <= READ_ELEMENTS) {
        void *input = malloc(IDS * (size_t)sample->input_count * ddp_dtype_bytes(sample->input));
        void *target = malloc(IDS * (size_t)sample->target_count * ddp_dtype_bytes(sample->target));
        if (input != NULL && target != NULL)
            fuzz_drop(ops->read(dataset, ids, IDS, input, target));
        free(input);
        free(target);
    }
    ddp_dataset_close(dataset);
}
