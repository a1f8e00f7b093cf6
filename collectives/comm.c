/* The public face of every communicator: arguments are checked here once, operations are counted, DDP_FAULT
 * has its say, then the backend's table works. Not here: anything about how ranks meet.
 *
 * Faults. skip_collective: the call returns as if it had enqueued. swap_collectives: the operation is held
 * back and enqueued behind the next one. finalize: the rank leaves the group and ends with exit code 0, as a
 * program that thinks it is done. */
#include <stdlib.h>
#include <unistd.h>

#include <ddp/comm.h>

#include "core/fault.h"
#include "core/flight.h"
#include "core/memory.h"

typedef enum call_kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, BARRIER } call_kind;

typedef struct ddp_comm_call {
    call_kind kind;
    ddp_stream *stream;
    void *data;
    int64_t count;
    ddp_dtype dtype;
    ddp_reduce op;
    int root, tag;
} call;

static const char *const names[] = {
    [ALL_REDUCE] = "all_reduce", [REDUCE_SCATTER] = "reduce_scatter",
    [ALL_GATHER] = "all_gather", [BROADCAST] = "broadcast",
    [BARRIER] = "barrier",
};

/* Elements that a call of `count` moves: some operations have a part for each rank. */
static int64_t parts(const ddp_comm *comm, call_kind kind)
{
    return kind == REDUCE_SCATTER || kind == ALL_GATHER ? comm->world : 1;
}

static ddp_error *check(const ddp_comm *comm, const call *c)
{
    const char *name = names[c->kind];
    if (comm == NULL || c->stream == NULL)
        return ddp_error_make(DDP_ERR_INTERNAL, "%s without a communicator or a stream", name);
    if (c->stream->device != comm->device)
        return ddp_error_make(DDP_ERR_INTERNAL, "%s on a stream of another device", name);
    if (c->kind == BARRIER)
        return NULL;
    if ((unsigned)c->dtype >= DDP_DTYPE_COUNT)
        return ddp_error_make(DDP_ERR_INTERNAL, "%s of unknown type %d", name, (int)c->dtype);
    int64_t most = INT64_MAX / (int64_t)ddp_dtype_bytes(c->dtype) / parts(comm, c->kind);
    if (c->count < 0 || c->count > most || (c->count > 0 && c->data == NULL))
        return ddp_error_make(DDP_ERR_INTERNAL, "%s of %lld elements at %p", name, (long long)c->count,
                              c->data);
    bool reduces = c->kind == ALL_REDUCE || c->kind == REDUCE_SCATTER;
    if (reduces && c->dtype != DDP_F32 && c->dtype != DDP_F64 && c->dtype != DDP_I64)
        return ddp_error_make(DDP_ERR_INTERNAL, "%s cannot add %s: f32, f64 and i64 are possible", name,
                              ddp_dtype_name(c->dtype));
    if (c->kind == ALL_REDUCE && (unsigned)c->op > DDP_MAX)
        return ddp_error_make(DDP_ERR_INTERNAL, "%s with unknown operation %d", name, (int)c->op);
    if (c->kind == BROADCAST && (c->root < 0 || c->root >= comm->world))
        return ddp_error_make(DDP_ERR_INTERNAL, "%s from rank %d of %d", name, c->root, comm->world);
    return NULL;
}

static uint64_t record(ddp_comm *comm, const call *c, int64_t bytes)
{
    static const ddp_flight_op ops[] = {
        [ALL_REDUCE] = DDP_FLIGHT_ALL_REDUCE, [REDUCE_SCATTER] = DDP_FLIGHT_REDUCE_SCATTER,
        [ALL_GATHER] = DDP_FLIGHT_ALL_GATHER, [BROADCAST] = DDP_FLIGHT_BROADCAST,
        [BARRIER] = DDP_FLIGHT_BARRIER,
    };
    if (comm->flight == NULL)
        return 0;
    return ddp_flight_issue(comm->flight, &(ddp_flight_call){.op = ops[c->kind],
                                                             .dtype = c->dtype,
                                                             .reduce = (int)c->op,
                                                             .root = c->root,
                                                             .tag = c->tag,
                                                             .count = c->count,
                                                             .bytes = bytes});
}

