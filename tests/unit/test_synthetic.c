/* Made-up samples: a function of (seed, split, id), in range, and with something to learn. */
#include <math.h>
#include <string.h>

#include "data_support.h"
#include "runtime/data/datasets.h"
#include "support/test.h"

typedef struct sizes {
    int64_t samples, validation_samples;
} sizes;

static ddp_dataset *open_made(ddp_sample want, ddp_split split, uint64_t seed)
{
    sizes settings = {1000, 50};
    ddp_dataset_config config = {
        .settings = &settings, .place = data_place, .split = split, .want = want, .seed = seed};
    ddp_dataset *dataset;
    check_ok(ddp_dataset_synthetic_ops.open(&config, &dataset));
    return dataset;
}

static const ddp_sample want_classes = {
    .input = DDP_F32, .input_count = 65, .target = DDP_I32, .target_count = 1, .classes = 10, .items = 1};
static const ddp_sample want_tokens = {
    .input = DDP_I32, .input_count = 32, .target = DDP_I32, .target_count = 32, .classes = 100, .items = 32};

Test(synthetic, sizes_are_the_settings)
{
    ddp_dataset *train = open_made(want_classes, DDP_TRAIN, 1),
                *validation = open_made(want_classes, DDP_VALIDATION, 1);
    cr_assert_eq(train->count, 1000);
    cr_assert_eq(validation->count, 50);
    cr_assert_str_eq(train->description, "1,000 made-up samples of 65 features");
    ddp_dataset_close(train);
    ddp_dataset_close(validation);
}

Test(synthetic, a_sample_depends_on_seed_split_and_id_only)
{
    ddp_dataset *one = open_made(want_classes, DDP_TRAIN, 1), *again = open_made(want_classes, DDP_TRAIN, 1);
    ddp_dataset *split = open_made(want_classes, DDP_VALIDATION, 1),
                *seed = open_made(want_classes, DDP_TRAIN, 2);
    float a[2 * 65], b[65], c[65], d[65];
    int32_t ta[2], tb, tc, td;
    check_ok(one->ops->read(one, (int64_t[]){7, 8}, 2, a, ta));
    check_ok(again->ops->read(again, (int64_t[]){8}, 1, b, &tb));
    check_ok(split->ops->read(split, (int64_t[]){8}, 1, c, &tc));
    check_ok(seed->ops->read(seed, (int64_t[]){8}, 1, d, &td));
    cr_assert_eq(memcmp(a + 65, b, sizeof b), 0);
    cr_assert_eq(ta[1], tb);
    cr_assert_neq(memcmp(a, b, sizeof b), 0);
    cr_assert_neq(memcmp(c, b, sizeof b), 0);
    cr_assert_neq(memcmp(d, b, sizeof b), 0);
    ddp_dataset_close(one);
    ddp_dataset_close(again);
    ddp_dataset_close(split);
    ddp_dataset_close(seed);
}

Test(synthetic, features_are_uniform_and_every_class_occurs)
{
    ddp_dataset *dataset = open_made(want_classes, DDP_TRAIN, 3);
    int counts[10] = {0};
    double sum = 0, squares = 0;
    for (int64_t id = 0; id < 1000; id++) {
        float input[65];
        int32_t target = -1;
        check_ok(dataset->ops->read(dataset, &id, 1, input, &target));
        cr_assert(target >= 0 && target < 10);
        counts[target]++;
        for (int i = 0; i < 65; i++) {
            cr_assert(input[i] >= -1 && input[i] < 1);
            sum += input[i];
            squares += input[i] * input[i];
        }
    }
    cr_assert_float_eq(sum / 65000, 0, 0.01);
    cr_assert_float_eq(squares / 65000, 1.0 / 3, 0.01);
    for (int i = 0; i < 10; i++)
        cr_assert_gt(counts[i], 10);
    ddp_dataset_close(dataset);
}

/* A least-squares step has something to find: values change linearly with the features. */
Test(synthetic, values_are_linear_in_the_features)
{
    ddp_sample want = {.input = DDP_F32, .input_count = 3, .target = DDP_F32, .target_count = 2, .items = 1};
    ddp_dataset *dataset = open_made(want, DDP_TRAIN, 1);
    float x[5][3], y[5][2];
    check_ok(dataset->ops->read(dataset, (int64_t[]){0, 1, 2, 3, 4}, 5, x, y));
    /* Cramer's rule on samples 0..2, checked on 3 and 4. */
    double det = 0;
    for (int i = 0; i < 3; i++)
        det += x[0][i] * (x[1][(i + 1) % 3] * x[2][(i + 2) % 3] - x[1][(i + 2) % 3] * x[2][(i + 1) % 3]);
    cr_assert_gt(fabs(det), 1e-3);
    for (int output = 0; output < 2; output++)
        for (int check = 3; check < 5; check++) {
            double value = 0;
            for (int row = 0; row < 3; row++) {
                const float *p = x[(row + 1) % 3], *q = x[(row + 2) % 3], *z = x[check];
                double part = z[0] * (p[1] * q[2] - p[2] * q[1]) + z[1] * (p[2] * q[0] - p[0] * q[2]) +
                              z[2] * (p[0] * q[1] - p[1] * q[0]);
                value += y[row][output] * part / det;
            }
            cr_assert_float_eq(value, y[check][output], 1e-3);
        }
    ddp_dataset_close(dataset);
}

/* Three places of four follow the rule: the most frequent successor of a token is guessed right that often.
 */
Test(synthetic, tokens_follow_a_rule_most_of_the_time)
{
    static int pairs[100][100];
    ddp_dataset *dataset = open_made(want_tokens, DDP_TRAIN, 1);
    for (int64_t id = 0; id < 1000; id++) {
        int32_t input[32], target[32];
        check_ok(dataset->ops->read(dataset, &id, 1, input, target));
        for (int i = 0; i < 32; i++) {
            cr_assert(input[i] >= 0 && input[i] < 100 && target[i] >= 0 && target[i] < 100);
            cr_assert(i == 31 || target[i] == input[i + 1]);
            pairs[input[i]][target[i]]++;
        }
    }
    int right = 0, kinds = 0;
    for (int from = 0; from < 100; from++) {
        int most = 0, all = 0;
        for (int to = 0; to < 100; to++) {
            most = pairs[from][to] > most ? pairs[from][to] : most;
            all += pairs[from][to];
        }
        right += most;
        kinds += all > 0;
    }
    cr_assert_eq(kinds, 100);
    cr_assert_float_eq(right / 32000.0, 0.7525, 0.02);
    ddp_dataset_close(dataset);
}

Test(synthetic, other_shapes_are_refused)
{
    sizes settings = {10, 10};
    ddp_sample want = want_tokens;
    ddp_dataset *dataset;
    want.target_count = 3;
    ddp_dataset_config config = {.settings = &settings, .place = data_place, .want = want};
    check_error(ddp_dataset_synthetic_ops.open(&config, &dataset), DDP_ERR_INPUT, "job.yaml:3:10",
                "synthetic makes", NULL);
}
