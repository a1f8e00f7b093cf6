/* Samples out of nothing, for tests, for measuring speed, and for trying a model before there is data. It
 * makes what the model takes, and something that can be learned:
 *   features, one class   features uniform in [-1, 1); the class is the largest of `classes` fixed random
 *                         linear functions of the first features
 *   features, values      the values of such functions
 *   tokens                a chain: from each token one fixed successor, in a quarter of all places a random
 *                         token instead
 * Every value is a function of (seed, split, id): ranks, order and epoch change nothing. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/memory.h"
#include "core/rng.h"
#include "core/text.h"
#include "runtime/data/datasets.h"
#include "runtime/data/shape.h"

/* Targets depend on this many features at most: the data must cost little beside the model. */
#define MAP_INPUTS 32
#define MAP_STREAM 0x6D6170ull
#define SAMPLE_STREAM 0x73616D70ull

typedef struct settings {
    int64_t samples, validation_samples;
} settings;

typedef struct synthetic {
    ddp_dataset base;
    uint64_t seed, stream; /* the stream differs between training and validation */
    float *map;            /* (outputs, mapped); NULL for tokens */
    int64_t mapped;        /* features that the target depends on */
} synthetic;

/* SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a few nanoseconds a number. Each sample starts it at a place
 * of its own, taken from the counter-based generator. */
static uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15ull;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31;
}

/* A number below `limit`, from the upper half of the bits (Lemire's multiplication, bias below 2^-32 *
 * limit). */
static int32_t draw_below(uint64_t *state, int64_t limit)
{
    return (int32_t)((draw(state) >> 32) * (uint64_t)limit >> 32);
}

/* 24 bits a feature, so that it is exact on every machine. */
static void make_features(uint64_t *state, float *to, int64_t count)
{
    for (int64_t i = 0; i < count; i += 2) {
        uint64_t bits = draw(state);
        to[i] = (float)(int32_t)(bits >> 40) * 0x1p-23f - 1.0f;
        if (i + 1 < count)
            to[i + 1] = (float)(int32_t)(bits & 0xFFFFFF) * 0x1p-23f - 1.0f;
    }
}

static float apply_map(const synthetic *data, int64_t output, const float *features)
{
    const float *row = data->map + output * data->mapped;
    float sum = 0;
    for (int64_t i = 0; i < data->mapped; i++)
        sum += row[i] * features[i];
    return sum;
}

static int32_t classify(const synthetic *data, const float *features)
{
    int32_t best = 0;
    float most = apply_map(data, 0, features);
    for (int32_t i = 1; i < data->base.sample.classes; i++) {
        float value = apply_map(data, i, features);
        if (value > most) {
            most = value;
            best = i;
        }
    }
    return best;
}

static int32_t successor(const synthetic *data, int32_t token)
{
    uint64_t state = data->seed ^ (uint64_t)token << 32;
    return draw_below(&state, data->base.sample.classes);
}

static void make_tokens(const synthetic *data, uint64_t *state, int32_t *input, int32_t *target)
{
    int64_t count = data->base.sample.input_count, classes = data->base.sample.classes;
    int32_t token = draw_below(state, classes);
    for (int64_t i = 0; i < count; i++) {
        input[i] = token;
        token = draw(state) >> 62 == 0 ? draw_below(state, classes) : successor(data, token);
        target[i] = token;
    }
}

static ddp_error *read_samples(ddp_dataset *dataset, const int64_t *ids, int64_t count, void *input,
                               void *target)
{
    const synthetic *data = (synthetic *)dataset;
    const ddp_sample *sample = &dataset->sample;
    for (int64_t i = 0; i < count; i++) {
        ddp_assert(ids[i] >= 0 && ids[i] < dataset->count);
        uint64_t state = ddp_rng_u64(data->seed, data->stream, (uint64_t)ids[i]);
        if (sample->input == DDP_I32) {
            make_tokens(data, &state, (int32_t *)input + i * sample->input_count,
                        (int32_t *)target + i * sample->target_count);
            continue;
        }
        float *features = (float *)input + i * sample->input_count;
        make_features(&state, features, sample->input_count);
        if (sample->target == DDP_I32)
            ((int32_t *)target)[i] = classify(data, features);
        else
            for (int64_t j = 0; j < sample->target_count; j++)
                ((float *)target)[i * sample->target_count + j] = apply_map(data, j, features);
    }
    return NULL;
}

/* Scaled so that a value has variance 1/3, whatever the number of features. */
static ddp_error *make_map(synthetic *data)
{
    const ddp_sample *sample = &data->base.sample;
    int64_t outputs = sample->target == DDP_I32 ? sample->classes : sample->target_count;
    data->mapped = sample->input_count < MAP_INPUTS ? sample->input_count : MAP_INPUTS;
    DDP_TRY(ddp_memory_make((size_t)(outputs * data->mapped), sizeof *data->map, (void **)&data->map));
    float bound = sqrtf(3.0f / (float)data->mapped);
    ddp_rng_fill_uniform(data->seed, MAP_STREAM, 0, data->map, (size_t)(outputs * data->mapped), -bound,
                         bound);
    return NULL;
}

static void close_synthetic(ddp_dataset *dataset)
{
    free(((synthetic *)dataset)->map);
    free(dataset);
}

static ddp_error *check_want(const ddp_sample *want)
{
    bool features = want->input == DDP_F32 &&
                    (want->target == DDP_F32 || (want->target == DDP_I32 && want->target_count == 1));
    if (features || ddp_shape_is_tokens(want))
        return NULL;
    return ddp_shape_refuse("synthetic", "features with one class or with values, or tokens", want);
}

static ddp_error *open_synthetic(const ddp_dataset_config *config, ddp_dataset **dataset)
{
    const settings *given = config->settings;
    synthetic *made;
    char count[32];
    DDP_TRY(ddp_error_locate(check_want(&config->want), config->place));
    DDP_TRY(DDP_NEW(&made));
    made->base.ops = &ddp_dataset_synthetic_ops;
    made->base.sample = config->want;
    made->base.count = config->split == DDP_TRAIN ? given->samples : given->validation_samples;
    made->seed = config->seed;
    made->stream = SAMPLE_STREAM + (uint64_t)config->split;
    snprintf(made->base.description, sizeof made->base.description, "%s made-up samples of %" PRId64 " %s",
             ddp_text_from_count(made->base.count, count, sizeof count), config->want.input_count,
             config->want.input == DDP_I32 ? "tokens" : "features");
    ddp_error *error = config->want.input == DDP_F32 ? make_map(made) : NULL;
    if (error != NULL) {
        close_synthetic(&made->base);
        return error;
    }
    *dataset = &made->base;
    return NULL;
}

static const ddp_field fields[] = {
    {.key = "samples",
     .type = DDP_FIELD_INT,
     .offset = offsetof(settings, samples),
     .fallback = "65536",
     .min = 1,
     .max = 1e15,
     .unit = "samples",
     .help = "size of the made-up training set"},
    {.key = "validation_samples",
     .type = DDP_FIELD_INT,
     .offset = offsetof(settings, validation_samples),
     .fallback = "1024",
     .min = 1,
     .max = 1e15,
     .unit = "samples",
     .help = "size of the made-up validation set"},
    DDP_FIELD_END,
};

const ddp_dataset_ops ddp_dataset_synthetic_ops = {
    .name = "synthetic",
    .help = "made-up samples of whatever the model takes; needs no files",
    .pathless = true,
    .fields = fields,
    .config_bytes = sizeof(settings),
    .open = open_synthetic,
    .read = read_samples,
    .close = close_synthetic,
};
