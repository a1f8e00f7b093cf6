/* A job made concrete, without any device. */
#include "runtime/setup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/text.h"
#include "runtime/builtins.h"
#include "runtime/data/sampler.h"

/* Note [Why batches are cut into tiles]
 * Each layer of a micro-batch is written by one operation and read by the next. On a CPU those activations
 * leave the cache when the micro-batch is large, and the step waits for memory: a gpt of 4 layers, 128 wide,
 * T = 128, took 124 ms for 16 sequences at once and 105 ms two at a time (one core, 2 MiB of second-level
 * cache). So the trainer takes a micro-batch through forward and backward in tiles whose activations are
 * small; what is added up, and in which order, depends on the tile alone. A GPU wants its batch whole. */
#define TILE_BYTES (8 << 20)

/* Where a key was written, or the top of the job file when it was left to its default. */
static ddp_place place_of(const ddp_job *job, const void *member)
{
    ddp_place place = ddp_job_where(job, member);
    if (place.file == NULL)
        place = (ddp_place){.file = job->path};
    return place;
}

/* A model or an optimizer says "model.heads: ..." and cannot know where that was written: the key is found by
 * the name the message begins with; otherwise `fallback`. */
static ddp_error *locate_setting(ddp_error *error, const ddp_job *job, const char *section,
                                 const ddp_field *fields, const void *settings, ddp_place fallback)
{
    size_t length = strlen(section);
    if (error == NULL || fields == NULL)
        return ddp_error_locate(error, fallback);
    const char *message = ddp_error_message(error);
    for (; fields->key != NULL && strncmp(message, section, length) == 0; fields++) {
        size_t key = strlen(fields->key);
        if (strncmp(message + length, fields->key, key) == 0 && message[length + key] == ':')
            return ddp_error_locate(error, place_of(job, (const char *)settings + fields->offset));
    }
    return ddp_error_locate(error, fallback);
}

static const ddp_device_ops *find_device(const char *name)
{
    for (const ddp_device_ops *const *ops = ddp_builtin_devices(); *ops != NULL; ops++)
        if (strcmp((*ops)->name, name) == 0)
            return *ops;
    return NULL;
}

static bool has_comm(const char *name)
{
    for (const ddp_comm_ops *const *ops = ddp_builtin_comms(); *ops != NULL; ops++)
        if (strcmp((*ops)->name, name) == 0)
            return true;
    return false;
}

static ddp_error *refuse_device(const ddp_job *job, const char *wanted)
{
    ddp_text has = {0};
    for (const ddp_device_ops *const *ops = ddp_builtin_devices(); *ops != NULL; ops++)
        ddp_text_add(&has, "%s%s", has.length > 0 ? ", " : "", (*ops)->name);
    ddp_error *error =
        ddp_error_at(DDP_ERR_INPUT, place_of(job, &job->parallel.device),
                     "parallel.device: \"%s\" is not in this build (has: %s)", wanted, ddp_text_get(&has));
    ddp_text_free(&has);
    return error;
}

/* auto: GPUs where build, machine and number of ranks allow it; otherwise the cpu, and why is kept to be said
 * once. The choice depends on job and host alone, so launcher and ranks come to the same one. */
static void choose_automatically(const ddp_job *job, int world, const ddp_gpus *gpus, ddp_setup *setup)
{
    bool several = world > 1 || (world == 0 && job->parallel.ranks > 1);
    setup->device = find_device("cpu");
    if (find_device("cuda") == NULL)
        return;
    if (gpus->count == 0)
        snprintf(setup->no_gpu, sizeof setup->no_gpu, "%s", gpus->why);
    else if (several && !has_comm("nccl"))
        snprintf(setup->no_gpu, sizeof setup->no_gpu,
                 "several ranks on GPUs need NCCL, which this build lacks");
    else
        setup->device = find_device("cuda");
}

