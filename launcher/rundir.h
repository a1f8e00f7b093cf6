/* The run directory: one job at a time in it, what was asked and what came of it beside each other.
 * What an earlier run left there is moved to RUN_DIR/earlier/N first, unless it goes on from a checkpoint. */
#ifndef DDP_LAUNCHER_RUNDIR_H
#define DDP_LAUNCHER_RUNDIR_H

#include <ddp/job.h>

typedef struct ddp_rundir {
    const char *path; /* borrowed from the job */
    int lock;         /* descriptor that holds the lock on RUN_DIR/lock; -1 = none */
} ddp_rundir;

/* Whether ddp_rundir_make could do its work, without doing any of it: the nearest part of the path that
 * exists is a directory that can be written, it holds nothing foreign, and no job is running in it. INPUT, as
 * below. */
DDP_USE_RESULT ddp_error *ddp_rundir_check(const ddp_job *job);

/* Makes and locks it, sets an earlier run aside unless this one `goes_on` from it, and writes job.yaml (a
 * copy of the job file), resolved.yaml and plan.json. Errors: INPUT (at `output`: it cannot be made, or it
 * holds other files and no run, or another job, whose pid is named, is running in it), IO. */
DDP_USE_RESULT ddp_error *ddp_rundir_make(const ddp_job *job, bool goes_on, const char *plan_json,
                                          ddp_rundir *rundir);

/* Writes resolved.yaml and plan.json anew, for an attempt with other settings. IO, MEMORY. */
DDP_USE_RESULT ddp_error *ddp_rundir_rewrite(const ddp_job *job, const char *plan_json);

/* Gives the lock back; a zeroed one must have lock -1. */
void ddp_rundir_close(ddp_rundir *rundir);

#endif
