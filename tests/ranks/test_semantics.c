/* What a training means must not depend on how it is laid out: mean over all items of the global batch
 * (C16), one clip on the reduced gradient (C18), uneven data (C19), order (C20), evaluation (C23). */
#include <math.h>
#include <string.h>

#include "support/test.h"
#include "trial.h"

/* Three items that add up to 6 for the first half, one item of 6 and two masked ones for the second. */
static const trial_sample uneven[] = {{{1}, 0}, {{2}, 0}, {{3}, 0}, {{6}, 0}, {{9}, 1}, {{9}, 1}};

static void check_mean(int world, const char *micro)
{
    trial trial = {
        .samples = uneven, .count = 6, .world = world, .overrides = {"train.global_batch=6", micro}};
    check_ok(trial_run(&trial));
    cr_assert_float_eq(trial.weights[0], -3.0, 1e-6, "%d ranks, %s: %g", world, micro, trial.weights[0]);
    cr_assert_float_eq(trial.norm, 3.0, 1e-6);
    cr_assert_eq(trial.skipped, 0);
}

Test(mean, is_over_all_items_in_every_layout, .timeout = 60)
{
    check_mean(1, "train.micro_batch=6");
    check_mean(1, "train.micro_batch=3");
    check_mean(1, "train.micro_batch=1");
    check_mean(2, "train.micro_batch=3");
    check_mean(2, "train.micro_batch=1");
    check_mean(3, "train.micro_batch=2"); /* the last rank has no item at all */
    check_mean(6, "train.micro_batch=1");
}

/* The same four items alone: a batch of six is padded, and its mean is over the four. */
static void check_padded(int world, const char *micro)
{
    trial trial = {.samples = uneven,
                   .count = 4,
                   .world = world,
                   .overrides = {"train.global_batch=6", micro, "data.tail=pad-weighted", "train.epochs=1"}};
    check_ok(trial_run(&trial));
    cr_assert_eq(trial.steps, 1);
    cr_assert_float_eq(trial.weights[0], -3.0, 1e-6, "%d ranks, %s: %g", world, micro, trial.weights[0]);
    cr_assert_eq(trial.skipped, 0);
}

Test(mean, is_over_the_samples_of_a_padded_tail, .timeout = 60)
{
    check_padded(1, "train.micro_batch=6");
    check_padded(1, "train.micro_batch=1");
    check_padded(2, "train.micro_batch=3");
    check_padded(3, "train.micro_batch=2"); /* the last rank has none of them */
    check_padded(6, "train.micro_batch=1");
}

Test(mean, nothing_to_learn_from_is_a_skipped_step_not_a_nan, .timeout = 60)
{
    static const trial_sample none[] = {{{1}, 1}, {{2}, 1}, {{3}, 1}, {{4}, 1}};
    for (int world = 1; world <= 2; world++) {
        trial trial = {.samples = none, .count = 4, .world = world, .overrides = {"train.steps=2"}};
        check_ok(trial_run(&trial));
        cr_assert_eq(trial.skipped, 2);
        cr_assert_eq(trial.weights[0], 0);
    }
}

static const trial_sample crossed[] = {{{2, 0}, 0}, {{0, 2}, 0}};

static void check_clip(int world, const char *micro)
{
    trial trial = {.samples = crossed,
                   .count = 2,
                   .world = world,
                   .overrides = {"train.global_batch=2", "train.clip_norm=1.0", micro}};
    check_ok(trial_run(&trial));
    cr_assert_float_eq(trial.weights[0], -0.70710678, 1e-6);
    cr_assert_float_eq(trial.weights[1], -0.70710678, 1e-6);
    cr_assert_float_eq(trial.norm, 1.41421356, 1e-6); /* before clipping */
}

Test(clip, is_once_and_on_the_reduced_gradient, .timeout = 60)
{
    check_clip(1, "train.micro_batch=1");
    check_clip(1, "train.micro_batch=2");
    check_clip(2, "train.micro_batch=1");
}

Test(clip, a_gradient_that_is_not_finite_is_skipped_on_all_ranks, .timeout = 60)
{
    static const trial_sample bad[] = {{{2, 0}, 0}, {{0, INFINITY}, 0}};
    for (int world = 1; world <= 2; world++) {
        trial trial = {.samples = bad,
                       .count = 2,
                       .world = world,
                       .overrides = {"train.global_batch=2", "train.clip_norm=1"}};
        check_ok(trial_run(&trial));
        cr_assert_eq(trial.skipped, 1);
        cr_assert_eq(trial.weights[0], 0);
        cr_assert_eq(trial.weights[1], 0);
    }
}

