/* A bounded queue of text and the thread that writes it. */
#include "launcher/output.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/memory.h"

#define WRITE_BYTES                                                                               \
    4096 /* = PIPE_BUF: what a pipe that polls as writable takes without blocking; a terminal may \
          * block all the same, so nobody waits for the thread without a limit */
#define POLL_MS 50

/* A ring of bytes: [head, head + count) is queued. */
struct ddp_output {
    int fd;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char *ring;
    size_t head, count;
    bool closing, given_up;
    double progress; /* when bytes last went out */
    ddp_output_loss loss;
};

static int64_t count_lines(const char *bytes, size_t count)
{
    int64_t lines = 0;
    for (const char *end = bytes + count; (bytes = memchr(bytes, '\n', (size_t)(end - bytes))) != NULL;
         bytes++)
        lines++;
    return lines;
}

/* Lines of what is still queued; with the lock held. */
static int64_t count_queued(const ddp_output *output)
{
    size_t first = DDP_OUTPUT_LIMIT - output->head;
    if (first > output->count)
        first = output->count;
    return count_lines(output->ring + output->head, first) + count_lines(output->ring, output->count - first);
}

static void drop_queued(ddp_output *output)
{
    output->loss.lines += count_queued(output);
    output->count = 0;
}

/* Waits for something to write, copies it out. 0 = nothing comes any more. */
static size_t next_chunk(ddp_output *output, char *chunk)
{
    pthread_mutex_lock(&output->lock);
    while (output->count == 0 && !output->closing)
        pthread_cond_wait(&output->changed, &output->lock);
    size_t bytes = output->count < WRITE_BYTES ? output->count : WRITE_BYTES;
    if (output->given_up)
        bytes = 0;
    for (size_t i = 0; i < bytes; i++)
        chunk[i] = output->ring[(output->head + i) % DDP_OUTPUT_LIMIT];
    pthread_mutex_unlock(&output->lock);
    return bytes;
}

/* One write, once the reader has room. -1 with errno EAGAIN: not yet. */
static ssize_t write_some(int fd, const char *chunk, size_t bytes)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    if (poll(&room, 1, POLL_MS) == 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(fd, chunk, bytes);
}

/* Takes note of a write; with the lock held. */
static void note_write(ddp_output *output, ssize_t done, int code)
{
    if (done >= 0) {
        output->head = (output->head + (size_t)done) % DDP_OUTPUT_LIMIT;
        output->count -= (size_t)done;
        output->progress = ddp_clock_now();
    } else if (code != EAGAIN && code != EINTR) {
        output->loss.reason = code;
        drop_queued(output);
    }
    pthread_cond_broadcast(&output->changed);
}

static void *write_queue(void *argument)
{
    ddp_output *output = argument;
    char chunk[WRITE_BYTES];
    for (size_t bytes; (bytes = next_chunk(output, chunk)) > 0;) {
        ssize_t done = write_some(output->fd, chunk, bytes);
        int code = errno;
        pthread_mutex_lock(&output->lock);
        note_write(output, done, code);
        pthread_mutex_unlock(&output->lock);
    }
    return NULL;
}

ddp_error *ddp_output_open(int fd, ddp_output **output)
{
    ddp_output *made;
    void *ring = NULL;
    DDP_TRY(DDP_NEW(&made));
    ddp_error *error = ddp_memory_make(DDP_OUTPUT_LIMIT, 1, &ring);
    made->fd = fd;
    made->ring = ring;
    pthread_mutex_init(&made->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&made->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int code = error == NULL ? pthread_create(&made->thread, NULL, write_queue, made) : 0;
    if (code != 0)
        error = ddp_error_errno(code, "starting the output thread");
    if (error != NULL) {
        free(ring);
        free(made);
        return error;
    }
    *output = made;
    return NULL;
}

void ddp_output_add(ddp_output *output, const char *bytes, size_t count)
{
    pthread_mutex_lock(&output->lock);
    if (output->loss.reason != 0 || count > DDP_OUTPUT_LIMIT - output->count) {
        output->loss.lines += count_lines(bytes, count);
    } else {
        size_t at = (output->head + output->count) % DDP_OUTPUT_LIMIT, first = DDP_OUTPUT_LIMIT - at;
        first = first < count ? first : count;
        memcpy(output->ring + at, bytes, first);
        memcpy(output->ring, bytes + first, count - first);
        if (output->count == 0)
            output->progress = ddp_clock_now();
        output->count += count;
        pthread_cond_broadcast(&output->changed);
    }
    pthread_mutex_unlock(&output->lock);
}

/* With the lock held: until the queue is empty or the reader has stood still for too long. */
static void wait_progress(ddp_output *output, double patience_s)
{
    double begin = ddp_clock_now();
    while (output->count > 0) {
        double since = output->progress > begin ? output->progress : begin, until = since + patience_s;
        if (ddp_clock_now() >= until)
            return;
        struct timespec when = {.tv_sec = (time_t)until,
                                .tv_nsec = (long)((until - (double)(time_t)until) * 1e9)};
        pthread_cond_timedwait(&output->changed, &output->lock, &when);
    }
}

ddp_output_loss ddp_output_close(ddp_output *output, double patience_s)
{
    pthread_mutex_lock(&output->lock);
    wait_progress(output, patience_s);
    output->given_up = output->count > 0;
    output->closing = true;
    pthread_cond_broadcast(&output->changed);
    pthread_mutex_unlock(&output->lock);
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 1 + (time_t)patience_s;
    bool ended = !output->given_up ? pthread_join(output->thread, NULL) == 0
                                   : pthread_timedjoin_np(output->thread, NULL, &limit) == 0;
    pthread_mutex_lock(&output->lock);
    drop_queued(output);
    ddp_output_loss loss = output->loss;
    pthread_mutex_unlock(&output->lock);
    if (!ended)
        return loss; /* it hangs in a write: thread and memory are left to the end of the process */
    pthread_cond_destroy(&output->changed);
    pthread_mutex_destroy(&output->lock);
    free(output->ring);
    free(output);
    return loss;
}
