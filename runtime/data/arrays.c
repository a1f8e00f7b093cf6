/* The data set of two array files, IDX or npy: one of samples ("images"), one of their labels.
 *
 * Samples of type u8 become features in [0, 1] (the byte / 255); other types are taken as they are. Labels
 * are class ids for a model that takes classes (-1 in a signed type: masked), values as they are for one that
 * takes values. Without a labels key, the labels' file is named after the samples' file, as MNIST does it:
 * train-images-idx3-ubyte -> train-labels-idx1-ubyte, digits-images.idx -> digits-labels.idx. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files.h"
#include "core/memory.h"
#include "core/text.h"
#include "runtime/data/array.h"
#include "runtime/data/datasets.h"
#include "runtime/data/shape.h"

typedef struct settings {
    char *train_labels, *validation_labels;
} settings;

/* One kind of file. */
typedef struct format {
    const ddp_dataset_ops *ops;
    ddp_error *(*open)(const char *path, ddp_array *array);
} format;

typedef struct images {
    ddp_dataset base;
    ddp_array samples, labels;
} images;

/* Checked to be below the number of classes when the file was opened. */
static ddp_error *read_class(const ddp_array *labels, int64_t row, int32_t *class)
{
    int64_t value = 0;
    ddp_error *error = ddp_array_read_int(labels, row, &value);
    *class = (int32_t)value;
    return error;
}

static ddp_error *read_images(ddp_dataset *dataset, const int64_t *ids, int64_t count, void *input,
                              void *target)
{
    const images *data = (images *)dataset;
    const ddp_sample *sample = &dataset->sample;
    float scale = data->samples.type == DDP_ELEMENT_U8 ? 1.0f / 255 : 1;
    for (int64_t i = 0; i < count; i++) {
        ddp_assert(ids[i] >= 0 && ids[i] < dataset->count);
        DDP_TRY(ddp_array_read_floats(&data->samples, ids[i], sample->input_count, scale,
                                      (float *)input + i * sample->input_count));
        if (sample->target == DDP_I32)
            DDP_TRY(read_class(&data->labels, ids[i], (int32_t *)target + i));
        else
            DDP_TRY(ddp_array_read_floats(&data->labels, ids[i], sample->target_count, 1,
                                          (float *)target + i * sample->target_count));
    }
    return NULL;
}

/* The path with the last `from` in its file name replaced by `to`; NULL where there is none. */
static ddp_error *replace(const char *path, const char *from, const char *to, char **result)
{
    const char *found = NULL;
    *result = NULL;
    for (const char *at = ddp_path_name(path); (at = strstr(at, from)) != NULL; at++)
        found = at;
    if (found == NULL)
        return NULL;
    ddp_text text = {0};
    ddp_text_add(&text, "%.*s%s%s", (int)(found - path), path, to, found + strlen(from));
    ddp_error *error = text.failed ? ddp_error_make(DDP_ERR_MEMORY, "out of memory")
                                   : ddp_memory_text(ddp_text_get(&text), result);
    ddp_text_free(&text);
    return error;
}

static ddp_error *name_labels(const ddp_dataset_config *config, char **path)
{
    const settings *given = config->settings;
    const char *key = config->split == DDP_TRAIN ? "train_labels" : "validation_labels";
    char *named = config->split == DDP_TRAIN ? given->train_labels : given->validation_labels;
    char *labels, *flat;
    if (named != NULL)
        return ddp_memory_text(named, path);
    DDP_TRY(replace(config->path, "images", "labels", &labels));
    if (labels == NULL)
        return ddp_error_help(
            ddp_error_make(DDP_ERR_INPUT,
                           "%s: which file has its labels? data.%s is not given, and \"images\" "
                           "is not in its name",
                           config->path, key),
            "data.%s: FILE", key);
    ddp_error *error = replace(labels, "idx3", "idx1", &flat);
    if (error == NULL && flat == NULL)
        flat = labels;
    else
        free(labels);
    *path = flat;
    return error;
}

static ddp_error *check_want(const format *format, const ddp_sample *want)
{
    bool classes = want->target == DDP_I32 && want->target_count == 1;
    if (want->input == DDP_F32 && (classes || want->target == DDP_F32))
        return NULL;
    return ddp_shape_refuse(format->ops->name, "features with one class or with values", want);
}

static ddp_error *check_samples(const images *data, const ddp_sample *want)
{
    const ddp_array *samples = &data->samples;
    if (samples->columns == want->input_count)
        return NULL;
    return ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                         "%s: byte %" PRId64 ": found samples of %s, %" PRId64
                                         " values each; the model takes %" PRId64,
                                         samples->bytes.path, samples->shape_at, samples->shape,
                                         samples->columns, want->input_count),
                          "model.inputs: %" PRId64, samples->columns);
}