static ddp_error *choose_device(const ddp_job *job, int world, ddp_setup *setup)
{
    ddp_gpus gpus = {.count = 0};
    ddp_place place = place_of(job, &job->parallel.device);
    if (job->parallel.device != DDP_DEVICE_CPU && find_device("cuda") != NULL)
        ddp_gpus_read(&gpus);
    if (job->parallel.device == DDP_DEVICE_AUTO)
        choose_automatically(job, world, &gpus, setup);
    else
        setup->device = find_device(job->parallel.device == DDP_DEVICE_CUDA ? "cuda" : "cpu");
    if (setup->device == NULL)
        return refuse_device(job, "cuda");
    if (setup->device->host_memory)
        gpus.count = 0;
    else if (gpus.count == 0)
        return ddp_error_help(
            ddp_error_at(DDP_ERR_MACHINE, place, "parallel.device: no GPU can be used: %s", gpus.why),
            "%s; parallel.device=cpu works without", gpus.help);
    setup->gpus = gpus.count;
    memcpy(setup->gpu, gpus.at, sizeof setup->gpu);
    if (job->train.precision != DDP_PRECISION_FP32)
        return ddp_error_help(ddp_error_at(DDP_ERR_INPUT, place_of(job, &job->train.precision),
                                           "train.precision: the %s computes in fp32 only",
                                           setup->device->name),
                              "train.precision=fp32");
    return NULL;
}

static ddp_error *describe_model(const ddp_job *job, ddp_setup *setup)
{
    ddp_place place = place_of(job, &job->model.ops);
    const ddp_model_ops *ops = job->model.ops;
    const void *settings = job->model.settings;
    DDP_TRY(
        locate_setting(ops->sample(settings, &setup->sample), job, "model.", ops->fields, settings, place));
    DDP_TRY(
        locate_setting(ops->describe(settings, &setup->params), job, "model.", ops->fields, settings, place));
    return ddp_params_seal(&setup->params);
}

static ddp_error *open_dataset(const ddp_job *job, ddp_split split, const ddp_setup *setup,
                               ddp_dataset **dataset)
{
    char *const *path = split == DDP_TRAIN ? &job->data.train : &job->data.validation;
    const ddp_dataset_ops *ops = job->data.ops;
    if (*path == NULL && !ops->pathless) {
        if (split == DDP_VALIDATION)
            return NULL;
        return ddp_error_at(DDP_ERR_INPUT, place_of(job, &job->data.ops),
                            "data.train is missing: format %s reads files", ops->name);
    }
    if (*path != NULL && ops->pathless)
        return ddp_error_help(ddp_error_at(DDP_ERR_INPUT, place_of(job, path),
                                           "data.%s: format %s makes its own samples and "
                                           "reads no file",
                                           split == DDP_TRAIN ? "train" : "validation", ops->name),
                              "leave it out, or choose the data.format of your file");
    ddp_dataset_config config = {
        .settings = job->data.settings,
        .path = *path,
        .place = place_of(job, path),
        .split = split,
        .want = setup->sample,
        .seed = (uint64_t)job->train.seed,
    };
    return ddp_error_locate(ops->open(&config, dataset), config.place);
}

/* The unit that the global batch must be a multiple of, with `ranks` ranks. */
static int64_t batch_unit(const ddp_job *job, int64_t ranks)
{
    return job->train.micro_batch == DDP_AUTO ? ranks : job->train.micro_batch * ranks;
}

static bool divides(const ddp_job *job, int64_t ranks)
{
    return job->train.global_batch % batch_unit(job, ranks) == 0;
}

/* "global_batch 40 or 60 would, or parallel.ranks 4 or 6": the nearest that divide, on both sides. */
static ddp_error *help_with_batch(ddp_error *error, const ddp_job *job, int64_t world)
{
    enum { SEARCH = 4096 }; /* rank counts beyond are of no use to anybody who typed this one */
    int64_t batch = job->train.global_batch, unit = batch_unit(job, world), below = batch / unit * unit;
    int64_t fewer = world, more = world, most = world + SEARCH < batch ? world + SEARCH : batch;
    if (!divides(job, 1))
        fewer = 0, more = most + 1; /* the micro-batch itself does not divide: no rank count helps */
    ddp_text help = {0};
    ddp_text_add(&help, "train.global_batch ");
    if (below > 0)
        ddp_text_add(&help, "%" PRId64 " or ", below);
    ddp_text_add(&help, "%" PRId64 " would", below + unit);
    while (fewer > 0 && !divides(job, fewer))
        fewer--;
    while (more <= most && !divides(job, more))
        more++;
    if (fewer > 0 || more <= most)
        ddp_text_add(&help, ", or parallel.ranks ");
    if (fewer > 0)
        ddp_text_add(&help, "%" PRId64, fewer);
    if (more <= most)
        ddp_text_add(&help, "%s%" PRId64, fewer > 0 ? " or " : "", more);
    error = ddp_error_help(error, "%s", ddp_text_get(&help));
    ddp_text_free(&help);
    return error;
}

