/* Naive float64 versions; see reference.h. */
#include "kernels/reference.h"

#include <math.h>
#include <stdlib.h>

double reference_activation(double x, ddp_activation act)
{
    if (act == DDP_ACT_RELU)
        return x > 0 ? x : 0;
    if (act == DDP_ACT_GELU)
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    return x;
}

void reference_linear(double *y, const double *x, const double *w, const double *b, int64_t R, int64_t K,
                      int64_t C)
{
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C; c++) {
            double sum = b ? b[c] : 0;
            for (int64_t k = 0; k < K; k++)
                sum += x[r * K + k] * w[c * K + k];
            y[r * C + c] = sum;
        }
}

void reference_norm(double *y, double *sum, const double *a, const double *b, const double *weight,
                    const double *bias, int64_t R, int64_t C)
{
    for (int64_t r = 0; r < R; r++) {
        double mean = 0, variance = 0;
        for (int64_t c = 0; c < C; c++) {
            sum[r * C + c] = a[r * C + c] + (b ? b[r * C + c] : 0);
            mean += sum[r * C + c] / (double)C;
        }
        for (int64_t c = 0; c < C; c++)
            variance += (sum[r * C + c] - mean) * (sum[r * C + c] - mean) / (double)C;
        for (int64_t c = 0; c < C; c++)
            y[r * C + c] = (sum[r * C + c] - mean) / sqrt(variance + 1e-5) * weight[c] + bias[c];
    }
}

void reference_embedding(double *y, const int32_t *ids, const double *tokens, const double *positions,
                         int64_t B, int64_t T, int64_t C)
{
    for (int64_t r = 0; r < B * T; r++)
        for (int64_t c = 0; c < C; c++)
            y[r * C + c] = tokens[ids[r] * C + c] + positions[r % T * C + c];
}

static void attend(double *y, const double *q, const double *k, const double *v, int64_t t, int64_t stride,
                   int64_t D, double *p)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= t; j++) {
        p[j] = 0;
        for (int64_t d = 0; d < D; d++)
            p[j] += q[t * stride + d] * k[j * stride + d] / sqrt((double)D);
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j <= t; j++)
        sum += p[j] = exp(p[j] - most);
    for (int64_t d = 0; d < D; d++) {
        y[d] = 0;
        for (int64_t j = 0; j <= t; j++)
            y[d] += p[j] / sum * v[j * stride + d];
    }
}

void reference_attention(double *y, const double *qkv, int64_t B, int64_t T, int64_t H, int64_t D)
{
    double *p = malloc((size_t)T * sizeof *p);
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t t = 0; t < T; t++) {
                const double *q = qkv + b * T * 3 * H * D + h * D;
                attend(y + (b * T + t) * H * D + h * D, q, q + H * D, q + 2 * H * D, t, 3 * H * D, D, p);
            }
    free(p);
}

double reference_cross_entropy(const double *logits, const int32_t *targets, int64_t R, int64_t V)
{
    double total = 0;
    for (int64_t r = 0; r < R; r++) {
        const double *x = logits + r * V;
        double most = -INFINITY, sum = 0;
        if (targets[r] < 0)
            continue;
        for (int64_t v = 0; v < V; v++)
            most = fmax(most, x[v]);
        for (int64_t v = 0; v < V; v++)
            sum += exp(x[v] - most);
        total += log(sum) + most - x[targets[r]];
    }
    return total;
}

double reference_squared_error(const double *prediction, const float *targets, int64_t R, int64_t C)
{
    double total = 0;
    for (int64_t r = 0; r < R; r++)
        for (int64_t c = 0; c < C && !isnan(targets[r * C]); c++)
            total += 0.5 * pow(prediction[r * C + c] - (double)targets[r * C + c], 2);
    return total;
}
