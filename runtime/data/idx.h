/* One IDX file: MNIST's format, from its bytes. It knows nothing about images or labels.
 *
 *   2 bytes 0, 1 byte element type, 1 byte number of dimensions; each dimension as a big-endian 32-bit
 *   number; then the elements, big-endian, row-major. (Described on the MNIST page of LeCun, Cortes, Burges.)
 */
#ifndef DDP_RUNTIME_DATA_IDX_H
#define DDP_RUNTIME_DATA_IDX_H

#include "runtime/data/bytes.h"

typedef enum ddp_idx_type {
    DDP_IDX_U8 = 0x08,
    DDP_IDX_I8 = 0x09,
    DDP_IDX_I16 = 0x0B,
    DDP_IDX_I32 = 0x0C,
    DDP_IDX_F32 = 0x0D,
    DDP_IDX_F64 = 0x0E,
} ddp_idx_type;

typedef struct ddp_idx {
    ddp_bytes bytes;
    ddp_idx_type type;
    int64_t header_bytes, element_bytes;
    int64_t rows;    /* the first dimension: samples */
    int64_t columns; /* elements a sample: the product of the other dimensions */
    char shape[48];  /* of one sample: "8 x 8"; "1" without further dimensions */
} ddp_idx;

/* INPUT: no such file, or not IDX: gzip, little-endian, unknown type, no dimensions, too large a product,
 * empty, cut short, or longer than its header says. Each names file, byte offset, what was found and what
 * was expected. */
DDP_USE_RESULT ddp_error *ddp_idx_open(const char *path, ddp_idx *idx);
void ddp_idx_close(ddp_idx *idx); /* a zeroed one is fine */

/* Elements [first, first + count) of row `row` as numbers, times `scale`. IO. */
DDP_USE_RESULT ddp_error *ddp_idx_read_floats(const ddp_idx *idx, int64_t row, int64_t count, float scale,
                                              float *to);

/* Whether the elements are whole numbers; then the first one of a row. IO. */
bool ddp_idx_is_whole(const ddp_idx *idx);
DDP_USE_RESULT ddp_error *ddp_idx_read_int(const ddp_idx *idx, int64_t row, int32_t *value);

const char *ddp_idx_type_name(ddp_idx_type type);        /* "u8" */
int64_t ddp_idx_offset(const ddp_idx *idx, int64_t row); /* of a row in the file, bytes */

#endif
