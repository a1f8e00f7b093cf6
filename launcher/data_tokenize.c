/* ddprun data tokenize: text files to a training set and a validation set of token files.
 *
 * Nothing is there before all of it is: an error or a signal takes back what has been written. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/files.h"
#include "core/memory.h"
#include "launcher/data.h"
#include "runtime/data/encode.h"
#include "runtime/data/shards.h"

#define BYTES_VOCAB 256
#define SHARD_TOKENS 100000000

typedef struct tokenizer {
    const char *out;
    int64_t shard_tokens, val_tokens;
    double val_fraction;
    ddp_bpe *bpe; /* NULL = byte by byte */
    ddp_encoder_config encoder;
    int64_t vocab;
    int width;

    char *train_prefix, *val_prefix;
    ddp_shards *train, *val; /* val NULL = no validation set */
    int64_t bytes;           /* of all files */
    int64_t val_bytes;       /* the validation set takes the text up to here ... */
    int64_t done;            /* bytes of the files before this one */
    ddp_data_progress progress;
    sigset_t signals;
    int signal; /* that ended it, 0 = none */
} tokenizer;

static ddp_error *read_fraction(const char *text, double *value)
{
    double got;
    if (text == NULL)
        return NULL;
    if (!ddp_text_to_float(text, &got) || !(got > 0 && got < 1))
        return ddp_error_make(DDP_ERR_INPUT, "--val-fraction: \"%s\" is not a number between 0 and 1", text);
    *value = got;
    return NULL;
}

static ddp_error *load_vocab(const ddp_arguments *arguments, tokenizer *to)
{
    const char *vocab = arguments->options[DDP_DATA_VOCAB], *merges = arguments->options[DDP_DATA_MERGES];
    to->vocab = BYTES_VOCAB;
    if (vocab == NULL && merges == NULL)
        return NULL;
    if (vocab == NULL || merges == NULL)
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "%s is given without %s",
                                             vocab ? "--vocab" : "--merges", vocab ? "--merges" : "--vocab"),
                              "byte-pair encoding needs both: --vocab vocab.json --merges merges.txt");
    DDP_TRY(ddp_bpe_load(vocab, merges, &to->bpe));
    to->vocab = ddp_bpe_vocab(to->bpe);
    return NULL;
}

/* Byte by byte the mark is one more id behind those of the bytes. */
static ddp_error *find_mark(const ddp_arguments *arguments, tokenizer *to)
{
    const char *mark = arguments->options[DDP_DATA_END_OF_TEXT];
    to->encoder = (ddp_encoder_config){.bpe = to->bpe, .mark = mark};
    if (mark == NULL)
        return NULL;
    if (mark[0] == '\0')
        return ddp_error_make(DDP_ERR_INPUT, "--end-of-text is empty");
    int64_t id = to->bpe != NULL ? ddp_bpe_find(to->bpe, mark, strlen(mark)) : to->vocab++;
    if (id < 0)
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "--end-of-text: \"%s\" is not in %s", mark,
                                             arguments->options[DDP_DATA_VOCAB]),
                              "GPT-2's is \"<|endoftext|>\"");
    to->encoder.mark_id = (int32_t)id;
    return NULL;
}

static ddp_error *choose_width(const ddp_arguments *arguments, tokenizer *to)
{
    int fits = to->vocab <= 65536 ? 2 : 4;
    DDP_TRY(ddp_data_read_dtype(arguments, &to->width));
    if (to->width == 0)
        to->width = fits;
    if (to->width >= fits)
        return NULL;
    return ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                         "--dtype uint16 holds ids below 65536; this vocabulary "
                                         "has %" PRId64,
                                         to->vocab),
                          "--dtype uint32");
}

static ddp_error *name_sets(tokenizer *to)
{
    if (to->out == NULL)
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "ddprun data tokenize needs --out"),
                              "--out data/name makes data/name_train_000000.bin");
    if (to->out[0] == '\0' || strpbrk(to->out, "*?[\\\"") != NULL)
        return ddp_error_make(DDP_ERR_INPUT,
                              "--out: \"%s\" has a character that means something in data.train, or none",
                              to->out);
    if (asprintf(&to->train_prefix, "%s_train", to->out) < 0 ||
        asprintf(&to->val_prefix, "%s_val", to->out) < 0)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    DDP_TRY(ddp_shards_check(to->train_prefix));
    return ddp_shards_check(to->val_prefix);
}

