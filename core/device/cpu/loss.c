/* Losses, with their gradient written over the scores in the same pass. */
#include "core/device/cpu/device.h"
#include "core/device/cpu/simd.h"

static float row_max(const float *x, int64_t V)
{
    vec most = vec_all(-INFINITY);
    int64_t v = 0;
    for (; v + LANES <= V; v += LANES)
        most = vec_max(vec_load(x + v), most);
    if (v < V)
        most = vec_max(vec_load_part(x + v, V - v, -INFINITY), most);
    return vec_largest(most);
}

/* x becomes e^(x - most); returns the sum. A NaN anywhere makes the sum NaN. */
static float exponentials(float *x, float most, int64_t V)
{
    vec sum = {0}, rest = {0};
    int64_t v = 0;
    for (; v + LANES <= V; v += LANES) {
        vec e = vec_exp(vec_load(x + v) - most);
        vec_store(x + v, e);
        sum += e;
    }
    if (v < V) {
        rest = vec_exp(vec_load_part(x + v, V - v, -INFINITY) - most);
        vec_store_part(x + v, rest, V - v);
    }
    return vec_sum(sum + rest);
}

static void multiply(float *x, float factor, int64_t count)
{
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        vec_store(x + i, vec_load(x + i) * factor);
    for (; i < count; i++)
        x[i] *= factor;
}

/* Whether the target has the largest score; among equals the first counts. */
static bool is_first_largest(const float *x, int64_t target, float most)
{
    if (x[target] != most)
        return false;
    for (int64_t v = 0; v < target; v++)
        if (x[v] == most)
            return false;
    return true;
}

static void cross_entropy_row(ddp_loss *total, float *x, int64_t target, float scale, int64_t V)
{
    float most = row_max(x, V), score = x[target];
    total->correct += is_first_largest(x, target, most) ? 1 : 0;
    float sum = exponentials(x, most, V);
    total->sum += log((double)sum) + (double)most - (double)score;
    total->items += 1;
    if (scale > 0) {
        multiply(x, scale / sum, V);
        x[target] -= scale;
    }
}

void ddp_cpu_cross_entropy(ddp_stream *s, ddp_loss *total, void *logits, const int32_t *targets, float scale,
                           int64_t R, int64_t V)
{
    for (int64_t r = 0; r < R; r++)
        if (targets[r] < -1 || targets[r] >= V) {
            ddp_cpu_stream_fail(
                s, ddp_error_make(DDP_ERR_INPUT,
                                  "target %d (row %lld of the batch) is no class: 0 to %lld, or -1 "
                                  "for none, were expected",
                                  targets[r], (long long)r, (long long)V - 1));
            return;
        }
    for (int64_t r = 0; r < R; r++) {
        float *row = (float *)logits + r * V;
        if (targets[r] >= 0)
            cross_entropy_row(total, row, targets[r], scale, V);
        else if (scale > 0)
            memset(row, 0, (size_t)V * sizeof *row);
    }
}

void ddp_cpu_squared_error(ddp_stream *s, ddp_loss *total, void *prediction, const float *targets,
                           float scale, int64_t R, int64_t C)
{
    for (int64_t r = 0; r < R; r++) {
        float *row = (float *)prediction + r * C;
        const float *target = targets + r * C;
        if (isnan(target[0])) {
            if (scale > 0)
                memset(row, 0, (size_t)C * sizeof *row);
            continue;
        }
        double sum = 0;
        for (int64_t c = 0; c < C; c++) {
            float difference = row[c] - target[c];
            sum += (double)difference * difference;
            if (scale > 0)
                row[c] = scale * difference;
        }
        total->sum += 0.5 * sum;
        total->items += 1;
    }
}
