/* Stochastic gradient descent with momentum: v = momentum * v + g;  w -= lr * (v + weight_decay * w). */
#include <ddp/optim.h>

#include "runtime/optim/optims.h"

typedef struct sgd_settings {
    double momentum, weight_decay;
} sgd_settings;

static const ddp_field fields[] = {
    {.key = "momentum",
     .type = DDP_FIELD_FLOAT,
     .offset = offsetof(sgd_settings, momentum),
     .fallback = "0.9",
     .min = 0,
     .max = 0.99999999,
     .help = "share of the last velocity that is kept; 0 = plain gradient descent"},
    {.key = "weight_decay",
     .type = DDP_FIELD_FLOAT,
     .offset = offsetof(sgd_settings, weight_decay),
     .fallback = "0",
     .min = 0,
     .max = 1e3,
     .help = "decay of matrices and embeddings; biases and norms never decay"},
    DDP_FIELD_END,
};

static ddp_error *check(const void *settings)
{
    return NULL;
}

static void update(const void *settings, const ddp_update *update)
{
    const sgd_settings *sgd = settings;
    ddp_sgd_args args = {
        .scale = update->scale,
        .lr = (float)update->lr,
        .momentum = (float)sgd->momentum,
        .decay = update->decay ? (float)sgd->weight_decay : 0.0f,
    };
    update->stream->device->kernels->sgd(update->stream, update->weights, update->gradients, update->slots[0],
                                         update->count, &args);
}

const ddp_optim_ops ddp_optim_sgd_ops = {
    .name = "sgd",
    .help = "stochastic gradient descent with momentum",
    .fields = fields,
    .config_bytes = sizeof(sgd_settings),
    .slots = 1,
    .slot_names = {"momentum"},
    .check = check,
    .update = update,
};
