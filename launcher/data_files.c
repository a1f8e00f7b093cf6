/* Data files by name or pattern, what kind each is, all ids of one, and the line that says how far that is.
 */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/memory.h"
#include "launcher/data.h"
#include "runtime/data/unicode_class.h"

#define PROBE_BYTES 65536
#define SCAN_IDS 65536

static ddp_error *add_file(ddp_data_files *files, const char *path)
{
    DDP_TRY(ddp_memory_grow((void **)&files->at, &files->capacity, files->count + 1, sizeof *files->at));
    DDP_TRY(ddp_memory_text(path, &files->at[files->count]));
    files->count++;
    return NULL;
}

ddp_error *ddp_data_files_add(ddp_data_files *files, const char *word)
{
    glob_t found = {0};
    ddp_error *error = NULL;
    if (strpbrk(word, "*?[") == NULL || access(word, F_OK) == 0)
        return add_file(files, word);
    int code = glob(word, 0, NULL, &found);
    if (code == GLOB_NOMATCH)
        error = ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "%s: no file is named like this", word),
                               "relative paths start from where ddprun was called");
    else if (code != 0)
        error = ddp_error_make(DDP_ERR_IO, "%s: the files cannot be listed", word);
    for (size_t i = 0; error == NULL && i < found.gl_pathc; i++)
        error = add_file(files, found.gl_pathv[i]);
    globfree(&found);
    return error;
}

void ddp_data_files_free(ddp_data_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        free(files->at[i]);
    free(files->at);
}

void ddp_data_progress_show(ddp_data_progress *progress, int64_t done)
{
    char rate[32];
    double now = ddp_clock_now();
    if (progress->begun == 0) {
        progress->begun = now;
        progress->next = isatty(STDERR_FILENO) ? now + 0.5 : 1e300;
    }
    if (now < progress->next)
        return;
    progress->next = now + 0.2;
    progress->shown = true;
    ddp_text_from_bytes((double)done / (now - progress->begun), rate, sizeof rate);
    fprintf(stderr, "\r\033[K%3.0f %%  %s/s  %s",
            progress->total > 0 ? 100.0 * (double)done / (double)progress->total : 0, rate, progress->what);
}

void ddp_data_progress_clear(ddp_data_progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}

/* Whether the first bytes are text: no control characters that no text has. `strict`: and valid UTF-8 (or its
 * beginning, where that is not all). */
static bool is_text(const unsigned char *at, size_t count, bool all, bool strict)
{
    for (size_t i = 0, bytes; i < count; i += bytes) {
        if (at[i] < 0x20 && (at[i] < '\t' || at[i] > '\r') && at[i] != 0x1B)
            return false;
        ddp_unicode_read(at + i, count - i, &bytes);
        bool cut = !all && count - i < 4;
        if (strict && at[i] >= 0x80 && bytes == 1 && !cut)
            return false;
    }
    return true;
}

/* Whether every second uint16 is 0 and not all are: uint32 ids below 65536. */
static bool looks_wide(const unsigned char *at, size_t count)
{
    unsigned low = 0, high = 0;
    for (size_t i = 0; i + 4 <= count; i += 4) {
        low |= (unsigned)(at[i] | at[i + 1]);
        high |= (unsigned)(at[i + 2] | at[i + 3]);
    }
    return high == 0 && low != 0;
}

/* IDX: two zeros, a type code, 1 to 4 dimensions. */
static bool looks_idx(const unsigned char *at, size_t count)
{
    return count >= 8 && at[0] == 0 && at[1] == 0 && at[2] >= 0x08 && at[2] <= 0x0E && at[3] >= 1 &&
           at[3] <= 4;
}

static ddp_data_kind kind_of(const ddp_bytes *bytes, const unsigned char *at, size_t count, int width)
{
    if (count >= 6 && memcmp(at, "\x93NUMPY", 6) == 0)
        return DDP_DATA_NPY;
    if (width != 0)
        return DDP_DATA_TOKENS;
    bool named_bin = ddp_text_ends(bytes->path, ".bin");
    if (is_text(at, count, (int64_t)count == bytes->count, named_bin))
        return DDP_DATA_TEXT;
    if (looks_idx(at, count) && !named_bin)
        return DDP_DATA_IDX;
    return named_bin ? DDP_DATA_TOKENS : DDP_DATA_UNKNOWN;
}

