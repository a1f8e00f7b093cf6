/* The models of this folder. */
#ifndef DDP_MODELS_MODELS_H
#define DDP_MODELS_MODELS_H

#include <ddp/model.h>

extern const ddp_model_ops ddp_model_linear_ops;
extern const ddp_model_ops ddp_model_mlp_ops;
extern const ddp_model_ops ddp_model_gpt_ops;

#endif
