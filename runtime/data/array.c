/* A file that holds one array: shape, checks, elements. */
#include "runtime/data/array.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CHUNK 8192 /* bytes of elements turned into floats at a time; a multiple of every element size */

static const struct {
    const char *name;
    int bytes;
    bool whole, is_signed;
} types[] = {
    [DDP_ELEMENT_U8] = {"u8", 1, true, false},   [DDP_ELEMENT_I8] = {"i8", 1, true, true},
    [DDP_ELEMENT_U16] = {"u16", 2, true, false}, [DDP_ELEMENT_I16] = {"i16", 2, true, true},
    [DDP_ELEMENT_U32] = {"u32", 4, true, false}, [DDP_ELEMENT_I32] = {"i32", 4, true, true},
    [DDP_ELEMENT_I64] = {"i64", 8, true, true},  [DDP_ELEMENT_F32] = {"f32", 4, false, true},
    [DDP_ELEMENT_F64] = {"f64", 8, false, true},
};

int ddp_element_bytes(ddp_element type)
{
    return types[type].bytes;
}

const char *ddp_element_name(ddp_element type)
{
    return types[type].name;
}

static ddp_error *check_length(const ddp_array *array, int64_t expected)
{
    int64_t found = array->bytes.count;
    if (found == expected)
        return NULL;
    return ddp_error_make(DDP_ERR_INPUT,
                          "%s: byte %" PRId64 ": found %" PRId64 " bytes, %" PRId64 " too %s; %" PRId64
                          " samples of %s %s need %" PRId64,
                          array->bytes.path, found < expected ? found : expected, found,
                          found < expected ? expected - found : found - expected,
                          found < expected ? "few" : "many", array->rows, array->shape,
                          ddp_element_name(array->type), expected);
}

ddp_error *ddp_array_set_shape(ddp_array *array, const int64_t *sizes, int dims)
{
    bool fits = true;
    size_t used = 0;
    int64_t elements = 0, bytes = 0;
    array->rows = sizes[0];
    array->columns = 1;
    snprintf(array->shape, sizeof array->shape, "1");
    for (int i = 1; i < dims; i++) {
        fits = fits && !__builtin_mul_overflow(array->columns, sizes[i], &array->columns);
        if (used < sizeof array->shape)
            used += (size_t)snprintf(array->shape + used, sizeof array->shape - used, "%s%" PRId64,
                                     i > 1 ? " x " : "", sizes[i]);
    }
    fits = fits && !__builtin_mul_overflow(array->rows, array->columns, &elements) &&
           !__builtin_mul_overflow(elements, (int64_t)types[array->type].bytes, &bytes) &&
           !__builtin_add_overflow(bytes, array->header_bytes, &bytes);
    if (!fits)
        return ddp_error_make(DDP_ERR_INPUT,
                              "%s: byte %" PRId64 ": found %" PRId64
                              " samples of %s elements, more than any file can hold; the file "
                              "has %" PRId64 " bytes",
                              array->bytes.path, array->shape_at, array->rows, array->shape,
                              array->bytes.count);
    if (elements == 0)
        return ddp_error_make(
            DDP_ERR_INPUT, "%s: byte %" PRId64 ": found %" PRId64 " samples of %s elements: it holds no data",
            array->bytes.path, array->shape_at, array->rows, array->shape);
    return check_length(array, bytes);
}

void ddp_array_close(ddp_array *array)
{
    ddp_bytes_close(&array->bytes);
}

/* The bits of one element, lowest byte last read or first. */
static uint64_t to_bits(const ddp_array *array, const unsigned char *at)
{
    int bytes = types[array->type].bytes;
    uint64_t bits = 0;
    for (int i = 0; i < bytes; i++)
        bits = bits << 8 | at[array->big_endian ? i : bytes - 1 - i];
    return bits;
}

static int64_t to_int(const ddp_array *array, const unsigned char *at)
{
    uint64_t bits = to_bits(array, at);
    int unused = 64 - 8 * types[array->type].bytes;
    return types[array->type].is_signed ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
}

static float to_float(const ddp_array *array, const unsigned char *at)
{
    uint64_t bits = to_bits(array, at);
    uint32_t low = (uint32_t)bits;
    float single;
    double real;
    if (array->type == DDP_ELEMENT_F32) {
        memcpy(&single, &low, sizeof single);
        return single;
    }
    if (array->type == DDP_ELEMENT_F64) {
        memcpy(&real, &bits, sizeof real);
        return (float)real;
    }
    return (float)to_int(array, at);
}

static void convert(const ddp_array *array, const unsigned char *at, int64_t count, float scale, float *to)
{
    int64_t bytes = types[array->type].bytes;
    if (array->type == DDP_ELEMENT_U8) { /* the common case, without a branch an element */
        for (int64_t i = 0; i < count; i++)
            to[i] = (float)at[i] * scale;
        return;
    }
    if (array->type == DDP_ELEMENT_F32 && !array->big_endian) {
        memcpy(to, at, (size_t)count * sizeof *to);
        for (int64_t i = 0; i < count && scale != 1; i++)
            to[i] *= scale;
        return;
    }
    for (int64_t i = 0; i < count; i++, at += bytes)
        to[i] = to_float(array, at) * scale;
}

ddp_error *ddp_array_read_floats(const ddp_array *array, int64_t row, int64_t count, float scale, float *to)
{
    int64_t bytes = types[array->type].bytes, step = CHUNK / bytes;
    for (int64_t done = 0; done < count; done += step) {
        unsigned char buffer[CHUNK];
        const unsigned char *at;
        int64_t part = count - done < step ? count - done : step;
        DDP_TRY(ddp_bytes_get(&array->bytes, ddp_array_offset(array, row) + done * bytes,
                              (size_t)(part * bytes), buffer, &at));
        convert(array, at, part, scale, to + done);
    }
    return NULL;
}

bool ddp_array_is_whole(const ddp_array *array)
{
    return types[array->type].whole;
}

ddp_error *ddp_array_read_int(const ddp_array *array, int64_t row, int64_t *value)
{
    unsigned char buffer[8];
    const unsigned char *at;
    DDP_TRY(ddp_bytes_get(&array->bytes, ddp_array_offset(array, row), (size_t)types[array->type].bytes,
                          buffer, &at));
    *value = to_int(array, at);
    return NULL;
}

int64_t ddp_array_offset(const ddp_array *array, int64_t row)
{
    return array->header_bytes + row * array->columns * types[array->type].bytes;
}
