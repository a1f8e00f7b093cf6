/* The layout of a recorder's page, shared by its writer (flight.c) and its reader (flight_read.c).
 *
 *     head: who, where, when | now: phase, step | ring of records, eight atomic words each
 *
 * The writer takes a record's number away, fills it, and puts the new number in; what it stores as digest is
 * mixed with the number, so that a reader that catches a record half old, half new sees that it does not fit.
 * Phase and step are guarded by a turn that is odd while they change. */
#ifndef DDP_CORE_FLIGHT_PAGE_H
#define DDP_CORE_FLIGHT_PAGE_H

#include <stdalign.h>
#include <stdatomic.h>

#include "core/flight.h"

#define DDP_FLIGHT_MAGIC 0x31746867696c6664u /* "dflight1": change its last letter with the layout */
#define DDP_FLIGHT_NS 1e-9

enum { SEQUENCE, ISSUED, DONE, COUNT, BYTES, DIGEST, KIND, AIM, WORDS };
enum { DDP_FLIGHT_BOOT = 40 };

typedef struct ddp_flight_head {
    _Atomic uint64_t magic; /* comes last */
    uint32_t bytes;
    int32_t rank, world, pid;
    uint64_t pid_started;
    int64_t opened_ns, opened_unix_ns;
    char host[DDP_FLIGHT_HOST], boot[DDP_FLIGHT_BOOT];
} ddp_flight_head;

typedef struct ddp_flight_now {
    alignas(64) _Atomic uint64_t turn;
    _Atomic uint64_t phase; /* eight characters */
    _Atomic int64_t phase_ns, step, step_ns;
    _Atomic uint64_t issued;
    _Atomic int64_t beat_ns;
} ddp_flight_now;

typedef struct ddp_flight_page {
    ddp_flight_head head;
    ddp_flight_now now;
    alignas(64) _Atomic uint64_t ring[DDP_FLIGHT_RECORDS][WORDS];
} ddp_flight_page;

/* The kernel's name of the time since this host was started; "" where it does not say. */
void ddp_flight_read_boot(char boot[DDP_FLIGHT_BOOT]);

/* What a record's digest is mixed with. */
uint64_t ddp_flight_mix(uint64_t x);

#endif
