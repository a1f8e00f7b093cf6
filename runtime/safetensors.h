/* Files in the safetensors format: 8 bytes header length (little-endian), a JSON header, then the raw
 * tensors. The format and its rules: https://huggingface.co/docs/safetensors (header padded with spaces to 8
 * bytes, offsets count from the end of the header, no holes, no overlaps, no name twice). Threads: a file
 * that is only read may be read by several threads. */
#ifndef DDP_RUNTIME_SAFETENSORS_H
#define DDP_RUNTIME_SAFETENSORS_H

#include <ddp/tensor.h>

#include "core/text.h"

#define DDP_SAFETENSORS_DIMS 8

/* One tensor of a file. */
typedef struct ddp_stored_tensor {
    const char *name;
    const char *dtype; /* as the format calls it: "F32", "BF16" */
    int dims;          /* 0 = one element */
    int64_t shape[DDP_SAFETENSORS_DIMS];
    int64_t count;      /* elements */
    int64_t begin, end; /* bytes of the file */
} ddp_stored_tensor;

typedef struct ddp_safetensors ddp_safetensors;

/* Opens a file, reads and checks its header. Errors (INPUT, with the file and what was found): not there, not
 * safetensors, header cut short or too long, a tensor outside the file or of another length than its shape
 * says, holes, overlaps, a name twice. IO, MEMORY. */
DDP_USE_RESULT ddp_error *ddp_safetensors_open(const char *path, ddp_safetensors **file);
void ddp_safetensors_close(ddp_safetensors *file); /* NULL is fine */

/* Tensors in the order of their bytes. */
int ddp_safetensors_count(const ddp_safetensors *file);
const ddp_stored_tensor *ddp_safetensors_at(const ddp_safetensors *file, int index);
const ddp_stored_tensor *ddp_safetensors_find(const ddp_safetensors *file,
                                              const char *name);                    /* NULL = none */
const char *ddp_safetensors_metadata(const ddp_safetensors *file, const char *key); /* NULL = none */

/* Bytes [begin, begin + bytes) of the file. IO: file and offset. */
DDP_USE_RESULT ddp_error *ddp_safetensors_read(const ddp_safetensors *file, int64_t begin, void *to,
                                               size_t bytes);

/* All elements of a tensor as fp32. INPUT: its dtype is none of F32, F16, BF16, F64. */
DDP_USE_RESULT ddp_error *ddp_safetensors_read_floats(const ddp_safetensors *file,
                                                      const ddp_stored_tensor *tensor, float *to);

/* Whether the tensor has exactly this shape. */
bool ddp_stored_tensor_fits(const ddp_stored_tensor *tensor, const ddp_param *param);

/* The beginning of a file, its length included, that holds every parameter in fp32 and forward order, once
 * for each of `count` prefixes, which its name gets in front. The tensors follow without gaps. */
void ddp_safetensors_write_header(const ddp_params *params, const char *const *prefixes, int count,
                                  ddp_text *text);

/* Saves every parameter of `arena` (host memory, fp32) under its name, in forward order; the file appears
 * whole or not at all. IO, MEMORY. */
DDP_USE_RESULT ddp_error *ddp_safetensors_save(const char *path, const ddp_params *params,
                                               const float *arena);

#endif