/* *width becomes the one of plain ids, where it is a guess. */
static ddp_error *probe(const ddp_bytes *bytes, int *width, ddp_data_kind *kind, bool *guessed)
{
    unsigned char buffer[PROBE_BYTES];
    const unsigned char *at = buffer;
    size_t count = bytes->count < PROBE_BYTES ? (size_t)bytes->count : PROBE_BYTES;
    bool header;
    DDP_TRY(ddp_token_file_has_magic(bytes, &header));
    if (count > 0)
        DDP_TRY(ddp_bytes_get(bytes, 0, count, buffer, &at));
    *kind = header ? DDP_DATA_TOKENS : kind_of(bytes, at, count, *width);
    *guessed = *kind == DDP_DATA_TOKENS && !header && *width == 0;
    if (*guessed)
        *width = looks_wide(at, count) ? 4 : 2;
    return NULL;
}

ddp_error *ddp_data_file_open(const char *path, int width, ddp_data_file *file)
{
    ddp_data_file made = {0};
    DDP_TRY(ddp_bytes_open(path, &made.bytes));
    ddp_error *error = probe(&made.bytes, &width, &made.kind, &made.guessed);
    if (error != NULL || (made.kind != DDP_DATA_TEXT && made.kind != DDP_DATA_UNKNOWN))
        ddp_bytes_close(&made.bytes);
    if (error == NULL && made.kind == DDP_DATA_TOKENS)
        error = ddp_token_file_open(path, width, "--dtype ", &made.tokens);
    if (error == NULL && made.kind == DDP_DATA_NPY)
        error = ddp_npy_open(path, &made.array);
    if (error == NULL && made.kind == DDP_DATA_IDX)
        error = ddp_idx_open(path, &made.array);
    if (error == NULL)
        *file = made;
    return error;
}

void ddp_data_file_close(ddp_data_file *file)
{
    ddp_bytes_close(&file->bytes);
    ddp_token_file_close(&file->tokens);
    ddp_array_close(&file->array);
}

int64_t ddp_data_file_bytes(const ddp_data_file *file)
{
    return file->kind == DDP_DATA_TOKENS                              ? file->tokens.bytes.count
           : file->kind == DDP_DATA_NPY || file->kind == DDP_DATA_IDX ? file->array.bytes.count
                                                                      : file->bytes.count;
}

/* Those of a part that are outside. */
static void count_outside(const int32_t *ids, int64_t count, int64_t from, int64_t vocab, ddp_data_scan *scan)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t id = (uint32_t)ids[i];
        if (id < vocab)
            continue;
        if (scan->outside++ == 0) {
            scan->first = from + i;
            scan->first_id = id;
        }
    }
}

ddp_error *ddp_data_scan_tokens(const ddp_token_file *file, int64_t vocab, ddp_data_progress *progress,
                                ddp_data_scan *scan)
{
    static const int64_t none = INT64_MAX;
    unsigned char *buffer = NULL;
    int32_t *ids = NULL;
    ddp_error *error = NULL;
    *scan = (ddp_data_scan){.largest = -1};
    DDP_GO(ddp_memory_make(SCAN_IDS, 4, (void **)&buffer));
    DDP_GO(ddp_memory_make(SCAN_IDS, sizeof *ids, (void **)&ids));
    for (int64_t done = 0; done < file->count; done += SCAN_IDS) {
        const unsigned char *at;
        int64_t count = file->count - done < SCAN_IDS ? file->count - done : SCAN_IDS;
        DDP_GO(ddp_token_file_get(file, done, count, buffer, &at));
        int64_t largest = ddp_token_file_convert(file->width, at, count, ids);
        scan->largest = largest > scan->largest ? largest : scan->largest;
        if (largest >= (vocab > 0 ? vocab : none))
            count_outside(ids, count, done, vocab, scan);
        ddp_data_progress_show(progress, (done + count) * file->width);
    }
out:
    free(buffer);
    free(ids);
    return error;
}
