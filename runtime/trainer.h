/* The trainer: everything of one rank put together, stepping.
 *
 * A step:  zero gradients; for each micro-batch: load, forward, backward; in the last backward, buckets leave
 * as their gradients become final; wait for the last one; norm, clip, update; one read by the host.
 * Threads: one thread owns a trainer. */
#ifndef DDP_RUNTIME_TRAINER_H
#define DDP_RUNTIME_TRAINER_H

#include <ddp/comm.h>

#include "collectives/rendezvous.h"
#include "runtime/channel.h"
#include "runtime/reporter.h"
#include "runtime/setup.h"

typedef struct ddp_trainer ddp_trainer;

/* Everything is borrowed and outlives the trainer. */
typedef struct ddp_trainer_env {
    const ddp_job *job;
    const ddp_setup *setup;
    ddp_device *device;
    ddp_comm *comm;
    ddp_rendezvous *rendezvous; /* told phase and step; may be NULL */
    ddp_channel *channel;       /* asked whether to stop; may be NULL */
    ddp_reporter *reporter;     /* may be NULL: this rank reports nothing */
    const char *run_dir;        /* of checkpoints; NULL = neither saved nor resumed from */
} ddp_trainer_env;

typedef struct ddp_trainer_result {
    int64_t steps;              /* done, those before a resume included */
    int64_t items, skipped;     /* of this run */
    double seconds;             /* of training, evaluation not included */
    double loss;                /* of the last step; NaN if none */
    double eval_loss, accuracy; /* of the last evaluation; NaN = none */
    bool stopped, saved;        /* it was asked to stop and did, before the last step; with a checkpoint of that step */
} ddp_trainer_result;

/* Collective: allocates everything, makes the start weights or loads a checkpoint, and has the ranks agree on
 * job, parameters, buckets and weights. */
DDP_USE_RESULT ddp_error *ddp_trainer_open(const ddp_trainer_env *env, ddp_trainer **trainer);
void ddp_trainer_close(ddp_trainer *trainer); /* NULL and half-built are fine */

/* For the start block: how many buckets there are, and their bytes. */
int ddp_trainer_buckets(const ddp_trainer *trainer);

/* The checkpoint the trainer goes on from (NULL = from the start), and the steps it had done. Borrowed. */
const char *ddp_trainer_resumed(const ddp_trainer *trainer, int64_t *step);

/* Collective: trains to the last step, evaluates, and saves checkpoints on the way. Nothing is left to do
 * where the checkpoint it goes on from was the last step's. */
DDP_USE_RESULT ddp_error *ddp_trainer_run(ddp_trainer *trainer, ddp_trainer_result *result);

/* Collective: checks that all replicas hold the same weights; rank 0 saves them as safetensors. */
DDP_USE_RESULT ddp_error *ddp_trainer_save(ddp_trainer *trainer, const char *path);

#endif
