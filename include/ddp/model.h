/* A model: parameters, forward, backward. It knows no ranks. It is written once, over the kernel table,
 * for every device. A new model is one ddp_model_ops table, listed in runtime/builtins.c, or added by a
 * user's own main: ddp_model_add(&my_model); return ddp_main(argc, argv).
 *
 * Life of a step on one rank:  forward(batch, scale, total)  then, in training,  backward(ready).
 * The trainer zeroes the gradients before the first micro-batch; models only add. */
#ifndef DDP_MODEL_H
#define DDP_MODEL_H

#include <stdint.h>

#include <ddp/dataset.h>
#include <ddp/device.h>
#include <ddp/field.h>
#include <ddp/kernels.h>
#include <ddp/tensor.h>

typedef struct ddp_model ddp_model;

/* Called by backward when the gradient of a parameter is final for this micro-batch: nothing adds to it
 * any more. Every parameter exactly once, in any order that is the same on all ranks. */
typedef struct ddp_ready {
    void (*call)(void *arg, int param);
    void *arg;
} ddp_ready;

/* What a model is opened with; everything is borrowed and outlives the model. */
typedef struct ddp_model_env {
    ddp_device *device;
    ddp_stream *stream;       /* compute */
    const ddp_params *params; /* sealed, as `describe` made it */
    void *weights;            /* flat arena in the device's compute type, params->arena_count elements */
    float *gradients;         /* flat arena, fp32 */
    const void *settings;     /* of the model's own fields */
    int64_t micro_batch;      /* largest batch of forward, samples */
} ddp_model_env;

typedef struct ddp_model_ops {
    const char *name; /* model.kind */
    const char *help;
    const ddp_field *fields; /* model.* keys beside `kind` */
    size_t config_bytes;     /* of the struct the fields fill */

    /* Both need no device, so that `ddprun plan` can count bytes. */
    ddp_error *(*sample)(const void *settings, ddp_sample *sample);   /* what one sample looks like */
    ddp_error *(*describe)(const void *settings, ddp_params *params); /* adds the parameters, forward order */
    int64_t (*activation_bytes)(const void *settings, int64_t micro_batch); /* device memory of `open` */
    double (*flops)(
        const void *settings); /* executed floating-point operations a sample, forward + backward */

    ddp_error *(*open)(const ddp_model_env *env, ddp_model **model);
    void (*close)(ddp_model *model);
    /* Adds the loss of the batch to *total (device memory). scale > 0: training, the gradient of
     * scale * (sum of item losses) will follow by backward on the same batch. scale 0: evaluation. */
    ddp_error *(*forward)(ddp_model *model, const ddp_batch *batch, float scale, ddp_loss *total);
    ddp_error *(*backward)(ddp_model *model, ddp_ready ready);
} ddp_model_ops;

/* Base of every model. */
struct ddp_model {
    const ddp_model_ops *ops;
    ddp_model_env env;
};

void ddp_model_close(ddp_model *model); /* NULL is fine */

/* Weights and gradients of a parameter inside the arenas. */
void *ddp_model_weights(const ddp_model *model, int param);
float *ddp_model_gradients(const ddp_model *model, int param);

#endif
