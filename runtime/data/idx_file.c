/* One IDX file: header, checks, elements. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/text.h"
#include "runtime/data/idx.h"

#define CHUNK 8192 /* bytes of elements turned into floats at a time; a multiple of every element size */

static const struct {
    const char *name;
    int bytes;
    bool whole;
} types[] = {
    [DDP_IDX_U8] = {"u8", 1, true},   [DDP_IDX_I8] = {"i8", 1, true},    [DDP_IDX_I16] = {"i16", 2, true},
    [DDP_IDX_I32] = {"i32", 4, true}, [DDP_IDX_F32] = {"f32", 4, false}, [DDP_IDX_F64] = {"f64", 8, false},
};

static bool is_type(unsigned char code)
{
    return code < sizeof types / sizeof types[0] && types[code].bytes > 0;
}

static uint32_t big_u32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static ddp_error *too_short(const ddp_idx *idx, const char *part, int64_t need)
{
    return ddp_error_make(DDP_ERR_INPUT, "%s: byte %" PRId64 ": the file ends; %s needs %" PRId64 " bytes",
                          idx->bytes.path, idx->bytes.count, part, need);
}

static ddp_error *check_magic(const ddp_idx *idx, const unsigned char magic[4])
{
    const char *path = idx->bytes.path;
    if (magic[0] == 0 && magic[1] == 0 && is_type(magic[2])) {
        if (magic[3] > 0)
            return NULL;
        return ddp_error_make(DDP_ERR_INPUT, "%s: byte 3: found 0 dimensions; at least 1 is expected", path);
    }
    if (magic[0] == 0 && magic[1] == 0)
        return ddp_error_make(
            DDP_ERR_INPUT,
            "%s: byte 2: found element type %02x; expected 08 (u8), 09 (i8), 0b (i16), 0c (i32), "
            "0d (f32) or 0e (f64)",
            path, magic[2]);
    ddp_error *error =
        ddp_error_make(DDP_ERR_INPUT,
                       "%s: byte 0: found %02x %02x %02x %02x; an IDX file begins with 00 00, element "
                       "type, number of dimensions",
                       path, magic[0], magic[1], magic[2], magic[3]);
    if (magic[2] == 0 && magic[3] == 0 && is_type(magic[1]))
        error = ddp_error_help(error, "its numbers are little-endian; write them big-endian");
    return error;
}

/* Reads the dimensions; *bytes becomes the length that the whole file must have. */
static ddp_error *read_shape(ddp_idx *idx, const unsigned char *header, int dims, int64_t *bytes)
{
    bool fits = true;
    size_t used = 0;
    int64_t elements = 0;
    idx->rows = big_u32(header + 4);
    idx->columns = 1;
    snprintf(idx->shape, sizeof idx->shape, "1");
    for (int i = 1; i < dims; i++) {
        uint32_t size = big_u32(header + 4 + 4 * i);
        fits = fits && !__builtin_mul_overflow(idx->columns, (int64_t)size, &idx->columns);
        if (used < sizeof idx->shape)
            used += (size_t)snprintf(idx->shape + used, sizeof idx->shape - used, "%s%" PRIu32,
                                     i > 1 ? " x " : "", size);
    }
    fits = fits && !__builtin_mul_overflow(idx->rows, idx->columns, &elements) &&
           !__builtin_mul_overflow(elements, idx->element_bytes, bytes) &&
           !__builtin_add_overflow(*bytes, idx->header_bytes, bytes);
    if (!fits)
        return ddp_error_make(DDP_ERR_INPUT,
                              "%s: byte 4: found %" PRId64
                              " samples of %s elements, more than any file can hold; the file "
                              "has %" PRId64 " bytes",
                              idx->bytes.path, idx->rows, idx->shape, idx->bytes.count);
    if (elements == 0)
        return ddp_error_make(DDP_ERR_INPUT,
                              "%s: byte 4: found %" PRId64 " samples of %s elements: it holds no data",
                              idx->bytes.path, idx->rows, idx->shape);
    return NULL;
}

static ddp_error *check_length(const ddp_idx *idx, int64_t expected)
{
    int64_t found = idx->bytes.count;
    if (found == expected)
        return NULL;
    return ddp_error_make(DDP_ERR_INPUT,
                          "%s: byte %" PRId64 ": found %" PRId64 " bytes, %" PRId64 " too %s; %" PRId64
                          " samples of %s %s need %" PRId64,
                          idx->bytes.path, found < expected ? found : expected, found,
                          found < expected ? expected - found : found - expected,
                          found < expected ? "few" : "many", idx->rows, idx->shape,
                          ddp_idx_type_name(idx->type), expected);
}

