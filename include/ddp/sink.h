/* A sink takes what happens in a run to where somebody reads it: console, events.jsonl, ... Records are
 * handed to all sinks of rank 0 by one thread, off the critical path of a step; a slow sink never slows a
 * step (records wait in a bounded queue; if it is full, steps are dropped and counted, nothing else). */
#ifndef DDP_SINK_H
#define DDP_SINK_H

#include <stdint.h>

#include <ddp/error.h>
#include <ddp/field.h>

typedef struct ddp_sink ddp_sink;

typedef enum ddp_record_kind {
    DDP_RECORD_START,
    DDP_RECORD_STEP,
    DDP_RECORD_EVAL,
    DDP_RECORD_CHECKPOINT,
    DDP_RECORD_SKIP,
    DDP_RECORD_TRACE,
    DDP_RECORD_END,
} ddp_record_kind;

typedef struct ddp_rank_info {
    int rank, local_rank;
    int pid;
    int gpu; /* -1 = none */
    char host[64];
    char cores[256]; /* "0-3,8" */
} ddp_rank_info;

/* One thing that happened. Pointers are borrowed and live as long as the run. */
typedef struct ddp_record {
    ddp_record_kind kind;
    double time;  /* Unix seconds */
    int64_t step; /* optimizer steps done when it happened; the first is 1 */
    union {
        struct {
            const char *job, *model, *device_name, *device, *comm, *run_dir, *train, *validation;
            int64_t parameters, buckets;
            double bucket_bytes;
            int64_t steps, samples, steps_per_epoch; /* of the training set */
            int64_t dropped; /* samples of an epoch's uneven tail, left to another epoch's order */
            int64_t global_batch, micro_batch, accumulation;
            int world;
            const ddp_rank_info *ranks;
            const char *resumed_from; /* checkpoint, NULL = from the start */
            int64_t resumed_step;     /* steps done before */
            double startup_s;         /* from the start of the launcher to here */
        } start;
        struct {
            int64_t epoch, items;
            double loss, lr, grad_norm, items_per_s, step_ms;
            double data_ms, forward_ms, backward_ms, comm_exposed_ms, optimizer_ms, other_ms;
        } measured; /* of a STEP */
        struct {
            double loss, accuracy; /* accuracy NaN where the loss has none */
            int64_t items;
        } eval;
        struct {
            char name[32]; /* of its directory in RUN_DIR/checkpoints */
            int64_t bytes;
            double seconds;   /* from the copy to the commit */
            double blocked_s; /* of them, training waited */
        } checkpoint;         /* complete; `step` is the one it is of */
        struct {
            const char *reason;
            int rank; /* -1 = all */
        } skip;
        struct {
            int rank;
            const int64_t *samples; /* of this rank and step, in order; NULL = not asked for */
            int64_t count;
            uint64_t checksum; /* of the weights after the step */
            bool has_checksum;
        } trace;
        struct {
            const char *outcome; /* done, interrupted, failed */
            int64_t steps, items, skipped;
            double seconds;                                /* of the whole run */
            double training_s;                             /* of its steps */
            double loss, eval_loss, accuracy, items_per_s; /* NaN = not known */
            int exit;
            const char *weights; /* file the trained weights are in, NULL = none */
        } end;
    };
} ddp_record;

typedef struct ddp_sink_config {
    const char *run_dir;
    int rank;      /* who reports; only rank 0 has a console */
    int64_t every; /* metrics.every */
    int width;     /* of the terminal behind the launcher, 0 = none: plain lines */
} ddp_sink_config;

typedef struct ddp_sink_ops {
    const char *name;
    ddp_error *(*open)(const ddp_sink_config *config, ddp_sink **sink);
    /* A failure is reported once and closes this sink, never the run. */
    ddp_error *(*write)(ddp_sink *sink, const ddp_record *record);
    void (*close)(ddp_sink *sink);
} ddp_sink_ops;

/* Base of every sink. */
struct ddp_sink {
    const ddp_sink_ops *ops;
};

#endif
