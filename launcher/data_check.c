/* ddprun data check: every file in full. One finding a file, all of them shown. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "launcher/data.h"
#include "runtime/data/unicode_class.h"

#define PART 65536

static ddp_error *refuse_id(const ddp_token_file *file, const ddp_data_scan *scan, int64_t vocab)
{
    char count[32];
    ddp_error *error = ddp_error_make(
        DDP_ERR_INPUT, "%s: byte %" PRId64 ": found token id %" PRId64 "; ids below %" PRId64 " are expected",
        file->bytes.path, file->begin + scan->first * file->width, scan->first_id, vocab);
    if (scan->largest < 2 * vocab)
        return ddp_error_help(
            error, "%s such id%s, the largest %" PRId64 "; a model.vocab of %" PRId64 " takes them",
            ddp_text_from_count(scan->outside, count, sizeof count), scan->outside == 1 ? "" : "s",
            scan->largest, scan->largest + 1);
    return ddp_error_help(
        error, "%s such id%s, the largest %" PRId64 ": a file of another vocabulary, or not of %s ids",
        ddp_text_from_count(scan->outside, count, sizeof count), scan->outside == 1 ? "" : "s", scan->largest,
        ddp_token_width_name(file->width));
}

static ddp_error *check_tokens(const ddp_data_file *file, int64_t vocab, ddp_text *found)
{
    char count[32];
    ddp_data_scan scan;
    ddp_data_progress progress = {.what = file->tokens.bytes.path, .total = file->tokens.bytes.count};
    ddp_error *error = ddp_data_scan_tokens(&file->tokens, vocab, &progress, &scan);
    ddp_data_progress_clear(&progress);
    DDP_TRY(error);
    if (scan.outside > 0)
        return refuse_id(&file->tokens, &scan, vocab);
    if (scan.largest < 0)
        return ddp_error_make(DDP_ERR_INPUT, "%s holds no ids", file->tokens.bytes.path);
    ddp_text_add(found, "%s ids, the largest %" PRId64,
                 ddp_text_from_count(file->tokens.count, count, sizeof count), scan.largest);
    if (file->guessed)
        ddp_text_add(found, ", taken for %s (--dtype says it)", ddp_token_width_name(file->tokens.width));
    if (vocab == 0)
        ddp_text_add(found, " (--vocab N verifies them)");
    return NULL;
}

/* Bytes that are no UTF-8 are for the model to learn, but hardly what was meant. */
static ddp_error *check_text(const ddp_bytes *file, int64_t vocab, ddp_text *found)
{
    unsigned char buffer[PART];
    char count[32];
    for (int64_t done = 0; done < file->count;) {
        const unsigned char *at;
        size_t part = file->count - done < PART ? (size_t)(file->count - done) : PART, used = 0, bytes;
        bool last = done + (int64_t)part == file->count;
        DDP_TRY(ddp_bytes_get(file, done, part, buffer, &at));
        for (; used < part && (last || part - used >= 4); used += bytes) {
            ddp_unicode_read(at + used, part - used, &bytes);
            int64_t id = at[used];
            if (vocab > 0 && id >= vocab)
                return ddp_error_make(DDP_ERR_INPUT,
                                      "%s: byte %" PRId64 ": found byte %" PRId64 "; ids below %" PRId64
                                      " are expected",
                                      file->path, done + (int64_t)used, id, vocab);
            if (id >= 0x80 && bytes == 1)
                return ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                                     "%s: byte %" PRId64
                                                     ": found 0x%02X, which is not UTF-8 here",
                                                     file->path, done + (int64_t)used, (unsigned)id),
                                      "iconv -f ENCODING -t UTF-8 makes it UTF-8");
        }
        done += (int64_t)used;
    }
    if (file->count == 0)
        return ddp_error_make(DDP_ERR_INPUT, "%s is empty", file->path);
    ddp_text_add(found, "%s bytes of UTF-8", ddp_text_from_count(file->count, count, sizeof count));
    return NULL;
}

/* Header against size is checked when it is opened. */
static ddp_error *check_one(const char *path, int width, int64_t vocab, ddp_text *found)
{
    char count[32];
    ddp_data_file file;
    ddp_error *error = ddp_data_file_open(path, width, &file);
    if (error != NULL)
        return error;
    switch (file.kind) {
    case DDP_DATA_TOKENS:
        error = check_tokens(&file, vocab, found);
        break;
    case DDP_DATA_TEXT:
        error = check_text(&file.bytes, vocab, found);
        break;
    case DDP_DATA_NPY:
    case DDP_DATA_IDX:
        ddp_text_add(found, "%s samples of %s %s", ddp_text_from_count(file.array.rows, count, sizeof count),
                     file.array.shape, ddp_element_name(file.array.type));
        break;
    case DDP_DATA_UNKNOWN:
        error = ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "%s is of no format that is known", path),
                               "--dtype uint16 or uint32 reads it as plain token ids");
        break;
    }
    ddp_data_file_close(&file);
    return error;
}

static int longest_name(const ddp_data_files *files)
{
    size_t longest = 0;
    for (size_t i = 0; i < files->count; i++)
        longest = strlen(files->at[i]) > longest ? strlen(files->at[i]) : longest;
    return (int)longest;
}

ddp_error *ddp_data_check(const ddp_arguments *arguments, const ddp_data_files *files, int *code)
{
    int width, names = longest_name(files);
    int64_t vocab = 0;
    ddp_error *findings = NULL;
    DDP_TRY(ddp_data_read_dtype(arguments, &width));
    DDP_TRY(ddp_verb_read_int("--vocab", arguments->options[DDP_DATA_VOCAB], 1, UINT32_MAX, &vocab));
    for (size_t i = 0; i < files->count; i++) {
        ddp_text found = {0};
        ddp_error *error = check_one(files->at[i], width, vocab, &found);
        if (error == NULL)
            printf("ok    %-*s  %s\n", names, files->at[i], ddp_text_get(&found));
        else
            printf("FAIL  %s\n", files->at[i]);
        findings = ddp_error_join(findings, error);
        ddp_text_free(&found);
    }
    fflush(stdout);
    return findings;
}
