/* Streams and events of CUDA: its own, with sticky errors on top. What a kernel found wrong with its input
 * comes back through a record in host memory; what CUDA itself reports comes back from whatever call is next.
 */
#include <stdlib.h>
#include <string.h>

#include "core/device/cuda/device.h"
#include "core/memory.h"

typedef struct cuda_event {
    ddp_event base;
    cudaEvent_t handle;
    uint32_t upstream; /* of the stream when it was recorded */
} cuda_event;

static ddp_cuda_device *device_of(const ddp_stream *stream)
{
    return (ddp_cuda_device *)stream->device;
}

static void fail_locked(ddp_cuda_stream *stream, ddp_error *error)
{
    if (stream->error == NULL)
        stream->error = error;
    else
        ddp_error_free(error);
}

void ddp_cuda_stream_fail(ddp_stream *stream, ddp_error *error)
{
    ddp_cuda_device *device = device_of(stream);
    pthread_mutex_lock(&device->lock);
    fail_locked((ddp_cuda_stream *)stream, error);
    pthread_mutex_unlock(&device->lock);
}

static ddp_error *describe_fault(const ddp_cuda_fault *fault)
{
    if (fault->kind == DDP_CUDA_BAD_TARGET)
        return ddp_error_make(DDP_ERR_INPUT,
                              "target %d (row %lld of the batch) is no class: 0 to %lld, or -1 "
                              "for none, were expected",
                              fault->id, (long long)fault->row, (long long)fault->limit - 1);
    return ddp_error_make(
        DDP_ERR_INPUT, "token id %d (sample %lld, token %lld of the batch) is outside the vocabulary of %lld",
        fault->id, (long long)(fault->row / fault->tokens), (long long)(fault->row % fault->tokens),
        (long long)fault->limit);
}

/* A copy of the sticky error, after what kernels have reported by now was looked at: the stream's own and
 * that of the streams before it. */
static ddp_error *sticky(ddp_cuda_stream *stream)
{
    ddp_cuda_device *device = device_of(&stream->base);
    pthread_mutex_lock(&device->lock);
    for (int i = 0; i < DDP_CUDA_STREAMS; i++) {
        ddp_cuda_stream *before = device->streams[i];
        if (before == NULL || (stream->upstream >> i & 1) == 0)
            continue;
        const volatile int32_t *kind = &device->faults[i].kind;
        if (before->error == NULL && *kind != DDP_CUDA_NO_FAULT)
            before->error = describe_fault(&device->faults[i]);
        if (before != stream && before->error != NULL && stream->error == NULL)
            stream->error = ddp_error_copy(before->error);
    }
    ddp_error *error = ddp_error_copy(stream->error);
    pthread_mutex_unlock(&device->lock);
    return error;
}

/* Finds a place, and takes the bits of whoever had it from the others. */
static ddp_error *take_place(ddp_cuda_device *device, ddp_cuda_stream *stream)
{
    int place = 0;
    pthread_mutex_lock(&device->lock);
    while (place < DDP_CUDA_STREAMS && device->streams[place] != NULL)
        place++;
    if (place < DDP_CUDA_STREAMS) {
        for (int i = 0; i < DDP_CUDA_STREAMS; i++)
            if (device->streams[i] != NULL)
                device->streams[i]->upstream &= ~(1u << place);
        device->streams[place] = stream;
        device->faults[place] = (ddp_cuda_fault){0};
        stream->place = place;
        stream->upstream = 1u << place;
    }
    pthread_mutex_unlock(&device->lock);
    if (place < DDP_CUDA_STREAMS)
        return NULL;
    return ddp_error_make(DDP_ERR_INTERNAL, "more than %d streams on one GPU", DDP_CUDA_STREAMS);
}

/* The comm stream goes first wherever both have work: every rank waits for it. */
static ddp_error *open_handle(ddp_cuda_stream *stream)
{
    int least, greatest;
    DDP_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for stream priorities");
    int priority = stream->base.kind == DDP_STREAM_COMM ? greatest : least;
    return ddp_cuda_error(cudaStreamCreateWithPriority(&stream->handle, cudaStreamNonBlocking, priority),
                          "opening a stream on the GPU");
}

ddp_error *ddp_cuda_stream_open(ddp_device *device, ddp_stream_kind kind, ddp_stream **stream)
{
    ddp_cuda_stream *made = NULL;
    DDP_TRY(ddp_cuda_use(device));
    DDP_TRY(DDP_NEW(&made));
    made->base = (ddp_stream){.device = device, .kind = kind};
    ddp_error *error = open_handle(made);
    if (error == NULL) {
        error = take_place((ddp_cuda_device *)device, made);
        if (error != NULL)
            cudaStreamDestroy(made->handle);
    }
    if (error != NULL) {
        free(made);
        return error;
    }
    *stream = &made->base;
    return NULL;
}

