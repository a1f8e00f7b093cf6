/* Sums, minima and maxima of arrays.
 *
 * Blocks of 64 KiB: with a handful of ranks the inputs of a block, its result and the copies of the result
 * stay in the L2 cache, so memory is read once and written once. Two ranks, the commonest case, need no
 * block: one loop reads both and writes both. */
#include "collectives/combine.h"

#include <stdint.h>
#include <string.h>

enum { BLOCK_BYTES = 64 << 10, LINE_BYTES = 64, PAGE_BYTES = 4096, STRIDE_BYTES = 256 };

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#define SUM(a, b) ((a) + (b))
#define MIN(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
#define MAX(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))

/* The hardware prefetchers stop at the end of a 4 KiB page and shared memory seldom has larger ones, so each
 * line asks for the one a page ahead, which also brings the address translation: 0.95 -> 0.57 ms for 16 MB
 * between two cores of a Xeon, and 0.57 is what these cores need to only read as much. Not beyond the end:
 * there lies what another rank is writing. */
static inline void ahead(const void *array, size_t bytes)
{
    for (size_t line = 0; line < STRIDE_BYTES; line += LINE_BYTES)
        __builtin_prefetch((const char *)array + bytes + PAGE_BYTES + line);
}

/* Runs BODY for every i below count. In strides of a few lines: enough for the compiler to make vectors of
 * the inner loop, few enough not to ask for more lines at once than a core has buffers for. */
#define STRIDES(type, count, PREFETCH, BODY)                                             \
    do {                                                                                 \
        enum { STRIDE = STRIDE_BYTES / sizeof(type), PAGE = PAGE_BYTES / sizeof(type) }; \
        int64_t first = 0;                                                               \
        for (; first + STRIDE <= count; first += STRIDE) {                               \
            size_t offset = (size_t)first * sizeof(type);                                \
            if (first + STRIDE + PAGE <= count)                                          \
                PREFETCH;                                                                \
            for (int64_t i = first; i < first + STRIDE; i++)                             \
                BODY;                                                                    \
        }                                                                                \
        for (int64_t i = first; i < count; i++)                                          \
            BODY;                                                                        \
    } while (0)

/* NAME: to = a OP b. NAME_onto: to = to OP b. NAME_both: a and b become a OP b. */
#define DEFINE(name, type, OP)                                                                         \
    static void name(void *restrict to, const void *restrict a, const void *restrict b, int64_t count) \
    {                                                                                                  \
        type *restrict t = to;                                                                         \
        const type *restrict x = a, *restrict y = b;                                                   \
        STRIDES(type, count, (ahead(x, offset), ahead(y, offset)), t[i] = OP(x[i], y[i]));             \
    }                                                                                                  \
    static void name##_onto(void *restrict to, const void *restrict b, int64_t count)                  \
    {                                                                                                  \
        type *restrict t = to;                                                                         \
        const type *restrict y = b;                                                                    \
        STRIDES(type, count, ahead(y, offset), t[i] = OP(t[i], y[i]));                                 \
    }                                                                                                  \
    static void name##_both(void *restrict a, void *restrict b, int64_t count)                         \
    {                                                                                                  \
        type *restrict x = a, *restrict y = b;                                                         \
        STRIDES(type, count, (ahead(x, offset), ahead(y, offset)), x[i] = y[i] = OP(x[i], y[i]));      \
    }
DEFINE(sum_f32, float, SUM)
DEFINE(min_f32, float, MIN)
DEFINE(max_f32, float, MAX)
DEFINE(sum_f64, double, SUM)
DEFINE(min_f64, double, MIN)
DEFINE(max_f64, double, MAX)
DEFINE(sum_i64, uint64_t, SUM) /* unsigned: overflow wraps */
DEFINE(min_i64, int64_t, MIN)
DEFINE(max_i64, int64_t, MAX)

typedef struct loops {
    void (*two)(void *restrict to, const void *restrict a, const void *restrict b, int64_t count);
    void (*onto)(void *restrict to, const void *restrict b, int64_t count);
    void (*both)(void *restrict a, void *restrict b, int64_t count);
} loops;

#define LOOPS(name)                    \
    {                                  \
        name, name##_onto, name##_both \
    }
static const loops table[DDP_DTYPE_COUNT][3] = {
    [DDP_F32] = {LOOPS(sum_f32), LOOPS(min_f32), LOOPS(max_f32)},
    [DDP_F64] = {LOOPS(sum_f64), LOOPS(min_f64), LOOPS(max_f64)},
    [DDP_I64] = {LOOPS(sum_i64), LOOPS(min_i64), LOOPS(max_i64)},
};

static char *at(void *const *arrays, int which, int64_t offset)
{
    return (char *)arrays[which] + offset;
}

/* Bytes [offset, offset + bytes) of all arrays. */
static void combine_block(const loops *l, void *const *in, int ins, void *const *out, int outs,
                          int64_t offset, int64_t bytes, int64_t count)
{
    _Alignas(LINE_BYTES) char block[BLOCK_BYTES];
    if (ins == 1)
        memcpy(block, at(in, 0, offset), (size_t)bytes);
    else
        l->two(block, at(in, 0, offset), at(in, 1, offset), count);
    for (int i = 2; i < ins; i++)
        l->onto(block, at(in, i, offset), count);
    for (int i = 0; i < outs; i++)
        memcpy(at(out, i, offset), block, (size_t)bytes);
}

void ddp_combine(ddp_dtype dtype, ddp_reduce op, void *const *in, int ins, void *const *out, int outs,
                 int64_t begin, int64_t count)
{
    const loops *l = &table[dtype][op];
    int64_t size = (int64_t)ddp_dtype_bytes(dtype), most = BLOCK_BYTES / size;
    if (ins == 2 && outs == 2 && in[0] == out[0] && in[1] == out[1]) {
        l->both(at(in, 0, begin * size), at(in, 1, begin * size), count);
        return;
    }
    for (int64_t done = 0; done < count; done += most) {
        int64_t n = smaller(most, count - done);
        combine_block(l, in, ins, out, outs, (begin + done) * size, n * size, n);
    }
}

void ddp_combine_part(ddp_dtype dtype, int64_t count, int parts, int index, int64_t *begin, int64_t *part)
{
    int64_t unit = LINE_BYTES / (int64_t)ddp_dtype_bytes(dtype);
    int64_t each = (count + parts - 1) / parts;
    each = (each + unit - 1) / unit * unit;
    *begin = smaller(count, each * index);
    *part = smaller(count, each * (index + 1)) - *begin;
}
