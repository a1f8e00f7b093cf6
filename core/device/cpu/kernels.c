/* The kernel table of the CPU in fp32; the functions are in matmul, nn, attention, loss and update. */
#include "core/device/cpu/device.h"

const ddp_kernels ddp_kernels_cpu_f32 = {
    .name = "cpu f32",
    .compute = DDP_F32,
    .linear_forward = ddp_cpu_linear_forward,
    .linear_backward_input = ddp_cpu_linear_backward_input,
    .linear_backward_weight = ddp_cpu_linear_backward_weight,
    .norm_forward = ddp_cpu_norm_forward,
    .norm_backward = ddp_cpu_norm_backward,
    .embedding_forward = ddp_cpu_embedding_forward,
    .embedding_backward = ddp_cpu_embedding_backward,
    .attention_forward = ddp_cpu_attention_forward,
    .attention_backward = ddp_cpu_attention_backward,
    .cross_entropy = ddp_cpu_cross_entropy,
    .squared_error = ddp_cpu_squared_error,
    .sum_squares = ddp_cpu_sum_squares,
    .adamw = ddp_cpu_adamw,
    .sgd = ddp_cpu_sgd,
    .step_scale = ddp_cpu_step_scale,
};
