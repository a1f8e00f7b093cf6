/* Checksums of stored bytes. */
#include "core/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t ddp_hash(const void *bytes, size_t count)
{
    return XXH3_64bits(bytes, count);
}

const char *ddp_hash_write(uint64_t hash, char *text)
{
    snprintf(text, DDP_HASH_DIGITS + 1, "%016" PRIx64, hash);
    return text;
}

bool ddp_hash_parse(const char *text, uint64_t *hash)
{
    if (strlen(text) != DDP_HASH_DIGITS || strspn(text, "0123456789abcdef") != DDP_HASH_DIGITS)
        return false;
    *hash = strtoull(text, NULL, 16);
    return true;
}
