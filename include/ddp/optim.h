/* An optimizer: a formula over flat ranges. The runtime owns its state (slots), so that checkpoints and
 * sharding need no optimizer code. */
#ifndef DDP_OPTIM_H
#define DDP_OPTIM_H

#include <stdint.h>

#include <ddp/device.h>
#include <ddp/field.h>
#include <ddp/kernels.h>

#define DDP_MAX_SLOTS 2

/* One contiguous range whose parameters share the decay flag. */
typedef struct ddp_update {
    ddp_stream *stream;
    float *weights;              /* fp32 (master) weights */
    const float *gradients;      /* reduced sums; multiplied with *scale first */
    float *slots[DDP_MAX_SLOTS]; /* state, same length, zero before update 1 */
    int64_t count;
    const float *scale; /* device memory, see kernels.h */
    double lr;          /* of this step, schedule applied */
    bool decay;         /* weight decay applies to this range */
    int64_t step;       /* updates done including this one, from 1 */
} ddp_update;

typedef struct ddp_optim_ops {
    const char *name; /* optimizer.kind */
    const char *help;
    const ddp_field *fields; /* optimizer.* keys beside kind and lr */
    size_t config_bytes;
    int slots;                             /* arrays of state a weight, 0..DDP_MAX_SLOTS */
    const char *slot_names[DDP_MAX_SLOTS]; /* as in checkpoints: "exp_avg", "exp_avg_sq" */
    /* What no single row of `fields` can say (INPUT, without a place: the runtime adds it). */
    ddp_error *(*check)(const void *settings);
    void (*update)(const void *settings, const ddp_update *update); /* errors: sticky on the stream */
} ddp_optim_ops;

#endif
