/* The writer of a rank's page. See flight_page.h for the layout, flight_read.c for the other side. */
#include <ddp/comm.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/files.h"
#include "core/flight_page.h"
#include "core/memory.h"
#include "core/text.h"

struct ddp_flight {
    ddp_flight_page *page;
    uint64_t sequence;
    char phase[DDP_FLIGHT_PHASE]; /* the one told last: telling it again changes nothing */
};

static int64_t now_ns(void)
{
    return (int64_t)(ddp_clock_now() / DDP_FLIGHT_NS);
}

void ddp_flight_read_boot(char boot[DDP_FLIGHT_BOOT])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, boot, DDP_FLIGHT_BOOT - 1) : 0;
    boot[got > 0 ? strcspn(boot, "\n") : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

static uint64_t pack_kind(const ddp_flight_call *call)
{
    return (uint64_t)call->op | (uint64_t)call->dtype << 8 | (uint64_t)call->reduce << 16;
}

static uint64_t pack_aim(const ddp_flight_call *call)
{
    return (uint64_t)(uint32_t)call->root | (uint64_t)(uint32_t)call->tag << 32;
}

/* After splitmix64's finaliser (Steele, Lea, Flood, OOPSLA 2014). */
uint64_t ddp_flight_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

uint64_t ddp_flight_digest(const ddp_flight_call *call)
{
    uint64_t digest = ddp_flight_mix(pack_kind(call) + 0x9e3779b97f4a7c15);
    digest = ddp_flight_mix(digest + pack_aim(call));
    digest = ddp_flight_mix(digest + (uint64_t)call->count);
    return ddp_flight_mix(digest + (uint64_t)call->bytes);
}

static void fill_head(ddp_flight_head *head, int rank, int world)
{
    char boot[DDP_FLIGHT_BOOT] = "";
    uint64_t started;
    ddp_flight_read_boot(boot);
    ddp_flight_look(getpid(), &started);
    head->bytes = sizeof(ddp_flight_page);
    head->rank = rank;
    head->world = world;
    head->pid = (int32_t)getpid();
    head->pid_started = started;
    head->opened_ns = now_ns();
    head->opened_unix_ns = (int64_t)(ddp_clock_unix() / DDP_FLIGHT_NS);
    gethostname(head->host, sizeof head->host - 1);
    memcpy(head->boot, boot, sizeof head->boot);
    atomic_store_explicit(&head->magic, DDP_FLIGHT_MAGIC, memory_order_release);
}

/* A new file, never an old one cut short: somebody may have the old one mapped. Its blocks are reserved: a
 * store for which the disk has no room would be a SIGBUS. */
static ddp_error *map_page(const char *path, ddp_flight_page **made)
{
    ddp_error *error = NULL;
    if (unlink(path) != 0 && errno != ENOENT)
        return ddp_error_errno(errno, "removing %s", path);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return ddp_error_errno(errno, "making %s", path);
    int code = posix_fallocate(fd, 0, sizeof(ddp_flight_page));
    void *memory = MAP_FAILED;
    if (code != 0)
        error = ddp_error_errno(code, "no room for %s", path);
    else if ((memory = mmap(NULL, sizeof(ddp_flight_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) ==
             MAP_FAILED)
        error = ddp_error_errno(errno, "mapping %s", path);
    close(fd);
    if (error != NULL) {
        unlink(path);
        return error;
    }
    *made = memory;
    return NULL;
}

ddp_error *ddp_flight_open(const char *run_dir, int rank, int world, ddp_flight **flight)
{
    char path[4096];
    char *directory = NULL;
    ddp_flight *made = NULL;
    ddp_error *error = NULL;
    DDP_GO(ddp_path_join(run_dir, DDP_FLIGHT_DIRECTORY, &directory));
    DDP_GO(ddp_directory_make(directory));
    DDP_GO(DDP_NEW(&made));
    DDP_GO(map_page(ddp_flight_path(run_dir, rank, path, sizeof path), &made->page));
    fill_head(&made->page->head, rank, world);
out:
    free(directory);
    if (error != NULL) {
        free(made);
        return error;
    }
    *flight = made;
    return NULL;
}

void ddp_flight_close(ddp_flight *flight)
{
    if (flight == NULL)
        return;
    munmap(flight->page, sizeof(ddp_flight_page));
    free(flight);
}

/* Release stores all the way: each stays behind the ones before it. */
static void begin_turn(ddp_flight_now *now)
{
    uint64_t turn = atomic_load_explicit(&now->turn, memory_order_relaxed);
    atomic_store_explicit(&now->turn, turn + 1, memory_order_relaxed);
}

static void end_turn(ddp_flight_now *now)
{
    uint64_t turn = atomic_load_explicit(&now->turn, memory_order_relaxed);
    atomic_store_explicit(&now->turn, turn + 1, memory_order_release);
}

void ddp_flight_phase(ddp_flight *flight, const char *phase)
{
    if (flight == NULL || strncmp(phase, flight->phase, sizeof flight->phase - 1) == 0)
        return;
    uint64_t word = 0;
    ddp_flight_now *now = &flight->page->now;
    memset(flight->phase, 0, sizeof flight->phase);
    memcpy(flight->phase, phase, strnlen(phase, sizeof word));
    memcpy(&word, flight->phase, sizeof word);
    begin_turn(now);
    atomic_store_explicit(&now->phase, word, memory_order_release);
    atomic_store_explicit(&now->phase_ns, now_ns(), memory_order_release);
    end_turn(now);
}

void ddp_flight_step(ddp_flight *flight, int64_t step)
{
    if (flight == NULL)
        return;
    ddp_flight_now *now = &flight->page->now;
    begin_turn(now);
    atomic_store_explicit(&now->step, step, memory_order_release);
    atomic_store_explicit(&now->step_ns, now_ns(), memory_order_release);
    end_turn(now);
}

void ddp_flight_beat(ddp_flight *flight)
{
    if (flight != NULL)
        atomic_store_explicit(&flight->page->now.beat_ns, now_ns(), memory_order_relaxed);
}

uint64_t ddp_flight_issue(ddp_flight *flight, const ddp_flight_call *call)
{
    if (flight == NULL)
        return 0;
    uint64_t sequence = ++flight->sequence;
    _Atomic uint64_t *record = flight->page->ring[sequence % DDP_FLIGHT_RECORDS];
    const uint64_t words[WORDS] = {
        [ISSUED] = (uint64_t)now_ns(),   [COUNT] = (uint64_t)call->count,
        [BYTES] = (uint64_t)call->bytes, [DIGEST] = ddp_flight_digest(call) ^ ddp_flight_mix(sequence),
        [KIND] = pack_kind(call),        [AIM] = pack_aim(call),
    };
    atomic_store_explicit(&record[SEQUENCE], 0, memory_order_relaxed);
    for (int i = SEQUENCE + 1; i < WORDS; i++)
        atomic_store_explicit(&record[i], words[i], memory_order_release);
    atomic_store_explicit(&record[SEQUENCE], sequence, memory_order_release);
    atomic_store_explicit(&flight->page->now.issued, sequence, memory_order_release);
    return sequence;
}

void ddp_flight_done(ddp_flight *flight, uint64_t sequence)
{
    if (flight == NULL || sequence == 0)
        return;
    _Atomic uint64_t *record = flight->page->ring[sequence % DDP_FLIGHT_RECORDS];
    if (atomic_load_explicit(&record[SEQUENCE], memory_order_acquire) == sequence)
        atomic_store_explicit(&record[DONE], (uint64_t)now_ns(), memory_order_release);
}
