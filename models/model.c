/* What all models share towards the outside: closing, and where a parameter lies in the arenas. */
#include <ddp/model.h>

void ddp_model_close(ddp_model *model)
{
    if (model != NULL)
        model->ops->close(model);
}

void *ddp_model_weights(const ddp_model *model, int param)
{
    const ddp_model_env *env = &model->env;
    ddp_assert(param >= 0 && param < env->params->count);
    size_t element = ddp_dtype_bytes(env->device->kernels->compute);
    return (char *)env->weights + (size_t)env->params->at[param].offset * element;
}

float *ddp_model_gradients(const ddp_model *model, int param)
{
    const ddp_model_env *env = &model->env;
    ddp_assert(param >= 0 && param < env->params->count);
    return env->gradients + env->params->at[param].offset;
}
