/* Meeting: how ranks that share a control block wait for each other, and what they say when one does not
 * come.
 *
 * The idea. Each rank has a tick, a number that only it raises and everyone reads. An operation is a fixed
 * sequence of meetings; at each one a rank raises its tick and goes on once all ticks have got there. With
 * the first one it posts its call, and all compare all calls, so from then on they agree on how many meetings
 * follow. A rank posts operation n + 1 only after everyone came to n's last meeting; everyone is therefore
 * within one operation of everyone else, and what was posted for n may be overwritten at n + 2.
 *
 * Nothing here waits except ddp_meet_wait. Not here: data. */
#ifndef DDP_COLLECTIVES_MEET_H
#define DDP_COLLECTIVES_MEET_H

#include "collectives/control.h"

typedef struct ddp_meet {
    ddp_control *control;
    int me, count;                      /* my seat, seats */
    const int *ranks;                   /* rank of each seat */
    const double *timeout_s;            /* of one meeting; 0 = for ever */
    bool (*alive)(void *arg, int seat); /* NULL: cannot be known */
    void *alive_arg;
    uint64_t tick, sequence; /* mine */
    double waited_s, seen, checked_s;
} ddp_meet;

/* Takes seat `me`. INTERNAL: somebody has it already. */
DDP_USE_RESULT ddp_error *ddp_meet_enter(ddp_meet *meet);
void ddp_meet_leave(ddp_meet *meet);

/* Comes to the first meeting of the next operation (sets call->sequence), or to a further one of this. */
void ddp_meet_post(ddp_meet *meet, ddp_call *call);
void ddp_meet_tick(ddp_meet *meet);

/* Whether everyone has come. False with *error set (PEER): a rank has left, died or let us wait too long, or
 * the group was aborted; then the whole group is aborted with the same words. */
bool ddp_meet_all(ddp_meet *meet, ddp_error **error);

/* The same, waiting. */
DDP_USE_RESULT ddp_error *ddp_meet_wait(ddp_meet *meet);

/* After the first meeting. PEER: the calls differ; says which ranks do what. */
DDP_USE_RESULT ddp_error *ddp_meet_check(const ddp_meet *meet);
const ddp_call *ddp_meet_call(const ddp_meet *meet, int seat); /* of the operation under way */

/* For waits that go beyond the control block: counts the time between calls as waiting, and looks at the
 * abort mark. Returns seconds waited at this meeting, or < 0 with *error set. */
double ddp_meet_waiting(ddp_meet *meet, ddp_error **error);

/* NULL while nothing is known to be wrong. */
DDP_USE_RESULT ddp_error *ddp_meet_health(const ddp_meet *meet);

/* Aborts the group with the message of `error`, unless it has been aborted already; returns `error`. */
DDP_USE_RESULT ddp_error *ddp_meet_abort(ddp_meet *meet, int culprit, ddp_error *error);

/* "all_reduce (sum) of 100 f32", with `place` also where in shared memory. Returns buffer (128 bytes are
 * enough). */
const char *ddp_call_text(const ddp_call *call, bool place, char *buffer, size_t bytes);

/* NULL when all calls are the same; otherwise PEER, "collective #7 differs between ranks: ranks 0, 1 do ...;
 * rank 2 does ...". calls[i] is rank ranks[i]'s. Data in shared memory must be at the same place on all
 * ranks: two operations of the same size in another order are noticed by that. */
DDP_USE_RESULT ddp_error *ddp_call_compare(const ddp_call *const *calls, const int *ranks, int count);

#endif
