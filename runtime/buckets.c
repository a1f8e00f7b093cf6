/* Buckets of the gradient arena.
 *
 * Note [Why buckets launch in index order]
 * Collectives match by order alone: every rank must issue the same ones in the same order. Gradients become
 * final in an order that the model decides and that could differ where two branches are independent, so a
 * bucket that is complete still waits for all buckets before it. The arena lies in reverse forward order, so
 * for models that run backward layer by layer that wait is empty. */
#include "runtime/buckets.h"

#include <stdlib.h>

#include "core/memory.h"
#include "core/rng.h"

ddp_error *ddp_buckets_make(const ddp_params *params, double first_bytes, double bytes, ddp_buckets *buckets)
{
    ddp_buckets made = {.params = params->count};
    DDP_TRY(ddp_memory_make((size_t)params->count, sizeof *made.at, (void **)&made.at));
    ddp_error *error = ddp_memory_make((size_t)params->count, sizeof *made.of_param, (void **)&made.of_param);
    if (error != NULL) {
        ddp_buckets_free(&made);
        return error;
    }
    /* Arena order is reverse forward order: the last parameter comes first. */
    for (int param = params->count - 1; param >= 0; param--) {
        ddp_bucket *bucket = &made.at[made.count];
        int64_t end = param > 0 ? params->at[param - 1].offset : params->arena_count;
        bucket->count = end - bucket->begin;
        bucket->params++;
        made.of_param[param] = made.count;
        double wanted = made.count == 0 ? first_bytes : bytes;
        if ((double)bucket->count * sizeof(float) >= wanted && param > 0)
            made.at[++made.count].begin = end;
    }
    made.count++;
    *buckets = made;
    return NULL;
}

void ddp_buckets_free(ddp_buckets *buckets)
{
    free(buckets->at);
    free(buckets->of_param);
    *buckets = (ddp_buckets){0};
}

void ddp_buckets_begin(ddp_buckets *buckets)
{
    buckets->next = 0;
    for (int i = 0; i < buckets->count; i++)
        buckets->at[i].waiting = buckets->at[i].params;
}

int ddp_buckets_ready(ddp_buckets *buckets, int param, int *first)
{
    ddp_bucket *bucket = &buckets->at[buckets->of_param[param]];
    ddp_assert(bucket->waiting > 0);
    bucket->waiting--;
    *first = buckets->next;
    while (buckets->next < buckets->count && buckets->at[buckets->next].waiting == 0)
        buckets->next++;
    return buckets->next - *first;
}

uint64_t ddp_buckets_digest(const ddp_buckets *buckets)
{
    uint64_t digest = 0;
    for (int i = 0; i < buckets->count; i++) {
        digest = ddp_rng_hash(digest, &buckets->at[i].begin, sizeof buckets->at[i].begin);
        digest = ddp_rng_hash(digest, &buckets->at[i].count, sizeof buckets->at[i].count);
    }
    return digest;
}
