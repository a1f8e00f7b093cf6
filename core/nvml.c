/* Reading NVML. Its few functions are declared here after NVIDIA's API reference, so that no header of it is
 * needed; the library comes with the driver. */
#include "core/nvml.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"

/* nvmlReturn_t: 0 is success. */
enum { NVML_SUCCESS = 0, NVML_ERROR_DRIVER_NOT_LOADED = 9, NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18 };

typedef struct nvml_memory {
    unsigned long long total, unused, used;
} nvml_memory;

typedef struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char bus_id[32];
} nvml_pci;

typedef struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *text, unsigned length);
    int (*cuda_version)(int *version);
    int (*count)(unsigned *count);
    int (*handle)(unsigned index, void **gpu);
    int (*name)(void *gpu, char *text, unsigned length);
    int (*uuid)(void *gpu, char *text, unsigned length);
    int (*pci)(void *gpu, nvml_pci *pci);
    int (*memory)(void *gpu, nvml_memory *memory);
} nvml;

static const struct {
    const char *name;
    size_t at;
} functions[] = {
    {"nvmlInit_v2", offsetof(nvml, init)},
    {"nvmlShutdown", offsetof(nvml, shutdown)},
    {"nvmlSystemGetDriverVersion", offsetof(nvml, driver_version)},
    {"nvmlSystemGetCudaDriverVersion", offsetof(nvml, cuda_version)},
    {"nvmlDeviceGetCount_v2", offsetof(nvml, count)},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(nvml, handle)},
    {"nvmlDeviceGetName", offsetof(nvml, name)},
    {"nvmlDeviceGetUUID", offsetof(nvml, uuid)},
    {"nvmlDeviceGetPciInfo_v3", offsetof(nvml, pci)},
    {"nvmlDeviceGetMemoryInfo", offsetof(nvml, memory)},
};

static bool refuse(ddp_gpus *gpus, const char *help, const char *why)
{
    snprintf(gpus->why, sizeof gpus->why, "%s", why);
    gpus->help = help;
    return false;
}

static bool load(nvml *n, ddp_gpus *gpus)
{
    static const char install[] = "install NVIDIA's driver, or start the container with --gpus all";
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (n->library == NULL)
        return refuse(gpus, install, "the NVIDIA driver is not installed here");
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(n->library, functions[i].name);
        if (function == NULL)
            return refuse(gpus, "install a newer driver",
                          "the NVIDIA driver is too old to be asked about its GPUs");
        memcpy((char *)n + functions[i].at, &function, sizeof function);
    }
    int code = n->init();
    if (code == NVML_SUCCESS)
        return true;
    n->shutdown = NULL;
    if (code == NVML_ERROR_DRIVER_NOT_LOADED)
        return refuse(gpus, "`modprobe nvidia`, or restart the machine", "the NVIDIA driver is not loaded");
    if (code == NVML_ERROR_LIB_RM_VERSION_MISMATCH)
        return refuse(gpus, "restart the machine",
                      "the NVIDIA driver was updated but the old one still runs");
    snprintf(gpus->why, sizeof gpus->why, "the NVIDIA driver does not answer (NVML error %d)", code);
    gpus->help = "`nvidia-smi` may say more";
    return false;
}

static void read_gpu(const nvml *n, unsigned index, ddp_gpu *gpu)
{
    void *handle = NULL;
    nvml_memory memory = {0};
    nvml_pci pci = {0};
    *gpu = (ddp_gpu){.index = (int)index, .name = "GPU"};
    if (n->handle(index, &handle) != NVML_SUCCESS)
        return;
    (void)n->name(handle, gpu->name, sizeof gpu->name);
    (void)n->uuid(handle, gpu->uuid, sizeof gpu->uuid);
    if (n->memory(handle, &memory) == NVML_SUCCESS) {
        gpu->bytes = (int64_t)memory.total;
        gpu->free_bytes = (int64_t)memory.unused;
    }
    if (n->pci(handle, &pci) == NVML_SUCCESS)
        snprintf(gpu->bus_id, sizeof gpu->bus_id, "%.31s", pci.bus_id);
}