/* More ranks than there are cores, or GPUs, to run them. */
static ddp_error *refuse_ranks(const ddp_job *job, int64_t places, const ddp_setup *setup)
{
    const char *what = setup->gpus > 0 ? "GPU" : "core";
    return ddp_error_help(
        ddp_error_at(DDP_ERR_INPUT, place_of(job, &job->parallel.ranks),
                     "parallel.ranks: %" PRId64 " ranks, but %" PRId64 " %s%s may be used here",
                     job->parallel.ranks, places, what, places == 1 ? "" : "s"),
        "parallel.ranks=%" PRId64 ", or launch.oversubscribe=true to share %ss", places, what);
}

static ddp_error *choose_world(const ddp_job *job, int world, int64_t places, ddp_setup *setup)
{
    int64_t asked = job->parallel.ranks;
    bool alone = setup->gpus > 0 && !has_comm("nccl");
    if (world > 0) {
        setup->world = world;
    } else if (asked == DDP_AUTO) {
        setup->world = alone ? 1 : (int)places;
        while (setup->world > 1 && !divides(job, setup->world))
            setup->world--;
    } else {
        setup->world = (int)asked;
        if (asked > places && !job->launch.oversubscribe)
            return refuse_ranks(job, places, setup);
    }
    if (alone && setup->world > 1)
        return ddp_error_help(
            ddp_error_at(DDP_ERR_INPUT, place_of(job, &job->parallel.ranks),
                         "parallel.ranks: %d ranks on GPUs need NCCL, which this build lacks", setup->world),
            "parallel.ranks=1, or parallel.device=cpu");
    return NULL;
}

static ddp_error *divide_batch(const ddp_job *job, ddp_setup *setup)
{
    int64_t batch = job->train.global_batch, unit = batch_unit(job, setup->world);
    if (batch % unit != 0) {
        ddp_place place = place_of(job, &job->train.global_batch);
        ddp_error *error =
            job->train.micro_batch == DDP_AUTO
                ? ddp_error_at(DDP_ERR_INPUT, place,
                               "train.global_batch: %" PRId64 " samples do not divide over %d rank%s", batch,
                               setup->world, setup->world == 1 ? "" : "s")
                : ddp_error_at(DDP_ERR_INPUT, place,
                               "train.global_batch: %" PRId64
                               " samples do not divide into micro-batches of %" PRId64 " on %d rank%s",
                               batch, job->train.micro_batch, setup->world, setup->world == 1 ? "" : "s");
        return help_with_batch(error, job, setup->world);
    }
    setup->global_batch = batch;
    setup->micro_batch = job->train.micro_batch == DDP_AUTO ? batch / setup->world : job->train.micro_batch;
    setup->accumulation = batch / (setup->micro_batch * setup->world);
    setup->eval_batch = job->train.eval_batch == DDP_AUTO ? setup->micro_batch : job->train.eval_batch;
    setup->tile = setup->micro_batch > setup->eval_batch ? setup->micro_batch : setup->eval_batch;
    while (setup->device != NULL && setup->device->host_memory && setup->tile > 1 &&
           job->model.ops->activation_bytes(job->model.settings, setup->tile) > TILE_BYTES)
        setup->tile = (setup->tile + 1) / 2;
    return NULL;
}