void ddp_cuda_stream_close(ddp_stream *base)
{
    ddp_cuda_stream *stream = (ddp_cuda_stream *)base;
    ddp_cuda_device *device = device_of(base);
    ddp_error_free(ddp_cuda_use(base->device));
    if (stream->error == NULL)
        (void)cudaStreamSynchronize(stream->handle);
    pthread_mutex_lock(&device->lock);
    device->streams[stream->place] = NULL;
    pthread_mutex_unlock(&device->lock);
    (void)cudaStreamDestroy(stream->handle);
    ddp_device_free(base->device, stream->scratch);
    ddp_device_free(base->device, stream->workspace);
    ddp_error_free(stream->error);
    free(stream);
}

ddp_error *ddp_cuda_stream_wait(ddp_stream *base)
{
    ddp_cuda_stream *stream = (ddp_cuda_stream *)base;
    ddp_cuda_stream_fail(base, ddp_cuda_use(base->device));
    ddp_cuda_stream_fail(base, ddp_cuda_error(cudaStreamSynchronize(stream->handle), "work on the GPU"));
    return sticky(stream);
}

ddp_error *ddp_cuda_stream_poll(ddp_stream *base)
{
    return sticky((ddp_cuda_stream *)base);
}

ddp_error *ddp_cuda_stream_push(ddp_stream *base, ddp_task task)
{
    if (task.drop != NULL)
        task.drop(task.arg);
    return ddp_error_make(DDP_ERR_INTERNAL, "a task of the host on a stream of the GPU");
}

cudaStream_t ddp_cuda_begin(ddp_stream *stream)
{
    ddp_cuda_stream_fail(stream, ddp_cuda_use(stream->device));
    return ((ddp_cuda_stream *)stream)->handle;
}

void ddp_cuda_end(ddp_stream *stream, const char *doing)
{
    ddp_cuda_stream_fail(stream, ddp_cuda_error(cudaGetLastError(), doing));
}

void ddp_cuda_copy(ddp_stream *stream, void *to, const void *from, size_t bytes)
{
    (void)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, ddp_cuda_begin(stream));
    ddp_cuda_end(stream, "a copy");
}

void ddp_cuda_zero(ddp_stream *stream, void *memory, size_t bytes)
{
    (void)cudaMemsetAsync(memory, 0, bytes, ddp_cuda_begin(stream));
    ddp_cuda_end(stream, "zeroing memory");
}

ddp_error *ddp_cuda_event_open(ddp_device *device, ddp_event **event)
{
    cuda_event *made = NULL;
    DDP_TRY(ddp_cuda_use(device));
    DDP_TRY(DDP_NEW(&made));
    made->base.device = device;
    ddp_error *error = ddp_cuda_error(cudaEventCreateWithFlags(&made->handle, cudaEventDisableTiming),
                                      "opening an event on the GPU");
    if (error != NULL) {
        free(made);
        return error;
    }
    *event = &made->base;
    return NULL;
}

void ddp_cuda_event_close(ddp_event *event)
{
    (void)cudaEventDestroy(((cuda_event *)event)->handle);
    free(event);
}

void ddp_cuda_event_record(ddp_event *base, ddp_stream *stream)
{
    cuda_event *event = (cuda_event *)base;
    (void)cudaEventRecord(event->handle, ddp_cuda_begin(stream));
    event->upstream = ((ddp_cuda_stream *)stream)->upstream;
    ddp_cuda_end(stream, "recording an event");
}

void ddp_cuda_event_wait(ddp_stream *stream, ddp_event *base)
{
    cuda_event *event = (cuda_event *)base;
    ddp_cuda_device *device = device_of(stream);
    (void)cudaStreamWaitEvent(ddp_cuda_begin(stream), event->handle, 0);
    pthread_mutex_lock(&device->lock);
    ((ddp_cuda_stream *)stream)->upstream |= event->upstream;
    pthread_mutex_unlock(&device->lock);
    ddp_cuda_end(stream, "waiting for an event");
}

/* Older work on the stream may still use the old memory; cudaFree waits for it. */
void *ddp_cuda_scratch(ddp_stream *base, size_t bytes)
{
    ddp_cuda_stream *stream = (ddp_cuda_stream *)base;
    if (bytes <= stream->scratch_bytes)
        return stream->scratch;
    ddp_device_free(base->device, stream->scratch);
    stream->scratch = NULL;
    stream->scratch_bytes = 0;
    ddp_error *error = ddp_cuda_alloc(base->device, bytes, &stream->scratch);
    if (error != NULL) {
        ddp_cuda_stream_fail(base, error);
        return NULL;
    }
    stream->scratch_bytes = bytes;
    return stream->scratch;
}

ddp_cuda_fault *ddp_cuda_fault_of(ddp_stream *stream)
{
    return &device_of(stream)->faults[((ddp_cuda_stream *)stream)->place];
}
