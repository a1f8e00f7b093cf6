/* Text as bytes: a token is one byte of UTF-8, so the vocabulary is 256 and no tokenizer is needed.
 *
 * Sample `id` is the window of T + 1 bytes from id * T on: T tokens and their T successors. Windows share
 * only that one byte, so every byte but the first is predicted once an epoch; what is left at the end is too
 * short for a window and is dropped. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text.h"
#include "runtime/data/bytes.h"
#include "runtime/data/datasets.h"
#include "runtime/data/shape.h"

#define VOCAB 256
#define CHUNK 4096

typedef struct text {
    ddp_dataset base;
    ddp_bytes bytes;
} text;

/* Window by chunks of it: byte i is input i and, unless it is the first, target i - 1. */
static ddp_error *read_window(const text *data, int64_t id, int32_t *input, int32_t *target)
{
    int64_t tokens = data->base.sample.input_count;
    for (int64_t done = 0; done < tokens; done += CHUNK) {
        unsigned char buffer[CHUNK + 1];
        const unsigned char *at;
        int64_t count = tokens - done < CHUNK ? tokens - done : CHUNK;
        DDP_TRY(ddp_bytes_get(&data->bytes, id * tokens + done, (size_t)count + 1, buffer, &at));
        for (int64_t i = 0; i < count; i++) {
            input[done + i] = at[i];
            target[done + i] = at[i + 1];
        }
    }
    return NULL;
}

static ddp_error *read_windows(ddp_dataset *dataset, const int64_t *ids, int64_t count, void *input,
                               void *target)
{
    int64_t tokens = dataset->sample.input_count;
    for (int64_t i = 0; i < count; i++) {
        ddp_assert(ids[i] >= 0 && ids[i] < dataset->count);
        DDP_TRY(read_window((text *)dataset, ids[i], (int32_t *)input + i * tokens,
                            (int32_t *)target + i * tokens));
    }
    return NULL;
}

/* The length of the UTF-8 character at `at`, or 0: stray or missing continuation, overlong, surrogate, or
 * above U+10FFFF (RFC 3629). A character that `left` cuts short counts as good: the rest was not read. */
static size_t character_bytes(const unsigned char *at, size_t left)
{
    unsigned char first = at[0];
    size_t length = first < 0x80   ? 1
                    : first < 0xC2 ? 0
                    : first < 0xE0 ? 2
                    : first < 0xF0 ? 3
                    : first < 0xF5 ? 4
                                   : 0;
    for (size_t i = 1; i < length && i < left; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    if (length > 2 && left > 1) {
        bool overlong = (first == 0xE0 && at[1] < 0xA0) || (first == 0xF0 && at[1] < 0x90);
        bool outside = (first == 0xED && at[1] > 0x9F) || (first == 0xF4 && at[1] > 0x8F);
        if (overlong || outside)
            return 0;
    }
    return length;
}

/* Only of files that are held in memory: a large one would be read twice from a disk. */
static ddp_error *check_utf8(const ddp_bytes *bytes)
{
    if (bytes->memory == NULL)
        return NULL;
    for (size_t at = 0, end = (size_t)bytes->count; at < end;) {
        size_t length = character_bytes(bytes->memory + at, end - at);
        if (length == 0 || bytes->memory[at] == '\0')
            return ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                                 "%s: byte %zu: found %02x; UTF-8 text is expected",
                                                 bytes->path, at, bytes->memory[at]),
                                  "iconv -t utf-8 converts text; other bytes need another data.format");
        at += length;
    }
    return NULL;
}

static ddp_error *check_want(const ddp_sample *want)
{
    if (!ddp_shape_is_tokens(want))
        return ddp_shape_refuse("text", "tokens and their successors", want);
    if (want->classes >= VOCAB)
        return NULL;
    return ddp_error_help(
        ddp_error_make(DDP_ERR_INPUT,
                       "data.format: text makes byte tokens 0 to 255; the model takes ids below %" PRId64,
                       want->classes),
        "model.vocab: %d", VOCAB);
}

static ddp_error *open_file(text *data, const ddp_dataset_config *config)
{
    int64_t tokens = config->want.input_count;
    char count[32], size[32];
    DDP_TRY(check_want(&config->want));
    DDP_TRY(ddp_bytes_open(config->path, &data->bytes));
    if (data->bytes.count <= tokens)
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                             "%s has %" PRId64 " byte%s; one sample needs %" PRId64
                                             " (%" PRId64 " tokens and their successors)",
                                             config->path, data->bytes.count,
                                             data->bytes.count == 1 ? "" : "s", tokens + 1, tokens),
                              "more text, or a shorter model.context");
    DDP_TRY(check_utf8(&data->bytes));
    data->base.count = (data->bytes.count - 1) / tokens;
    snprintf(data->base.description, sizeof data->base.description,
             "%s windows of %" PRId64 " bytes, %s of text",
             ddp_text_from_count(data->base.count, count, sizeof count), tokens,
             ddp_text_from_bytes((double)data->bytes.count, size, sizeof size));
    return NULL;
}

static void close_text(ddp_dataset *dataset)
{
    ddp_bytes_close(&((text *)dataset)->bytes);
    free(dataset);
}

static ddp_error *open_text(const ddp_dataset_config *config, ddp_dataset **dataset)
{
    text *made;
    DDP_TRY(DDP_NEW(&made));
    made->base.ops = &ddp_dataset_text_ops;
    made->base.sample = config->want;
    ddp_error *error = open_file(made, config);
    if (error != NULL) {
        close_text(&made->base);
        return ddp_error_locate(error, config->place);
    }
    *dataset = &made->base;
    return NULL;
}

const ddp_dataset_ops ddp_dataset_text_ops = {
    .name = "text",
    .help = "one UTF-8 text file; each byte is a token",
    .open = open_text,
    .read = read_windows,
    .close = close_text,
};