static ddp_error *hand_over(ddp_comm *comm, const call *c)
{
    switch (c->kind) {
    case ALL_REDUCE:
        return comm->ops->all_reduce(comm, c->stream, c->data, c->count, c->dtype, c->op);
    case REDUCE_SCATTER:
        return comm->ops->reduce_scatter(comm, c->stream, c->data, c->count, c->dtype);
    case ALL_GATHER:
        return comm->ops->all_gather(comm, c->stream, c->data, c->count, c->dtype);
    case BROADCAST:
        return comm->ops->broadcast(comm, c->stream, c->data, c->count, c->dtype, c->root);
    case BARRIER:
        break;
    }
    return comm->ops->barrier(comm, c->stream);
}

/* Alone there is nobody to wait for; otherwise the backend says when it is done. */
static ddp_error *enqueue(ddp_comm *comm, const call *c)
{
    int64_t bytes = 0;
    if (c->kind != BARRIER)
        bytes = c->count * parts(comm, c->kind) * (int64_t)ddp_dtype_bytes(c->dtype);
    comm->sequence++;
    comm->bytes += (double)bytes;
    comm->recorded = record(comm, c, bytes);
    DDP_TRY(hand_over(comm, c));
    if (comm->world == 1)
        ddp_flight_done(comm->flight, comm->recorded);
    return NULL;
}

static ddp_error *hold_back(ddp_comm *comm, const call *c)
{
    DDP_TRY(DDP_NEW(&comm->held));
    *comm->held = *c;
    return NULL;
}

static ddp_error *run(ddp_comm *comm, call c)
{
    DDP_TRY(check(comm, &c));
    c.tag = comm->tag;
    comm->tag = DDP_TAG_NONE;
    if (c.count == 0 && c.kind != BARRIER)
        return NULL;
    if (ddp_fault_due(DDP_FAULT_SKIP_COLLECTIVE))
        return NULL;
    if (ddp_fault_due(DDP_FAULT_FINALIZE)) {
        comm->ops->close(comm);
        _exit(0);
    }
    if (comm->held == NULL && ddp_fault_due(DDP_FAULT_SWAP_COLLECTIVES))
        return hold_back(comm, &c);
    DDP_TRY(enqueue(comm, &c));
    if (comm->held == NULL)
        return NULL;
    call held = *comm->held;
    free(comm->held);
    comm->held = NULL;
    return enqueue(comm, &held);
}

ddp_error *ddp_comm_all_reduce(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count, ddp_dtype dtype,
                               ddp_reduce op)
{
    return run(comm, (call){ALL_REDUCE, stream, data, count, dtype, op, 0, 0});
}

ddp_error *ddp_comm_reduce_scatter(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count,
                                   ddp_dtype dtype)
{
    return run(comm, (call){REDUCE_SCATTER, stream, data, count, dtype, DDP_SUM, 0, 0});
}

ddp_error *ddp_comm_all_gather(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count, ddp_dtype dtype)
{
    return run(comm, (call){ALL_GATHER, stream, data, count, dtype, DDP_SUM, 0, 0});
}

ddp_error *ddp_comm_broadcast(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count, ddp_dtype dtype,
                              int root)
{
    return run(comm, (call){BROADCAST, stream, data, count, dtype, DDP_SUM, root, 0});
}

ddp_error *ddp_comm_barrier(ddp_comm *comm, ddp_stream *stream)
{
    return run(comm, (call){.kind = BARRIER, .stream = stream});
}

ddp_error *ddp_comm_alloc(ddp_comm *comm, size_t bytes, void **memory)
{
    if (comm == NULL || bytes == 0 || bytes > PTRDIFF_MAX / 2 / (size_t)comm->world)
        return ddp_error_make(DDP_ERR_INTERNAL, "%zu bytes of shared memory asked for", bytes);
    ddp_flight_call call = {.op = DDP_FLIGHT_ALLOC, .dtype = DDP_U8, .count = (int64_t)bytes};
    uint64_t recorded = ddp_flight_issue(comm->flight, &call);
    DDP_TRY(comm->ops->alloc(comm, bytes, memory));
    ddp_flight_done(comm->flight, recorded);
    return NULL;
}

void ddp_comm_free(ddp_comm *comm, void *memory)
{
    if (comm != NULL && memory != NULL)
        comm->ops->free(comm, memory);
}

ddp_error *ddp_comm_health(ddp_comm *comm)
{
    return comm->ops->health(comm);
}

void ddp_comm_abort(ddp_comm *comm, const char *why)
{
    if (comm != NULL)
        comm->ops->abort(comm, why);
}

void ddp_comm_close(ddp_comm *comm)
{
    if (comm == NULL)
        return;
    free(comm->held);
    comm->held = NULL;
    comm->ops->close(comm);
}
