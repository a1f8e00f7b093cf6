/* Token files of any bytes, with every data.dtype. */
#include "fuzz.h"
#include "runtime/data/datasets.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *path = fuzz_file(data, bytes);
    for (int dtype = 0; dtype < 3; dtype++) { /* auto, uint16, uint32: the only setting */
        ddp_dataset_config config = {.settings = &dtype, .path = path};
        config.want = (ddp_sample){.input = DDP_I32,
                                   .input_count = 4,
                                   .target = DDP_I32,
                                   .target_count = 4,
                                   .classes = 50257,
                                   .items = 4};
        fuzz_dataset(&ddp_dataset_tokens_ops, &config);
    }
    return 0;
}
