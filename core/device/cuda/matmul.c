/* Linear layers: cuBLASLt for the products, with the bias where it can, our own kernels (linear.cu) for the
 * rest. Its GELU and RELU are not used in fp32: they are less accurate, and hide NaN.
 *
 * cuBLASLt is column-major: a row-major matrix (R,C) is to it a matrix (C,R), so all products are written
 * transposed. */
#include <stddef.h>

#include "core/device/cuda/device.h"

static int32_t alignment(const void *address)
{
    uintptr_t at = (uintptr_t)address;
    int32_t align = 256;
    while (align > 4 && at % (uintptr_t)align != 0)
        align /= 2;
    return align;
}

/* The stream's workspace, at its first product. */
static ddp_error *make_workspace(ddp_cuda_stream *stream)
{
    if (stream->workspace != NULL)
        return NULL;
    return ddp_cuda_alloc(stream->base.device, DDP_CUDA_WORKSPACE_BYTES, &stream->workspace);
}

typedef struct operands {
    const float *a, *b, *bias; /* bias may be NULL */
    float *d;
} operands;

static ddp_error *run(ddp_cuda_stream *stream, const ddp_cuda_plan *plan, const operands *o)
{
    ddp_cuda_blas *blas = &((ddp_cuda_device *)stream->base.device)->blas;
    const float one = 1, add = plan->product.add ? 1 : 0;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (plan->product.bias)
        status = blas->cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                      &o->bias, sizeof o->bias);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas->cublasLtMatmul(blas->handle, plan->operation, &one, o->a, plan->a, o->b, plan->b, &add,
                                      o->d, plan->d, o->d, plan->d, &plan->algo, stream->workspace,
                                      DDP_CUDA_WORKSPACE_BYTES, stream->handle);
    return ddp_cuda_blas_error(status, "a matrix product");
}

/* *biased: whether the bias went in; not where no algorithm has it. */
static ddp_error *multiply(ddp_cuda_stream *stream, ddp_cuda_product product, const operands *o, bool *biased)
{
    ddp_cuda_blas *blas = &((ddp_cuda_device *)stream->base.device)->blas;
    ddp_cuda_plan *plan = NULL;
    product.bias = o->bias != NULL;
    product.align[0] = alignment(o->a);
    product.align[1] = alignment(o->b);
    product.align[2] = alignment(o->d);
    product.align[3] = product.bias ? alignment(o->bias) : 0;
    DDP_TRY(make_workspace(stream));
    DDP_TRY(ddp_cuda_blas_plan(blas, &product, &plan));
    if (!plan->possible && product.bias) {
        product.bias = product.align[3] = 0;
        DDP_TRY(ddp_cuda_blas_plan(blas, &product, &plan));
    }
    if (!plan->possible)
        return ddp_error_make(DDP_ERR_INTERNAL,
                              "cuBLASLt has no algorithm for a product of %lld x %lld x %lld",
                              (long long)product.m, (long long)product.n, (long long)product.k);
    *biased = product.bias;
    return run(stream, plan, o);
}

void ddp_cuda_linear_forward(ddp_stream *s, void *y, void *pre, const void *x, const void *w, const void *b,
                             ddp_activation act, int64_t R, int64_t K, int64_t C)
{
    ddp_cuda_product product = {.m = C, .n = R, .k = K, .transpose_a = 1};
    bool biased = false;
    if (R == 0)
        return;
    cudaStream_t stream = ddp_cuda_begin(s);
    ddp_cuda_stream_fail(
        s, multiply((ddp_cuda_stream *)s, product, &(operands){w, x, b, pre ? pre : y}, &biased));
    const float *rest = biased ? NULL : b;
    if (rest != NULL || pre != NULL || act != DDP_ACT_NONE)
        ddp_cuda_activate(stream, y, pre, rest, act, R, C);
    ddp_cuda_end(s, "a linear layer, forward");
}

void ddp_cuda_linear_backward_input(ddp_stream *s, void *dx, const void *dy, const void *w, const void *saved,
                                    ddp_activation act, bool add, int64_t R, int64_t K, int64_t C)
{
    ddp_cuda_product product = {.m = K, .n = R, .k = C, .add = add};
    bool biased;
    if (R == 0)
        return;
    cudaStream_t stream = ddp_cuda_begin(s);
    ddp_cuda_stream_fail(s, multiply((ddp_cuda_stream *)s, product, &(operands){w, dy, NULL, dx}, &biased));
    if (act != DDP_ACT_NONE)
        ddp_cuda_derive(stream, dx, saved, act, R * K);
    ddp_cuda_end(s, "a linear layer, gradient of its input");
}

void ddp_cuda_linear_backward_weight(ddp_stream *s, float *dw, float *db, const void *dy, const void *x,
                                     int64_t R, int64_t K, int64_t C)
{
    ddp_cuda_product product = {.m = K, .n = C, .k = R, .transpose_b = 1, .add = 1};
    bool biased;
    if (R == 0)
        return;
    cudaStream_t stream = ddp_cuda_begin(s);
    ddp_cuda_stream_fail(s, multiply((ddp_cuda_stream *)s, product, &(operands){x, dy, NULL, dw}, &biased));
    void *scratch = db != NULL ? ddp_cuda_scratch(s, ddp_cuda_column_sums_bytes(R, C)) : NULL;
    if (scratch != NULL)
        ddp_cuda_column_sums(stream, db, dy, scratch, R, C);
    ddp_cuda_end(s, "a linear layer, gradient of its weights");
}
