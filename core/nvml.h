/* The GPUs of this host, as the driver's management library (NVML) tells them. It is loaded when asked for
 * and makes no CUDA context, so the launcher may count GPUs without taking memory on them. Not here:
 * computing.
 *
 * Which of them may be used, and in which order, CUDA_VISIBLE_DEVICES says: numbers or UUIDs (their first
 * letters suffice), up to the first entry that names no GPU. Numbers are in PCI bus order. */
#ifndef DDP_CORE_NVML_H
#define DDP_CORE_NVML_H

#include <stdint.h>

enum { DDP_MAX_GPUS = 64 };

typedef struct ddp_gpu {
    int index; /* among all of this machine, in PCI bus order */
    char name[96], uuid[96], bus_id[32];
    int64_t bytes, free_bytes; /* memory; 0 = not said */
} ddp_gpu;

typedef struct ddp_gpus {
    int count; /* that may be used, in the order in which a rank sees them */
    ddp_gpu at[DDP_MAX_GPUS];
    int present;      /* in this machine; 0 also where the driver is missing */
    char driver[80];  /* its version, "" = no driver */
    int cuda;         /* newest CUDA it supports: 13000 is 13.0; 0 = not said */
    char why[160];    /* count is 0: the reason, as the end of a sentence */
    const char *help; /* and what to do about it */
} ddp_gpus;

/* Never fails: where there is nothing, `why` says so. */
void ddp_gpus_read(ddp_gpus *gpus);

/* Of all `present` GPUs, which those of `visible` (the value of CUDA_VISIBLE_DEVICES, NULL = all) are: gives
 * their number, and their indices in `chosen` (room for `count`). A name twice counts as no GPU, as in CUDA.
 */
int ddp_gpus_choose(const char *visible, const ddp_gpu *all, int count, int *chosen);

#endif
