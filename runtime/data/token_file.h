/* One file of token ids, little-endian uint16 or uint32, as other trainers write them: with llm.c's header or
 * plain. Windows, shards and samples are the business of tokens.c.
 *
 * The header is 256 int32: magic, version, number of ids, zeros. Magic 20240520 version 1 is uint16, magic
 * 20240801 version 7 is uint32. */
#ifndef DDP_RUNTIME_DATA_TOKEN_FILE_H
#define DDP_RUNTIME_DATA_TOKEN_FILE_H

#include "runtime/data/bytes.h"

#define DDP_TOKEN_HEADER_BYTES 1024
#define DDP_TOKEN_HEADER_MAX INT32_MAX /* ids that a header can count */

typedef struct ddp_token_file {
    ddp_bytes bytes;
    int64_t begin; /* byte of the first id */
    int64_t count; /* ids */
    int width;     /* bytes an id: 2 or 4 */
    int version;   /* of the header; 0 = plain */
} ddp_token_file;

/* Opens it; `width` is what the ids of a plain file are, 0 = only files with a header. `setting` is how a
 * person says the width, for messages: "data.dtype=". INPUT: as ddp_bytes_open; a header of another version
 * or width, or that counts other than the file holds; no header though width is 0; plain ids that are not of
 * this width. On an error the file is closed. */
DDP_USE_RESULT ddp_error *ddp_token_file_open(const char *path, int width, const char *setting,
                                              ddp_token_file *file);
void ddp_token_file_close(ddp_token_file *file); /* a zeroed one is fine */

/* Whether the bytes begin with the magic of such a header, whatever follows. IO. */
DDP_USE_RESULT ddp_error *ddp_token_file_has_magic(const ddp_bytes *bytes, bool *found);

/* The bytes of ids [first, first + count): see ddp_bytes_get. */
DDP_USE_RESULT ddp_error *ddp_token_file_get(const ddp_token_file *file, int64_t first, int64_t count,
                                             unsigned char *buffer, const unsigned char **at);

/* Those bytes as numbers. Returns the largest; ids from 2^31 on come out negative. */
uint32_t ddp_token_file_convert(int width, const unsigned char *at, int64_t count, int32_t *to);

/* Numbers as those bytes; each fits the width. */
void ddp_token_file_pack(int width, const int32_t *ids, int64_t count, unsigned char *to);

/* Writes a header, DDP_TOKEN_HEADER_BYTES of it, for `count` ids, at most DDP_TOKEN_HEADER_MAX. */
void ddp_token_file_make_header(int width, int64_t count, unsigned char *to);

const char *ddp_token_width_name(int width); /* "uint16" */

#endif
