/* LayerNorm and embeddings: one pass of memory each, a row at a time while it is in the cache. */
#include "core/device/cpu/device.h"
#include "core/device/cpu/simd.h"

#define NORM_EPS 1e-5f
enum { SUM_ROWS = 64 };

/* sum = a + b (or just a), written where it is kept; returns the mean. */
static float sum_and_mean(float *sum, const float *a, const float *b, int64_t C)
{
    vec total = {0};
    int64_t c = 0;
    for (; c + LANES <= C; c += LANES) {
        vec v = vec_load(a + c);
        if (b != NULL) {
            v += vec_load(b + c);
            vec_store(sum + c, v);
        }
        total += v;
    }
    if (c < C) {
        vec v = vec_load_part(a + c, C - c, 0);
        if (b != NULL) {
            v += vec_load_part(b + c, C - c, 0);
            vec_store_part(sum + c, v, C - c);
        }
        total += v;
    }
    return vec_sum(total) / (float)C;
}

static float inverse_deviation(const float *x, float mean, int64_t C)
{
    vec total = {0};
    int64_t c = 0;
    for (; c + LANES <= C; c += LANES) {
        vec d = vec_load(x + c) - mean;
        total += d * d;
    }
    if (c < C) {
        vec d = vec_load_part(x + c, C - c, mean) - mean;
        total += d * d;
    }
    return 1.0f / sqrtf(vec_sum(total) / (float)C + NORM_EPS);
}

static void normalise(float *y, const float *x, float mean, float rstd, const float *weight,
                      const float *bias, int64_t C)
{
    int64_t c = 0;
    for (; c + LANES <= C; c += LANES)
        vec_store(y + c, (vec_load(x + c) - mean) * rstd * vec_load(weight + c) + vec_load(bias + c));
    for (; c < C; c++)
        y[c] = (x[c] - mean) * rstd * weight[c] + bias[c];
}

void ddp_cpu_norm_forward(ddp_stream *s, void *y, void *sum, float *mean, float *rstd, const void *a,
                          const void *b, const void *weight, const void *bias, int64_t R, int64_t C)
{
    for (int64_t r = 0; r < R; r++) {
        const float *row = (const float *)a + r * C;
        float *kept = b ? (float *)sum + r * C : NULL;
        mean[r] = sum_and_mean(kept, row, b ? (const float *)b + r * C : NULL, C);
        const float *x = b ? kept : row;
        rstd[r] = inverse_deviation(x, mean[r], C);
        normalise((float *)y + r * C, x, mean[r], rstd[r], weight, bias, C);
    }
}

/* One row's input to the backward pass. */
typedef struct norm_row {
    const float *dy, *x, *weight;
    float mean, rstd;
} norm_row;

/* Adds the row to dweight and dbias, and gives the two means that the derivative of the normalisation needs:
 * of g = dy * weight, and of g * normalised. */
static void norm_row_sums(const norm_row *row, float *dweight, float *dbias, float *mean_g, float *mean_gx,
                          int64_t C)
{
    vec total_g = {0}, total_gx = {0};
    int64_t c = 0;
    for (; c + LANES <= C; c += LANES) {
        vec dy = vec_load(row->dy + c), x = (vec_load(row->x + c) - row->mean) * row->rstd;
        vec g = dy * vec_load(row->weight + c);
        total_g += g;
        total_gx += g * x;
        vec_store(dbias + c, vec_load(dbias + c) + dy);
        vec_store(dweight + c, vec_load(dweight + c) + dy * x);
    }
    float rest_g = 0, rest_gx = 0;
    for (; c < C; c++) {
        float x = (row->x[c] - row->mean) * row->rstd, g = row->dy[c] * row->weight[c];
        rest_g += g;
        rest_gx += g * x;
        dbias[c] += row->dy[c];
        dweight[c] += row->dy[c] * x;
    }
    *mean_g = (vec_sum(total_g) + rest_g) / (float)C;
    *mean_gx = (vec_sum(total_gx) + rest_gx) / (float)C;
}

