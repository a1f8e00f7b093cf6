/* checkpoint.json: what a checkpoint is of, and the checksums of its files.
 *
 * {"format": "ddprun checkpoint", "version": 1, "sequence": 7, "step": 500, "samples": 256000, ...,
 *  "job": {"train.steps": "1000", ...}, "environment": {...},
 *  "files": [{"name": "model.safetensors", "bytes": N, "parts": [{"begin": 0, "end": 4096, "xxh3": "..."},
 * ...]}], "checksum": "..."} `checksum` is XXH3 of everything before `, "checksum"`. The parts of a file lie
 * end to end from its first byte to its last. A directory is a complete checkpoint when it holds this file
 * and the files it names. */
#ifndef DDP_RUNTIME_CHECKPOINT_RECORD_H
#define DDP_RUNTIME_CHECKPOINT_RECORD_H

#include <ddp/field.h>

#include "core/json.h"

#define DDP_CHECKPOINT_RECORD "checkpoint.json"

typedef struct ddp_record_part {
    int64_t begin, end;
    uint64_t hash;
} ddp_record_part;

typedef struct ddp_record_file {
    char *name;
    int64_t bytes;
    ddp_record_part *parts;
    int part_count;
} ddp_record_file;

typedef struct ddp_checkpoint_state {
    int64_t sequence;           /* commits of this run directory, counted from 1: newer = larger */
    int64_t step;               /* optimizer steps done */
    int64_t samples;            /* global samples seen: the position of the data */
    int64_t updates;            /* steps that were not skipped: what the optimizer counts */
    int64_t skipped;            /* of them in a row, at the end */
    int64_t steps;              /* of the whole run, as asked for then */
    int64_t seed;               /* of start weights and sample order */
    int world;                  /* ranks that wrote it; of no meaning for who reads it */
    bool has_eval;              /* evaluated after just this step: */
    double eval_loss, accuracy; /* accuracy NaN = none */
    double lr;                  /* of the last step */
    uint64_t parameters, data;  /* digests: parameter table, training set */
    double time;                /* Unix seconds */
} ddp_checkpoint_state;

typedef struct ddp_checkpoint_record {
    ddp_checkpoint_state state;
    ddp_pairs job;         /* every key that decides the numbers, and its value as YAML */
    ddp_pairs environment; /* "ddprun", "device", "host", ... */
    ddp_record_file *files;
    int file_count;
    int64_t bytes; /* of the files */
} ddp_checkpoint_record;

/* Writes all of it, checksum last. `text->failed` tells of a lack of memory. */
void ddp_checkpoint_record_write(const ddp_checkpoint_record *record, ddp_text *text);

/* Loads DIRECTORY/checkpoint.json. Errors (INPUT, with file and place): not there, damaged, of another format
 * or version. */
DDP_USE_RESULT ddp_error *ddp_checkpoint_record_load(const char *directory, ddp_checkpoint_record *record);

void ddp_checkpoint_record_free(ddp_checkpoint_record *record); /* a zeroed one is fine */

#endif
