/* Inside the CUDA device: what its C files share. Not for anyone outside core/device/cuda. */
#ifndef DDP_CORE_DEVICE_CUDA_DEVICE_H
#define DDP_CORE_DEVICE_CUDA_DEVICE_H

#include <pthread.h>

#include <ddp/device.h>
#include <ddp/kernels.h>

#include "core/device/cuda/blas.h"
#include "core/device/cuda/kernels.h"

enum { DDP_CUDA_STREAMS = 32 }; /* that can be open at once */

typedef struct ddp_cuda_stream ddp_cuda_stream;

typedef struct ddp_cuda_device {
    ddp_device base;
    cudaStream_t setup; /* zeroes new memory */
    ddp_cuda_blas blas;
    ddp_cuda_fault *faults; /* one a stream, in host memory that the GPU writes to */
    pthread_mutex_t lock;   /* of streams, and of their errors and upstream */
    ddp_cuda_stream *streams[DDP_CUDA_STREAMS];
} ddp_cuda_device;

/* Whatever fails on a stream is found late, by whoever waits for it; so a stream remembers behind whose
 * events its work lies, and takes over their failures when it is asked for its own. */
struct ddp_cuda_stream {
    ddp_stream base;
    cudaStream_t handle;
    int place;         /* in device->streams and device->faults */
    uint32_t upstream; /* places of streams whose events it has waited for, itself included */
    ddp_error *error;  /* the sticky one */
    void *scratch, *workspace;
    size_t scratch_bytes;
};

extern const ddp_kernels ddp_kernels_cuda_f32;

/* "reserving memory on the GPU: out of memory (cudaErrorMemoryAllocation)"; NULL for cudaSuccess. */
ddp_error *ddp_cuda_error(cudaError_t code, const char *doing);
#define DDP_CUDA_TRY(call, doing) DDP_TRY(ddp_cuda_error((call), (doing)))

/* The current GPU of a thread is its own; each entry that may be called from any thread sets it. */
ddp_error *ddp_cuda_use(const ddp_device *device);

DDP_USE_RESULT ddp_error *ddp_cuda_alloc(ddp_device *device, size_t bytes, void **memory);
void ddp_cuda_free(ddp_device *device, void *memory);

/* Streams and events (stream.c); contracts in ddp/device.h. */
ddp_error *ddp_cuda_stream_open(ddp_device *device, ddp_stream_kind kind, ddp_stream **stream);
void ddp_cuda_stream_close(ddp_stream *stream);
ddp_error *ddp_cuda_stream_wait(ddp_stream *stream);
ddp_error *ddp_cuda_stream_poll(ddp_stream *stream);
ddp_error *ddp_cuda_stream_push(ddp_stream *stream, ddp_task task);
ddp_error *ddp_cuda_event_open(ddp_device *device, ddp_event **event);
void ddp_cuda_event_close(ddp_event *event);
void ddp_cuda_event_record(ddp_event *event, ddp_stream *stream);
void ddp_cuda_event_wait(ddp_stream *stream, ddp_event *event);
void ddp_cuda_copy(ddp_stream *stream, void *to, const void *from, size_t bytes);
void ddp_cuda_zero(ddp_stream *stream, void *memory, size_t bytes);

/* Makes `error` the stream's sticky one, or frees it if there is one already; NULL is fine. */
void ddp_cuda_stream_fail(ddp_stream *stream, ddp_error *error);

/* Before and after work of `doing` is enqueued: the handle to enqueue on; what became of it. */
cudaStream_t ddp_cuda_begin(ddp_stream *stream);
void ddp_cuda_end(ddp_stream *stream, const char *doing);

/* Working memory of the kernel that is enqueued next, uninitialised. It belongs to the stream and only grows,
 * so a training loop allocates in its first step and never again. NULL: the stream has failed. */
void *ddp_cuda_scratch(ddp_stream *stream, size_t bytes);

/* Where the fault of a kernel goes. */
ddp_cuda_fault *ddp_cuda_fault_of(ddp_stream *stream);

/* Linear layers (matmul.c); contracts in ddp/kernels.h. */
void ddp_cuda_linear_forward(ddp_stream *s, void *y, void *pre, const void *x, const void *w, const void *b,
                             ddp_activation act, int64_t R, int64_t K, int64_t C);
void ddp_cuda_linear_backward_input(ddp_stream *s, void *dx, const void *dy, const void *w, const void *saved,
                                    ddp_activation act, bool add, int64_t R, int64_t K, int64_t C);
void ddp_cuda_linear_backward_weight(ddp_stream *s, float *dw, float *db, const void *dy, const void *x,
                                     int64_t R, int64_t K, int64_t C);

#endif
