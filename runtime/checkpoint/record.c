/* Writing and reading checkpoint.json. */
#include "runtime/checkpoint/record.h"

#include <ddp/job.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/files.h"
#include "core/hash.h"
#include "core/memory.h"

#define FORMAT "ddprun checkpoint"
#define VERSION 1
#define RECORD_LIMIT (256 << 20)
#define CHECKSUM_KEY ", \"checksum\": \""

#define STATE(member) offsetof(ddp_checkpoint_state, member)

/* Whole numbers of the state, each under its own name. */
static const struct {
    const char *key;
    size_t offset;
} numbers[] = {
    {"sequence", STATE(sequence)}, {"step", STATE(step)},       {"samples", STATE(samples)},
    {"updates", STATE(updates)},   {"skipped", STATE(skipped)}, {"steps", STATE(steps)},
    {"seed", STATE(seed)},
};
#define NUMBERS (sizeof numbers / sizeof numbers[0])

static void write_hash(ddp_json *json, const char *key, uint64_t hash)
{
    char text[DDP_HASH_DIGITS + 1];
    ddp_json_text(json, key, ddp_hash_write(hash, text));
}

static void write_pairs(ddp_json *json, const char *key, const ddp_pairs *pairs)
{
    ddp_json_open_object(json, key);
    for (size_t i = 0; i < pairs->count; i++)
        ddp_json_text(json, pairs->at[i].name, pairs->at[i].value);
    ddp_json_close_object(json);
}

static void write_file(ddp_json *json, const ddp_record_file *file)
{
    ddp_json_open_object(json, NULL);
    ddp_json_text(json, "name", file->name);
    ddp_json_int(json, "bytes", file->bytes);
    ddp_json_open_array(json, "parts");
    for (int i = 0; i < file->part_count; i++) {
        ddp_json_open_object(json, NULL);
        ddp_json_int(json, "begin", file->parts[i].begin);
        ddp_json_int(json, "end", file->parts[i].end);
        write_hash(json, "xxh3", file->parts[i].hash);
        ddp_json_close_object(json);
    }
    ddp_json_close_array(json);
    ddp_json_close_object(json);
}

void ddp_checkpoint_record_write(const ddp_checkpoint_record *record, ddp_text *text)
{
    const ddp_checkpoint_state *state = &record->state;
    char digits[DDP_HASH_DIGITS + 1];
    ddp_json json = {.text = text};
    size_t start = text->length;
    ddp_json_open_object(&json, NULL);
    ddp_json_text(&json, "format", FORMAT);
    ddp_json_int(&json, "version", VERSION);
    for (size_t i = 0; i < NUMBERS; i++)
        ddp_json_int(&json, numbers[i].key, *(const int64_t *)((const char *)state + numbers[i].offset));
    ddp_json_int(&json, "world", state->world);
    if (state->has_eval) {
        ddp_json_float(&json, "eval_loss", state->eval_loss);
        ddp_json_float(&json, "accuracy", state->accuracy);
    }
    ddp_json_float(&json, "lr", state->lr);
    write_hash(&json, "parameters", state->parameters);
    write_hash(&json, "data", state->data);
    ddp_json_float(&json, "time", state->time);
    write_pairs(&json, "job", &record->job);
    write_pairs(&json, "environment", &record->environment);
    ddp_json_open_array(&json, "files");
    for (int i = 0; i < record->file_count; i++)
        write_file(&json, &record->files[i]);
    ddp_json_close_array(&json);
    uint64_t hash = ddp_hash(ddp_text_get(text) + start, text->length - start);
    ddp_text_add(text, CHECKSUM_KEY "%s\"}\n", ddp_hash_write(hash, digits));
}

/* Where reading a record stands: the first thing that is not as it should be ends it. */
typedef struct reader {
    const char *path;
    const ddp_json_value *object;
} reader;

static ddp_error *refuse(const reader *in, const char *key, const char *what)
{
    return ddp_error_make(DDP_ERR_INPUT, "%s: %s %s", in->path, key, what);
}

