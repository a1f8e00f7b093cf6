/* The header of a .npy file, versions 1 to 3 (NumPy Enhancement Proposal 1):
 *
 *   6 bytes 93 "NUMPY", 1 byte major and 1 byte minor version, the header's length (little-endian, 2 bytes in
 * version 1, 4 bytes in 2 and 3), then a Python dictionary as text:
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *
 * Read: C order, one or more dimensions, little-endian or one-byte integers and floats. Refused by name:
 * big-endian, Fortran order, bool, complex, text, objects, records, half floats. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text.h"
#include "runtime/data/array.h"

#define MAGIC_BYTES 6
#define MAX_DIMS 32 /* NumPy's own limit before version 2 */

static const struct {
    const char *descr;
    ddp_element type;
} types[] = {
    {"|u1", DDP_ELEMENT_U8},  {"|i1", DDP_ELEMENT_I8},  {"<u2", DDP_ELEMENT_U16},
    {"<i2", DDP_ELEMENT_I16}, {"<u4", DDP_ELEMENT_U32}, {"<i4", DDP_ELEMENT_I32},
    {"<i8", DDP_ELEMENT_I64}, {"<f4", DDP_ELEMENT_F32}, {"<f8", DDP_ELEMENT_F64},
};

/* What a person calls a type that is not read, by its letter. */
static const struct {
    char letter;
    const char *name;
} others[] = {
    {'b', "bool"},
    {'c', "complex numbers"},
    {'S', "bytes"},
    {'U', "text"},
    {'O', "Python objects"},
    {'V', "raw"},
    {'m', "time spans"},
    {'M', "dates"},
    {'f', "floats of that size"},
    {'u', "integers of that size"},
    {'i', "integers of that size"},
};

/* The dictionary's text; `at` moves through it. */
typedef struct reader {
    const ddp_array *npy;
    const char *text, *at;
    int64_t begin; /* byte of the file where the text begins */
} reader;

static int64_t place(const reader *reader)
{
    return reader->begin + (reader->at - reader->text);
}

static ddp_error *unexpected(const reader *reader, const char *wanted)
{
    return ddp_error_make(DDP_ERR_INPUT, "%s: byte %" PRId64 ": found \"%.16s\"; %s is expected",
                          reader->npy->bytes.path, place(reader), reader->at, wanted);
}

static void skip_spaces(reader *reader)
{
    reader->at += strspn(reader->at, " \t\r\n");
}

static bool take(reader *reader, char wanted)
{
    skip_spaces(reader);
    if (*reader->at != wanted)
        return false;
    reader->at++;
    return true;
}

/* 'text' or "text", into a buffer of 32 bytes. */
static ddp_error *take_text(reader *reader, char text[32])
{
    skip_spaces(reader);
    char quote = *reader->at;
    const char *end = quote == '\'' || quote == '"' ? strchr(reader->at + 1, quote) : NULL;
    if (end == NULL || end - reader->at - 1 >= 32)
        return unexpected(reader, "a short text in quotes");
    memcpy(text, reader->at + 1, (size_t)(end - reader->at - 1));
    text[end - reader->at - 1] = '\0';
    reader->at = end + 1;
    return NULL;
}

static ddp_error *refuse_type(const reader *reader, const char *descr)
{
    const char *name = "this type";
    if (descr[0] == '>')
        name = "big-endian numbers";
    for (size_t i = 0; descr[0] != '>' && descr[0] != '\0' && i < sizeof others / sizeof others[0]; i++)
        if (descr[1] == others[i].letter)
            name = others[i].name;
    return ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                         "%s: byte %" PRId64 ": found element type '%s': %s are not read",
                                         reader->npy->bytes.path, reader->npy->type_at, descr, name),
                          "array.astype('<f4'), or '<i4' for labels, before numpy.save");
}

static ddp_error *read_type(reader *reader, ddp_array *npy)
{
    char descr[32];
    skip_spaces(reader);
    npy->type_at = place(reader);
    if (*reader->at == '[')
        return ddp_error_make(DDP_ERR_INPUT,
                              "%s: byte %" PRId64 ": found records with named fields, which are not read",
                              npy->bytes.path, npy->type_at);
    DDP_TRY(take_text(reader, descr));
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(descr, types[i].descr) != 0)
            continue;
        npy->type = types[i].type;
        return NULL;
    }
    return refuse_type(reader, descr);
}

static ddp_error *read_order(reader *reader)
{
    skip_spaces(reader);
    if (strncmp(reader->at, "True", 4) == 0)
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                             "%s: byte %" PRId64
                                             ": found column (Fortran) order; C order is expected",
                                             reader->npy->bytes.path, place(reader)),
                              "numpy.ascontiguousarray(array) before numpy.save");
    if (strncmp(reader->at, "False", 5) != 0)
        return unexpected(reader, "True or False");
    reader->at += 5;
    return NULL;
}

