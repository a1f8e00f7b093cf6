/* The tables of an encoding: filled by bpe_load.c, used by bpe.c. */
#ifndef DDP_RUNTIME_DATA_BPE_TABLES_H
#define DDP_RUNTIME_DATA_BPE_TABLES_H

#include "runtime/data/bpe.h"

/* One word that was met and its ids: 64 bytes, a line of the processor's cache. */
#define DDP_BPE_WORD_BYTES 22
#define DDP_BPE_WORD_IDS 10
#define DDP_BPE_WORDS (1 << 16) /* kept at once: 4 MiB */

typedef struct ddp_bpe_word {
    unsigned char bytes, count; /* of text; of ids. 0 bytes = empty */
    unsigned char text[DDP_BPE_WORD_BYTES];
    int32_t ids[DDP_BPE_WORD_IDS];
} ddp_bpe_word;

/* Two neighbours that become one. */
typedef struct ddp_bpe_merge {
    uint64_t pair;
    uint32_t rank; /* from 0: line of merges.txt */
    int32_t id;    /* of the result; -1 = an empty place of the table */
} ddp_bpe_merge;

/* An entry of vocab.json as bytes: bytes [at, at + count) of `text`. */
typedef struct ddp_bpe_entry {
    uint32_t at, count;
    int32_t id; /* -1 = an empty place of the table */
} ddp_bpe_entry;

/* Both hash tables have a power of two of places, at most half of them full; a collision takes the next. */
struct ddp_bpe {
    ddp_bpe_merge *merges;
    size_t merge_slots, merge_count;
    ddp_bpe_entry *entries;
    size_t entry_slots;
    char *text;
    int64_t vocab;
    int32_t byte_ids[256]; /* -1 = that byte has no entry */
    ddp_bpe_word *words;   /* DDP_BPE_WORDS of them */
};

static inline uint64_t ddp_bpe_pair(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* Multiplication by 2^64 over the golden ratio; the high bits are the mixed ones. */
static inline size_t ddp_bpe_slot(uint64_t key, size_t slots)
{
    return (size_t)(key * 0x9E3779B97F4A7C15u >> 32) & (slots - 1);
}

#endif
