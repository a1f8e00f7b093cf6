/* What mpi.c (meeting, life), mpi_hosts.c (who the other hosts are, aborts) and mpi_exchange.c (data between
 * hosts) share. The only files that know MPI. */
#ifndef DDP_COLLECTIVES_MPI_PARTS_H
#define DDP_COLLECTIVES_MPI_PARTS_H

#include <mpi.h>

#include "collectives/shm.h"

enum {
    HOSTS_CHUNK_BYTES = 4 << 20, /* of a slice, exchanged at a time: bounds the receive buffers */
    HOSTS_NAME_BYTES = 64,
};

/* Stage of the operation that goes between hosts; STAGE_BEGIN = none does. */
typedef enum mpi_stage {
    STAGE_BEGIN,
    STAGE_CALLS,
    STAGE_REDUCE,
    STAGE_SCATTERED,
    STAGE_GATHERED,
    STAGE_SPREAD,
    STAGE_MOVED,
} mpi_stage;

typedef struct mpi_note {
    int culprit;
    char why[512];
} mpi_note;

typedef struct mpi_hosts {
    int count, me;  /* hosts, this one */
    int shares;     /* ranks a host that take part in all_reduce: the smallest host's number */
    int *host_of;   /* of each rank */
    int *leader_of; /* of each host: its first rank */
    char (*names)[HOSTS_NAME_BYTES]; /* of each host */
    MPI_Comm peers;                  /* rank i of every host, in host order; NULL where i >= shares */
    MPI_Comm notes;                  /* first ranks: aborts */
    MPI_Request *requests;
    int *sources; /* host a request receives from, -1 for a send */
    int request_count, capacity;
    char *incoming;  /* one piece a host, HOSTS_CHUNK_BYTES in all, in host order */
    ddp_call *calls; /* of each host */
    const ddp_call **call_list;
    mpi_stage stage;
    int64_t done, chunk; /* of the slice or of a part, elements */
    MPI_Request note_request;
    mpi_note note_in, note_out;
    bool relayed, listening;
} mpi_hosts;

typedef struct mpi_comm {
    ddp_shm shm;          /* inside this host */
    mpi_hosts *hosts;     /* between hosts; NULL where there is one */
    MPI_Comm world, host; /* our own; MPI_COMM_NULL before */
    pthread_mutex_t lock; /* around every MPI call after opening: MPI_THREAD_SERIALIZED is enough */
    bool has_lock;
} mpi_comm;

/* Turns an MPI return code into an error (IO). */
DDP_USE_RESULT ddp_error *mpi_check(int code, const char *what);

/* Collective over all ranks. Learns the hosts, makes the communicators between them. */
DDP_USE_RESULT ddp_error *mpi_hosts_open(mpi_comm *comm, mpi_hosts **hosts);

/* The middle of an operation across hosts: group->work of a job on several hosts. */
bool mpi_hosts_work(ddp_group *group, ddp_group_op *op, void *const *at, int64_t count, ddp_error **error);

/* Passes an abort of this host on to the others, and theirs on to this one. Never waits. The second with the
 * lock held. */
void mpi_hosts_relay(mpi_comm *comm);
void mpi_hosts_relay_locked(mpi_comm *comm);

/* Not collective. Gives a relayed abort a moment to leave. */
void mpi_hosts_close(mpi_comm *comm);

#endif
