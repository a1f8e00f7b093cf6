/* Records on their way from the step to the sinks. */
#include "runtime/reporter.h"

#include <ddp/log.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/clock.h"
#include "core/memory.h"

#define QUEUE_LENGTH 1024
#define MAX_SINKS 8
#define CLOSE_LIMIT_S 5.0
#define FLUSH_LIMIT_S 1.0

struct ddp_reporter {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied;
    ddp_record queue[QUEUE_LENGTH];
    size_t head, count;         /* guarded by lock, as are the next lines */
    bool closing, done, giving; /* giving: a record is at the sinks */
    atomic_bool abandoned;      /* nobody waits any more: what records point to may be gone */
    int64_t dropped;
    ddp_sink *sinks[MAX_SINKS];
    int sink_count;
};

static void give(ddp_reporter *reporter, const ddp_record *record)
{
    for (int i = 0; i < reporter->sink_count; i++) {
        ddp_sink *sink = reporter->sinks[i];
        bool wanted = sink != NULL && !atomic_load(&reporter->abandoned);
        ddp_error *error = wanted ? sink->ops->write(sink, record) : NULL;
        if (error == NULL)
            continue;
        ddp_error_print(
            ddp_error_while(error, "writing to the %s sink, which is closed from now on; the run goes on",
                            sink->ops->name),
            "warning", stderr);
        ddp_error_free(error);
        sink->ops->close(sink);
        reporter->sinks[i] = NULL;
    }
}

static void *work(void *argument)
{
    ddp_reporter *reporter = argument;
    pthread_mutex_lock(&reporter->lock);
    for (;;) {
        while (reporter->count == 0 && !reporter->closing)
            pthread_cond_wait(&reporter->filled, &reporter->lock);
        if (reporter->count == 0)
            break;
        ddp_record record = reporter->queue[reporter->head];
        reporter->head = (reporter->head + 1) % QUEUE_LENGTH;
        reporter->count--;
        reporter->giving = true;
        pthread_cond_signal(&reporter->emptied);
        pthread_mutex_unlock(&reporter->lock);
        give(reporter, &record);
        if (record.kind == DDP_RECORD_TRACE)
            free((void *)record.trace.samples);
        pthread_mutex_lock(&reporter->lock);
        reporter->giving = false;
        pthread_cond_signal(&reporter->emptied);
    }
    reporter->done = true;
    pthread_cond_signal(&reporter->emptied);
    pthread_mutex_unlock(&reporter->lock);
    return NULL;
}

static ddp_error *open_sinks(ddp_reporter *reporter, const ddp_sink_ops *const *sinks,
                             const ddp_sink_config *config)
{
    for (; *sinks != NULL; sinks++) {
        ddp_assert(reporter->sink_count < MAX_SINKS);
        DDP_TRY_AS((*sinks)->open(config, &reporter->sinks[reporter->sink_count]), "opening the %s sink",
                   (*sinks)->name);
        reporter->sink_count++;
    }
    return NULL;
}

static void free_reporter(ddp_reporter *reporter)
{
    for (int i = 0; i < reporter->sink_count; i++)
        if (reporter->sinks[i] != NULL)
            reporter->sinks[i]->ops->close(reporter->sinks[i]);
    free(reporter);
}

ddp_error *ddp_reporter_open(const ddp_sink_ops *const *sinks, const ddp_sink_config *config,
                             ddp_reporter **reporter)
{
    ddp_reporter *made;
    DDP_TRY(DDP_NEW(&made));
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->filled, &monotonic);
    pthread_cond_init(&made->emptied, &monotonic);
    pthread_condattr_destroy(&monotonic);
    ddp_error *error = open_sinks(made, sinks, config);
    if (error == NULL && pthread_create(&made->thread, NULL, work, made) != 0)
        error = ddp_error_make(DDP_ERR_IO, "the reporter's thread could not be started");
    if (error != NULL) {
        free_reporter(made);
        return error;
    }
    *reporter = made;
    return NULL;
}

void ddp_reporter_add(ddp_reporter *reporter, const ddp_record *record)
{
    ddp_record copy = *record;
    copy.time = ddp_clock_unix();
    if (record->kind == DDP_RECORD_TRACE && record->trace.samples != NULL) {
        size_t bytes = (size_t)record->trace.count * sizeof(int64_t);
        int64_t *samples = malloc(bytes);
        if (samples != NULL)
            memcpy(samples, record->trace.samples, bytes);
        copy.trace.samples = samples;
    }
    pthread_mutex_lock(&reporter->lock);
    if (reporter->count == QUEUE_LENGTH && record->kind == DDP_RECORD_STEP) {
        reporter->dropped++;
    } else {
        while (reporter->count == QUEUE_LENGTH)
            pthread_cond_wait(&reporter->emptied, &reporter->lock);
        reporter->queue[(reporter->head + reporter->count++) % QUEUE_LENGTH] = copy;
        pthread_cond_signal(&reporter->filled);
    }
    pthread_mutex_unlock(&reporter->lock);
}

static struct timespec limit_after(double seconds)
{
    struct timespec limit;
    clock_gettime(CLOCK_MONOTONIC, &limit);
    limit.tv_sec += (time_t)seconds;
    return limit;
}

void ddp_reporter_flush(ddp_reporter *reporter)
{
    struct timespec limit = limit_after(FLUSH_LIMIT_S);
    int late = 0;
    pthread_mutex_lock(&reporter->lock);
    while ((reporter->count > 0 || reporter->giving) && late == 0)
        late = pthread_cond_timedwait(&reporter->emptied, &reporter->lock, &limit);
    pthread_mutex_unlock(&reporter->lock);
}

void ddp_reporter_close(ddp_reporter *reporter)
{
    if (reporter == NULL)
        return;
    struct timespec limit = limit_after(CLOSE_LIMIT_S);
    pthread_mutex_lock(&reporter->lock);
    reporter->closing = true;
    pthread_cond_signal(&reporter->filled);
    int late = 0;
    while (!reporter->done && late == 0)
        late = pthread_cond_timedwait(&reporter->emptied, &reporter->lock, &limit);
    bool done = reporter->done;
    atomic_store(&reporter->abandoned, !done);
    pthread_mutex_unlock(&reporter->lock);
    if (reporter->dropped > 0)
        ddp_log(DDP_WARN, "report", "%lld step records were dropped: a sink was too slow",
                (long long)reporter->dropped);
    if (!done) {
        /* A sink hangs in a write: its thread and memory are left to the end of the process. */
        ddp_log(DDP_WARN, "report", "a sink does not take its last records; they are lost");
        return;
    }
    pthread_join(reporter->thread, NULL);
    free_reporter(reporter);
}