/* dx may be dy or residual: each element is read before it is written. */
static void norm_row_input(float *dx, const norm_row *row, const float *residual, float mean_g, float mean_gx,
                           int64_t C)
{
    int64_t c = 0;
    for (; c + LANES <= C; c += LANES) {
        vec x = (vec_load(row->x + c) - row->mean) * row->rstd;
        vec d = (vec_load(row->dy + c) * vec_load(row->weight + c) - mean_g - x * mean_gx) * row->rstd;
        vec_store(dx + c, residual ? d + vec_load(residual + c) : d);
    }
    for (; c < C; c++) {
        float x = (row->x[c] - row->mean) * row->rstd;
        float d = (row->dy[c] * row->weight[c] - mean_g - x * mean_gx) * row->rstd;
        dx[c] = residual ? d + residual[c] : d;
    }
}

static void add_to(float *to, const float *x, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        vec_store(to + i, vec_load(to + i) + vec_load(x + i));
    for (; i < count; i++)
        to[i] += x[i];
}

void ddp_cpu_norm_backward(ddp_stream *s, void *dx, float *dweight, float *dbias, const void *dy,
                           const void *x, const float *mean, const float *rstd, const void *weight,
                           const void *residual, int64_t R, int64_t C)
{
    size_t bytes = (size_t)C * sizeof(float);
    float *sums = ddp_cpu_scratch(s, 2 * bytes); /* of SUM_ROWS rows: bounds the rounding error */
    if (sums == NULL)
        return;
    for (int64_t r = 0; r < R; r++) {
        if (r % SUM_ROWS == 0)
            memset(sums, 0, 2 * bytes);
        norm_row row = {(const float *)dy + r * C, (const float *)x + r * C, weight, mean[r], rstd[r]};
        float mean_g, mean_gx;
        norm_row_sums(&row, sums, sums + C, &mean_g, &mean_gx, C);
        norm_row_input((float *)dx + r * C, &row, residual ? (const float *)residual + r * C : NULL, mean_g,
                       mean_gx, C);
        if (r % SUM_ROWS == SUM_ROWS - 1 || r == R - 1) {
            add_to(dweight, sums, C);
            add_to(dbias, sums + C, C);
        }
    }
}

void ddp_cpu_embedding_forward(ddp_stream *s, void *y, const int32_t *ids, const void *tokens,
                               const void *positions, int64_t B, int64_t T, int64_t C)
{
    for (int64_t r = 0; r < B * T; r++) {
        const float *token = (const float *)tokens + ids[r] * C,
                    *position = (const float *)positions + r % T * C;
        float *to = (float *)y + r * C;
        int64_t c = 0;
        for (; c + LANES <= C; c += LANES)
            vec_store(to + c, vec_load(token + c) + vec_load(position + c));
        for (; c < C; c++)
            to[c] = token[c] + position[c];
    }
}

void ddp_cpu_embedding_backward(ddp_stream *s, float *dtokens, float *dpositions, const void *dy,
                                const int32_t *ids, int64_t B, int64_t T, int64_t C, int64_t V)
{
    for (int64_t r = 0; r < B * T; r++)
        if (ids[r] < 0 || ids[r] >= V) {
            ddp_cpu_stream_fail(
                s, ddp_error_make(DDP_ERR_INPUT,
                                  "token id %d (sample %lld, token %lld of the batch) is outside "
                                  "the vocabulary of %lld",
                                  ids[r], (long long)(r / T), (long long)(r % T), (long long)V));
            return;
        }
    for (int64_t r = 0; r < B * T; r++) {
        const float *row = (const float *)dy + r * C;
        add_to(dtokens + ids[r] * C, row, C);
        add_to(dpositions + r % T * C, row, C);
    }
}
