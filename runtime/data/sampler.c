/* The order of training samples: a keyed permutation, looked up place by place.
 *
 * The idea: a Feistel network permutes the numbers below a power of two; places that land at or above
 * `count` are sent through it again until they land below ("cycle walking": Black and Rogaway, "Ciphers with
 * arbitrary finite domains", CT-RSA 2002). The power of two is below 2 * count, so that is under two passes
 * on average. */
#include "runtime/data/sampler.h"

#include <inttypes.h>

#include "core/rng.h"

/* Four rounds already look random where a half has many bits. The halves of a small data set have one or two:
 * there it takes 24 until all orders are equally likely (the 120 orders of 5 samples over 240,000 epochs:
 * chi-square 2066 with 12 rounds, 372 with 16, 112 with 24; 119 is expected). About 0.1 us a sample. */
#define ROUNDS 24

/* Keeps the order's numbers apart from those of other users of the seed. */
#define ORDER_STREAM 0x6F72646572ull

typedef struct order {
    uint64_t keys[ROUNDS];
    int low_bits, high_bits; /* the halves; low_bits >= high_bits */
} order;

static order make_order(const ddp_sampler *sampler, int64_t epoch)
{
    order made;
    int bits = 1;
    while (bits < 63 && ((int64_t)1 << bits) < sampler->count)
        bits++;
    made.high_bits = bits / 2;
    made.low_bits = bits - made.high_bits;
    /* The epoch is hashed into the stream's number, the rounds are the places in it. */
    uint64_t stream = ddp_rng_hash(ORDER_STREAM, &epoch, sizeof epoch);
    for (int round = 0; round < ROUNDS; round++)
        made.keys[round] = ddp_rng_u64(sampler->seed, stream, (uint64_t)round);
    return made;
}

/* The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}

/* The halves take turns in changing, so they may differ in width. */
static uint64_t permute(const order *by, uint64_t place)
{
    uint64_t low_mask = ((uint64_t)1 << by->low_bits) - 1, high_mask = ((uint64_t)1 << by->high_bits) - 1;
    uint64_t low = place & low_mask, high = place >> by->low_bits;
    for (int round = 0; round < ROUNDS; round += 2) {
        low ^= mix(high + by->keys[round]) & low_mask;
        high ^= mix(low + by->keys[round + 1]) & high_mask;
    }
    return high << by->low_bits | low;
}

ddp_error *ddp_sampler_check(int64_t count, int64_t global_batch)
{
    if (count >= global_batch)
        return NULL;
    return ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                         "the training data has %" PRId64 " sample%s; one step needs %" PRId64
                                         " (train.global_batch)",
                                         count, count == 1 ? "" : "s", global_batch),
                          "train.global_batch of at most %" PRId64 ", or more data", count);
}

int64_t ddp_sampler_steps_per_epoch(const ddp_sampler *sampler)
{
    return (sampler->count + (sampler->pad ? sampler->global_batch - 1 : 0)) / sampler->global_batch;
}

int64_t ddp_sampler_epoch(const ddp_sampler *sampler, int64_t step)
{
    return (step - 1) / ddp_sampler_steps_per_epoch(sampler);
}

int64_t ddp_sampler_position(const ddp_sampler *sampler, int64_t step)
{
    int64_t steps = ddp_sampler_steps_per_epoch(sampler), epoch = (step - 1) / steps;
    int64_t each = sampler->pad ? sampler->count : steps * sampler->global_batch;
    return epoch * each + (step - 1) % steps * sampler->global_batch;
}

void ddp_sampler_order(const ddp_sampler *sampler, int64_t epoch, int64_t first, int64_t count, int64_t *ids)
{
    ddp_assert(first >= 0 && first + count <= sampler->count);
    if (!sampler->shuffle) {
        for (int64_t i = 0; i < count; i++)
            ids[i] = first + i;
        return;
    }
    order by = make_order(sampler, epoch);
    for (int64_t i = 0; i < count; i++) {
        uint64_t place = (uint64_t)(first + i);
        do
            place = permute(&by, place);
        while (place >= (uint64_t)sampler->count);
        ids[i] = (int64_t)place;
    }
}

void ddp_sampler_ids(const ddp_sampler *sampler, int64_t step, int rank, int world, int64_t micro,
                     int64_t micro_batch, int64_t *ids)
{
    int64_t share = sampler->global_batch / world;
    int64_t step_in_epoch = (step - 1) % ddp_sampler_steps_per_epoch(sampler);
    ddp_assert(share * world == sampler->global_batch && (micro + 1) * micro_batch <= share);
    int64_t first = step_in_epoch * sampler->global_batch + rank * share + micro * micro_batch;
    int64_t left = sampler->count - first, real = left < 0 ? 0 : left < micro_batch ? left : micro_batch;
    if (real > 0)
        ddp_sampler_order(sampler, ddp_sampler_epoch(sampler, step), first, real, ids);
    for (int64_t i = real; i < micro_batch; i++)
        ids[i] = DDP_NO_SAMPLE;
}

void ddp_sampler_slice(int64_t count, int rank, int world, int64_t *begin, int64_t *end)
{
    int64_t each = count / world, longer = count % world; /* the first `longer` ranks take one more */
    *begin = rank * each + (rank < longer ? rank : longer);
    *end = *begin + each + (rank < longer ? 1 : 0);
}
