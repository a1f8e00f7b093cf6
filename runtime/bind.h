/* A rank's share of this host's cores: equal shares of the allowed physical cores, NUMA nodes in order;
 * leftover cores stay unassigned (equal ranks matter more than full use). */
#ifndef DDP_RUNTIME_BIND_H
#define DDP_RUNTIME_BIND_H

#include <stdbool.h>

#include <ddp/error.h>

#define DDP_BIND_WORDS 32 /* 2,048 logical processors */

typedef struct ddp_bind_share {
    char cores[256]; /* logical processors by OS number, "0-3,8-11"; may be cut short in a long list */
    unsigned long set[DDP_BIND_WORDS]; /* the same, a bit a processor */
    int count;   /* physical cores in it, 0 = shared with other ranks (fewer cores than ranks) */
    int numa;    /* OS number of the NUMA node if all of it lies in one, otherwise -1 */
    int allowed; /* physical cores this process may use at all */
} ddp_bind_share;

/* What rank local_rank of local_world on this host gets. Does not change anything. MACHINE: hwloc failed. */
DDP_USE_RESULT ddp_error *ddp_bind_plan(int local_rank, int local_world, ddp_bind_share *share);

/* The same for all ranks of this host at once: fills shares[local_world]. */
DDP_USE_RESULT ddp_error *ddp_bind_plan_all(int local_world, ddp_bind_share *shares);

/* Binds the calling process (all its later threads) to it. Being refused is not an error: *bound says. */
DDP_USE_RESULT ddp_error *ddp_bind_apply(const ddp_bind_share *share, bool *bound);

#endif
