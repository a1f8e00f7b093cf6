/* Saving checkpoints while training goes on.
 *
 * A save in three parts. Begin (collective, the trainer waits): the ranks agree that they hold the same
 * state, rank 0 makes .NAME.part and its files, each rank copies its share of the state to host memory. Then
 * a thread of each rank writes that share and its checksums; the one of rank 0 waits for the others', writes
 * checkpoint.json and gives the directory its name. Ranks meet through files there (rank-K.sums,
 * rank-K.failed), so no collective is needed while others run. Threads: all functions belong to the thread
 * that owns comm and streams. */
#ifndef DDP_RUNTIME_CHECKPOINT_SAVER_H
#define DDP_RUNTIME_CHECKPOINT_SAVER_H

#include <ddp/comm.h>

#include "runtime/checkpoint/layout.h"
#include "runtime/checkpoint/record.h"

typedef struct ddp_saver ddp_saver;

/* Everything is borrowed and outlives the saver. */
typedef struct ddp_saver_config {
    ddp_device *device;
    ddp_comm *comm;
    const ddp_params *params; /* sealed */
    const ddp_optim_ops *optim;
    float *arenas[1 + DDP_MAX_SLOTS];   /* device memory: weights, then slots */
    const char *directory;              /* RUN_DIR/checkpoints */
    const ddp_pairs *job, *environment; /* for checkpoint.json */
    int64_t keep;
    bool keep_best;
    double wait_s; /* rank 0 waits this long for the others' shares; 0 = for ever */
} ddp_saver_config;

/* How a save went. */
typedef struct ddp_saved {
    int64_t step;
    char name[32]; /* of the directory */
    int64_t bytes;
    double seconds;   /* from begin to commit */
    double blocked_s; /* of them, the trainer waited */
} ddp_saved;

/* Rank 0 also makes the directory and removes what died runs left half written. IO, MEMORY. */
DDP_USE_RESULT ddp_error *ddp_saver_open(const ddp_saver_config *config, ddp_saver **saver);

/* Collective; no save may be under way. `state->sequence` is set here. PEER: the ranks hold different weights
 * or optimizer state, or one of them is gone. A file that cannot be made is no error here but of the save:
 * `end` gives it out on the rank it happened to and on rank 0. */
DDP_USE_RESULT ddp_error *ddp_saver_begin(ddp_saver *saver, ddp_stream *compute, ddp_stream *comm_stream,
                                          const ddp_checkpoint_state *state);

/* With `wait`, waits for the save under way. *ended: it is over; then an error says why it failed (IO,
 * MEMORY; PEER: it is another rank's failure; the old checkpoints are as they were), otherwise *saved is
 * filled. On ranks other than 0 a save is over when their own share is written. PEER with *ended false:
 * another rank is gone. */
DDP_USE_RESULT ddp_error *ddp_saver_end(ddp_saver *saver, bool wait, bool *ended, ddp_saved *saved);

/* Gives up a save under way (rank 0 waits for nobody any more; its .part is removed). NULL is fine. */
void ddp_saver_close(ddp_saver *saver);

#endif
