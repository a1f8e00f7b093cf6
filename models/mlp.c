/* mlp: linear layers with an activation between them, cross-entropy over the outputs. `hidden: []` is a
 * linear classifier.
 *
 * Layer i maps a value to scores z(i) and, but for the last, to act(z(i)), the input of layer i + 1. Backward
 * needs the inputs and, for GELU, the z; for ReLU the input itself tells where z was positive. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/memory.h"
#include "models/layers.h"
#include "models/models.h"

typedef struct mlp_settings {
    int64_t inputs, outputs;
    ddp_ints hidden;
    int activation;
} mlp_settings;

/* What one hidden layer keeps. */
typedef struct hidden {
    void *pre, *out; /* (B, width); pre only with GELU */
} hidden;

typedef struct mlp {
    ddp_model base;
    const mlp_settings *settings;
    ddp_activation act;
    hidden *hidden;
    void *scores;      /* (B, outputs), then their gradient */
    void *gradient[2]; /* (B, widest): of the z of one layer and of the one before it */
    void *memory;
    ddp_batch batch; /* of the last forward that trains; count 0 = none */
} mlp;

static const char *const activations[] = {"relu", "gelu", NULL};
static const ddp_activation kernel_activations[] = {DDP_ACT_RELU, DDP_ACT_GELU};

static const ddp_field fields[] = {
    {.key = "inputs",
     .type = DDP_FIELD_INT,
     .offset = offsetof(mlp_settings, inputs),
     .min = 1,
     .max = 1 << 24,
     .help = "features of one sample"},
    {.key = "hidden",
     .type = DDP_FIELD_INTS,
     .offset = offsetof(mlp_settings, hidden),
     .min = 1,
     .max = 1 << 24,
     .help = "widths of the hidden layers, first to last"},
    {.key = "outputs",
     .type = DDP_FIELD_INT,
     .offset = offsetof(mlp_settings, outputs),
     .min = 1,
     .max = 1 << 24,
     .help = "classes"},
    {.key = "activation",
     .type = DDP_FIELD_CHOICE,
     .offset = offsetof(mlp_settings, activation),
     .choices = activations,
     .fallback = "relu",
     .help = "between the layers; gelu is its tanh form"},
    DDP_FIELD_END,
};

static ddp_error *sample(const void *settings, ddp_sample *sample)
{
    const mlp_settings *s = settings;
    *sample = (ddp_sample){
        .input = DDP_F32,
        .input_count = s->inputs,
        .target = DDP_I32,
        .target_count = 1,
        .classes = s->outputs,
        .items = 1,
    };
    return NULL;
}

static ddp_layer layer(const mlp_settings *s, size_t i)
{
    return (ddp_layer){
        .weight = 2 * (int)i,
        .in = i == 0 ? s->inputs : s->hidden.at[i - 1],
        .out = i == s->hidden.count ? s->outputs : s->hidden.at[i],
    };
}

static ddp_error *describe(const void *settings, ddp_params *params)
{
    const mlp_settings *s = settings;
    for (size_t i = 0; i <= s->hidden.count; i++) {
        ddp_layer l = layer(s, i);
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layers.%zu", i);
        DDP_TRY(ddp_layer_add_linear(params, prefix, l.in, l.out, DDP_INIT_UNIFORM, 1 / sqrt((double)l.in)));
    }
    return NULL;
}

/* Gives every buffer its place; only counts where the carver has no base. */
static void carve(mlp *m, ddp_carver *carver, const mlp_settings *s, int64_t rows, size_t element)
{
    int64_t widest = 0;
    bool keep_pre = kernel_activations[s->activation] == DDP_ACT_GELU;
    for (size_t i = 0; i < s->hidden.count; i++) {
        int64_t width = s->hidden.at[i];
        hidden kept = {.out = ddp_carve(carver, rows, width, element)};
        if (keep_pre)
            kept.pre = ddp_carve(carver, rows, width, element);
        if (carver->base != NULL)
            m->hidden[i] = kept;
        widest = width > widest ? width : widest;
    }
    m->scores = ddp_carve(carver, rows, s->outputs, element);
    for (int i = 0; i < 2; i++)
        m->gradient[i] = ddp_carve(carver, rows, widest, element);
}

