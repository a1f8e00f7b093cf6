/* The public face of every device: arguments are checked here once, then the device's own table works. Also
 * the little that is known about element types. Not here: what any one device does (cpu/, cuda/). */
#include <ddp/device.h>
#include <ddp/tensor.h>

static const struct {
    size_t bytes;
    const char *name;
} dtypes[DDP_DTYPE_COUNT] = {
    [DDP_F32] = {4, "f32"}, [DDP_F64] = {8, "f64"}, [DDP_BF16] = {2, "bf16"}, [DDP_F16] = {2, "f16"},
    [DDP_I32] = {4, "i32"}, [DDP_I64] = {8, "i64"}, [DDP_U8] = {1, "u8"},
};

size_t ddp_dtype_bytes(ddp_dtype dtype)
{
    ddp_assert((unsigned)dtype < DDP_DTYPE_COUNT);
    return dtypes[dtype].bytes;
}

const char *ddp_dtype_name(ddp_dtype dtype)
{
    ddp_assert((unsigned)dtype < DDP_DTYPE_COUNT);
    return dtypes[dtype].name;
}

int64_t ddp_view_count(const ddp_view *view)
{
    int64_t count = 1;
    for (int d = 0; d < view->dims; d++)
        count *= view->shape[d];
    return count;
}

ddp_error *ddp_device_alloc(ddp_device *device, size_t bytes, void **memory)
{
    return device->ops->alloc(device, bytes, memory);
}

void ddp_device_free(ddp_device *device, void *memory)
{
    if (memory != NULL)
        device->ops->free(device, memory);
}

ddp_error *ddp_device_alloc_host(ddp_device *device, size_t bytes, void **memory)
{
    return device->ops->alloc_host(device, bytes, memory);
}

void ddp_device_free_host(ddp_device *device, void *memory)
{
    if (memory != NULL)
        device->ops->free_host(device, memory);
}

void ddp_device_close(ddp_device *device)
{
    if (device != NULL)
        device->ops->close(device);
}

ddp_error *ddp_stream_open(ddp_device *device, ddp_stream_kind kind, ddp_stream **stream)
{
    if ((unsigned)kind > DDP_STREAM_COPY)
        return ddp_error_make(DDP_ERR_INTERNAL, "no such kind of stream: %d", (int)kind);
    return device->ops->stream_open(device, kind, stream);
}

void ddp_stream_close(ddp_stream *stream)
{
    if (stream != NULL)
        stream->device->ops->stream_close(stream);
}

ddp_error *ddp_stream_wait(ddp_stream *stream)
{
    return stream->device->ops->stream_wait(stream);
}

ddp_error *ddp_stream_poll(ddp_stream *stream)
{
    return stream->device->ops->stream_poll(stream);
}

ddp_error *ddp_stream_push(ddp_stream *stream, ddp_task task)
{
    ddp_assert(task.advance != NULL);
    return stream->device->ops->stream_push(stream, task);
}

void ddp_stream_copy(ddp_stream *stream, void *to, const void *from, size_t bytes)
{
    if (bytes > 0 && to != from)
        stream->device->ops->copy(stream, to, from, bytes);
}

void ddp_stream_zero(ddp_stream *stream, void *memory, size_t bytes)
{
    if (bytes > 0)
        stream->device->ops->zero(stream, memory, bytes);
}

ddp_error *ddp_event_open(ddp_device *device, ddp_event **event)
{
    return device->ops->event_open(device, event);
}

void ddp_event_close(ddp_event *event)
{
    if (event != NULL)
        event->device->ops->event_close(event);
}

void ddp_event_record(ddp_event *event, ddp_stream *stream)
{
    ddp_assert(event->device == stream->device);
    event->device->ops->event_record(event, stream);
}

void ddp_event_wait(ddp_stream *stream, ddp_event *event)
{
    ddp_assert(event->device == stream->device);
    stream->device->ops->event_wait(stream, event);
}
