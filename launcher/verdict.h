/* What is said about a job that did not end well: to the person, and in events.jsonl. */
#ifndef DDP_LAUNCHER_VERDICT_H
#define DDP_LAUNCHER_VERDICT_H

#include "core/text.h"
#include "launcher/plan.h"
#include "launcher/supervise.h"

/* The first failure in the terms of ranks, whatever started them. */
typedef struct ddp_verdict {
    int rank;         /* -1 = not known */
    int signal, code; /* how it ended; both 0 = it did not */
    int pid;          /* 0 = not known */
    bool hung;
    bool differ;   /* nobody in particular: the ranks are not at the same thing */
    int64_t steps; /* that all ranks have done */
    const ddp_outcome *outcome;
    const ddp_plan *plan;
    const char *run_dir;
} ddp_verdict;

/* With mpirun, its log in run_dir (from byte `log_from` on) says which rank it was, and the events (from byte
 * `events_from` on: earlier ones are of earlier runs) how far it came. */
ddp_verdict ddp_verdict_make(const ddp_plan *plan, const char *run_dir, const ddp_outcome *outcome,
                             long log_from, int64_t events_from);

/* Two or three lines: who failed first, where, why, where its log is; who ended because of it. */
void ddp_verdict_write(const ddp_verdict *verdict, ddp_text *out);

/* Appends the event `verdict`, of a job that was not interrupted; and `end`, of any that did not end well. */
DDP_USE_RESULT ddp_error *ddp_verdict_append(const ddp_verdict *verdict);
DDP_USE_RESULT ddp_error *ddp_verdict_append_end(const char *run_dir, const char *outcome, int64_t steps,
                                                 double seconds, int code);

#endif
