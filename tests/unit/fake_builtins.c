/* A build with two models, two formats and two optimizers that consist of their keys only. */
#include "runtime/builtins.h"

#include <stddef.h>

typedef struct tiny_settings {
    int64_t inputs, outputs;
    ddp_ints hidden;
} tiny_settings;

typedef struct deep_settings {
    int64_t layers, width;
    double dropout;
} deep_settings;

typedef struct words_settings {
    int64_t vocab_size;
    ddp_texts suffixes;
} words_settings;

typedef struct adamw_settings {
    ddp_floats betas;
    double weight_decay;
} adamw_settings;

typedef struct sgd_settings {
    double momentum;
} sgd_settings;

static const ddp_field tiny_fields[] = {
    {.key = "inputs",
     .type = DDP_FIELD_INT,
     .offset = offsetof(tiny_settings, inputs),
     .min = 1,
     .max = 1e6,
     .help = "features"},
    {.key = "outputs",
     .type = DDP_FIELD_INT,
     .offset = offsetof(tiny_settings, outputs),
     .min = 1,
     .max = 1e6,
     .help = "classes"},
    {.key = "hidden",
     .type = DDP_FIELD_INTS,
     .offset = offsetof(tiny_settings, hidden),
     .fallback = "[8]",
     .min = 1,
     .max = 1e6,
     .help = "widths"},
    DDP_FIELD_END,
};
static const ddp_field deep_fields[] = {
    {.key = "layers",
     .type = DDP_FIELD_INT,
     .offset = offsetof(deep_settings, layers),
     .min = 1,
     .max = 100,
     .help = "depth"},
    {.key = "width",
     .type = DDP_FIELD_INT,
     .offset = offsetof(deep_settings, width),
     .fallback = "64",
     .min = 1,
     .max = 1e5,
     .help = "width"},
    {.key = "dropout",
     .type = DDP_FIELD_FLOAT,
     .offset = offsetof(deep_settings, dropout),
     .fallback = "0.1",
     .min = 0,
     .max = 1,
     .help = "share"},
    DDP_FIELD_END,
};
static const ddp_field words_fields[] = {
    {.key = "vocab_size",
     .type = DDP_FIELD_INT,
     .offset = offsetof(words_settings, vocab_size),
     .fallback = "256",
     .min = 1,
     .max = 1e6,
     .help = "ids"},
    {.key = "suffixes",
     .type = DDP_FIELD_TEXTS,
     .offset = offsetof(words_settings, suffixes),
     .fallback = "[.txt, .md]",
     .help = "endings"},
    DDP_FIELD_END,
};
static const ddp_field adamw_fields[] = {
    {.key = "betas",
     .type = DDP_FIELD_FLOATS,
     .offset = offsetof(adamw_settings, betas),
     .fallback = "[0.9, 0.999]",
     .min = 0,
     .max = 1,
     .help = "decays"},
    {.key = "weight_decay",
     .type = DDP_FIELD_FLOAT,
     .offset = offsetof(adamw_settings, weight_decay),
     .fallback = "0.01",
     .min = 0,
     .max = 10,
     .help = "decay"},
    DDP_FIELD_END,
};
static const ddp_field sgd_fields[] = {
    {.key = "momentum",
     .type = DDP_FIELD_FLOAT,
     .offset = offsetof(sgd_settings, momentum),
     .fallback = "0.9",
     .min = 0,
     .max = 1,
     .help = "momentum"},
    DDP_FIELD_END,
};

static const ddp_model_ops tiny = {
    .name = "tiny", .help = "a small one", .fields = tiny_fields, .config_bytes = sizeof(tiny_settings)};
static const ddp_model_ops deep = {
    .name = "deep", .help = "a large one", .fields = deep_fields, .config_bytes = sizeof(deep_settings)};
static const ddp_dataset_ops idx = {.name = "idx", .help = "images"};
static const ddp_dataset_ops words = {
    .name = "words", .help = "texts", .fields = words_fields, .config_bytes = sizeof(words_settings)};
static const ddp_optim_ops adamw = {
    .name = "adamw", .help = "the usual one", .fields = adamw_fields, .config_bytes = sizeof(adamw_settings)};
static const ddp_optim_ops sgd = {
    .name = "sgd", .help = "the plain one", .fields = sgd_fields, .config_bytes = sizeof(sgd_settings)};

const ddp_model_ops *const *ddp_builtin_models(void)
{
    static const ddp_model_ops *const list[] = {&tiny, &deep, NULL};
    return list;
}

const ddp_dataset_ops *const *ddp_builtin_datasets(void)
{
    static const ddp_dataset_ops *const list[] = {&idx, &words, NULL};
    return list;
}

const ddp_optim_ops *const *ddp_builtin_optims(void)
{
    static const ddp_optim_ops *const list[] = {&adamw, &sgd, NULL};
    return list;
}
