/* Says which GPU the tests would run on, or why there is none (exit code 77: skipped). */
#include <stdio.h>
#include <string.h>

#include "core/device/devices.h"
#include "core/nvml.h"

int main(void)
{
    ddp_device *device = NULL;
    ddp_gpus gpus;
    ddp_device_config config = {.threads = 1, .compute = DDP_F32};
    ddp_error *error = ddp_device_cuda_ops.open(&config, &device);
    if (error != NULL) {
        printf("skipped: %s\n", ddp_error_message(error));
        ddp_error_free(error);
        return 77;
    }
    ddp_gpus_read(&gpus);
    printf("%s; driver %s (CUDA %d.%d), %d GPU%s\n", device->description, gpus.driver, gpus.cuda / 1000,
           gpus.cuda % 1000 / 10, gpus.count, gpus.count == 1 ? "" : "s");
    if (gpus.count == 0)
        printf("NVML finds none: %s\n", gpus.why);
    ddp_device_close(device);
    return 0;
}
