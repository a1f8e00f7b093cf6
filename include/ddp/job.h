/* A job: what was asked, checked and complete. Made once from a YAML file and overrides; nobody changes it
 * afterwards. Names and meaning of the keys: `ddprun keys`. */
#ifndef DDP_JOB_H
#define DDP_JOB_H

#include <stdint.h>
#include <stdio.h>

#include <ddp/dataset.h>
#include <ddp/error.h>
#include <ddp/field.h>
#include <ddp/model.h>
#include <ddp/optim.h>

typedef enum ddp_precision { DDP_PRECISION_FP32, DDP_PRECISION_BF16, DDP_PRECISION_FP16 } ddp_precision;
typedef enum ddp_schedule_kind {
    DDP_SCHEDULE_CONSTANT,
    DDP_SCHEDULE_LINEAR,
    DDP_SCHEDULE_COSINE
} ddp_schedule_kind;
typedef enum ddp_tail { DDP_TAIL_DROP, DDP_TAIL_PAD } ddp_tail;
typedef enum ddp_on_error { DDP_ON_ERROR_WARN, DDP_ON_ERROR_FAIL } ddp_on_error;
typedef enum ddp_device_choice { DDP_DEVICE_AUTO, DDP_DEVICE_CPU, DDP_DEVICE_CUDA } ddp_device_choice;
typedef enum ddp_via { DDP_VIA_AUTO, DDP_VIA_LOCAL, DDP_VIA_MPIRUN, DDP_VIA_SRUN } ddp_via;

typedef struct ddp_job {
    char *path;   /* of the job file, as typed */
    char *name;   /* default: the file's name without its ending */
    char *output; /* run directory; default runs/NAME */

    struct {
        const ddp_model_ops *ops;
        void *settings; /* ops->config_bytes, filled from ops->fields */
    } model;
    struct {
        const ddp_dataset_ops *ops;
        void *settings;
        char *train, *validation; /* NULL where not given */
        bool shuffle;
        int tail;         /* ddp_tail: what becomes of samples that do not fill an epoch's last batch */
        int64_t prefetch; /* batches read ahead */
    } data;
    struct {
        int64_t steps, epochs; /* exactly one is given; the other is 0 */
        int64_t global_batch;  /* samples an optimizer step, over all ranks */
        int64_t micro_batch;   /* samples a forward on one rank; DDP_AUTO = global_batch / ranks */
        int precision;         /* ddp_precision */
        int64_t seed;
        double clip_norm;   /* 0 = none */
        int64_t eval_every; /* steps; 0 = at the end only */
        int64_t eval_batch; /* samples a forward of evaluation; DDP_AUTO = micro_batch */
    } train;
    struct {
        const ddp_optim_ops *ops;
        void *settings;
        double lr;
    } optimizer;
    struct {
        int kind; /* ddp_schedule_kind */
        int64_t warmup_steps;
        double final; /* fraction of lr at the last step */
    } schedule;
    struct {
        int64_t ranks;    /* DDP_AUTO = as many as the machine has cores (cpu) or GPUs */
        int device;       /* ddp_device_choice */
        double bucket_mb; /* MiB; DDP_AUTO is written `auto` and stored as 0 */
        double first_bucket_mb;
        bool overlap;
        int64_t threads; /* of matrix products a rank; DDP_AUTO = the rank's cores */
        int comm_thread; /* index into `auto, true, false`: cpu comm stream on its own thread */
    } parallel;
    struct {
        int64_t every;   /* steps between checkpoints; 0 = none at all */
        int64_t keep;    /* newest ones that stay */
        bool keep_best;  /* the one with the lowest validation loss stays, too */
        char *resume;    /* "auto", "none", or the path of a checkpoint or a run directory */
        bool force;      /* resume although model, data or order of samples differ */
        int on_error;    /* ddp_on_error: when a save fails */
    } checkpoint;
    struct {
        double timeout_s, startup_s, save_s, eval_s;
    } watchdog;
    struct {
        int64_t max;       /* attempts after the first; 0 = none */
        int64_t min_ranks; /* the fewest it may go on with */
    } restart;
    struct {
        int via;         /* ddp_via */
        ddp_texts hosts; /* "name" or "name:slots" */
        double grace_s;
        bool oversubscribe; /* more ranks than cores are allowed */
        bool allow_root;    /* mpirun as root */
        ddp_pairs env;
    } launch;
    struct {
        int64_t every;   /* steps between metric lines */
        ddp_texts trace; /* of: samples, checksum */
    } metrics;

    struct ddp_job_text *text; /* places of every value; opaque */
} ddp_job;

/* Loads a job file (`-` is refused) and applies `overrides` ("train.steps=20"), in order. A job is complete
 * after it: every key has its value or its written default.
 * Errors (INPUT, all of the file at once): file unreadable or not a regular file, too large or too deep, not
 * YAML, unknown or duplicate key, wrong type, out of range, missing; each with file:line:column, for an
 * override "command line: KEY=VALUE". Only what can be known from the text alone is checked here; what
 * needs the machine or the data is runtime/setup's. */
DDP_USE_RESULT ddp_error *ddp_job_load(const char *path, const char *const *overrides, size_t count,
                                       ddp_job **job);
void ddp_job_free(ddp_job *job); /* NULL is fine */

/* Where the value of a member (&job->train.global_batch, or a member of a settings struct) was written: in
 * the file, on the command line, or nowhere (file NULL) for a default. Borrowed from the job. */
ddp_place ddp_job_where(const ddp_job *job, const void *member);

/* Writes the whole job as YAML that ddp_job_load reads back to the same job; with `origins` each value is
 * followed by "# default", "# job.yaml:12" or "# command line". */
void ddp_job_write(const ddp_job *job, bool origins, FILE *out);

/* Digest of everything that decides the numbers of a run (not names, paths of output, launch, metrics). */
uint64_t ddp_job_digest(const ddp_job *job);

/* Reference of every key of this build: all, or one section or key ("train", "train.steps"; dotted kinds as
 * "model.gpt.layers"). Error (INPUT): no such key, with the nearest. */
DDP_USE_RESULT ddp_error *ddp_job_print_keys(const char *key, FILE *out);

/* Every key that decides the numbers of a run, with its value as YAML: "train.steps" and "1000". For records of
 * what a checkpoint is of. Freed with ddp_pairs_free. MEMORY. */
DDP_USE_RESULT ddp_error *ddp_job_settings(const ddp_job *job, ddp_pairs *settings);
void ddp_pairs_free(ddp_pairs *pairs); /* a zeroed one is fine */

/* JSON schema (draft 2020-12) for editors. */
void ddp_job_print_schema(FILE *out);

#endif
