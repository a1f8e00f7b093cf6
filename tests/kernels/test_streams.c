/* Streams and events of the CPU device: order, who drives, failure, and both ways of driving giving the same.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "core/clock.h"
#include "core/device/devices.h"
#include "support/test.h"

/* What tasks write down: their numbers, as they finish. */
typedef struct diary {
    int at[1024];
    int count, dropped;
} diary;

typedef struct work {
    diary *journal;
    int number;
    int turns; /* advances before it is done */
    bool fails;
    atomic_int *gate; /* not done before this is set */
} work;

static bool advance(void *arg, ddp_error **error)
{
    work *w = arg;
    if (w->turns-- > 0 || (w->gate != NULL && !atomic_load(w->gate)))
        return false;
    w->journal->at[w->journal->count++] = w->number;
    if (w->fails)
        *error = ddp_error_help(ddp_error_make(DDP_ERR_PEER, "rank 1 has left"), "look at its log");
    free(w);
    return true;
}

static void drop(void *arg)
{
    work *w = arg;
    w->journal->dropped++;
    free(w);
}

static ddp_task make_task(work w)
{
    work *kept = malloc(sizeof *kept);
    *kept = w;
    return (ddp_task){.advance = advance, .arg = kept, .drop = drop};
}

static ddp_device *open_device(bool comm_thread)
{
    ddp_device *device = NULL;
    ddp_device_config config = {.threads = 1, .comm_thread = comm_thread, .compute = DDP_F32};
    check_ok(ddp_device_cpu_ops.open(&config, &device));
    return device;
}

static ddp_stream *open_stream(ddp_device *device, ddp_stream_kind kind)
{
    ddp_stream *stream = NULL;
    check_ok(ddp_stream_open(device, kind, &stream));
    return stream;
}

static void check_sticky(ddp_error *error)
{
    cr_assert_not_null(error);
    cr_assert_eq(ddp_error_get_kind(error), DDP_ERR_PEER);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    ddp_error_print(error, "error", out);
    fclose(out);
    cr_assert_str_eq(text, "ddprun: error: rank 1 has left\n    help: look at its log\n");
    free(text);
    ddp_error_free(error);
}

static void check_order(bool threaded)
{
    enum { COUNT = 500 };
    ddp_device *device = open_device(threaded);
    ddp_stream *comm = open_stream(device, DDP_STREAM_COMM);
    diary journal = {0};
    for (int i = 0; i < COUNT; i++) {
        check_ok(ddp_stream_push(comm, make_task((work){.journal = &journal, .number = i, .turns = i % 7})));
        if (i % 5 == 0)
            check_ok(ddp_stream_poll(comm));
    }
    check_ok(ddp_stream_wait(comm));
    cr_assert_eq(journal.count, COUNT);
    for (int i = 0; i < COUNT; i++)
        cr_assert_eq(journal.at[i], i);
    ddp_stream_close(comm);
    ddp_device_close(device);
}

Test(streams, tasks_finish_in_order_polled, .timeout = 20)
{
    check_order(false);
}

Test(streams, tasks_finish_in_order_threaded, .timeout = 20)
{
    check_order(true);
}

