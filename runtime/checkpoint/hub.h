/* Folders as Hugging Face's libraries read and write them: config.json and model.safetensors.
 *
 * A gpt is written as the GPT-2 that transformers knows: same names without the leading "transformer.", the
 * four matrices of a block transposed (its Conv1D keeps them (in, out)). Other models keep their own names
 * and shapes, and config.json holds their settings. */
#ifndef DDP_RUNTIME_CHECKPOINT_HUB_H
#define DDP_RUNTIME_CHECKPOINT_HUB_H

#include <stdint.h>

#include <ddp/error.h>

typedef struct ddp_hub_result {
    int tensors;
    int64_t elements;
} ddp_hub_result;

/* Writes the weights of checkpoint directory `from` to folder `to`, which is made, or holds an earlier export.
 * Errors: INPUT (no complete or a damaged checkpoint; `to` holds other files), IO, MEMORY. */
DDP_USE_RESULT ddp_error *ddp_hub_export(const char *from, const char *to, ddp_hub_result *result);

/* Makes checkpoint directory `to` of folder `from`: weights, step 0, no optimizer state; checkpoint.resume=TO
 * starts a run from it. Errors: INPUT (config.json or model.safetensors missing, not a GPT-2 that gpt can be,
 * a tensor missing or of another shape; `to` exists), IO, MEMORY. */
DDP_USE_RESULT ddp_error *ddp_hub_import(const char *from, const char *to, ddp_hub_result *result);

#endif
