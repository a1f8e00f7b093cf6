/* AdamW: decoupled weight decay, bias-corrected (Loshchilov, Hutter, "Decoupled weight decay
 * regularization", ICLR 2019; the step as in their algorithm 2 with lr folded into the decay). */
#include <ddp/optim.h>
#include <math.h>

#include "runtime/optim/optims.h"

typedef struct adamw_settings {
    ddp_floats betas;
    double eps, weight_decay;
} adamw_settings;

static const ddp_field fields[] = {
    {.key = "betas",
     .type = DDP_FIELD_FLOATS,
     .offset = offsetof(adamw_settings, betas),
     .fallback = "[0.9, 0.999]",
     .min = 0,
     .max = 0.99999999,
     .help = "decay of the running mean and of the running square of the gradient, two numbers"},
    {.key = "eps",
     .type = DDP_FIELD_FLOAT,
     .offset = offsetof(adamw_settings, eps),
     .fallback = "1e-8",
     .min = 0,
     .max = 1,
     .help = "added to the root of the running square"},
    {.key = "weight_decay",
     .type = DDP_FIELD_FLOAT,
     .offset = offsetof(adamw_settings, weight_decay),
     .fallback = "0.01",
     .min = 0,
     .max = 1e3,
     .help = "decoupled decay of matrices and embeddings; biases and norms never decay"},
    DDP_FIELD_END,
};

static ddp_error *check(const void *settings)
{
    const adamw_settings *adamw = settings;
    if (adamw->betas.count != 2)
        return ddp_error_make(DDP_ERR_INPUT, "optimizer.betas: %zu numbers, two are needed: [0.9, 0.999]",
                              adamw->betas.count);
    return NULL;
}

static void update(const void *settings, const ddp_update *update)
{
    const adamw_settings *adamw = settings;
    double beta1 = adamw->betas.at[0], beta2 = adamw->betas.at[1];
    ddp_adamw_args args = {
        .scale = update->scale,
        .lr = (float)update->lr,
        .beta1 = beta1,
        .beta2 = beta2,
        .eps = (float)adamw->eps,
        .decay = update->decay ? (float)adamw->weight_decay : 0.0f,
        .correction1 = 1 - pow(beta1, (double)update->step),
        .correction2 = 1 - pow(beta2, (double)update->step),
    };
    update->stream->device->kernels->adamw(update->stream, update->weights, update->gradients,
                                           update->slots[0], update->slots[1], update->count, &args);
}

const ddp_optim_ops ddp_optim_adamw_ops = {
    .name = "adamw",
    .help = "Adam with decoupled weight decay",
    .fields = fields,
    .config_bytes = sizeof(adamw_settings),
    .slots = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .check = check,
    .update = update,
};
