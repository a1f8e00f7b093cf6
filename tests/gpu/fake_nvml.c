/* A libnvidia-ml.so.1 that tells of GPUs which are not there, for what the launcher makes of it: FAKE_GPUS of
 * them (2), a driver for CUDA FAKE_CUDA (13000), and an nvmlInit that gives FAKE_ERROR (0). Like the real one
 * it leaves a thread behind. Not a test of computing: nothing can be opened on them. */
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

typedef struct memory {
    unsigned long long total, unused, used;
} memory;

typedef struct pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, ids, subsystem;
    char bus_id[32];
} pci;

PUBLIC int nvmlInit_v2(void);
PUBLIC int nvmlShutdown(void);
PUBLIC int nvmlSystemGetDriverVersion(char *text, unsigned length);
PUBLIC int nvmlSystemGetCudaDriverVersion(int *version);
PUBLIC int nvmlDeviceGetCount_v2(unsigned *count);
PUBLIC int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu);
PUBLIC int nvmlDeviceGetName(void *gpu, char *text, unsigned length);
PUBLIC int nvmlDeviceGetUUID(void *gpu, char *text, unsigned length);
PUBLIC int nvmlDeviceGetPciInfo_v3(void *gpu, pci *pci);
PUBLIC int nvmlDeviceGetMemoryInfo(void *gpu, memory *memory);

static int setting(const char *name, int fallback)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : fallback;
}

static void *sleep_on(void *arg)
{
    while (pause() != 0)
        continue;
    return NULL;
}

/* The real one's thread would take signals that the launcher waits for, unless they are blocked here:
 * refused. */
int nvmlInit_v2(void)
{
    pthread_t thread;
    sigset_t now;
    if (pthread_sigmask(SIG_SETMASK, NULL, &now) != 0 || !sigismember(&now, SIGCHLD) ||
        !sigismember(&now, SIGTERM))
        return 999;
    if (pthread_create(&thread, NULL, sleep_on, NULL) == 0)
        pthread_detach(thread);
    return setting("FAKE_ERROR", 0);
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlSystemGetDriverVersion(char *text, unsigned length)
{
    snprintf(text, length, "580.1");
    return 0;
}

int nvmlSystemGetCudaDriverVersion(int *version)
{
    *version = setting("FAKE_CUDA", 13000);
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = (unsigned)setting("FAKE_GPUS", 2);
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu)
{
    *gpu = (void *)(uintptr_t)(index + 1);
    return 0;
}

int nvmlDeviceGetName(void *gpu, char *text, unsigned length)
{
    snprintf(text, length, "NVIDIA Pretence");
    return 0;
}

int nvmlDeviceGetUUID(void *gpu, char *text, unsigned length)
{
    snprintf(text, length, "GPU-0000000%d", (int)(uintptr_t)gpu);
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *gpu, pci *pci)
{
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:0%d:00.0", (int)(uintptr_t)gpu);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *gpu, memory *memory)
{
    memory->total = 80ull << 30;
    memory->unused = 79ull << 30;
    return 0;
}
