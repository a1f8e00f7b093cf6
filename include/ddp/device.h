/* A device: its memory, its streams (order of work), its events, and its kernels.
 *
 * Streams and events have CUDA's meaning on every device. On `cpu`:
 *   - the compute and copy streams run work at once, on the calling thread;
 *   - the comm stream is a first-in-first-out queue of tasks. Either a thread of its own drives it
 *     (`comm_thread`, worth it where the rank has a core to spare) or whoever calls ddp_stream_poll or
 *     waits for it does. Same queue, same tasks, same results; only who drives it differs.
 *
 * Errors of enqueued work are sticky on the stream: kernels return nothing, the first failure is kept and
 * every ddp_stream_wait and ddp_stream_poll from then on gives out a copy of it. (So a model reads like its
 * formula.) A comm stream that failed drops what is queued and refuses what is pushed. A stream that waits
 * for an event of a failed stream fails too, with the same error.
 *
 * Threads: one thread enqueues on a stream; different streams may be used by different threads. */
#ifndef DDP_DEVICE_H
#define DDP_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ddp/error.h>
#include <ddp/tensor.h>

typedef struct ddp_device ddp_device;
typedef struct ddp_stream ddp_stream;
typedef struct ddp_event ddp_event;
struct ddp_kernels;

typedef enum ddp_stream_kind { DDP_STREAM_COMPUTE, DDP_STREAM_COMM, DDP_STREAM_COPY } ddp_stream_kind;

typedef struct ddp_device_config {
    int index;         /* GPU as the rank sees it; ignored on cpu */
    int threads;       /* cpu: threads of matrix products, at least 1 */
    bool comm_thread;  /* cpu: the comm stream has a thread of its own */
    ddp_dtype compute; /* type of weights and activations; cpu: DDP_F32 only (else DDP_ERR_INPUT) */
} ddp_device_config;

/* One queued unit of work of a CPU stream. `advance` does what it can without waiting and returns true
 * once done (or failed: then it sets *error). It is called again later while it returns false. Tasks finish
 * in the order they were pushed; only the first unfinished one is advanced. After it returned true it is not
 * called again, and `arg` is its own to free. A task that is never finished, because one before it failed
 * or the push itself did, is given to `drop` (may be NULL) instead; drop must not touch the stream. */
typedef struct ddp_task {
    bool (*advance)(void *arg, ddp_error **error);
    void *arg;
    void (*drop)(void *arg);
} ddp_task;

typedef struct ddp_device_ops {
    const char *name; /* "cpu", "cuda" */
    bool host_memory; /* device memory is host memory: what lies there needs no copy */
    ddp_error *(*open)(const ddp_device_config *config, ddp_device **device);
    void (*close)(ddp_device *device);

    /* Device memory, zeroed, aligned to 256 bytes; the error says what was asked and what is free. */
    ddp_error *(*alloc)(ddp_device *device, size_t bytes, void **memory);
    void (*free)(ddp_device *device, void *memory);
    /* Host memory that copies to and from the device at full speed (pinned). */
    ddp_error *(*alloc_host)(ddp_device *device, size_t bytes, void **memory);
    void (*free_host)(ddp_device *device, void *memory);

    ddp_error *(*stream_open)(ddp_device *device, ddp_stream_kind kind, ddp_stream **stream);
    void (*stream_close)(ddp_stream *stream); /* waits for what is queued unless it failed; its events are
                                               * not to be waited for any more */
    ddp_error *(*stream_wait)(ddp_stream *stream); /* the host waits until all queued work is done */
    ddp_error *(*stream_poll)(ddp_stream *stream); /* drives a CPU queue without waiting; elsewhere only
                                                    * gives out the sticky error */
    /* cpu only, elsewhere INTERNAL. Takes over the task also when it fails (a failed stream: the sticky
     * error; MEMORY). On a compute or copy stream the task is run to its end at once. */
    ddp_error *(*stream_push)(ddp_stream *stream, ddp_task task);

    ddp_error *(*event_open)(ddp_device *device, ddp_event **event);
    void (*event_close)(ddp_event *event);
    void (*event_record)(ddp_event *event, ddp_stream *stream); /* never recorded = has happened */
    void (*event_wait)(ddp_stream *stream, ddp_event *event);   /* `stream` goes on only after the event;
                                                                 * on a cpu compute stream the caller waits */

    /* Ordered on the stream. Either side may be host or device memory. */
    void (*copy)(ddp_stream *stream, void *to, const void *from, size_t bytes);
    void (*zero)(ddp_stream *stream, void *memory, size_t bytes);
} ddp_device_ops;

/* Base of every device (first member of the concrete one). */
struct ddp_device {
    const ddp_device_ops *ops;
    const struct ddp_kernels *kernels; /* of the compute type it was opened with */
    ddp_device_config config;
    char description[96]; /* "2 cores of AMD EPYC 7763", "NVIDIA H200, 139 GiB" */
};

/* Base of every stream and event. */
struct ddp_stream {
    ddp_device *device;
    ddp_stream_kind kind;
};
struct ddp_event {
    ddp_device *device;
};

/* The public wrappers: what callers use. */
DDP_USE_RESULT ddp_error *ddp_device_alloc(ddp_device *device, size_t bytes, void **memory);
void ddp_device_free(ddp_device *device, void *memory); /* NULL is fine, for all frees and closes */
DDP_USE_RESULT ddp_error *ddp_device_alloc_host(ddp_device *device, size_t bytes, void **memory);
void ddp_device_free_host(ddp_device *device, void *memory);
void ddp_device_close(ddp_device *device);
DDP_USE_RESULT ddp_error *ddp_stream_open(ddp_device *device, ddp_stream_kind kind, ddp_stream **stream);
void ddp_stream_close(ddp_stream *stream);
DDP_USE_RESULT ddp_error *ddp_stream_wait(ddp_stream *stream);
DDP_USE_RESULT ddp_error *ddp_stream_poll(ddp_stream *stream);
DDP_USE_RESULT ddp_error *ddp_stream_push(ddp_stream *stream, ddp_task task);
void ddp_stream_copy(ddp_stream *stream, void *to, const void *from, size_t bytes);
void ddp_stream_zero(ddp_stream *stream, void *memory, size_t bytes);
DDP_USE_RESULT ddp_error *ddp_event_open(ddp_device *device, ddp_event **event);
void ddp_event_close(ddp_event *event);
void ddp_event_record(ddp_event *event, ddp_stream *stream);
void ddp_event_wait(ddp_stream *stream, ddp_event *event);

#endif
