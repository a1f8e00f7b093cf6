/* What this build has. The only file that asks which packages were found. */
#include "runtime/builtins.h"

#include <ddp/ddp.h>
#include <stddef.h>
#include <string.h>

#include "collectives/comms.h"
#include "core/device/devices.h"
#include "models/models.h"
#include "runtime/data/datasets.h"
#include "runtime/optim/optims.h"
#include "runtime/sink/sinks.h"

#define MAX_ADDED 32

static const ddp_device_ops *const devices[] = {
    &ddp_device_cpu_ops,
#if DDP_WITH_CUDA
    &ddp_device_cuda_ops,
#endif
    NULL,
};

static const ddp_comm_ops *const comms[] = {
    &ddp_comm_self_ops,
    &ddp_comm_local_ops,
    &ddp_comm_shm_ops,
#if DDP_WITH_MPI
    &ddp_comm_mpi_ops,
#endif
    NULL,
};

static const ddp_model_ops *const own_models[] = {
    &ddp_model_linear_ops,
    &ddp_model_mlp_ops,
    &ddp_model_gpt_ops,
};
#define OWN_MODELS (sizeof own_models / sizeof own_models[0])

static const ddp_dataset_ops *const datasets[] = {
    &ddp_dataset_idx_ops,    &ddp_dataset_npy_ops,       &ddp_dataset_text_ops,
    &ddp_dataset_tokens_ops, &ddp_dataset_synthetic_ops, NULL,
};

static const ddp_optim_ops *const optims[] = {&ddp_optim_adamw_ops, &ddp_optim_sgd_ops, NULL};

static const ddp_sink_ops *const sinks[] = {&ddp_sink_console_ops, &ddp_sink_jsonl_ops, NULL};

/* Models of the user's own main, in front of ours; filled before ddp_main, by one thread. */
static const ddp_model_ops *models[MAX_ADDED + OWN_MODELS + 1];
static size_t added;

void ddp_model_add(const ddp_model_ops *ops)
{
    ddp_assert(added < MAX_ADDED);
    models[added++] = ops;
}

static bool is_replaced(const ddp_model_ops *ops)
{
    for (size_t i = 0; i < added; i++)
        if (strcmp(models[i]->name, ops->name) == 0)
            return true;
    return false;
}

const ddp_model_ops *const *ddp_builtin_models(void)
{
    size_t count = added;
    for (size_t i = 0; i < OWN_MODELS; i++)
        if (!is_replaced(own_models[i]))
            models[count++] = own_models[i];
    models[count] = NULL;
    return models;
}

const ddp_device_ops *const *ddp_builtin_devices(void)
{
    return devices;
}

const ddp_comm_ops *const *ddp_builtin_comms(void)
{
    return comms;
}

const ddp_dataset_ops *const *ddp_builtin_datasets(void)
{
    return datasets;
}

const ddp_optim_ops *const *ddp_builtin_optims(void)
{
    return optims;
}

const ddp_sink_ops *const *ddp_builtin_sinks(void)
{
    return sinks;
}
