/* Encoding one piece: what lately met words became, or merging by rank.
 *
 * Most words of a text are few and frequent, so nearly every piece is found among the words kept in a table
 * of fixed size. For the others short and long pieces differ: up to SHORT symbols the best pair is found by
 * looking at all of them; above, a heap finds it, so that a line of a million letters takes
 * n log n steps and not n squared. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/rng.h"
#include "runtime/data/bpe_tables.h"

#define SHORT 48
#define NO_RANK UINT32_MAX

static const ddp_bpe_merge *find_merge(const ddp_bpe *bpe, int32_t left, int32_t right)
{
    uint64_t key = ddp_bpe_pair(left, right);
    for (size_t slot = ddp_bpe_slot(key, bpe->merge_slots);; slot = (slot + 1) & (bpe->merge_slots - 1)) {
        const ddp_bpe_merge *merge = &bpe->merges[slot];
        if (merge->id < 0)
            return NULL;
        if (merge->pair == key)
            return merge;
    }
}

static uint32_t rank_of(const ddp_bpe *bpe, int32_t left, int32_t right)
{
    const ddp_bpe_merge *merge = find_merge(bpe, left, right);
    return merge != NULL ? merge->rank : NO_RANK;
}

/* The bytes' own ids; a byte that has none is an error. */
static ddp_error *start_symbols(const ddp_bpe *bpe, const unsigned char *piece, size_t bytes, int32_t *ids,
                                size_t *bad)
{
    for (size_t i = 0; i < bytes; i++) {
        ids[i] = bpe->byte_ids[piece[i]];
        if (ids[i] >= 0)
            continue;
        *bad = i;
        return ddp_error_make(DDP_ERR_INPUT, "found byte 0x%02X, for which the vocabulary has no entry",
                              piece[i]);
    }
    return NULL;
}

/* Merges in place; returns how many symbols are left. */
static size_t merge_short(const ddp_bpe *bpe, int32_t *ids, size_t count)
{
    uint32_t ranks[SHORT];
    for (size_t i = 0; i + 1 < count; i++)
        ranks[i] = rank_of(bpe, ids[i], ids[i + 1]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == NO_RANK)
            break;
        ids[best] = find_merge(bpe, ids[best], ids[best + 1])->id;
        count--;
        for (size_t i = best + 1; i < count; i++) {
            ids[i] = ids[i + 1];
            ranks[i - 1] = ranks[i];
        }
        if (best + 1 < count)
            ranks[best] = rank_of(bpe, ids[best], ids[best + 1]);
        if (best > 0)
            ranks[best - 1] = rank_of(bpe, ids[best - 1], ids[best]);
    }
    return count;
}

/* A piece as a list of symbols; place i is the symbol that begins at byte i. */
typedef struct chain {
    int32_t *ids;
    uint32_t *next, *before, *ranks; /* ranks: of the pair of i and its successor; NO_RANK = no merge */
    uint64_t *heap;                  /* rank << 32 | place, the smallest first; outdated ones stay in it */
    size_t heap_count, heap_capacity;
} chain;

static ddp_error *heap_add(chain *chain, uint64_t item)
{
    DDP_TRY(
        ddp_memory_grow((void **)&chain->heap, &chain->heap_capacity, chain->heap_count + 1, sizeof item));
    size_t at = chain->heap_count++;
    for (; at > 0 && chain->heap[(at - 1) / 2] > item; at = (at - 1) / 2)
        chain->heap[at] = chain->heap[(at - 1) / 2];
    chain->heap[at] = item;
    return NULL;
}

static uint64_t heap_take(chain *chain)
{
    uint64_t first = chain->heap[0], item = chain->heap[--chain->heap_count];
    size_t at = 0, count = chain->heap_count;
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && chain->heap[child + 1] < chain->heap[child];
        if (item <= chain->heap[child])
            break;
        chain->heap[at] = chain->heap[child];
    }
    chain->heap[at] = item;
    return first;
}

/* Looks up the pair that begins at `place`, of a piece of `count` bytes. */
static ddp_error *rank_place(const ddp_bpe *bpe, chain *chain, uint32_t place, size_t count)
{
    uint32_t next = chain->next[place];
    chain->ranks[place] = next < count ? rank_of(bpe, chain->ids[place], chain->ids[next]) : NO_RANK;
    if (chain->ranks[place] == NO_RANK)
        return NULL;
    return heap_add(chain, (uint64_t)chain->ranks[place] << 32 | place);
}

