/* The order of training samples, and each rank's share of it.
 *
 * The order is a function of (seed, epoch, count) alone: ranks, micro-batch, accumulation and workers only
 * cut it. An epoch is a keyed permutation of 0..count-1 that is computed one place at a time: no list of
 * ids, no memory, and any rank can look up any place.
 *
 * A step takes the next `global_batch` places. Rank r has the contiguous part [r * G/N, (r+1) * G/N) of
 * them and cuts it into its micro-batches in order; so the ids of ranks 0..N-1 of one step, written one
 * after another, are the global order whatever N is.
 *
 * Two policies for the count % global_batch samples at the end of an epoch's order. Drop: they are left out
 * of that epoch; the next epoch's order differs, so they come again there. Pad: they are the epoch's last
 * step, whose other places are DDP_NO_SAMPLE: nothing is read for them, and they do not count in the mean.
 * Either way every step has global_batch places on every layout, and every rank the same number of batches.
 *
 * Evaluation has no order: ids 0..count-1, cut into one contiguous slice a rank, each item exactly once.
 * Threads: everything here is a pure function. */
#ifndef DDP_RUNTIME_DATA_SAMPLER_H
#define DDP_RUNTIME_DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include <ddp/error.h>

#define DDP_NO_SAMPLE (-1)

typedef struct ddp_sampler {
    int64_t count; /* samples of the data set, at least global_batch unless padded */
    uint64_t seed;
    bool shuffle;         /* false: 0, 1, 2, ... in every epoch */
    bool pad;             /* an uneven tail is padded, not dropped */
    int64_t global_batch; /* samples a step, over all ranks */
} ddp_sampler;

/* Whether an epoch holds at least one step (dropping). INPUT: it does not, with have and need. No place: the
 * caller adds it. */
DDP_USE_RESULT ddp_error *ddp_sampler_check(int64_t count, int64_t global_batch);

int64_t ddp_sampler_steps_per_epoch(const ddp_sampler *sampler);
int64_t ddp_sampler_epoch(const ddp_sampler *sampler, int64_t step); /* from 0; steps count from 1 */

/* Global samples seen before `step`, padding not counted: the one position a run has. */
int64_t ddp_sampler_position(const ddp_sampler *sampler, int64_t step);

/* The sample ids of places [first, first + count) of an epoch's order; places are in [0, sampler->count). */
void ddp_sampler_order(const ddp_sampler *sampler, int64_t epoch, int64_t first, int64_t count, int64_t *ids);

/* The ids (DDP_NO_SAMPLE = padding) of micro-batch `micro` (from 0) of rank `rank` in `step` (from 1).
 * global_batch is a multiple of world * micro_batch. */
void ddp_sampler_ids(const ddp_sampler *sampler, int64_t step, int rank, int world, int64_t micro,
                     int64_t micro_batch, int64_t *ids);

/* Rank r's part [*begin, *end) of 0..count-1: slices differ by at most one and may be empty. */
void ddp_sampler_slice(int64_t count, int rank, int world, int64_t *begin, int64_t *end);

#endif
