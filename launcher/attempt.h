/* One attempt at a job: its ranks started, watched to their end, and what is said about it. A job that may
 * restart has several (restart.h). */
#ifndef DDP_LAUNCHER_ATTEMPT_H
#define DDP_LAUNCHER_ATTEMPT_H

#include "launcher/start.h"
#include "launcher/supervise.h"
#include "launcher/verdict.h"

/* Everything is borrowed. */
typedef struct ddp_attempt_config {
    const ddp_plan *plan;
    const char *run_dir;
    const char *mpirun;    /* its path where plan->mpirun */
    ddp_output *out, *err; /* the same one where both are one stream */
    int width;             /* of the terminal behind stdout, 0 = none */
    int signal_fd;         /* of ddp_supervise_block */
    int number;            /* from 1; the ranks find it in DDP_ATTEMPT */
    double started;        /* ddp_clock_now() when ddprun began */
} ddp_attempt_config;

typedef struct ddp_attempt {
    const ddp_attempt_config *config;
    int64_t events_from; /* bytes of events.jsonl that were there before */
    const char **hosts;  /* names by rank, NULL on one host */
    ddp_show *show;
    ddp_relay *relay;
    ddp_channel_server *channel;
    ddp_watchdog *watchdog;
    ddp_crew crew;
    ddp_outcome outcome;
    bool told; /* a hang was told when it was found */
} ddp_attempt;

/* From the first start to the last death; all output has been shown when it returns. MACHINE, IO, MEMORY: it
 * could not be started. */
DDP_USE_RESULT ddp_error *ddp_attempt_run(const ddp_attempt_config *config, ddp_attempt *attempt);

/* Whether it failed, or was asked to stop. */
bool ddp_attempt_failed(const ddp_attempt *attempt);

/* Says how it ended, if not well, and appends `verdict` where it failed. */
ddp_verdict ddp_attempt_report(const ddp_attempt *attempt);

/* Appends `end` for a job that does not go on and whose ranks could not say it. */
void ddp_attempt_append_end(const ddp_attempt *attempt, const ddp_verdict *verdict);

void ddp_attempt_free(ddp_attempt *attempt); /* a zeroed one is fine */

#endif
