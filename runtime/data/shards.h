/* Token ids into files with llm.c's header, PREFIX_000000.bin, PREFIX_000001.bin, ..., each with the same
 * number of ids but the last. A file appears whole or not at all, and a set that is not finished is taken
 * back. */
#ifndef DDP_RUNTIME_DATA_SHARDS_H
#define DDP_RUNTIME_DATA_SHARDS_H

#include <stddef.h>
#include <stdint.h>

#include <ddp/error.h>

#define DDP_SHARDS_MAX 1000000 /* six digits */

typedef struct ddp_shards ddp_shards;

typedef struct ddp_shards_config {
    const char *prefix; /* borrowed until close */
    int width;          /* bytes an id, 2 or 4 */
    int64_t shard_ids;  /* in each file, 1 to DDP_TOKEN_HEADER_MAX */
} ddp_shards_config;

/* Whether a file of such a set is there already: INPUT, names it. */
DDP_USE_RESULT ddp_error *ddp_shards_check(const char *prefix);

/* Makes no file yet. MEMORY. */
DDP_USE_RESULT ddp_error *ddp_shards_open(const ddp_shards_config *config, ddp_shards **shards);

/* Appends ids, each of which fits the width. IO (names the file), INPUT (above DDP_SHARDS_MAX files). */
DDP_USE_RESULT ddp_error *ddp_shards_add(ddp_shards *shards, const int32_t *ids, int64_t count);

/* Completes the last file; the set stays. IO. */
DDP_USE_RESULT ddp_error *ddp_shards_finish(ddp_shards *shards);

int64_t ddp_shards_ids(const ddp_shards *shards);
int64_t ddp_shards_files(const ddp_shards *shards);

/* Frees; what was not finished leaves no file. NULL is fine. */
void ddp_shards_close(ddp_shards *shards);

#endif
