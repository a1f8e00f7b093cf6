/* NumPy files of any bytes. */
#include "arrays.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_arrays(&ddp_dataset_npy_ops, ddp_npy_open, data, bytes);
    return 0;
}
