/* The flight recorder: what one rank is doing, in a small memory-mapped file that outlives the process
 * (RUN_DIR/flight/rank-K.page). Others read it while the rank lives, stops, hangs, and after its end.
 *
 * Writing is a look at the clock and a few atomic stores (under 50 ns, no system call); a page that cannot be
 * made is no reason to stop training. Reading copies the page and takes nothing in it on trust.
 *
 * Numbers of collectives are the recorder's own: 1 is the meeting of the ranks, and every collective counts,
 * allocations of shared memory included, so that they are the numbers in the ranks' own messages.
 *
 * Threads: one thread issues, one (the stream's) finishes, one tells phase and step, one beats; any process
 * reads. */
#ifndef DDP_CORE_FLIGHT_H
#define DDP_CORE_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ddp/error.h>
#include <ddp/tensor.h>

#define DDP_FLIGHT_DIRECTORY "flight" /* in the run directory */

enum { DDP_FLIGHT_RECORDS = 1024, DDP_FLIGHT_PHASE = 9, DDP_FLIGHT_HOST = 64 };

typedef enum ddp_flight_op {
    DDP_FLIGHT_NONE,
    DDP_FLIGHT_OPEN, /* the ranks meet */
    DDP_FLIGHT_ALLOC,
    DDP_FLIGHT_ALL_REDUCE,
    DDP_FLIGHT_REDUCE_SCATTER,
    DDP_FLIGHT_ALL_GATHER,
    DDP_FLIGHT_BROADCAST,
    DDP_FLIGHT_BARRIER,
    DDP_FLIGHT_OPS
} ddp_flight_op;

/* What a collective is. Ranks that mean the same have the same in all of it. */
typedef struct ddp_flight_call {
    ddp_flight_op op;
    ddp_dtype dtype;
    int reduce; /* ddp_reduce; 0 where the operation has none */
    int root;   /* of a broadcast, otherwise 0 */
    int tag;    /* what it is for: ddp_comm_tag (ddp/comm.h) */
    int64_t count;
    int64_t bytes; /* moved by the call, all parts */
} ddp_flight_call;

/* -- writing -- */

typedef struct ddp_flight ddp_flight;

/* Makes RUN_DIR/flight/rank-K.page (the directory too) in place of an older one. IO: names the file. */
DDP_USE_RESULT ddp_error *ddp_flight_open(const char *run_dir, int rank, int world, ddp_flight **flight);
void ddp_flight_close(ddp_flight *flight); /* the file stays; NULL is fine, here and below */

/* Up to 8 letters: init, load, forward, backward, comm, step, save, eval, end. */
void ddp_flight_phase(ddp_flight *flight, const char *phase);
void ddp_flight_step(ddp_flight *flight, int64_t step); /* the one that begins, from 1 */

void ddp_flight_beat(ddp_flight *flight); /* the process runs, whatever it does; from any one thread */

/* A collective is being enqueued; gives its number, 0 without a recorder. */
uint64_t ddp_flight_issue(ddp_flight *flight, const ddp_flight_call *call);
/* It has ended on this rank. One of more than DDP_FLIGHT_RECORDS ago is passed over. */
void ddp_flight_done(ddp_flight *flight, uint64_t sequence);

/* -- reading -- */

typedef struct ddp_flight_record {
    uint64_t sequence;
    ddp_flight_call call;
    uint64_t digest;     /* of the call */
    double issued, done; /* done 0 = not yet */
} ddp_flight_record;

/* A page as it was at one moment. Times are those of the reader's ddp_clock_now(), also where the page is of
 * another host or of before a restart (then by both hosts' Unix clocks). */
typedef struct ddp_flight_snapshot {
    int rank, world, pid;
    uint64_t pid_started; /* field 22 of /proc/PID/stat: tells the rank from a later process */
    char host[DDP_FLIGHT_HOST];
    bool here; /* written on this host, since it was started */
    double opened;
    char phase[DDP_FLIGHT_PHASE]; /* "" = none told yet */
    double phase_since;
    int64_t step; /* 0 = before the first */
    double step_since;
    double beat;     /* last sign of life of the process, 0 = none */
    double latest;   /* of all other times: when the rank last moved */
    uint64_t issued; /* number of the last collective, 0 = none */
    int count;
    ddp_flight_record records[DDP_FLIGHT_RECORDS]; /* the last ones, oldest first; a torn one is left out */
} ddp_flight_snapshot;

/* INPUT: missing, empty, cut off, of another version or no page at all. IO. */
DDP_USE_RESULT ddp_error *ddp_flight_read(const char *path, ddp_flight_snapshot *snapshot);

/* "RUN_DIR/flight/rank-K.page". buffer is returned. */
const char *ddp_flight_path(const char *run_dir, int rank, char *buffer, size_t bytes);

/* The letter of a process in /proc/PID/stat (R, S, D, T, ...; X = there is none), and when it was started. */
char ddp_flight_look(int pid, uint64_t *started);

/* The record of a number, NULL where it is not there. */
const ddp_flight_record *ddp_flight_find(const ddp_flight_snapshot *snapshot, uint64_t sequence);

/* The oldest collective that was issued and has not ended, NULL = none. */
const ddp_flight_record *ddp_flight_pending(const ddp_flight_snapshot *snapshot);

uint64_t ddp_flight_digest(const ddp_flight_call *call);

/* "all_reduce (sum) of 65,536 f32 (gradient bucket 2)". buffer of at least 128 bytes, returned. */
const char *ddp_flight_text(const ddp_flight_call *call, char *buffer, size_t bytes);
const char *ddp_flight_op_name(ddp_flight_op op);

#endif
