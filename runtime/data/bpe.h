/* GPT-2's byte-level byte-pair encoding: bytes of text to token ids, given its vocab.json and merges.txt.
 *
 * Text is cut into pieces by a fixed rule (ddp_bpe_split). Inside a piece every byte is a symbol, and the
 * two neighbours whose pair stands first in merges.txt become one symbol, the leftmost first, until no pair
 * is listed. Any bytes can be encoded, valid UTF-8 or not. Training such tables is not done here.
 *
 * Sources: Radford et al., "Language models are unsupervised multitask learners", 2019, section 2.2; Sennrich
 * et al., "Neural machine translation of rare words with subword units", ACL 2016. */
#ifndef DDP_RUNTIME_DATA_BPE_H
#define DDP_RUNTIME_DATA_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ddp/error.h>

typedef struct ddp_bpe ddp_bpe;

/* Ids that grow; zeroed = empty; `at` is freed with free(). */
typedef struct ddp_ids {
    int32_t *at;
    size_t count, capacity;
} ddp_ids;

/* INPUT (with file, line and column): not JSON, an id that is no whole number below 2^24 or is given twice;
 * a line of merges.txt that is not two symbols, or names or makes a symbol that vocab.json does not have. */
DDP_USE_RESULT ddp_error *ddp_bpe_load(const char *vocab_path, const char *merges_path, ddp_bpe **bpe);
void ddp_bpe_free(ddp_bpe *bpe); /* NULL is fine */

int64_t ddp_bpe_vocab(const ddp_bpe *bpe);  /* the largest id + 1 */
int64_t ddp_bpe_merges(const ddp_bpe *bpe); /* their number */

/* The id of an entry of the vocabulary, -1 = there is none of these bytes. */
int64_t ddp_bpe_find(const ddp_bpe *bpe, const void *bytes, size_t count);

/* Bytes of the first piece of a text of which `left` (at least 1) bytes are there; 0 = that depends on what
 * follows, which never happens where `last` says that nothing does. The rule is GPT-2's:
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * A byte outside valid UTF-8 counts as a character that is neither letter, number nor space. */
size_t ddp_bpe_split(const unsigned char *at, size_t left, bool last);

/* Appends the ids of one piece. The tables keep the ids of words they met lately: one thread at a time.
 * INPUT: a byte that has no entry in the vocabulary; `*bad` is then its place in the piece. MEMORY. */
DDP_USE_RESULT ddp_error *ddp_bpe_encode(ddp_bpe *bpe, const unsigned char *piece, size_t bytes, ddp_ids *ids,
                                         size_t *bad);

#endif
