/* ddprun data info: what each file is, as a table. Files whose names differ in their digits only, and that
 * are of one kind, are one row: the shards of a set. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files.h"
#include "core/memory.h"
#include "launcher/data.h"

#define BEGINNING 8 /* ids or values shown */
#define TEXT_BEGINNING 32

enum { FILE_NAME, FORMAT, COUNT, TYPE, SIZE, LARGEST, BEGINS, COLUMNS };

/* One row: a file or a set of shards. */
typedef struct row {
    char *name; /* digits of a set's names are shown as one '*' */
    ddp_data_kind kind;
    bool guessed;
    int version, width; /* of tokens */
    int64_t files, count, bytes, largest;
    char shape[48]; /* of one sample; "" = a number */
    const char *type;
    ddp_text begins;
} row;

typedef struct table {
    row *rows;
    size_t count, capacity;
} table;

/* The number at the end of a name, "_000001.bin": where it begins and ends; of length 0 = none. */
static void find_number(const char *name, size_t *begin, size_t *end)
{
    const char *dot = strrchr(ddp_path_name(name), '.');
    *end = dot != NULL ? (size_t)(dot - name) : strlen(name);
    *begin = *end;
    while (*begin > 0 && isdigit((unsigned char)name[*begin - 1]))
        --*begin;
}

/* Whether two names differ in that number only. */
static bool is_same_set(const char *a, const char *b)
{
    size_t begin_a, end_a, begin_b, end_b;
    find_number(a, &begin_a, &end_a);
    find_number(b, &begin_b, &end_b);
    return begin_a < end_a && begin_b < end_b && begin_a == begin_b && strncmp(a, b, begin_a) == 0 &&
           strcmp(a + end_a, b + end_b) == 0;
}

static ddp_error *begin_with_ids(const ddp_token_file *file, row *row)
{
    unsigned char buffer[BEGINNING * 4];
    const unsigned char *at;
    int32_t ids[BEGINNING];
    int64_t count = file->count < BEGINNING ? file->count : BEGINNING;
    DDP_TRY(ddp_token_file_get(file, 0, count, buffer, &at));
    ddp_token_file_convert(file->width, at, count, ids);
    for (int64_t i = 0; i < count; i++)
        ddp_text_add(&row->begins, "%s%" PRIu32, i > 0 ? " " : "", (uint32_t)ids[i]);
    return NULL;
}

static ddp_error *begin_with_values(const ddp_array *array, row *row)
{
    char number[32];
    float values[BEGINNING];
    int64_t rows = array->columns == 1 ? array->rows : 1, columns = array->columns;
    int64_t count = rows * columns < BEGINNING ? rows * columns : BEGINNING;
    for (int64_t done = 0; done < count; done += columns) {
        int64_t part = count - done < columns ? count - done : columns;
        DDP_TRY(ddp_array_read_floats(array, done / columns, part, 1, values + done));
    }
    for (int64_t i = 0; i < count; i++)
        ddp_text_add(&row->begins, "%s%s", i > 0 ? " " : "",
                     ddp_text_from_float((double)values[i], number, sizeof number));
    return NULL;
}

/* Control characters are shown as blanks, and no character is cut in two. */
static ddp_error *begin_with_text(const ddp_bytes *bytes, row *row)
{
    unsigned char buffer[TEXT_BEGINNING + 1];
    const unsigned char *at;
    size_t count = bytes->count < TEXT_BEGINNING ? (size_t)bytes->count : TEXT_BEGINNING;
    DDP_TRY(ddp_bytes_get(bytes, 0, count, buffer, &at));
    while (count > 0 && (int64_t)count < bytes->count && (at[count - 1] & 0xC0) == 0x80)
        count--;
    if (count > 0 && (int64_t)count < bytes->count && at[count - 1] >= 0xC0)
        count--;
    ddp_text_add(&row->begins, "\"");
    for (size_t i = 0; i < count; i++)
        ddp_text_add(&row->begins, "%c", at[i] < 0x20 || at[i] == 0x7F ? ' ' : at[i]);
    ddp_text_add(&row->begins, "%s\"", (int64_t)count < bytes->count ? "..." : "");
    return NULL;
}

static ddp_error *describe_tokens(const ddp_data_file *file, row *row)
{
    ddp_data_scan scan;
    ddp_data_progress progress = {.what = file->tokens.bytes.path, .total = file->tokens.bytes.count};
    row->version = file->tokens.version;
    row->width = file->tokens.width;
    row->count = file->tokens.count;
    row->type = ddp_token_width_name(row->width);
    row->guessed = file->guessed;
    ddp_error *error = ddp_data_scan_tokens(&file->tokens, 0, &progress, &scan);
    ddp_data_progress_clear(&progress);
    DDP_TRY(error);
    row->largest = scan.largest;
    return begin_with_ids(&file->tokens, row);
}

