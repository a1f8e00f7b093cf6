/* Small trainings inside one process. */
#include "trial.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/comms.h"
#include "collectives/local.h"
#include "core/device/devices.h"
#include "core/files.h"
#include "core/memory.h"
#include "runtime/trainer_parts.h"

/* -- the model: w(2), loss of a sample w . x -- */

static ddp_error *dot_sample(const void *settings, ddp_sample *sample)
{
    *sample = (ddp_sample){DDP_F32, 2, DDP_I32, 1, 2, 1};
    return NULL;
}

static ddp_error *dot_describe(const void *settings, ddp_params *params)
{
    int64_t shape = 2;
    int index;
    return ddp_params_add(params, "w", DDP_INIT_ZERO, 0, false, 1, &shape, &index);
}

static int64_t dot_bytes(const void *settings, int64_t micro_batch)
{
    return 0;
}

static double dot_flops(const void *settings)
{
    return 6;
}

typedef struct dot {
    ddp_model base;
    float gradient[2];
} dot;

static const ddp_model_ops dot_ops;

static ddp_error *dot_open(const ddp_model_env *env, ddp_model **model)
{
    dot *made;
    DDP_TRY(DDP_NEW(&made));
    made->base = (ddp_model){.ops = &dot_ops, .env = *env};
    *model = &made->base;
    return NULL;
}

static void dot_close(ddp_model *model)
{
    free(model);
}

static ddp_error *dot_forward(ddp_model *model, const ddp_batch *batch, float scale, ddp_loss *total)
{
    dot *self = (dot *)model;
    const float *x = batch->input, *w = ddp_model_weights(model, 0);
    const int32_t *target = batch->target;
    memset(self->gradient, 0, sizeof self->gradient);
    for (int64_t i = 0; i < batch->count; i++) {
        if (target[i] < 0)
            continue;
        total->sum += (double)w[0] * x[2 * i] + (double)w[1] * x[2 * i + 1];
        total->items += 1;
        total->correct += x[2 * i] > 0;
        for (int d = 0; d < 2; d++)
            self->gradient[d] += scale * x[2 * i + d];
    }
    return NULL;
}

static ddp_error *dot_backward(ddp_model *model, ddp_ready ready)
{
    float *gradient = ddp_model_gradients(model, 0);
    for (int d = 0; d < 2; d++)
        gradient[d] += ((dot *)model)->gradient[d];
    ready.call(ready.arg, 0);
    return NULL;
}

static const ddp_model_ops dot_ops = {
    .name = "dot",
    .help = "w . x, for tests",
    .sample = dot_sample,
    .describe = dot_describe,
    .activation_bytes = dot_bytes,
    .flops = dot_flops,
    .open = dot_open,
    .close = dot_close,
    .forward = dot_forward,
    .backward = dot_backward,
};

/* -- the samples of the test -- */

typedef struct given {
    ddp_dataset base;
    const trial_sample *samples;
} given;

static const trial *running; /* one trial at a time */

static ddp_error *given_open(const ddp_dataset_config *config, ddp_dataset **dataset);

static ddp_error *given_read(ddp_dataset *dataset, const int64_t *ids, int64_t count, void *input,
                             void *target)
{
    const given *self = (const given *)dataset;
    for (int64_t i = 0; i < count; i++) {
        memcpy((float *)input + 2 * i, self->samples[ids[i]].x, 2 * sizeof(float));
        ((int32_t *)target)[i] = self->samples[ids[i]].masked ? -1 : 0;
    }
    return NULL;
}

static void given_close(ddp_dataset *dataset)
{
    free(dataset);
}

static const ddp_dataset_ops given_ops = {.name = "given",
                                          .help = "samples of a test",
                                          .pathless = true,
                                          .open = given_open,
                                          .read = given_read,
                                          .close = given_close};

static ddp_error *given_open(const ddp_dataset_config *config, ddp_dataset **dataset)
{
    given *made;
    DDP_TRY(DDP_NEW(&made));
    made->base = (ddp_dataset){.ops = &given_ops, .count = running->count, .sample = config->want};
    made->samples = running->samples;
    *dataset = &made->base;
    return NULL;
}

/* -- ranks as threads -- */

typedef struct rank {
    pthread_t thread;
    int rank;
    trial *trial;
    const ddp_job *job;
    ddp_local_group *group;
    ddp_error *error;
    float weights[2];
} rank;

