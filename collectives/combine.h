/* Arithmetic of the collectives: many arrays into one, element by element in the order given. */
#ifndef DDP_COLLECTIVES_COMBINE_H
#define DDP_COLLECTIVES_COMBINE_H

#include <ddp/comm.h>

/* Elements [begin, begin + count) of the `ins` arrays in[0], in[1], ... combined in this order, and the
 * result written to the same elements of the `outs` arrays of out. An array may be in both; otherwise none
 * overlap. The result of an element does not depend on the range it is in. dtype: F32, F64, I64; sums of I64
 * wrap around; a NaN wins over every minimum and maximum. */
void ddp_combine(ddp_dtype dtype, ddp_reduce op, void *const *in, int ins, void *const *out, int outs,
                 int64_t begin, int64_t count);

/* Part `index` of `count` elements cut into `parts`, at multiples of 64 bytes: ranks that write neighbouring
 * parts do not share cache lines. Some of the last parts may be empty. */
void ddp_combine_part(ddp_dtype dtype, int64_t count, int parts, int index, int64_t *begin, int64_t *part);

#endif
