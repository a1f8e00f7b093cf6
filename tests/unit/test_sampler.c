/* The order of samples: cases C19, C20 and C23, as far as they are about ids. */
#include <stdlib.h>
#include <string.h>

#include "data_support.h"
#include "runtime/data/sampler.h"
#include "support/test.h"

#define MAX_IDS 4096

/* The ids of a step over all ranks, in rank order, as a run of that layout would trace them. */
static int64_t step_ids(const ddp_sampler *sampler, int64_t step, int world, int64_t micro_batch,
                        int64_t *ids)
{
    int64_t accumulation = sampler->global_batch / world / micro_batch, used = 0;
    for (int rank = 0; rank < world; rank++)
        for (int64_t micro = 0; micro < accumulation; micro++, used += micro_batch)
            ddp_sampler_ids(sampler, step, rank, world, micro, micro_batch, ids + used);
    return used;
}

static void check_permutation(const int64_t *ids, int64_t count)
{
    char *seen = calloc((size_t)count, 1);
    for (int64_t i = 0; i < count; i++) {
        cr_assert(ids[i] >= 0 && ids[i] < count, "id %lld", (long long)ids[i]);
        cr_assert_eq(seen[ids[i]]++, 0, "id %lld came twice", (long long)ids[i]);
    }
    free(seen);
}

static bool same(const int64_t *a, const int64_t *b, int64_t count)
{
    return memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

Test(sampler, order_is_a_permutation_of_any_count)
{
    static int64_t ids[MAX_IDS];
    const int64_t counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 65, 100, 1437, 4095, 4096};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            ddp_sampler sampler = {.count = counts[i], .seed = 7, .shuffle = true, .global_batch = 1};
            memset(ids, 0xFF, sizeof ids);
            ddp_sampler_order(&sampler, epoch, 0, counts[i], ids);
            check_permutation(ids, counts[i]);
        }
}

Test(sampler, any_place_can_be_looked_up_alone)
{
    int64_t all[1000], one;
    ddp_sampler sampler = {.count = 1000, .seed = 3, .shuffle = true, .global_batch = 1};
    ddp_sampler_order(&sampler, 5, 0, 1000, all);
    for (int64_t place = 0; place < 1000; place++) {
        ddp_sampler_order(&sampler, 5, place, 1, &one);
        cr_assert_eq(one, all[place]);
    }
}

/* Chi-square of "which id comes first" and "where id 0 lands", over many seeds and few samples: 7 degrees of
 * freedom, 24.3 is exceeded once in a thousand times. The seeds are fixed, so the test cannot flicker. */
Test(sampler, small_orders_are_evenly_spread)
{
    enum { COUNT = 8, TRIALS = 8000 };
    int first[COUNT] = {0}, place_of_0[COUNT] = {0};
    for (uint64_t seed = 0; seed < TRIALS; seed++) {
        int64_t ids[COUNT];
        ddp_sampler sampler = {.count = COUNT, .seed = seed, .shuffle = true, .global_batch = 1};
        ddp_sampler_order(&sampler, 0, 0, COUNT, ids);
        first[ids[0]]++;
        for (int i = 0; i < COUNT; i++)
            place_of_0[i] += ids[i] == 0;
    }
    double expected = (double)TRIALS / COUNT, chi_first = 0, chi_place = 0;
    for (int i = 0; i < COUNT; i++) {
        chi_first += (first[i] - expected) * (first[i] - expected) / expected;
        chi_place += (place_of_0[i] - expected) * (place_of_0[i] - expected) / expected;
    }
    cr_assert_lt(chi_first, 24.3);
    cr_assert_lt(chi_place, 24.3);
}

/* All 120 orders of 5 samples come about equally often: 119 degrees of freedom, 173 is the 1 / 1000 point. */
Test(sampler, every_order_of_five_is_as_likely_as_any_other)
{
    enum { TRIALS = 24000 };
    int seen[3125] = {0}, orders = 0;
    double chi = 0;
    for (int64_t epoch = 0; epoch < TRIALS; epoch++) {
        int64_t ids[5];
        int code = 0;
        ddp_sampler sampler = {.count = 5, .seed = 1, .shuffle = true, .global_batch = 1};
        ddp_sampler_order(&sampler, epoch, 0, 5, ids);
        for (int i = 0; i < 5; i++)
            code = code * 5 + (int)ids[i];
        seen[code]++;
    }
    for (int i = 0; i < 3125; i++)
        if (seen[i] > 0) {
            orders++;
            chi += (seen[i] - 200.0) * (seen[i] - 200.0) / 200.0;
        }
    cr_assert_eq(orders, 120);
    cr_assert_lt(chi, 173);
}

