/* Do all ranks mean the same thing? A difference becomes an error with both values, not a hang at step 40. */
#ifndef DDP_RUNTIME_AGREE_H
#define DDP_RUNTIME_AGREE_H

#include <ddp/comm.h>

typedef struct ddp_claim {
    const char *what; /* "job", "parameters" */
    uint64_t value;   /* a digest or a number */
} ddp_claim;

/* Collective, waits. Every rank brings the same list of claims; one min/max reduction compares them. PEER:
 * a claim differs (the same error on every rank). */
DDP_USE_RESULT ddp_error *ddp_agree(ddp_comm *comm, ddp_stream *stream, const ddp_claim *claims, int count);

/* Collective, waits. *all = whether `mine` is true on every rank. */
DDP_USE_RESULT ddp_error *ddp_agree_all(ddp_comm *comm, ddp_stream *stream, bool mine, bool *all);

#endif
