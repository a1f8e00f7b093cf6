/* The bytes of a YAML text: are they text at all, and which line and column is a byte in.
 *
 * libyaml counts characters and takes Unicode's rarer line separators for line ends; editors count neither
 * so. Everything here is in bytes, lines end with LF, CRLF or CR. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/config/yaml_parts.h"
#include "core/memory.h"

size_t yaml_decode(const char *at, const char *end, unsigned *code)
{
    static const unsigned lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)*at;
    size_t length = first < 0x80                    ? 1
                    : first >= 0xC2 && first < 0xE0 ? 2
                    : (first & 0xF0) == 0xE0        ? 3
                    : first >= 0xF0 && first < 0xF5 ? 4
                                                    : 0;
    if (length == 0 || (size_t)(end - at) < length)
        return 0;
    unsigned value = length == 1 ? first : first & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if (((unsigned char)at[i] & 0xC0) != 0x80)
            return 0;
        value = value << 6 | ((unsigned char)at[i] & 0x3F);
    }
    if (value < lowest[length] || (value >= 0xD800 && value < 0xE000) || value > 0x10FFFF)
        return 0;
    *code = value;
    return length;
}

bool yaml_is_printable(unsigned code)
{
    if (code < 0xA0)
        return code == '\t' || code == '\n' || code == '\r' || (code >= 0x20 && code < 0x7F) || code == 0x85;
    return code != 0xFEFF && code != 0xFFFE && code != 0xFFFF;
}

static ddp_error *refuse_byte(const ddp_yaml *yaml, size_t offset, const char *what)
{
    ddp_place place = yaml_place(yaml, offset, 1);
    place.text = NULL; /* not fit for a terminal */
    return ddp_error_at(DDP_ERR_INPUT, place, "byte %zu is %s: this is not a text file in UTF-8", offset,
                        what);
}

static bool is_utf16(const char *bytes, size_t count)
{
    if (count < 2)
        return false;
    return memcmp(bytes, "\xFF\xFE", 2) == 0 || memcmp(bytes, "\xFE\xFF", 2) == 0 ||
           (bytes[0] == '\0') != (bytes[1] == '\0');
}

ddp_error *yaml_check_bytes(const ddp_yaml *yaml, const char *bytes, size_t count)
{
    const char *end = bytes + count;
    if (is_utf16(bytes, count))
        return ddp_error_help(ddp_error_at(DDP_ERR_INPUT, yaml_place(yaml, 0, 0),
                                           "byte 0 begins UTF-16 (or UTF-32) text; job files are UTF-8"),
                              "save it as UTF-8: iconv -f UTF-16 -t UTF-8");
    for (const char *at = bytes; at < end;) {
        unsigned code;
        char what[48];
        size_t offset = (size_t)(at - bytes), length = yaml_decode(at, end, &code);
        if (length == 0)
            snprintf(what, sizeof what, "0x%02X, not UTF-8", (unsigned char)*at);
        else if (!yaml_is_printable(code))
            snprintf(what, sizeof what, code == 0 ? "NUL" : "the control character U+%04X", code);
        if (length == 0 || !yaml_is_printable(code))
            return refuse_byte(yaml, offset, what);
        at += length;
    }
    return NULL;
}

ddp_error *yaml_find_lines(ddp_yaml *yaml)
{
    void *lines = NULL;
    size_t capacity = 0;
    for (size_t at = 0;;) {
        ddp_error *error = ddp_memory_grow(&lines, &capacity, yaml->line_count + 1, sizeof *yaml->lines);
        yaml->lines = lines;
        if (error != NULL)
            return error;
        yaml->lines[yaml->line_count++] = at;
        while (at < yaml->count && yaml->bytes[at] != '\n' && yaml->bytes[at] != '\r')
            at++;
        if (at == yaml->count)
            return NULL;
        at += at + 1 < yaml->count && memcmp(yaml->bytes + at, "\r\n", 2) == 0 ? 2 : 1;
    }
}

ddp_place yaml_place(const ddp_yaml *yaml, size_t offset, size_t length)
{
    ddp_place place = {
        .file = yaml->name, .column = (int)offset + 1, .length = (int)length, .text = yaml->shown};
    if (yaml->lines == NULL)
        return place;
    size_t low = 0, high = yaml->line_count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        *(yaml->lines[middle] <= offset ? &low : &high) = middle;
    }
    place.line = (int)low + 1;
    place.column = (int)(offset - yaml->lines[low]) + 1;
    place.text = yaml->shown + yaml->lines[low];
    size_t left = strlen(place.text), used = (size_t)place.column - 1;
    left = left > used ? left - used : 0;
    place.length = (int)(length < left ? length : left);
    return place;
}
