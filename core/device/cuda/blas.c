/* Loading cuBLASLt and asking it for algorithms.
 *
 * The first algorithm of its heuristic is taken for each shape. Measuring several would gain a few percent
 * and make the choice, and with it the last bits of every result, depend on timing. */
#include "core/device/cuda/blas.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

#define QUOTE_(x) #x
#define QUOTE(x) QUOTE_(x)

/* The one that the loader finds, then the one this build was made with. */
static void *load_library(void)
{
    static const char *const names[] = {"libcublasLt.so." QUOTE(CUBLAS_VER_MAJOR), DDP_CUBLASLT_PATH};
    void *library = NULL;
    for (size_t i = 0; library == NULL && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return library;
}

static const char *load_functions(ddp_cuda_blas *blas)
{
#define LOAD(name)                                                \
    blas->name = (__typeof__(name) *)dlsym(blas->library, #name); \
    if (blas->name == NULL)                                       \
        return #name;
    DDP_CUDA_BLAS_FUNCTIONS(LOAD)
#undef LOAD
    return NULL;
}

ddp_error *ddp_cuda_blas_error(cublasStatus_t status, const char *doing)
{
    static const char *const names[] = {
        [CUBLAS_STATUS_NOT_INITIALIZED] = "not initialised",
        [CUBLAS_STATUS_ALLOC_FAILED] = "out of memory",
        [CUBLAS_STATUS_INVALID_VALUE] = "an invalid value",
        [CUBLAS_STATUS_ARCH_MISMATCH] = "wrong kind of GPU",
        [CUBLAS_STATUS_MAPPING_ERROR] = "mapping failed",
        [CUBLAS_STATUS_EXECUTION_FAILED] = "execution failed",
        [CUBLAS_STATUS_INTERNAL_ERROR] = "an internal error",
        [CUBLAS_STATUS_NOT_SUPPORTED] = "not supported",
    };
    size_t at = (size_t)status;
    if (status == CUBLAS_STATUS_SUCCESS)
        return NULL;
    return ddp_error_make(status == CUBLAS_STATUS_ALLOC_FAILED ? DDP_ERR_MEMORY : DDP_ERR_INTERNAL,
                          "%s: cuBLASLt says: %s (%d)", doing,
                          at < sizeof names / sizeof *names && names[at] ? names[at] : "unknown status",
                          (int)status);
}

ddp_error *ddp_cuda_blas_open(ddp_cuda_blas *blas)
{
    blas->library = load_library();
    if (blas->library == NULL)
        return ddp_error_help(
            ddp_error_make(DDP_ERR_MACHINE, "the cuda device needs cuBLASLt, which cannot be loaded: %s",
                           dlerror()),
            "install CUDA " QUOTE(CUBLAS_VER_MAJOR) "'s cuBLAS, or name its folder in LD_LIBRARY_PATH");
    const char *missing = load_functions(blas);
    if (missing != NULL)
        return ddp_error_make(DDP_ERR_MACHINE, "the cuBLASLt of this machine lacks %s", missing);
    ddp_error *error = ddp_cuda_blas_error(blas->cublasLtCreate(&blas->handle), "opening cuBLASLt");
    if (error != NULL)
        blas->handle = NULL;
    return error;
}

static void free_plan(ddp_cuda_blas *blas, ddp_cuda_plan *plan)
{
    if (plan->operation != NULL)
        blas->cublasLtMatmulDescDestroy(plan->operation);
    if (plan->a != NULL)
        blas->cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b != NULL)
        blas->cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->d != NULL)
        blas->cublasLtMatrixLayoutDestroy(plan->d);
    free(plan);
}

void ddp_cuda_blas_close(ddp_cuda_blas *blas)
{
    for (size_t i = 0; i < blas->plan_count; i++)
        free_plan(blas, blas->plans[i]);
    free(blas->plans);
    if (blas->handle != NULL)
        blas->cublasLtDestroy(blas->handle);
    if (blas->library != NULL)
        dlclose(blas->library);
    *blas = (ddp_cuda_blas){0};
}