static ddp_error *check_labels(const images *data, const ddp_sample *want)
{
    const ddp_array *samples = &data->samples, *labels = &data->labels;
    if (labels->rows != samples->rows)
        return ddp_error_make(
            DDP_ERR_INPUT, "%s: byte %" PRId64 ": found %" PRId64 " labels; %s has %" PRId64 " samples",
            labels->bytes.path, labels->shape_at, labels->rows, samples->bytes.path, samples->rows);
    if (labels->columns != want->target_count)
        return ddp_error_make(
            DDP_ERR_INPUT, "%s: byte %" PRId64 ": found %" PRId64 " values a label; the model takes %" PRId64,
            labels->bytes.path, labels->shape_at, labels->columns, want->target_count);
    if (want->target == DDP_I32 && !ddp_array_is_whole(labels))
        return ddp_error_make(DDP_ERR_INPUT,
                              "%s: byte %" PRId64 ": found labels of type %s; class ids are whole numbers",
                              labels->bytes.path, labels->type_at, ddp_element_name(labels->type));
    return NULL;
}

/* Every label once, at the start: a wrong one would otherwise end the run whenever its turn comes. */
static ddp_error *check_classes(const images *data, int64_t classes)
{
    const ddp_array *labels = &data->labels;
    for (int64_t row = 0; row < labels->rows; row++) {
        int64_t label;
        DDP_TRY(ddp_array_read_int(labels, row, &label));
        if (label < -1 || label >= classes)
            return ddp_error_make(DDP_ERR_INPUT,
                                  "%s: byte %" PRId64 ": found label %" PRId64 " (sample %" PRId64
                                  "); the model has classes 0 "
                                  "to %" PRId64,
                                  labels->bytes.path, ddp_array_offset(labels, row), label, row, classes - 1);
    }
    return NULL;
}

static ddp_error *open_files(images *data, const format *format, const ddp_dataset_config *config)
{
    char *labels = NULL, count[32];
    DDP_TRY(check_want(format, &config->want));
    DDP_TRY(format->open(config->path, &data->samples));
    DDP_TRY(check_samples(data, &config->want));
    DDP_TRY(name_labels(config, &labels));
    ddp_error *error = format->open(labels, &data->labels);
    free(labels);
    if (error != NULL)
        return ddp_error_while(error, "looking for the labels of %s", config->path);
    DDP_TRY(check_labels(data, &config->want));
    if (config->want.target == DDP_I32)
        DDP_TRY(check_classes(data, config->want.classes));
    data->base.count = data->samples.rows;
    int used = snprintf(data->base.description, sizeof data->base.description, "%s samples of %s",
                        ddp_text_from_count(data->base.count, count, sizeof count), data->samples.shape);
    if (config->want.target == DDP_I32)
        snprintf(data->base.description + used, sizeof data->base.description - (size_t)used,
                 ", %" PRId64 " classes", config->want.classes);
    return NULL;
}

static void close_images(ddp_dataset *dataset)
{
    images *data = (images *)dataset;
    ddp_array_close(&data->samples);
    ddp_array_close(&data->labels);
    free(data);
}

static ddp_error *open_images(const format *format, const ddp_dataset_config *config, ddp_dataset **dataset)
{
    images *made;
    DDP_TRY(DDP_NEW(&made));
    made->base.ops = format->ops;
    made->base.sample = config->want;
    ddp_error *error = open_files(made, format, config);
    if (error != NULL) {
        close_images(&made->base);
        return ddp_error_locate(error, config->place);
    }
    *dataset = &made->base;
    return NULL;
}

static ddp_error *open_idx(const ddp_dataset_config *config, ddp_dataset **dataset)
{
    return open_images(&(format){&ddp_dataset_idx_ops, ddp_idx_open}, config, dataset);
}

static ddp_error *open_npy(const ddp_dataset_config *config, ddp_dataset **dataset)
{
    return open_images(&(format){&ddp_dataset_npy_ops, ddp_npy_open}, config, dataset);
}

static const ddp_field fields[] = {
    {.key = "train_labels",
     .type = DDP_FIELD_TEXT,
     .offset = offsetof(settings, train_labels),
     .optional = true,
     .help = "labels of data.train; default: its file name with labels for images and idx1 for idx3"},
    {.key = "validation_labels",
     .type = DDP_FIELD_TEXT,
     .offset = offsetof(settings, validation_labels),
     .optional = true,
     .help = "labels of data.validation; default as for train_labels"},
    DDP_FIELD_END,
};

const ddp_dataset_ops ddp_dataset_idx_ops = {
    .name = "idx",
    .help = "IDX files, MNIST's format: one of samples, one of labels",
    .fields = fields,
    .config_bytes = sizeof(settings),
    .open = open_idx,
    .read = read_images,
    .close = close_images,
};

const ddp_dataset_ops ddp_dataset_npy_ops = {
    .name = "npy",
    .help = "NumPy's .npy files: one of samples, one of labels",
    .fields = fields,
    .config_bytes = sizeof(settings),
    .open = open_npy,
    .read = read_images,
    .close = close_images,
};
