/* The saver's state, shared by saver.c (begin and end, on the trainer's thread) and saver_write.c (the thread
 * that writes). While the thread runs the fields below `state` are its own, but for the atomic ones. */
#ifndef DDP_RUNTIME_CHECKPOINT_SAVER_PARTS_H
#define DDP_RUNTIME_CHECKPOINT_SAVER_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/checkpoint/saver.h"

struct ddp_saver {
    ddp_saver_config config;
    ddp_checkpoint_layout layout;
    int first, end;   /* this rank's parts */
    void *snapshot;   /* host memory: their bytes, headers left out */
    double *sums;     /* device memory: of squares, an arena each */
    uint64_t *hashes; /* of all parts; each rank fills its own, rank 0 the rest from files */
    int64_t sequence; /* of the last commit */

    ddp_checkpoint_state state; /* of the save under way, as is all below */
    ddp_saved saved;
    char *part; /* directory .NAME.part; NULL = no save under way */
    int files[DDP_CHECKPOINT_FILES];
    double begun, ended, slow_s;
    ddp_error *error; /* the thread's */
    pthread_t thread;
    bool running;
    atomic_bool over, given_up;
};

/* Paths in the directory being written: of a file, and of a rank's note. Freed with free(). */
DDP_USE_RESULT ddp_error *saver_part_path(const ddp_saver *saver, const char *name, char **path);
DDP_USE_RESULT ddp_error *saver_rank_path(const ddp_saver *saver, int rank, const char *ending, char **path);

/* Bytes of a part in the snapshot: headers are not copied. */
int64_t saver_bytes_of(const ddp_checkpoint_part *part);

void saver_close_files(ddp_saver *saver);

/* The thread: writes this rank's share; on rank 0 waits for the others' and commits. */
void *saver_write(void *argument);

#endif
