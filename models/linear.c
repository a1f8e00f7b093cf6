/* linear: y = W x + b with cross-entropy or squared error. The short model, to copy for one of your own: a
 * settings struct with its table, what a sample looks like, the parameters, memory, forward, backward. */
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "models/layers.h"
#include "models/models.h"

enum { LOSS_CROSS_ENTROPY, LOSS_SQUARED_ERROR };

typedef struct linear_settings {
    int64_t inputs, outputs;
    int loss;
} linear_settings;

typedef struct linear {
    ddp_model base;
    const linear_settings *settings;
    void *y;         /* (B, outputs): scores, then their gradient */
    ddp_batch batch; /* of the last forward that trains; count 0 = none */
} linear;

static const char *const losses[] = {"cross_entropy", "squared_error", NULL};

static const ddp_field fields[] = {
    {.key = "inputs",
     .type = DDP_FIELD_INT,
     .offset = offsetof(linear_settings, inputs),
     .min = 1,
     .max = 1 << 24,
     .help = "features of one sample"},
    {.key = "outputs",
     .type = DDP_FIELD_INT,
     .offset = offsetof(linear_settings, outputs),
     .min = 1,
     .max = 1 << 24,
     .help = "classes, or values to predict"},
    {.key = "loss",
     .type = DDP_FIELD_CHOICE,
     .offset = offsetof(linear_settings, loss),
     .choices = losses,
     .fallback = "cross_entropy",
     .help = "what is minimised; squared_error is half the squared distance of a sample"},
    DDP_FIELD_END,
};

static ddp_error *sample(const void *settings, ddp_sample *sample)
{
    const linear_settings *s = settings;
    *sample = (ddp_sample){.input = DDP_F32, .input_count = s->inputs, .items = 1};
    bool classes = s->loss == LOSS_CROSS_ENTROPY;
    sample->target = classes ? DDP_I32 : DDP_F32;
    sample->target_count = classes ? 1 : s->outputs;
    sample->classes = classes ? s->outputs : 0;
    return NULL;
}

static ddp_error *describe(const void *settings, ddp_params *params)
{
    const linear_settings *s = settings;
    return ddp_layer_add_linear(params, "", s->inputs, s->outputs, DDP_INIT_UNIFORM,
                                1 / sqrt((double)s->inputs));
}

static int64_t activation_bytes(const void *settings, int64_t micro_batch)
{
    ddp_carver carver = {0};
    ddp_carve(&carver, micro_batch, ((const linear_settings *)settings)->outputs, sizeof(float));
    return carver.bytes;
}

/* Two products, forward and the weight's gradient, of one multiplication and one addition each. */
static double flops(const void *settings)
{
    const linear_settings *s = settings;
    return 4.0 * (double)s->inputs * (double)s->outputs;
}

static ddp_layer layer(const linear *m)
{
    return (ddp_layer){.weight = 0, .in = m->settings->inputs, .out = m->settings->outputs};
}

static void close_linear(ddp_model *model)
{
    linear *m = (linear *)model;
    ddp_device_free(model->env.device, m->y);
    free(m);
}

static ddp_error *open_linear(const ddp_model_env *env, ddp_model **model)
{
    linear *m = NULL;
    DDP_TRY(DDP_NEW(&m));
    m->base = (ddp_model){.ops = &ddp_model_linear_ops, .env = *env};
    m->settings = env->settings;
    ddp_error *error =
        ddp_device_alloc(env->device, (size_t)activation_bytes(env->settings, env->micro_batch), &m->y);
    if (error != NULL) {
        close_linear(&m->base);
        return error;
    }
    *model = &m->base;
    return NULL;
}

static ddp_error *forward(ddp_model *model, const ddp_batch *batch, float scale, ddp_loss *total)
{
    linear *m = (linear *)model;
    const ddp_kernels *k = model->env.device->kernels;
    DDP_TRY(ddp_model_check_batch(model, batch));
    ddp_layer_forward(model, layer(m), m->y, NULL, batch->input, DDP_ACT_NONE, batch->count);
    if (m->settings->loss == LOSS_CROSS_ENTROPY)
        k->cross_entropy(model->env.stream, total, m->y, batch->target, scale, batch->count,
                         m->settings->outputs);
    else
        k->squared_error(model->env.stream, total, m->y, batch->target, scale, batch->count,
                         m->settings->outputs);
    m->batch = scale > 0 ? *batch : (ddp_batch){0};
    return NULL;
}

static ddp_error *backward(ddp_model *model, ddp_ready ready)
{
    linear *m = (linear *)model;
    DDP_TRY(ddp_model_check_trained(&m->batch));
    ddp_layer_backward_weight(model, layer(m), m->y, m->batch.input, m->batch.count, ready);
    m->batch.count = 0;
    return NULL;
}

const ddp_model_ops ddp_model_linear_ops = {
    .name = "linear",
    .help = "one linear layer: classification or regression",
    .fields = fields,
    .config_bytes = sizeof(linear_settings),
    .sample = sample,
    .describe = describe,
    .activation_bytes = activation_bytes,
    .flops = flops,
    .open = open_linear,
    .close = close_linear,
    .forward = forward,
    .backward = backward,
};
