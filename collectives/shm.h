/* The shared-memory group of the ranks of one host, for shm.c's own table and for mpi.c, which adds other
 * hosts. */
#ifndef DDP_COLLECTIVES_SHM_H
#define DDP_COLLECTIVES_SHM_H

#include "collectives/group.h"

typedef struct ddp_shm {
    ddp_group group;
    ddp_rendezvous *rendezvous; /* opened once more, on a file description of its own: see alive() */
    int64_t file_end;           /* the same on all ranks */
    size_t bounce_mapped;
    int ranks[DDP_MAX_LOCAL_RANKS]; /* of the seats */
} ddp_shm;

/* `shm` is zeroed and has group.base, group.work, group.no_small and group.meet.{me, count, ranks} set; waits
 * for all ranks of the host. `fd` stays the caller's. On an error call ddp_shm_end too. */
DDP_USE_RESULT ddp_error *ddp_shm_begin(ddp_shm *shm, int fd);
void ddp_shm_end(ddp_shm *shm);

ddp_error *ddp_shm_alloc(ddp_comm *comm, size_t bytes, void **memory);
void ddp_shm_free(ddp_comm *comm, void *memory);

#endif