static ddp_error *read_options(const ddp_arguments *arguments, tokenizer *to)
{
    const char *const *options = arguments->options;
    to->out = options[DDP_DATA_OUT];
    to->shard_tokens = SHARD_TOKENS;
    DDP_TRY(ddp_verb_read_int("--shard-tokens", options[DDP_DATA_SHARD_TOKENS], 2, DDP_TOKEN_HEADER_MAX,
                              &to->shard_tokens));
    DDP_TRY(
        ddp_verb_read_int("--val-tokens", options[DDP_DATA_VAL_TOKENS], 1, INT64_MAX / 2, &to->val_tokens));
    DDP_TRY(read_fraction(options[DDP_DATA_VAL_FRACTION], &to->val_fraction));
    if (to->val_tokens > 0 && to->val_fraction > 0)
        return ddp_error_make(DDP_ERR_INPUT, "--val-tokens and --val-fraction are two ways to say one thing");
    DDP_TRY(name_sets(to));
    DDP_TRY(load_vocab(arguments, to));
    DDP_TRY(find_mark(arguments, to));
    return choose_width(arguments, to);
}

/* Before any work: every file can be opened, and how much there is. */
static ddp_error *measure_files(const ddp_data_files *files, tokenizer *to)
{
    for (size_t i = 0; i < files->count; i++) {
        ddp_bytes bytes;
        bool header;
        DDP_TRY(ddp_bytes_open(files->at[i], &bytes));
        ddp_error *error = ddp_token_file_has_magic(&bytes, &header);
        if (error == NULL && header)
            error =
                ddp_error_make(DDP_ERR_INPUT, "%s is a token file already; text is expected", files->at[i]);
        to->bytes += bytes.count;
        ddp_bytes_close(&bytes);
        DDP_TRY(error);
    }
    if (to->bytes == 0)
        return ddp_error_make(DDP_ERR_INPUT, "%s%s empty", files->at[0],
                              files->count > 1 ? " and the others are" : " is");
    to->val_bytes = (int64_t)((double)to->bytes * to->val_fraction);
    return NULL;
}

static ddp_error *make_directory(const char *out)
{
    const char *name = ddp_path_name(out);
    char *directory = name > out + 1 ? strndup(out, (size_t)(name - out) - 1) : NULL;
    ddp_error *error = directory != NULL ? ddp_directory_make(directory) : NULL;
    free(directory);
    return error;
}

static ddp_error *open_sets(tokenizer *to)
{
    ddp_shards_config config = {
        .prefix = to->train_prefix, .width = to->width, .shard_ids = to->shard_tokens};
    DDP_TRY(make_directory(to->out));
    DDP_TRY(ddp_shards_open(&config, &to->train));
    config.prefix = to->val_prefix;
    return to->val_tokens > 0 || to->val_fraction > 0 ? ddp_shards_open(&config, &to->val) : NULL;
}

/* The first ids go to validation: up to val_tokens of them, or those of the text before val_bytes. */
static ddp_error *put(tokenizer *to, const ddp_ids *ids, bool validation)
{
    int64_t count = (int64_t)ids->count, first = 0;
    if (validation)
        return ddp_shards_add(to->val, ids->at, count);
    if (to->val_tokens > 0) {
        first = to->val_tokens - ddp_shards_ids(to->val);
        first = first < count ? first : count;
        DDP_TRY(ddp_shards_add(to->val, ids->at, first));
    }
    return ddp_shards_add(to->train, ids->at + first, count - first);
}

/* Blocked, and asked for between parts: what was written can be taken back. Those that are ignored (nohup)
 * stay so. */
