/* A text file to token ids, part by part, in bounded memory: files of any size. Which rule makes ids of text
 * is bpe.h's business; where the ids go is the caller's.
 *
 * A text that marks the ends of documents (GPT-2's "<|endoftext|>") can be given: where it stands in the file
 * it is one id, and the text on either side of it is cut as if the file ended there. */
#ifndef DDP_RUNTIME_DATA_ENCODE_H
#define DDP_RUNTIME_DATA_ENCODE_H

#include "runtime/data/bpe.h"

/* Pieces, runs of letters without a blank, say, are shorter than this. */
#define DDP_ENCODE_PIECE_BYTES (16 << 20)

typedef struct ddp_encoder ddp_encoder;

/* Pointers are borrowed and outlive the encoder. */
typedef struct ddp_encoder_config {
    ddp_bpe *bpe;     /* NULL = a byte is a token: ids 0 to 255 */
    const char *mark; /* NULL or "" = none */
    int32_t mark_id;
} ddp_encoder_config;

/* INPUT: as ddp_bytes_open. */
DDP_USE_RESULT ddp_error *ddp_encoder_open(const ddp_encoder_config *config, const char *path,
                                           ddp_encoder **encoder);
void ddp_encoder_close(ddp_encoder *encoder); /* NULL is fine */

/* Appends the ids of some more text, around 64 Ki of them, but none of text at or behind byte `until` (a
 * piece that begins before it is encoded whole). Errors: INPUT with file and byte: a byte without an entry in
 * the vocabulary, a piece of DDP_ENCODE_PIECE_BYTES or more. IO, MEMORY. */
DDP_USE_RESULT ddp_error *ddp_encoder_next(ddp_encoder *encoder, int64_t until, ddp_ids *ids);

int64_t ddp_encoder_offset(const ddp_encoder *encoder); /* bytes encoded so far */
int64_t ddp_encoder_bytes(const ddp_encoder *encoder);  /* of the file */

#endif
