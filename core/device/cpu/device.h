/* Inside the CPU device: what its files share. Not for anyone outside core/device/cpu. */
#ifndef DDP_CORE_DEVICE_CPU_DEVICE_H
#define DDP_CORE_DEVICE_CPU_DEVICE_H

#include <ddp/device.h>
#include <ddp/kernels.h>

#include "core/device/cpu/blas.h"

typedef struct ddp_cpu_device {
    ddp_device base;
    ddp_blas blas;
} ddp_cpu_device;

extern const ddp_kernels ddp_kernels_cpu_f32;

/* Device memory: zeroed, 256-byte aligned, in huge pages where large. */
DDP_USE_RESULT ddp_error *ddp_cpu_alloc(ddp_device *device, size_t bytes, void **memory);
void ddp_cpu_free(ddp_device *device, void *memory);

/* Streams and events (stream.c); contracts in ddp/device.h. */
ddp_error *ddp_cpu_stream_open(ddp_device *device, ddp_stream_kind kind, ddp_stream **stream);
void ddp_cpu_stream_close(ddp_stream *stream);
ddp_error *ddp_cpu_stream_wait(ddp_stream *stream);
ddp_error *ddp_cpu_stream_poll(ddp_stream *stream);
ddp_error *ddp_cpu_stream_push(ddp_stream *stream, ddp_task task);
ddp_error *ddp_cpu_event_open(ddp_device *device, ddp_event **event);
void ddp_cpu_event_close(ddp_event *event);
void ddp_cpu_event_record(ddp_event *event, ddp_stream *stream);
void ddp_cpu_event_wait(ddp_stream *stream, ddp_event *event);
void ddp_cpu_copy(ddp_stream *stream, void *to, const void *from, size_t bytes);
void ddp_cpu_zero(ddp_stream *stream, void *memory, size_t bytes);

/* Makes `error` the stream's sticky one, or frees it if there is one already. */
void ddp_cpu_stream_fail(ddp_stream *stream, ddp_error *error);

/* Working memory of the kernel that runs now, uninitialised, 64-byte aligned. It belongs to the stream and
 * only grows, so a training loop allocates in its first step and never again. NULL: out of memory, and the
 * stream has failed; the kernel just returns. The next call on the stream may overwrite it. */
void *ddp_cpu_scratch(ddp_stream *stream, size_t bytes);

/* The kernels; contracts in ddp/kernels.h. */
void ddp_cpu_linear_forward(ddp_stream *s, void *y, void *pre, const void *x, const void *w, const void *b,
                            ddp_activation act, int64_t R, int64_t K, int64_t C);
void ddp_cpu_linear_backward_input(ddp_stream *s, void *dx, const void *dy, const void *w, const void *saved,
                                   ddp_activation act, bool add, int64_t R, int64_t K, int64_t C);
void ddp_cpu_linear_backward_weight(ddp_stream *s, float *dw, float *db, const void *dy, const void *x,
                                    int64_t R, int64_t K, int64_t C);
void ddp_cpu_norm_forward(ddp_stream *s, void *y, void *sum, float *mean, float *rstd, const void *a,
                          const void *b, const void *weight, const void *bias, int64_t R, int64_t C);
void ddp_cpu_norm_backward(ddp_stream *s, void *dx, float *dweight, float *dbias, const void *dy,
                           const void *x, const float *mean, const float *rstd, const void *weight,
                           const void *residual, int64_t R, int64_t C);
void ddp_cpu_embedding_forward(ddp_stream *s, void *y, const int32_t *ids, const void *tokens,
                               const void *positions, int64_t B, int64_t T, int64_t C);
void ddp_cpu_embedding_backward(ddp_stream *s, float *dtokens, float *dpositions, const void *dy,
                                const int32_t *ids, int64_t B, int64_t T, int64_t C, int64_t V);
void ddp_cpu_attention_forward(ddp_stream *s, void *y, float *stats, const void *qkv, int64_t B, int64_t T,
                               int64_t H, int64_t D);
void ddp_cpu_attention_backward(ddp_stream *s, void *dqkv, const void *dy, const void *qkv, const void *y,
                                const float *stats, int64_t B, int64_t T, int64_t H, int64_t D);
void ddp_cpu_cross_entropy(ddp_stream *s, ddp_loss *total, void *logits, const int32_t *targets, float scale,
                           int64_t R, int64_t V);
void ddp_cpu_squared_error(ddp_stream *s, ddp_loss *total, void *prediction, const float *targets,
                           float scale, int64_t R, int64_t C);
void ddp_cpu_sum_squares(ddp_stream *s, double *total, const float *x, int64_t count);
void ddp_cpu_adamw(ddp_stream *s, float *weights, const float *gradients, float *mean, float *square,
                   int64_t count, const ddp_adamw_args *args);
void ddp_cpu_sgd(ddp_stream *s, float *weights, const float *gradients, float *velocity, int64_t count,
                 const ddp_sgd_args *args);
void ddp_cpu_step_scale(ddp_stream *s, float *scale, double *norm, const double *sum_squares,
                        const ddp_loss *totals, double nominal_items, double clip);

#endif
