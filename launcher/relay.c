/* Reading, cutting into lines, logging. */
#include "launcher/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files.h"
#include "core/memory.h"

#define READ_BYTES (64 << 10)
#define KEPT_BYTES (1 << 20) /* of one unfinished line; above it, the line goes to the file in parts */
#define STATUS_MARK '\x1e'

typedef struct source {
    int rank, stream;
    int fd;        /* -1 = ended, or a file that is not there yet */
    char *path;    /* of a followed file; NULL = a pipe */
    ddp_text line; /* the unfinished one, or its beginning */
    size_t logged; /* bytes of `line` that the log has already */
    size_t total;  /* bytes of the unfinished line altogether */
} source;

struct ddp_relay {
    char *run_dir;
    int world;
    ddp_show *show;
    int *logs;            /* by rank */
    unsigned char *quiet; /* by rank */
    source *sources;
    size_t count, capacity;
    bool log_failed; /* said once */
};

const char *ddp_relay_log_path(const char *run_dir, int rank, char *buffer, size_t bytes)
{
    snprintf(buffer, bytes, "%s/logs/rank-%d.log", run_dir, rank);
    return buffer;
}

ddp_error *ddp_relay_raw_path(const char *run_dir, int rank, char **path)
{
    if (asprintf(path, "%s/logs/rank-%d.raw", run_dir, rank) < 0)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    return NULL;
}

static ddp_error *open_logs(ddp_relay *relay)
{
    char path[4096];
    for (int rank = 0; rank < relay->world; rank++) {
        ddp_relay_log_path(relay->run_dir, rank, path, sizeof path);
        relay->logs[rank] = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (relay->logs[rank] < 0)
            return ddp_error_errno(errno, "opening %s", path);
    }
    return NULL;
}

ddp_error *ddp_relay_open(const char *run_dir, int world, ddp_show *show, ddp_relay **relay)
{
    ddp_relay *made;
    void *memory = NULL;
    ddp_error *error = DDP_NEW(&made);
    if (error != NULL)
        return error;
    made->show = show;
    DDP_GO(ddp_memory_text(run_dir, &made->run_dir));
    DDP_GO(ddp_memory_make((size_t)world, 1, &memory));
    made->quiet = memory;
    DDP_GO(ddp_memory_make((size_t)world, sizeof *made->logs, &memory));
    made->logs = memory;
    made->world = world;
    memset(made->logs, 0xFF, (size_t)world * sizeof *made->logs);
    DDP_GO(open_logs(made));
    *relay = made;
    return NULL;
out:
    ddp_relay_close(made);
    return error;
}

static ddp_error *add_source(ddp_relay *relay, source source)
{
    void *sources = relay->sources;
    DDP_TRY(ddp_memory_grow(&sources, &relay->capacity, relay->count + 1, sizeof source));
    relay->sources = sources;
    relay->sources[relay->count++] = source;
    return NULL;
}

ddp_error *ddp_relay_add_pipe(ddp_relay *relay, int rank, int stream, int fd)
{
    return add_source(relay, (source){.rank = rank, .stream = stream, .fd = fd});
}

ddp_error *ddp_relay_add_file(ddp_relay *relay, int rank)
{
    source made = {.rank = rank, .stream = 2, .fd = -1};
    DDP_TRY(ddp_relay_raw_path(relay->run_dir, rank, &made.path));
    unlink(made.path); /* of a run that was killed */
    ddp_error *error = add_source(relay, made);
    if (error != NULL)
        free(made.path);
    return error;
}

static void log_bytes(ddp_relay *relay, const source *source, const char *bytes, size_t count)
{
    ddp_error *error = ddp_file_write(relay->logs[source->rank], "a rank's log", bytes, count);
    if (error != NULL && !relay->log_failed)
        ddp_error_print(
            ddp_error_while(error, "logging rank %d; its output is only shown from now on", source->rank),
            "warning", stderr);
    relay->log_failed = relay->log_failed || error != NULL;
    ddp_error_free(error);
}

static void show_line(ddp_relay *relay, const source *source)
{
    char note[128], number[32], log[32];
    size_t shown = source->line.length < DDP_RELAY_SHOWN_BYTES ? source->line.length : DDP_RELAY_SHOWN_BYTES;
    const char *text = ddp_text_get(&source->line);
    if (relay->quiet[source->rank])
        return;
    while (shown < source->total && shown > 0 && ((unsigned char)text[shown] & 0xC0) == 0x80)
        shown--;
    snprintf(log, sizeof log, "logs/rank-%d.log", source->rank);
    snprintf(note, sizeof note, "[... %s bytes more in %s]",
             ddp_text_from_count((int64_t)(source->total - shown), number, sizeof number), log);
    ddp_show_line(relay->show, source->rank, source->stream, text, shown,
                  shown < source->total ? note : NULL);
}