/* In a good shuffle neighbours are far apart: |difference| is count / 3 on average, and about one place in
 * `count` keeps its sample. */
Test(sampler, large_orders_keep_no_pattern)
{
    enum { COUNT = 60000 };
    int64_t *ids = malloc(COUNT * sizeof *ids);
    ddp_sampler sampler = {.count = COUNT, .seed = 1, .shuffle = true, .global_batch = 1};
    ddp_sampler_order(&sampler, 0, 0, COUNT, ids);
    check_permutation(ids, COUNT);
    double apart = 0;
    int64_t kept = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        kept += ids[i] == i;
        apart += i > 0 ? (double)llabs(ids[i] - ids[i - 1]) : 0;
    }
    cr_assert_float_eq(apart / COUNT, COUNT / 3.0, COUNT * 0.01);
    cr_assert_lt(kept, 10);
    free(ids);
}

Test(sampler, counts_beyond_32_bits_work)
{
    int64_t ids[100];
    ddp_sampler sampler = {
        .count = ((int64_t)1 << 40) + 12345, .seed = 9, .shuffle = true, .global_batch = 100};
    ddp_sampler_order(&sampler, 2, sampler.count - 100, 100, ids);
    int64_t large = 0;
    for (int i = 0; i < 100; i++) {
        cr_assert(ids[i] >= 0 && ids[i] < sampler.count);
        large += ids[i] > UINT32_MAX;
    }
    cr_assert_gt(large, 90);
}

/* C20: 8 samples, 3 epochs, seeds 1, 1, 2, 0; then other layouts. */
Test(sampler, epochs_cover_everything_and_differ_and_repeat)
{
    const uint64_t seeds[] = {1, 1, 2, 0};
    int64_t orders[4][3][8];
    for (int run = 0; run < 4; run++)
        for (int epoch = 0; epoch < 3; epoch++) {
            ddp_sampler sampler = {.count = 8, .seed = seeds[run], .shuffle = true, .global_batch = 4};
            cr_assert_eq(ddp_sampler_steps_per_epoch(&sampler), 2);
            cr_assert_eq(ddp_sampler_epoch(&sampler, epoch * 2 + 1), epoch);
            cr_assert_eq(ddp_sampler_epoch(&sampler, epoch * 2 + 2), epoch);
            step_ids(&sampler, epoch * 2 + 1, 2, 2, orders[run][epoch]);
            step_ids(&sampler, epoch * 2 + 2, 2, 2, orders[run][epoch] + 4);
            check_permutation(orders[run][epoch], 8);
        }
    cr_assert(same(orders[0][0], orders[1][0], 24)); /* the same seed */
    for (int run = 1; run < 4; run++)
        for (int epoch = 0; epoch < 3; epoch++) {
            cr_assert_not(same(orders[run][epoch], orders[run][(epoch + 1) % 3], 8));
            for (int other = run + 1; other < 4; other++)
                cr_assert_not(same(orders[run][epoch], orders[other][epoch], 8));
        }
}

Test(sampler, global_order_does_not_depend_on_the_layout)
{
    const struct {
        int world;
        int64_t micro_batch;
    } layouts[] = {{1, 1}, {1, 12}, {2, 6}, {2, 3}, {3, 4}, {4, 3}, {4, 1}, {6, 2}, {12, 1}};
    ddp_sampler sampler = {.count = 100, .seed = 1, .shuffle = true, .global_batch = 12};
    for (int64_t step = 1; step <= 20; step++) {
        int64_t reference[12], ids[12];
        step_ids(&sampler, step, 1, 12, reference);
        for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
            cr_assert_eq(step_ids(&sampler, step, layouts[i].world, layouts[i].micro_batch, ids), 12);
            cr_assert(same(ids, reference, 12), "step %lld layout %zu", (long long)step, i);
        }
    }
}

/* C19: 10 samples on 4 ranks; every rank has the same number of batches, two samples are dropped and are
 * others in another epoch. */
