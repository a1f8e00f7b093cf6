/* Meetings of ranks. See meet.h for the idea. */
#include "collectives/meet.h"

#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "core/text.h"

/* Between two looks of a waiting rank at most this much counts as waiting: a rank that looks only now and
 * then, between layers, is computing, and one that was stopped for a minute has not waited for a minute. */
static const double most_waited_at_once_s = 0.1;
/* How often a waiting rank asks whether the others live: a system call for each. */
static const double check_every_s = 0.2;

static ddp_seat *seat_of(const ddp_meet *meet, int seat)
{
    return ddp_control_seat(meet->control, seat);
}

static uint64_t tick_of(const ddp_meet *meet, int seat)
{
    return atomic_load_explicit(&seat_of(meet, seat)->tick, memory_order_acquire);
}

static void begin_wait(ddp_meet *meet)
{
    meet->waited_s = 0;
    meet->checked_s = 0;
    meet->seen = 0;
}

ddp_error *ddp_meet_enter(ddp_meet *meet)
{
    int32_t empty = DDP_SEAT_EMPTY;
    if (!atomic_compare_exchange_strong(&seat_of(meet, meet->me)->state, &empty, DDP_SEAT_TAKEN))
        return ddp_error_make(DDP_ERR_INTERNAL, "rank %d is there twice (or opened its group a second time)",
                              meet->ranks[meet->me]);
    ddp_control_tell(meet->control, meet->me, NULL, -1);
    return NULL;
}

void ddp_meet_leave(ddp_meet *meet)
{
    atomic_store_explicit(&seat_of(meet, meet->me)->state, DDP_SEAT_LEFT, memory_order_release);
}

void ddp_meet_post(ddp_meet *meet, ddp_call *call)
{
    ddp_seat *seat = seat_of(meet, meet->me);
    call->sequence = ++meet->sequence;
    seat->calls[call->sequence % DDP_CALLS] = *call;
    atomic_store_explicit(&seat->sequence, call->sequence, memory_order_release);
    ddp_meet_tick(meet);
}

void ddp_meet_tick(ddp_meet *meet)
{
    atomic_store_explicit(&seat_of(meet, meet->me)->tick, ++meet->tick, memory_order_release);
    begin_wait(meet);
}

const ddp_call *ddp_meet_call(const ddp_meet *meet, int seat)
{
    return &seat_of(meet, seat)->calls[meet->sequence % DDP_CALLS];
}

/* -- words -- */

const char *ddp_call_text(const ddp_call *call, bool place, char *buffer, size_t bytes)
{
    static const char *const names[] = {
        [DDP_CALL_OPEN] = "opening the group", [DDP_CALL_ALLOC] = "ddp_comm_alloc",
        [DDP_CALL_ALL_REDUCE] = "all_reduce",  [DDP_CALL_REDUCE_SCATTER] = "reduce_scatter",
        [DDP_CALL_ALL_GATHER] = "all_gather",  [DDP_CALL_BROADCAST] = "broadcast",
        [DDP_CALL_BARRIER] = "barrier",
    };
    static const char *const reduces[] = {[DDP_SUM] = "sum", [DDP_MIN] = "min", [DDP_MAX] = "max"};
    const char *name = (unsigned)call->kind <= DDP_CALL_BARRIER ? names[call->kind] : "?";
    const char *dtype =
        (unsigned)call->dtype < DDP_DTYPE_COUNT ? ddp_dtype_name((ddp_dtype)call->dtype) : "?";
    long long count = (long long)call->count;
    int used;
    switch ((ddp_call_kind)call->kind) {
    case DDP_CALL_OPEN:
        used = snprintf(buffer, bytes, "%s of %lld", name, count);
        break;
    case DDP_CALL_ALLOC:
        used = snprintf(buffer, bytes, "%s of %lld bytes", name, count);
        break;
    case DDP_CALL_ALL_REDUCE:
        used = snprintf(buffer, bytes, "%s (%s) of %lld %s", name, reduces[call->reduce % 3], count, dtype);
        break;
    case DDP_CALL_BROADCAST:
        used = snprintf(buffer, bytes, "%s of %lld %s from rank %d", name, count, dtype, (int)call->root);
        break;
    case DDP_CALL_BARRIER:
        used = snprintf(buffer, bytes, "%s", name);
        break;
    default:
        used = snprintf(buffer, bytes, "%s of %lld %s", name, count, dtype);
    }
    if (place && call->arena >= 0 && used > 0 && (size_t)used < bytes)
        snprintf(buffer + used, bytes - (size_t)used, " at byte %lld of its shared memory %d",
                 (long long)call->offset, (int)call->arena);
    return buffer;
}