static ddp_error *count_steps(const ddp_job *job, ddp_setup *setup)
{
    ddp_place place = ddp_job_where(job, &job->data.train);
    if (place.file == NULL)
        place = place_of(job, &job->train.global_batch);
    bool pad = job->data.tail == DDP_TAIL_PAD;
    DDP_TRY(ddp_error_locate(ddp_sampler_check(setup->train->count, pad ? 1 : setup->global_batch), place));
    setup->sampler = (ddp_sampler){
        .count = setup->train->count,
        .seed = (uint64_t)job->train.seed,
        .shuffle = job->data.shuffle,
        .pad = job->data.tail == DDP_TAIL_PAD,
        .global_batch = setup->global_batch,
    };
    setup->steps_per_epoch = ddp_sampler_steps_per_epoch(&setup->sampler);
    setup->dropped = setup->sampler.pad ? 0 : setup->train->count % setup->global_batch;
    setup->steps = job->train.steps;
    int64_t batches;
    if ((job->train.steps == 0 &&
         __builtin_mul_overflow(job->train.epochs, setup->steps_per_epoch, &setup->steps)) ||
        __builtin_mul_overflow(setup->steps, setup->accumulation, &batches))
        return ddp_error_at(DDP_ERR_INPUT,
                            place_of(job, job->train.steps > 0 ? &job->train.steps : &job->train.epochs),
                            "train: the run would have more than 2^63 batches");
    return NULL;
}

static ddp_error *check_saves(const ddp_job *job, const ddp_setup *setup)
{
    if (job->restart.max > 0 && job->checkpoint.every == 0)
        return ddp_error_help(
            ddp_error_at(DDP_ERR_INPUT, place_of(job, &job->restart.max),
                         "restart.max: a restart goes on from a checkpoint, and there are none"),
            "checkpoint.every=N saves one every N steps");
    if (!job->checkpoint.keep_best || job->data.validation != NULL || setup->validation != NULL)
        return NULL;
    return ddp_error_help(
        ddp_error_at(DDP_ERR_INPUT, place_of(job, &job->checkpoint.keep_best),
                     "checkpoint.keep_best: which one is best is told by the validation loss, and "
                     "there is no data.validation"),
        "give data.validation, or leave keep_best out");
}

ddp_error *ddp_setup_make(const ddp_job *job, int world, int cores, int hosts, ddp_setup *setup)
{
    ddp_setup made = {.job = job};
    ddp_error *error = choose_device(job, world, &made);
    ddp_error *model = describe_model(job, &made);
    error = ddp_error_join(error, model);
    if (model == NULL) {
        error = ddp_error_join(error, open_dataset(job, DDP_TRAIN, &made, &made.train));
        error = ddp_error_join(error, open_dataset(job, DDP_VALIDATION, &made, &made.validation));
    }
    error = ddp_error_join(error, check_saves(job, &made));
    ddp_error *ranks = choose_world(job, world, (int64_t)(made.gpus > 0 ? made.gpus : cores) * hosts, &made);
    if (ranks == NULL)
        ranks = divide_batch(job, &made);
    if (ranks == NULL && made.train != NULL)
        ranks = count_steps(job, &made);
    error = ddp_error_join(error, ranks);
    error =
        ddp_error_join(error, locate_setting(job->optimizer.ops->check(job->optimizer.settings), job,
                                             "optimizer.", job->optimizer.ops->fields,
                                             job->optimizer.settings, place_of(job, &job->optimizer.ops)));
    if (error != NULL) {
        ddp_setup_free(&made);
        return error;
    }
    *setup = made;
    return NULL;
}

void ddp_setup_free(ddp_setup *setup)
{
    ddp_dataset_close(setup->train);
    ddp_dataset_close(setup->validation);
    ddp_params_free(&setup->params);
    *setup = (ddp_setup){0};
}

ddp_setup_bytes ddp_setup_count_bytes(const ddp_setup *setup)
{
    const ddp_job *job = setup->job;
    const ddp_sample *sample = &setup->sample;
    int64_t arena = setup->params.arena_count * (int64_t)sizeof(float);
    int64_t sample_bytes = sample->input_count * (int64_t)ddp_dtype_bytes(sample->input) +
                           sample->target_count * (int64_t)ddp_dtype_bytes(sample->target);
    ddp_setup_bytes bytes = {
        .weights = arena,
        .gradients = arena,
        .optimizer = arena * job->optimizer.ops->slots,
        .activations = job->model.ops->activation_bytes(job->model.settings, setup->tile),
        .data = sample_bytes * (setup->micro_batch * (job->data.prefetch + 1) + setup->eval_batch),
    };
    if (job->checkpoint.every > 0)
        bytes.checkpoint = (bytes.weights + bytes.optimizer) / setup->world;
    bytes.total =
        bytes.weights + bytes.gradients + bytes.optimizer + bytes.activations + bytes.data + bytes.checkpoint;
    return bytes;
}
