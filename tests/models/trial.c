/* See trial.h. */
#include "models/trial.h"

#include <stdlib.h>
#include <string.h>

#include "core/config/field.h"
#include "core/device/devices.h"

void trial_must(ddp_error *error)
{
    if (error == NULL)
        return;
    ddp_error_print(error, "error", stderr);
    exit(1);
}

static const ddp_field *find(const ddp_model_ops *ops, const char *key)
{
    for (const ddp_field *field = ops->fields; field->key != NULL; field++)
        if (strcmp(field->key, key) == 0)
            return field;
    fprintf(stderr, "model %s has no key %s\n", ops->name, key);
    exit(1);
}

void *trial_settings(const ddp_model_ops *ops)
{
    void *settings = calloc(1, ops->config_bytes);
    for (const ddp_field *field = ops->fields; field->key != NULL; field++)
        if (field->fallback != NULL)
            trial_must(ddp_field_set_default(field, settings));
    return settings;
}

void trial_set(const ddp_model_ops *ops, void *settings, const char *key, int64_t value)
{
    memcpy((char *)settings + find(ops, key)->offset, &value, sizeof value);
}

void trial_set_word(const ddp_model_ops *ops, void *settings, const char *key, const char *word)
{
    const ddp_field *field = find(ops, key);
    int choice = 0;
    while (field->choices[choice] != NULL && strcmp(field->choices[choice], word) != 0)
        choice++;
    memcpy((char *)settings + field->offset, &choice, sizeof choice);
}

void trial_set_ints(const ddp_model_ops *ops, void *settings, const char *key, int64_t *at, size_t count)
{
    ddp_ints ints = {at, count};
    memcpy((char *)settings + find(ops, key)->offset, &ints, sizeof ints);
}

/* FNV-1a of the name, the index spread by Knuth's multiplier, and the finalizer of MurmurHash3, all in 32
 * bits. */
static uint32_t bits(const char *name, int64_t index)
{
    uint32_t x = 2166136261u;
    for (const char *c = name; *c != '\0'; c++)
        x = (x ^ (unsigned char)*c) * 16777619u;
    x += (uint32_t)index * 2654435761u;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return (x ^ x >> 16) >> 8;
}

float trial_value(const char *name, int64_t index)
{
    return (float)((int32_t)bits(name, index) - (1 << 23)) * 0x1p-23f;
}

/* Everything is moved off its start value, or a gradient that is wrong by a factor of 0 or 1 could hide. */
static void fill_weights(trial *t)
{
    for (int p = 0; p < t->params.count; p++) {
        const ddp_param *param = &t->params.at[p];
        for (int64_t i = 0; i < param->count; i++)
            t->weights[param->offset + i] =
                0.25f * trial_value(param->name, i) + (param->init == DDP_INIT_ONE ? 1.0f : 0.0f);
    }
}

static void *fill_data(const trial *t, const char *name, ddp_dtype dtype, int64_t count, bool masked)
{
    void *data = malloc((size_t)count * ddp_dtype_bytes(dtype));
    for (int64_t i = 0; i < count; i++)
        if (dtype == DDP_F32)
            ((float *)data)[i] = trial_value(name, i);
        else
            ((int32_t *)data)[i] = masked && i % 11 == 5 ? -1 : (int32_t)(bits(name, i) % t->sample.classes);
    return data;
}

void trial_open(trial *t, const ddp_model_ops *ops, const void *settings, int64_t samples)
{
    *t = (trial){.ops = ops, .settings = settings, .samples = samples};
    trial_must(ops->sample(settings, &t->sample));
    trial_must(ops->describe(settings, &t->params));
    trial_must(ddp_params_seal(&t->params));
    ddp_device_config config = {.threads = 1, .compute = DDP_F32};
    trial_must(ddp_device_cpu_ops.open(&config, &t->device));
    trial_must(ddp_stream_open(t->device, DDP_STREAM_COMPUTE, &t->stream));
    t->weights = calloc((size_t)t->params.arena_count, sizeof(float));
    t->gradients = calloc((size_t)t->params.arena_count, sizeof(float));
    fill_weights(t);
    t->input = fill_data(t, "input", t->sample.input, samples * t->sample.input_count, false);
    t->target = fill_data(t, "target", t->sample.target, samples * t->sample.target_count, true);
    ddp_model_env env = {
        .device = t->device,
        .stream = t->stream,
        .params = &t->params,
        .weights = t->weights,
        .gradients = t->gradients,
        .settings = settings,
        .micro_batch = samples,
    };
    trial_must(ops->open(&env, &t->model));
}

void trial_close(trial *t)
{
    ddp_model_close(t->model);
    ddp_stream_close(t->stream);
    ddp_device_close(t->device);
    ddp_params_free(&t->params);
    free(t->weights);
    free(t->gradients);
    free(t->input);
    free(t->target);
}

ddp_batch trial_batch(const trial *t, int64_t first, int64_t count)
{
    const ddp_sample *s = &t->sample;
    return (ddp_batch){
        .input = (const char *)t->input + (size_t)(first * s->input_count) * ddp_dtype_bytes(s->input),
        .target = (const char *)t->target + (size_t)(first * s->target_count) * ddp_dtype_bytes(s->target),
        .count = count,
    };
}

static void ignore(void *arg, int param)
{
}

void trial_run(trial *t, int64_t first, int64_t count, float scale, const ddp_ready *ready)
{
    ddp_batch batch = trial_batch(t, first, count);
    trial_must(t->ops->forward(t->model, &batch, scale, &t->loss));
    if (scale > 0)
        trial_must(t->ops->backward(t->model, ready != NULL ? *ready : (ddp_ready){ignore, NULL}));
    trial_must(ddp_stream_wait(t->stream));
}

const ddp_param *trial_param(const trial *t, const char *name)
{
    for (int p = 0; p < t->params.count; p++)
        if (strcmp(t->params.at[p].name, name) == 0)
            return &t->params.at[p];
    fprintf(stderr, "no parameter %s\n", name);
    exit(1);
}
