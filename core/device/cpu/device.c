/* The CPU as a device: memory, and the table. Streams are in stream.c, kernels beside it.
 *
 * Device memory is host memory. Large blocks are asked for in huge pages: matrix products walk megabytes in
 * strides, and 4 KiB pages would cost them TLB misses. */
#include "core/device/cpu/device.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/device/devices.h"
#include "core/memory.h"
#include "core/text.h"

enum { ALIGN = 256, HUGE_PAGE = 2 << 20 };

ddp_error *ddp_cpu_alloc(ddp_device *device, size_t bytes, void **memory)
{
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGN;
    size_t rounded = bytes <= SIZE_MAX - align ? (bytes + align - 1) / align * align : SIZE_MAX;
    void *got = rounded < SIZE_MAX ? aligned_alloc(align, rounded ? rounded : align) : NULL;
    if (got == NULL) {
        char asked[32], there[32];
        return ddp_error_make(
            DDP_ERR_MEMORY, "out of memory: %s were asked for, %s are available on this host",
            ddp_text_from_bytes((double)bytes, asked, sizeof asked),
            ddp_text_from_bytes((double)ddp_memory_info("MemAvailable"), there, sizeof there));
    }
    if (align == HUGE_PAGE)
        (void)madvise(got, rounded, MADV_HUGEPAGE); /* only a hint: kernels without it refuse */
    memset(got, 0, rounded ? rounded : align);
    *memory = got;
    return NULL;
}

void ddp_cpu_free(ddp_device *device, void *memory)
{
    free(memory);
}

/* "Intel(R) Xeon(R) Processor @ 2.10GHz" -> "Intel Xeon Processor". */
static void read_model_name(char *name, size_t size)
{
    snprintf(name, size, "unknown processor");
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        size_t length = 0;
        for (const char *c = colon + 2; *c != '\0' && *c != '\n' && *c != '@' && length + 1 < size; c++) {
            if (strncmp(c, "(R)", 3) == 0)
                c += 2;
            else if (strncmp(c, "(TM)", 4) == 0)
                c += 3;
            else
                name[length++] = *c;
        }
        while (length > 0 && name[length - 1] == ' ')
            length--;
        name[length] = '\0';
        break;
    }
    if (file != NULL)
        fclose(file);
}

static void describe(ddp_device *device)
{
    char name[72];
    cpu_set_t cores;
    int count = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    read_model_name(name, sizeof name);
    snprintf(device->description, sizeof device->description, "%d core%s of %s", count, count == 1 ? "" : "s",
             name);
}

static ddp_error *open_device(const ddp_device_config *config, ddp_device **device)
{
    if (config->compute != DDP_F32)
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "the cpu computes in fp32, not in %s",
                                             ddp_dtype_name(config->compute)),
                              "train.precision: fp32, or parallel.device: cuda");
    if (config->threads < 1)
        return ddp_error_make(DDP_ERR_INTERNAL, "a cpu device with %d threads", config->threads);
    ddp_blas blas;
    DDP_TRY(ddp_blas_open(config->threads, &blas));
    ddp_cpu_device *made = NULL;
    ddp_error *error = DDP_NEW(&made);
    if (error != NULL) {
        ddp_blas_close(&blas);
        return error;
    }
    made->blas = blas;
    made->base.ops = &ddp_device_cpu_ops;
    made->base.kernels = &ddp_kernels_cpu_f32;
    made->base.config = *config;
    describe(&made->base);
    *device = &made->base;
    return NULL;
}

static void close_device(ddp_device *device)
{
    ddp_blas_close(&((ddp_cpu_device *)device)->blas);
    free(device);
}

const ddp_device_ops ddp_device_cpu_ops = {
    .name = "cpu",
    .host_memory = true,
    .open = open_device,
    .close = close_device,
    .alloc = ddp_cpu_alloc,
    .free = ddp_cpu_free,
    .alloc_host = ddp_cpu_alloc,
    .free_host = ddp_cpu_free,
    .stream_open = ddp_cpu_stream_open,
    .stream_close = ddp_cpu_stream_close,
    .stream_wait = ddp_cpu_stream_wait,
    .stream_poll = ddp_cpu_stream_poll,
    .stream_push = ddp_cpu_stream_push,
    .event_open = ddp_cpu_event_open,
    .event_close = ddp_cpu_event_close,
    .event_record = ddp_cpu_event_record,
    .event_wait = ddp_cpu_event_wait,
    .copy = ddp_cpu_copy,
    .zero = ddp_cpu_zero,
};
