/* The loader: a ring of filled and free buffers between the threads that read and the one that trains. The
 * readers take batches in order and may finish them in any; they are given out in order. */
#include "runtime/data/loader.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/fault.h"
#include "core/memory.h"

typedef struct slot {
    int64_t *ids;
    void *input, *target;
    bool filled; /* with the lock held: what is in it may be given out */
} slot;

struct ddp_loader {
    ddp_loader_config config;
    slot *slots;
    int64_t slot_count;
    int64_t batches; /* of the whole run */
    pthread_t threads[DDP_LOADER_THREADS];
    int started; /* threads */
    double waited_s;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    int64_t taken;    /* batches that a thread has begun to read, or read */
    int64_t released; /* batches given back so far */
    bool out;         /* batch number `released` is in use */
    bool stop;
    ddp_error *error; /* of batch number `failed`, the first that could not be read; no more are taken */
    int64_t failed;
};

/* Places without a sample, all at the end of a batch: their targets are masked, so they add to neither loss
 * nor gradient. */
static void pad(const ddp_sample *sample, slot *to, int64_t real, int64_t count)
{
    size_t input = (size_t)sample->input_count * ddp_dtype_bytes(sample->input);
    memset((char *)to->input + (size_t)real * input, 0, (size_t)(count - real) * input);
    for (int64_t i = real * sample->target_count; i < count * sample->target_count; i++) {
        if (sample->target == DDP_I32)
            ((int32_t *)to->target)[i] = -1;
        else
            ((float *)to->target)[i] = NAN;
    }
}

static ddp_error *fill(const ddp_loader *loader, int64_t batch)
{
    const ddp_loader_config *config = &loader->config;
    slot *to = &loader->slots[batch % loader->slot_count];
    int64_t step = config->first_step + batch / config->accumulation;
    ddp_sampler_ids(&config->sampler, step, config->rank, config->world, batch % config->accumulation,
                    config->micro_batch, to->ids);
    int64_t real = config->micro_batch;
    while (real > 0 && to->ids[real - 1] == DDP_NO_SAMPLE)
        real--;
    if (real > 0)
        DDP_TRY_AS(config->dataset->ops->read(config->dataset, to->ids, real, to->input, to->target),
                   "reading the samples of step %" PRId64, step);
    pad(&config->dataset->sample, to, real, config->micro_batch);
    return NULL;
}

/* Waits for a free buffer and takes the next batch; false = there is nothing more to do. */
static bool take(ddp_loader *loader, int64_t *batch)
{
    pthread_mutex_lock(&loader->lock);
    while (!loader->stop && loader->error == NULL && loader->taken < loader->batches &&
           loader->taken - loader->released == loader->slot_count)
        pthread_cond_wait(&loader->changed, &loader->lock);
    bool go_on = !loader->stop && loader->error == NULL && loader->taken < loader->batches;
    *batch = loader->taken;
    loader->taken += go_on;
    pthread_mutex_unlock(&loader->lock);
    return go_on;
}

/* Of several failures the first batch's counts: those before it are still given out. */
static void put(ddp_loader *loader, int64_t batch, ddp_error *error)
{
    ddp_error *other = error;
    pthread_mutex_lock(&loader->lock);
    loader->slots[batch % loader->slot_count].filled = error == NULL;
    if (error != NULL && (loader->error == NULL || batch < loader->failed)) {
        other = loader->error;
        loader->error = error;
        loader->failed = batch;
    }
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    ddp_error_free(other);
}

static void *run(void *argument)
{
    ddp_loader *loader = argument;
    for (int64_t batch; take(loader, &batch);)
        put(loader, batch, fill(loader, batch));
    return NULL;
}

static ddp_error *alloc_slots(ddp_loader *loader)
{
    const ddp_loader_config *config = &loader->config;
    const ddp_sample *sample = &config->dataset->sample;
    size_t samples = (size_t)config->micro_batch;
    size_t input = samples * (size_t)sample->input_count * ddp_dtype_bytes(sample->input);
    size_t target = samples * (size_t)sample->target_count * ddp_dtype_bytes(sample->target);
    DDP_TRY(ddp_memory_make((size_t)loader->slot_count, sizeof *loader->slots, (void **)&loader->slots));
    for (int64_t i = 0; i < loader->slot_count; i++) {
        slot *one = &loader->slots[i];
        DDP_TRY(ddp_memory_make(samples, sizeof *one->ids, (void **)&one->ids));
        DDP_TRY(ddp_device_alloc_host(config->device, input, &one->input));
        DDP_TRY(ddp_device_alloc_host(config->device, target, &one->target));
    }
    return NULL;
}

