/* Token files: little-endian uint16 or uint32 ids, as other trainers write them, in one file or in many
 * shards.
 *
 * With llm.c's header or without one (token_file.h; then data.dtype says the width). data.train may be a
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
#include "runtime/data/datasets.h"
#include "runtime/data/shape.h"
#include "runtime/data/token_file.h"

#define PART_BYTES 32768 /* of a file, read and converted at a time */

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
    ddp_token_file file;
    int64_t first; /* sample id of its first window */
} shard;

typedef struct token_files {
    ddp_dataset base;
    shard *shards;
    size_t count;
} token_files;

/* A file of exactly this name comes before a pattern. */
static bool is_pattern(const char *path)
{
    return strpbrk(path, "*?[") != NULL && access(path, F_OK) != 0;
}

static ddp_error *open_shards(token_files *data, const char *const *paths, size_t count, int dtype)
{
    static const int widths[] = {[WIDTH_AUTO] = 0, [WIDTH_16] = 2, [WIDTH_32] = 4};
    int64_t window = data->base.sample.input_count;
    void *memory;
    DDP_TRY(ddp_memory_make(count, sizeof *data->shards, &memory));
    data->shards = memory;
    for (; data->count < count; data->count++) {
        shard *shard = &data->shards[data->count];
        DDP_TRY(ddp_token_file_open(paths[data->count], widths[dtype], "data.dtype=", &shard->file));
        shard->first = data->base.count;
        data->base.count += shard->file.count > 0 ? (shard->file.count - 1) / window : 0;
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
        tokens += data->shards[i].file.count;
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

/* The error of the first id outside the vocabulary among those at `at`, the first of which is number `first`.
 */
static ddp_error *refuse_id(const ddp_token_file *file, const unsigned char *at, int64_t first,
                            int64_t classes)
{
    for (int32_t id;; at += file->width, first++) {
        uint32_t found = ddp_token_file_convert(file->width, at, 1, &id);
        if (found >= classes)
            return ddp_error_make(DDP_ERR_INPUT,
                                  "%s: byte %" PRId64 ": found token id %" PRIu32
                                  "; the model takes ids below %" PRId64,
                                  file->bytes.path, file->begin + first * file->width, found, classes);
    }
}

/* `count` windows that follow one another in one shard, as one long window. By parts that stay in the
 * processor's cache: read once, converted twice. */
static ddp_error *read_windows_of(const token_files *data, const shard *shard, int64_t id, int64_t count,
                                  int32_t *input, int32_t *target)
{
    const ddp_token_file *file = &shard->file;
    int64_t window = data->base.sample.input_count, classes = data->base.sample.classes;
    int64_t from = (id - shard->first) * window, tokens = count * window;
    int64_t most = PART_BYTES / file->width - 1;
    for (int64_t done = 0; done < tokens; done += most) {
        unsigned char buffer[PART_BYTES];
        const unsigned char *at;
        int64_t part = tokens - done < most ? tokens - done : most;
        DDP_TRY(ddp_token_file_get(file, from + done, part + 1, buffer, &at));
        uint32_t largest = ddp_token_file_convert(file->width, at, part, input + done);
        uint32_t next = ddp_token_file_convert(file->width, at + file->width, part, target + done);
        if (largest >= classes || next >= classes)
            return refuse_id(file, at, from + done, classes);
    }
    return NULL;
}

/* How many of the first ids follow one another in this shard. */
static int64_t count_run(const token_files *data, const shard *shard, const int64_t *ids, int64_t count)
{
    int64_t end = shard + 1 < data->shards + data->count ? shard[1].first : data->base.count;
    int64_t run = 1;
    while (run < count && ids[run] == ids[0] + run && ids[run] < end)
        run++;
    return run;
}

static ddp_error *read_windows(ddp_dataset *dataset, const int64_t *ids, int64_t count, void *input,
                               void *target)
{
    const token_files *data = (const token_files *)dataset;
    int64_t window = dataset->sample.input_count, run;
    for (int64_t i = 0; i < count; i += run) {
        ddp_assert(ids[i] >= 0 && ids[i] < dataset->count);
        const shard *shard = find_shard(data, ids[i]);
        run = count_run(data, shard, ids + i, count - i);
        DDP_TRY(read_windows_of(data, shard, ids[i], run, (int32_t *)input + i * window,
                                (int32_t *)target + i * window));
    }
    return NULL;
}

static void close_tokens(ddp_dataset *dataset)
{
    token_files *data = (token_files *)dataset;
    for (size_t i = 0; i < data->count; i++)
        ddp_token_file_close(&data->shards[i].file);
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
