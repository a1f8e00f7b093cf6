/* What a rank prints, to two places: on to where this process prints, as it comes, and into logs/rank-K.log,
 * whole lines of it. For a rank that has a keeper (keeper.h); the ranks of ddprun itself have a relay
 * (relay.h), which shows their lines with their rank. Threads: one. */
#ifndef DDP_LAUNCHER_TEE_H
#define DDP_LAUNCHER_TEE_H

#include <stdbool.h>

#include "core/text.h"

typedef struct ddp_tee_stream {
    int from; /* -1 = it has ended */
    int to;   /* borrowed; -1 = nobody reads it any more */
    ddp_text pending;
} ddp_tee_stream;

typedef struct ddp_tee {
    const char *run_dir; /* borrowed */
    int rank;
    ddp_tee_stream streams[2];
    int log; /* -1 = not open yet */
    bool failed;
} ddp_tee;

/* Streams that do not block; takes over the descriptors. */
ddp_tee ddp_tee_make(const char *run_dir, int rank, int out, int err);

/* Opens the log, once: the run directory is there. Until then lines are kept, up to a megabyte. */
void ddp_tee_open_log(ddp_tee *tee);

/* Copies all that is there now. */
void ddp_tee_copy(ddp_tee *tee);

/* Logs what is left, unfinished lines too, and closes all of it. */
void ddp_tee_close(ddp_tee *tee);

#endif