static ddp_error *describe(const ddp_data_file *file, row *row)
{
    row->kind = file->kind;
    row->files = 1;
    row->bytes = ddp_data_file_bytes(file);
    row->largest = -1;
    row->type = "";
    if (file->kind == DDP_DATA_TOKENS)
        return describe_tokens(file, row);
    if (file->kind == DDP_DATA_NPY || file->kind == DDP_DATA_IDX) {
        row->count = file->array.rows;
        row->type = ddp_element_name(file->array.type);
        snprintf(row->shape, sizeof row->shape, "%s", file->array.columns == 1 ? "" : file->array.shape);
        return begin_with_values(&file->array, row);
    }
    row->count = row->bytes;
    return file->kind == DDP_DATA_TEXT ? begin_with_text(&file->bytes, row) : NULL;
}

/* Whether the row is one more shard of the one before it. */
static bool joins(const row *before, const row *next)
{
    return before->kind == DDP_DATA_TOKENS && next->kind == DDP_DATA_TOKENS && before->width == next->width &&
           before->version == next->version && is_same_set(before->name, next->name);
}

static void free_row(row *row)
{
    free(row->name);
    ddp_text_free(&row->begins);
    *row = (struct row){0};
}

static ddp_error *add_row(table *table, const char *path, int width)
{
    ddp_data_file file;
    DDP_TRY(ddp_memory_grow((void **)&table->rows, &table->capacity, table->count + 1, sizeof *table->rows));
    row *made = &table->rows[table->count];
    DDP_TRY(ddp_data_file_open(path, width, &file));
    ddp_error *error = ddp_memory_text(path, &made->name);
    if (error == NULL)
        error = describe(&file, made);
    ddp_data_file_close(&file);
    if (error != NULL) {
        free_row(made);
        return error;
    }
    row *before = table->count > 0 ? made - 1 : NULL;
    if (before == NULL || !joins(before, made)) {
        table->count++;
        return NULL;
    }
    before->files++;
    before->count += made->count;
    before->bytes += made->bytes;
    before->largest = made->largest > before->largest ? made->largest : before->largest;
    free_row(made);
    return NULL;
}

/* A set goes by a pattern that data.train takes. */
static void write_name(const row *row, ddp_text *text)
{
    size_t begin, end;
    find_number(row->name, &begin, &end);
    if (row->files == 1)
        ddp_text_add(text, "%s", row->name);
    else
        ddp_text_add(text, "%.*s*%s", (int)begin, row->name, row->name + end);
}

static void write_format(const row *row, ddp_text *text)
{
    static const char *const names[] = {[DDP_DATA_TOKENS] = "tokens",
                                        [DDP_DATA_NPY] = "npy",
                                        [DDP_DATA_IDX] = "idx",
                                        [DDP_DATA_TEXT] = "text",
                                        [DDP_DATA_UNKNOWN] = "not known"};
    ddp_text_add(text, "%s", names[row->kind]);
    if (row->kind == DDP_DATA_TOKENS && row->version > 0)
        ddp_text_add(text, ", header version %d", row->version);
    else if (row->kind == DDP_DATA_TOKENS)
        ddp_text_add(text, ", plain%s", row->guessed ? " it seems" : "");
    if (row->files > 1)
        ddp_text_add(text, ", %" PRId64 " files", row->files);
}

static void write_cells(const row *row, ddp_text cells[COLUMNS])
{
    char number[32];
    write_name(row, &cells[FILE_NAME]);
    write_format(row, &cells[FORMAT]);
    ddp_text_add(&cells[COUNT], "%s", ddp_text_from_count(row->count, number, sizeof number));
    ddp_text_add(&cells[TYPE], "%s%s%s",
                 row->kind == DDP_DATA_TEXT || row->kind == DDP_DATA_UNKNOWN ? "bytes" : row->shape,
                 row->shape[0] != '\0' ? " " : "", row->type);
    ddp_text_add(&cells[SIZE], "%s", ddp_text_from_bytes((double)row->bytes, number, sizeof number));
    if (row->largest >= 0)
        ddp_text_add(&cells[LARGEST], "%" PRId64, row->largest);
    ddp_text_add(&cells[BEGINS], "%s", ddp_text_get(&row->begins));
}

