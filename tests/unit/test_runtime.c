/* Buckets, schedule, reporter: the parts of the runtime that need no ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "runtime/buckets.h"
#include "runtime/reporter.h"
#include "runtime/schedule.h"
#include "support/test.h"

static ddp_params make_params(int count, int64_t size)
{
    ddp_params params = {0};
    for (int i = 0; i < count; i++) {
        char name[16];
        int index;
        snprintf(name, sizeof name, "p%d", i);
        check_ok(ddp_params_add(&params, name, DDP_INIT_ZERO, 0, true, 1, &size, &index));
    }
    check_ok(ddp_params_seal(&params));
    return params;
}

Test(buckets, cover_the_arena_in_order)
{
    ddp_params params = make_params(10, 1000);
    ddp_buckets buckets;
    check_ok(ddp_buckets_make(&params, 4000, 12000, &buckets));
    cr_assert_eq(buckets.count, 4); /* 1 + 3 + 3 + 3 parameters of 4000 bytes */
    int64_t at = 0;
    for (int i = 0; i < buckets.count; i++) {
        cr_assert_eq(buckets.at[i].begin, at);
        at += buckets.at[i].count;
    }
    cr_assert_eq(at, params.arena_count);
    cr_assert_eq(buckets.of_param[9], 0);
    cr_assert_eq(buckets.of_param[0], 3);
    ddp_buckets_free(&buckets);
    ddp_params_free(&params);
}

Test(buckets, leave_in_index_order_whatever_order_gradients_come_in)
{
    ddp_params params = make_params(6, 100);
    ddp_buckets buckets;
    check_ok(ddp_buckets_make(&params, 1, 1, &buckets));
    cr_assert_eq(buckets.count, 6);
    ddp_buckets_begin(&buckets);
    int first;
    cr_assert_eq(ddp_buckets_ready(&buckets, 0, &first), 0); /* the arena's last */
    cr_assert_eq(ddp_buckets_ready(&buckets, 4, &first), 0);
    cr_assert_eq(ddp_buckets_ready(&buckets, 5, &first), 2);
    cr_assert_eq(first, 0);
    cr_assert_eq(ddp_buckets_ready(&buckets, 3, &first), 1);
    cr_assert_eq(ddp_buckets_ready(&buckets, 1, &first), 0);
    cr_assert_eq(ddp_buckets_ready(&buckets, 2, &first), 3);
    cr_assert_eq(first, 3);
    ddp_buckets_free(&buckets);
    ddp_params_free(&params);
}

Test(schedule, warms_up_and_ends_where_it_says)
{
    ddp_job job = {.optimizer.lr = 2.0,
                   .schedule = {.kind = DDP_SCHEDULE_COSINE, .warmup_steps = 4, .final = 0.1}};
    cr_assert_float_eq(ddp_schedule_lr(&job, 1, 100), 0.5, 1e-12);
    cr_assert_float_eq(ddp_schedule_lr(&job, 4, 100), 2.0, 1e-12);
    cr_assert_float_eq(ddp_schedule_lr(&job, 52, 100), 1.1, 1e-12);
    cr_assert_float_eq(ddp_schedule_lr(&job, 100, 100), 0.2, 1e-12);
    job.schedule.kind = DDP_SCHEDULE_LINEAR;
    cr_assert_float_eq(ddp_schedule_lr(&job, 52, 100), 1.1, 1e-12);
    cr_assert_float_eq(ddp_schedule_lr(&job, 28, 100), 1.55, 1e-12);
    job.schedule.kind = DDP_SCHEDULE_CONSTANT;
    cr_assert_float_eq(ddp_schedule_lr(&job, 100, 100), 2.0, 1e-12);
    job.schedule.warmup_steps = 200; /* a run shorter than its warm-up stays on the ramp */
    cr_assert_float_eq(ddp_schedule_lr(&job, 100, 100), 1.0, 1e-12);
}

/* A sink that takes its time; its counters are read after the reporter has closed. */
static int64_t written, closed;
typedef struct slow_sink {
    ddp_sink base;
} slow_sink;
extern const ddp_sink_ops slow_sink_ops;

static ddp_error *slow_open(const ddp_sink_config *config, ddp_sink **sink)
{
    slow_sink *made;
    DDP_TRY(DDP_NEW(&made));
    made->base.ops = &slow_sink_ops;
    *sink = &made->base;
    return NULL;
}
static ddp_error *slow_write(ddp_sink *sink, const ddp_record *record)
{
    if (record->kind == DDP_RECORD_TRACE)
        cr_assert_eq(record->trace.samples[0], 42);
    written++;
    return record->step == 13 ? ddp_error_make(DDP_ERR_IO, "disk full") : NULL;
}
static void slow_close(ddp_sink *sink)
{
    closed++;
    free(sink);
}
const ddp_sink_ops slow_sink_ops = {
    .name = "slow", .open = slow_open, .write = slow_write, .close = slow_close};

Test(reporter, gives_everything_once_and_a_failing_sink_is_closed_alone)
{
    const ddp_sink_ops *sinks[] = {&slow_sink_ops, NULL};
    ddp_sink_config config = {.every = 1};
    ddp_reporter *reporter;
    check_ok(ddp_reporter_open(sinks, &config, &reporter));
    int64_t id = 42;
    for (int64_t step = 1; step <= 20; step++) {
        ddp_record record = {.kind = step == 5 ? DDP_RECORD_TRACE : DDP_RECORD_EVAL, .step = step};
        if (step == 5) {
            record.trace.samples = &id;
            record.trace.count = 1;
        }
        ddp_reporter_add(reporter, &record);
    }
    ddp_reporter_close(reporter);
    cr_assert_eq(written, 13);
    cr_assert_eq(closed, 1);
}
