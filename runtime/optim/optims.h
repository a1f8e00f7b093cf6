/* The optimizers of this folder. */
#ifndef DDP_RUNTIME_OPTIMS_H
#define DDP_RUNTIME_OPTIMS_H

#include <ddp/optim.h>

extern const ddp_optim_ops ddp_optim_adamw_ops;
extern const ddp_optim_ops ddp_optim_sgd_ops;

#endif
