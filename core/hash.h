/* Checksums of stored bytes: XXH3, 64 bits (xxHash's header; https://github.com/Cyan4973/xxHash). They find
 * damage, not malice. */
#ifndef DDP_CORE_HASH_H
#define DDP_CORE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DDP_HASH_DIGITS 16

uint64_t ddp_hash(const void *bytes, size_t count);

/* 16 hex digits and a NUL; `text` has DDP_HASH_DIGITS + 1 bytes and is returned. */
const char *ddp_hash_write(uint64_t hash, char *text);
/* False: not 16 lower-case hex digits. */
bool ddp_hash_parse(const char *text, uint64_t *hash);

#endif
