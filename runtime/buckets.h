/* Buckets: contiguous ranges of the flat gradient arena that are all-reduced while backward goes on. */
#ifndef DDP_RUNTIME_BUCKETS_H
#define DDP_RUNTIME_BUCKETS_H

#include <ddp/comm.h>
#include <ddp/tensor.h>

#define DDP_AUTO_BUCKET_MIB 25.0 /* parallel.bucket_mb: auto */

typedef struct ddp_bucket {
    int64_t begin, count; /* elements of the arena */
    int params;           /* parameters in it */
    int waiting;          /* of them not final yet in this step */
} ddp_bucket;

typedef struct ddp_buckets {
    ddp_bucket *at;
    int count;
    int *of_param; /* bucket of each parameter */
    int params;
    int next; /* first bucket that has not left yet */
} ddp_buckets;

/* Cuts the arena: the first bucket holds at least first_bytes, the others at least `bytes` (whole parameters;
 * the last one what is left). */
DDP_USE_RESULT ddp_error *ddp_buckets_make(const ddp_params *params, double first_bytes, double bytes,
                                           ddp_buckets *buckets);
void ddp_buckets_free(ddp_buckets *buckets); /* a zeroed one is fine */

/* Before the backward that communicates. */
void ddp_buckets_begin(ddp_buckets *buckets);

/* The gradient of `param` is final. Returns how many buckets may leave now: [*first, *first + result), always
 * in index order; the caller launches them. INTERNAL as assert: a parameter was reported twice. */
int ddp_buckets_ready(ddp_buckets *buckets, int param, int *first);

/* Digest of the cuts; must be the same on all ranks. */
uint64_t ddp_buckets_digest(const ddp_buckets *buckets);

#endif
