/* Whether a run goes on from a checkpoint: decided before anything starts, from checkpoint.json alone. The
 * ranks then load it (runtime/checkpoint/restore.h). */
#ifndef DDP_LAUNCHER_RESUME_H
#define DDP_LAUNCHER_RESUME_H

#include "runtime/setup.h"

typedef enum ddp_continuation {
    DDP_STARTS_ANEW, /* no checkpoint, or one of another directory: what an earlier run left is set aside */
    DDP_GOES_ON,     /* in the directory of the run that saved it */
    DDP_IS_FINISHED, /* its last step is done: nothing to do */
} ddp_continuation;

/* With `say`, writes to the log where it goes on and which settings have changed since; for DDP_IS_FINISHED,
 * to stdout. Errors: those of ddp_resume_find and ddp_resume_compare. */
DDP_USE_RESULT ddp_error *ddp_resume_decide(const ddp_setup *setup, bool say, ddp_continuation *how);

#endif
