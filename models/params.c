/* The parameter table: names and shapes in forward order, places in one flat arena in reverse order, start
 * values, and a digest. It knows no model and no device; the arena it fills is host memory. */
#include <ddp/tensor.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/rng.h"

static bool is_taken(const ddp_params *params, const char *name)
{
    for (int i = 0; i < params->count; i++)
        if (strcmp(params->at[i].name, name) == 0)
            return true;
    return false;
}

static ddp_error *check(const ddp_params *params, const char *name, int dims)
{
    if (params->arena_count != 0)
        return ddp_error_make(DDP_ERR_INTERNAL, "parameter %s: the table is sealed, nothing can be added",
                              name);
    if (name[0] == '\0' || strlen(name) >= sizeof params->at->name)
        return ddp_error_make(DDP_ERR_INTERNAL, "parameter \"%s\": a name has 1 to %zu characters", name,
                              sizeof params->at->name - 1);
    if (is_taken(params, name))
        return ddp_error_make(DDP_ERR_INTERNAL, "parameter %s: the name is taken", name);
    if (dims < 1 || dims > DDP_MAX_DIMS)
        return ddp_error_make(DDP_ERR_INTERNAL, "parameter %s: %d dims, allowed are 1 to %d", name, dims,
                              DDP_MAX_DIMS);
    return NULL;
}

/* Sets dims, shape and count. An element count that no arena can hold is the job's mistake, not ours. */
static ddp_error *set_shape(ddp_param *param, int dims, const int64_t *shape)
{
    int64_t bytes = sizeof(float);
    param->dims = dims;
    param->count = 1;
    for (int d = 0; d < dims; d++) {
        if (shape[d] < 1)
            return ddp_error_make(DDP_ERR_INTERNAL, "parameter %s: dim %d is %" PRId64, param->name, d,
                                  shape[d]);
        if (__builtin_mul_overflow(bytes, shape[d], &bytes))
            return ddp_error_make(DDP_ERR_INPUT, "parameter %s has more elements than can be addressed",
                                  param->name);
        param->shape[d] = shape[d];
        param->count *= shape[d];
    }
    return NULL;
}

ddp_error *ddp_params_add(ddp_params *params, const char *name, ddp_init init, double scale, bool decay,
                          int dims, const int64_t *shape, int *index)
{
    ddp_param param = {.init = init, .scale = scale, .decay = decay};
    DDP_TRY(check(params, name, dims));
    snprintf(param.name, sizeof param.name, "%s", name);
    DDP_TRY(set_shape(&param, dims, shape));
    int64_t total;
    if (__builtin_add_overflow(params->total_count, param.count, &total) || total > INT64_MAX / 64)
        return ddp_error_make(DDP_ERR_INPUT,
                              "the parameters up to %s have more elements than can be addressed", name);

    size_t capacity = (size_t)params->capacity;
    DDP_TRY(ddp_memory_grow((void **)&params->at, &capacity, (size_t)params->count + 1, sizeof *params->at));
    params->capacity = (int)capacity;
    params->total_count = total;
    params->at[params->count] = param;
    *index = params->count++;
    return NULL;
}

ddp_error *ddp_params_seal(ddp_params *params)
{
    if (params->count == 0)
        return ddp_error_make(DDP_ERR_INTERNAL, "the model has no parameters");
    int64_t offset = 0;
    for (int i = params->count - 1; i >= 0; i--) {
        params->at[i].offset = offset;
        offset += (params->at[i].count + DDP_PARAM_ALIGN - 1) / DDP_PARAM_ALIGN * DDP_PARAM_ALIGN;
    }
    params->arena_count = offset;
    return NULL;
}

void ddp_params_free(ddp_params *params)
{
    free(params->at);
    *params = (ddp_params){0};
}

static void fill(const ddp_param *param, uint64_t seed, float *to)
{
    uint64_t stream = ddp_rng_hash(0, param->name, strlen(param->name));
    size_t count = (size_t)param->count;
    switch (param->init) {
    case DDP_INIT_ZERO:
        memset(to, 0, count * sizeof *to);
        break;
    case DDP_INIT_ONE:
        for (size_t i = 0; i < count; i++)
            to[i] = 1;
        break;
    case DDP_INIT_NORMAL:
        ddp_rng_fill_normal(seed, stream, 0, to, count, (float)param->scale);
        break;
    case DDP_INIT_UNIFORM:
        ddp_rng_fill_uniform(seed, stream, 0, to, count, (float)-param->scale, (float)param->scale);
        break;
    }
}

void ddp_params_init(const ddp_params *params, uint64_t seed, float *arena)
{
    for (int i = 0; i < params->count; i++) {
        const ddp_param *param = &params->at[i];
        fill(param, seed, arena + param->offset);
        int64_t end = i > 0 ? params->at[i - 1].offset : params->arena_count,
                used = param->offset + param->count;
        memset(arena + used, 0, (size_t)(end - used) * sizeof *arena);
    }
}

uint64_t ddp_params_digest(const ddp_params *params)
{
    uint64_t digest = ddp_rng_hash(0, &params->count, sizeof params->count);
    for (int i = 0; i < params->count; i++) {
        const ddp_param *param = &params->at[i];
        digest = ddp_rng_hash(digest, param->name, strlen(param->name) + 1);
        digest = ddp_rng_hash(digest, param->shape, (size_t)param->dims * sizeof *param->shape);
        digest = ddp_rng_hash(digest, &param->offset, sizeof param->offset);
    }
    return digest;
}
