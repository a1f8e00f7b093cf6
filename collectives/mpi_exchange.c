/* Data between hosts. Inside a host, ranks have shared memory; here rank i of each host talks to ranks i of
 * the others.
 *
 * all_reduce: rank i of every host adds up slice i of its host, then these ranks cut the slice into one piece
 * a host: everyone sends piece h to host h, host h adds the pieces in host order, and sends the sum to
 * everyone. Each byte crosses the network 2 (H - 1) / H times, from all ranks of a host at once, and the
 * order of every sum is fixed: inside the host by rank, then by host (hosts in the order of their lowest
 * rank), whatever the size and the split. reduce_scatter is an all_reduce (twice the traffic it needs;
 * nothing here is used across hosts but all_reduce in a step). all_gather and broadcast go through the first
 * rank of each host.
 *
 * Each operation begins with the exchange of the calls, so ranks of different hosts that do different things
 * are told so before data moves. Nothing waits: a stream calls work() until it is done. */
#include <string.h>

#include "collectives/combine.h"
#include "collectives/mpi_parts.h"
#include "core/text.h"

enum {
    PIECE_BYTES = 256 << 20, /* of all_gather and broadcast: an MPI count is an int */
    TAG_CALL = 1,
    TAG_DATA = 2,
};

/* -- messages -- */

static ddp_error *receive(mpi_hosts *h, void *into, int64_t bytes, int host, int tag)
{
    h->sources[h->request_count] = host;
    return mpi_check(
        MPI_Irecv(into, (int)bytes, MPI_BYTE, host, tag, h->peers, &h->requests[h->request_count++]),
        "MPI_Irecv");
}

static ddp_error *send(mpi_hosts *h, const void *from, int64_t bytes, int host, int tag)
{
    h->sources[h->request_count] = -1;
    return mpi_check(
        MPI_Isend(from, (int)bytes, MPI_BYTE, host, tag, h->peers, &h->requests[h->request_count++]),
        "MPI_Isend");
}

