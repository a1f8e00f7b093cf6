/* Where a run goes on: which checkpoints it may start from, and whether the job still fits them. */
#ifndef DDP_RUNTIME_CHECKPOINT_RESUME_H
#define DDP_RUNTIME_CHECKPOINT_RESUME_H

#include "core/text.h"
#include "runtime/checkpoint/record.h"
#include "runtime/setup.h"

#define DDP_CHECKPOINTS "checkpoints" /* in the run directory */

typedef struct ddp_resume {
    char **paths; /* of complete checkpoints, best first; the later ones for when the first is damaged */
    int count;
    bool own; /* they lie in this run's own directory: the run goes on; otherwise a new one starts from there
               */
} ddp_resume;

/* What checkpoint.resume asks for, in `run_dir` unless it is a path. None found is no error with `auto`.
 * Entries that look like checkpoints and are none are warned of on the log where `warn`. Errors: INPUT (the
 * path given holds no complete checkpoint: what it lacks), IO. */
DDP_USE_RESULT ddp_error *ddp_resume_find(const ddp_job *job, const char *run_dir, bool warn,
                                          ddp_resume *resume);
void ddp_resume_free(ddp_resume *resume); /* a zeroed one is fine */

/* Compares what the checkpoint is of with the job: `changes` gets a line "  train.steps: 100 -> 200" for
 * every setting that differs. Errors (INPUT, one for each, at the setting's place): the model, the training
 * set or the order of samples is another, and checkpoint.force is false. */
DDP_USE_RESULT ddp_error *ddp_resume_compare(const ddp_setup *setup, const ddp_checkpoint_record *record,
                                             ddp_text *changes);

/* A digest of the training set that does not depend on where it lies: how many samples, of what shape, and
 * the bytes of some of them. Errors of reading. */
DDP_USE_RESULT ddp_error *ddp_resume_digest_data(const ddp_setup *setup, uint64_t *digest);

#endif
