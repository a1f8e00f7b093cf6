/* The kernel table of CUDA in fp32: scratch memory, launch, what became of it. Linear layers are in matmul.c,
 * the kernels themselves in the .cu files. */
#include "core/device/cuda/device.h"

static void norm_forward(ddp_stream *s, void *y, void *sum, float *mean, float *rstd, const void *a,
                         const void *b, const void *weight, const void *bias, int64_t R, int64_t C)
{
    if (R > 0)
        ddp_cuda_norm_forward(ddp_cuda_begin(s), y, sum, mean, rstd, a, b, weight, bias, R, C);
    ddp_cuda_end(s, "a layer norm, forward");
}

static void norm_backward(ddp_stream *s, void *dx, float *dweight, float *dbias, const void *dy,
                          const void *x, const float *mean, const float *rstd, const void *weight,
                          const void *residual, int64_t R, int64_t C)
{
    cudaStream_t stream = ddp_cuda_begin(s);
    void *scratch = R > 0 ? ddp_cuda_scratch(s, ddp_cuda_norm_backward_bytes(R, C)) : NULL;
    if (scratch != NULL)
        ddp_cuda_norm_backward(stream, dx, dweight, dbias, dy, x, mean, rstd, weight, residual, scratch, R,
                               C);
    ddp_cuda_end(s, "a layer norm, backward");
}

static void embedding_forward(ddp_stream *s, void *y, const int32_t *ids, const void *tokens,
                              const void *positions, int64_t B, int64_t T, int64_t C)
{
    if (B * T > 0)
        ddp_cuda_embedding_forward(ddp_cuda_begin(s), y, ids, tokens, positions, B, T, C);
    ddp_cuda_end(s, "an embedding, forward");
}

static void embedding_backward(ddp_stream *s, float *dtokens, float *dpositions, const void *dy,
                               const int32_t *ids, int64_t B, int64_t T, int64_t C, int64_t V)
{
    cudaStream_t stream = ddp_cuda_begin(s);
    void *scratch = B * T > 0 ? ddp_cuda_scratch(s, ddp_cuda_embedding_backward_bytes(B * T)) : NULL;
    if (scratch != NULL) {
        ddp_cuda_check_ids(stream, ddp_cuda_fault_of(s), ids, B * T, 0,
                           (ddp_cuda_fault){.kind = DDP_CUDA_BAD_TOKEN, .tokens = T, .limit = V});
        ddp_cuda_embedding_backward(stream, dtokens, dpositions, dy, ids, scratch, B, T, C, V);
    }
    ddp_cuda_end(s, "an embedding, backward");
}

static bool head_fits(ddp_stream *s, int64_t D)
{
    if (D <= DDP_CUDA_MAX_HEAD)
        return true;
    ddp_cuda_stream_fail(
        s,
        ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "attention heads of %lld elements: on cuda at most %d",
                                      (long long)D, DDP_CUDA_MAX_HEAD),
                       "more model.heads make each of them narrower"));
    return false;
}

static void attention_forward(ddp_stream *s, void *y, float *stats, const void *qkv, int64_t B, int64_t T,
                              int64_t H, int64_t D)
{
    cudaStream_t stream = ddp_cuda_begin(s);
    if (head_fits(s, D) && B * T > 0)
        ddp_cuda_attention_forward(stream, y, stats, qkv, B, T, H, D);
    ddp_cuda_end(s, "attention, forward");
}

static void attention_backward(ddp_stream *s, void *dqkv, const void *dy, const void *qkv, const void *y,
                               const float *stats, int64_t B, int64_t T, int64_t H, int64_t D)
{
    cudaStream_t stream = ddp_cuda_begin(s);
    bool any = head_fits(s, D) && B * T > 0;
    void *scratch = any ? ddp_cuda_scratch(s, ddp_cuda_attention_backward_bytes(B, T, H)) : NULL;
    if (scratch != NULL)
        ddp_cuda_attention_backward(stream, dqkv, dy, qkv, y, stats, scratch, B, T, H, D);
    ddp_cuda_end(s, "attention, backward");
}

static void cross_entropy(ddp_stream *s, ddp_loss *total, void *logits, const int32_t *targets, float scale,
                          int64_t R, int64_t V)
{
    cudaStream_t stream = ddp_cuda_begin(s);
    void *scratch = R > 0 ? ddp_cuda_scratch(s, ddp_cuda_loss_bytes(R)) : NULL;
    if (scratch != NULL) {
        ddp_cuda_check_ids(stream, ddp_cuda_fault_of(s), targets, R, -1,
                           (ddp_cuda_fault){.kind = DDP_CUDA_BAD_TARGET, .limit = V});
        ddp_cuda_cross_entropy(stream, total, logits, targets, scale, scratch, R, V);
    }
    ddp_cuda_end(s, "cross-entropy");
}

static void squared_error(ddp_stream *s, ddp_loss *total, void *prediction, const float *targets, float scale,
                          int64_t R, int64_t C)
{
    cudaStream_t stream = ddp_cuda_begin(s);
    void *scratch = R > 0 ? ddp_cuda_scratch(s, ddp_cuda_loss_bytes(R)) : NULL;
    if (scratch != NULL)
        ddp_cuda_squared_error(stream, total, prediction, targets, scale, scratch, R, C);
    ddp_cuda_end(s, "squared error");
}

static void sum_squares(ddp_stream *s, double *total, const float *x, int64_t count)
{
    cudaStream_t stream = ddp_cuda_begin(s);
    void *scratch = count > 0 ? ddp_cuda_scratch(s, ddp_cuda_sum_squares_bytes()) : NULL;
    if (scratch != NULL)
        ddp_cuda_sum_squares(stream, total, x, scratch, count);
    ddp_cuda_end(s, "the norm of the gradient");
}

static void adamw(ddp_stream *s, float *weights, const float *gradients, float *mean, float *square,
                  int64_t count, const ddp_adamw_args *args)
{
    if (count > 0)
        ddp_cuda_adamw(ddp_cuda_begin(s), weights, gradients, mean, square, count, args);
    ddp_cuda_end(s, "an update of the weights");
}

static void sgd(ddp_stream *s, float *weights, const float *gradients, float *velocity, int64_t count,
                const ddp_sgd_args *args)
{
    if (count > 0)
        ddp_cuda_sgd(ddp_cuda_begin(s), weights, gradients, velocity, count, args);
    ddp_cuda_end(s, "an update of the weights");
}

static void step_scale(ddp_stream *s, float *scale, double *norm, const double *sum_squares,
                       const ddp_loss *totals, double nominal_items, double clip)
{
    ddp_cuda_step_scale(ddp_cuda_begin(s), scale, norm, sum_squares, totals, nominal_items, clip);
    ddp_cuda_end(s, "the scale of an update");
}

const ddp_kernels ddp_kernels_cuda_f32 = {
    .name = "cuda f32",
    .compute = DDP_F32,
    .linear_forward = ddp_cuda_linear_forward,
    .linear_backward_input = ddp_cuda_linear_backward_input,
    .linear_backward_weight = ddp_cuda_linear_backward_weight,
    .norm_forward = norm_forward,
    .norm_backward = norm_backward,
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .cross_entropy = cross_entropy,
    .squared_error = squared_error,
    .sum_squares = sum_squares,
    .adamw = adamw,
    .sgd = sgd,
    .step_scale = step_scale,
};