static int64_t activation_bytes(const void *settings, int64_t micro_batch)
{
    mlp counted;
    ddp_carver carver = {0};
    carve(&counted, &carver, settings, micro_batch, sizeof(float));
    return carver.bytes;
}

/* Three products a layer (forward, the weight's gradient, the input's gradient), of two operations for each
 * weight; the first layer's input needs no gradient. */
static double flops(const void *settings)
{
    const mlp_settings *s = settings;
    double sum = 0;
    for (size_t i = 0; i <= s->hidden.count; i++) {
        ddp_layer l = layer(s, i);
        sum += (i == 0 ? 4.0 : 6.0) * (double)l.in * (double)l.out;
    }
    return sum;
}

static void close_mlp(ddp_model *model)
{
    mlp *m = (mlp *)model;
    ddp_device_free(model->env.device, m->memory);
    free(m->hidden);
    free(m);
}

static ddp_error *open_buffers(mlp *m)
{
    const ddp_model_env *env = &m->base.env;
    size_t bytes = (size_t)activation_bytes(env->settings, env->micro_batch);
    DDP_TRY(ddp_memory_make(m->settings->hidden.count + 1, sizeof *m->hidden, (void **)&m->hidden));
    DDP_TRY(ddp_device_alloc(env->device, bytes, &m->memory));
    ddp_carver carver = {.base = m->memory};
    carve(m, &carver, m->settings, env->micro_batch, ddp_dtype_bytes(env->device->kernels->compute));
    return NULL;
}

static ddp_error *open_mlp(const ddp_model_env *env, ddp_model **model)
{
    mlp *m = NULL;
    DDP_TRY(DDP_NEW(&m));
    m->base = (ddp_model){.ops = &ddp_model_mlp_ops, .env = *env};
    m->settings = env->settings;
    m->act = kernel_activations[m->settings->activation];
    ddp_error *error = open_buffers(m);
    if (error != NULL) {
        close_mlp(&m->base);
        return error;
    }
    *model = &m->base;
    return NULL;
}

static ddp_error *forward(ddp_model *model, const ddp_batch *batch, float scale, ddp_loss *total)
{
    mlp *m = (mlp *)model;
    const mlp_settings *s = m->settings;
    const void *x = batch->input;
    DDP_TRY(ddp_model_check_batch(model, batch));
    for (size_t i = 0; i < s->hidden.count; i++) {
        ddp_layer_forward(model, layer(s, i), m->hidden[i].out, m->hidden[i].pre, x, m->act, batch->count);
        x = m->hidden[i].out;
    }
    ddp_layer_forward(model, layer(s, s->hidden.count), m->scores, NULL, x, DDP_ACT_NONE, batch->count);
    model->env.device->kernels->cross_entropy(model->env.stream, total, m->scores, batch->target, scale,
                                              batch->count, s->outputs);
    m->batch = scale > 0 ? *batch : (ddp_batch){0};
    return NULL;
}

static ddp_error *backward(ddp_model *model, ddp_ready ready)
{
    mlp *m = (mlp *)model;
    const mlp_settings *s = m->settings;
    int64_t rows = m->batch.count;
    const void *dz = m->scores;
    DDP_TRY(ddp_model_check_trained(&m->batch));
    for (size_t i = s->hidden.count; i > 0; i--) {
        const hidden *before = &m->hidden[i - 1];
        ddp_layer_backward_weight(model, layer(s, i), dz, before->out, rows, ready);
        ddp_layer_backward_input(model, layer(s, i), m->gradient[i % 2], dz,
                                 before->pre != NULL ? before->pre : before->out, m->act, rows);
        dz = m->gradient[i % 2];
    }
    ddp_layer_backward_weight(model, layer(s, 0), dz, m->batch.input, rows, ready);
    m->batch.count = 0;
    return NULL;
}

const ddp_model_ops ddp_model_mlp_ops = {
    .name = "mlp",
    .help = "multilayer perceptron: a classifier of feature vectors",
    .fields = fields,
    .config_bytes = sizeof(mlp_settings),
    .sample = sample,
    .describe = describe,
    .activation_bytes = activation_bytes,
    .flops = flops,
    .open = open_mlp,
    .close = close_mlp,
    .forward = forward,
    .backward = backward,
};
