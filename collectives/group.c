/* Operations of a group: a state machine that a stream advances and that never waits. See group.h for the
 * ways an operation can take, meet.h for why the ranks stay together. */
#include "collectives/group.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/combine.h"
#include "core/flight.h"
#include "core/memory.h"

enum op_state { POST, MATCH, FILL, FILLED, WORK, WORKED };

static char *slot_of(const ddp_group *group, int seat, uint64_t sequence)
{
    return (char *)ddp_control_seat(group->meet.control, seat)->slots[sequence % 2];
}

static int64_t size_of(const ddp_group_op *op)
{
    return (int64_t)ddp_dtype_bytes((ddp_dtype)op->call.dtype);
}

/* Parts of `count` elements in the data: one, or one a rank. */
static int parts_of(const ddp_group_op *op)
{
    bool each = op->call.kind == DDP_CALL_REDUCE_SCATTER || op->call.kind == DDP_CALL_ALL_GATHER;
    return each ? op->group->base.world : 1;
}

static int seat_of_rank(const ddp_meet *meet, int rank)
{
    for (int i = 0; i < meet->count; i++)
        if (meet->ranks[i] == rank)
            return i;
    return -1;
}

/* -- small -- */

static int64_t small_bytes(const ddp_group_op *op)
{
    int parts = op->call.kind == DDP_CALL_REDUCE_SCATTER ? parts_of(op) : 1;
    return op->call.count * parts * size_of(op);
}

static bool is_small(const ddp_group_op *op)
{
    return !op->group->no_small && op->call.count <= DDP_SLOT_BYTES && small_bytes(op) <= DDP_SLOT_BYTES;
}

static void fill_slot(ddp_group_op *op)
{
    ddp_group *group = op->group;
    int64_t skip = op->call.kind == DDP_CALL_ALL_GATHER ? group->base.rank * small_bytes(op) : 0;
    if (op->call.count > 0)
        memcpy(slot_of(group, group->meet.me, group->meet.sequence + 1), op->data + skip,
               (size_t)small_bytes(op));
}

static void finish_small(ddp_group_op *op)
{
    ddp_group *group = op->group;
    const ddp_meet *meet = &group->meet;
    void *in[DDP_MAX_LOCAL_RANKS], *out[1] = {op->data};
    size_t bytes = (size_t)small_bytes(op);
    for (int i = 0; i < meet->count; i++)
        in[i] = slot_of(group, i, meet->sequence);
    switch ((ddp_call_kind)op->call.kind) {
    case DDP_CALL_ALL_REDUCE:
        ddp_combine((ddp_dtype)op->call.dtype, (ddp_reduce)op->call.reduce, in, meet->count, out, 1, 0,
                    op->call.count);
        return;
    case DDP_CALL_REDUCE_SCATTER:
        ddp_combine((ddp_dtype)op->call.dtype, DDP_SUM, in, meet->count, out, 1,
                    group->base.rank * op->call.count, op->call.count);
        return;
    case DDP_CALL_ALL_GATHER:
        for (int i = 0; i < meet->count; i++)
            if (i != meet->me)
                memcpy(op->data + (size_t)meet->ranks[i] * bytes, in[i], bytes);
        return;
    case DDP_CALL_BROADCAST:
        if (op->call.root != group->base.rank)
            memcpy(op->data, in[seat_of_rank(meet, op->call.root)], bytes);
        return;
    default:
        return;
    }
}

/* -- direct, and the middle of staged -- */

static void spread_part(ddp_group_op *op, void *const *at, int64_t bytes)
{
    const ddp_meet *meet = &op->group->meet;
    int64_t skip = op->group->base.rank * bytes;
    for (int i = 0; i < meet->count; i++)
        if (i != meet->me)
            memcpy((char *)at[i] + skip, (char *)at[meet->me] + skip, (size_t)bytes);
}

bool ddp_group_work(ddp_group *group, ddp_group_op *op, void *const *at, int64_t count, ddp_error **error)
{
    const ddp_meet *meet = &group->meet;
    ddp_dtype dtype = (ddp_dtype)op->call.dtype;
    int64_t begin, part;
    switch ((ddp_call_kind)op->call.kind) {
    case DDP_CALL_ALL_REDUCE:
        ddp_combine_part(dtype, count, meet->count, meet->me, &begin, &part);
        ddp_combine(dtype, (ddp_reduce)op->call.reduce, at, meet->count, at, meet->count, begin, part);
        break;
    case DDP_CALL_REDUCE_SCATTER:
        ddp_combine(dtype, DDP_SUM, at, meet->count, &at[meet->me], 1, group->base.rank * count, count);
        break;
    case DDP_CALL_ALL_GATHER:
        spread_part(op, at, count * size_of(op));
        break;
    case DDP_CALL_BROADCAST:
        if (op->call.root != group->base.rank)
            memcpy(at[meet->me], at[seat_of_rank(meet, op->call.root)], (size_t)(count * size_of(op)));
        break;
    default:
        break;
    }
    return true;
}

