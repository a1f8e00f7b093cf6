/* A job made concrete, without any device: model parameters described, data files opened and checked, batch
 * arithmetic done, device and ranks chosen. The launcher does this before it starts anything (so that every
 * mistake is found then), and each rank does it again for its own work. */
#ifndef DDP_RUNTIME_SETUP_H
#define DDP_RUNTIME_SETUP_H

#include <ddp/device.h>
#include <ddp/job.h>

#include "core/nvml.h"
#include "runtime/data/sampler.h"

typedef struct ddp_setup {
    const ddp_job *job; /* borrowed */
    const ddp_device_ops *device;
    int gpus; /* of this host that may be used; 0 where the device is the cpu */
    ddp_gpu gpu[DDP_MAX_GPUS];
    char no_gpu[160]; /* parallel.device auto took the cpu in a build with cuda: why; otherwise "" */
    int world;
    ddp_sample sample;
    ddp_params params;               /* sealed */
    ddp_dataset *train, *validation; /* validation NULL when none */
    int64_t global_batch, micro_batch, accumulation, eval_batch;
    int64_t tile;        /* samples the device works on at once; see Note [Why batches are cut into tiles] */
    ddp_sampler sampler; /* the order of the training set */
    int64_t steps, steps_per_epoch; /* of the whole run */
    int64_t dropped; /* samples of an epoch's uneven tail that wait for another epoch's order */
} ddp_setup;

/* `cores`: physical cores of this host that may be used, `hosts`: how many hosts; with parallel.ranks auto
 * the world is the largest number of ranks up to cores * hosts that divides the batch. `world` > 0: it is
 * already decided (a rank of a started job).
 * Errors, all that can be found at once: INPUT (data missing, malformed, empty, or of another shape than the
 * model takes; batch arithmetic with the nearest valid choices; more ranks than cores or GPUs without
 * launch.oversubscribe; a device or setting this build or device does not have), MACHINE (cuda asked for
 * and not there). */
DDP_USE_RESULT ddp_error *ddp_setup_make(const ddp_job *job, int world, int cores, int hosts,
                                         ddp_setup *setup);
void ddp_setup_free(ddp_setup *setup);

/* Device and host memory of one rank, in bytes. */
typedef struct ddp_setup_bytes {
    int64_t weights, gradients, optimizer, activations, data;
    int64_t checkpoint; /* the rank's share of the state, copied while it is saved; 0 without checkpoints */
    int64_t total;
} ddp_setup_bytes;
ddp_setup_bytes ddp_setup_count_bytes(const ddp_setup *setup);

#endif
