/* Token files: little-endian uint16 or uint32 ids, as other trainers write them, in one file or in many
 * shards.
 *
 * With llm.c's header (256 int32: magic, version, token count, zeros; magic 20240520 version 1 is uint16,
 * magic 20240801 version 7 is uint32) or without one (then data.dtype says the width). data.train may be a
 * pattern
 * ("data/train_*.bin"): its files in the order of their names.
 *
 * Sample `id` is a window of T + 1 tokens: T of them and their T successors. Windows share only that one
 * token and never reach from one shard into the next; what is left at a shard's end is too short for a window
 * and is dropped. */
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/text.h"
#include "runtime/data/bytes.h"
#include "runtime/data/datasets.h"
#include "runtime/data/shape.h"

#define HEADER_BYTES 1024
#define CHUNK 2048 /* tokens converted at a time */

enum { WIDTH_AUTO, WIDTH_16, WIDTH_32 };

typedef struct tokens_settings {
    int dtype;
} tokens_settings;

static const char *const dtypes[] = {"auto", "uint16", "uint32", NULL};

static const ddp_field fields[] = {
    {.key = "dtype",
     .type = DDP_FIELD_CHOICE,
     .offset = offsetof(tokens_settings, dtype),
     .fallback = "auto",
     .choices = dtypes,
     .help = "type of the ids in files without a header; auto: the header says it"},
    DDP_FIELD_END,
};

typedef struct shard {
    ddp_bytes bytes;
    int64_t begin; /* byte of the first token */
    int64_t tokens;
    int width;     /* bytes a token */
    int64_t first; /* sample id of its first window */
} shard;

typedef struct token_files {
    ddp_dataset base;
    shard *shards;
    size_t count;
} token_files;

static int64_t read_little(const unsigned char *at, int width)
{
    int64_t value = 0;
    for (int i = width - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

/* Fills the shard from its header; *found says whether there was one. */
static ddp_error *read_header(shard *shard, bool *found)
{
    static const struct {
        int64_t magic, version;
        int width;
    } known[] = {{20240520, 1, 2}, {20240801, 7, 4}};
    unsigned char buffer[12];
    const unsigned char *at;
    *found = false;
    if (shard->bytes.count < HEADER_BYTES)
        return NULL;
    DDP_TRY(ddp_bytes_get(&shard->bytes, 0, sizeof buffer, buffer, &at));
    int64_t magic = read_little(at, 4), version = read_little(at + 4, 4), tokens = read_little(at + 8, 4);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (magic != known[i].magic)
            continue;
        if (version != known[i].version)
            return ddp_error_make(DDP_ERR_INPUT,
                                  "%s: byte 4: found version %" PRId64 "; version %" PRId64 " is expected",
                                  shard->bytes.path, version, known[i].version);
        if (shard->bytes.count != HEADER_BYTES + tokens * known[i].width)
            return ddp_error_make(DDP_ERR_INPUT,
                                  "%s: byte 8: found %" PRId64
                                  " tokens of %d bytes, which make a file of %" PRId64
                                  " bytes; it has %" PRId64,
                                  shard->bytes.path, tokens, known[i].width,
                                  HEADER_BYTES + tokens * known[i].width, shard->bytes.count);
        shard->begin = HEADER_BYTES;
        shard->tokens = tokens;
        shard->width = known[i].width;
        *found = true;
    }
    return NULL;
}

/* A uint32 file taken for uint16 has every second token 0: the ids would be wrong, and nothing would say so.
 */
static ddp_error *refuse_wrong_width(const shard *shard)
{
    unsigned char buffer[CHUNK];
    const unsigned char *at;
    size_t bytes = shard->bytes.count < CHUNK ? (size_t)shard->bytes.count / 4 * 4 : CHUNK;
    bool low = false, high = false;
    if (shard->width != 2 || bytes < 64)
        return NULL;
    DDP_TRY(ddp_bytes_get(&shard->bytes, 0, bytes, buffer, &at));
    for (size_t i = 0; i < bytes; i += 4) {
        low = low || at[i] != 0 || at[i + 1] != 0;
        high = high || at[i + 2] != 0 || at[i + 3] != 0;
    }
    if (high || !low)
        return NULL;
    return ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                         "%s: every second uint16 is 0: these look like uint32 ids",
                                         shard->bytes.path),
                          "data.dtype=uint32");
}

