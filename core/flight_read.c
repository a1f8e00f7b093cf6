/* The reader of a rank's page: it believes nothing. The file may be of another program, cut off, or be
 * written at this moment. Also the words for what is in it. */
#include <ddp/comm.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/files.h"
#include "core/flight_page.h"
#include "core/text.h"

/* -- words -- */

static const char *const op_names[DDP_FLIGHT_OPS] = {
    [DDP_FLIGHT_NONE] = "nothing",
    [DDP_FLIGHT_OPEN] = "open",
    [DDP_FLIGHT_ALLOC] = "alloc",
    [DDP_FLIGHT_ALL_REDUCE] = "all_reduce",
    [DDP_FLIGHT_REDUCE_SCATTER] = "reduce_scatter",
    [DDP_FLIGHT_ALL_GATHER] = "all_gather",
    [DDP_FLIGHT_BROADCAST] = "broadcast",
    [DDP_FLIGHT_BARRIER] = "barrier",
};

const char *ddp_flight_op_name(ddp_flight_op op)
{
    return (unsigned)op < DDP_FLIGHT_OPS ? op_names[op] : "unknown";
}

static void add_tag(ddp_text *text, int tag)
{
    static const char *const purposes[] = {
        [-DDP_TAG_LOSS] = "loss",
        [-DDP_TAG_EVAL] = "evaluation",
        [-DDP_TAG_AGREE] = "comparing the ranks",
        [-DDP_TAG_RANKS] = "who is who",
        [-DDP_TAG_SAVE] = "checkpoint",
    };
    if (tag > 0)
        ddp_text_add(text, " (gradient bucket %d)", tag - 1);
    else if (tag < 0 && -tag < (int)(sizeof purposes / sizeof purposes[0]) && purposes[-tag] != NULL)
        ddp_text_add(text, " (%s)", purposes[-tag]);
}

const char *ddp_flight_text(const ddp_flight_call *call, char *buffer, size_t bytes)
{
    static const char *const reduces[] = {[DDP_SUM] = "sum", [DDP_MIN] = "min", [DDP_MAX] = "max"};
    ddp_text text = {0};
    char count[32];
    ddp_text_from_count(call->count, count, sizeof count);
    if (call->op == DDP_FLIGHT_OPEN)
        ddp_text_add(&text, "the meeting of the ranks");
    else if (call->op == DDP_FLIGHT_ALLOC)
        ddp_text_add(&text, "the allocation of %s shared bytes", count);
    else
        ddp_text_add(&text, "%s", ddp_flight_op_name(call->op));
    if (call->op == DDP_FLIGHT_ALL_REDUCE && (unsigned)call->reduce <= DDP_MAX)
        ddp_text_add(&text, " (%s)", reduces[call->reduce]);
    if (call->op >= DDP_FLIGHT_ALL_REDUCE && call->op < DDP_FLIGHT_BARRIER)
        ddp_text_add(&text, " of %s %s", count, ddp_dtype_name(call->dtype));
    if (call->op == DDP_FLIGHT_BROADCAST)
        ddp_text_add(&text, " from rank %d", call->root);
    add_tag(&text, call->tag);
    snprintf(buffer, bytes, "%s", ddp_text_get(&text));
    ddp_text_free(&text);
    return buffer;
}

const char *ddp_flight_path(const char *run_dir, int rank, char *buffer, size_t bytes)
{
    snprintf(buffer, bytes, "%s/" DDP_FLIGHT_DIRECTORY "/rank-%d.page", run_dir, rank);
    return buffer;
}

/* -- reading -- */

static ddp_error *refuse(const char *path, const char *why)
{
    return ddp_error_make(DDP_ERR_INPUT, "%s: %s", path, why);
}

static bool ends(const char *text, size_t bytes)
{
    return memchr(text, '\0', bytes) != NULL;
}

