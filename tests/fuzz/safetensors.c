/* safetensors files of any bytes; every tensor of one that opens is read. */
#include <stdlib.h>

#include "fuzz.h"
#include "runtime/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ddp_safetensors *file = NULL;
    ddp_error *error = ddp_safetensors_open(fuzz_file(data, bytes), &file);
    for (int i = 0; error == NULL && i < ddp_safetensors_count(file); i++) {
        const ddp_stored_tensor *tensor = ddp_safetensors_at(file, i);
        ddp_assert(tensor->begin >= 0 && tensor->begin <= tensor->end && (uint64_t)tensor->end <= bytes);
        ddp_assert(ddp_safetensors_find(file, tensor->name) == tensor);
        float *values = malloc((size_t)tensor->count * sizeof *values + 1);
        if (values != NULL)
            fuzz_drop(ddp_safetensors_read_floats(file, tensor, values));
        free(values);
    }
    if (error == NULL)
        ddp_safetensors_metadata(file, "format");
    fuzz_drop(error);
    ddp_safetensors_close(file);
    return 0;
}