static ddp_error *merge_chain(const ddp_bpe *bpe, chain *chain, size_t count)
{
    while (chain->heap_count > 0) {
        uint64_t item = heap_take(chain);
        uint32_t place = (uint32_t)item;
        if (chain->ranks[place] != item >> 32)
            continue;
        uint32_t gone = chain->next[place], after = chain->next[gone];
        chain->ids[place] = find_merge(bpe, chain->ids[place], chain->ids[gone])->id;
        chain->ranks[gone] = NO_RANK;
        chain->next[place] = after;
        if (after < count)
            chain->before[after] = place;
        DDP_TRY(rank_place(bpe, chain, place, count));
        if (place > 0)
            DDP_TRY(rank_place(bpe, chain, chain->before[place], count));
    }
    return NULL;
}

static ddp_error *merge_long(const ddp_bpe *bpe, int32_t *ids, size_t *count)
{
    chain chain = {.ids = ids};
    void *memory = NULL;
    size_t kept = 0;
    ddp_error *error = ddp_memory_make(*count * 3, sizeof(uint32_t), &memory);
    if (error != NULL)
        return error;
    chain.next = memory;
    chain.before = chain.next + *count;
    chain.ranks = chain.before + *count;
    for (size_t i = 0; i < *count; i++) {
        chain.next[i] = (uint32_t)i + 1;
        chain.before[i] = (uint32_t)i - 1;
    }
    for (size_t i = 0; i < *count && error == NULL; i++)
        error = rank_place(bpe, &chain, (uint32_t)i, *count);
    if (error == NULL)
        error = merge_chain(bpe, &chain, *count);
    for (size_t i = 0; error == NULL && i < *count; i = chain.next[i])
        ids[kept++] = ids[i];
    *count = kept;
    free(chain.heap);
    free(memory);
    return error;
}

static ddp_error *encode(const ddp_bpe *bpe, const unsigned char *piece, size_t bytes, ddp_ids *ids,
                         size_t *bad)
{
    int32_t *to = ids->at + ids->count;
    size_t count = bytes;
    DDP_TRY(start_symbols(bpe, piece, bytes, to, bad));
    if (bytes <= SHORT)
        count = merge_short(bpe, to, bytes);
    else
        DDP_TRY(merge_long(bpe, to, &count));
    ids->count += count;
    return NULL;
}

/* Where a word may be kept: two places beside each other, the one met last in the first. */
static ddp_bpe_word *place_of(const ddp_bpe *bpe, const unsigned char *piece, size_t bytes)
{
    return &bpe->words[ddp_rng_hash(0, piece, bytes) % DDP_BPE_WORDS & ~(uint64_t)1];
}

static bool is_word(const ddp_bpe_word *word, const unsigned char *piece, size_t bytes)
{
    return word->bytes == bytes && memcmp(word->text, piece, bytes) == 0;
}

ddp_error *ddp_bpe_encode(ddp_bpe *bpe, const unsigned char *piece, size_t bytes, ddp_ids *ids, size_t *bad)
{
    size_t before = ids->count;
    DDP_TRY(ddp_memory_grow((void **)&ids->at, &ids->capacity, before + bytes + DDP_BPE_WORD_IDS,
                            sizeof *ids->at));
    if (bytes > DDP_BPE_WORD_BYTES)
        return encode(bpe, piece, bytes, ids, bad);
    ddp_bpe_word *word = place_of(bpe, piece, bytes);
    for (int way = 0; way < 2; way++) {
        if (!is_word(&word[way], piece, bytes))
            continue;
        memcpy(ids->at + before, word[way].ids, sizeof word->ids);
        ids->count += word[way].count;
        return NULL;
    }
    DDP_TRY(encode(bpe, piece, bytes, ids, bad));
    size_t count = ids->count - before;
    if (count > DDP_BPE_WORD_IDS)
        return NULL;
    word[1] = word[0];
    word->bytes = (unsigned char)bytes;
    word->count = (unsigned char)count;
    memcpy(word->text, piece, bytes);
    memcpy(word->ids, ids->at + before, count * sizeof *word->ids);
    return NULL;
}
