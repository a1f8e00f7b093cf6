/* The GPU as a device: memory, streams, events, sticky errors; what it says when it cannot. */
#include <ddp/kernels.h>
#include <stdlib.h>
#include <string.h>

#include "core/device/devices.h"
#include "support/test.h"

static ddp_device *open_device(void)
{
    ddp_device *device = NULL;
    ddp_device_config config = {.threads = 1, .compute = DDP_F32};
    check_ok(ddp_device_cuda_ops.open(&config, &device));
    return device;
}

static ddp_stream *open_stream(ddp_device *device, ddp_stream_kind kind)
{
    ddp_stream *stream = NULL;
    check_ok(ddp_stream_open(device, kind, &stream));
    return stream;
}

static void check_error(ddp_error *error, ddp_error_kind kind, const char *part)
{
    cr_assert_not_null(error);
    cr_assert_eq(ddp_error_get_kind(error), kind, "kind %d: %s", (int)ddp_error_get_kind(error),
                 ddp_error_message(error));
    cr_assert_not_null(strstr(ddp_error_message(error), part), "message: %s", ddp_error_message(error));
    ddp_error_free(error);
}

Test(device, memory_is_zeroed_and_aligned, .timeout = 60)
{
    const size_t sizes[] = {0, 1, 300, 4096, ((size_t)64 << 20) + 5};
    ddp_device *device = open_device();
    ddp_stream *stream = open_stream(device, DDP_STREAM_COPY);
    for (int round = 0; round < 2; round++) /* the second finds what the first left behind */
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            void *memory = NULL, *host = NULL;
            check_ok(ddp_device_alloc(device, sizes[i], &memory));
            check_ok(ddp_device_alloc_host(device, sizes[i], &host));
            cr_assert_eq((uintptr_t)memory % 256, 0);
            memset(host, 0xff, sizes[i]);
            ddp_stream_copy(stream, host, memory, sizes[i]);
            check_ok(ddp_stream_wait(stream));
            for (size_t n = 0; n < sizes[i]; n++)
                cr_assert_eq(((unsigned char *)host)[n], 0, "byte %zu of %zu", n, sizes[i]);
            memset(host, 0xff, sizes[i]);
            ddp_stream_copy(stream, memory, host, sizes[i]);
            check_ok(ddp_stream_wait(stream));
            ddp_device_free(device, memory);
            ddp_device_free_host(device, host);
        }
    ddp_stream_close(stream);
    ddp_device_close(device);
}

Test(device, too_much_memory_says_what_was_asked, .timeout = 60)
{
    void *memory = NULL;
    ddp_device *device = open_device();
    ddp_stream *stream = open_stream(device, DDP_STREAM_COMPUTE);
    check_error(ddp_device_alloc(device, (size_t)1 << 45, &memory), DDP_ERR_MEMORY,
                "32.0 TiB were asked for");
    check_error(ddp_device_alloc(device, (size_t)1 << 45, &memory), DDP_ERR_MEMORY, "are available");
    ddp_stream_zero(stream, NULL, 0);
    check_ok(ddp_stream_wait(stream)); /* and nothing else is blamed for it */
    ddp_stream_close(stream);
    ddp_device_close(device);
}

Test(device, refuses_what_it_cannot, .timeout = 60)
{
    ddp_device *device = NULL;
    ddp_device_config config = {.threads = 1, .compute = DDP_F32, .index = 1000};
    check_error(ddp_device_cuda_ops.open(&config, &device), DDP_ERR_MACHINE, "GPU 1000 was asked for");
    config = (ddp_device_config){.threads = 1, .compute = DDP_F16};
    check_error(ddp_device_cuda_ops.open(&config, &device), DDP_ERR_INPUT, "f16");
}

Test(device, no_visible_gpu, .timeout = 60)
{
    ddp_device *device = NULL;
    ddp_device_config config = {.threads = 1, .compute = DDP_F32};
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    check_error(ddp_device_cuda_ops.open(&config, &device), DDP_ERR_MACHINE,
                "CUDA_VISIBLE_DEVICES is \"-1\"");
}