static ddp_error *read_plain(shard *shard, int dtype)
{
    if (dtype == WIDTH_AUTO)
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                             "%s: no header of a token file is at its beginning",
                                             shard->bytes.path),
                              "data.dtype=uint16 or uint32 reads files of plain ids");
    shard->width = dtype == WIDTH_16 ? 2 : 4;
    shard->tokens = shard->bytes.count / shard->width;
    if (shard->bytes.count % shard->width != 0)
        return ddp_error_make(DDP_ERR_INPUT,
                              "%s has %" PRId64 " bytes, which is no whole number of %d-byte ids",
                              shard->bytes.path, shard->bytes.count, shard->width);
    return refuse_wrong_width(shard);
}

static ddp_error *open_shard(const char *path, int dtype, shard *shard)
{
    bool found;
    DDP_TRY(ddp_bytes_open(path, &shard->bytes));
    DDP_TRY(read_header(shard, &found));
    if (!found)
        return read_plain(shard, dtype);
    if (dtype != WIDTH_AUTO && (dtype == WIDTH_16 ? 2 : 4) != shard->width)
        return ddp_error_make(DDP_ERR_INPUT, "%s: its header says ids of %d bytes, data.dtype says %s", path,
                              shard->width, dtypes[dtype]);
    return NULL;
}

/* A file of exactly this name comes before a pattern. */
static bool is_pattern(const char *path)
{
    return strpbrk(path, "*?[") != NULL && access(path, F_OK) != 0;
}

static ddp_error *open_shards(token_files *data, const char *const *paths, size_t count, int dtype)
{
    int64_t window = data->base.sample.input_count;
    void *memory;
    DDP_TRY(ddp_memory_make(count, sizeof *data->shards, &memory));
    data->shards = memory;
    for (; data->count < count; data->count++) {
        shard *shard = &data->shards[data->count];
        shard->bytes.fd = -1;
        ddp_error *error = open_shard(paths[data->count], dtype, shard);
        if (error != NULL) {
            ddp_bytes_close(&shard->bytes);
            return error;
        }
        shard->first = data->base.count;
        data->base.count += shard->tokens > 0 ? (shard->tokens - 1) / window : 0;
    }
    return NULL;
}

static ddp_error *open_all(token_files *data, const ddp_dataset_config *config)
{
    int dtype = ((const tokens_settings *)config->settings)->dtype;
    glob_t found = {0};
    if (!is_pattern(config->path))
        return open_shards(data, (const char *const *)&config->path, 1, dtype);
    int code = glob(config->path, 0, NULL, &found);
    ddp_error *error = NULL;
    if (code == GLOB_NOMATCH)
        error = ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "%s: no file is named like this", config->path),
                               "relative paths start from where ddprun was called");
    else if (code != 0)
        error = ddp_error_make(DDP_ERR_IO, "%s: the files cannot be listed", config->path);
    else
        error = open_shards(data, (const char *const *)found.gl_pathv, found.gl_pathc, dtype);
    globfree(&found);
    return error;
}

static int64_t count_tokens(const token_files *data)
{
    int64_t tokens = 0;
    for (size_t i = 0; i < data->count; i++)
        tokens += data->shards[i].tokens;
    return tokens;
}

static ddp_error *check_enough(token_files *data, const char *path)
{
    int64_t window = data->base.sample.input_count;
    char samples[32], tokens[32];
    if (data->base.count == 0)
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                             "%s has %" PRId64
                                             " tokens in %zu file%s; one sample needs %" PRId64
                                             " in one file (%" PRId64 " and their successors)",
                                             path, count_tokens(data), data->count,
                                             data->count == 1 ? "" : "s", window + 1, window),
                              "more tokens, or a shorter model.context");
    snprintf(data->base.description, sizeof data->base.description,
             "%s windows of %" PRId64 " tokens, %s tokens in %zu file%s",
             ddp_text_from_count(data->base.count, samples, sizeof samples), window,
             ddp_text_from_count(count_tokens(data), tokens, sizeof tokens), data->count,
             data->count == 1 ? "" : "s");
    return NULL;
}

