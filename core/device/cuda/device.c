/* A GPU as a device: finding out why there is none, memory, and the table. Streams are in stream.c, kernels
 * in kernels.c and the .cu files.
 *
 * The runtime is linked in statically and loads the driver itself, so a build with CUDA starts on machines
 * without it. Only plain allocations are made, and no setting of the card is changed. */
#include "core/device/cuda/device.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device/devices.h"
#include "core/memory.h"
#include "core/text.h"

static ddp_error_kind kind_of(cudaError_t code)
{
    switch (code) {
    case cudaErrorMemoryAllocation:
        return DDP_ERR_MEMORY;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
        return DDP_ERR_MACHINE;
    default:
        return DDP_ERR_INTERNAL;
    }
}

ddp_error *ddp_cuda_error(cudaError_t code, const char *doing)
{
    if (code == cudaSuccess)
        return NULL;
    return ddp_error_make(kind_of(code), "%s: %s (%s)", doing, cudaGetErrorString(code),
                          cudaGetErrorName(code));
}

ddp_error *ddp_cuda_use(const ddp_device *device)
{
    return ddp_cuda_error(cudaSetDevice(device->config.index), "choosing the GPU");
}

/* -- why there is no GPU -- */

static ddp_error *explain_driver(void)
{
    int driver = 0, runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        return ddp_error_help(
            ddp_error_make(DDP_ERR_MACHINE, "no GPU can be used: the NVIDIA driver is not installed here"),
            "install it, or start the container with --gpus all; parallel.device=cpu works without");
    return ddp_error_help(
        ddp_error_make(DDP_ERR_MACHINE,
                       "no GPU can be used: the NVIDIA driver supports CUDA %d.%d, this build needs %d.%d",
                       driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10),
        "install a newer driver, or build ddprun with an older CUDA");
}

static ddp_error *explain_absence(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible != NULL)
        return ddp_error_help(
            ddp_error_make(DDP_ERR_MACHINE, "no GPU can be used: CUDA_VISIBLE_DEVICES is \"%s\"", visible),
            "unset it, or name GPUs that this machine has");
    return ddp_error_help(
        ddp_error_make(DDP_ERR_MACHINE, "no GPU can be used: the NVIDIA driver finds none"),
        "a container needs --gpus all, a Slurm job --gpus; parallel.device=cpu works without");
}

static ddp_error *count_gpus(int *count)
{
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID",
           1); /* read at the first call: numbers as in plans, core/nvml.h */
    cudaError_t code = cudaGetDeviceCount(count);
    if (code == cudaErrorInsufficientDriver)
        return explain_driver();
    if (code == cudaErrorNoDevice || (code == cudaSuccess && *count == 0))
        return explain_absence();
    return ddp_cuda_error(code, "looking for GPUs");
}

/* The first call that makes the driver set up the GPU for this process. */
static ddp_error *take_gpu(int index)
{
    cudaError_t code = cudaSetDevice(index);
    if (code == cudaSuccess)
        code = cudaFree(NULL);
    if (code == cudaErrorDevicesUnavailable)
        return ddp_error_help(ddp_error_make(DDP_ERR_MACHINE, "GPU %d takes no more processes", index),
                              "it is in exclusive or prohibited compute mode, or its driver is being reset: "
                              "`nvidia-smi -q -d COMPUTE` shows which, `nvidia-smi` who uses it");
    return ddp_cuda_error(code, "taking the GPU");
}

static ddp_error *check_code(const struct cudaDeviceProp *gpu)
{
    cudaError_t code = ddp_cuda_probe();
    (void)cudaGetLastError();
    if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorInvalidDeviceFunction ||
        code == cudaErrorUnsupportedPtxVersion)
        return ddp_error_help(
            ddp_error_make(DDP_ERR_MACHINE,
                           "this build has machine code for architecture %s, not for %s (%d%d)",
                           DDP_CUDA_ARCHITECTURES, gpu->name, gpu->major, gpu->minor),
            "configure it with -DDDP_CUDA_ARCHITECTURES=%d%d", gpu->major, gpu->minor);
    return ddp_cuda_error(code, "looking for this build's machine code");
}

static ddp_error *find_gpu(ddp_device *device)
{
    int count, index = device->config.index;
    char bytes[32];
    struct cudaDeviceProp gpu;
    DDP_TRY(count_gpus(&count));
    if (index < 0 || index >= count)
        return ddp_error_make(DDP_ERR_MACHINE, "GPU %d was asked for, %d can be used here", index, count);
    DDP_TRY(take_gpu(index));
    DDP_CUDA_TRY(cudaGetDeviceProperties(&gpu, index), "asking for the GPU's properties");
    snprintf(device->description, sizeof device->description, "%.60s, %s", gpu.name,
             ddp_text_from_bytes((double)gpu.totalGlobalMem, bytes, sizeof bytes));
    return check_code(&gpu);
}

/* -- memory -- */

