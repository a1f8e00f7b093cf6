/* What models are put together from: layers with parameters, over the kernel table, and the division of one
 * allocation into activations. Not a graph and not autograd: a model calls forward and backward itself, in
 * the order its formula has. */
#ifndef DDP_MODELS_LAYERS_H
#define DDP_MODELS_LAYERS_H

#include <ddp/model.h>

/* A weight in the parameter table with its bias right behind it (index weight + 1). */
typedef struct ddp_layer {
    int weight;
    int64_t in, out; /* of a norm both are the width */
} ddp_layer;

/* Add PREFIX.weight and PREFIX.bias ("weight" and "bias" where the prefix is empty): a matrix (out, in) with
 * the given start and a zero bias; a norm of ones and zeros. Matrices decay. Errors: see ddp_params_add. */
DDP_USE_RESULT ddp_error *ddp_layer_add_linear(ddp_params *params, const char *prefix, int64_t in,
                                               int64_t out, ddp_init init, double scale);
DDP_USE_RESULT ddp_error *ddp_layer_add_norm(ddp_params *params, const char *prefix, int64_t width);

/* y(rows, out) = act(x w^T + b), see kernels.h for `pre`. */
void ddp_layer_forward(const ddp_model *model, ddp_layer layer, void *y, void *pre, const void *x,
                       ddp_activation act, int64_t rows);

/* Gradients of weight and bias from dy(rows, out), and says that both are final. */
void ddp_layer_backward_weight(const ddp_model *model, ddp_layer layer, const void *dy, const void *x,
                               int64_t rows, ddp_ready ready);

/* dx(rows, in) = (dy w) * act'(saved), see kernels.h. */
void ddp_layer_backward_input(const ddp_model *model, ddp_layer layer, void *dx, const void *dy,
                              const void *saved, ddp_activation act, int64_t rows);

/* What a norm keeps for its backward: what was normalised, what came out, and mean and 1 / deviation a row.
 */
typedef struct ddp_norm {
    void *x, *y;
    float *mean, *rstd;
} ddp_norm;

/* kept->x = a + b (b NULL: kept->x is `a` already), kept->y = its norm. */
void ddp_norm_forward(const ddp_model *model, ddp_layer layer, const ddp_norm *kept, const void *a,
                      const void *b, int64_t rows);

/* dx = residual + gradient through the norm, from dy; then weight and bias are final. `residual` may be NULL
 * or dx itself. */
void ddp_norm_backward(const ddp_model *model, ddp_layer layer, const ddp_norm *kept, void *dx,
                       const void *dy, const void *residual, int64_t rows, ddp_ready ready);

/* Divides one allocation. With `base` NULL it only counts, so that what `plan` says and what `open` takes
 * come from the same lines. Parts are aligned to 256 bytes. `bytes` stops at 2 EiB: a plan of absurd sizes
 * ends in a refused allocation, not in an overflow. */
typedef struct ddp_carver {
    char *base;
    int64_t bytes;
} ddp_carver;
void *ddp_carve(ddp_carver *carver, int64_t rows, int64_t columns, size_t element);

/* INTERNAL: a batch that is empty or larger than the model was opened for. */
DDP_USE_RESULT ddp_error *ddp_model_check_batch(const ddp_model *model, const ddp_batch *batch);

/* INTERNAL: backward without a forward that trains before it. `batch` is that forward's, count 0 = none. */
DDP_USE_RESULT ddp_error *ddp_model_check_trained(const ddp_batch *batch);

#endif