/* (3, 4), (3,), or () */
static ddp_error *read_shape(reader *reader, ddp_array *npy, int64_t sizes[MAX_DIMS], int *dims)
{
    skip_spaces(reader);
    npy->shape_at = place(reader);
    if (!take(reader, '('))
        return unexpected(reader, "a shape");
    for (*dims = 0; !take(reader, ')'); (*dims)++) {
        char digits[24] = "";
        skip_spaces(reader);
        size_t length = strspn(reader->at, "0123456789");
        if (*dims == MAX_DIMS || length == 0 || length >= sizeof digits)
            return unexpected(reader, "a dimension");
        memcpy(digits, reader->at, length);
        if (!ddp_text_to_int(digits, &sizes[*dims]))
            return unexpected(reader, "a dimension below 2^63");
        reader->at += length;
        if (!take(reader, ',')) {
            skip_spaces(reader);
            if (*reader->at != ')')
                return unexpected(reader, "a comma or the end of the shape");
        }
    }
    if (*dims == 0)
        return ddp_error_make(DDP_ERR_INPUT, "%s: byte %" PRId64 ": found a single number; rows are expected",
                              npy->bytes.path, npy->shape_at);
    return NULL;
}

static ddp_error *read_entry(reader *reader, ddp_array *npy, int64_t sizes[MAX_DIMS], int *dims,
                             unsigned *seen)
{
    char key[32];
    DDP_TRY(take_text(reader, key));
    if (!take(reader, ':'))
        return unexpected(reader, "a colon");
    if (strcmp(key, "descr") == 0) {
        *seen |= 1;
        return read_type(reader, npy);
    }
    if (strcmp(key, "fortran_order") == 0) {
        *seen |= 2;
        return read_order(reader);
    }
    if (strcmp(key, "shape") == 0) {
        *seen |= 4;
        return read_shape(reader, npy, sizes, dims);
    }
    return unexpected(reader, "descr, fortran_order or shape");
}

static ddp_error *read_dictionary(reader *reader, ddp_array *npy)
{
    int64_t sizes[MAX_DIMS];
    int dims = 0;
    unsigned seen = 0;
    if (!take(reader, '{'))
        return unexpected(reader, "a dictionary");
    while (!take(reader, '}')) {
        DDP_TRY(read_entry(reader, npy, sizes, &dims, &seen));
        take(reader, ',');
    }
    if (seen != 7)
        return unexpected(reader, "descr, fortran_order and shape before the end");
    return ddp_array_set_shape(npy, sizes, dims);
}

/* Length and place of the dictionary, from the first bytes. */
static ddp_error *read_prefix(ddp_array *npy, int64_t *begin, int64_t *length)
{
    unsigned char buffer[12];
    const unsigned char *at;
    int64_t count = npy->bytes.count < 12 ? npy->bytes.count : 12;
    DDP_TRY(ddp_bytes_get(&npy->bytes, 0, (size_t)count, buffer, &at));
    if (count < 12 || memcmp(at, "\x93NUMPY", MAGIC_BYTES) != 0)
        return ddp_error_make(DDP_ERR_INPUT,
                              "%s: byte 0: a .npy file begins with 93 4e 55 4d 50 59 (\\x93NUMPY)",
                              npy->bytes.path);
    if (at[6] < 1 || at[6] > 3)
        return ddp_error_make(DDP_ERR_INPUT, "%s: byte 6: found version %d; versions 1, 2 and 3 are read",
                              npy->bytes.path, at[6]);
    *begin = at[6] == 1 ? 10 : 12;
    *length = at[8] | (int64_t)at[9] << 8;
    if (at[6] > 1)
        *length |= (int64_t)at[10] << 16 | (int64_t)at[11] << 24;
    if (*length > npy->bytes.count - *begin || *length > 1 << 20)
        return ddp_error_make(DDP_ERR_INPUT,
                              "%s: byte 8: found a header of %" PRId64 " bytes; the file has %" PRId64,
                              npy->bytes.path, *length, npy->bytes.count);
    return NULL;
}

static ddp_error *read_header(ddp_array *npy)
{
    int64_t begin = 0, length = 0;
    const unsigned char *at;
    void *memory;
    DDP_TRY(read_prefix(npy, &begin, &length));
    npy->header_bytes = begin + length;
    DDP_TRY(
        ddp_memory_make((size_t)length + 1, 1, &memory)); /* ends with a 0, so text functions stop there */
    ddp_error *error = length > 0 ? ddp_bytes_get(&npy->bytes, begin, (size_t)length, memory, &at) : NULL;
    if (error == NULL && length > 0 && at != memory)
        memcpy(memory, at, (size_t)length);
    reader reader = {.npy = npy, .text = memory, .at = memory, .begin = begin};
    if (error == NULL)
        error = read_dictionary(&reader, npy);
    free(memory);
    return error;
}

ddp_error *ddp_npy_open(const char *path, ddp_array *array)
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
