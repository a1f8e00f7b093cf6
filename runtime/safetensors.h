/* Writing safetensors: 8 bytes header length (little-endian), a JSON header, then the raw tensors. The format
 * and its rules: https://huggingface.co/docs/safetensors (header padded with spaces to 8 bytes, offsets count
 * from the end of the header). */
#ifndef DDP_RUNTIME_SAFETENSORS_H
#define DDP_RUNTIME_SAFETENSORS_H

#include <ddp/tensor.h>

/* Saves every parameter of `arena` (host memory, fp32) under its name, in forward order; the file appears
 * whole or not at all. IO, MEMORY. */
DDP_USE_RESULT ddp_error *ddp_safetensors_save(const char *path, const ddp_params *params,
                                               const float *arena);

#endif
