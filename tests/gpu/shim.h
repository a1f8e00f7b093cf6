/* The GPU's kernels behind host memory: a device whose kernel table copies every argument to the GPU, runs
 * the kernel there and copies the results back. So tests written for host memory, the table of cases in
 * tests/kernels among them, run unchanged against the GPU. Slow, and only for tests. */
#ifndef DDP_TESTS_GPU_SHIM_H
#define DDP_TESTS_GPU_SHIM_H

#include <ddp/device.h>

extern const ddp_device_ops shim_device_ops;

#endif