static const trial_sample ten[] = {{{-1}, 0}, {{-1}, 0}, {{1}, 0}, {{1}, 0}, {{1}, 0},
                                   {{1}, 0},  {{1}, 0},  {{1}, 0}, {{1}, 0}, {{1}, 0}};

Test(uneven, a_tail_that_fills_no_batch_is_left_to_another_epoch, .timeout = 60)
{
    trial trial = {
        .samples = ten,
        .count = 10,
        .world = 4,
        .overrides = {"train.epochs=3", "train.micro_batch=1", "train.global_batch=4", "data.shuffle=true"}};
    check_ok(trial_run(&trial));
    cr_assert_eq(trial.steps, 6);
}

static void check_too_few(int count, int world, const char *batch, const char *micro, const char *have,
                          const char *need)
{
    trial trial = {.samples = ten, .count = count, .world = world, .overrides = {batch, micro}};
    ddp_error *error = trial_run(&trial);
    cr_assert_not_null(error);
    cr_assert_eq(ddp_error_exit_code(error), 2);
    cr_assert_not_null(strstr(ddp_error_message(error), have), "%s", ddp_error_message(error));
    cr_assert_not_null(strstr(ddp_error_message(error), need), "%s", ddp_error_message(error));
    ddp_error_free(error);
}

Test(uneven, less_than_one_batch_is_refused_with_both_numbers, .timeout = 60)
{
    check_too_few(1, 4, "train.global_batch=4", "train.micro_batch=1", "1 sample", "4");
    check_too_few(7, 2, "train.global_batch=8", "train.micro_batch=4", "7 samples", "8");
}

/* The global order of three epochs of eight samples. */
static void find_order(int world, const char *seed, int64_t order[24])
{
    trial trial = {.samples = ten,
                   .count = 8,
                   .world = world,
                   .overrides = {"train.epochs=3", "train.global_batch=4", "train.micro_batch=1",
                                 "data.shuffle=true", seed}};
    check_ok(trial_run(&trial));
    for (int i = 0; i < 24; i++)
        order[i] = trial.ids[i / 4][i % 4];
}

Test(order, is_one_for_all_rank_counts_and_new_in_every_epoch, .timeout = 60)
{
    int64_t one[24], again[24], two[24], four[24], other[24], zero[24];
    find_order(1, "train.seed=1", one);
    find_order(2, "train.seed=1", again);
    find_order(2, "train.seed=1", two);
    find_order(4, "train.seed=1", four);
    find_order(2, "train.seed=2", other);
    find_order(2, "train.seed=0", zero);
    cr_assert_eq(memcmp(one, two, sizeof one), 0);
    cr_assert_eq(memcmp(again, two, sizeof one), 0);
    cr_assert_eq(memcmp(one, four, sizeof one), 0);
    cr_assert_neq(memcmp(one, other, sizeof one), 0);
    cr_assert_neq(memcmp(one, zero, sizeof one), 0);
    cr_assert_neq(memcmp(one, one + 8, 8 * sizeof one[0]), 0);
    cr_assert_neq(memcmp(one + 8, one + 16, 8 * sizeof one[0]), 0);
    for (int epoch = 0; epoch < 3; epoch++) {
        int seen = 0;
        for (int i = 0; i < 8; i++)
            seen |= 1 << one[8 * epoch + i];
        cr_assert_eq(seen, 255, "epoch %d misses samples", epoch);
    }
}

Test(evaluation, counts_every_item_once, .timeout = 120)
{
    static const int worlds[] = {1, 2, 3, 4, 7};
    static const char *const batches[] = {"train.eval_batch=1", "train.eval_batch=3", "train.eval_batch=4"};
    for (int w = 0; w < 5; w++) {
        for (int b = 0; b < 3; b++) {
            char batch[40];
            snprintf(batch, sizeof batch, "train.global_batch=%d", worlds[w]);
            trial trial = {.samples = ten, .count = 10, .world = worlds[w], .overrides = {batch, batches[b]}};
            check_ok(trial_run(&trial));
            cr_assert_eq(trial.eval_items, 10);
            cr_assert_float_eq(trial.accuracy, 0.8, 1e-12, "%d ranks, %s", worlds[w], batches[b]);
        }
    }
}