static ddp_error *check_head(const char *path, const ddp_flight_page *from)
{
    const ddp_flight_head *head = &from->head;
    if (head->magic == 0)
        return refuse(path, "the rank was just making it");
    if ((head->magic & ~(uint64_t)0 >> 8) != (DDP_FLIGHT_MAGIC & ~(uint64_t)0 >> 8))
        return refuse(path, "no page of a flight recorder");
    if (head->magic != DDP_FLIGHT_MAGIC || head->bytes != sizeof(ddp_flight_page))
        return refuse(path, "written by another version of ddprun");
    if (head->world < 1 || head->rank < 0 || head->rank >= head->world || head->pid < 1 ||
        !ends(head->host, sizeof head->host) || !ends(head->boot, sizeof head->boot))
        return refuse(path, "damaged: no rank can have written this");
    return NULL;
}

/* Phase and step, unless they were just changing: then once more, but a rank may have died at it. */
static ddp_error *read_now(int fd, const char *path, ddp_flight_page *to)
{
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = to->now.turn;
        DDP_TRY(ddp_file_read(fd, path, offsetof(ddp_flight_page, now), &to->now, sizeof to->now));
        if (to->now.turn == before && before % 2 == 0)
            break;
    }
    return NULL;
}

static ddp_error *read_page(const char *path, ddp_flight_page *to)
{
    int fd;
    int64_t bytes;
    DDP_TRY(ddp_file_open(path, &fd, &bytes));
    ddp_error *error = NULL;
    if (bytes == 0)
        error = refuse(path, "empty: the rank was just making it");
    else if (bytes < (int64_t)sizeof(uint64_t) || bytes > (int64_t)sizeof *to)
        error = refuse(path, "no page of a flight recorder");
    if (error == NULL)
        error = ddp_file_read(fd, path, 0, to, (size_t)bytes);
    if (error == NULL)
        error = check_head(path, to);
    if (error == NULL && bytes < (int64_t)sizeof *to)
        error = refuse(path, "cut off");
    if (error == NULL)
        error = read_now(fd, path, to);
    close(fd);
    return error;
}

/* What to add to the page's times to have them on the reader's clock. */
static double clock_offset(const ddp_flight_head *head, bool *here)
{
    char boot[DDP_FLIGHT_BOOT] = "";
    ddp_flight_read_boot(boot);
    *here = *boot != '\0' && strcmp(boot, head->boot) == 0;
    if (*here)
        return 0;
    double reader = ddp_clock_unix() - ddp_clock_now();
    return (double)(head->opened_unix_ns - head->opened_ns) * DDP_FLIGHT_NS - reader;
}

static bool read_record(const _Atomic uint64_t *words, size_t slot, double offset, ddp_flight_record *record)
{
    uint64_t sequence = words[SEQUENCE], kind = words[KIND], aim = words[AIM];
    if (sequence == 0 || sequence % DDP_FLIGHT_RECORDS != slot)
        return false;
    ddp_flight_call call = {
        .op = (ddp_flight_op)(kind & 0xff),
        .dtype = (ddp_dtype)(kind >> 8 & 0xff),
        .reduce = (int)(kind >> 16 & 0xff),
        .root = (int)(uint32_t)aim,
        .tag = (int)(uint32_t)(aim >> 32),
        .count = (int64_t)words[COUNT],
        .bytes = (int64_t)words[BYTES],
    };
    uint64_t digest = ddp_flight_digest(&call);
    if ((digest ^ ddp_flight_mix(sequence)) != words[DIGEST] || call.op >= DDP_FLIGHT_OPS ||
        call.dtype >= DDP_DTYPE_COUNT)
        return false;
    double issued = (double)(int64_t)words[ISSUED] * DDP_FLIGHT_NS,
           done = (double)(int64_t)words[DONE] * DDP_FLIGHT_NS;
    *record = (ddp_flight_record){
        .sequence = sequence,
        .call = call,
        .digest = digest,
        .issued = issued + offset,
        .done = words[DONE] != 0 ? done + offset : 0,
    };
    return true;
}

