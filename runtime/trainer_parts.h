/* The trainer's state, shared by trainer.c (life), step.c (one step) and evaluate.c. */
#ifndef DDP_RUNTIME_TRAINER_PARTS_H
#define DDP_RUNTIME_TRAINER_PARTS_H

#include "runtime/buckets.h"
#include "runtime/checkpoint/saver.h"
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

/* What the ranks add up in every step. */
typedef struct trainer_totals {
    ddp_loss loss;
    double stop; /* ranks that were asked to stop */
} trainer_totals;
#define TRAINER_TOTALS (sizeof(trainer_totals) / sizeof(double))

#define TRAINER_RECENT 16

struct ddp_trainer {
    ddp_trainer_env env;
    ddp_stream *compute, *comm_stream;
    ddp_event *produced, *reduced; /* gradients final; all buckets reduced */
    float *weights;                /* arenas: device memory */
    float *gradients;              /* comm memory: reduced in place */
    float *slots[DDP_MAX_SLOTS];
    trainer_numbers *numbers; /* device memory */
    trainer_totals *totals;   /* comm memory: this rank's sums, then everyone's */
    double stop_asked;        /* what this rank adds to totals->stop */
    bool stopping;            /* somebody was asked to stop: this step is the last */
    ddp_model *model;
    ddp_buckets buckets;
    trainer_range *ranges;
    int range_count;
    ddp_loader *loader;
    void *input, *target;            /* device copies of a batch, where host memory is not device memory */
    int64_t *trace;                  /* ids of a step, where traced */
    int64_t updates;                 /* done, skipped ones not counted */
    int skipped;                     /* in a row */
    double recent_s[TRAINER_RECENT]; /* of the last steps */
    ddp_error *ready_error;          /* from inside backward */
    bool trace_samples, trace_checksum;
    char *resumed_from;     /* checkpoint that was loaded, NULL = none */
    int64_t resumed_step;   /* steps it had done */
    int64_t evaluated_step; /* last evaluation: after which step, and its numbers */
    double eval_loss, accuracy;
    struct {
        ddp_saver *saver; /* NULL = no checkpoints */
        ddp_pairs job, environment;
        char *directory;
        int64_t saved_step; /* of the last checkpoint that was completed */
        uint64_t data;      /* digest of the training set */
    } saves;
    struct {
        void *input, *target; /* host buffers of evaluation */
        int64_t *ids;
    } eval;
};

/* How long this rank waits for another one from now on: of watchdog.*_s, and of a step. */
void trainer_limit(ddp_trainer *trainer, double seconds);
void trainer_limit_step(ddp_trainer *trainer);

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