static void check_events(bool threaded)
{
    ddp_device *device = open_device(threaded);
    ddp_stream *comm = open_stream(device, DDP_STREAM_COMM),
               *compute = open_stream(device, DDP_STREAM_COMPUTE);
    ddp_event *half = NULL, *all = NULL;
    diary journal = {0};
    atomic_int gate = 0;
    check_ok(ddp_event_open(device, &half));
    check_ok(ddp_event_open(device, &all));
    ddp_event_wait(compute, half); /* never recorded: has happened */
    for (int i = 0; i < 10; i++) {
        check_ok(ddp_stream_push(
            comm,
            make_task((work){.journal = &journal, .number = i, .turns = 20, .gate = i >= 5 ? &gate : NULL})));
        if (i == 4)
            ddp_event_record(half, comm);
    }
    ddp_event_record(all, comm);
    ddp_event_wait(compute, half);
    cr_assert_eq(journal.count, 5, "%d tasks", journal.count);
    atomic_store(&gate, 1);
    ddp_event_wait(compute, all);
    cr_assert_eq(journal.count, 10);
    ddp_event_record(half, compute); /* the comm stream waits for compute: at once */
    ddp_event_wait(comm, half);
    check_ok(ddp_stream_wait(comm));
    check_ok(ddp_stream_wait(compute));
    ddp_event_close(half);
    ddp_event_close(all);
    ddp_stream_close(comm);
    ddp_stream_close(compute);
    ddp_device_close(device);
}

Test(streams, events_polled, .timeout = 20)
{
    check_events(false);
}

Test(streams, events_threaded, .timeout = 20)
{
    check_events(true);
}

static void check_failure(bool threaded)
{
    ddp_device *device = open_device(threaded);
    ddp_stream *comm = open_stream(device, DDP_STREAM_COMM),
               *compute = open_stream(device, DDP_STREAM_COMPUTE);
    ddp_event *event = NULL;
    diary journal = {0};
    atomic_int gate = 0;
    check_ok(ddp_event_open(device, &event));
    for (int i = 0; i < 6; i++)
        check_ok(ddp_stream_push(
            comm, make_task((work){
                      .journal = &journal, .number = i, .fails = i == 2, .gate = i == 2 ? &gate : NULL})));
    ddp_event_record(event, comm);
    atomic_store(&gate, 1);
    check_sticky(ddp_stream_wait(comm));
    check_sticky(ddp_stream_wait(comm));
    check_sticky(ddp_stream_poll(comm));
    cr_assert_eq(journal.count, 3);
    cr_assert_eq(journal.dropped, 3);
    check_sticky(ddp_stream_push(comm, make_task((work){.journal = &journal})));
    cr_assert_eq(journal.dropped, 4);
    ddp_stream_zero(comm, &gate, sizeof gate);
    cr_assert_eq(atomic_load(&gate), 1, "a failed stream does nothing");
    check_ok(ddp_stream_wait(compute));
    ddp_event_wait(compute, event);
    check_sticky(ddp_stream_wait(compute));
    ddp_event_close(event);
    ddp_stream_close(comm);
    ddp_stream_close(compute);
    ddp_device_close(device);
}

Test(streams, failure_is_sticky_polled, .timeout = 20)
{
    check_failure(false);
}

Test(streams, failure_is_sticky_threaded, .timeout = 20)
{
    check_failure(true);
}

static void check_copies(ddp_stream_kind kind, bool threaded)
{
    ddp_device *device = open_device(threaded);
    ddp_stream *stream = open_stream(device, kind);
    int a[100], b[100], c[100];
    diary journal = {0};
    for (int i = 0; i < 100; i++)
        a[i] = i, b[i] = c[i] = -1;
    check_ok(ddp_stream_push(stream, make_task((work){.journal = &journal, .turns = 3})));
    ddp_stream_copy(stream, b, a, sizeof a);
    ddp_stream_copy(stream, c, b, sizeof a);
    ddp_stream_zero(stream, a, sizeof a);
    ddp_stream_zero(stream, NULL, 0);
    ddp_stream_copy(stream, NULL, a, 0);
    check_ok(ddp_stream_wait(stream));
    cr_assert_eq(journal.count, 1);
    for (int i = 0; i < 100; i++)
        cr_assert(a[i] == 0 && b[i] == i && c[i] == i);
    ddp_stream_close(stream);
    ddp_device_close(device);
}

Test(streams, copies_are_ordered, .timeout = 20)
{
    check_copies(DDP_STREAM_COMM, false);
    check_copies(DDP_STREAM_COMM, true);
    check_copies(DDP_STREAM_COMPUTE, false);
    check_copies(DDP_STREAM_COPY, false);
}

