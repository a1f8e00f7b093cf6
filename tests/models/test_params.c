/* The parameter table: order, places, start values, digest, refusals. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ddp/tensor.h>

#include "support/test.h"

/* One row to add. */
typedef struct row {
    const char *name;
    ddp_init init;
    double scale;
    int dims;
    int64_t shape[DDP_MAX_DIMS];
} row;

static const row rows[] = {
    {"embedding", DDP_INIT_NORMAL, 0.02, 2, {100, 7}},
    {"weight", DDP_INIT_UNIFORM, 0.5, 2, {3, 40}},
    {"bias", DDP_INIT_ZERO, 0, 1, {3}},
    {"norm", DDP_INIT_ONE, 0, 1, {17}},
    {"cube", DDP_INIT_NORMAL, 1, 4, {2, 2, 2, 2}},
};
enum { ROWS = sizeof rows / sizeof *rows };

static ddp_params make(const int *order, int count)
{
    ddp_params params = {0};
    for (int i = 0; i < count; i++) {
        const row *r = &rows[order[i]];
        int index = -1;
        check_ok(ddp_params_add(&params, r->name, r->init, r->scale, r->dims > 1, r->dims, r->shape, &index));
        cr_assert_eq(index, i);
    }
    check_ok(ddp_params_seal(&params));
    return params;
}

static const int forward[ROWS] = {0, 1, 2, 3, 4}, backward[ROWS] = {4, 3, 2, 1, 0};

static float *start(const ddp_params *params, uint64_t seed)
{
    size_t bytes = (size_t)params->arena_count * sizeof(float);
    float *arena = malloc(bytes);
    memset(arena, 0xff, bytes); /* NaN */
    ddp_params_init(params, seed, arena);
    return arena;
}

Test(params, arena_is_aligned_and_in_reverse_order, .timeout = 10)
{
    ddp_params params = make(forward, ROWS);
    int64_t end = 0;
    for (int i = ROWS - 1; i >= 0; i--) {
        const ddp_param *p = &params.at[i];
        cr_assert_eq(p->offset % DDP_PARAM_ALIGN, 0);
        cr_assert_geq(p->offset, end);
        cr_assert_lt(p->offset, end + DDP_PARAM_ALIGN);
        end = p->offset + p->count;
    }
    cr_assert_eq(params.at[ROWS - 1].offset, 0);
    cr_assert_eq(params.total_count, 700 + 120 + 3 + 17 + 16);
    cr_assert_eq(params.arena_count, 704 + 128 + 16 + 32 + 16);
    ddp_params_free(&params);
    cr_assert_null(params.at);
    ddp_params_free(&params);
}

Test(params, start_values_depend_on_seed_and_name_only, .timeout = 10)
{
    ddp_params a = make(forward, ROWS), b = make(backward, ROWS);
    float *one = start(&a, 1), *other = start(&b, 1), *third = start(&a, 2);
    for (int i = 0; i < ROWS; i++) {
        const ddp_param *p = &a.at[i], *q = &b.at[ROWS - 1 - i];
        size_t bytes = (size_t)p->count * sizeof(float);
        bool random = p->init == DDP_INIT_NORMAL || p->init == DDP_INIT_UNIFORM;
        cr_assert_str_eq(p->name, q->name);
        cr_assert_eq(memcmp(one + p->offset, other + q->offset, bytes), 0, "%s", p->name);
        cr_assert_eq(memcmp(one + p->offset, third + p->offset, bytes) != 0, random, "%s", p->name);
    }
    free(one);
    free(other);
    free(third);
    ddp_params_free(&a);
    ddp_params_free(&b);
}

Test(params, start_values_are_as_described, .timeout = 10)
{
    ddp_params params = make(forward, ROWS);
    float *arena = start(&params, 7);
    double sum = 0, squares = 0, used = 0;
    for (int i = 0; i < 700; i++) {
        double x = arena[params.at[0].offset + i];
        sum += x;
        squares += x * x;
    }
    cr_assert_float_eq(sum / 700, 0, 4 * 0.02 / sqrt(700));
    cr_assert_float_eq(sqrt(squares / 700), 0.02, 0.002);
    for (int i = 0; i < 120; i++)
        cr_assert(fabsf(arena[params.at[1].offset + i]) <= 0.5f);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(arena[params.at[2].offset + i], 0);
    for (int i = 0; i < 17; i++)
        cr_assert_eq(arena[params.at[3].offset + i], 1);
    for (int i = 0; i < ROWS; i++) {
        int64_t end = i > 0 ? params.at[i - 1].offset : params.arena_count;
        used += (double)params.at[i].count;
        for (int64_t gap = params.at[i].offset + params.at[i].count; gap < end; gap++, used++)
            cr_assert_eq(arena[gap], 0, "gap behind %s", params.at[i].name);
    }
    cr_assert_eq(used, (double)params.arena_count);
    free(arena);
    ddp_params_free(&params);
}

