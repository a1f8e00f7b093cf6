/* What the verbs run and rank share. */
#ifndef DDP_LAUNCHER_RUN_H
#define DDP_LAUNCHER_RUN_H

#include "launcher/plan.h"
#include "launcher/rundir.h"
#include "launcher/verbs.h"
#include "runtime/rank.h"

/* The run directory of a planned job, with plan.json in it. Errors of ddp_rundir_make. */
DDP_USE_RESULT ddp_error *ddp_run_make_directory(const ddp_job *job, const ddp_plan *plan,
                                                 ddp_rundir *rundir);

/* `mpirun -np N ddprun JOB.yaml`: this process is rank config->rank, or its keeper (keeper.h), which starts
 * the rank. Rank 0's makes the run directory; the others wait a moment before they complain, since rank 0
 * says the same. *code is the rank's. INPUT besides the errors of a rank: the job asks for another number of
 * ranks. */
DDP_USE_RESULT ddp_error *ddp_run_as_rank(const ddp_arguments *arguments, ddp_rank_config *config, int *code);

#endif
