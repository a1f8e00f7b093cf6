/* What the ranks of a job are doing, gathered from outside: their recorders' pages and the states of their
 * processes. Works on ranks that are stopped, wedged or dead; waits for nobody and sends nothing. */
#ifndef DDP_LAUNCHER_EVIDENCE_H
#define DDP_LAUNCHER_EVIDENCE_H

#include "launcher/diagnose.h"

typedef struct ddp_evidence {
    int world;
    ddp_witness *ranks; /* pid, host, ended, status, lost are the caller's to set; the rest is found */
    ddp_flight_snapshot *pages; /* room for one a rank: about 80 KiB each */
    ddp_error **reasons;        /* by rank: why it has no page, NULL = it has one */
    int64_t oom_count;          /* of our cgroup when it was made, see oom.h */
} ddp_evidence;

/* MEMORY. */
DDP_USE_RESULT ddp_error *ddp_evidence_make(int world, ddp_evidence *evidence);
void ddp_evidence_free(ddp_evidence *evidence); /* a zeroed one is fine */

/* Looks at everything once (about 50 us a rank). A page of another process than ranks[r].pid (where that is
 * known) is an earlier attempt's and counts as none. */
void ddp_evidence_collect(ddp_evidence *evidence, const char *run_dir);

#endif
