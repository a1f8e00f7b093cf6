/* Files, tensors and parts of a checkpoint. */
#include "runtime/checkpoint/layout.h"

#include <stdlib.h>

#include "core/memory.h"
#include "runtime/safetensors.h"

#define PREFIX_BYTES 64

static ddp_error *add_part(ddp_checkpoint_layout *layout, size_t *capacity, ddp_checkpoint_part part)
{
    void *parts = layout->parts;
    ddp_error *error = ddp_memory_grow(&parts, capacity, (size_t)layout->part_count + 1, sizeof part);
    layout->parts = parts;
    if (error == NULL)
        layout->parts[layout->part_count++] = part;
    return error;
}

/* One tensor in pieces; *at is its place in the file. */
static ddp_error *add_tensor(ddp_checkpoint_layout *layout, size_t *capacity, const ddp_param *param,
                             ddp_checkpoint_part part, int64_t *at)
{
    int64_t bytes = param->count * (int64_t)sizeof(float);
    for (int64_t done = 0; done < bytes; done += DDP_PART_BYTES) {
        int64_t left = bytes - done, size = left < DDP_PART_BYTES ? left : DDP_PART_BYTES;
        part.begin = *at;
        part.end = *at += size;
        part.element = param->offset + done / (int64_t)sizeof(float);
        DDP_TRY(add_part(layout, capacity, part));
    }
    return NULL;
}

/* A file with `arenas` arenas, the first of them number `arena`. */
static ddp_error *add_file(ddp_checkpoint_layout *layout, size_t *capacity, const ddp_params *params,
                           const char *name, int arena, int arenas, const char *const *prefixes)
{
    int file = layout->file_count++;
    layout->files[file].name = name;
    ddp_text *header = &layout->files[file].header;
    ddp_safetensors_write_header(params, prefixes, arenas, header);
    if (header->failed)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    int64_t at = (int64_t)header->length;
    DDP_TRY(add_part(layout, capacity, (ddp_checkpoint_part){.file = file, .end = at, .param = -1}));
    for (int a = 0; a < arenas; a++)
        for (int i = 0; i < params->count; i++)
            DDP_TRY(add_tensor(layout, capacity, &params->at[i],
                               (ddp_checkpoint_part){.file = file, .param = i, .arena = arena + a}, &at));
    layout->files[file].bytes = at;
    layout->bytes += at;
    return NULL;
}

ddp_error *ddp_checkpoint_layout_make(const ddp_params *params, const ddp_optim_ops *optim,
                                      ddp_checkpoint_layout *layout)
{
    static const char *const plain[] = {""};
    char texts[DDP_MAX_SLOTS][PREFIX_BYTES];
    const char *prefixes[DDP_MAX_SLOTS];
    ddp_checkpoint_layout made = {.file_count = 0};
    size_t capacity = 0;
    for (int slot = 0; slot < optim->slots; slot++) {
        snprintf(texts[slot], PREFIX_BYTES, "%s.", optim->slot_names[slot]);
        prefixes[slot] = texts[slot];
    }
    ddp_error *error = add_file(&made, &capacity, params, "model.safetensors", 0, 1, plain);
    if (error == NULL && optim->slots > 0)
        error = add_file(&made, &capacity, params, "optimizer.safetensors", 1, optim->slots, prefixes);
    if (error != NULL) {
        ddp_checkpoint_layout_free(&made);
        return error;
    }
    *layout = made;
    return NULL;
}

void ddp_checkpoint_layout_free(ddp_checkpoint_layout *layout)
{
    for (int file = 0; file < layout->file_count; file++)
        ddp_text_free(&layout->files[file].header);
    free(layout->parts);
    *layout = (ddp_checkpoint_layout){.file_count = 0};
}

void ddp_checkpoint_layout_share(const ddp_checkpoint_layout *layout, int rank, int world, int *first,
                                 int *end)
{
    int64_t before = 0;
    *first = *end = 0;
    for (int i = 0; i < layout->part_count; i++) {
        /* A part belongs to the rank whose share its first byte lies in. */
        int owner = (int)((double)before / (double)layout->bytes * world);
        *first += owner < rank;
        *end += owner <= rank;
        before += layout->parts[i].end - layout->parts[i].begin;
    }
}