/* "all_reduce (sum) of 100 f32 (collective #7): host b (rank 2 and up) did not answer within 60 s" */
static ddp_error *silent(mpi_comm *comm, double limit)
{
    mpi_hosts *h = comm->hosts;
    ddp_meet *meet = &comm->shm.group.meet;
    const ddp_call *call = ddp_meet_call(meet, meet->me);
    char buffer[128], number[32];
    ddp_text text = {0};
    int culprit = -1;
    ddp_text_add(&text, "%s (collective #%llu):", ddp_call_text(call, false, buffer, sizeof buffer),
                 (unsigned long long)call->sequence);
    for (int i = 0; i < h->request_count; i++) {
        int done = 0;
        if (h->sources[i] < 0 || h->requests[i] == MPI_REQUEST_NULL ||
            (MPI_Test(&h->requests[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done))
            continue;
        if (h->leader_of[h->sources[i]] == culprit)
            continue;
        ddp_text_add(&text, "%s host %s (its first rank is %d)", culprit < 0 ? "" : ",",
                     h->names[h->sources[i]], h->leader_of[h->sources[i]]);
        culprit = h->leader_of[h->sources[i]];
    }
    ddp_text_add(&text, "%s did not answer within %s", culprit < 0 ? " another host" : "",
                 ddp_text_from_seconds(limit, number, sizeof number));
    ddp_error *error = ddp_error_make(DDP_ERR_PEER, "%s", ddp_text_get(&text));
    ddp_text_free(&text);
    return ddp_meet_abort(meet, culprit, error);
}

/* Whether all messages of this stage are through. */
static bool arrived(mpi_comm *comm, ddp_error **error)
{
    mpi_hosts *h = comm->hosts;
    ddp_meet *meet = &comm->shm.group.meet;
    int all = 0;
    *error = mpi_check(MPI_Testall(h->request_count, h->requests, &all, MPI_STATUSES_IGNORE),
                       "a message between hosts");
    if (*error != NULL || all) {
        h->request_count = 0;
        meet->waited_s = meet->seen = 0;
        return *error == NULL;
    }
    mpi_hosts_relay_locked(comm);
    double waited = ddp_meet_waiting(meet, error), limit = *meet->timeout_s;
    if (*error == NULL && limit > 0 && waited >= limit)
        *error = silent(comm, limit);
    return false;
}

/* -- the work -- */

static ddp_error *exchange_calls(mpi_comm *comm)
{
    mpi_hosts *h = comm->hosts;
    ddp_meet *meet = &comm->shm.group.meet;
    h->calls[h->me] = *ddp_meet_call(meet, meet->me);
    for (int i = 0; i < h->count; i++) {
        if (i == h->me)
            continue;
        DDP_TRY(receive(h, &h->calls[i], sizeof *h->calls, i, TAG_CALL));
        DDP_TRY(send(h, &h->calls[h->me], sizeof *h->calls, i, TAG_CALL));
    }
    return NULL;
}

/* The elements that this rank and its counterparts add up. */
static void slice_of(mpi_comm *comm, const ddp_group_op *op, int64_t count, int64_t *begin, int64_t *part)
{
    mpi_hosts *h = comm->hosts;
    int64_t elements = op->call.kind == DDP_CALL_REDUCE_SCATTER ? count * comm->shm.group.base.world : count;
    ddp_combine_part((ddp_dtype)op->call.dtype, elements, h->shares, comm->shm.group.meet.me, begin, part);
}

/* Sends piece i of my chunk to host i, and receives my own piece from everybody. */
static ddp_error *scatter_chunk(mpi_comm *comm, const ddp_group_op *op, char *chunk)
{
    mpi_hosts *h = comm->hosts;
    ddp_dtype dtype = (ddp_dtype)op->call.dtype;
    int64_t size = (int64_t)ddp_dtype_bytes(dtype), begin, mine, piece;
    ddp_combine_part(dtype, h->chunk, h->count, h->me, &begin, &mine);
    memcpy(h->incoming + h->me * mine * size, chunk + begin * size, (size_t)(mine * size));
    for (int i = 0; i < h->count; i++) {
        if (i == h->me)
            continue;
        DDP_TRY(receive(h, h->incoming + i * mine * size, mine * size, i, TAG_DATA));
        ddp_combine_part(dtype, h->chunk, h->count, i, &begin, &piece);
        DDP_TRY(send(h, chunk + begin * size, piece * size, i, TAG_DATA));
    }
    return NULL;
}

/* Adds up my piece and sends it to everybody, who send theirs. */
static ddp_error *gather_chunk(mpi_comm *comm, const ddp_group_op *op, char *chunk)
{
    mpi_hosts *h = comm->hosts;
    ddp_dtype dtype = (ddp_dtype)op->call.dtype;
    int64_t size = (int64_t)ddp_dtype_bytes(dtype), begin, mine, piece;
    void *out[1];
    ddp_combine_part(dtype, h->chunk, h->count, h->me, &begin, &mine);
    out[0] = chunk + begin * size;
    for (int i = 1; i < h->count; i++) {
        void *in[2] = {i == 1 ? h->incoming : out[0], h->incoming + i * mine * size};
        ddp_combine(dtype, (ddp_reduce)op->call.reduce, in, 2, out, 1, 0, mine);
    }
    for (int i = 0; i < h->count; i++) {
        if (i == h->me)
            continue;
        DDP_TRY(send(h, out[0], mine * size, i, TAG_DATA));
        ddp_combine_part(dtype, h->chunk, h->count, i, &begin, &piece);
        DDP_TRY(receive(h, chunk + begin * size, piece * size, i, TAG_DATA));
    }
    return NULL;
}

static void spread(const mpi_comm *comm, void *const *at, int64_t from, int64_t bytes)
{
    const ddp_meet *meet = &comm->shm.group.meet;
    for (int i = 0; i < meet->count; i++)
        if (i != meet->me)
            memcpy((char *)at[i] + from, (char *)at[meet->me] + from, (size_t)bytes);
}

/* all_gather and broadcast, by first ranks: one piece of the parts [done, done + chunk). */
static ddp_error *move_piece(mpi_comm *comm, const ddp_group_op *op, void *const *at, int64_t count)
{
    mpi_hosts *h = comm->hosts;
    const ddp_meet *meet = &comm->shm.group.meet;
    int64_t size = (int64_t)ddp_dtype_bytes((ddp_dtype)op->call.dtype), bytes = h->chunk * size;
    bool all = op->call.kind == DDP_CALL_ALL_GATHER;
    for (int rank = 0; rank < comm->shm.group.base.world; rank++) {
        int64_t from = ((all ? rank * count : 0) + h->done) * size;
        int seat = 0;
        if (!all && rank != op->call.root)
            continue;
        if (h->host_of[rank] != h->me) {
            DDP_TRY(receive(h, (char *)at[0] + from, bytes, h->host_of[rank], TAG_DATA));
            continue;
        }
        while (meet->ranks[seat] != rank)
            seat++;
        for (int i = 0; i < h->count; i++)
            if (i != h->me)
                DDP_TRY(send(h, (char *)at[seat] + from, bytes, i, TAG_DATA));
    }
    return NULL;
}

static void spread_piece(mpi_comm *comm, const ddp_group_op *op, void *const *at, int64_t count)
{
    mpi_hosts *h = comm->hosts;
    int64_t size = (int64_t)ddp_dtype_bytes((ddp_dtype)op->call.dtype), bytes = h->chunk * size;
    bool all = op->call.kind == DDP_CALL_ALL_GATHER;
    for (int rank = 0; rank < comm->shm.group.base.world; rank++)
        if (h->host_of[rank] != h->me && (all || rank == op->call.root))
            spread(comm, at, ((all ? rank * count : 0) + h->done) * size, bytes);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What this rank's part of the operation begins with, once the calls are known to agree. */
static ddp_error *begin_data(mpi_comm *comm, ddp_group_op *op, void *const *at, int64_t count)
{
    mpi_hosts *h = comm->hosts;
    ddp_group *group = &comm->shm.group;
    ddp_error *none = NULL;
    int64_t begin, part;
    h->done = 0;
    switch ((ddp_call_kind)op->call.kind) {
    case DDP_CALL_ALL_REDUCE:
    case DDP_CALL_REDUCE_SCATTER:
        slice_of(comm, op, count, &begin, &part);
        ddp_combine((ddp_dtype)op->call.dtype, (ddp_reduce)op->call.reduce, at, group->meet.count,
                    &at[group->meet.me], 1, begin, part);
        h->stage = STAGE_REDUCE;
        return NULL;
    case DDP_CALL_BROADCAST:
        if (h->host_of[op->call.root] == h->me)
            ddp_group_work(group, op, at, count, &none);
        h->stage = STAGE_SPREAD;
        return NULL;
    case DDP_CALL_ALL_GATHER:
        ddp_group_work(group, op, at, count, &none);
        h->stage = STAGE_SPREAD;
        return NULL;
    default:
        h->stage = STAGE_BEGIN;
        return NULL;
    }
}

/* One stage; true while another can follow at once. The operation is over when the state is STAGE_BEGIN
 * again. */
static bool take_stage(mpi_comm *comm, ddp_group_op *op, void *const *at, int64_t count, ddp_error **error)
{
    mpi_hosts *h = comm->hosts;
    ddp_meet *meet = &comm->shm.group.meet;
    int64_t size = (int64_t)ddp_dtype_bytes((ddp_dtype)op->call.dtype), begin, part;
    slice_of(comm, op, count, &begin, &part);
    char *slice = op->call.kind == DDP_CALL_BARRIER ? NULL : (char *)at[meet->me] + begin * size;
    switch (h->stage) {
    case STAGE_BEGIN:
        *error = exchange_calls(comm);
        h->stage = STAGE_CALLS;
        return *error == NULL;
    case STAGE_CALLS:
        if (!arrived(comm, error))
            return false;
        *error = ddp_call_compare(h->call_list, h->leader_of, h->count);
        if (*error == NULL)
            *error = begin_data(comm, op, at, count);
        return *error == NULL && h->stage != STAGE_BEGIN;
    case STAGE_REDUCE:
        h->chunk = smaller(part - h->done, HOSTS_CHUNK_BYTES / size);
        if (h->chunk == 0) {
            spread(comm, at, begin * size, part * size);
            h->stage = STAGE_BEGIN;
            return false;
        }
        *error = scatter_chunk(comm, op, slice + h->done * size);
        h->stage = STAGE_SCATTERED;
        return *error == NULL;
    case STAGE_SCATTERED:
        if (!arrived(comm, error))
            return false;
        *error = gather_chunk(comm, op, slice + h->done * size);
        h->stage = STAGE_GATHERED;
        return *error == NULL;
    case STAGE_GATHERED:
        if (!arrived(comm, error))
            return false;
        h->done += h->chunk;
        h->stage = STAGE_REDUCE;
        return true;
    case STAGE_SPREAD:
        h->chunk = smaller(count - h->done, PIECE_BYTES / size);
        if (h->chunk == 0 || comm->shm.group.meet.me != 0) {
            h->stage = STAGE_BEGIN;
            return false;
        }
        *error = move_piece(comm, op, at, count);
        h->stage = STAGE_MOVED;
        return *error == NULL;
    case STAGE_MOVED:
        if (!arrived(comm, error))
            return false;
        spread_piece(comm, op, at, count);
        h->done += h->chunk;
        h->stage = STAGE_SPREAD;
        return true;
    }
    return false;
}

bool mpi_hosts_work(ddp_group *group, ddp_group_op *op, void *const *at, int64_t count, ddp_error **error)
{
    mpi_comm *comm = (mpi_comm *)group;
    mpi_hosts *h = comm->hosts;
    if (group->meet.me >= h->shares) {
        /* No counterpart on the smallest host: only what needs no other host is left to do. */
        bool gathers = op->call.kind == DDP_CALL_ALL_GATHER ||
                       (op->call.kind == DDP_CALL_BROADCAST && h->host_of[op->call.root] == h->me);
        return !gathers || ddp_group_work(group, op, at, count, error);
    }
    pthread_mutex_lock(&comm->lock);
    while (take_stage(comm, op, at, count, error))
        continue;
    if (*error != NULL) {
        *error = ddp_meet_abort(&group->meet, -1, *error);
        mpi_hosts_relay_locked(comm);
    }
    bool done = h->stage == STAGE_BEGIN || *error != NULL;
    pthread_mutex_unlock(&comm->lock);
    return done;
}