/* As many as there are cores for beside those that compute. */
static int count_threads(const ddp_loader_config *config)
{
    cpu_set_t cores;
    const ddp_device *device = config->device;
    if (config->threads > 0)
        return config->threads < DDP_LOADER_THREADS ? config->threads : DDP_LOADER_THREADS;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0)
        return 1;
    int computing = device->ops->host_memory ? device->config.threads : 1;
    int spare = CPU_COUNT(&cores) - computing - device->config.comm_thread;
    return spare < 1 ? 1 : spare < DDP_LOADER_THREADS ? spare : DDP_LOADER_THREADS;
}

/* Signals are the main thread's business: a handler must not run here. */
static ddp_error *start(ddp_loader *loader, int count)
{
    sigset_t all, before;
    int failed = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 0; i < count && failed == 0; i++) {
        failed = pthread_create(&loader->threads[i], NULL, run, loader);
        if (failed == 0)
            pthread_setname_np(loader->threads[loader->started++], "ddp-load");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed != 0 ? ddp_error_errno(failed, "starting a thread of the loader") : NULL;
}

ddp_error *ddp_loader_open(const ddp_loader_config *config, ddp_loader **loader)
{
    ddp_loader *made;
    DDP_TRY(DDP_NEW(&made));
    made->config = *config;
    made->slot_count = config->prefetch + 1; /* and the one in use */
    made->batches = (config->steps - config->first_step + 1) * config->accumulation;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    ddp_error *error = alloc_slots(made);
    if (error == NULL)
        error = start(made, count_threads(config));
    if (error != NULL) {
        ddp_loader_close(made);
        return ddp_error_while(error, "opening the loader with %" PRId64 " batches read ahead",
                               config->prefetch);
    }
    *loader = made;
    return NULL;
}

/* Here and not in the thread, which is ahead: a fault names the step that is being trained. */
static ddp_error *fault_due(const ddp_loader *loader)
{
    if (ddp_fault_due(DDP_FAULT_LOADER_ERROR))
        return ddp_error_make(DDP_ERR_FAULT, "the loader of rank %d failed (asked for by DDP_FAULT)",
                              loader->config.rank);
    if (ddp_fault_due(DDP_FAULT_SHORT_READ))
        return ddp_error_make(DDP_ERR_IO, "the data of rank %d ends too early (asked for by DDP_FAULT)",
                              loader->config.rank);
    return NULL;
}

/* With the lock held: waits until batch number `wanted` is there, or will never be. */
static ddp_error *wait_for_batch(ddp_loader *loader, int64_t wanted)
{
    if (wanted == loader->batches)
        return ddp_error_make(DDP_ERR_INTERNAL,
                              "the loader was asked for a batch behind its last step, %" PRId64,
                              loader->config.steps);
    const slot *from = &loader->slots[wanted % loader->slot_count];
    if (!from->filled) {
        double since = ddp_clock_now();
        while (!from->filled && (loader->error == NULL || loader->failed > wanted))
            pthread_cond_wait(&loader->changed, &loader->lock);
        loader->waited_s += ddp_clock_now() - since;
    }
    return from->filled ? NULL : ddp_error_copy(loader->error);
}

ddp_error *ddp_loader_next(ddp_loader *loader, ddp_loader_batch *batch)
{
    DDP_TRY(fault_due(loader));
    ddp_assert(!loader->out);
    pthread_mutex_lock(&loader->lock);
    int64_t number = loader->released;
    ddp_error *error = wait_for_batch(loader, number);
    loader->out = error == NULL;
    pthread_mutex_unlock(&loader->lock);
    DDP_TRY(error);
    const slot *from = &loader->slots[number % loader->slot_count];
    *batch = (ddp_loader_batch){
        .ids = from->ids,
        .input = from->input,
        .target = from->target,
        .count = loader->config.micro_batch,
        .step = loader->config.first_step + number / loader->config.accumulation,
        .micro = number % loader->config.accumulation,
    };
    return NULL;
}

void ddp_loader_release(ddp_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    ddp_assert(loader->out);
    loader->out = false;
    loader->slots[loader->released % loader->slot_count].filled = false;
    loader->released++;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
}

double ddp_loader_waited_s(const ddp_loader *loader)
{
    return loader->waited_s;
}

void ddp_loader_close(ddp_loader *loader)
{
    if (loader == NULL)
        return;
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    for (int i = 0; i < loader->started; i++)
        pthread_join(loader->threads[i], NULL);
    for (int64_t i = 0; loader->slots != NULL && i < loader->slot_count; i++) {
        free(loader->slots[i].ids);
        ddp_device_free_host(loader->config.device, loader->slots[i].input);
        ddp_device_free_host(loader->config.device, loader->slots[i].target);
    }
    free(loader->slots);
    ddp_error_free(loader->error);
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->lock);
    free(loader);
}