/* The GPU that an entry of the list names, -1 = none. */
static int find(const char *entry, const ddp_gpu *all, int count)
{
    int64_t number;
    int found = -1;
    if (ddp_text_to_int(entry, &number))
        return number >= 0 && number < count ? (int)number : -1;
    for (int i = 0; i < count; i++)
        if (strncmp(entry, "GPU-", 4) == 0 && ddp_text_starts(all[i].uuid, entry)) {
            if (found >= 0)
                return -1; /* could be either */
            found = i;
        }
    return found;
}

int ddp_gpus_choose(const char *visible, const ddp_gpu *all, int count, int *chosen)
{
    int used = 0;
    if (visible == NULL) {
        for (; used < count; used++)
            chosen[used] = used;
        return used;
    }
    while (used < count) {
        char entry[96];
        visible += strspn(visible, " \t");
        size_t length = strcspn(visible, ", \t");
        snprintf(entry, sizeof entry, "%.*s", length < sizeof entry ? (int)length : 0, visible);
        int gpu = find(entry, all, count);
        if (gpu < 0)
            return used;
        for (int i = 0; i < used; i++)
            if (chosen[i] == gpu)
                return 0;
        chosen[used++] = gpu;
        visible += length;
        visible += strspn(visible, " \t");
        if (*visible++ != ',')
            return used;
    }
    return used;
}

static void read_all(const nvml *n, ddp_gpus *gpus)
{
    unsigned count = 0;
    int chosen[DDP_MAX_GPUS];
    ddp_gpu all[DDP_MAX_GPUS];
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    (void)n->driver_version(gpus->driver, sizeof gpus->driver);
    (void)n->cuda_version(&gpus->cuda);
    if (n->count(&count) != NVML_SUCCESS || count == 0) {
        refuse(gpus, "a container needs --gpus all, a Slurm job --gpus", "the NVIDIA driver finds no GPU");
        return;
    }
    if (gpus->cuda > 0 && gpus->cuda / 1000 < DDP_CUDA_MAJOR) {
        snprintf(gpus->why, sizeof gpus->why,
                 "the NVIDIA driver (%.40s) supports CUDA %d.%d, this build needs %d.0", gpus->driver,
                 gpus->cuda / 1000, gpus->cuda % 1000 / 10, DDP_CUDA_MAJOR);
        gpus->help = "install a newer driver, or build ddprun with an older CUDA";
        return;
    }
    gpus->present = count < DDP_MAX_GPUS ? (int)count : DDP_MAX_GPUS;
    for (int i = 0; i < gpus->present; i++)
        read_gpu(n, (unsigned)i, &all[i]);
    gpus->count = ddp_gpus_choose(visible, all, gpus->present, chosen);
    for (int i = 0; i < gpus->count; i++)
        gpus->at[i] = all[chosen[i]];
    if (gpus->count == 0) {
        snprintf(gpus->why, sizeof gpus->why,
                 "CUDA_VISIBLE_DEVICES=\"%.60s\" leaves none of the %d GPUs here", visible, gpus->present);
        gpus->help = "unset CUDA_VISIBLE_DEVICES, or name GPUs that `nvidia-smi -L` lists";
    }
}

/* The library starts a thread of its own, which stays (driver 580), and so must its code. It inherits the
 * signal mask of this moment: all signals are blocked, or it would take the SIGCHLD that the launcher waits
 * for. */
void ddp_gpus_read(ddp_gpus *gpus)
{
    nvml n = {0};
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    *gpus = (ddp_gpus){0};
    if (load(&n, gpus))
        read_all(&n, gpus);
    if (n.shutdown != NULL)
        n.shutdown();
    if (n.library != NULL)
        dlclose(n.library);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}