static void block_signals(tokenizer *to, sigset_t *before)
{
    static const int all[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action;
    sigemptyset(&to->signals);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (sigaction(all[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&to->signals, all[i]);
    sigprocmask(SIG_BLOCK, &to->signals, before);
}

static bool is_stopped(tokenizer *to)
{
    const struct timespec now = {0};
    int got = sigtimedwait(&to->signals, NULL, &now);
    to->signal = got > 0 ? got : to->signal;
    return to->signal != 0;
}

static ddp_error *encode_part(tokenizer *to, ddp_encoder *encoder, ddp_ids *ids)
{
    int64_t offset = ddp_encoder_offset(encoder);
    bool validation = to->done + offset < to->val_bytes;
    ids->count = 0;
    if (offset == 0 && to->encoder.mark != NULL)
        DDP_TRY(put(to, &(ddp_ids){.at = &to->encoder.mark_id, .count = 1}, validation));
    DDP_TRY(ddp_encoder_next(encoder, validation ? to->val_bytes - to->done : INT64_MAX, ids));
    DDP_TRY(put(to, ids, validation));
    ddp_data_progress_show(&to->progress, to->done + ddp_encoder_offset(encoder));
    return NULL;
}

static ddp_error *encode_file(tokenizer *to, const char *path, ddp_ids *ids)
{
    ddp_encoder *encoder;
    ddp_error *error = NULL;
    DDP_TRY(ddp_encoder_open(&to->encoder, path, &encoder));
    to->progress.what = path;
    while (error == NULL && ddp_encoder_offset(encoder) < ddp_encoder_bytes(encoder) && !is_stopped(to))
        error = encode_part(to, encoder, ids);
    to->done += ddp_encoder_bytes(encoder);
    ddp_encoder_close(encoder);
    return error;
}

static ddp_error *check_parts(const tokenizer *to)
{
    int64_t train = ddp_shards_ids(to->train), val = to->val != NULL ? ddp_shards_ids(to->val) : 1;
    if (train > 0 && val > 0)
        return NULL;
    return ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "the text makes %" PRId64 " ids: none are left %s",
                                         train + val, train > 0 ? "for validation" : "to train on"),
                          "%s validation set", train > 0 ? "a larger" : "a smaller");
}

static ddp_error *encode_all(tokenizer *to, const ddp_data_files *files)
{
    ddp_ids ids = {0};
    ddp_error *error = NULL;
    for (size_t i = 0; i < files->count && error == NULL && to->signal == 0; i++)
        error = encode_file(to, files->at[i], &ids);
    ddp_data_progress_clear(&to->progress);
    free(ids.at);
    if (error != NULL || to->signal != 0)
        return error;
    DDP_TRY(check_parts(to));
    if (to->val != NULL)
        DDP_TRY(ddp_shards_finish(to->val));
    return ddp_shards_finish(to->train);
}

static void print_set(const char *prefix, const ddp_shards *shards, int width)
{
    char ids[32];
    printf("%s_*.bin  %s ids, %s, %" PRId64 " file%s\n", prefix,
           ddp_text_from_count(ddp_shards_ids(shards), ids, sizeof ids), ddp_token_width_name(width),
           ddp_shards_files(shards), ddp_shards_files(shards) == 1 ? "" : "s");
}

static void print_result(const tokenizer *to, double seconds)
{
    char bytes[32], time[32];
    int64_t ids = ddp_shards_ids(to->train) + (to->val != NULL ? ddp_shards_ids(to->val) : 0);
    printf("%s bytes of text, %.2f bytes an id, in %s\n", ddp_text_from_count(to->bytes, bytes, sizeof bytes),
           (double)to->bytes / (double)ids, ddp_text_from_seconds(seconds, time, sizeof time));
    print_set(to->train_prefix, to->train, to->width);
    if (to->val != NULL)
        print_set(to->val_prefix, to->val, to->width);
    printf("\nin the job:\n  data: {format: tokens, train: \"%s_*.bin\"", to->train_prefix);
    if (to->val != NULL)
        printf(", validation: \"%s_*.bin\"", to->val_prefix);
    printf("}\n  model: {kind: gpt, vocab: %" PRId64 "}\n", to->vocab);
}

static void close_tokenizer(tokenizer *to)
{
    ddp_shards_close(to->train);
    ddp_shards_close(to->val);
    ddp_bpe_free(to->bpe);
    free(to->train_prefix);
    free(to->val_prefix);
}

ddp_error *ddp_data_tokenize(const ddp_arguments *arguments, const ddp_data_files *files, int *code)
{
    tokenizer to = {0};
    sigset_t before;
    double begun = ddp_clock_now();
    block_signals(&to, &before);
    ddp_error *error = read_options(arguments, &to);
    if (error == NULL)
        error = measure_files(files, &to);
    to.progress.total = to.bytes;
    if (error == NULL)
        error = open_sets(&to);
    if (error == NULL)
        error = encode_all(&to, files);
    if (error == NULL && to.signal == 0)
        print_result(&to, ddp_clock_now() - begun);
    close_tokenizer(&to);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (error == NULL && to.signal != 0) {
        fprintf(stderr, "ddprun: stopped by SIG%s: nothing is left of it\n", sigabbrev_np(to.signal));
        *code = 128 + to.signal;
    }
    return error;
}
