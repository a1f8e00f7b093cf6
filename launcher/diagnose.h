/* From what the ranks' recorders show to what is wrong: who is to blame, who only waits. A pure function, so
 * that every case the field knows is a unit test; whoever watches a job gathers the evidence (evidence.h):
 *
 *     ddp_evidence evidence;                                    // once per job
 *     DDP_TRY(ddp_evidence_make(world, &evidence));
 *     evidence.ranks[r].pid = child.pid;                        // what the watcher knows by itself:
 *     evidence.ranks[r].host = "node1";                         // pid, host, ended + status, lost
 *     ...
 *     ddp_evidence_collect(&evidence, run_dir);                 // pages and process states, at any time
 *     ddp_question question = {.ranks = evidence.ranks, .world = world, .now = ddp_clock_now(), .first = -1,
 *                              .limit_s = limit};
 *     ddp_diagnosis diagnosis;
 *     DDP_TRY(ddp_diagnose(&question, &diagnosis));             // also while all is well: kind NOTHING
 *     ddp_diagnosis_write(&diagnosis, &text);                   // for a person
 *     ddp_diagnosis_add_fields(&diagnosis, &json);              // for the event `verdict`
 *     ddp_diagnosis_free(&diagnosis);
 *
 * A warning at half the limit is the same with `cause` alone, where kind is HANG.
 *
 * The rules, first that fits:
 *   crash, oom   a rank has ended and should not have: `first` of the question, or the first that failed; but
 *                one that left with code 1 out of a collective was a victim and is not believed
 *   lost_host    the watcher has lost ranks
 *   mismatch     at one number two ranks have issued different collectives; or some wait for what the others,
 *                which are through, will never issue
 *   hang         somebody waits in a collective, and a rank is stopped or has not come to it: that one, never
 *                those who wait; or all have come and it does not move; or nobody waits, and all are busy
 * with something that does not end nothing      otherwise */
#ifndef DDP_LAUNCHER_DIAGNOSE_H
#define DDP_LAUNCHER_DIAGNOSE_H

#include "core/flight.h"
#include "core/json.h"
#include "core/text.h"

/* What is known of one rank. */
typedef struct ddp_witness {
    const ddp_flight_snapshot *page; /* NULL = none */
    char state; /* as in /proc/PID/stat: R, S, D, T, t, Z; X = no such process; 0 = not known */
    bool ended; /* its end was seen; `status` as from waitpid */
    bool lost;  /* nothing is heard of it any more: of its host, or of its control connection */
    bool oom;   /* the kernel ended it because memory had run out */
    int status;
    int pid;          /* 0 = not known */
    const char *host; /* NULL = not known; otherwise the page says them */
} ddp_witness;

typedef struct ddp_question {
    const ddp_witness *ranks; /* `world` of them */
    int world;
    double now;     /* on the clock of the pages */
    int first;      /* rank whose end was seen first, -1 = none */
    double limit_s; /* that has passed; 0 = none, somebody only asks */
} ddp_question;

typedef enum ddp_diagnosis_kind {
    DDP_DIAGNOSIS_NOTHING,
    DDP_DIAGNOSIS_HANG,
    DDP_DIAGNOSIS_MISMATCH,
    DDP_DIAGNOSIS_CRASH,
    DDP_DIAGNOSIS_OOM,
    DDP_DIAGNOSIS_LOST_HOST,
} ddp_diagnosis_kind;

typedef enum ddp_role { DDP_ROLE_OTHER, DDP_ROLE_CULPRIT, DDP_ROLE_WAITING } ddp_role;

typedef struct ddp_diagnosis {
    ddp_diagnosis_kind kind;
    int world;
    unsigned char *roles; /* ddp_role by rank */
    int rank;             /* the culprit, the lowest of several; -1 = nobody in particular */
    int pid;              /* of it, 0 = not known */
    char host[DDP_FLIGHT_HOST];
    char phase[DDP_FLIGHT_PHASE]; /* of it; "" = not known */
    int64_t step;                 /* of it; -1 = not known */
    uint64_t sequence;            /* the collective it is about, 0 = none */
    char op[128];                 /* in words, "" = none */
    double waited_s;              /* for how long those who wait have waited, the longest; 0 = nobody waits */
    char cause[512];              /* one line, with the culprit's name: "rank 2 (pid 4711) is stopped ..." */
    char advice[320];             /* one line, what to do; "" = none */
    ddp_text details;             /* further lines of what is seen, each indented and with its newline */
} ddp_diagnosis;

/* MEMORY. */
DDP_USE_RESULT ddp_error *ddp_diagnose(const ddp_question *question, ddp_diagnosis *diagnosis);
void ddp_diagnosis_free(ddp_diagnosis *diagnosis); /* a zeroed one is fine */

const char *ddp_diagnosis_name(ddp_diagnosis_kind kind); /* "hang", as in the event */

/* One screen: "KIND: CAUSE", the details, the advice. */
void ddp_diagnosis_write(const ddp_diagnosis *diagnosis, ddp_text *out);

/* kind, rank, host, pid, phase, step, seq, op, waiting, culprits, waited_s, cause, advice. */
void ddp_diagnosis_add_fields(const ddp_diagnosis *diagnosis, ddp_json *json);

#endif
