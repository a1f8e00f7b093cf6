/* A group of ranks and how they agree.
 *
 * Operations are stream-ordered and in place: the call enqueues and returns; the result is there once the
 * stream has passed it. All ranks of a group must enqueue the same operations with the same counts in the
 * same order. Sums go in rank order 0..N-1 element by element, so they repeat bit for bit whatever the
 * split into calls (on several hosts: inside each host by rank, then by host). Memory that collectives reach
 * without a copy comes from ddp_comm_alloc; data in it must be at the same place on all ranks.
 *
 * Every backend checks sequence number, operation, type and count of its peers where it can see them: a
 * difference is an error (DDP_ERR_PEER) that names both ranks and what each one does. A wait ends with an
 * error after `timeout_s`, naming the ranks that have not come.
 *
 * Threads: a comm and its stream are used by one thread (the comm stream's own thread besides). abort may
 * be called from any thread. */
#ifndef DDP_COMM_H
#define DDP_COMM_H

#include <stddef.h>
#include <stdint.h>

#include <ddp/device.h>
#include <ddp/error.h>

typedef struct ddp_comm ddp_comm;

typedef enum ddp_reduce { DDP_SUM, DDP_MIN, DDP_MAX } ddp_reduce;

/* Who is in the group and how they meet; each backend reads what it needs. */
typedef struct ddp_comm_config {
    ddp_device *device; /* whose memory the buffers are */
    int rank, world;
    int local_rank, local_world; /* on this host */
    int rendezvous_fd; /* shm: inherited memory file of the launcher (see collectives/rendezvous.h), -1 */
    void *group;       /* local: the shared ddp_local_group of the threads */
    double timeout_s;  /* of one wait; 0 = for ever */
} ddp_comm_config;

typedef struct ddp_comm_ops {
    const char *name; /* "self", "local", "shm", "mpi", "nccl" */
    ddp_error *(*open)(const ddp_comm_config *config, ddp_comm **comm); /* collective */
    void (*close)(ddp_comm *comm); /* not collective; never waits for a peer after an error */

    /* Collective: same sizes in the same order on all ranks. Zeroed, 256-byte aligned. No
     * operation may be under way. */
    ddp_error *(*alloc)(ddp_comm *comm, size_t bytes, void **memory);
    void (*free)(ddp_comm *comm, void *memory);

    ddp_error *(*all_reduce)(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count, ddp_dtype dtype,
                             ddp_reduce op);
    /* data holds world * count elements; afterwards rank r's own part [r*count, (r+1)*count) is the sum. */
    ddp_error *(*reduce_scatter)(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count,
                                 ddp_dtype dtype);
    /* data holds world * count elements; each rank brings its own part, afterwards all have all. */
    ddp_error *(*all_gather)(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count, ddp_dtype dtype);
    ddp_error *(*broadcast)(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count, ddp_dtype dtype,
                            int root);
    ddp_error *(*barrier)(ddp_comm *comm, ddp_stream *stream);

    ddp_error *(*health)(ddp_comm *comm);           /* NULL while no peer is known dead; never waits */
    void (*abort)(ddp_comm *comm, const char *why); /* makes every wait of every rank end with an error */
} ddp_comm_ops;

/* What a collective is for, in words for whoever looks for the reason of a hang, and for telling two of the
 * same size apart: DDP_TAG_BUCKET(i), or one of these. */
typedef enum ddp_comm_tag {
    DDP_TAG_NONE = 0,
    DDP_TAG_LOSS = -1,
    DDP_TAG_EVAL = -2,
    DDP_TAG_AGREE = -3,
    DDP_TAG_RANKS = -4,
    DDP_TAG_SAVE = -5
} ddp_comm_tag;
#define DDP_TAG_BUCKET(i) ((i) + 1)

/* Base of every communicator. */
struct ddp_comm {
    const ddp_comm_ops *ops;
    ddp_device *device;
    int rank, world, local_rank, local_world;
    double timeout_s;
    uint64_t sequence;          /* collectives enqueued so far */
    double bytes;               /* enqueued so far */
    struct ddp_comm_call *held; /* DDP_FAULT swap_collectives: waits for the next one */
    struct ddp_flight *flight;  /* recorder, borrowed; NULL = none */
    uint64_t recorded;          /* by it: number of the collective that is being enqueued */
    int tag;                    /* of the next collective; each one takes it off */
};

/* The public wrappers check arguments once (INTERNAL on NULL, negative count, a type that cannot be
 * reduced), honour DDP_FAULT's skip_collective / swap_collectives / finalize, count, then call the table.
 * all_reduce and reduce_scatter take F32, F64, I64; the others any type. Zero elements: no operation at all.
 * MIN and MAX: a NaN on any rank is the result.
 * Errors: PEER (a rank is absent, dead, or does something else), IO, MEMORY. */
DDP_USE_RESULT ddp_error *ddp_comm_alloc(ddp_comm *comm, size_t bytes, void **memory);
void ddp_comm_free(ddp_comm *comm, void *memory);
DDP_USE_RESULT ddp_error *ddp_comm_all_reduce(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count,
                                              ddp_dtype dtype, ddp_reduce op);
DDP_USE_RESULT ddp_error *ddp_comm_reduce_scatter(ddp_comm *comm, ddp_stream *stream, void *data,
                                                  int64_t count, ddp_dtype dtype);
DDP_USE_RESULT ddp_error *ddp_comm_all_gather(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count,
                                              ddp_dtype dtype);
DDP_USE_RESULT ddp_error *ddp_comm_broadcast(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count,
                                             ddp_dtype dtype, int root);
DDP_USE_RESULT ddp_error *ddp_comm_barrier(ddp_comm *comm, ddp_stream *stream);
DDP_USE_RESULT ddp_error *ddp_comm_health(ddp_comm *comm);
void ddp_comm_abort(ddp_comm *comm, const char *why);
void ddp_comm_close(ddp_comm *comm); /* NULL is fine */

#endif