/* Bytes are not columns: those that go on a character take none. */
static int width_of(const char *text)
{
    int width = 0;
    for (; *text != '\0'; text++)
        width += (*text & 0xC0) != 0x80;
    return width;
}

static void print_cells(const ddp_text cells[COLUMNS], const int widths[COLUMNS])
{
    static const bool right[COLUMNS] = {[COUNT] = true, [SIZE] = true, [LARGEST] = true};
    for (int i = 0; i < COLUMNS; i++) {
        const char *text = ddp_text_get(&cells[i]);
        int pad = i + 1 < COLUMNS ? widths[i] - width_of(text) : 0;
        printf("%*s%s%*s%s", right[i] ? pad : 0, "", text, right[i] ? 0 : pad, "",
               i + 1 < COLUMNS ? "  " : "\n");
    }
}

static ddp_error *print_table(const table *table)
{
    static const char *const heads[COLUMNS] = {"file", "format",     "count",      "of",
                                               "size", "largest id", "begins with"};
    int widths[COLUMNS] = {0};
    ddp_text(*cells)[COLUMNS];
    DDP_TRY(ddp_memory_make(table->count + 1, sizeof *cells, (void **)&cells));
    for (int i = 0; i < COLUMNS; i++)
        ddp_text_add(&cells[0][i], "%s", heads[i]);
    for (size_t r = 0; r < table->count; r++)
        write_cells(&table->rows[r], cells[r + 1]);
    for (size_t r = 0; r <= table->count; r++)
        for (int i = 0; i < COLUMNS; i++) {
            int width = width_of(ddp_text_get(&cells[r][i]));
            widths[i] = width > widths[i] ? width : widths[i];
        }
    for (size_t r = 0; r <= table->count; r++) {
        print_cells(cells[r], widths);
        for (int i = 0; i < COLUMNS; i++)
            ddp_text_free(&cells[r][i]);
    }
    free(cells);
    return NULL;
}

static void print_json(const table *table)
{
    static const char *const kinds[] = {[DDP_DATA_TOKENS] = "tokens",
                                        [DDP_DATA_NPY] = "npy",
                                        [DDP_DATA_IDX] = "idx",
                                        [DDP_DATA_TEXT] = "text",
                                        [DDP_DATA_UNKNOWN] = NULL};
    ddp_text text = {0};
    ddp_json json = {.text = &text};
    ddp_json_open_object(&json, NULL);
    ddp_json_open_array(&json, "files");
    for (size_t i = 0; i < table->count; i++) {
        const row *row = &table->rows[i];
        ddp_text name = {0};
        write_name(row, &name);
        ddp_json_open_object(&json, NULL);
        ddp_json_text(&json, "name", ddp_text_get(&name));
        ddp_json_text(&json, "format", kinds[row->kind]);
        if (row->kind == DDP_DATA_TOKENS)
            ddp_json_int(&json, "header_version", row->version);
        ddp_json_int(&json, "files", row->files);
        ddp_json_int(&json, "count", row->count);
        ddp_json_text(&json, "type", row->type[0] != '\0' ? row->type : NULL);
        if (row->kind == DDP_DATA_NPY || row->kind == DDP_DATA_IDX)
            ddp_json_text(&json, "sample", row->shape[0] != '\0' ? row->shape : "1");
        ddp_json_int(&json, "bytes", row->bytes);
        if (row->largest >= 0)
            ddp_json_int(&json, "largest", row->largest);
        ddp_json_close_object(&json);
        ddp_text_free(&name);
    }
    ddp_json_close_array(&json);
    ddp_json_close_object(&json);
    printf("%s\n", ddp_text_get(&text));
    ddp_text_free(&text);
}

/* Files that cannot be read do not hide the others. */
ddp_error *ddp_data_info(const ddp_arguments *arguments, const ddp_data_files *files, int *code)
{
    table table = {0};
    int width;
    ddp_error *findings = NULL;
    DDP_TRY(ddp_data_read_dtype(arguments, &width));
    for (size_t i = 0; i < files->count; i++)
        findings = ddp_error_join(findings, add_row(&table, files->at[i], width));
    if (arguments->options[DDP_DATA_JSON] != NULL)
        print_json(&table);
    else if (table.count > 0)
        findings = ddp_error_join(findings, print_table(&table));
    for (size_t i = 0; i < table.count; i++)
        free_row(&table.rows[i]);
    free(table.rows);
    fflush(stdout);
    return findings;
}