static cublasStatus_t describe_layouts(ddp_cuda_blas *blas, ddp_cuda_plan *plan)
{
    const ddp_cuda_product *p = &plan->product;
    uint64_t m = (uint64_t)p->m, n = (uint64_t)p->n, k = (uint64_t)p->k;
    cublasStatus_t status = blas->cublasLtMatrixLayoutCreate(
        &plan->a, CUDA_R_32F, p->transpose_a ? k : m, p->transpose_a ? m : k, p->transpose_a ? p->k : p->m);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas->cublasLtMatrixLayoutCreate(&plan->b, CUDA_R_32F, p->transpose_b ? n : k,
                                                  p->transpose_b ? k : n, p->transpose_b ? p->n : p->k);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas->cublasLtMatrixLayoutCreate(&plan->d, CUDA_R_32F, m, n, p->m);
    return status;
}

/* CUBLAS_COMPUTE_32F: every product and sum in fp32, no TF32. */
static cublasStatus_t describe_operation(ddp_cuda_blas *blas, ddp_cuda_plan *plan)
{
    const ddp_cuda_product *p = &plan->product;
    const cublasOperation_t a = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                            b = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    const struct {
        cublasLtMatmulDescAttributes_t name;
        const void *value;
        size_t bytes;
    } attributes[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a},
        {CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue},
    };
    cublasStatus_t status = blas->cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    for (size_t i = 0; status == CUBLAS_STATUS_SUCCESS && i < sizeof attributes / sizeof *attributes; i++)
        status = blas->cublasLtMatmulDescSetAttribute(plan->operation, attributes[i].name,
                                                      attributes[i].value, attributes[i].bytes);
    return status;
}

static cublasStatus_t find_algorithm(ddp_cuda_blas *blas, ddp_cuda_plan *plan)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    const int32_t *align = plan->product.align;
    const size_t workspace = DDP_CUDA_WORKSPACE_BYTES;
    const uint32_t aligned[] = {(uint32_t)align[0], (uint32_t)align[1], (uint32_t)align[2]};
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } attributes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &aligned[0], sizeof aligned[0]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &aligned[1], sizeof aligned[1]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &aligned[2], sizeof aligned[2]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &aligned[2], sizeof aligned[2]},
    };
    int count = 0;
    cublasStatus_t status = blas->cublasLtMatmulPreferenceCreate(&preference);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    for (size_t i = 0; status == CUBLAS_STATUS_SUCCESS && i < sizeof attributes / sizeof *attributes; i++)
        status = blas->cublasLtMatmulPreferenceSetAttribute(preference, attributes[i].name,
                                                            attributes[i].value, attributes[i].bytes);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = blas->cublasLtMatmulAlgoGetHeuristic(blas->handle, plan->operation, plan->a, plan->b,
                                                      plan->d, plan->d, preference, 1, &found, &count);
    blas->cublasLtMatmulPreferenceDestroy(preference);
    plan->possible = status == CUBLAS_STATUS_SUCCESS && count > 0 && found.state == CUBLAS_STATUS_SUCCESS;
    if (plan->possible)
        plan->algo = found.algo;
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? CUBLAS_STATUS_SUCCESS : status;
}

static ddp_error *make_plan(ddp_cuda_blas *blas, const ddp_cuda_product *product, ddp_cuda_plan **plan)
{
    ddp_cuda_plan *made;
    DDP_TRY(DDP_NEW(&made));
    made->product = *product;
    cublasStatus_t status = describe_layouts(blas, made);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = describe_operation(blas, made);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = find_algorithm(blas, made);
    if (status != CUBLAS_STATUS_SUCCESS) {
        free_plan(blas, made);
        return ddp_cuda_blas_error(status, "planning a matrix product");
    }
    *plan = made;
    return NULL;
}

/* A model has some dozens of shapes at most: a plain search costs less than the launch that follows. */
ddp_error *ddp_cuda_blas_plan(ddp_cuda_blas *blas, const ddp_cuda_product *product, ddp_cuda_plan **plan)
{
    for (size_t i = 0; i < blas->plan_count; i++)
        if (memcmp(&blas->plans[i]->product, product, sizeof *product) == 0) {
            *plan = blas->plans[i];
            return NULL;
        }
    DDP_TRY(ddp_memory_grow((void **)&blas->plans, &blas->plan_capacity, blas->plan_count + 1,
                            sizeof *blas->plans));
    DDP_TRY(make_plan(blas, product, &blas->plans[blas->plan_count]));
    *plan = blas->plans[blas->plan_count++];
    return NULL;
}
