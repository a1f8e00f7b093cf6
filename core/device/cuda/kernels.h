/* Launchers of the CUDA kernels in this folder's .cu files: what its C side calls. Each enqueues on the
 * stream and returns; the caller finds a launch that failed with cudaGetLastError. Meaning and shapes of
 * every operation: include/ddp/kernels.h. All elements are fp32. `..._bytes` say how much scratch memory a
 * launcher needs. Sums over rows go through partial sums that a second kernel adds in a fixed order; their
 * number depends on the shape alone, so runs repeat bit for bit. */
#ifndef DDP_CORE_DEVICE_CUDA_KERNELS_H
#define DDP_CORE_DEVICE_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include <ddp/kernels.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The first thing a kernel of a stream found wrong with its input. It lies in host memory that the GPU writes
 * to. */
enum { DDP_CUDA_NO_FAULT, DDP_CUDA_BAD_TARGET, DDP_CUDA_BAD_TOKEN };
typedef struct ddp_cuda_fault {
    int32_t kind;
    int32_t id;
    int64_t row, tokens, limit; /* row of the batch, tokens a sample, first id that is too large */
} ddp_cuda_fault;

/* Whether the machine code of this build runs on the current GPU. */
cudaError_t ddp_cuda_probe(void);

/* *fault is filled in, unless it is already, when an id is outside [least, fault.limit): with the first such
 * row. `found` are the other members. */
void ddp_cuda_check_ids(cudaStream_t stream, ddp_cuda_fault *fault, const int32_t *ids, int64_t count,
                        int32_t least, ddp_cuda_fault found);

/* linear.cu */
void ddp_cuda_activate(cudaStream_t stream, float *y, float *pre, const float *b, ddp_activation act,
                       int64_t R, int64_t C);
void ddp_cuda_derive(cudaStream_t stream, float *dx, const float *saved, ddp_activation act, int64_t count);
size_t ddp_cuda_column_sums_bytes(int64_t R, int64_t C);
void ddp_cuda_column_sums(cudaStream_t stream, float *sums, const float *x, void *scratch, int64_t R,
                          int64_t C);

/* norm.cu */
void ddp_cuda_norm_forward(cudaStream_t stream, float *y, float *sum, float *mean, float *rstd,
                           const float *a, const float *b, const float *weight, const float *bias, int64_t R,
                           int64_t C);
size_t ddp_cuda_norm_backward_bytes(int64_t R, int64_t C);
void ddp_cuda_norm_backward(cudaStream_t stream, float *dx, float *dweight, float *dbias, const float *dy,
                            const float *x, const float *mean, const float *rstd, const float *weight,
                            const float *residual, void *scratch, int64_t R, int64_t C);

/* embedding.cu */
void ddp_cuda_embedding_forward(cudaStream_t stream, float *y, const int32_t *ids, const float *tokens,
                                const float *positions, int64_t B, int64_t T, int64_t C);
size_t ddp_cuda_embedding_backward_bytes(int64_t rows);
void ddp_cuda_embedding_backward(cudaStream_t stream, float *dtokens, float *dpositions, const float *dy,
                                 const int32_t *ids, void *scratch, int64_t B, int64_t T, int64_t C,
                                 int64_t V);

/* attention.cu: heads of up to DDP_CUDA_MAX_HEAD elements */
enum { DDP_CUDA_MAX_HEAD = 256 };
void ddp_cuda_attention_forward(cudaStream_t stream, float *y, float *stats, const float *qkv, int64_t B,
                                int64_t T, int64_t H, int64_t D);
size_t ddp_cuda_attention_backward_bytes(int64_t B, int64_t T, int64_t H);
void ddp_cuda_attention_backward(cudaStream_t stream, float *dqkv, const float *dy, const float *qkv,
                                 const float *y, const float *stats, void *scratch, int64_t B, int64_t T,
                                 int64_t H, int64_t D);

/* loss.cu */
size_t ddp_cuda_loss_bytes(int64_t R);
void ddp_cuda_cross_entropy(cudaStream_t stream, ddp_loss *total, float *logits, const int32_t *targets,
                            float scale, void *scratch, int64_t R, int64_t V);
void ddp_cuda_squared_error(cudaStream_t stream, ddp_loss *total, float *prediction, const float *targets,
                            float scale, void *scratch, int64_t R, int64_t C);

/* update.cu */
size_t ddp_cuda_sum_squares_bytes(void);
void ddp_cuda_sum_squares(cudaStream_t stream, double *total, const float *x, void *scratch, int64_t count);
void ddp_cuda_adamw(cudaStream_t stream, float *weights, const float *gradients, float *mean, float *square,
                    int64_t count, const ddp_adamw_args *args);
void ddp_cuda_sgd(cudaStream_t stream, float *weights, const float *gradients, float *velocity, int64_t count,
                  const ddp_sgd_args *args);
void ddp_cuda_step_scale(cudaStream_t stream, float *scale, double *norm, const double *sum_squares,
                         const ddp_loss *totals, double nominal_items, double clip);

#ifdef __cplusplus
}
#endif
#endif
