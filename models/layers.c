/* Layers with parameters: each function is one kernel call with the places of its parameters filled in. */
#include "models/layers.h"

#include <inttypes.h>
#include <stdio.h>

enum { CARVE_ALIGN = 256 };

static ddp_error *add(ddp_params *params, const char *prefix, const char *name, ddp_init init, double scale,
                      int dims, const int64_t *shape)
{
    char full[160];
    int index;
    snprintf(full, sizeof full, "%s%s%s", prefix, prefix[0] != '\0' ? "." : "", name);
    return ddp_params_add(params, full, init, scale, dims > 1, dims, shape, &index);
}

ddp_error *ddp_layer_add_linear(ddp_params *params, const char *prefix, int64_t in, int64_t out,
                                ddp_init init, double scale)
{
    DDP_TRY(add(params, prefix, "weight", init, scale, 2, (int64_t[]){out, in}));
    return add(params, prefix, "bias", DDP_INIT_ZERO, 0, 1, &out);
}

ddp_error *ddp_layer_add_norm(ddp_params *params, const char *prefix, int64_t width)
{
    DDP_TRY(add(params, prefix, "weight", DDP_INIT_ONE, 0, 1, &width));
    return add(params, prefix, "bias", DDP_INIT_ZERO, 0, 1, &width);
}

/* Bias first: the reverse of forward order, in which the arena lies. */
static void tell_final(ddp_layer layer, ddp_ready ready)
{
    ready.call(ready.arg, layer.weight + 1);
    ready.call(ready.arg, layer.weight);
}

void ddp_layer_forward(const ddp_model *model, ddp_layer layer, void *y, void *pre, const void *x,
                       ddp_activation act, int64_t rows)
{
    const void *w = ddp_model_weights(model, layer.weight), *b = ddp_model_weights(model, layer.weight + 1);
    model->env.device->kernels->linear_forward(model->env.stream, y, pre, x, w, b, act, rows, layer.in,
                                               layer.out);
}

void ddp_layer_backward_weight(const ddp_model *model, ddp_layer layer, const void *dy, const void *x,
                               int64_t rows, ddp_ready ready)
{
    float *dw = ddp_model_gradients(model, layer.weight), *db = ddp_model_gradients(model, layer.weight + 1);
    model->env.device->kernels->linear_backward_weight(model->env.stream, dw, db, dy, x, rows, layer.in,
                                                       layer.out);
    tell_final(layer, ready);
}

void ddp_layer_backward_input(const ddp_model *model, ddp_layer layer, void *dx, const void *dy,
                              const void *saved, ddp_activation act, int64_t rows)
{
    const void *w = ddp_model_weights(model, layer.weight);
    model->env.device->kernels->linear_backward_input(model->env.stream, dx, dy, w, saved, act, false, rows,
                                                      layer.in, layer.out);
}

void ddp_norm_forward(const ddp_model *model, ddp_layer layer, const ddp_norm *kept, const void *a,
                      const void *b, int64_t rows)
{
    const void *weight = ddp_model_weights(model, layer.weight),
               *bias = ddp_model_weights(model, layer.weight + 1);
    model->env.device->kernels->norm_forward(model->env.stream, kept->y, b != NULL ? kept->x : NULL,
                                             kept->mean, kept->rstd, a, b, weight, bias, rows, layer.in);
}

void ddp_norm_backward(const ddp_model *model, ddp_layer layer, const ddp_norm *kept, void *dx,
                       const void *dy, const void *residual, int64_t rows, ddp_ready ready)
{
    float *dw = ddp_model_gradients(model, layer.weight), *db = ddp_model_gradients(model, layer.weight + 1);
    model->env.device->kernels->norm_backward(model->env.stream, dx, dw, db, dy, kept->x, kept->mean,
                                              kept->rstd, ddp_model_weights(model, layer.weight), residual,
                                              rows, layer.in);
    tell_final(layer, ready);
}

void *ddp_carve(ddp_carver *carver, int64_t rows, int64_t columns, size_t element)
{
    const int64_t most = INT64_MAX / 4;
    int64_t at = carver->bytes, bytes;
    bool fits = !__builtin_mul_overflow(rows, columns, &bytes) &&
                !__builtin_mul_overflow(bytes, (int64_t)element, &bytes) && bytes <= most;
    if (fits)
        carver->bytes += (bytes + CARVE_ALIGN - 1) / CARVE_ALIGN * CARVE_ALIGN;
    if (!fits || carver->bytes > most)
        carver->bytes = most;
    return carver->base != NULL ? carver->base + at : NULL;
}

ddp_error *ddp_model_check_batch(const ddp_model *model, const ddp_batch *batch)
{
    if (batch->count < 1 || batch->count > model->env.micro_batch)
        return ddp_error_make(DDP_ERR_INTERNAL,
                              "a batch of %" PRId64 " samples; the model was opened for 1 to %" PRId64,
                              batch->count, model->env.micro_batch);
    return NULL;
}

ddp_error *ddp_model_check_trained(const ddp_batch *batch)
{
    if (batch->count == 0)
        return ddp_error_make(DDP_ERR_INTERNAL, "backward without a forward with scale > 0 before it");
    return NULL;
}