/* Where every seat's data lies; false = some of it only through the bounce buffers. */
static bool reach_all(ddp_group *group, void **at)
{
    for (int i = 0; i < group->meet.count; i++) {
        at[i] = group->reach(group, i, ddp_meet_call(&group->meet, i));
        if (at[i] == NULL)
            return false;
    }
    return true;
}

static void bounce_all(ddp_group *group, void **at)
{
    for (int i = 0; i < group->meet.count; i++)
        at[i] = group->bounce + (size_t)i * group->bounce_bytes;
}

/* Between the data and my bounce buffer, one chunk of every part. */
static void copy_chunk(ddp_group_op *op, bool in)
{
    ddp_group *group = op->group;
    char *bounce = group->bounce + (size_t)group->meet.me * group->bounce_bytes;
    int64_t size = size_of(op), bytes = op->chunk * size;
    for (int part = 0; part < parts_of(op); part++) {
        char *data = op->data + (part * op->call.count + op->done) * size;
        bool mine = part == group->base.rank;
        bool skip = (op->call.kind == DDP_CALL_ALL_GATHER && mine != in) ||
                    (op->call.kind == DDP_CALL_REDUCE_SCATTER && !in && !mine) ||
                    (op->call.kind == DDP_CALL_BROADCAST && (op->call.root == group->base.rank) != in);
        if (!skip && in)
            memcpy(bounce + part * bytes, data, (size_t)bytes);
        else if (!skip)
            memcpy(data, bounce + part * bytes, (size_t)bytes);
    }
}

/* -- the machine -- */

static ddp_group_op *take_op(ddp_group *group)
{
    pthread_mutex_lock(&group->lock);
    ddp_group_op *op = group->idle;
    if (op != NULL)
        group->idle = op->next;
    else
        op = calloc(1, sizeof *op);
    if (op != NULL)
        group->under_way++;
    pthread_mutex_unlock(&group->lock);
    return op;
}

static void give_op(ddp_group_op *op, bool failed)
{
    ddp_group *group = op->group;
    pthread_mutex_lock(&group->lock);
    op->next = group->idle;
    group->idle = op;
    group->under_way--;
    group->failed = group->failed || failed;
    pthread_mutex_unlock(&group->lock);
}

static void drop(void *argument)
{
    give_op(argument, true);
}

static void next_chunk(ddp_group_op *op)
{
    int64_t most = (int64_t)op->group->bounce_bytes / (size_of(op) * parts_of(op));
    int64_t left = op->call.count - op->done;
    op->chunk = left < most ? left : most;
    if (op->group->bounce != NULL)
        copy_chunk(op, true);
}

/* The first meeting: do all ranks mean the same, and which way do they go? */
static bool match(ddp_group_op *op, bool *done, ddp_error **error)
{
    ddp_group *group = op->group;
    void *at[DDP_MAX_LOCAL_RANKS];
    if (!ddp_meet_all(&group->meet, error))
        return false;
    *error = ddp_meet_check(&group->meet);
    if (*error != NULL) {
        *error = ddp_meet_abort(&group->meet, -1, *error);
        return false;
    }
    if (is_small(op)) {
        finish_small(op);
        *done = true;
        return false;
    }
    op->chunk = op->call.count;
    op->state = op->call.kind == DDP_CALL_BARRIER || reach_all(group, at) ? WORK : FILL;
    return true;
}

/* One step of the machine; true while there is another to take at once. */
static bool step(ddp_group_op *op, bool *done, ddp_error **error)
{
    ddp_group *group = op->group;
    void *at[DDP_MAX_LOCAL_RANKS];
    switch ((enum op_state)op->state) {
    case POST:
        if (is_small(op))
            fill_slot(op);
        ddp_meet_post(&group->meet, &op->call);
        op->state = MATCH;
        return true;
    case MATCH:
        return match(op, done, error);
    case FILL:
        next_chunk(op);
        ddp_meet_tick(&group->meet);
        op->state = FILLED;
        return true;
    case FILLED:
        if (!ddp_meet_all(&group->meet, error))
            return false;
        op->state = WORK;
        return true;
    case WORK:
        if (op->call.kind != DDP_CALL_BARRIER && !reach_all(group, at))
            bounce_all(group, at);
        if (!group->work(group, op, at, op->chunk, error) || *error != NULL)
            return false;
        ddp_meet_tick(&group->meet);
        op->state = WORKED;
        return true;
    case WORKED:
        if (!ddp_meet_all(&group->meet, error))
            return false;
        if (op->call.kind != DDP_CALL_BARRIER && !reach_all(group, at))
            copy_chunk(op, false);
        op->done += op->chunk;
        op->state = FILL;
        *done = op->done >= op->call.count;
        return !*done;
    }
    return false;
}

static bool advance(void *argument, ddp_error **error)
{
    ddp_group_op *op = argument;
    bool done = false;
    while (step(op, &done, error))
        continue;
    if (!done && *error == NULL)
        return false;
    if (*error == NULL)
        ddp_flight_done(op->group->base.flight, op->recorded);
    give_op(op, *error != NULL);
    return true;
}

