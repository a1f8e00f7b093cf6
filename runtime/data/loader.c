/* The loader: a ring of filled and free buffers between one reading thread and one that trains. */
#include "runtime/data/loader.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/fault.h"
#include "core/memory.h"

typedef struct slot {
    int64_t *ids;
    void *input, *target;
} slot;

struct ddp_loader {
    ddp_loader_config config;
    slot *slots;
    int64_t slot_count;
    int64_t batches; /* of the whole run */
    pthread_t thread;
    bool started;
    double waited_s;

    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    int64_t filled;   /* batches read so far */
    int64_t released; /* batches given back so far */
    bool out;         /* batch number `released` is in use */
    bool stop;
    ddp_error *error; /* the thread ended with it */
};

static ddp_error *fill(const ddp_loader *loader, int64_t batch)
{
    const ddp_loader_config *config = &loader->config;
    slot *to = &loader->slots[batch % loader->slot_count];
    int64_t step = config->first_step + batch / config->accumulation;
    ddp_sampler_ids(&config->sampler, step, config->rank, config->world, batch % config->accumulation,
                    config->micro_batch, to->ids);
    DDP_TRY_AS(
        config->dataset->ops->read(config->dataset, to->ids, config->micro_batch, to->input, to->target),
        "reading the samples of step %" PRId64, step);
    return NULL;
}

/* Waits for a free buffer; false = the loader is being closed. */
static bool wait_for_room(ddp_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    while (!loader->stop && loader->filled - loader->released == loader->slot_count)
        pthread_cond_wait(&loader->changed, &loader->lock);
    bool go_on = !loader->stop;
    pthread_mutex_unlock(&loader->lock);
    return go_on;
}

static void *run(void *argument)
{
    ddp_loader *loader = argument;
    ddp_error *error = NULL;
    for (int64_t batch = 0; batch < loader->batches && error == NULL && wait_for_room(loader); batch++) {
        error = fill(loader, batch);
        pthread_mutex_lock(&loader->lock);
        loader->filled += error == NULL;
        loader->error = error;
        pthread_cond_signal(&loader->changed);
        pthread_mutex_unlock(&loader->lock);
    }
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

/* Signals are the main thread's business: a handler must not run here. */
static ddp_error *start(ddp_loader *loader)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&loader->thread, NULL, run, loader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0)
        return ddp_error_errno(failed, "starting the loader's thread");
    pthread_setname_np(loader->thread, "ddp-load");
    loader->started = true;
    return NULL;
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
        error = start(made);
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
    if (loader->filled == wanted && loader->error == NULL) {
        double since = ddp_clock_now();
        while (loader->filled == wanted && loader->error == NULL)
            pthread_cond_wait(&loader->changed, &loader->lock);
        loader->waited_s += ddp_clock_now() - since;
    }
    return loader->filled > wanted ? NULL : ddp_error_copy(loader->error);
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
    loader->released++;
    pthread_cond_signal(&loader->changed);
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
    if (loader->started) {
        pthread_mutex_lock(&loader->lock);
        loader->stop = true;
        pthread_cond_signal(&loader->changed);
        pthread_mutex_unlock(&loader->lock);
        pthread_join(loader->thread, NULL);
    }
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
