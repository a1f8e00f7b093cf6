/* The memory that the ranks of one group share: who is here, how far each one is, and whether all of it is
 * being given up. In a memfd for processes (rendezvous.c), in plain memory for threads (local.c); the layout
 * is the same.
 *
 *     ddp_control | one ddp_seat a rank
 *
 * Everything another rank may look at while it changes is atomic. The rest (calls, slots) is handed over by
 * the seat's tick: written before a release store of it, read after an acquire load (see meet.h). */
#ifndef DDP_COLLECTIVES_CONTROL_H
#define DDP_COLLECTIVES_CONTROL_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <ddp/comm.h>

#include "collectives/rendezvous.h"

#define DDP_SLOT_BYTES 1024 /* operations up to this size take one meeting instead of two */
#define DDP_CALLS 4         /* a rank is never more than one operation ahead, see meet.h */

typedef enum ddp_call_kind {
    DDP_CALL_OPEN,
    DDP_CALL_ALLOC,
    DDP_CALL_ALL_REDUCE,
    DDP_CALL_REDUCE_SCATTER,
    DDP_CALL_ALL_GATHER,
    DDP_CALL_BROADCAST,
    DDP_CALL_BARRIER,
} ddp_call_kind;

/* What a rank is about to do: compared between ranks before any of them touches data. */
typedef struct ddp_call {
    uint64_t sequence; /* from 1 */
    int32_t kind, dtype, reduce, root;
    int64_t count;
    int32_t arena;  /* number of the ddp_comm_alloc memory its data lies in, -1 = other memory */
    int32_t failed; /* ALLOC: errno of this rank's own part */
    int64_t offset; /* bytes into that memory */
    void *data;     /* as its owner sees it: of use to threads only */
} ddp_call;

typedef enum ddp_seat_state { DDP_SEAT_EMPTY, DDP_SEAT_TAKEN, DDP_SEAT_LEFT } ddp_seat_state;

typedef struct ddp_seat {
    alignas(64) _Atomic uint64_t tick; /* meetings this rank has come to */
    _Atomic uint64_t sequence;         /* operations this rank has come to */
    _Atomic int32_t state;
    _Atomic int32_t watched;               /* holds the file lock that ends with its process */
    alignas(64) ddp_call calls[DDP_CALLS]; /* operation n is in n % DDP_CALLS */
    alignas(64) unsigned char slots[2][DDP_SLOT_BYTES];
} ddp_seat;

typedef struct ddp_told {
    _Atomic int32_t pid;
    _Atomic int64_t step;
    _Atomic uint64_t phase[2]; /* 16 characters */
} ddp_told;

typedef struct ddp_control {
    uint64_t magic;
    int32_t world;
    _Atomic int32_t aborted; /* 0 no, 1 being written, 2 yes */
    int32_t culprit;
    char why[1024];
    ddp_told told[DDP_MAX_LOCAL_RANKS];
} ddp_control;

/* Bytes of the whole block, a multiple of the page size. */
size_t ddp_control_bytes(int world);
/* `memory` is zeroed. */
void ddp_control_init(void *memory, int world);
bool ddp_control_valid(const ddp_control *control);
ddp_seat *ddp_control_seat(const ddp_control *control, int seat);

void ddp_control_tell(ddp_control *control, int seat, const char *phase, int64_t step);
ddp_rendezvous_status ddp_control_ask(const ddp_control *control, int seat);
void ddp_control_abort(ddp_control *control, int culprit, const char *why); /* only the first counts */
bool ddp_control_aborted(const ddp_control *control, int *culprit, const char **why);

/* Of an open rendezvous. */
ddp_control *ddp_rendezvous_control(const ddp_rendezvous *rendezvous);

#endif