/* Work of one stream is seen by another only behind its event: a long chain of copies, then an event. */
Test(streams, events_order_streams, .timeout = 60)
{
    enum { COUNT = 1 << 24, ROUNDS = 20 };
    ddp_device *device = open_device();
    ddp_stream *first = open_stream(device, DDP_STREAM_COMPUTE),
               *second = open_stream(device, DDP_STREAM_COMM);
    ddp_event *event = NULL;
    char *a = NULL, *b = NULL, *host = NULL;
    check_ok(ddp_event_open(device, &event));
    check_ok(ddp_device_alloc(device, COUNT, (void **)&a));
    check_ok(ddp_device_alloc(device, COUNT, (void **)&b));
    check_ok(ddp_device_alloc_host(device, COUNT, (void **)&host));
    ddp_event_wait(second, event); /* never recorded: has happened */
    for (int round = 1; round <= ROUNDS; round++) {
        memset(host, round, COUNT);
        ddp_stream_copy(first, a, host, COUNT);
        for (int i = 0; i < 10; i++)
            ddp_stream_copy(first, b, a, COUNT);
        ddp_event_record(event, first);
        ddp_event_wait(second, event);
        ddp_stream_copy(second, host, b, COUNT);
        check_ok(ddp_stream_wait(second));
        cr_assert(host[0] == round && host[COUNT - 1] == round && host[COUNT / 2] == round);
    }
    ddp_event_close(event);
    ddp_device_free(device, a);
    ddp_device_free(device, b);
    ddp_device_free_host(device, host);
    ddp_stream_close(second);
    ddp_stream_close(first);
    ddp_device_close(device);
}

/* A target that is no class fails the stream for good, and every stream that waits for it. */
Test(streams, failure_is_sticky_and_travels, .timeout = 60)
{
    const int32_t targets[2] = {1, 10};
    ddp_device *device = open_device();
    ddp_stream *compute = open_stream(device, DDP_STREAM_COMPUTE),
               *comm = open_stream(device, DDP_STREAM_COMM), *copy = open_stream(device, DDP_STREAM_COPY);
    ddp_event *event = NULL;
    void *scores = NULL, *total = NULL, *ids = NULL;
    check_ok(ddp_event_open(device, &event));
    check_ok(ddp_device_alloc(device, 20 * sizeof(float), &scores));
    check_ok(ddp_device_alloc(device, sizeof(ddp_loss), &total));
    check_ok(ddp_device_alloc(device, sizeof targets, &ids));
    ddp_stream_copy(compute, ids, targets, sizeof targets);
    device->kernels->cross_entropy(compute, total, scores, ids, 1, 2, 10);
    ddp_event_record(event, compute);
    ddp_event_wait(comm, event);
    for (int i = 0; i < 2; i++) {
        check_error(ddp_stream_wait(comm), DDP_ERR_INPUT, "target 10 (row 1 of the batch) is no class");
        check_error(ddp_stream_wait(compute), DDP_ERR_INPUT, "target 10 (row 1 of the batch) is no class");
        check_error(ddp_stream_poll(compute), DDP_ERR_INPUT, "0 to 9");
    }
    check_ok(ddp_stream_wait(copy));
    ddp_stream_close(compute);
    ddp_stream_close(comm);
    ddp_stream *fresh = open_stream(device, DDP_STREAM_COMPUTE); /* in the place of a failed one */
    check_ok(ddp_stream_wait(fresh));
    ddp_stream_close(fresh);
    ddp_stream_close(copy);
    ddp_event_close(event);
    ddp_device_free(device, scores);
    ddp_device_free(device, total);
    ddp_device_free(device, ids);
    ddp_device_close(device);
}

static bool never(void *arg, ddp_error **error)
{
    return true;
}

static void count_drop(void *arg)
{
    ++*(int *)arg;
}

Test(streams, take_no_tasks_of_the_host, .timeout = 60)
{
    int dropped = 0;
    ddp_device *device = open_device();
    ddp_stream *stream = open_stream(device, DDP_STREAM_COMM);
    check_error(ddp_stream_push(stream, (ddp_task){never, &dropped, count_drop}), DDP_ERR_INTERNAL, "task");
    cr_assert_eq(dropped, 1);
    ddp_stream_close(stream);
    ddp_device_close(device);
}

Test(device, heads_that_are_too_wide, .timeout = 60)
{
    enum { D = 257 };
    void *memory = NULL;
    ddp_device *device = open_device();
    ddp_stream *stream = open_stream(device, DDP_STREAM_COMPUTE);
    check_ok(ddp_device_alloc(device, 5 * D * sizeof(float), &memory));
    float *qkv = memory;
    device->kernels->attention_forward(stream, qkv + 3 * D, qkv + 4 * D, qkv, 1, 1, 1, D);
    check_error(ddp_stream_wait(stream), DDP_ERR_INPUT,
                "attention heads of 257 elements: on cuda at most 256");
    ddp_stream_close(stream);
    ddp_device_free(device, memory);
    ddp_device_close(device);
}
