/* Faults for tests: DDP_FAULT="rank=1,step=3,do=exit:3" (several joined by ';'), in every build, announced
 * loudly. `do` is one of
 *   exit:N  raise:SIGNAL  stop  finalize  nan  inf  sleep:SECONDS@PHASE  skip_collective  swap_collectives
 *   loader_error  short_read  slow_save:SECONDS  oom
 * `attempt=N` besides: only at the N-th attempt of a job that restarts.
 * `rank` and `step` may be left out (every rank; every step for sleep and slow_save, otherwise step 1).
 * Threads: ddp_fault_load once per process before any thread; the rest from any thread. */
#ifndef DDP_CORE_FAULT_H
#define DDP_CORE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include <ddp/error.h>

typedef enum ddp_fault_kind {
    DDP_FAULT_EXIT,
    DDP_FAULT_RAISE,
    DDP_FAULT_STOP,
    DDP_FAULT_FINALIZE,
    DDP_FAULT_NAN,
    DDP_FAULT_INF,
    DDP_FAULT_SLEEP,
    DDP_FAULT_SKIP_COLLECTIVE,
    DDP_FAULT_SWAP_COLLECTIVES,
    DDP_FAULT_LOADER_ERROR,
    DDP_FAULT_SHORT_READ,
    DDP_FAULT_SLOW_SAVE,
    DDP_FAULT_OOM,
} ddp_fault_kind;

/* Reads DDP_FAULT for this rank and warns on the log if it is set. INPUT: not understood (the launcher calls
 * it with rank -1 just to check). */
DDP_USE_RESULT ddp_error *ddp_fault_load(int rank);

/* The step that faults compare with; the trainer sets it at the start of each step (from 1; 0 = init). */
void ddp_fault_set_step(int64_t step);

/* Whether a fault of this kind is due now; each fires once, except sleep and slow_save. */
bool ddp_fault_due(ddp_fault_kind kind);

/* Called where a phase begins (init, load, forward, backward, comm, step, save, eval): carries out exit,
 * raise, stop (once, at the first phase of the step) and sleep:...@phase. */
void ddp_fault_phase(const char *phase);

/* Seconds that the save which begins now is to take longer; 0 = none. */
double ddp_fault_slow_save_s(void);

#endif
