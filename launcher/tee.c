/* Copying, and cutting into lines. */
#include "launcher/tee.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include <ddp/log.h>

#include "core/files.h"
#include "launcher/relay.h"

#define READ_BYTES (16 << 10)
#define KEPT_BYTES (1 << 20) /* of an unfinished line, and of lines that have no log yet */
#define ROOM_MS 1000

ddp_tee ddp_tee_make(const char *run_dir, int rank, int out, int err)
{
    return (ddp_tee){
        .run_dir = run_dir,
        .rank = rank,
        .streams = {{.from = out, .to = STDOUT_FILENO}, {.from = err, .to = STDERR_FILENO}},
        .log = -1,
    };
}

static void write_log(ddp_tee *tee, const char *bytes, size_t count)
{
    if (tee->log < 0 || tee->failed)
        return;
    ddp_error *error = ddp_file_write(tee->log, "logs/", bytes, count);
    if (error != NULL)
        ddp_log(DDP_WARN, "launch", "%s: this rank's output is only shown from now on",
                ddp_error_message(error));
    tee->failed = error != NULL;
    ddp_error_free(error);
}

/* Whole lines, so that the two streams do not cut into each other's. */
static void log_pending(ddp_tee *tee, ddp_text *pending, bool all)
{
    const char *end = pending->length > 0 ? memrchr(pending->at, '\n', pending->length) : NULL;
    size_t bytes = end != NULL ? (size_t)(end + 1 - pending->at) : 0;
    if (all || pending->length > KEPT_BYTES)
        bytes = pending->length;
    else if (tee->log < 0)
        bytes = 0;
    if (bytes == 0)
        return;
    write_log(tee, pending->at, bytes);
    memmove(pending->at, pending->at + bytes, pending->length - bytes);
    pending->length -= bytes;
}

void ddp_tee_open_log(ddp_tee *tee)
{
    char path[4096];
    if (tee->log >= 0 || tee->failed)
        return;
    ddp_relay_log_path(tee->run_dir, tee->rank, path, sizeof path);
    tee->log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    tee->failed = tee->log < 0;
    if (tee->failed)
        ddp_log(DDP_WARN, "launch", "%s cannot be written (%s): this rank's output is only shown", path,
                strerror(errno));
    for (int i = 0; i < 2; i++)
        log_pending(tee, &tee->streams[i].pending, false);
}

static void show(ddp_tee_stream *stream, const char *bytes, size_t count)
{
    while (count > 0 && stream->to >= 0) {
        ssize_t done = write(stream->to, bytes, count);
        struct pollfd room = {.fd = stream->to, .events = POLLOUT};
        if (done >= 0) {
            bytes += done;
            count -= (size_t)done;
        } else if (errno == EAGAIN) {
            poll(&room, 1, ROOM_MS);
        } else if (errno != EINTR) {
            stream->to = -1;
        }
    }
}

static void copy_stream(ddp_tee *tee, ddp_tee_stream *stream)
{
    enum { READS = 16 }; /* more than a pipe holds; who writes without end must not keep its keeper here */
    char buffer[READ_BYTES];
    for (int i = 0; i < READS && stream->from >= 0; i++) {
        ssize_t got = read(stream->from, buffer, sizeof buffer);
        if (got > 0) {
            show(stream, buffer, (size_t)got);
            ddp_text_add_bytes(&stream->pending, buffer, (size_t)got);
            log_pending(tee, &stream->pending, false);
        } else if (got == 0) {
            close(stream->from);
            stream->from = -1;
        } else if (errno != EINTR) {
            return;
        }
    }
}

void ddp_tee_copy(ddp_tee *tee)
{
    for (int i = 0; i < 2; i++)
        copy_stream(tee, &tee->streams[i]);
}

void ddp_tee_close(ddp_tee *tee)
{
    for (int i = 0; i < 2; i++) {
        ddp_tee_stream *stream = &tee->streams[i];
        log_pending(tee, &stream->pending, true);
        ddp_text_free(&stream->pending);
        if (stream->from >= 0)
            close(stream->from);
        stream->from = -1;
    }
    if (tee->log >= 0)
        close(tee->log);
    tee->log = -1;
}
