/* The devices of this build. */
#ifndef DDP_CORE_DEVICES_H
#define DDP_CORE_DEVICES_H

#include <ddp/device.h>

extern const ddp_device_ops ddp_device_cpu_ops;
extern const ddp_device_ops ddp_device_cuda_ops; /* only in builds with CUDA */

#endif
