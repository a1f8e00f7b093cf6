/* The loader: right batches in the right order, failures, and ending at any time. Runs under
 * ThreadSanitizer too. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/device/devices.h"
#include "core/fault.h"
#include "data_support.h"
#include "runtime/data/loader.h"
#include "support/test.h"

/* A data set whose samples are (id, 10 id) and which can be slow or fail at one read. */
typedef struct counted {
    ddp_dataset base;
    atomic_int reads;
    int fail_at; /* number of the read that fails, from 1; 0 = none */
    double read_s;
    bool uneven;    /* every third read takes long */
    int64_t bad_id; /* a sample that cannot be read, 0 = none */
} counted;

static ddp_error *read_counted(ddp_dataset *dataset, const int64_t *ids, int64_t count, void *input,
                               void *target)
{
    counted *data = (counted *)dataset;
    int number = atomic_fetch_add(&data->reads, 1) + 1;
    if (data->read_s > 0)
        ddp_clock_sleep(data->read_s);
    if (data->uneven && number % 3 == 0)
        ddp_clock_sleep(0.001);
    for (int64_t i = 0; i < count; i++)
        if (data->bad_id > 0 && ids[i] == data->bad_id)
            return ddp_error_make(DDP_ERR_IO, "the bad sample");
    if (number == data->fail_at)
        return ddp_error_make(DDP_ERR_IO, "pages.bin ends at byte 4711");
    for (int64_t i = 0; i < count; i++) {
        ((float *)input)[2 * i] = (float)ids[i];
        ((float *)input)[2 * i + 1] = (float)(10 * ids[i]);
        ((int32_t *)target)[i] = (int32_t)ids[i];
    }
    return NULL;
}

static const ddp_dataset_ops counted_ops = {.name = "counted", .read = read_counted};

static counted make_counted(int64_t count)
{
    return (counted){.base = {.ops = &counted_ops,
                              .count = count,
                              .sample = {.input = DDP_F32,
                                         .input_count = 2,
                                         .target = DDP_I32,
                                         .target_count = 1,
                                         .classes = 1000,
                                         .items = 1}}};
}

static ddp_device *open_cpu(void)
{
    ddp_device *device;
    check_ok(ddp_device_cpu_ops.open(&(ddp_device_config){.threads = 1, .compute = DDP_F32}, &device));
    return device;
}

static ddp_loader_config make_config(counted *data, ddp_device *device)
{
    return (ddp_loader_config){
        .dataset = &data->base,
        .device = device,
        .sampler = {.count = data->base.count, .seed = 5, .shuffle = true, .global_batch = 12},
        .rank = 1,
        .world = 2,
        .micro_batch = 3,
        .accumulation = 2,
        .first_step = 1,
        .steps = 20,
        .prefetch = 2,
        .threads = 1,
    };
}

static void check_batch(const ddp_loader_config *config, const ddp_loader_batch *batch)
{
    int64_t ids[16];
    ddp_sampler_ids(&config->sampler, batch->step, config->rank, config->world, batch->micro,
                    config->micro_batch, ids);
    cr_assert_eq(batch->count, config->micro_batch);
    for (int64_t i = 0; i < batch->count; i++) {
        cr_assert_eq(batch->ids[i], ids[i]);
        cr_assert_eq(((const float *)batch->input)[2 * i], (float)ids[i]);
        cr_assert_eq(((const float *)batch->input)[2 * i + 1], (float)(10 * ids[i]));
        cr_assert_eq(((const int32_t *)batch->target)[i], (int32_t)ids[i]);
    }
}

Test(loader, gives_the_samplers_batches_in_order, .timeout = 20)
{
    const int64_t prefetches[] = {0, 1, 2, 7, 100};
    ddp_device *device = open_cpu();
    for (size_t i = 0; i < sizeof prefetches / sizeof prefetches[0]; i++) {
        counted data = make_counted(50);
        ddp_loader_config config = make_config(&data, device);
        ddp_loader *loader;
        config.prefetch = prefetches[i];
        check_ok(ddp_loader_open(&config, &loader));
        for (int64_t number = 0; number < 40; number++) {
            ddp_loader_batch batch = {0};
            check_ok(ddp_loader_next(loader, &batch));
            cr_assert_eq(batch.step, 1 + number / 2);
            cr_assert_eq(batch.micro, number % 2);
            check_batch(&config, &batch);
            ddp_loader_release(loader);
        }
        cr_assert_eq(atomic_load(&data.reads), 40);
        ddp_loader_batch batch;
        check_error(ddp_loader_next(loader, &batch), DDP_ERR_INTERNAL, "last step, 20", NULL);
        ddp_loader_close(loader);
    }
    ddp_device_close(device);
}

