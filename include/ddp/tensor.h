/* Element types, views, and the table of a model's parameters. */
#ifndef DDP_TENSOR_H
#define DDP_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ddp/error.h>

typedef enum ddp_dtype {
    DDP_F32,
    DDP_F64,
    DDP_BF16,
    DDP_F16,
    DDP_I32,
    DDP_I64,
    DDP_U8,
    DDP_DTYPE_COUNT
} ddp_dtype;

size_t ddp_dtype_bytes(ddp_dtype dtype);
const char *ddp_dtype_name(ddp_dtype dtype); /* "f32" */

#define DDP_MAX_DIMS 4

/* A pointer with a shape. It never owns. Row-major, contiguous. */
typedef struct ddp_view {
    void *data;
    ddp_dtype dtype;
    int dims;
    int64_t shape[DDP_MAX_DIMS];
} ddp_view;

int64_t ddp_view_count(const ddp_view *view); /* elements */

/* How a parameter starts. The values depend only on the job's seed and the parameter's name, never on
 * ranks, so every rank makes the same ones without communicating. */
typedef enum ddp_init { DDP_INIT_ZERO, DDP_INIT_ONE, DDP_INIT_NORMAL, DDP_INIT_UNIFORM } ddp_init;

typedef struct ddp_param {
    char name[64]; /* unique, dotted, as in a checkpoint: "h.0.attn.c_attn.weight" */
    int dims;
    int64_t shape[DDP_MAX_DIMS];
    int64_t count; /* elements */
    ddp_init init;
    double scale;   /* NORMAL: standard deviation; UNIFORM: values in [-scale, scale) */
    bool decay;     /* takes weight decay (matrices and embeddings; not biases, not norms) */
    int64_t offset; /* first element in the flat arena; set by ddp_params_seal */
} ddp_param;

/* The parameter table. Indices are in FORWARD order, the order of ddp_params_add; the arena is laid out
 * in REVERSE forward order, so that the gradients that are final first lie first and a bucket is one
 * contiguous range. Offsets are multiples of DDP_PARAM_ALIGN elements (gaps hold zeros for ever). */
#define DDP_PARAM_ALIGN 16

typedef struct ddp_params {
    ddp_param *at;
    int count, capacity;
    int64_t arena_count; /* elements of the flat arena, gaps included; 0 before sealing */
    int64_t total_count; /* elements, gaps not included */
} ddp_params;

/* Adds one; `*index` is its id. Errors (INTERNAL): sealed table, name taken or too long, more than
 * DDP_MAX_DIMS dims, a dim below 1. MEMORY. */
DDP_USE_RESULT ddp_error *ddp_params_add(ddp_params *params, const char *name, ddp_init init, double scale,
                                         bool decay, int dims, const int64_t *shape, int *index);

/* Assigns offsets; nothing can be added afterwards. Error (INTERNAL): no parameter at all. */
DDP_USE_RESULT ddp_error *ddp_params_seal(ddp_params *params);

void ddp_params_free(ddp_params *params); /* a zeroed table is fine */

/* Fills `arena` (arena_count floats, host memory) with the start values of every parameter, gaps zeroed. */
void ddp_params_init(const ddp_params *params, uint64_t seed, float *arena);

/* A digest of names, shapes and offsets: equal on all ranks or the job is refused before step 0. */
uint64_t ddp_params_digest(const ddp_params *params);

#endif
