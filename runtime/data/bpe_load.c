/* vocab.json and merges.txt into tables.
 *
 * In both files bytes are written as characters: 188 of them stand for themselves as in Latin-1, the other 68
 * (controls, blanks, the soft hyphen) are U+0100 and on, in their order. An entry that has any other
 * character cannot come out of a merge; it takes its id and is otherwise left alone. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/files.h"
#include "core/json.h"
#include "core/memory.h"
#include "core/rng.h"
#include "runtime/data/bpe_tables.h"

#define FILE_LIMIT (256u << 20)
#define MAX_ID ((1 << 24) - 1)
#define SYMBOLS 324 /* characters up to U+0143 */

/* A file being read, and what its characters mean. */
typedef struct source {
    const char *path;
    char *data;
    size_t bytes;
    int16_t byte_of[SYMBOLS]; /* -1 = stands for no byte */
} source;

static bool stands_for_itself(int byte)
{
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

static ddp_error *open_source(const char *path, source *source)
{
    int next = 256;
    source->path = path;
    memset(source->byte_of, 0xFF, sizeof source->byte_of);
    for (int byte = 0; byte < 256; byte++)
        source->byte_of[stands_for_itself(byte) ? byte : next++] = (int16_t)byte;
    return ddp_file_load(path, FILE_LIMIT, &source->data, &source->bytes);
}

/* The byte that the character at `at` stands for; -1 = none. *length is the character's, at least 1. */
static int read_symbol(const source *source, const char *at, size_t left, size_t *length)
{
    unsigned char first = (unsigned char)at[0];
    int code = first;
    *length = 1;
    if (first >= 0xC2 && first < 0xE0 && left > 1) {
        *length = 2;
        code = (first & 0x1F) << 6 | ((unsigned char)at[1] & 0x3F);
    } else if (first >= 0x80) {
        return -1;
    }
    return code < SYMBOLS ? source->byte_of[code] : -1;
}

/* Writes the bytes that a text stands for, at most `left` of them; -1 = it stands for none. */
static int64_t read_symbols(const source *source, const char *text, size_t left, char *to)
{
    int64_t count = 0;
    for (size_t length; left > 0; text += length, left -= length) {
        int byte = read_symbol(source, text, left, &length);
        if (byte < 0)
            return -1;
        to[count++] = (char)byte;
    }
    return count;
}

/* The place of `at`, which points into the file's bytes. */
static ddp_place place_of(const source *source, const char *at, int length)
{
    ddp_place place = {.file = source->path, .line = 1, .length = length};
    const char *begin = source->data;
    for (const char *p; (p = memchr(begin, '\n', (size_t)(at - begin))) != NULL; begin = p + 1)
        place.line++;
    place.column = (int)(at - begin) + 1;
    return place;
}

static ddp_bpe_entry *find_entry(const ddp_bpe *bpe, const void *bytes, size_t count)
{
    size_t slot = (size_t)ddp_rng_hash(0, bytes, count) & (bpe->entry_slots - 1);
    for (;; slot = (slot + 1) & (bpe->entry_slots - 1)) {
        ddp_bpe_entry *entry = &bpe->entries[slot];
        if (entry->id < 0 || (entry->count == count && memcmp(bpe->text + entry->at, bytes, count) == 0))
            return entry;
    }
}

static size_t slots_for(size_t count)
{
    size_t slots = 1024;
    while (slots < 2 * count)
        slots *= 2;
    return slots;
}

static ddp_error *make_tables(ddp_bpe *bpe, size_t entries, size_t merges, size_t text_bytes)
{
    bpe->entry_slots = slots_for(entries);
    bpe->merge_slots = slots_for(merges);
    DDP_TRY(ddp_memory_make(bpe->entry_slots, sizeof *bpe->entries, (void **)&bpe->entries));
    DDP_TRY(ddp_memory_make(bpe->merge_slots, sizeof *bpe->merges, (void **)&bpe->merges));
    DDP_TRY(ddp_memory_make(text_bytes, 1, (void **)&bpe->text));
    DDP_TRY(ddp_memory_make(DDP_BPE_WORDS, sizeof *bpe->words, (void **)&bpe->words));
    for (size_t i = 0; i < bpe->entry_slots; i++)
        bpe->entries[i].id = -1;
    for (size_t i = 0; i < bpe->merge_slots; i++)
        bpe->merges[i].id = -1;
    return NULL;
}

static ddp_error *check_id(const source *source, const ddp_json_document *document,
                           const ddp_json_value *value)
{
    /* A key stands in the document's bytes where it stands in the file's. */
    const char *at = source->data + (value->key - document->bytes);
    if (value->kind == DDP_JSON_INT && value->integer >= 0 && value->integer <= MAX_ID)
        return NULL;
    return ddp_error_help(
        ddp_error_at(DDP_ERR_INPUT, place_of(source, at, (int)strlen(value->key)),
                     "the id of \"%s\" is no whole number from 0 to %d", value->key, MAX_ID),
        "a vocab.json is one object: every token and its id; a tokenizer.json holds it as model.vocab");
}

static ddp_error *refuse_twice(const source *source, const ddp_json_document *document,
                               const ddp_json_value *value, const char *what)
{
    const char *at = source->data + (value->key - document->bytes);
    return ddp_error_at(DDP_ERR_INPUT, place_of(source, at, (int)strlen(value->key)),
                        "%s of \"%s\", %" PRId64 ", has been given before", what, value->key, value->integer);
}

static ddp_error *take_entries(ddp_bpe *bpe, const source *source, const ddp_json_document *document,
                               unsigned char *seen)
{
    size_t used = 0;
    for (const ddp_json_value *value = document->root->first; value != NULL; value = value->next) {
        DDP_TRY(check_id(source, document, value));
        int32_t id = (int32_t)value->integer;
        if (seen[id]++ != 0)
            return refuse_twice(source, document, value, "the id");
        bpe->vocab = id >= bpe->vocab ? id + 1 : bpe->vocab;
        int64_t count = read_symbols(source, value->key, strlen(value->key), bpe->text + used);
        if (count < 0)
            continue;
        ddp_bpe_entry *entry = find_entry(bpe, bpe->text + used, (size_t)count);
        if (entry->id >= 0)
            return refuse_twice(source, document, value, "the entry");
        *entry = (ddp_bpe_entry){.at = (uint32_t)used, .count = (uint32_t)count, .id = id};
        used += (size_t)count;
    }
    return NULL;
}

static ddp_error *take_vocab(ddp_bpe *bpe, const source *source, size_t merges)
{
    ddp_json_document document = {0};
    void *seen = NULL;
    ddp_error *error = NULL;
    DDP_GO(ddp_json_read(source->path, source->data, source->bytes, &document));
    if (document.root->kind != DDP_JSON_OBJECT || document.root->integer == 0)
        DDP_GO(ddp_error_make(DDP_ERR_INPUT, "%s: one object, of every token and its id, is expected",
                              source->path));
    DDP_GO(ddp_memory_make(MAX_ID + 1, 1, &seen));
    DDP_GO(make_tables(bpe, (size_t)document.root->integer, merges, source->bytes));
    DDP_GO(take_entries(bpe, source, &document, seen));
    for (int byte = 0; byte < 256; byte++)
        bpe->byte_ids[byte] = find_entry(bpe, &(char){(char)byte}, 1)->id;
out:
    free(seen);
    ddp_json_free(&document);
    return error;
}

/* One side of a merge, `count` bytes of the file at `at`: its bytes behind `*used`, its id. */
static ddp_error *take_side(const ddp_bpe *bpe, const source *source, const char *vocab, const char *at,
                            size_t count, char *joined, size_t *used, int32_t *id)
{
    int64_t bytes = read_symbols(source, at, count, joined + *used);
    *id = bytes > 0 ? find_entry(bpe, joined + *used, (size_t)bytes)->id : -1;
    if (*id < 0)
        return ddp_error_help(ddp_error_at(DDP_ERR_INPUT, place_of(source, at, (int)count),
                                           "\"%.*s\" is not in %s", (int)count, at, vocab),
                              "the two files belong together: take both from one place");
    *used += (size_t)bytes;
    return NULL;
}

static ddp_error *take_merge(ddp_bpe *bpe, const source *source, const char *vocab, const char *line,
                             size_t count, char *joined)
{
    const char *space = memchr(line, ' ', count);
    size_t first = space != NULL ? (size_t)(space - line) : 0, used = 0;
    int32_t left, right;
    if (first == 0 || first + 1 == count || memchr(space + 1, ' ', count - first - 1) != NULL)
        return ddp_error_at(DDP_ERR_INPUT, place_of(source, line, (int)count),
                            "two symbols with one space between them are expected");
    DDP_TRY(take_side(bpe, source, vocab, line, first, joined, &used, &left));
    DDP_TRY(take_side(bpe, source, vocab, space + 1, count - first - 1, joined, &used, &right));
    int32_t id = find_entry(bpe, joined, used)->id;
    if (id < 0)
        return ddp_error_help(ddp_error_at(DDP_ERR_INPUT, place_of(source, line, (int)count),
                                           "\"%.*s\" and \"%.*s\" make a token that is not in %s", (int)first,
                                           line, (int)(count - first - 1), space + 1, vocab),
                              "the two files belong together: take both from one place");
    uint64_t pair = ddp_bpe_pair(left, right);
    size_t slot = ddp_bpe_slot(pair, bpe->merge_slots);
    for (; bpe->merges[slot].id >= 0; slot = (slot + 1) & (bpe->merge_slots - 1))
        if (bpe->merges[slot].pair == pair)
            return ddp_error_at(DDP_ERR_INPUT, place_of(source, line, (int)count),
                                "this merge has been given before");
    bpe->merges[slot] = (ddp_bpe_merge){.pair = pair, .rank = (uint32_t)bpe->merge_count++, .id = id};
    return NULL;
}

static ddp_error *take_merges(ddp_bpe *bpe, const source *source, const char *vocab)
{
    char *joined;
    ddp_error *error = NULL;
    const char *end = source->data + source->bytes, *line = source->data;
    DDP_TRY(ddp_memory_make(source->bytes, 1, (void **)&joined));
    if (strncmp(line, "#version", 8) == 0) /* only there: "# #" is a merge */
        line += strcspn(line, "\n");
    for (const char *next; line < end && error == NULL; line = next + 1) {
        next = memchr(line, '\n', (size_t)(end - line));
        next = next != NULL ? next : end;
        size_t count = (size_t)(next - line);
        count -= count > 0 && line[count - 1] == '\r';
        if (count > 0)
            error = take_merge(bpe, source, vocab, line, count, joined);
    }
    free(joined);
    return error;
}

static size_t count_lines(const source *source)
{
    size_t lines = 1;
    for (size_t i = 0; i < source->bytes; i++)
        lines += source->data[i] == '\n';
    return lines;
}

ddp_error *ddp_bpe_load(const char *vocab_path, const char *merges_path, ddp_bpe **bpe)
{
    source vocab = {0}, merges = {0};
    ddp_bpe *made = NULL;
    ddp_error *error = NULL;
    DDP_GO(open_source(vocab_path, &vocab));
    DDP_GO(open_source(merges_path, &merges));
    DDP_GO(DDP_NEW(&made));
    DDP_GO(take_vocab(made, &vocab, count_lines(&merges)));
    DDP_GO(take_merges(made, &merges, vocab_path));
out:
    free(vocab.data);
    free(merges.data);
    if (error != NULL)
        ddp_bpe_free(made);
    else
        *bpe = made;
    return error;
}

void ddp_bpe_free(ddp_bpe *bpe)
{
    if (bpe == NULL)
        return;
    free(bpe->merges);
    free(bpe->entries);
    free(bpe->text);
    free(bpe->words);
    free(bpe);
}

int64_t ddp_bpe_vocab(const ddp_bpe *bpe)
{
    return bpe->vocab;
}

int64_t ddp_bpe_merges(const ddp_bpe *bpe)
{
    return (int64_t)bpe->merge_count;
}

int64_t ddp_bpe_find(const ddp_bpe *bpe, const void *bytes, size_t count)
{
    return find_entry(bpe, bytes, count)->id;
}