static void place(ddp_group *group, ddp_call *call, char *data)
{
    call->arena = -1;
    call->data = data;
    for (int i = 0; i < group->arena_count; i++) {
        const ddp_arena *arena = &group->arenas[i];
        if (arena->mine != NULL && data >= arena->mine && data < arena->mine + arena->bytes) {
            call->arena = i;
            call->offset = data - arena->mine;
        }
    }
}

static ddp_error *push(ddp_comm *comm, ddp_stream *stream, ddp_call call, void *data)
{
    ddp_group *group = (ddp_group *)comm;
    ddp_group_op *op = take_op(group);
    if (op == NULL)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    place(group, &call, data);
    *op = (ddp_group_op){.group = group, .call = call, .data = data, .recorded = comm->recorded};
    if (call.arena >= 0 &&
        call.offset + call.count * parts_of(op) * size_of(op) > (int64_t)group->arenas[call.arena].bytes) {
        drop(op);
        return ddp_error_make(DDP_ERR_INTERNAL, "a collective reaches past the end of its shared memory");
    }
    DDP_TRY(ddp_stream_push(stream, (ddp_task){.advance = advance, .arg = op, .drop = drop}));
    /* Where nothing is queued ahead, this posts our arrival now, so that the others need not wait for our
     * next look; with a thread of its own the stream does that itself. */
    return ddp_stream_poll(stream);
}

ddp_error *ddp_group_all_reduce(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count,
                                ddp_dtype dtype, ddp_reduce op)
{
    return push(
        comm, stream,
        (ddp_call){.kind = DDP_CALL_ALL_REDUCE, .dtype = (int)dtype, .reduce = (int)op, .count = count},
        data);
}

ddp_error *ddp_group_reduce_scatter(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count,
                                    ddp_dtype dtype)
{
    return push(comm, stream,
                (ddp_call){.kind = DDP_CALL_REDUCE_SCATTER, .dtype = (int)dtype, .count = count}, data);
}

ddp_error *ddp_group_all_gather(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count,
                                ddp_dtype dtype)
{
    return push(comm, stream, (ddp_call){.kind = DDP_CALL_ALL_GATHER, .dtype = (int)dtype, .count = count},
                data);
}

ddp_error *ddp_group_broadcast(ddp_comm *comm, ddp_stream *stream, void *data, int64_t count, ddp_dtype dtype,
                               int root)
{
    return push(comm, stream,
                (ddp_call){.kind = DDP_CALL_BROADCAST, .dtype = (int)dtype, .root = root, .count = count},
                data);
}

ddp_error *ddp_group_barrier(ddp_comm *comm, ddp_stream *stream)
{
    return push(comm, stream, (ddp_call){.kind = DDP_CALL_BARRIER, .dtype = DDP_U8}, NULL);
}

/* -- life -- */

ddp_error *ddp_group_open(ddp_group *group)
{
    ddp_meet *meet = &group->meet;
    ddp_call call = {.kind = DDP_CALL_OPEN, .arena = -1, .count = meet->count};
    meet->timeout_s = &group->base.timeout_s;
    DDP_TRY(ddp_meet_enter(meet));
    pthread_mutex_init(&group->lock, NULL);
    ddp_meet_post(meet, &call);
    ddp_error *error = ddp_meet_wait(meet);
    return error != NULL ? error : ddp_meet_check(meet);
}

void ddp_group_close(ddp_group *group)
{
    if (group->meet.sequence == 0)
        return;
    ddp_meet_leave(&group->meet);
    while (group->idle != NULL) {
        ddp_group_op *next = group->idle->next;
        free(group->idle);
        group->idle = next;
    }
    pthread_mutex_destroy(&group->lock);
}

ddp_error *ddp_group_may_alloc(ddp_group *group)
{
    pthread_mutex_lock(&group->lock);
    int under_way = group->under_way;
    bool failed = group->failed;
    pthread_mutex_unlock(&group->lock);
    if (failed)
        return ddp_error_make(DDP_ERR_PEER, "ddp_comm_alloc in a group that has failed");
    if (under_way > 0)
        return ddp_error_make(DDP_ERR_INTERNAL, "ddp_comm_alloc while %d collectives are under way",
                              under_way);
    if (group->arena_count == DDP_GROUP_ARENAS)
        return ddp_error_make(DDP_ERR_INTERNAL, "more than %d times ddp_comm_alloc", DDP_GROUP_ARENAS);
    return NULL;
}

ddp_error *ddp_group_add_arena(ddp_group *group, const ddp_arena *arena)
{
    DDP_TRY(ddp_group_may_alloc(group));
    group->arenas[group->arena_count++] = *arena;
    return NULL;
}

ddp_arena *ddp_group_find_arena(ddp_group *group, const void *memory)
{
    for (int i = 0; i < group->arena_count; i++)
        if (group->arenas[i].mine == memory)
            return &group->arenas[i];
    return NULL;
}

ddp_error *ddp_group_health(ddp_comm *comm)
{
    return ddp_meet_health(&((ddp_group *)comm)->meet);
}

void ddp_group_abort(ddp_comm *comm, const char *why)
{
    ddp_control_abort(((ddp_group *)comm)->meet.control, comm->rank, why);
}
