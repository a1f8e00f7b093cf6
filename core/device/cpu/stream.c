/* Streams and events of the CPU.
 *
 * Compute and copy streams have no queue: work is done when its call returns, so all they keep is the sticky
 * error and the kernels' scratch memory. The comm stream is a ring of slots, worked off strictly from its
 * head, because every rank must run the same collectives in the same order. Whoever needs progress drives it:
 * its own thread, or, without one, the callers of poll, wait and event_wait.
 *
 * An event is a ticket: how many slots had been pushed when it was recorded. It has happened once that many
 * are done. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/device/cpu/device.h"
#include "core/memory.h"

typedef struct cpu_stream cpu_stream;

/* One queued unit: exactly one of the three groups is used. */
typedef struct slot {
    ddp_task task; /* advance not NULL */
    void *to;      /* a copy, or with from NULL zeroing */
    const void *from;
    size_t bytes;
    cpu_stream *awaited; /* until this stream has done `ticket` slots */
    uint64_t ticket;
} slot;

struct cpu_stream {
    ddp_stream base;
    void *scratch;
    size_t scratch_bytes;

    pthread_mutex_t lock;   /* over all that follows; `done` may be read without it */
    pthread_cond_t changed; /* something was pushed or done; only used with a thread */
    ddp_error *error;
    slot *slots;
    size_t capacity, first, count;
    uint64_t pushed;
    _Atomic uint64_t done;
    bool driving; /* somebody works on the head, outside the lock */
    bool closing, threaded;
    pthread_t thread;
};

typedef struct cpu_event {
    ddp_event base;
    cpu_stream *stream; /* NULL: has happened */
    uint64_t ticket;
} cpu_event;

/* Waiting for a peer that may share our core: a short spin for the case that it is just about to finish, then
 * the core is offered, then we sleep. Two lengths of sleep: 50 us (in truth 60 to 130, with 5 to 25 us of
 * processor time) while a step may hang on it; 0.5 ms after about 0.1 s, when somebody is late or dead
 * anyway. */
static void back_off(unsigned *rounds)
{
    enum { SPINS = 64, YIELDS = 256, SHORT_SLEEPS = YIELDS + 1000, SHORT_NS = 50000, LONG_NS = 500000 };
    unsigned round = *rounds;
    if (round < SHORT_SLEEPS)
        ++*rounds;
    if (round < SPINS) {
        for (int i = 0; i < 8; i++)
#if defined(__x86_64__)
            __builtin_ia32_pause();
#else
            atomic_signal_fence(memory_order_seq_cst);
#endif
    } else if (round < YIELDS) {
        sched_yield();
    } else {
        nanosleep(&(struct timespec){.tv_nsec = round < SHORT_SLEEPS ? SHORT_NS : LONG_NS}, NULL);
    }
}

static void free_slot(slot *s)
{
    if (s->task.advance != NULL && s->task.drop != NULL)
        s->task.drop(s->task.arg);
}

/* With the lock held. A failed stream does nothing any more: what is queued is dropped and counts as done, so
 * that nobody waits for it; the waiters find the error. A head that is being driven stays: its driver drops
 * it. */
static void fail_locked(cpu_stream *stream, ddp_error *error)
{
    if (stream->error == NULL)
        stream->error = error;
    else
        ddp_error_free(error);
    size_t kept = stream->driving ? 1 : 0;
    for (size_t i = kept; i < stream->count; i++)
        free_slot(&stream->slots[(stream->first + i) % stream->capacity]);
    stream->count = kept;
    atomic_store_explicit(&stream->done, stream->pushed - kept, memory_order_release);
}

void ddp_cpu_stream_fail(ddp_stream *base, ddp_error *error)
{
    cpu_stream *stream = (cpu_stream *)base;
    pthread_mutex_lock(&stream->lock);
    fail_locked(stream, error);
    pthread_mutex_unlock(&stream->lock);
}

static ddp_error *sticky(cpu_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    ddp_error *error = ddp_error_copy(stream->error);
    pthread_mutex_unlock(&stream->lock);
    return error;
}

static bool reached(cpu_stream *stream, uint64_t ticket)
{
    return atomic_load_explicit(&stream->done, memory_order_acquire) >= ticket;
}

static bool drive(cpu_stream *stream);