static ddp_error *step_through(rank *self, ddp_trainer *trainer, const ddp_setup *setup)
{
    trial *trial = self->trial;
    int64_t share = setup->global_batch / setup->world;
    for (int64_t step = 1; step <= setup->steps; step++) {
        ddp_record record;
        bool skipped;
        DDP_TRY(trainer_step(trainer, step, &record, &skipped));
        for (int64_t i = 0; i < share && step <= TRIAL_MAX; i++)
            trial->ids[step - 1][self->rank * share + i] = trainer->trace[i];
        if (self->rank != 0)
            continue;
        trial->skipped += skipped;
        trial->loss = record.measured.loss;
        trial->norm = record.measured.grad_norm;
        trial->steps = step;
    }
    ddp_loss totals;
    DDP_TRY(trainer_evaluate(trainer, &totals));
    if (self->rank == 0) {
        trial->accuracy = totals.correct / totals.items;
        trial->eval_items = (int64_t)totals.items;
    }
    memcpy(self->weights, trainer->weights, sizeof self->weights);
    return NULL;
}

static ddp_error *live(rank *self)
{
    ddp_device *device = NULL;
    ddp_comm *comm = NULL;
    ddp_trainer *trainer = NULL;
    ddp_setup setup = {0};
    ddp_error *error = NULL;
    ddp_device_config device_config = {.threads = 1, .comm_thread = self->rank % 2 == 1, .compute = DDP_F32};
    DDP_GO(ddp_setup_make(self->job, self->trial->world, 1, 1, &setup));
    DDP_GO(ddp_device_cpu_ops.open(&device_config, &device));
    ddp_comm_config comm_config = {.device = device,
                                   .rank = self->rank,
                                   .world = self->trial->world,
                                   .local_rank = self->rank,
                                   .local_world = self->trial->world,
                                   .rendezvous_fd = -1,
                                   .group = self->group,
                                   .timeout_s = 20};
    DDP_GO(ddp_comm_local_ops.open(&comm_config, &comm));
    ddp_trainer_env env = {.job = self->job, .setup = &setup, .device = device, .comm = comm};
    DDP_GO(ddp_trainer_open(&env, &trainer));
    error = step_through(self, trainer, &setup);
out:
    ddp_trainer_close(trainer);
    ddp_comm_close(comm);
    ddp_device_close(device);
    ddp_setup_free(&setup);
    return error;
}

static void *run_rank(void *argument)
{
    rank *self = argument;
    self->error = live(self);
    return NULL;
}

static ddp_error *run_ranks(trial *trial, const ddp_job *job)
{
    rank ranks[TRIAL_MAX] = {0};
    ddp_local_group *group;
    ddp_error *error = NULL;
    DDP_TRY(ddp_local_group_make(trial->world, &group));
    for (int i = 0; i < trial->world; i++) {
        ranks[i] = (rank){.rank = i, .trial = trial, .job = job, .group = group};
        pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]);
    }
    for (int i = 0; i < trial->world; i++) {
        pthread_join(ranks[i].thread, NULL);
        error = ddp_error_join(error, ranks[i].error);
        if (memcmp(ranks[i].weights, ranks[0].weights, sizeof ranks[0].weights) != 0)
            error = ddp_error_join(
                error, ddp_error_make(DDP_ERR_INTERNAL, "rank %d has other weights than rank 0", i));
    }
    ddp_local_group_free(group);
    memcpy(trial->weights, ranks[0].weights, sizeof trial->weights);
    return error;
}

ddp_error *trial_run(trial *trial)
{
    static const char text[] = "model: {kind: dot}\n"
                               "data: {format: synthetic, shuffle: false}\n"
                               "train: {steps: 1, global_batch: 4}\n"
                               "optimizer: {kind: sgd, lr: 1, momentum: 0}\n"
                               "metrics: {trace: [samples]}\n";
    static bool added;
    char path[] = "/tmp/ddp-trial-XXXXXX";
    size_t count = 0;
    ddp_job *job;
    if (!added)
        ddp_model_add(&dot_ops);
    added = true;
    int fd = mkstemp(path);
    DDP_TRY(ddp_file_write(fd, path, text, sizeof text - 1));
    close(fd);
    while (trial->overrides[count] != NULL)
        count++;
    ddp_error *error = ddp_job_load(path, trial->overrides, count, &job);
    unlink(path);
    if (error != NULL)
        return error;
    job->data.ops = &given_ops;
    running = trial;
    error = run_ranks(trial, job);
    ddp_job_free(job);
    return error;
}