/* The shard of a sample: the last one that begins at or before it. Empty shards share a beginning with their
 * successor and are passed over. */
static const shard *find_shard(const token_files *data, int64_t id)
{
    size_t low = 0, high = data->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (data->shards[middle].first <= id)
            low = middle;
        else
            high = middle;
    }
    return &data->shards[low];
}

static ddp_error *refuse_id(const shard *shard, int64_t token, int64_t id, int64_t classes)
{
    return ddp_error_make(
        DDP_ERR_INPUT, "%s: byte %" PRId64 ": found token id %" PRId64 "; the model takes ids below %" PRId64,
        shard->bytes.path, shard->begin + token * shard->width, id, classes);
}

static ddp_error *read_window(const token_files *data, int64_t id, int32_t *input, int32_t *target)
{
    const shard *shard = find_shard(data, id);
    int64_t window = data->base.sample.input_count, from = (id - shard->first) * window;
    for (int64_t done = 0; done <= window; done += CHUNK) {
        unsigned char buffer[CHUNK * 4];
        const unsigned char *at;
        int64_t count = window + 1 - done < CHUNK ? window + 1 - done : CHUNK;
        DDP_TRY(ddp_bytes_get(&shard->bytes, shard->begin + (from + done) * shard->width,
                              (size_t)(count * shard->width), buffer, &at));
        for (int64_t i = 0; i < count; i++) {
            int64_t token = read_little(at + i * shard->width, shard->width);
            if (token >= data->base.sample.classes)
                return refuse_id(shard, from + done + i, token, data->base.sample.classes);
            if (done + i < window)
                input[done + i] = (int32_t)token;
            if (done + i > 0)
                target[done + i - 1] = (int32_t)token;
        }
    }
    return NULL;
}

static ddp_error *read_windows(ddp_dataset *dataset, const int64_t *ids, int64_t count, void *input,
                               void *target)
{
    int64_t window = dataset->sample.input_count;
    for (int64_t i = 0; i < count; i++) {
        ddp_assert(ids[i] >= 0 && ids[i] < dataset->count);
        DDP_TRY(read_window((token_files *)dataset, ids[i], (int32_t *)input + i * window,
                            (int32_t *)target + i * window));
    }
    return NULL;
}

static void close_tokens(ddp_dataset *dataset)
{
    token_files *data = (token_files *)dataset;
    for (size_t i = 0; i < data->count; i++)
        ddp_bytes_close(&data->shards[i].bytes);
    free(data->shards);
    free(data);
}

static ddp_error *open_tokens(const ddp_dataset_config *config, ddp_dataset **dataset)
{
    token_files *made;
    if (!ddp_shape_is_tokens(&config->want))
        return ddp_error_locate(ddp_shape_refuse("tokens", "tokens and their successors", &config->want),
                                config->place);
    DDP_TRY(DDP_NEW(&made));
    made->base.ops = &ddp_dataset_tokens_ops;
    made->base.sample = config->want;
    ddp_error *error = open_all(made, config);
    if (error == NULL)
        error = check_enough(made, config->path);
    if (error != NULL) {
        close_tokens(&made->base);
        return ddp_error_locate(error, config->place);
    }
    *dataset = &made->base;
    return NULL;
}

const ddp_dataset_ops ddp_dataset_tokens_ops = {
    .name = "tokens",
    .help = "files of uint16 or uint32 token ids, with llm.c's header or plain; a pattern names many",
    .fields = fields,
    .config_bytes = sizeof(tokens_settings),
    .open = open_tokens,
    .read = read_windows,
    .close = close_tokens,
};
