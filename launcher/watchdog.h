/* Does the job still move? Looks at the ranks' recorders (evidence.h) a few times a second. A job in which no
 * rank has begun or ended anything for as long as its phase allows hangs; who is to blame is diagnose.c's to
 * say.
 *
 * Limits by phase, watchdog.startup_s, save_s, eval_s; for steps watchdog.timeout_s, or five times the
 * slowest of the last steps where that is longer. With ranks in different phases the longest limit counts; 0
 * = for ever. Time in which the watchdog itself was not looking (a suspended or overloaded machine) counts
 * for at most a second. */
#ifndef DDP_LAUNCHER_WATCHDOG_H
#define DDP_LAUNCHER_WATCHDOG_H

#include <ddp/job.h>

#include "launcher/diagnose.h"

#define DDP_WATCHDOG_LOOK_S 0.25

typedef struct ddp_watchdog ddp_watchdog;

typedef enum ddp_watchdog_view {
    DDP_ALL_WELL,
    DDP_IS_LATE, /* half the limit has passed; said once a wait */
    DDP_HANGS,
} ddp_watchdog_view;

/* `job` and `run_dir` are borrowed. MEMORY. */
DDP_USE_RESULT ddp_error *ddp_watchdog_open(const ddp_job *job, const char *run_dir, int world,
                                            ddp_watchdog **watchdog);
void ddp_watchdog_close(ddp_watchdog *watchdog); /* NULL is fine */

/* What the supervisor knows of a rank; host is borrowed for the watchdog's life, NULL = not known. */
void ddp_watchdog_know(ddp_watchdog *watchdog, int rank, int pid, const char *host);
void ddp_watchdog_lost(ddp_watchdog *watchdog, int rank);              /* its connection ended */
void ddp_watchdog_ended(ddp_watchdog *watchdog, int rank, int status); /* as from waitpid */

/* Looks, if it is time. Not DDP_ALL_WELL: *diagnosis says who is late, free it with ddp_diagnosis_free.
 * MEMORY. */
DDP_USE_RESULT ddp_error *ddp_watchdog_look(ddp_watchdog *watchdog, ddp_watchdog_view *view,
                                            ddp_diagnosis *diagnosis);

/* The same for a failure that somebody else has seen; `first`: rank whose end was seen first, -1 = none.
 * MEMORY. */
DDP_USE_RESULT ddp_error *ddp_watchdog_judge(ddp_watchdog *watchdog, int first, ddp_diagnosis *diagnosis);

#endif
