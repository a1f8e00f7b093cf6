/* cuBLASLt, loaded when a device is opened and not before: it is half a gigabyte, and neither the launcher
 * nor a rank on the CPU needs it. The found plans of matrix products are kept here too. */
#ifndef DDP_CORE_DEVICE_CUDA_BLAS_H
#define DDP_CORE_DEVICE_CUDA_BLAS_H

#include <cublasLt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ddp/error.h>

/* Every product gets the same workspace, so that the algorithm chosen for a shape does not depend on what
 * else is in memory. 32 MiB is what cuBLAS itself takes on Hopper. */
#define DDP_CUDA_WORKSPACE_BYTES ((size_t)32 << 20)

/* D(m,n) = op(A) op(B) (+ D) (+ bias(m)), column-major. */
typedef struct ddp_cuda_product {
    int64_t m, n, k;
    int32_t transpose_a, transpose_b;
    int32_t add, bias; /* 0 or 1 */
    int32_t align[4];  /* bytes, of A, B, D, bias */
} ddp_cuda_product;

typedef struct ddp_cuda_plan {
    ddp_cuda_product product;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    bool possible; /* cuBLASLt has an algorithm for it */
} ddp_cuda_plan;

#define DDP_CUDA_BLAS_FUNCTIONS(X)          \
    X(cublasLtCreate)                       \
    X(cublasLtDestroy)                      \
    X(cublasLtGetVersion)                   \
    X(cublasLtMatmul)                       \
    X(cublasLtMatmulAlgoGetHeuristic)       \
    X(cublasLtMatmulDescCreate)             \
    X(cublasLtMatmulDescDestroy)            \
    X(cublasLtMatmulDescSetAttribute)       \
    X(cublasLtMatmulPreferenceCreate)       \
    X(cublasLtMatmulPreferenceDestroy)      \
    X(cublasLtMatmulPreferenceSetAttribute) \
    X(cublasLtMatrixLayoutCreate)           \
    X(cublasLtMatrixLayoutDestroy)

typedef struct ddp_cuda_blas {
    void *library;
#define DDP_CUDA_BLAS_MEMBER(name) __typeof__(name) *name;
    DDP_CUDA_BLAS_FUNCTIONS(DDP_CUDA_BLAS_MEMBER)
#undef DDP_CUDA_BLAS_MEMBER
    cublasLtHandle_t handle;
    ddp_cuda_plan **plans;
    size_t plan_count, plan_capacity;
} ddp_cuda_blas;

/* Loads it. MACHINE: not installed, or it refuses the GPU. */
DDP_USE_RESULT ddp_error *ddp_cuda_blas_open(ddp_cuda_blas *blas);
void ddp_cuda_blas_close(ddp_cuda_blas *blas); /* half-open is fine */

/* The plan of a product, made at its first use. INTERNAL: cuBLASLt failed; MEMORY. */
DDP_USE_RESULT ddp_error *ddp_cuda_blas_plan(ddp_cuda_blas *blas, const ddp_cuda_product *product,
                                             ddp_cuda_plan **plan);

/* NULL for success. */
ddp_error *ddp_cuda_blas_error(cublasStatus_t status, const char *doing);

#endif
