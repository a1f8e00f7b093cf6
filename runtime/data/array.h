/* A file that holds one array: rows of numbers. What its header looks like is the business of idx_file.c and
 * npy_file.c; here are the numbers behind it. It knows nothing about samples or labels. */
#ifndef DDP_RUNTIME_DATA_ARRAY_H
#define DDP_RUNTIME_DATA_ARRAY_H

#include "runtime/data/bytes.h"

typedef enum ddp_element {
    DDP_ELEMENT_U8,
    DDP_ELEMENT_I8,
    DDP_ELEMENT_U16,
    DDP_ELEMENT_I16,
    DDP_ELEMENT_U32,
    DDP_ELEMENT_I32,
    DDP_ELEMENT_I64,
    DDP_ELEMENT_F32,
    DDP_ELEMENT_F64,
} ddp_element;

typedef struct ddp_array {
    ddp_bytes bytes;
    ddp_element type;
    bool big_endian;
    int64_t header_bytes;
    int64_t type_at, shape_at; /* where in the header those stand, for messages */
    int64_t rows;              /* the first dimension: samples */
    int64_t columns;           /* elements a sample: the product of the other dimensions */
    char shape[48];            /* of one sample: "8 x 8"; "1" without further dimensions */
} ddp_array;

/* Each opens one kind of file. INPUT: no such file, or not of that kind, of a type or layout that is not
 * read, too large a product, empty, cut short, or longer than its header says. Each names file, byte offset,
 * what was found and what was expected. */
DDP_USE_RESULT ddp_error *ddp_idx_open(const char *path, ddp_array *array);
DDP_USE_RESULT ddp_error *ddp_npy_open(const char *path, ddp_array *array);
void ddp_array_close(ddp_array *array); /* a zeroed one is fine */

/* For those two: takes the dimensions (at least one), checks their product against the length of the file.
 * type, header_bytes, shape_at and bytes are set. INPUT as above. */
DDP_USE_RESULT ddp_error *ddp_array_set_shape(ddp_array *array, const int64_t *sizes, int dims);

/* Elements [0, count) of row `row` as numbers, times `scale`. IO. */
DDP_USE_RESULT ddp_error *ddp_array_read_floats(const ddp_array *array, int64_t row, int64_t count,
                                                float scale, float *to);

/* Whether the elements are whole numbers; then the first one of a row. IO. */
bool ddp_array_is_whole(const ddp_array *array);
DDP_USE_RESULT ddp_error *ddp_array_read_int(const ddp_array *array, int64_t row, int64_t *value);

int ddp_element_bytes(ddp_element type);
const char *ddp_element_name(ddp_element type);                /* "u8" */
int64_t ddp_array_offset(const ddp_array *array, int64_t row); /* of a row in the file, bytes */

#endif