/* The line is complete (or its stream has ended). */
static void finish_line(ddp_relay *relay, source *source)
{
    if (source->line.length > 0 && source->line.at[0] == STATUS_MARK && source->rank == 0 &&
        source->stream == 1) {
        ddp_show_status(relay->show, source->line.at + 1, source->line.length - 1);
    } else {
        show_line(relay, source);
        ddp_text_add_bytes(&source->line, "\n", 1);
        log_bytes(relay, source, source->line.at + source->logged, source->line.length - source->logged);
    }
    source->line.length = source->logged = source->total = 0;
}

static void add_part(ddp_relay *relay, source *source, const char *bytes, size_t count)
{
    ddp_text_add_bytes(&source->line, bytes, count);
    source->total += count;
    if (source->line.length < KEPT_BYTES)
        return;
    log_bytes(relay, source, source->line.at + source->logged, source->line.length - source->logged);
    /* One byte more than is shown, so that it is known not to end there. */
    source->line.length = source->logged = DDP_RELAY_SHOWN_BYTES + 1;
}

static void take_bytes(ddp_relay *relay, source *source, const char *bytes, size_t count)
{
    const char *end = bytes + count, *newline;
    while ((newline = memchr(bytes, '\n', (size_t)(end - bytes))) != NULL) {
        add_part(relay, source, bytes, (size_t)(newline - bytes));
        finish_line(relay, source);
        bytes = newline + 1;
    }
    if (bytes < end)
        add_part(relay, source, bytes, (size_t)(end - bytes));
}

/* Whoever wrote it is gone: all that a followed file still holds. */
static void read_rest(ddp_relay *relay, source *source)
{
    char buffer[READ_BYTES];
    ssize_t got;
    while (source->path != NULL && source->fd >= 0 && (got = read(source->fd, buffer, sizeof buffer)) != 0) {
        if (got > 0)
            take_bytes(relay, source, buffer, (size_t)got);
        else if (errno != EINTR)
            return;
    }
}

static void end_source(ddp_relay *relay, source *source)
{
    read_rest(relay, source);
    if (source->total > 0)
        finish_line(relay, source);
    if (source->fd >= 0)
        close(source->fd);
    source->fd = -1;
}

/* A few reads, so that one talkative rank does not hold up the others; poll comes back at once if there is
 * more. */
static void read_source(ddp_relay *relay, source *source)
{
    enum { READS = 4 };
    static const int followed = O_RDONLY | O_CLOEXEC;
    char buffer[READ_BYTES];
    if (source->fd < 0 && source->path != NULL)
        source->fd = open(source->path, followed);
    for (int i = 0; i < READS && source->fd >= 0; i++) {
        ssize_t got = read(source->fd, buffer, sizeof buffer);
        if (got > 0)
            take_bytes(relay, source, buffer, (size_t)got);
        else if (got == 0 && source->path == NULL)
            end_source(relay, source);
        else if (got < 0 && errno == EINTR)
            continue;
        else
            break;
    }
}

size_t ddp_relay_polls(const ddp_relay *relay, struct pollfd *polls)
{
    size_t count = 0;
    for (size_t i = 0; i < relay->count; i++)
        if (relay->sources[i].fd >= 0 && relay->sources[i].path == NULL)
            polls[count++] = (struct pollfd){.fd = relay->sources[i].fd, .events = POLLIN};
    return count;
}

double ddp_relay_read(ddp_relay *relay)
{
    bool follows = false;
    for (size_t i = 0; i < relay->count; i++) {
        read_source(relay, &relay->sources[i]);
        follows = follows || relay->sources[i].path != NULL;
    }
    double due = ddp_show_flush(relay->show);
    return follows && (due < 0 || due > DDP_RELAY_POLL_S) ? DDP_RELAY_POLL_S : due;
}

void ddp_relay_quiet(ddp_relay *relay, const unsigned char *ranks)
{
    memcpy(relay->quiet, ranks, (size_t)relay->world);
}

void ddp_relay_close(ddp_relay *relay)
{
    if (relay == NULL)
        return;
    for (size_t i = 0; i < relay->count; i++) {
        source *source = &relay->sources[i];
        end_source(relay, source);
        ddp_text_free(&source->line);
        if (source->path != NULL)
            unlink(source->path);
        free(source->path);
    }
    for (int rank = 0; rank < relay->world; rank++)
        if (relay->logs[rank] >= 0)
            close(relay->logs[rank]);
    free(relay->logs);
    free(relay->quiet);
    free(relay->sources);
    free(relay->run_dir);
    free(relay);
}
