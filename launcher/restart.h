/* Whether a failed job is tried again, from where, and with how many ranks. */
#ifndef DDP_LAUNCHER_RESTART_H
#define DDP_LAUNCHER_RESTART_H

#include <ddp/job.h>

#include "core/text.h"

/* How an attempt failed. */
typedef struct ddp_failure {
    int code;          /* of the job, had it ended here */
    int world;         /* ranks it had */
    int64_t from_step; /* steps done when it began */
    int64_t steps;     /* steps done when it failed */
    int64_t saved;     /* step of the newest complete checkpoint now, 0 = there is none */
} ddp_failure;

typedef struct ddp_restart {
    int attempts;     /* restarts so far */
    ddp_failure last; /* of the attempt before, when attempts > 0 */
    bool has_last;
} ddp_restart;

/* What comes next. Pure. */
typedef struct ddp_restart_decision {
    bool again;
    int ranks;
    char why[160]; /* not again: the reason, "" = none was asked for */
} ddp_restart_decision;

/* Again, up to restart.max times, unless the request or the machine was at fault (codes 2 and 3) or the last
 * two attempts failed at the same step and saved nothing new. A job that fails twice before it
 * has done a step goes on with fewer ranks, as many as restart.min_ranks and train.global_batch allow. */
ddp_restart_decision ddp_restart_decide(const ddp_job *job, const ddp_restart *restart,
                                        const ddp_failure *failure);

#endif