static ddp_error *read_header(ddp_idx *idx)
{
    unsigned char buffer[4 + 4 * UINT8_MAX];
    const unsigned char *header;
    int64_t expected = 0;
    if (idx->bytes.count < 4)
        return too_short(idx, "an IDX header", 8);
    DDP_TRY(ddp_bytes_get(&idx->bytes, 0, 4, buffer, &header));
    DDP_TRY(check_magic(idx, header));
    int dims = header[3];
    idx->type = (ddp_idx_type)header[2];
    idx->element_bytes = types[idx->type].bytes;
    idx->header_bytes = 4 + 4 * dims;
    if (idx->bytes.count < idx->header_bytes)
        return too_short(idx, "its header", idx->header_bytes);
    DDP_TRY(ddp_bytes_get(&idx->bytes, 0, (size_t)idx->header_bytes, buffer, &header));
    DDP_TRY(read_shape(idx, header, dims, &expected));
    return check_length(idx, expected);
}

ddp_error *ddp_idx_open(const char *path, ddp_idx *idx)
{
    ddp_idx made = {0};
    DDP_TRY(ddp_bytes_open(path, &made.bytes));
    ddp_error *error = read_header(&made);
    if (error != NULL) {
        ddp_idx_close(&made);
        return error;
    }
    *idx = made;
    return NULL;
}

void ddp_idx_close(ddp_idx *idx)
{
    ddp_bytes_close(&idx->bytes);
}

static float to_f32(const unsigned char *at)
{
    uint32_t bits = big_u32(at);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double to_f64(const unsigned char *at)
{
    uint64_t bits = (uint64_t)big_u32(at) << 32 | big_u32(at + 4);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int32_t to_int(ddp_idx_type type, const unsigned char *at)
{
    switch (type) {
    case DDP_IDX_U8:
        return at[0];
    case DDP_IDX_I8:
        return (int8_t)at[0];
    case DDP_IDX_I16:
        return (int16_t)(at[0] << 8 | at[1]);
    default:
        return (int32_t)big_u32(at);
    }
}

static void convert(ddp_idx_type type, const unsigned char *at, int64_t count, float scale, float *to)
{
    int64_t bytes = types[type].bytes;
    for (int64_t i = 0; i < count; i++, at += bytes) {
        float value = type == DDP_IDX_F32   ? to_f32(at)
                      : type == DDP_IDX_F64 ? (float)to_f64(at)
                                            : (float)to_int(type, at);
        to[i] = value * scale;
    }
}

/* The common case, without a branch an element. */
static void convert_u8(const unsigned char *at, int64_t count, float scale, float *to)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)at[i] * scale;
}

ddp_error *ddp_idx_read_floats(const ddp_idx *idx, int64_t row, int64_t count, float scale, float *to)
{
    int64_t step = CHUNK / idx->element_bytes;
    for (int64_t done = 0; done < count; done += step) {
        unsigned char buffer[CHUNK];
        const unsigned char *at;
        int64_t part = count - done < step ? count - done : step;
        DDP_TRY(ddp_bytes_get(&idx->bytes, ddp_idx_offset(idx, row) + done * idx->element_bytes,
                              (size_t)(part * idx->element_bytes), buffer, &at));
        if (idx->type == DDP_IDX_U8)
            convert_u8(at, part, scale, to + done);
        else
            convert(idx->type, at, part, scale, to + done);
    }
    return NULL;
}

bool ddp_idx_is_whole(const ddp_idx *idx)
{
    return types[idx->type].whole;
}

ddp_error *ddp_idx_read_int(const ddp_idx *idx, int64_t row, int32_t *value)
{
    unsigned char buffer[8];
    const unsigned char *at;
    DDP_TRY(ddp_bytes_get(&idx->bytes, ddp_idx_offset(idx, row), (size_t)idx->element_bytes, buffer, &at));
    *value = to_int(idx->type, at);
    return NULL;
}

const char *ddp_idx_type_name(ddp_idx_type type)
{
    return types[type].name;
}

int64_t ddp_idx_offset(const ddp_idx *idx, int64_t row)
{
    return idx->header_bytes + row * idx->columns * idx->element_bytes;
}
