/* One file of token ids: its header, and ids to numbers and back. */
#include "runtime/data/token_file.h"

#include <endian.h>
#include <inttypes.h>
#include <string.h>

#define PROBE_BYTES 2048 /* of a plain file, looked at for the wrong width */

static const struct {
    uint32_t magic, version;
    int width;
} known[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static const int kinds = sizeof known / sizeof known[0];

static uint32_t read_word(const unsigned char *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return le32toh(word);
}

static uint16_t read_half(const unsigned char *at)
{
    uint16_t half;
    memcpy(&half, at, sizeof half);
    return le16toh(half);
}

const char *ddp_token_width_name(int width)
{
    return width == 2 ? "uint16" : "uint32";
}

/* Index in `known`, -1 = no header of ours. header[0..2] become magic, version, count. */
static ddp_error *find_header(const ddp_bytes *bytes, uint32_t header[3], int *kind)
{
    unsigned char buffer[12];
    const unsigned char *at;
    *kind = -1;
    if (bytes->count < DDP_TOKEN_HEADER_BYTES)
        return NULL;
    DDP_TRY(ddp_bytes_get(bytes, 0, sizeof buffer, buffer, &at));
    for (int i = 0; i < 3; i++)
        header[i] = read_word(at + 4 * i);
    for (int i = 0; i < kinds; i++)
        if (header[0] == known[i].magic)
            *kind = i;
    return NULL;
}

ddp_error *ddp_token_file_has_magic(const ddp_bytes *bytes, bool *found)
{
    uint32_t header[3];
    int kind;
    DDP_TRY(find_header(bytes, header, &kind));
    *found = kind >= 0;
    return NULL;
}

static ddp_error *take_header(ddp_token_file *file, const uint32_t header[3], int kind)
{
    int64_t expected = DDP_TOKEN_HEADER_BYTES + (int64_t)header[2] * known[kind].width;
    if (header[1] != known[kind].version)
        return ddp_error_make(DDP_ERR_INPUT,
                              "%s: byte 4: found version %" PRIu32 "; version %" PRIu32 " is expected",
                              file->bytes.path, header[1], known[kind].version);
    if (file->bytes.count != expected)
        return ddp_error_make(DDP_ERR_INPUT,
                              "%s: byte 8: found %" PRIu32
                              " tokens of %d bytes, which make a file of %" PRId64 " bytes; it has %" PRId64,
                              file->bytes.path, header[2], known[kind].width, expected, file->bytes.count);
    file->begin = DDP_TOKEN_HEADER_BYTES;
    file->count = header[2];
    file->width = known[kind].width;
    file->version = (int)header[1];
    return NULL;
}

/* A uint32 file taken for uint16 has every second token 0: the ids would be wrong, and nothing would say so.
 */
static ddp_error *refuse_wrong_width(const ddp_token_file *file, const char *setting)
{
    unsigned char buffer[PROBE_BYTES];
    const unsigned char *at;
    size_t bytes = file->bytes.count < PROBE_BYTES ? (size_t)file->bytes.count / 4 * 4 : PROBE_BYTES;
    uint32_t low = 0, high = 0;
    if (file->width != 2 || bytes < 64)
        return NULL;
    DDP_TRY(ddp_bytes_get(&file->bytes, 0, bytes, buffer, &at));
    for (size_t i = 0; i < bytes; i += 4) {
        low |= read_half(at + i);
        high |= read_half(at + i + 2);
    }
    if (high != 0 || low == 0)
        return NULL;
    return ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                         "%s: every second uint16 is 0: these look like uint32 ids",
                                         file->bytes.path),
                          "%suint32", setting);
}

static ddp_error *take_plain(ddp_token_file *file, int width, const char *setting)
{
    if (width == 0)
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                             "%s: no header of a token file is at its beginning",
                                             file->bytes.path),
                              "%suint16 or uint32 reads files of plain ids", setting);
    file->width = width;
    file->count = file->bytes.count / width;
    if (file->bytes.count % width != 0)
        return ddp_error_make(DDP_ERR_INPUT,
                              "%s has %" PRId64 " bytes, which is no whole number of %d-byte ids",
                              file->bytes.path, file->bytes.count, width);
    return refuse_wrong_width(file, setting);
}

static ddp_error *open_file(const char *path, int width, const char *setting, ddp_token_file *file)
{
    uint32_t header[3];
    int kind;
    DDP_TRY(ddp_bytes_open(path, &file->bytes));
    DDP_TRY(find_header(&file->bytes, header, &kind));
    if (kind < 0)
        return take_plain(file, width, setting);
    DDP_TRY(take_header(file, header, kind));
    if (width != 0 && width != file->width)
        return ddp_error_make(DDP_ERR_INPUT, "%s: its header says ids of %d bytes, %.*s says %s", path,
                              file->width, (int)strcspn(setting, "= "), setting, ddp_token_width_name(width));
    return NULL;
}

ddp_error *ddp_token_file_open(const char *path, int width, const char *setting, ddp_token_file *file)
{
    ddp_token_file made = {.bytes.fd = -1};
    ddp_error *error = open_file(path, width, setting, &made);
    if (error != NULL)
        ddp_bytes_close(&made.bytes);
    else
        *file = made;
    return error;
}

void ddp_token_file_close(ddp_token_file *file)
{
    ddp_bytes_close(&file->bytes);
}

ddp_error *ddp_token_file_get(const ddp_token_file *file, int64_t first, int64_t count, unsigned char *buffer,
                              const unsigned char **at)
{
    return ddp_bytes_get(&file->bytes, file->begin + first * file->width, (size_t)(count * file->width),
                         buffer, at);
}

static uint32_t convert_halves(const unsigned char *restrict at, int64_t count, int32_t *restrict to)
{
    uint16_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        uint16_t id = read_half(at + 2 * i);
        to[i] = id;
        largest = id > largest ? id : largest;
    }
    return largest;
}

static uint32_t convert_words(const unsigned char *restrict at, int64_t count, int32_t *restrict to)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t id = read_word(at + 4 * i);
        to[i] = (int32_t)id;
        largest = id > largest ? id : largest;
    }
    return largest;
}

uint32_t ddp_token_file_convert(int width, const unsigned char *at, int64_t count, int32_t *to)
{
    return width == 2 ? convert_halves(at, count, to) : convert_words(at, count, to);
}

void ddp_token_file_pack(int width, const int32_t *ids, int64_t count, unsigned char *to)
{
    for (int64_t i = 0; i < count; i++) {
        uint16_t half = htole16((uint16_t)ids[i]);
        uint32_t word = htole32((uint32_t)ids[i]);
        if (width == 2)
            memcpy(to + 2 * i, &half, sizeof half);
        else
            memcpy(to + 4 * i, &word, sizeof word);
    }
}

void ddp_token_file_make_header(int width, int64_t count, unsigned char *to)
{
    memset(to, 0, DDP_TOKEN_HEADER_BYTES);
    for (int i = 0; i < kinds; i++) {
        if (known[i].width != width)
            continue;
        uint32_t words[3] = {htole32(known[i].magic), htole32(known[i].version), htole32((uint32_t)count)};
        memcpy(to, words, sizeof words);
    }
}
