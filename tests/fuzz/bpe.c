/* GPT-2's tables of any bytes: an input is vocab.json, NUL, merges.txt, NUL, a text that is cut into pieces
 * and encoded with them. Its pieces are the whole text, and their ids are in the vocabulary. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "runtime/data/bpe.h"

/* The part up to the next NUL; moves *at behind it. */
static size_t next_part(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *begin = *at, *nul = memchr(begin, '\0', (size_t)(end - begin));
    *at = nul != NULL ? nul + 1 : end;
    return (size_t)((nul != NULL ? nul : end) - begin);
}

static void encode(ddp_bpe *bpe, const uint8_t *text, size_t bytes)
{
    ddp_ids ids = {0};
    for (size_t done = 0, piece; done < bytes; done += piece) {
        size_t bad = SIZE_MAX;
        piece = ddp_bpe_split(text + done, bytes - done, true);
        ddp_assert(piece > 0 && piece <= bytes - done);
        ddp_error *error = ddp_bpe_encode(bpe, text + done, piece, &ids, &bad);
        ddp_assert(error == NULL || bad < piece);
        fuzz_drop(error);
    }
    for (size_t i = 0; i < ids.count; i++)
        ddp_assert(ids.at[i] >= 0 && ids.at[i] < ddp_bpe_vocab(bpe));
    free(ids.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const uint8_t *end = data + bytes, *merges = data, *text;
    ddp_bpe *bpe;
    size_t vocab_bytes = next_part(&merges, end);
    text = merges;
    size_t merges_bytes = next_part(&text, end);
    ddp_error *error =
        ddp_bpe_load(fuzz_file(data, vocab_bytes), fuzz_second_file(merges, merges_bytes), &bpe);
    if (error == NULL) {
        encode(bpe, text, (size_t)(end - text));
        ddp_bpe_free(bpe);
    }
    fuzz_drop(error);
    return 0;
}
