/* The trainer's state, shared by trainer.c (life), step.c (one step) and evaluate.c. */
#ifndef DDP_RUNTIME_TRAINER_PARTS_H
#define DDP_RUNTIME_TRAINER_PARTS_H

#include "runtime/buckets.h"
#include "runtime/data/loader.h"
#include "runtime/trainer.h"

/* One contiguous range of the arena whose parameters share the decay flag. */
typedef struct trainer_range {
    int64_t begin, count;
    bool decay;
} trainer_range;

/* What an update is computed from, in device memory; the host reads it once a step. */
typedef struct trainer_numbers {
    double sum_squares; /* of the reduced gradient */
    double norm;        /* after the item correction, before clipping */
    float scale;        /* of the update; negative: skipped */
} trainer_numbers;

struct ddp_trainer {
    ddp_trainer_env env;
    ddp_stream *compute, *comm_stream;
    ddp_event *produced, *reduced; /* gradients final; all buckets reduced */
    float *weights;                /* arenas: device memory */
    float *gradients;              /* comm memory: reduced in place */
    float *slots[DDP_MAX_SLOTS];
    trainer_numbers *numbers; /* device memory */
    ddp_loss *totals;         /* comm memory: this rank's sums, then everyone's */
    ddp_model *model;
    ddp_buckets buckets;
    trainer_range *ranges;
    int range_count;
    ddp_loader *loader;
    void *input, *target;   /* device copies of a batch, where host memory is not device memory */
    int64_t *trace;         /* ids of a step, where traced */
    int64_t updates;        /* done, skipped ones not counted */
    int skipped;            /* in a row */
    ddp_error *ready_error; /* from inside backward */
    bool trace_samples, trace_checksum;
    struct {
        void *input, *target; /* host buffers of evaluation */
        int64_t *ids;
    } eval;
};

/* Phase and step for whoever watches, and for DDP_FAULT. */
void trainer_phase(ddp_trainer *trainer, const char *phase);

/* One optimizer step, counted from 1. Fills loss, norm, times of *record. */
DDP_USE_RESULT ddp_error *trainer_step(ddp_trainer *trainer, int64_t step, ddp_record *record, bool *skipped);

/* The whole validation set, each item once, summed over all ranks. */
DDP_USE_RESULT ddp_error *trainer_evaluate(ddp_trainer *trainer, ddp_loss *totals);

/* Samples [first, first + count) of a host batch as the model sees them. */
ddp_batch trainer_batch(ddp_trainer *trainer, const void *input, const void *target, int64_t first,
                        int64_t count);

#endif
