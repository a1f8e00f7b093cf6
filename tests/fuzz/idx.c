/* IDX files of any bytes. */
#include "arrays.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_arrays(&ddp_dataset_idx_ops, ddp_idx_open, data, bytes);
    return 0;
}