static uint64_t digest_of(const char *name, int64_t rows_, int64_t columns)
{
    ddp_params params = {0};
    int index;
    check_ok(ddp_params_add(&params, name, DDP_INIT_ZERO, 0, true, 2, (int64_t[]){rows_, columns}, &index));
    check_ok(ddp_params_add(&params, "last", DDP_INIT_ZERO, 0, true, 1, (int64_t[]){5}, &index));
    check_ok(ddp_params_seal(&params));
    uint64_t digest = ddp_params_digest(&params);
    ddp_params_free(&params);
    return digest;
}

Test(params, digest_sees_names_shapes_and_order, .timeout = 10)
{
    ddp_params a = make(forward, ROWS), b = make(forward, ROWS), c = make(backward, ROWS),
               d = make(forward, 4);
    cr_assert_eq(ddp_params_digest(&a), ddp_params_digest(&b));
    cr_assert_neq(ddp_params_digest(&a), ddp_params_digest(&c));
    cr_assert_neq(ddp_params_digest(&a), ddp_params_digest(&d));
    cr_assert_eq(digest_of("x", 4, 6), digest_of("x", 4, 6));
    cr_assert_neq(digest_of("x", 4, 6), digest_of("y", 4, 6));
    cr_assert_neq(digest_of("x", 4, 6), digest_of("x", 6, 4));
    ddp_params_free(&a);
    ddp_params_free(&b);
    ddp_params_free(&c);
    ddp_params_free(&d);
}

static void refuse(ddp_params *params, ddp_error_kind kind, const char *name, int dims, int64_t size,
                   const char *message)
{
    int index = -7, before = params->count;
    int64_t shape[5] = {size, size, size, size, size};
    ddp_error *error = ddp_params_add(params, name, DDP_INIT_ZERO, 0, false, dims, shape, &index);
    cr_assert_not_null(error);
    cr_assert_str_eq(ddp_error_message(error), message);
    cr_assert_eq(ddp_error_get_kind(error), kind);
    cr_assert_eq(index, -7);
    cr_assert_eq(params->count, before);
    ddp_error_free(error);
}

Test(params, refusals, .timeout = 10)
{
    ddp_params params = {0};
    int index;
    ddp_error *error = ddp_params_seal(&params);
    cr_assert_str_eq(ddp_error_message(error), "the model has no parameters");
    ddp_error_free(error);
    const char *longest = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk"; /* 63 */
    check_ok(ddp_params_add(&params, longest, DDP_INIT_ZERO, 0, false, 1, (int64_t[]){5}, &index));
    cr_assert_str_eq(params.at[0].name, longest);
    refuse(
        &params, DDP_ERR_INTERNAL, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl", 1, 5,
        "parameter \"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl\": a name has 1 to 63 "
        "characters");
    refuse(&params, DDP_ERR_INTERNAL, "", 1, 5, "parameter \"\": a name has 1 to 63 characters");
    check_ok(ddp_params_add(&params, "x", DDP_INIT_ZERO, 0, false, 1, (int64_t[]){5}, &index));
    refuse(&params, DDP_ERR_INTERNAL, "x", 1, 5, "parameter x: the name is taken");
    refuse(&params, DDP_ERR_INTERNAL, "y", 0, 5, "parameter y: 0 dims, allowed are 1 to 4");
    refuse(&params, DDP_ERR_INTERNAL, "y", 5, 5, "parameter y: 5 dims, allowed are 1 to 4");
    refuse(&params, DDP_ERR_INTERNAL, "y", 1, 0, "parameter y: dim 0 is 0");
    refuse(&params, DDP_ERR_INPUT, "y", 4, 65536, "parameter y has more elements than can be addressed");
    check_ok(ddp_params_seal(&params));
    refuse(&params, DDP_ERR_INTERNAL, "y", 1, 5, "parameter y: the table is sealed, nothing can be added");
    ddp_params_free(&params);
}