/* In order of their numbers: from the slot behind the newest one round to it. */
static void read_ring(const ddp_flight_page *from, double offset, ddp_flight_snapshot *to)
{
    for (uint64_t i = 1; i <= DDP_FLIGHT_RECORDS; i++) {
        size_t slot = (from->now.issued + i) % DDP_FLIGHT_RECORDS;
        ddp_flight_record record;
        if (!read_record(from->ring[slot], slot, offset, &record) ||
            record.sequence > from->now.issued + DDP_FLIGHT_RECORDS / 2 ||
            (to->count > 0 && record.sequence <= to->records[to->count - 1].sequence))
            continue;
        to->records[to->count++] = record;
        to->latest = fmax(to->latest, fmax(record.issued, record.done));
    }
    uint64_t last = to->count > 0 ? to->records[to->count - 1].sequence : 0;
    to->issued = last > from->now.issued ? last : from->now.issued;
}

static void read_state(const ddp_flight_page *from, double offset, ddp_flight_snapshot *to)
{
    const ddp_flight_head *head = &from->head;
    uint64_t phase = from->now.phase;
    to->rank = head->rank;
    to->world = head->world;
    to->pid = head->pid;
    to->pid_started = head->pid_started;
    memcpy(to->host, head->host, sizeof to->host);
    to->opened = (double)head->opened_ns * DDP_FLIGHT_NS + offset;
    memcpy(to->phase, &phase, sizeof phase);
    to->step = from->now.step;
    to->phase_since =
        from->now.phase_ns != 0 ? (double)from->now.phase_ns * DDP_FLIGHT_NS + offset : to->opened;
    to->step_since = from->now.step_ns != 0 ? (double)from->now.step_ns * DDP_FLIGHT_NS + offset : to->opened;
    to->beat = from->now.beat_ns != 0 ? (double)from->now.beat_ns * DDP_FLIGHT_NS + offset : 0;
    to->latest = fmax(to->opened, fmax(to->phase_since, to->step_since));
}

ddp_error *ddp_flight_read(const char *path, ddp_flight_snapshot *snapshot)
{
    ddp_flight_page *page = aligned_alloc(alignof(ddp_flight_page), sizeof *page);
    if (page == NULL)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    memset(page, 0, sizeof *page);
    ddp_error *error = read_page(path, page);
    if (error == NULL) {
        memset(snapshot, 0, sizeof *snapshot);
        double offset = clock_offset(&page->head, &snapshot->here);
        read_state(page, offset, snapshot);
        read_ring(page, offset, snapshot);
    }
    free(page);
    return error;
}

char ddp_flight_look(int pid, uint64_t *started)
{
    enum { STATE = 3, STARTED = 22 };
    char name[64], stat[1024] = "";
    *started = 0;
    snprintf(name, sizeof name, "/proc/%d/stat", pid);
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, stat, sizeof stat - 1) : -1;
    if (fd >= 0)
        close(fd);
    char *at = got > 0 ? strrchr(stat, ')') : NULL; /* the command's name before it may hold anything */
    if (at == NULL || at[1] == '\0' || at[2] == '\0')
        return 'X';
    char state = at[2];
    at++;
    for (int field = STATE; field < STARTED && at != NULL; field++)
        at = strchr(at + 1, ' ');
    *started = at != NULL ? strtoull(at, NULL, 10) : 0;
    return state;
}

const ddp_flight_record *ddp_flight_find(const ddp_flight_snapshot *snapshot, uint64_t sequence)
{
    for (int i = snapshot->count - 1; i >= 0 && snapshot->records[i].sequence >= sequence; i--)
        if (snapshot->records[i].sequence == sequence)
            return &snapshot->records[i];
    return NULL;
}

const ddp_flight_record *ddp_flight_pending(const ddp_flight_snapshot *snapshot)
{
    for (int i = 0; i < snapshot->count; i++)
        if (snapshot->records[i].done == 0)
            return &snapshot->records[i];
    return NULL;
}