static ddp_error *read_int(const reader *in, const char *key, int64_t *value)
{
    const ddp_json_value *found = ddp_json_get(in->object, key);
    if (found == NULL || found->kind != DDP_JSON_INT || found->integer < 0)
        return refuse(in, key, "is no whole number");
    *value = found->integer;
    return NULL;
}

static ddp_error *read_float(const reader *in, const char *key, double *value)
{
    const ddp_json_value *found = ddp_json_get(in->object, key);
    bool missing = found == NULL || found->kind == DDP_JSON_NULL;
    if (!missing && found->kind != DDP_JSON_INT && found->kind != DDP_JSON_FLOAT)
        return refuse(in, key, "is no number");
    *value = missing ? NAN : found->number;
    return NULL;
}

static ddp_error *read_hash(const reader *in, const char *key, uint64_t *value)
{
    const ddp_json_value *found = ddp_json_get(in->object, key);
    if (found == NULL || found->kind != DDP_JSON_TEXT || !ddp_hash_parse(found->text, value))
        return refuse(in, key, "is no checksum");
    return NULL;
}

static ddp_error *read_pairs(const reader *in, const char *key, ddp_pairs *pairs)
{
    const ddp_json_value *found = ddp_json_get(in->object, key);
    if (found == NULL || found->kind != DDP_JSON_OBJECT)
        return refuse(in, key, "is no list of settings");
    DDP_TRY(ddp_memory_make((size_t)found->integer + 1, sizeof *pairs->at, (void **)&pairs->at));
    for (const ddp_json_value *member = found->first; member != NULL; member = member->next) {
        ddp_pair *pair = &pairs->at[pairs->count];
        if (member->kind != DDP_JSON_TEXT)
            return refuse(in, key, "holds something that is no text");
        DDP_TRY(ddp_memory_text(member->key, &pair->name));
        pairs->count++;
        DDP_TRY(ddp_memory_text(member->text, &pair->value));
    }
    return NULL;
}

static ddp_error *read_parts(const reader *in, ddp_record_file *file)
{
    const ddp_json_value *parts = ddp_json_get(in->object, "parts");
    int64_t at = 0;
    if (parts == NULL || parts->kind != DDP_JSON_ARRAY)
        return refuse(in, "parts", "is no list");
    DDP_TRY(ddp_memory_make((size_t)parts->integer + 1, sizeof *file->parts, (void **)&file->parts));
    for (const ddp_json_value *member = parts->first; member != NULL; member = member->next) {
        ddp_record_part *part = &file->parts[file->part_count++];
        reader inner = {in->path, member};
        DDP_TRY(read_int(&inner, "begin", &part->begin));
        DDP_TRY(read_int(&inner, "end", &part->end));
        DDP_TRY(read_hash(&inner, "xxh3", &part->hash));
        if (part->begin != at || part->end <= at)
            return refuse(in, "parts", "do not lie end to end");
        at = part->end;
    }
    return at == file->bytes ? NULL : refuse(in, "parts", "do not cover their file");
}

static ddp_error *read_files(const reader *in, ddp_checkpoint_record *record)
{
    const ddp_json_value *files = ddp_json_get(in->object, "files");
    if (files == NULL || files->kind != DDP_JSON_ARRAY || files->integer == 0)
        return refuse(in, "files", "is no list");
    DDP_TRY(ddp_memory_make((size_t)files->integer, sizeof *record->files, (void **)&record->files));
    for (const ddp_json_value *member = files->first; member != NULL; member = member->next) {
        ddp_record_file *file = &record->files[record->file_count++];
        reader inner = {in->path, member};
        const ddp_json_value *name = ddp_json_get(member, "name");
        if (name == NULL || name->kind != DDP_JSON_TEXT || *name->text == '\0' || *name->text == '.' ||
            strchr(name->text, '/') != NULL)
            return refuse(in, "files", "holds something without a proper name");
        DDP_TRY(ddp_memory_text(name->text, &file->name));
        DDP_TRY(read_int(&inner, "bytes", &file->bytes));
        DDP_TRY(read_parts(&inner, file));
        if (__builtin_add_overflow(record->bytes, file->bytes, &record->bytes))
            return refuse(in, "files", "are longer than a number can say");
    }
    return NULL;
}

