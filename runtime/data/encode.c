/* A text file to token ids: a window that moves over the file, and pieces taken from its front.
 *
 * A piece is taken only when it is certain where it ends; one that reaches the window's end waits until more
 * of the file has been read. So the ids do not depend on where the windows fall. */
#include "runtime/data/encode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "runtime/data/bytes.h"

#define WINDOW (1 << 20)
#define BATCH (1 << 16) /* ids */

struct ddp_encoder {
    ddp_encoder_config config;
    size_t mark_bytes;
    ddp_bytes bytes;
    int64_t offset; /* of the next piece in the file */
    unsigned char *window;
    size_t capacity;
    size_t begin, end; /* what of the window is not encoded yet */
    size_t stop;       /* pieces reach up to here: the next mark, or what may be the beginning of one */
    bool marked;       /* a mark is at `stop` */
    bool certain;      /* no piece goes on behind `stop` */
};

static bool at_end_of_file(const ddp_encoder *encoder)
{
    return encoder->offset + (int64_t)(encoder->end - encoder->begin) == encoder->bytes.count;
}

static void find_stop(ddp_encoder *encoder)
{
    const unsigned char *begin = encoder->window + encoder->begin;
    size_t left = encoder->end - encoder->begin, part = 0;
    const unsigned char *mark =
        encoder->mark_bytes > 0 ? memmem(begin, left, encoder->config.mark, encoder->mark_bytes) : NULL;
    encoder->marked = mark != NULL;
    encoder->certain = mark != NULL || at_end_of_file(encoder);
    if (!encoder->certain && encoder->mark_bytes > 0)
        part = encoder->mark_bytes - 1 < left ? encoder->mark_bytes - 1 : left;
    encoder->stop = mark != NULL ? (size_t)(mark - encoder->window) : encoder->end - part;
}

/* Brings more of the file into the window, which grows when one piece fills it. */
static ddp_error *fill(ddp_encoder *encoder)
{
    size_t kept = encoder->end - encoder->begin;
    int64_t from = encoder->offset + (int64_t)kept;
    const unsigned char *at;
    if (kept >= DDP_ENCODE_PIECE_BYTES)
        return ddp_error_help(
            ddp_error_make(DDP_ERR_INPUT,
                           "%s: byte %" PRId64 ": here begins a run of %d MiB and more without a break",
                           encoder->bytes.path, encoder->offset, DDP_ENCODE_PIECE_BYTES >> 20),
            "the rule makes one word of it; is this text? line breaks in it would help");
    if (kept > 0)
        memmove(encoder->window, encoder->window + encoder->begin, kept);
    encoder->begin = 0;
    encoder->end = kept;
    DDP_TRY(ddp_memory_grow((void **)&encoder->window, &encoder->capacity,
                            kept > WINDOW / 2 ? 2 * kept : WINDOW, 1));
    int64_t left = encoder->bytes.count - from, room = (int64_t)(encoder->capacity - kept);
    size_t count = (size_t)(left < room ? left : room);
    DDP_TRY(ddp_bytes_get(&encoder->bytes, from, count, encoder->window + kept, &at));
    if (at != encoder->window + kept)
        memcpy(encoder->window + kept, at, count);
    encoder->end += count;
    find_stop(encoder);
    return NULL;
}

ddp_error *ddp_encoder_open(const ddp_encoder_config *config, const char *path, ddp_encoder **encoder)
{
    ddp_encoder *made;
    DDP_TRY(DDP_NEW(&made));
    made->config = *config;
    made->mark_bytes = config->mark != NULL ? strlen(config->mark) : 0;
    ddp_error *error = ddp_bytes_open(path, &made->bytes);
    if (error == NULL)
        error = fill(made);
    if (error != NULL) {
        ddp_encoder_close(made);
        return error;
    }
    *encoder = made;
    return NULL;
}

void ddp_encoder_close(ddp_encoder *encoder)
{
    if (encoder == NULL)
        return;
    ddp_bytes_close(&encoder->bytes);
    free(encoder->window);
    free(encoder);
}

int64_t ddp_encoder_offset(const ddp_encoder *encoder)
{
    return encoder->offset;
}

int64_t ddp_encoder_bytes(const ddp_encoder *encoder)
{
    return encoder->bytes.count;
}

/* `limit` bytes at most; any number of bytes is a piece here. */
static ddp_error *take_bytes(ddp_encoder *encoder, const unsigned char *at, size_t left, int64_t limit,
                             ddp_ids *ids, size_t *taken)
{
    size_t count = left < BATCH ? left : BATCH;
    count = (int64_t)count < limit ? count : (size_t)limit;
    DDP_TRY(ddp_memory_grow((void **)&ids->at, &ids->capacity, ids->count + count, sizeof *ids->at));
    for (size_t i = 0; i < count; i++)
        ids->at[ids->count + i] = at[i];
    ids->count += count;
    *taken = count;
    return NULL;
}

static ddp_error *take_piece(ddp_encoder *encoder, const unsigned char *at, size_t left, ddp_ids *ids,
                             size_t *taken)
{
    size_t bad = 0;
    *taken = ddp_bpe_split(at, left, encoder->certain);
    ddp_error *error = *taken > 0 ? ddp_bpe_encode(encoder->config.bpe, at, *taken, ids, &bad) : NULL;
    if (error == NULL || ddp_error_get_kind(error) != DDP_ERR_INPUT)
        return error;
    ddp_error *located = ddp_error_make(DDP_ERR_INPUT, "%s: byte %" PRId64 ": %s", encoder->bytes.path,
                                        encoder->offset + (int64_t)bad, ddp_error_message(error));
    ddp_error_free(error);
    return located;
}

static ddp_error *take_mark(ddp_encoder *encoder, ddp_ids *ids)
{
    DDP_TRY(ddp_memory_grow((void **)&ids->at, &ids->capacity, ids->count + 1, sizeof *ids->at));
    ids->at[ids->count++] = encoder->config.mark_id;
    encoder->begin += encoder->mark_bytes;
    encoder->offset += (int64_t)encoder->mark_bytes;
    find_stop(encoder);
    return NULL;
}

ddp_error *ddp_encoder_next(ddp_encoder *encoder, int64_t until, ddp_ids *ids)
{
    size_t enough = ids->count + BATCH;
    until = until < encoder->bytes.count ? until : encoder->bytes.count;
    while (encoder->offset < until && ids->count < enough) {
        const unsigned char *at = encoder->window + encoder->begin;
        size_t left = encoder->stop - encoder->begin, taken = 0;
        if (left == 0 && encoder->marked) {
            DDP_TRY(take_mark(encoder, ids));
            continue;
        }
        if (left > 0 && encoder->config.bpe == NULL)
            DDP_TRY(take_bytes(encoder, at, left, until - encoder->offset, ids, &taken));
        else if (left > 0)
            DDP_TRY(take_piece(encoder, at, left, ids, &taken));
        encoder->begin += taken;
        encoder->offset += (int64_t)taken;
        if (taken == 0)
            DDP_TRY(fill(encoder));
    }
    return NULL;
}
