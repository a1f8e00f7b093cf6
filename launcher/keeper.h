/* The process between a person's own `mpirun -np N ddprun JOB.yaml` and a rank. mpirun starts it; it starts
 * the rank as its child, and does for it what ddprun itself does for the ranks it starts:
 *
 *   output    what the rank prints goes on to mpirun as it comes, and into logs/rank-K.log. This process
 *             survives the rank's death, so the last lines do too.
 *   verdict   when the rank dies, it knows how, and in which step; the keeper of the rank that failed first
 *             says so and appends the event (first.h); rank 0's appends `end`.
 *   signals   passed on to the rank.
 *   ending    with the rank's own exit code, or by the same signal, so that mpirun sees what it would have
 *             seen. If the keeper or mpirun is killed, the rank goes too.
 *
 * It never calls MPI. Not here: what a rank does (runtime/rank.h). */
#ifndef DDP_LAUNCHER_KEEPER_H
#define DDP_LAUNCHER_KEEPER_H

#include "launcher/verbs.h"
#include "runtime/rank.h"

/* Starts the rank and stays with it. In the child, config->rendezvous_fd is what the two of them share. *code
 * is the rank's. Does not return where the rank died by a signal. Errors: the rank could not be started. */
DDP_USE_RESULT ddp_error *ddp_keeper_run(const ddp_arguments *arguments, const ddp_rank_config *config,
                                         const char *run_dir, int *code);

/* In the rank: why it fails, for the keeper. */
void ddp_keeper_tell(const ddp_rank_config *config, const ddp_error *why);

#endif
