/* Linear layers: OpenBLAS for the products, our own passes for bias and activation.
 *
 * Products go through in blocks of rows, so that the pass over a block finds it still in the cache. */
#include "core/device/cpu/device.h"
#include "core/device/cpu/simd.h"

enum { BLOCK_ROWS = 256, SUM_ROWS = 64 };

static const ddp_blas *blas_of(const ddp_stream *s)
{
    return &((const ddp_cpu_device *)s->device)->blas;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Sigmoid of 2u where tanh-GELU is x * that: 0.5 (1 + tanh u) = 1 / (1 + e^-2u), with
 * u = sqrt(2 / pi) (x + 0.044715 x^3). One exponential and one division, and no cancellation for x << 0. */
#define GELU_C 1.5957691216057308f /* 2 sqrt(2 / pi) */
#define GELU_A 0.044715f

SIMD vec gelu_gate(vec x)
{
    return 1.0f / (1.0f + vec_exp(x * (x * x * (-GELU_C * GELU_A) - GELU_C)));
}

SIMD vec activate(vec x, ddp_activation act)
{
    if (act == DDP_ACT_GELU)
        return x * gelu_gate(x);
    if (act == DDP_ACT_RELU)
        return vec_choose(x < vec_all(0), vec_all(0), x); /* NaN stays */
    return x;
}

/* act' at `saved`, see linear_backward_input. */
SIMD vec derive(vec saved, ddp_activation act)
{
    if (act == DDP_ACT_GELU) {
        vec gate = gelu_gate(saved);
        vec slope = saved * (saved * saved * (3 * GELU_C * GELU_A) + GELU_C);
        return gate + slope * (gate - gate * gate);
    }
    return vec_choose(saved > vec_all(0), vec_all(1), vec_all(0));
}

/* Rows of z become z + b, kept in place where `pre` is asked for, and y = act(z + b). z is y or pre. */
SIMD void finish_rows(float *y, float *pre, const float *b, ddp_activation act, int64_t R, int64_t C)
{
    for (int64_t r = 0; r < R; r++, y += C, pre += pre ? C : 0) {
        float *z = pre ? pre : y;
        int64_t c = 0;
        for (; c + LANES <= C; c += LANES) {
            vec v = vec_load(z + c);
            if (b != NULL)
                v += vec_load(b + c);
            if (pre != NULL)
                vec_store(pre + c, v);
            vec_store(y + c, activate(v, act));
        }
        if (c < C) {
            vec v = vec_load_part(z + c, C - c, 0);
            if (b != NULL)
                v += vec_load_part(b + c, C - c, 0);
            if (pre != NULL)
                vec_store_part(pre + c, v, C - c);
            vec_store_part(y + c, activate(v, act), C - c);
        }
    }
}

static void finish(float *y, float *pre, const float *b, ddp_activation act, int64_t R, int64_t C)
{
    if (act == DDP_ACT_GELU)
        finish_rows(y, pre, b, DDP_ACT_GELU, R, C);
    else if (act == DDP_ACT_RELU)
        finish_rows(y, pre, b, DDP_ACT_RELU, R, C);
    else if (b != NULL || pre != NULL)
        finish_rows(y, pre, b, DDP_ACT_NONE, R, C);
}

void ddp_cpu_linear_forward(ddp_stream *s, void *y, void *pre, const void *x, const void *w, const void *b,
                            ddp_activation act, int64_t R, int64_t K, int64_t C)
{
    int64_t block = act == DDP_ACT_NONE && b == NULL ? R : BLOCK_ROWS;
    for (int64_t r = 0; r < R; r += block) {
        int64_t rows = least(block, R - r);
        float *out = (float *)y + r * C, *kept = pre ? (float *)pre + r * C : NULL;
        blas_of(s)->sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)C, (int)K, 1,
                          (const float *)x + r * K, (int)K, w, (int)K, 0, kept ? kept : out, (int)C);
        finish(out, kept, b, act, rows, C);
    }
}

SIMD void multiply_derivative(float *dx, const float *saved, ddp_activation act, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        vec_store(dx + i, vec_load(dx + i) * derive(vec_load(saved + i), act));
    if (i < count)
        vec_store_part(
            dx + i, vec_load_part(dx + i, count - i, 0) * derive(vec_load_part(saved + i, count - i, 0), act),
            count - i);
}

void ddp_cpu_linear_backward_input(ddp_stream *s, void *dx, const void *dy, const void *w, const void *saved,
                                   ddp_activation act, bool add, int64_t R, int64_t K, int64_t C)
{
    int64_t block = act == DDP_ACT_NONE ? R : BLOCK_ROWS;
    for (int64_t r = 0; r < R; r += block) {
        int64_t rows = least(block, R - r);
        float *out = (float *)dx + r * K;
        const float *kept = act == DDP_ACT_NONE ? NULL : (const float *)saved + r * K;
        blas_of(s)->sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)K, (int)C, 1,
                          (const float *)dy + r * C, (int)C, w, (int)K, add ? 1 : 0, out, (int)K);
        if (act == DDP_ACT_GELU)
            multiply_derivative(out, kept, DDP_ACT_GELU, rows * K);
        else if (act == DDP_ACT_RELU)
            multiply_derivative(out, kept, DDP_ACT_RELU, rows * K);
    }
}

/* db += column sums of dy. Partial sums of SUM_ROWS rows bound the rounding error of long columns; four
 * columns of vectors at a time keep the sums in registers. */
static void add_column_sums(float *db, const float *dy, int64_t R, int64_t C)
{
    for (int64_t r = 0; r < R; r += SUM_ROWS) {
        int64_t rows = least(SUM_ROWS, R - r), c = 0;
        const float *block = dy + r * C;
        for (; c + 4 * LANES <= C; c += 4 * LANES) {
            vec sum[4] = {{0}};
            for (int64_t i = 0; i < rows; i++)
                for (int j = 0; j < 4; j++)
                    sum[j] += vec_load(block + i * C + c + j * LANES);
            for (int j = 0; j < 4; j++)
                vec_store(db + c + j * LANES, vec_load(db + c + j * LANES) + sum[j]);
        }
        for (; c < C; c++) {
            float sum = 0;
            for (int64_t i = 0; i < rows; i++)
                sum += block[i * C + c];
            db[c] += sum;
        }
    }
}

void ddp_cpu_linear_backward_weight(ddp_stream *s, float *dw, float *db, const void *dy, const void *x,
                                    int64_t R, int64_t K, int64_t C)
{
    if (R == 0)
        return;
    blas_of(s)->sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)C, (int)K, (int)R, 1, dy, (int)C, x,
                      (int)K, 1, dw, (int)K);
    if (db != NULL)
        add_column_sums(db, dy, R, C);
}
