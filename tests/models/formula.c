/* See formula.h. */
#include "models/formula.h"

#include <stdlib.h>

#include "kernels/reference.h"

static double *doubles(int64_t count)
{
    return calloc((size_t)count, sizeof(double));
}

static double *features(const trial *t)
{
    int64_t count = t->samples * t->sample.input_count;
    double *x = doubles(count);
    for (int64_t i = 0; i < count; i++)
        x[i] = ((const float *)t->input)[i];
    return x;
}

/* act(x w^T + b) of the layer PREFIX.weight, PREFIX.bias; frees x. */
static double *linear(const trial *t, const double *weights, const char *prefix, double *x,
                      ddp_activation act, int64_t rows)
{
    char name[64];
    snprintf(name, sizeof name, "%s%sweight", prefix, *prefix ? "." : "");
    const ddp_param *w = trial_param(t, name);
    snprintf(name, sizeof name, "%s%sbias", prefix, *prefix ? "." : "");
    const ddp_param *b = trial_param(t, name);
    double *y = doubles(rows * w->shape[0]);
    reference_linear(y, x, weights + w->offset, weights + b->offset, rows, w->shape[1], w->shape[0]);
    for (int64_t i = 0; i < rows * w->shape[0]; i++)
        y[i] = reference_activation(y[i], act);
    free(x);
    return y;
}

double formula_linear_classes(const trial *t, const double *weights)
{
    double *y = linear(t, weights, "", features(t), DDP_ACT_NONE, t->samples);
    double loss = reference_cross_entropy(y, t->target, t->samples, t->sample.classes);
    free(y);
    return loss;
}

double formula_linear_values(const trial *t, const double *weights)
{
    double *y = linear(t, weights, "", features(t), DDP_ACT_NONE, t->samples);
    double loss = reference_squared_error(y, t->target, t->samples, t->sample.target_count);
    free(y);
    return loss;
}

static double mlp(const trial *t, const double *weights, ddp_activation act)
{
    double *x = linear(t, weights, "layers.0", features(t), act, t->samples);
    x = linear(t, weights, "layers.1", x, act, t->samples);
    x = linear(t, weights, "layers.2", x, DDP_ACT_NONE, t->samples);
    double loss = reference_cross_entropy(x, t->target, t->samples, t->sample.classes);
    free(x);
    return loss;
}

double formula_mlp_relu(const trial *t, const double *weights)
{
    return mlp(t, weights, DDP_ACT_RELU);
}

double formula_mlp_gelu(const trial *t, const double *weights)
{
    return mlp(t, weights, DDP_ACT_GELU);
}

static double *norm(const trial *t, const double *weights, const char *prefix, const double *x, int64_t rows)
{
    char name[64];
    snprintf(name, sizeof name, "%s.weight", prefix);
    const ddp_param *w = trial_param(t, name);
    snprintf(name, sizeof name, "%s.bias", prefix);
    const ddp_param *b = trial_param(t, name);
    double *y = doubles(rows * w->count), *sum = doubles(rows * w->count);
    reference_norm(y, sum, x, NULL, weights + w->offset, weights + b->offset, rows, w->count);
    free(sum);
    return y;
}

static void add(double *x, double *branch, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        x[i] += branch[i];
    free(branch);
}

static void block(const trial *t, const double *weights, int layer, double *x, int64_t rows, int64_t C)
{
    char name[6][32];
    const char *parts[6] = {"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"};
    for (int i = 0; i < 6; i++)
        snprintf(name[i], sizeof name[i], "h.%d.%s", layer, parts[i]);
    double *qkv = linear(t, weights, name[1], norm(t, weights, name[0], x, rows), DDP_ACT_NONE, rows);
    double *y = doubles(rows * C);
    reference_attention(y, qkv, t->samples, t->sample.input_count, FORMULA_HEADS, C / FORMULA_HEADS);
    free(qkv);
    add(x, linear(t, weights, name[2], y, DDP_ACT_NONE, rows), rows * C);
    double *inner = linear(t, weights, name[4], norm(t, weights, name[3], x, rows), DDP_ACT_GELU, rows);
    add(x, linear(t, weights, name[5], inner, DDP_ACT_NONE, rows), rows * C);
}

double formula_gpt(const trial *t, const double *weights)
{
    const ddp_param *wte = trial_param(t, "wte.weight"), *wpe = trial_param(t, "wpe.weight");
    int64_t V = wte->shape[0], C = wte->shape[1], T = t->sample.input_count, rows = t->samples * T;
    double *x = doubles(rows * C), *scores = doubles(rows * V);
    reference_embedding(x, t->input, weights + wte->offset, weights + wpe->offset, t->samples, T, C);
    for (int layer = 0; layer < FORMULA_LAYERS; layer++)
        block(t, weights, layer, x, rows, C);
    double *y = norm(t, weights, "ln_f", x, rows);
    reference_linear(scores, y, weights + wte->offset, NULL, rows, C, V);
    double loss = reference_cross_entropy(scores, t->target, rows, V);
    free(x);
    free(y);
    free(scores);
    return loss;
}