static ddp_error *explain_memory(size_t asked)
{
    size_t unused = 0, total = 0;
    char a[32], b[32], c[32];
    (void)cudaMemGetInfo(&unused, &total);
    return ddp_error_help(
        ddp_error_make(DDP_ERR_MEMORY, "out of memory on the GPU: %s were asked for, %s of %s are available",
                       ddp_text_from_bytes((double)asked, a, sizeof a),
                       ddp_text_from_bytes((double)unused, b, sizeof b),
                       ddp_text_from_bytes((double)total, c, sizeof c)),
        "a smaller train.micro_batch (more accumulation, same result), train.eval_batch or model.context "
        "needs "
        "less; `ddprun plan` shows the parts, `nvidia-smi` who else holds memory");
}

/* Zeroed on a stream of its own: the streams of others do not wait for the default one. */
ddp_error *ddp_cuda_alloc(ddp_device *base, size_t bytes, void **memory)
{
    ddp_cuda_device *device = (ddp_cuda_device *)base;
    void *got = NULL;
    DDP_TRY(ddp_cuda_use(base));
    cudaError_t code = cudaMalloc(&got, bytes > 0 ? bytes : 1);
    if (code == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); /* or the next kernel would be blamed */
        return explain_memory(bytes);
    }
    DDP_CUDA_TRY(code, "allocating GPU memory");
    code = cudaMemsetAsync(got, 0, bytes, device->setup);
    if (code == cudaSuccess)
        code = cudaStreamSynchronize(device->setup);
    if (code != cudaSuccess) {
        (void)cudaFree(got);
        return ddp_cuda_error(code, "zeroing GPU memory");
    }
    *memory = got;
    return NULL;
}

void ddp_cuda_free(ddp_device *device, void *memory)
{
    ddp_error_free(ddp_cuda_use(device));
    (void)cudaFree(memory);
    (void)cudaGetLastError(); /* of an earlier kernel: its stream has it already */
}

static ddp_error *alloc_host(ddp_device *device, size_t bytes, void **memory)
{
    char asked[32], there[32];
    void *got = NULL;
    DDP_TRY(ddp_cuda_use(device));
    cudaError_t code =
        cudaHostAlloc(&got, bytes > 0 ? bytes : 1, cudaHostAllocPortable | cudaHostAllocMapped);
    if (code == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return ddp_error_make(
            DDP_ERR_MEMORY,
            "out of memory: %s of pinned memory were asked for, %s are available on this host",
            ddp_text_from_bytes((double)bytes, asked, sizeof asked),
            ddp_text_from_bytes((double)ddp_memory_info("MemAvailable"), there, sizeof there));
    }
    DDP_CUDA_TRY(code, "allocating pinned memory");
    memset(got, 0, bytes);
    *memory = got;
    return NULL;
}

static void free_host(ddp_device *device, void *memory)
{
    (void)cudaFreeHost(memory);
    (void)cudaGetLastError();
}

/* -- opening and closing -- */

static void close_device(ddp_device *base)
{
    ddp_cuda_device *device = (ddp_cuda_device *)base;
    ddp_cuda_blas_close(&device->blas);
    if (device->setup != NULL)
        (void)cudaStreamDestroy(device->setup);
    if (device->faults != NULL)
        (void)cudaFreeHost(device->faults);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

static ddp_error *open_parts(ddp_cuda_device *device)
{
    DDP_TRY(find_gpu(&device->base));
    DDP_CUDA_TRY(cudaStreamCreateWithFlags(&device->setup, cudaStreamNonBlocking),
                 "opening a stream on the GPU");
    DDP_TRY(alloc_host(&device->base, DDP_CUDA_STREAMS * sizeof *device->faults, (void **)&device->faults));
    return ddp_cuda_blas_open(&device->blas);
}

static ddp_error *open_device(const ddp_device_config *config, ddp_device **device)
{
    ddp_cuda_device *made = NULL;
    if (config->compute != DDP_F32)
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "cuda computes in fp32 in this build, not in %s",
                                             ddp_dtype_name(config->compute)),
                              "train.precision: fp32");
    DDP_TRY(DDP_NEW(&made));
    pthread_mutex_init(&made->lock, NULL);
    made->base.ops = &ddp_device_cuda_ops;
    made->base.kernels = &ddp_kernels_cuda_f32;
    made->base.config = *config;
    sigset_t all, before; /* for the driver's threads: signals are the main thread's business */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    ddp_error *error = open_parts(made);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != NULL) {
        close_device(&made->base);
        return error;
    }
    *device = &made->base;
    return NULL;
}

const ddp_device_ops ddp_device_cuda_ops = {
    .name = "cuda",
    .host_memory = false,
    .open = open_device,
    .close = close_device,
    .alloc = ddp_cuda_alloc,
    .free = ddp_cuda_free,
    .alloc_host = alloc_host,
    .free_host = free_host,
    .stream_open = ddp_cuda_stream_open,
    .stream_close = ddp_cuda_stream_close,
    .stream_wait = ddp_cuda_stream_wait,
    .stream_poll = ddp_cuda_stream_poll,
    .stream_push = ddp_cuda_stream_push,
    .event_open = ddp_cuda_event_open,
    .event_close = ddp_cuda_event_close,
    .event_record = ddp_cuda_event_record,
    .event_wait = ddp_cuda_event_wait,
    .copy = ddp_cuda_copy,
    .zero = ddp_cuda_zero,
};
