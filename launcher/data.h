/* The parts of the verb data, which looks at data files and makes them. Each part is one file; data.c has the
 * verb's table and what the parts share. */
#ifndef DDP_LAUNCHER_DATA_H
#define DDP_LAUNCHER_DATA_H

#include "core/json.h"
#include "launcher/verbs.h"
#include "runtime/data/array.h"
#include "runtime/data/token_file.h"

/* Index of each option in the verb's list. */
enum {
    DDP_DATA_JSON,
    DDP_DATA_VOCAB,
    DDP_DATA_DTYPE,
    DDP_DATA_OUT,
    DDP_DATA_MERGES,
    DDP_DATA_SHARD_TOKENS,
    DDP_DATA_VAL_TOKENS,
    DDP_DATA_VAL_FRACTION,
    DDP_DATA_END_OF_TEXT,
};

/* The files that the words behind the action name, in order; a word may be a pattern, as data.train may. */
typedef struct ddp_data_files {
    char **at;
    size_t count, capacity;
} ddp_data_files;

/* Adds the files of one word. INPUT: no file is named so. */
DDP_USE_RESULT ddp_error *ddp_data_files_add(ddp_data_files *files, const char *word);
void ddp_data_files_free(ddp_data_files *files);

/* A line on stderr that says how far it is; nothing where stderr is no terminal. Zero it, set what and total.
 */
typedef struct ddp_data_progress {
    const char *what;
    int64_t total; /* bytes */
    double begun, next;
    bool shown;
} ddp_data_progress;
void ddp_data_progress_show(ddp_data_progress *progress, int64_t done);
void ddp_data_progress_clear(ddp_data_progress *progress);

/* What a file is found to be. */
typedef enum ddp_data_kind {
    DDP_DATA_TOKENS,
    DDP_DATA_NPY,
    DDP_DATA_IDX,
    DDP_DATA_TEXT,
    DDP_DATA_UNKNOWN
} ddp_data_kind;

typedef struct ddp_data_file {
    ddp_data_kind kind;
    ddp_bytes bytes;       /* TEXT, UNKNOWN */
    ddp_token_file tokens; /* TOKENS */
    ddp_array array;       /* NPY, IDX */
    bool guessed;          /* TOKENS without a header: the width is what it looks like */
} ddp_data_file;

/* Opens a file as what its first bytes say. `width`: of plain ids, 0 = not said; then a name that ends in
 * .bin and bytes that are no text are taken for plain ids. INPUT: what that format's reader says. */
DDP_USE_RESULT ddp_error *ddp_data_file_open(const char *path, int width, ddp_data_file *file);
void ddp_data_file_close(ddp_data_file *file); /* a zeroed one is fine */
int64_t ddp_data_file_bytes(const ddp_data_file *file);

/* Reads all ids of a token file. *largest: of them, -1 = there are none. With `vocab` above 0 it counts those
 * at or above it in *outside, and *first is the number of the first one. IO. */
typedef struct ddp_data_scan {
    int64_t largest, outside, first, first_id;
} ddp_data_scan;
DDP_USE_RESULT ddp_error *ddp_data_scan_tokens(const ddp_token_file *file, int64_t vocab,
                                               ddp_data_progress *progress, ddp_data_scan *scan);

/* --dtype as a width, 0 = absent. */
DDP_USE_RESULT ddp_error *ddp_data_read_dtype(const ddp_arguments *arguments, int *width);

/* The actions. */
DDP_USE_RESULT ddp_error *ddp_data_info(const ddp_arguments *arguments, const ddp_data_files *files,
                                        int *code);
DDP_USE_RESULT ddp_error *ddp_data_check(const ddp_arguments *arguments, const ddp_data_files *files,
                                         int *code);
DDP_USE_RESULT ddp_error *ddp_data_tokenize(const ddp_arguments *arguments, const ddp_data_files *files,
                                            int *code);

#endif
