/* What a checkpoint's files hold, byte by byte: a pure function of the parameter table and the optimizer, so
 * that every rank knows it without asking.
 *
 *   model.safetensors      every parameter, fp32, forward order, names as in the table
 *   optimizer.safetensors  every slot of every parameter: "exp_avg.h.0.attn.c_attn.weight"; absent where the
 *                          optimizer has no state
 * Both are cut into parts: the header is one, each tensor is one or several of at most DDP_PART_BYTES. Parts
 * are what a checksum covers and what ranks share out among them; they do not depend on the number of ranks.
 */
#ifndef DDP_RUNTIME_CHECKPOINT_LAYOUT_H
#define DDP_RUNTIME_CHECKPOINT_LAYOUT_H

#include <ddp/optim.h>
#include <ddp/tensor.h>

#include "core/text.h"

#define DDP_PART_BYTES (8 << 20)
#define DDP_CHECKPOINT_FILES 2

typedef struct ddp_checkpoint_part {
    int file;           /* index into files */
    int64_t begin, end; /* bytes of that file */
    int param;          /* index into the table; -1 = the header */
    int arena;          /* 0 = weights, 1 + s = slot s */
    int64_t element;    /* the part's first, in that arena */
} ddp_checkpoint_part;

typedef struct ddp_checkpoint_layout {
    struct {
        const char *name;
        ddp_text header;
        int64_t bytes;
    } files[DDP_CHECKPOINT_FILES];
    int file_count;
    ddp_checkpoint_part *parts;
    int part_count;
    int64_t bytes; /* of all files */
} ddp_checkpoint_layout;

/* `params` is sealed. MEMORY. */
DDP_USE_RESULT ddp_error *ddp_checkpoint_layout_make(const ddp_params *params, const ddp_optim_ops *optim,
                                                     ddp_checkpoint_layout *layout);
void ddp_checkpoint_layout_free(ddp_checkpoint_layout *layout); /* a zeroed one is fine */

/* Rank r's parts [*first, *end): about bytes / world of them, in order. */
void ddp_checkpoint_layout_share(const ddp_checkpoint_layout *layout, int rank, int world, int *first,
                                 int *end);

#endif
