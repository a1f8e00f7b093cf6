/* Reductions and optimizer updates over flat ranges. All are bound by memory: one pass each. */
#include "core/device/cpu/device.h"
#include "core/device/cpu/simd.h"

/* In double from the first square on: the norm of 100 M small gradients must not depend on where a float runs
 * out of bits. Four accumulators of four lanes, added in one fixed order. */
void ddp_cpu_sum_squares(ddp_stream *s, double *total, const float *x, int64_t count)
{
    dvec sum[4] = {{0}};
    int64_t i = 0;
    for (; i + 16 <= count; i += 16)
        for (int j = 0; j < 4; j++) {
            half_vec part;
            memcpy(&part, x + i + 4 * j, sizeof part);
            dvec wide = __builtin_convertvector(part, dvec);
            sum[j] += wide * wide;
        }
    dvec all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    double rest = 0;
    for (; i < count; i++)
        rest += (double)x[i] * x[i];
    *total += ((all[0] + all[2]) + (all[1] + all[3])) + rest;
}

void ddp_cpu_adamw(ddp_stream *s, float *weights, const float *gradients, float *mean, float *square,
                   int64_t count, const ddp_adamw_args *args)
{
    const float scale = *args->scale;
    if (scale < 0)
        return;
    float *restrict w = weights, *restrict m = mean, *restrict v = square;
    const float *restrict grad = gradients;
    const float beta1 = (float)args->beta1, rest1 = (float)(1 - args->beta1);
    const float beta2 = (float)args->beta2, rest2 = (float)(1 - args->beta2);
    const float step = (float)(args->lr / args->correction1), root = (float)(1 / sqrt(args->correction2));
    const float eps = args->eps, decay = args->lr * args->decay;
    for (int64_t i = 0; i < count; i++) {
        float g = grad[i] * scale;
        m[i] = beta1 * m[i] + rest1 * g;
        v[i] = beta2 * v[i] + rest2 * (g * g);
        w[i] -= decay * w[i] + step * m[i] / (sqrtf(v[i]) * root + eps);
    }
}

void ddp_cpu_sgd(ddp_stream *s, float *weights, const float *gradients, float *velocity, int64_t count,
                 const ddp_sgd_args *args)
{
    const float scale = *args->scale, lr = args->lr, momentum = args->momentum, decay = args->decay;
    if (scale < 0)
        return;
    float *restrict w = weights, *restrict v = velocity;
    const float *restrict grad = gradients;
    if (v == NULL) {
        for (int64_t i = 0; i < count; i++)
            w[i] -= lr * (grad[i] * scale + decay * w[i]);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        v[i] = momentum * v[i] + grad[i] * scale;
        w[i] -= lr * (v[i] + decay * w[i]);
    }
}

void ddp_cpu_step_scale(ddp_stream *s, float *scale, double *norm, const double *sum_squares,
                        const ddp_loss *totals, double nominal_items, double clip)
{
    *scale = -1;
    *norm = 0;
    if (!(totals->items > 0))
        return;
    double correction = nominal_items / totals->items;
    *norm = sqrt(*sum_squares) * correction;
    if (!isfinite(*norm))
        return;
    double factor = clip > 0 && *norm > clip ? clip / *norm : 1;
    *scale = (float)(correction * factor);
}
