/* Who runs where, and why. Made from the job and this machine before anything starts; nothing here starts
 * anything. Shares of other hosts are not known from here: a rank there takes its equal share of what it
 * finds. */
#ifndef DDP_LAUNCHER_PLAN_H
#define DDP_LAUNCHER_PLAN_H

#include "core/text.h"
#include "runtime/bind.h"
#include "runtime/setup.h"

typedef struct ddp_plan_host {
    char name[256];
    bool here;
    int slots; /* room it was given, 0 = not said */
    int ranks; /* how many run on it */
} ddp_plan_host;

typedef struct ddp_plan {
    const ddp_job *job; /* borrowed */
    ddp_setup setup;
    ddp_setup_bytes bytes;
    bool mpirun; /* started by mpirun, not by ddprun itself */
    ddp_plan_host *hosts;
    int host_count;
    ddp_bind_share *shares; /* of the ranks of this host, by local rank; NULL when none run here */
    int bucket_count;
    double first_bucket_bytes, bucket_bytes; /* the smallest they may be cut to */
} ddp_plan;

/* Checks everything that can be checked before a start. `world` > 0: it is decided already by somebody else's
 * mpirun, with `local_world` of them on this host, and launch.* is not looked at. Errors: INPUT, MACHINE, all
 * of ddp_setup_make's besides launch.hosts and launch.via. */
DDP_USE_RESULT ddp_error *ddp_plan_make(const ddp_job *job, int world, int local_world, ddp_plan *plan);
void ddp_plan_free(ddp_plan *plan); /* a zeroed one is fine */

/* Host and local rank of a rank: ranks fill one host after another. */
const ddp_plan_host *ddp_plan_find(const ddp_plan *plan, int rank, int *local_rank);

/* One JSON object and a newline: what plan.json holds. */
void ddp_plan_write_json(const ddp_plan *plan, ddp_text *out);
/* A table a person reads. */
void ddp_plan_write_table(const ddp_plan *plan, ddp_text *out);

#endif