static ddp_error *read_state(const reader *in, ddp_checkpoint_state *state)
{
    int64_t world;
    for (size_t i = 0; i < NUMBERS; i++)
        DDP_TRY(read_int(in, numbers[i].key, (int64_t *)((char *)state + numbers[i].offset)));
    DDP_TRY(read_int(in, "world", &world));
    state->world = (int)world;
    DDP_TRY(read_float(in, "eval_loss", &state->eval_loss));
    DDP_TRY(read_float(in, "accuracy", &state->accuracy));
    state->has_eval = isfinite(state->eval_loss);
    DDP_TRY(read_float(in, "lr", &state->lr));
    DDP_TRY(read_float(in, "time", &state->time));
    DDP_TRY(read_hash(in, "parameters", &state->parameters));
    return read_hash(in, "data", &state->data);
}

static ddp_error *read_record(const reader *in, ddp_checkpoint_record *record)
{
    const ddp_json_value *format = ddp_json_get(in->object, "format");
    int64_t version;
    if (format == NULL || format->kind != DDP_JSON_TEXT || strcmp(format->text, FORMAT) != 0)
        return ddp_error_make(DDP_ERR_INPUT, "%s was not written by ddprun", in->path);
    DDP_TRY(read_int(in, "version", &version));
    if (version != VERSION)
        return ddp_error_make(DDP_ERR_INPUT,
                              "%s has version %lld of the format; this ddprun reads version %d", in->path,
                              (long long)version, VERSION);
    DDP_TRY(read_state(in, &record->state));
    DDP_TRY(read_pairs(in, "job", &record->job));
    DDP_TRY(read_pairs(in, "environment", &record->environment));
    return read_files(in, record);
}

/* The last `, "checksum": "..."}` must be that of all before it. */
static ddp_error *check_hash(const char *path, const char *text, size_t bytes)
{
    enum { TAIL = sizeof CHECKSUM_KEY - 1 + DDP_HASH_DIGITS + 3 };
    char digits[DDP_HASH_DIGITS + 1] = "";
    uint64_t wanted;
    if (bytes > TAIL && memcmp(text + bytes - TAIL, CHECKSUM_KEY, sizeof CHECKSUM_KEY - 1) == 0)
        memcpy(digits, text + bytes - DDP_HASH_DIGITS - 3, DDP_HASH_DIGITS);
    if (ddp_hash_parse(digits, &wanted) && ddp_hash(text, bytes - TAIL) == wanted)
        return NULL;
    return ddp_error_make(DDP_ERR_INPUT, "%s is damaged: it does not end with its own checksum", path);
}

static ddp_error *load(const char *path, ddp_checkpoint_record *record)
{
    char *text;
    size_t bytes;
    ddp_json_document document = {0};
    DDP_TRY(ddp_file_load(path, RECORD_LIMIT, &text, &bytes));
    ddp_error *error = check_hash(path, text, bytes);
    if (error == NULL)
        error = ddp_json_read(path, text, bytes, &document);
    if (error == NULL)
        error = read_record(&(reader){path, document.root}, record);
    ddp_json_free(&document);
    free(text);
    return error;
}

ddp_error *ddp_checkpoint_record_load(const char *directory, ddp_checkpoint_record *record)
{
    char *path;
    ddp_checkpoint_record made = {.files = NULL};
    DDP_TRY(ddp_path_join(directory, DDP_CHECKPOINT_RECORD, &path));
    ddp_error *error = load(path, &made);
    free(path);
    if (error != NULL) {
        ddp_checkpoint_record_free(&made);
        return error;
    }
    *record = made;
    return NULL;
}

void ddp_checkpoint_record_free(ddp_checkpoint_record *record)
{
    ddp_pairs_free(&record->job);
    ddp_pairs_free(&record->environment);
    for (int i = 0; i < record->file_count; i++) {
        free(record->files[i].name);
        free(record->files[i].parts);
    }
    free(record->files);
    *record = (ddp_checkpoint_record){.files = NULL};
}
