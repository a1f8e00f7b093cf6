/* Starting a planned job: ranks of this host by ddprun itself, or all of them through mpirun. */
#ifndef DDP_LAUNCHER_START_H
#define DDP_LAUNCHER_START_H

#include "collectives/rendezvous.h"
#include "launcher/plan.h"
#include "launcher/relay.h"
#include "launcher/session.h"
#include "launcher/spawn.h"

typedef struct ddp_start_config {
    const ddp_plan *plan;
    const char *run_dir;
    const char *mpirun; /* its path where plan->mpirun */
    ddp_relay *relay;
    int attempt;         /* from 1: DDP_ATTEMPT */
    const char *control; /* what DDP_CONTROL is to be */
    int width;           /* of the terminal behind stdout, 0 = none */
    double started;      /* ddp_clock_now() when ddprun began */
} ddp_start_config;

typedef struct ddp_crew {
    ddp_child *children; /* the ranks, or mpirun alone */
    int count;
    ddp_rendezvous *rendezvous; /* NULL with mpirun */
    ddp_session session;        /* with mpirun */
    long log_from;              /* where this run begins in mpirun.log */
} ddp_crew;

/* Starts all of them, or none: if one cannot be started the others are killed and reaped. */
DDP_USE_RESULT ddp_error *ddp_start(const ddp_start_config *config, ddp_crew *crew);
void ddp_crew_free(ddp_crew *crew); /* a zeroed one is fine */

#endif