Test(loader, starts_at_a_later_step, .timeout = 20)
{
    ddp_device *device = open_cpu();
    counted data = make_counted(50);
    ddp_loader_config config = make_config(&data, device);
    ddp_loader *loader;
    ddp_loader_batch batch;
    config.first_step = 17;
    check_ok(ddp_loader_open(&config, &loader));
    for (int64_t number = 0; number < 8; number++) {
        check_ok(ddp_loader_next(loader, &batch));
        cr_assert_eq(batch.step, 17 + number / 2);
        check_batch(&config, &batch);
        ddp_loader_release(loader);
    }
    check_error(ddp_loader_next(loader, &batch), DDP_ERR_INTERNAL, NULL);
    ddp_loader_close(loader);
    ddp_device_close(device);
}

/* The thread reads ahead, but never further than the buffers go. */
Test(loader, reads_ahead_and_no_further, .timeout = 20)
{
    ddp_device *device = open_cpu();
    counted data = make_counted(50);
    ddp_loader_config config = make_config(&data, device);
    ddp_loader *loader;
    ddp_loader_batch batch;
    check_ok(ddp_loader_open(&config, &loader));
    check_ok(ddp_loader_next(loader, &batch));
    for (int tries = 0; tries < 1000 && atomic_load(&data.reads) < 3; tries++)
        ddp_clock_sleep(0.005);
    ddp_clock_sleep(0.05);
    cr_assert_eq(atomic_load(&data.reads), 3); /* the one in use and two more */
    check_batch(&config, &batch);
    ddp_loader_release(loader);
    ddp_loader_close(loader);
    ddp_device_close(device);
}

Test(loader, tells_how_long_it_was_waited_for, .timeout = 20)
{
    ddp_device *device = open_cpu();
    counted data = make_counted(50);
    ddp_loader_config config = make_config(&data, device);
    ddp_loader *loader;
    ddp_loader_batch batch;
    data.read_s = 0.05;
    check_ok(ddp_loader_open(&config, &loader));
    for (int i = 0; i < 4; i++) {
        check_ok(ddp_loader_next(loader, &batch));
        ddp_loader_release(loader);
    }
    cr_assert_gt(ddp_loader_waited_s(loader), 0.1);
    cr_assert_lt(ddp_loader_waited_s(loader), 10.0);
    ddp_loader_close(loader);
    ddp_device_close(device);
}

Test(loader, failure_comes_behind_the_good_batches_and_stays, .timeout = 20)
{
    ddp_device *device = open_cpu();
    counted data = make_counted(50);
    ddp_loader_config config = make_config(&data, device);
    ddp_loader *loader;
    ddp_loader_batch batch;
    data.fail_at = 4;
    check_ok(ddp_loader_open(&config, &loader));
    for (int i = 0; i < 3; i++) {
        check_ok(ddp_loader_next(loader, &batch));
        check_batch(&config, &batch);
        ddp_loader_release(loader);
    }
    for (int i = 0; i < 2; i++)
        check_error(ddp_loader_next(loader, &batch), DDP_ERR_IO, "pages.bin ends at byte 4711",
                    "while reading the samples of step 2", NULL);
    cr_assert_eq(atomic_load(&data.reads), 4);
    ddp_loader_close(loader);
    ddp_device_close(device);
}

/* Several threads finish batches in any order; they come out in the sampler's. */
Test(loader, several_threads_give_the_same_batches, .timeout = 30)
{
    ddp_device *device = open_cpu();
    for (int threads = 0; threads <= DDP_LOADER_THREADS + 1; threads++)
        for (int64_t prefetch = 0; prefetch <= 6; prefetch += 3) {
            counted data = make_counted(50);
            ddp_loader_config config = make_config(&data, device);
            ddp_loader *loader;
            data.uneven = true;
            config.threads = threads;
            config.prefetch = prefetch;
            check_ok(ddp_loader_open(&config, &loader));
            for (int64_t number = 0; number < 40; number++) {
                ddp_loader_batch batch = {0};
                check_ok(ddp_loader_next(loader, &batch));
                cr_assert_eq(batch.step, 1 + number / 2);
                check_batch(&config, &batch);
                ddp_loader_release(loader);
            }
            cr_assert_eq(atomic_load(&data.reads), 40);
            ddp_loader_close(loader);
        }
    ddp_device_close(device);
}