/* "rank 3", "ranks 0, 2, 5-9": those of ranks[] whose mark is set. */
static void add_ranks(ddp_text *text, const int *ranks, const bool *marked, int count)
{
    int listed = 0;
    for (int i = 0; i < count; i++)
        listed += marked[i];
    ddp_text_add(text, listed == 1 ? "rank " : "ranks ");
    bool first = true;
    for (int i = 0; i < count; i++) {
        if (!marked[i])
            continue;
        int last = i;
        while (last + 1 < count && marked[last + 1] && ranks[last + 1] == ranks[last] + 1)
            last++;
        if (last < i + 2)
            last = i;
        ddp_text_add(text, "%s%d", first ? "" : ", ", ranks[i]);
        if (last > i)
            ddp_text_add(text, "-%d", ranks[last]);
        first = false;
        i = last;
    }
}

static bool same_work(const ddp_call *a, const ddp_call *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->reduce == b->reduce && a->root == b->root &&
           a->count == b->count;
}

static bool same(const ddp_call *a, const ddp_call *b)
{
    bool placed = a->arena >= 0 && b->arena >= 0;
    return same_work(a, b) && (!placed || (a->arena == b->arena && a->offset == b->offset));
}

static ddp_error *describe_difference(const ddp_call *const *calls, const int *ranks, int count)
{
    bool told[DDP_MAX_LOCAL_RANKS] = {false}, place = true;
    char buffer[128];
    ddp_text text = {0};
    for (int i = 1; i < count; i++)
        place = place && same_work(calls[0], calls[i]);
    for (int i = 0; i < count; i++) {
        bool group[DDP_MAX_LOCAL_RANKS] = {false};
        int size = 0;
        for (int j = i; j < count; j++) {
            group[j] = !told[j] && same(calls[i], calls[j]);
            size += group[j];
        }
        if (told[i])
            continue;
        for (int j = i; j < count; j++)
            told[j] = told[j] || group[j];
        ddp_text_add(&text, i == 0 ? "" : "; ");
        add_ranks(&text, ranks, group, count);
        ddp_text_add(&text, " %s %s", size == 1 ? "does" : "do",
                     ddp_call_text(calls[i], place, buffer, sizeof buffer));
    }
    ddp_error *error = ddp_error_make(DDP_ERR_PEER, "collective #%llu differs between ranks: %s",
                                      (unsigned long long)calls[0]->sequence, ddp_text_get(&text));
    ddp_text_free(&text);
    return ddp_error_help(error,
                          "every rank must do the same collectives, of the same size, in the same order");
}

ddp_error *ddp_call_compare(const ddp_call *const *calls, const int *ranks, int count)
{
    for (int i = 1; i < count; i++)
        if (!same(calls[0], calls[i]))
            return describe_difference(calls, ranks, count);
    return NULL;
}

ddp_error *ddp_meet_check(const ddp_meet *meet)
{
    const ddp_call *calls[DDP_MAX_LOCAL_RANKS];
    for (int i = 0; i < meet->count; i++)
        calls[i] = ddp_meet_call(meet, i);
    return ddp_call_compare(calls, meet->ranks, meet->count);
}

/* "; rank 2 (pid 4711, load, step 5) did 11 collectives, last a barrier" */
static void add_seat(ddp_text *text, const ddp_meet *meet, int seat)
{
    ddp_rendezvous_status status = ddp_control_ask(meet->control, seat);
    uint64_t sequence = atomic_load_explicit(&seat_of(meet, seat)->sequence, memory_order_acquire);
    char buffer[128];
    ddp_text_add(text, "; rank %d", meet->ranks[seat]);
    if (status.pid != 0)
        ddp_text_add(text, " (pid %d%s%s", status.pid, status.phase[0] ? ", in " : "", status.phase);
    if (status.pid != 0 && status.step > 0)
        ddp_text_add(text, " of step %lld", (long long)status.step);
    if (status.pid != 0)
        ddp_text_add(text, ")");
    if (sequence == 0)
        ddp_text_add(text, status.pid != 0 ? " has started but has not joined" : " has not started");
    else if (sequence == meet->sequence)
        ddp_text_add(text, " has come to #%llu but not done its part", (unsigned long long)sequence);
    else
        ddp_text_add(
            text, " has come to #%llu last, %s", (unsigned long long)sequence,
            ddp_call_text(&seat_of(meet, seat)->calls[sequence % DDP_CALLS], false, buffer, sizeof buffer));
}

