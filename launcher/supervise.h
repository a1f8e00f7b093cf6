/* Watching a running job to its end: output, deaths, signals, and who failed first.
 *
 * The first failure ends the job: the others are told through the rendezvous and have a few seconds to end by
 * themselves, then SIGTERM, then SIGKILL; all are gone within ten seconds. SIGINT, SIGTERM, SIGHUP, SIGUSR1
 * and SIGUSR2 ask the ranks, through the control channel, to finish their step, save and leave, for which
 * they have grace_s; a second one ends the job at once. What is decided here is only who and how; verdict.c
 * says it. */
#ifndef DDP_LAUNCHER_SUPERVISE_H
#define DDP_LAUNCHER_SUPERVISE_H

#include <signal.h>

#include "collectives/rendezvous.h"
#include "launcher/channel.h"
#include "launcher/output.h"
#include "launcher/relay.h"
#include "launcher/spawn.h"
#include "launcher/watchdog.h"

#define DDP_FAILED_TERM_S 5.0 /* after the first failure */
#define DDP_FAILED_KILL_S 9.0

struct ddp_outcome;

typedef struct ddp_supervise_config {
    ddp_child *children; /* rank K is children[K], or one mpirun for all of them */
    int count, world;
    bool mpirun;
    ddp_rendezvous *rendezvous;  /* NULL with mpirun */
    ddp_channel_server *channel; /* NULL = nobody can be asked to stop */
    ddp_watchdog *watchdog;      /* NULL = nobody looks for hangs */
    ddp_relay *relay;
    double grace_s;  /* between being asked to end and SIGKILL */
    int signal_fd;   /* of ddp_supervise_block */
    ddp_output *err; /* for the word that it is stopping; may be NULL */
    /* Called once when the watchdog has found a hang, before anything is ended; may be NULL. */
    void (*on_hang)(void *argument, const struct ddp_outcome *outcome);
    void *on_hang_argument;
} ddp_supervise_config;

/* How it ended. */
typedef struct ddp_outcome {
    int code;                 /* what ddprun returns */
    int interrupted;          /* the signal that ended it, 0 = none */
    int stopped;              /* code of ranks that were asked to stop and left in good order, 0 = none did */
    int first;                /* child that failed first, -1 = none */
    int status;               /* of it, as from waitpid; 0 while it never ended (hung) */
    bool differ;              /* the ranks say that they do not do the same */
    bool hung;                /* the others say it did not come: it was alive */
    int pid;                  /* of it */
    ddp_rendezvous_status at; /* where it was */
    ddp_diagnosis diagnosis; /* what the recorders showed then; kind NOTHING = no more than is known anyway */
    char why[512];           /* what the ranks said when they aborted, "" = nothing */
    unsigned char *followed; /* by child: ended because of the first failure */
    unsigned char *killed;   /* by child: had to be ended by SIGTERM or SIGKILL */
    int64_t steps;           /* that all ranks have done, -1 = not known */
} ddp_outcome;

/* Blocks the signals that supervision waits for, in this thread and all later ones, and gives a descriptor
 * for them. Call before the first start. IO. */
DDP_USE_RESULT ddp_error *ddp_supervise_block(int *signal_fd);

/* Until no process of the job is left. IO, MEMORY: then everything was killed. */
DDP_USE_RESULT ddp_error *ddp_supervise(const ddp_supervise_config *config, ddp_outcome *outcome);
void ddp_outcome_free(ddp_outcome *outcome);

/* Kills and reaps children that were started, for a start that failed half-way. */
void ddp_supervise_kill(ddp_child *children, int count);

#endif