/* Whichever thread meets it, and however many meet one: all batches before the failed one are given out. */
Test(loader, several_threads_fail_at_the_first_bad_batch, .timeout = 30)
{
    ddp_device *device = open_cpu();
    for (int bad = 0; bad < 40; bad += 3) {
        counted data = make_counted(50);
        ddp_loader_config config = make_config(&data, device);
        ddp_loader *loader;
        ddp_loader_batch batch;
        int64_t ids[3];
        ddp_sampler_ids(&config.sampler, 1 + bad / 2, config.rank, config.world, bad % 2, 3, ids);
        data.uneven = true;
        data.bad_id = ids[1] > 0 ? ids[1] : ids[2];
        config.threads = 3;
        config.prefetch = 5;
        check_ok(ddp_loader_open(&config, &loader));
        int64_t number = 0;
        ddp_error *error = NULL;
        for (; number < 40 && (error = ddp_loader_next(loader, &batch)) == NULL; number++) {
            check_batch(&config, &batch);
            ddp_loader_release(loader);
        }
        check_error(error, DDP_ERR_IO, "the bad sample", NULL);
        cr_assert_leq(number, bad);
        check_error(ddp_loader_next(loader, &batch), DDP_ERR_IO, "the bad sample", NULL);
        ddp_sampler_ids(&config.sampler, 1 + number / 2, config.rank, config.world, number % 2, 3, ids);
        cr_assert(ids[0] == data.bad_id || ids[1] == data.bad_id || ids[2] == data.bad_id,
                  "batch %d failed, and it is a good one", (int)number);
        ddp_loader_close(loader);
    }
    ddp_device_close(device);
}

/* At every moment of its life: not started to read, full and waiting, batch in use, failed, finished. */
Test(loader, can_be_closed_at_any_time, .timeout = 30)
{
    ddp_device *device = open_cpu();
    for (int taken = 0; taken <= 40; taken++) {
        counted data = make_counted(50);
        ddp_loader_config config = make_config(&data, device);
        ddp_loader *loader;
        ddp_loader_batch batch;
        data.fail_at = taken % 3 == 0 ? taken + 2 : 0;
        check_ok(ddp_loader_open(&config, &loader));
        for (int i = 0; i < taken; i++) {
            check_ok(ddp_loader_next(loader, &batch));
            if (i < taken - 1 || taken % 2 == 0)
                ddp_loader_release(loader);
        }
        double begun = ddp_clock_now();
        ddp_loader_close(loader);
        cr_assert_lt(ddp_clock_now() - begun, 2.0);
    }
    ddp_loader_close(NULL);
    ddp_device_close(device);
}

Test(loader, faults_hit_the_step_they_name, .timeout = 20)
{
    ddp_device *device = open_cpu();
    counted data = make_counted(50);
    ddp_loader_config config = make_config(&data, device);
    ddp_loader *loader;
    ddp_loader_batch batch;
    setenv("DDP_FAULT",
           "rank=1,step=3,do=loader_error;rank=1,step=4,do=short_read;rank=0,step=2,do=loader_error", 1);
    check_ok(ddp_fault_load(1));
    check_ok(ddp_loader_open(&config, &loader));
    for (int64_t step = 1; step <= 2; step++) {
        ddp_fault_set_step(step);
        for (int i = 0; i < 2; i++) {
            check_ok(ddp_loader_next(loader, &batch));
            ddp_loader_release(loader);
        }
    }
    ddp_fault_set_step(3);
    check_error(ddp_loader_next(loader, &batch), DDP_ERR_FAULT, "loader of rank 1 failed", NULL);
    ddp_fault_set_step(4);
    check_error(ddp_loader_next(loader, &batch), DDP_ERR_IO, "data of rank 1 ends too early", NULL);
    ddp_loader_close(loader);
    ddp_device_close(device);
    unsetenv("DDP_FAULT");
    check_ok(ddp_fault_load(1));
}

typedef struct rank_run {
    counted *data;
    ddp_device *device;
    int rank;
    int64_t ids[120];
} rank_run;

static void *run_rank(void *argument)
{
    rank_run *run = argument;
    ddp_loader_config config = make_config(run->data, run->device);
    ddp_loader *loader;
    ddp_loader_batch batch;
    config.rank = run->rank;
    check_ok(ddp_loader_open(&config, &loader));
    for (int64_t number = 0; number < 40; number++) {
        check_ok(ddp_loader_next(loader, &batch));
        memcpy(run->ids + number * 3, batch.ids, sizeof(int64_t) * 3);
        ddp_loader_release(loader);
    }
    ddp_loader_close(loader);
    return NULL;
}

/* C20: two ranks over one data set at the same time see every id of an epoch once. */
Test(loader, ranks_share_a_dataset_and_divide_its_epochs, .timeout = 20)
{
    ddp_device *device = open_cpu();
    counted data = make_counted(24);
    rank_run runs[2] = {{&data, device, 0, {0}}, {&data, device, 1, {0}}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, run_rank, &runs[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int epoch = 0; epoch < 10; epoch++) {
        int seen[24] = {0};
        for (int rank = 0; rank < 2; rank++)
            for (int i = 0; i < 12; i++)
                cr_assert_eq(seen[runs[rank].ids[epoch * 12 + i]]++, 0);
    }
    ddp_device_close(device);
}
