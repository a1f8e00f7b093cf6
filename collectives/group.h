/* A communicator whose ranks reach each other's memory: what local, shm and mpi have in common.
 *
 * One operation, three ways, chosen by all ranks from the same calls:
 *   - small, up to DDP_SLOT_BYTES a rank: the data travels in the seats; one meeting, then everyone computes
 *     everything;
 *   - direct, where all ranks' data is in memory from ddp_comm_alloc: each rank combines its part of
 *     everybody's data and writes the result to everybody; two meetings, no copy;
 *   - staged, for any other memory: the same on bounce buffers, chunk by chunk.
 * Every element is combined in rank order, whichever way and however the data is cut: bits repeat. */
#ifndef DDP_COLLECTIVES_GROUP_H
#define DDP_COLLECTIVES_GROUP_H

#include <pthread.h>

#include "collectives/meet.h"

typedef struct ddp_group ddp_group;
typedef struct ddp_group_op ddp_group_op;

/* Memory of one ddp_comm_alloc. */
typedef struct ddp_arena {
    char *mine;    /* my part; NULL = freed */
    size_t bytes;  /* asked for */
    char *base;    /* shm: mapping of all parts, one behind the other */
    size_t stride; /* shm: bytes of a part */
    int64_t at;    /* shm: file offset */
} ddp_arena;

enum { DDP_GROUP_ARENAS = 64 };

struct ddp_group {
    ddp_comm base; /* world: of the job; the seats may be fewer (one host of several) */
    ddp_meet meet;
    ddp_arena arenas[DDP_GROUP_ARENAS];
    int arena_count;

    /* Data of a seat's call as this rank can reach it; NULL = only through the bounce buffers. */
    void *(*reach)(ddp_group *group, int seat, const ddp_call *call);
    char *bounce;        /* one a seat, bounce_stride apart; unused where reach never gives NULL */
    size_t bounce_bytes; /* usable bytes of one */

    /* The middle of an operation: at[seat] is where count elements (a part) of each seat lie. Does not wait;
     * true = done, or failed with *error set. ddp_group_work, or one that also goes to other hosts. */
    bool (*work)(ddp_group *group, ddp_group_op *op, void *const *at, int64_t count, ddp_error **error);
    bool no_small; /* seats are not all ranks: always take the way through `work` */

    /* The pool: operations are taken by the thread that enqueues and given back by the one that drives. */
    pthread_mutex_t lock;
    ddp_group_op *idle;
    int under_way;
    bool failed;
};

struct ddp_group_op {
    ddp_group *group;
    ddp_call call;
    char *data;
    uint64_t recorded; /* its number in the flight recorder */
    int state;
    int64_t done; /* of call.count, staged */
    int64_t chunk;
    ddp_group_op *next;
};

/* `group` is zeroed and has base, meet, reach, work and the bounce buffers set. Enters the meeting and waits
 * for all. */
DDP_USE_RESULT ddp_error *ddp_group_open(ddp_group *group);
void ddp_group_close(ddp_group *group); /* not opened is fine; does not free it */

bool ddp_group_work(ddp_group *group, ddp_group_op *op, void *const *at, int64_t count, ddp_error **error);

/* Notes memory from the backend's alloc. INTERNAL: too many, or an operation is under way. */
DDP_USE_RESULT ddp_error *ddp_group_add_arena(ddp_group *group, const ddp_arena *arena);
DDP_USE_RESULT ddp_error *ddp_group_may_alloc(ddp_group *group);
ddp_arena *ddp_group_find_arena(ddp_group *group, const void *memory); /* whose part begins there, or NULL */

/* Table entries that all three share. */
ddp_error *ddp_group_all_reduce(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count,
                                ddp_dtype dtype, ddp_reduce op);
ddp_error *ddp_group_reduce_scatter(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count,
                                    ddp_dtype dtype);
ddp_error *ddp_group_all_gather(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count,
                                ddp_dtype dtype);
ddp_error *ddp_group_broadcast(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count, ddp_dtype dtype,
                               int root);
ddp_error *ddp_group_barrier(ddp_comm *comm, ddp_stream *stream);
ddp_error *ddp_group_health(ddp_comm *comm);
void ddp_group_abort(ddp_comm *comm, const char *why);

#endif