Test(streams, failure_of_inline_task_is_sticky, .timeout = 20)
{
    ddp_device *device = open_device(false);
    ddp_stream *compute = open_stream(device, DDP_STREAM_COMPUTE);
    diary journal = {0};
    check_ok(ddp_stream_push(compute, make_task((work){.journal = &journal, .turns = 5, .fails = true})));
    check_sticky(ddp_stream_wait(compute));
    check_sticky(ddp_stream_push(compute, make_task((work){.journal = &journal})));
    cr_assert(journal.count == 1 && journal.dropped == 1);
    ddp_stream_close(compute);
    ddp_device_close(device);
}

/* Two comm streams: the second goes on only after the first, whoever is waited for. */
static void check_two_queues(bool threaded)
{
    ddp_device *device = open_device(threaded);
    ddp_stream *first = open_stream(device, DDP_STREAM_COMM), *second = open_stream(device, DDP_STREAM_COMM);
    ddp_event *event = NULL;
    diary journal = {0};
    check_ok(ddp_event_open(device, &event));
    for (int i = 0; i < 4; i++)
        check_ok(ddp_stream_push(first, make_task((work){.journal = &journal, .number = i, .turns = 50})));
    ddp_event_record(event, first);
    ddp_event_wait(second, event);
    check_ok(ddp_stream_push(second, make_task((work){.journal = &journal, .number = 4})));
    check_ok(ddp_stream_wait(second));
    cr_assert_eq(journal.count, 5);
    for (int i = 0; i < 5; i++)
        cr_assert_eq(journal.at[i], i);
    ddp_event_close(event);
    ddp_stream_close(second);
    ddp_stream_close(first);
    ddp_device_close(device);
}

Test(streams, queue_waits_for_queue, .timeout = 20)
{
    check_two_queues(false);
    check_two_queues(true);
}

Test(streams, close_finishes_what_is_queued, .timeout = 20)
{
    for (int threaded = 0; threaded < 2; threaded++) {
        ddp_device *device = open_device(threaded);
        ddp_stream *comm = open_stream(device, DDP_STREAM_COMM);
        diary journal = {0};
        for (int i = 0; i < 3; i++)
            check_ok(
                ddp_stream_push(comm, make_task((work){.journal = &journal, .number = i, .turns = 100})));
        ddp_stream_close(comm);
        cr_assert_eq(journal.count, 3);
        ddp_device_close(device);
    }
    ddp_stream_close(NULL);
    ddp_event_close(NULL);
    ddp_device_close(NULL);
}

static void *open_gate(void *gate)
{
    ddp_clock_sleep(0.2);
    atomic_store((atomic_int *)gate, 1);
    return NULL;
}

/* A wait of 0.2 s must cost far less than 0.2 s of processor time: ranks share cores. */
Test(streams, waiting_does_not_burn_a_core, .timeout = 20)
{
    for (int threaded = 0; threaded < 2; threaded++) {
        ddp_device *device = open_device(threaded);
        ddp_stream *comm = open_stream(device, DDP_STREAM_COMM);
        diary journal = {0};
        atomic_int gate = 0;
        pthread_t thread;
        check_ok(ddp_stream_push(comm, make_task((work){.journal = &journal, .gate = &gate})));
        clock_t before = clock();
        cr_assert_eq(pthread_create(&thread, NULL, open_gate, &gate), 0);
        check_ok(ddp_stream_wait(comm));
        double used = (double)(clock() - before) / CLOCKS_PER_SEC;
        pthread_join(thread, NULL);
#ifndef __SANITIZE_THREAD__
        cr_assert_lt(used, 0.1, "%.3f s of processor time, thread %d", used, threaded);
#else
        (void)used;
#endif
        ddp_stream_close(comm);
        ddp_device_close(device);
    }
}