static bool advance(slot *s, ddp_error **error)
{
    if (s->task.advance != NULL)
        return s->task.advance(s->task.arg, error);
    if (s->awaited != NULL) {
        if (!s->awaited->threaded)
            drive(s->awaited);
        if (!reached(s->awaited, s->ticket))
            return false;
        *error = sticky(s->awaited);
        return true;
    }
    if (s->from != NULL)
        memcpy(s->to, s->from, s->bytes);
    else
        memset(s->to, 0, s->bytes);
    return true;
}

/* Works once on the head; true when that finished it. False also where somebody else is at it already. */
static bool drive(cpu_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    if (stream->driving || stream->count == 0) {
        pthread_mutex_unlock(&stream->lock);
        return false;
    }
    stream->driving = true;
    slot head = stream->slots[stream->first]; /* a push may move the ring meanwhile */
    pthread_mutex_unlock(&stream->lock);

    ddp_error *error = NULL;
    bool finished = advance(&head, &error);

    pthread_mutex_lock(&stream->lock);
    stream->driving = false;
    if (!finished && stream->error != NULL) {
        free_slot(&head);
        finished = true;
    }
    if (finished) {
        stream->first = (stream->first + 1) % stream->capacity;
        stream->count--;
        atomic_fetch_add_explicit(&stream->done, 1, memory_order_release);
        if (error != NULL)
            fail_locked(stream, error);
        if (stream->threaded)
            pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    return finished;
}

static void *thread_main(void *arg)
{
    cpu_stream *stream = arg;
    unsigned rounds = 0;
    for (;;) {
        if (drive(stream)) {
            rounds = 0;
            continue;
        }
        pthread_mutex_lock(&stream->lock);
        bool idle = stream->count == 0, closing = stream->closing;
        if (idle && !closing)
            pthread_cond_wait(&stream->changed, &stream->lock);
        pthread_mutex_unlock(&stream->lock);
        if (idle && closing)
            return NULL;
        if (!idle)
            back_off(&rounds);
        else
            rounds = 0;
    }
}

static void wait_for(cpu_stream *stream, uint64_t ticket)
{
    unsigned rounds = 0;
    if (!stream->threaded) {
        while (!reached(stream, ticket))
            if (drive(stream))
                rounds = 0;
            else
                back_off(&rounds);
        return;
    }
    for (int i = 0; i < 64 && !reached(stream, ticket); i++) /* saves a sleep when it is nearly done */
        back_off(&rounds);
    if (reached(stream, ticket))
        return;
    pthread_mutex_lock(&stream->lock);
    while (!reached(stream, ticket))
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

ddp_error *ddp_cpu_stream_open(ddp_device *device, ddp_stream_kind kind, ddp_stream **stream)
{
    cpu_stream *made = NULL;
    DDP_TRY(DDP_NEW(&made));
    made->base = (ddp_stream){.device = device, .kind = kind};
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    if (kind == DDP_STREAM_COMM && device->config.comm_thread) {
        made->threaded = true;
        int code = pthread_create(&made->thread, NULL, thread_main, made);
        if (code != 0) {
            made->threaded = false;
            ddp_cpu_stream_close(&made->base);
            return ddp_error_errno(code, "the communication thread cannot be started");
        }
    }
    *stream = &made->base;
    return NULL;
}

void ddp_cpu_stream_close(ddp_stream *base)
{
    cpu_stream *stream = (cpu_stream *)base;
    wait_for(stream, stream->pushed);
    if (stream->threaded) {
        pthread_mutex_lock(&stream->lock);
        stream->closing = true;
        pthread_cond_broadcast(&stream->changed);
        pthread_mutex_unlock(&stream->lock);
        pthread_join(stream->thread, NULL);
    }
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    ddp_error_free(stream->error);
    free(stream->slots);
    free(stream->scratch);
    free(stream);
}

ddp_error *ddp_cpu_stream_wait(ddp_stream *base)
{
    cpu_stream *stream = (cpu_stream *)base;
    wait_for(stream, stream->pushed);
    return sticky(stream);
}

ddp_error *ddp_cpu_stream_poll(ddp_stream *base)
{
    cpu_stream *stream = (cpu_stream *)base;
    while (!stream->threaded && drive(stream))
        continue;
    return sticky(stream);
}

/* With the lock held: room for one more; the ring is unrolled into the new memory. */
static ddp_error *grow(cpu_stream *stream)
{
    if (stream->count < stream->capacity)
        return NULL;
    size_t capacity = stream->capacity ? 2 * stream->capacity : 64;
    slot *slots = NULL;
    DDP_TRY(ddp_memory_make(capacity, sizeof *slots, (void **)&slots));
    for (size_t i = 0; i < stream->count; i++)
        slots[i] = stream->slots[(stream->first + i) % stream->capacity];
    free(stream->slots);
    stream->slots = slots;
    stream->capacity = capacity;
    stream->first = 0;
    return NULL;
}

/* Takes over the slot whatever happens. */
static ddp_error *enqueue(cpu_stream *stream, slot s)
{
    pthread_mutex_lock(&stream->lock);
    ddp_error *error = stream->error != NULL ? ddp_error_copy(stream->error) : grow(stream);
    if (error == NULL) {
        stream->slots[(stream->first + stream->count++) % stream->capacity] = s;
        stream->pushed++;
        if (stream->threaded)
            pthread_cond_broadcast(&stream->changed);
    }
    pthread_mutex_unlock(&stream->lock);
    if (error != NULL)
        free_slot(&s);
    return error;
}

/* For calls that return nothing: the failure stays on the stream. */
static void enqueue_quietly(cpu_stream *stream, slot s)
{
    ddp_error *error = enqueue(stream, s);
    if (error != NULL)
        ddp_cpu_stream_fail(&stream->base, error);
}

ddp_error *ddp_cpu_stream_push(ddp_stream *base, ddp_task task)
{
    cpu_stream *stream = (cpu_stream *)base;
    if (base->kind == DDP_STREAM_COMM)
        return enqueue(stream, (slot){.task = task});
    ddp_error *error = sticky(stream);
    if (error != NULL) {
        free_slot(&(slot){.task = task});
        return error;
    }
    for (unsigned rounds = 0; !task.advance(task.arg, &error);)
        back_off(&rounds);
    if (error != NULL)
        ddp_cpu_stream_fail(base, error);
    return NULL;
}

void ddp_cpu_copy(ddp_stream *base, void *to, const void *from, size_t bytes)
{
    if (base->kind == DDP_STREAM_COMM)
        enqueue_quietly((cpu_stream *)base, (slot){.to = to, .from = from, .bytes = bytes});
    else
        memcpy(to, from, bytes);
}

void ddp_cpu_zero(ddp_stream *base, void *memory, size_t bytes)
{
    if (base->kind == DDP_STREAM_COMM)
        enqueue_quietly((cpu_stream *)base, (slot){.to = memory, .bytes = bytes});
    else
        memset(memory, 0, bytes);
}

ddp_error *ddp_cpu_event_open(ddp_device *device, ddp_event **event)
{
    cpu_event *made = NULL;
    DDP_TRY(DDP_NEW(&made));
    made->base.device = device;
    *event = &made->base;
    return NULL;
}

void ddp_cpu_event_close(ddp_event *event)
{
    free(event);
}

void ddp_cpu_event_record(ddp_event *base, ddp_stream *stream)
{
    cpu_event *event = (cpu_event *)base;
    event->stream = (cpu_stream *)stream;
    event->ticket = event->stream->pushed;
}

void ddp_cpu_event_wait(ddp_stream *base, ddp_event *base_event)
{
    cpu_event *event = (cpu_event *)base_event;
    cpu_stream *stream = (cpu_stream *)base;
    if (event->stream == NULL || event->stream == stream)
        return;
    if (base->kind == DDP_STREAM_COMM && !reached(event->stream, event->ticket)) {
        enqueue_quietly(stream, (slot){.awaited = event->stream, .ticket = event->ticket});
        return;
    }
    wait_for(event->stream, event->ticket);
    ddp_error *error = sticky(event->stream);
    if (error != NULL)
        ddp_cpu_stream_fail(base, error);
}

void *ddp_cpu_scratch(ddp_stream *base, size_t bytes)
{
    cpu_stream *stream = (cpu_stream *)base;
    if (bytes <= stream->scratch_bytes)
        return stream->scratch;
    ddp_cpu_free(base->device, stream->scratch);
    stream->scratch = NULL;
    stream->scratch_bytes = 0;
    ddp_error *error = ddp_cpu_alloc(base->device, bytes, &stream->scratch);
    if (error != NULL) {
        ddp_cpu_stream_fail(base, error);
        return NULL;
    }
    stream->scratch_bytes = bytes;
    return stream->scratch;
}
