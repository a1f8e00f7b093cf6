/* Every device, communicator, model, optimizer, dataset and sink of this build. Lists end with NULL. */
#ifndef DDP_RUNTIME_BUILTINS_H
#define DDP_RUNTIME_BUILTINS_H

#include <ddp/comm.h>
#include <ddp/dataset.h>
#include <ddp/device.h>
#include <ddp/model.h>
#include <ddp/optim.h>
#include <ddp/sink.h>

const ddp_device_ops *const *ddp_builtin_devices(void);
const ddp_comm_ops *const *ddp_builtin_comms(void);
const ddp_model_ops *const *ddp_builtin_models(void); /* those of ddp_model_add first */
const ddp_dataset_ops *const *ddp_builtin_datasets(void);
const ddp_optim_ops *const *ddp_builtin_optims(void);
const ddp_sink_ops *const *ddp_builtin_sinks(void);

#endif
