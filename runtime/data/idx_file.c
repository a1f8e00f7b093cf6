/* The header of an IDX file, MNIST's format:
 *
 *   2 bytes 0, 1 byte element type, 1 byte number of dimensions; each dimension as a big-endian 32-bit
 *   number; then the elements, big-endian, row-major. (Described on the MNIST page of LeCun, Cortes, Burges.)
 */
#include <inttypes.h>

#include "runtime/data/array.h"

static const struct {
    bool known;
    ddp_element type;
} types[] = {
    [0x08] = {true, DDP_ELEMENT_U8},  [0x09] = {true, DDP_ELEMENT_I8},  [0x0B] = {true, DDP_ELEMENT_I16},
    [0x0C] = {true, DDP_ELEMENT_I32}, [0x0D] = {true, DDP_ELEMENT_F32}, [0x0E] = {true, DDP_ELEMENT_F64},
};

static bool is_type(unsigned char code)
{
    return code < sizeof types / sizeof types[0] && types[code].known;
}

static uint32_t big_u32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static ddp_error *too_short(const ddp_array *idx, const char *part, int64_t need)
{
    return ddp_error_make(DDP_ERR_INPUT, "%s: byte %" PRId64 ": the file ends; %s needs %" PRId64 " bytes",
                          idx->bytes.path, idx->bytes.count, part, need);
}

static ddp_error *check_magic(const ddp_array *idx, const unsigned char magic[4])
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

static ddp_error *read_header(ddp_array *idx)
{
    unsigned char buffer[4 + 4 * UINT8_MAX];
    const unsigned char *header;
    int64_t sizes[UINT8_MAX];
    if (idx->bytes.count < 4)
        return too_short(idx, "an IDX header", 8);
    DDP_TRY(ddp_bytes_get(&idx->bytes, 0, 4, buffer, &header));
    DDP_TRY(check_magic(idx, header));
    int dims = header[3];
    idx->type = types[header[2]].type;
    idx->big_endian = true;
    idx->header_bytes = 4 + 4 * dims;
    idx->type_at = 2;
    idx->shape_at = 4;
    if (idx->bytes.count < idx->header_bytes)
        return too_short(idx, "its header", idx->header_bytes);
    DDP_TRY(ddp_bytes_get(&idx->bytes, 0, (size_t)idx->header_bytes, buffer, &header));
    for (int i = 0; i < dims; i++)
        sizes[i] = big_u32(header + 4 + 4 * i);
    return ddp_array_set_shape(idx, sizes, dims);
}

ddp_error *ddp_idx_open(const char *path, ddp_array *array)
{
    ddp_array made = {0};
    DDP_TRY(ddp_bytes_open(path, &made.bytes));
    ddp_error *error = read_header(&made);
    if (error != NULL) {
        ddp_array_close(&made);
        return error;
    }
    *array = made;
    return NULL;
}
