/* Loading a checkpoint into every rank. */
#ifndef DDP_RUNTIME_CHECKPOINT_RESTORE_H
#define DDP_RUNTIME_CHECKPOINT_RESTORE_H

#include <ddp/comm.h>
#include <ddp/optim.h>

#include "runtime/checkpoint/resume.h"

/* Everything is borrowed. */
typedef struct ddp_restore_config {
    const ddp_setup *setup;
    ddp_device *device;
    ddp_comm *comm;
    ddp_stream *compute, *comm_stream;
    float *arenas[1 + DDP_MAX_SLOTS]; /* device memory: weights, then slots */
    const char *run_dir;
} ddp_restore_config;

/* Collective. Rank 0 looks for checkpoints as checkpoint.resume says; all ranks load the same one, every part
 * verified against its checksum. A damaged one is warned of with its file and byte range, renamed to
 * *.damaged in the run's own directory, and the one before it is taken. With checkpoint.force, parameters
 * that the checkpoint lacks or has in another shape keep their start values, with a warning. *path: what was
 * loaded, freed with free(); NULL = nothing to resume from, arenas untouched. Errors: INPUT (every checkpoint
 * there is is damaged; one does not fit the model), IO, PEER, MEMORY. */
DDP_USE_RESULT ddp_error *ddp_restore(const ddp_restore_config *config, ddp_checkpoint_state *state,
                                      char **path);

/* Compares every byte of a checkpoint with its checksums, without a rank. INPUT: every damaged range. IO. */
DDP_USE_RESULT ddp_error *ddp_restore_verify(const char *path, const ddp_checkpoint_record *record);

#endif