Test(sampler, uneven_tail_is_dropped_and_comes_again)
{
    ddp_sampler sampler = {.count = 10, .seed = 1, .shuffle = true, .global_batch = 4};
    int left_out[10] = {0}, ever = 0;
    cr_assert_eq(ddp_sampler_steps_per_epoch(&sampler), 2);
    for (int64_t epoch = 0; epoch < 20; epoch++) {
        int64_t ids[8];
        int seen[10] = {0};
        step_ids(&sampler, epoch * 2 + 1, 4, 1, ids);
        step_ids(&sampler, epoch * 2 + 2, 4, 1, ids + 4);
        for (int i = 0; i < 8; i++)
            cr_assert_eq(seen[ids[i]]++, 0);
        for (int i = 0; i < 10; i++)
            left_out[i] += seen[i] == 0;
    }
    for (int i = 0; i < 10; i++) {
        cr_assert_lt(left_out[i], 15);
        ever += left_out[i] > 0;
    }
    cr_assert_gt(ever, 5);
    cr_assert_eq(ddp_sampler_position(&sampler, 1), 0);
    cr_assert_eq(ddp_sampler_position(&sampler, 6), 20);
}

/* Padding instead: every sample once an epoch, the places behind the last one empty, at any number of ranks.
 */
Test(sampler, uneven_tail_is_padded)
{
    ddp_sampler sampler = {.count = 10, .seed = 1, .shuffle = true, .pad = true, .global_batch = 4};
    const int worlds[] = {1, 2, 4};
    cr_assert_eq(ddp_sampler_steps_per_epoch(&sampler), 3);
    for (int w = 0; w < 3; w++)
        for (int64_t epoch = 0; epoch < 5; epoch++) {
            int64_t ids[12];
            int seen[10] = {0};
            for (int64_t step = 0; step < 3; step++)
                step_ids(&sampler, epoch * 3 + step + 1, worlds[w], 1, ids + 4 * step);
            for (int i = 0; i < 10; i++)
                cr_assert_eq(seen[ids[i]]++, 0);
            cr_assert(ids[10] == DDP_NO_SAMPLE && ids[11] == DDP_NO_SAMPLE);
        }
    cr_assert_eq(ddp_sampler_position(&sampler, 3), 8);
    cr_assert_eq(ddp_sampler_position(&sampler, 4), 10);
    cr_assert_eq(ddp_sampler_position(&sampler, 5), 14);
}

Test(sampler, without_shuffle_ids_are_in_file_order)
{
    ddp_sampler sampler = {.count = 10, .seed = 1, .global_batch = 4};
    int64_t ids[4];
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        step_ids(&sampler, epoch * 2 + 2, 2, 1, ids);
        for (int i = 0; i < 4; i++)
            cr_assert_eq(ids[i], 4 + i);
    }
}

/* C19 and C36: less than one step is refused with both numbers. */
Test(sampler, less_than_one_step_is_refused)
{
    check_ok(ddp_sampler_check(8, 8));
    check_error(ddp_sampler_check(7, 8), DDP_ERR_INPUT, "has 7 samples", "needs 8", "help: ", "at most 7",
                NULL);
    check_error(ddp_sampler_check(1, 4), DDP_ERR_INPUT, "has 1 sample;", "needs 4", NULL);
}

/* C23: every item once at any number of ranks and any batch size; slices are contiguous and in order. */
Test(sampler, slices_of_evaluation_count_every_item_once)
{
    const int worlds[] = {1, 2, 3, 4, 7, 16};
    const int64_t counts[] = {1, 3, 10, 360}, batches[] = {1, 3, 4};
    for (size_t w = 0; w < 6; w++)
        for (size_t c = 0; c < 4; c++) {
            int64_t at = 0, shortest = INT64_MAX, longest = 0;
            for (int rank = 0; rank < worlds[w]; rank++) {
                int64_t begin = -1, end = -1;
                ddp_sampler_slice(counts[c], rank, worlds[w], &begin, &end);
                cr_assert_eq(begin, at);
                cr_assert_geq(end, begin);
                shortest = end - begin < shortest ? end - begin : shortest;
                longest = end - begin > longest ? end - begin : longest;
                at = end;
            }
            cr_assert_eq(at, counts[c]);
            cr_assert_leq(longest - shortest, 1);
        }
    /* ids 0 and 1 wrong, the other 8 right: 0.8 of 10 in every layout */
    for (size_t w = 0; w < 6; w++)
        for (size_t b = 0; b < 3; b++) {
            int64_t items = 0, right = 0;
            for (int rank = 0; rank < worlds[w]; rank++) {
                int64_t begin, end;
                ddp_sampler_slice(10, rank, worlds[w], &begin, &end);
                for (int64_t at = begin; at < end; at += batches[b])
                    for (int64_t id = at; id < at + batches[b] && id < end; id++, items++)
                        right += id >= 2;
            }
            cr_assert_eq(items, 10);
            cr_assert_eq(right, 8);
        }
}
