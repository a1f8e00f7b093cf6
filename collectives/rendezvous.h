/* How the ranks of one host meet: an anonymous memory file (memfd) that the launcher makes and every rank
 * inherits. It has no name, so nothing can collide with it or be left behind. It holds one control page
 * (who is here, how far each rank is, whether the job is being aborted); the shm communicator puts its
 * arenas behind it. Ranks that mpirun started have no common parent of ours: the first rank of a host makes
 * the file and the others open it through /proc/PID/fd/N (see collectives/mpi.c).
 *
 * Threads: all functions may be called from any thread of any process that has it open. */
#ifndef DDP_COLLECTIVES_RENDEZVOUS_H
#define DDP_COLLECTIVES_RENDEZVOUS_H

#include <stdbool.h>
#include <stdint.h>

#include <ddp/error.h>

typedef struct ddp_rendezvous ddp_rendezvous;

#define DDP_MAX_LOCAL_RANKS 256

/* What one rank tells about itself, with plain atomic stores; for the launcher's reports. */
typedef struct ddp_rendezvous_status {
    int pid;        /* 0 = has not come yet */
    int64_t step;   /* optimizer step it is in, from 1; 0 = before the first */
    char phase[16]; /* init, load, forward, backward, comm, step, eval, save, end */
} ddp_rendezvous_status;

/* Makes the file for `world` ranks and opens it. The fd (ddp_rendezvous_fd) is close-on-exec: the spawner
 * clears that in the child. Errors: INPUT (world above DDP_MAX_LOCAL_RANKS), IO. */
DDP_USE_RESULT ddp_error *ddp_rendezvous_make(int world, ddp_rendezvous **rendezvous);

/* Opens an inherited one. Takes over the fd. Errors: IO; INTERNAL when it is not such a file. */
DDP_USE_RESULT ddp_error *ddp_rendezvous_open(int fd, ddp_rendezvous **rendezvous);

int ddp_rendezvous_fd(const ddp_rendezvous *rendezvous);
int ddp_rendezvous_world(const ddp_rendezvous *rendezvous);
void ddp_rendezvous_close(ddp_rendezvous *rendezvous); /* NULL is fine */

/* phase NULL: keep; step < 0: keep. A few plain stores, no system call. */
void ddp_rendezvous_tell(ddp_rendezvous *rendezvous, int local_rank, const char *phase, int64_t step);
ddp_rendezvous_status ddp_rendezvous_ask(const ddp_rendezvous *rendezvous, int local_rank);

/* Ends every wait of every rank with an error that carries `why` and names rank `culprit` (-1 = none). Only
 * the first abort counts. */
void ddp_rendezvous_abort(ddp_rendezvous *rendezvous, int culprit, const char *why);
bool ddp_rendezvous_aborted(const ddp_rendezvous *rendezvous, int *culprit, const char **why);

#endif