/* "all_reduce (sum) of 100 f32 (collective #57): WHO HOW; rank 2 (...) ..." and the group is aborted. */
static ddp_error *missing(ddp_meet *meet, const bool *absent, const char *format, double seconds)
{
    enum { SHOWN = 4 };
    char buffer[128], number[32];
    ddp_text text = {0};
    int culprit = -1, shown = 0;
    ddp_text_add(&text, "%s (collective #%llu): ",
                 ddp_call_text(ddp_meet_call(meet, meet->me), false, buffer, sizeof buffer),
                 (unsigned long long)meet->sequence);
    add_ranks(&text, meet->ranks, absent, meet->count);
    if (seconds >= 0)
        ddp_text_add(&text, " %s %s", format, ddp_text_from_seconds(seconds, number, sizeof number));
    else
        ddp_text_add(&text, " %s", format);
    for (int i = 0; i < meet->count; i++) {
        if (!absent[i])
            continue;
        if (culprit < 0)
            culprit = meet->ranks[i];
        if (shown++ < SHOWN)
            add_seat(&text, meet, i);
    }
    if (shown > SHOWN)
        ddp_text_add(&text, "; and so on");
    ddp_error *error = ddp_error_make(DDP_ERR_PEER, "%s", ddp_text_get(&text));
    ddp_text_free(&text);
    return ddp_meet_abort(meet, culprit, error);
}

/* -- waiting -- */

static ddp_error *aborted(const ddp_meet *meet)
{
    int culprit;
    const char *why;
    if (!ddp_control_aborted(meet->control, &culprit, &why))
        return NULL;
    if (culprit < 0)
        return ddp_error_make(DDP_ERR_PEER, "given up: %s", why);
    return ddp_error_make(DDP_ERR_PEER, "given up because of rank %d: %s", culprit, why);
}

ddp_error *ddp_meet_abort(ddp_meet *meet, int culprit, ddp_error *error)
{
    ddp_control_abort(meet->control, culprit, ddp_error_message(error));
    return error;
}

/* Marks whom we wait for; false = nobody. */
static bool find_absent(const ddp_meet *meet, bool *absent)
{
    bool any = false;
    for (int i = 0; i < meet->count; i++) {
        absent[i] = tick_of(meet, i) < meet->tick;
        any = any || absent[i];
    }
    return any;
}

static bool has_left(const ddp_meet *meet, int seat)
{
    return atomic_load_explicit(&seat_of(meet, seat)->state, memory_order_acquire) == DDP_SEAT_LEFT;
}

static bool has_died(const ddp_meet *meet, int seat)
{
    const ddp_seat *there = seat_of(meet, seat);
    return meet->alive != NULL && seat != meet->me && !has_left(meet, seat) &&
           atomic_load_explicit(&there->watched, memory_order_acquire) != 0 &&
           !meet->alive(meet->alive_arg, seat);
}

/* Those of the absent that never will come. A rank may have come and then left between two looks: the tick is
 * read again after the state. */
static bool find_lost(const ddp_meet *meet, bool (*lost)(const ddp_meet *, int), bool *absent)
{
    bool any = false;
    for (int i = 0; i < meet->count; i++) {
        absent[i] = tick_of(meet, i) < meet->tick && lost(meet, i) && tick_of(meet, i) < meet->tick;
        any = any || absent[i];
    }
    return any;
}

double ddp_meet_waiting(ddp_meet *meet, ddp_error **error)
{
    double now = ddp_clock_now(), gap = meet->seen > 0 ? now - meet->seen : 0;
    meet->seen = now;
    meet->waited_s += gap < most_waited_at_once_s ? gap : most_waited_at_once_s;
    *error = aborted(meet);
    return *error != NULL ? -1 : meet->waited_s;
}

/* Somebody is absent: for how long, and is there hope? */
static void look_around(ddp_meet *meet, ddp_error **error)
{
    bool absent[DDP_MAX_LOCAL_RANKS];
    double waited = ddp_meet_waiting(meet, error);
    if (waited < 0)
        return;
    if (find_lost(meet, has_left, absent)) {
        *error = missing(meet, absent, "left the group before it", -1);
        return;
    }
    if (waited - meet->checked_s >= check_every_s) {
        meet->checked_s = waited;
        if (find_lost(meet, has_died, absent)) {
            *error = missing(meet, absent, "died", -1);
            return;
        }
    }
    double limit = *meet->timeout_s;
    if (limit > 0 && waited >= limit && find_absent(meet, absent))
        *error = missing(meet, absent, "did not come within", limit);
}

bool ddp_meet_all(ddp_meet *meet, ddp_error **error)
{
    for (int i = 0; i < meet->count; i++) {
        if (tick_of(meet, i) < meet->tick) {
            look_around(meet, error);
            return false;
        }
    }
    return true;
}

ddp_error *ddp_meet_wait(ddp_meet *meet)
{
    enum { SPINS = 2000 };
    ddp_error *error = NULL;
    for (int i = 0; !ddp_meet_all(meet, &error); i++) {
        if (error != NULL)
            return error;
        if (i >= SPINS)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return NULL;
}

ddp_error *ddp_meet_health(const ddp_meet *meet)
{
    ddp_error *error = aborted(meet);
    for (int i = 0; error == NULL && i < meet->count; i++)
        if (has_died(meet, i))
            error = ddp_error_make(DDP_ERR_PEER, "rank %d (pid %d) died", meet->ranks[i],
                                   ddp_control_ask(meet->control, i).pid);
    return error;
}
