/* A dataset: random access to samples. Their order belongs to the sampler, batches to the loader.
 * A new format is one ddp_dataset_ops table, listed in runtime/builtins.c. */
#ifndef DDP_DATASET_H
#define DDP_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include <ddp/error.h>
#include <ddp/field.h>
#include <ddp/tensor.h>

/* The shape of one sample, asked for by the model and answered by the dataset. */
typedef struct ddp_sample {
    ddp_dtype input;      /* DDP_F32 (features) or DDP_I32 (token ids) */
    int64_t input_count;  /* elements: features, or T tokens */
    ddp_dtype target;     /* DDP_I32 (class ids, -1 = masked) or DDP_F32 (values) */
    int64_t target_count; /* 1 class, T next tokens, or n values */
    int64_t classes;      /* class and token ids are below this; 0 for values */
    int64_t items;        /* loss items a sample: 1, or T for tokens */
} ddp_sample;

typedef struct ddp_dataset ddp_dataset;

typedef enum ddp_split { DDP_TRAIN, DDP_VALIDATION } ddp_split;

/* What a dataset is opened with. Pointers are borrowed for the call. */
typedef struct ddp_dataset_config {
    const void *settings; /* of the format's own fields (data.* keys), config_bytes long */
    const char *path;     /* data.train or data.validation, may be NULL for synthetic */
    ddp_place place;      /* of that value in the job file, for errors */
    ddp_split split;
    ddp_sample want; /* what the model takes */
    uint64_t seed;
} ddp_dataset_config;

typedef struct ddp_dataset_ops {
    const char *name; /* data.format */
    const char *help;
    bool pathless;           /* makes its samples itself: data.train and data.validation are not used */
    const ddp_field *fields; /* further data.* keys; NULL = none */
    size_t config_bytes;
    /* Errors (INPUT, at config->place): file missing, malformed (file, byte offset, found and expected),
     * empty, or of another shape than `want` (both given). IO. */
    ddp_error *(*open)(const ddp_dataset_config *config, ddp_dataset **dataset);
    /* Reads `count` samples into host memory: input (count, input_count), target (count, target_count).
     * Ids are in [0, dataset->count). May be called by several threads at once. Errors: IO (file, offset),
     * INPUT (an id outside the vocabulary: file, offset, id). */
    ddp_error *(*read)(ddp_dataset *dataset, const int64_t *ids, int64_t count, void *input, void *target);
    void (*close)(ddp_dataset *dataset);
} ddp_dataset_ops;

/* Base of every dataset. */
struct ddp_dataset {
    const ddp_dataset_ops *ops;
    int64_t count; /* samples, at least 1 */
    ddp_sample sample;
    char description[160]; /* "1,437 images 8 x 8, 10 classes" */
};

void ddp_dataset_close(ddp_dataset *dataset); /* NULL is fine */

/* A batch as the model sees it. */
typedef struct ddp_batch {
    const void *input;  /* device: (count, input_count) */
    const void *target; /* device: (count, target_count) */
    int64_t count;      /* samples, at least 1 */
} ddp_batch;

#endif
