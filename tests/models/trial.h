/* A model on the cpu device with arenas and a batch of its own. Everything in it is a simple function of
 * names and indices that make_gpt_reference.py knows too. It needs no test framework: what goes wrong is
 * printed and ends the process, which fails the test. */
#ifndef DDP_TESTS_MODELS_TRIAL_H
#define DDP_TESTS_MODELS_TRIAL_H

#include <ddp/model.h>

#include "models/models.h"

typedef struct trial {
    const ddp_model_ops *ops;
    const void *settings;
    int64_t samples;
    ddp_sample sample;
    ddp_params params;
    ddp_device *device;
    ddp_stream *stream;
    float *weights, *gradients;
    void *input, *target;
    ddp_model *model;
    ddp_loss loss;
} trial;

void trial_must(ddp_error *error);

/* Settings with their defaults, to be changed by key; freed with free(). The list of set_ints is borrowed. */
void *trial_settings(const ddp_model_ops *ops);
void trial_set(const ddp_model_ops *ops, void *settings, const char *key, int64_t value);
void trial_set_word(const ddp_model_ops *ops, void *settings, const char *key, const char *word);
void trial_set_ints(const ddp_model_ops *ops, void *settings, const char *key, int64_t *at, size_t count);

/* In [-1, 1), exact in fp32. */
float trial_value(const char *name, int64_t index);

/* Opens the model for `samples` samples and fills weights and batch; gradients are zero. */
void trial_open(trial *t, const ddp_model_ops *ops, const void *settings, int64_t samples);
void trial_close(trial *t);

ddp_batch trial_batch(const trial *t, int64_t first, int64_t count);

/* Forward and, where scale > 0, backward of a part of the batch; adds to t->loss and t->gradients. `ready`
 * may be NULL. */
void trial_run(trial *t, int64_t first, int64_t count, float scale, const ddp_ready *ready);

/* The place of a parameter in the arena, by name. */
const ddp_param *trial_param(const trial *t, const char *name);

#endif
