/* What the judge (diagnose.c) and the words (diagnose_text.c) share. */
#ifndef DDP_LAUNCHER_DIAGNOSE_PARTS_H
#define DDP_LAUNCHER_DIAGNOSE_PARTS_H

#include "launcher/diagnose.h"

/* One rank, looked at. */
typedef struct ddp_rank_view {
    const ddp_witness *witness;
    const ddp_flight_snapshot *page;
    const ddp_flight_record *pending; /* its oldest collective that has not ended */
    uint64_t issued;
    bool stopped; /* by a signal or a debugger */
    bool gone;    /* there is no process any more */
    bool failed;  /* gone, and not as one whose work was done */
    bool victim;  /* failed, but as one that waited for somebody who did not come */
    bool through; /* its work is done */
    bool blocked; /* it waits for others, in `pending`, */
    double since; /* since then */
} ddp_rank_view;

typedef struct ddp_case {
    const ddp_question *question;
    int world;
    ddp_rank_view *views;
    ddp_diagnosis *out;
    int blocked, culprits;
    const ddp_flight_record *waited; /* the oldest collective that somebody waits in, NULL = nobody waits */
    int usual;                       /* mismatch: a rank of those who are many */
    bool surplus;                    /* mismatch: the difference is that some are through and others wait */
} ddp_case;

void ddp_diagnose_blame(ddp_case *the, int rank);
const ddp_flight_record *ddp_diagnose_record(const ddp_case *the, int rank, uint64_t sequence);

/* Fills cause, details and advice of a case that is decided. */
void ddp_diagnose_word(ddp_case *the);

#endif
