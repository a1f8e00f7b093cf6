/* What the tests of this folder look at: the cpu. tests/gpu links the same tests with another one. */
#include "core/device/devices.h"
#include "kernels/reference.h"

const ddp_device_ops *const kernels_under_test = &ddp_device_cpu_ops;
