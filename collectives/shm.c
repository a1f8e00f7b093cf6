/* Ranks of one host: the memory file of the rendezvous, mapped by all of them.
 *
 *     control block | bounce buffers, one a rank | first ddp_comm_alloc, one part a rank | second | ...
 *
 * Each rank reserves its own part of everything, so its pages come from its own NUMA node, and lack of memory
 * is an error of that rank that all of them hear of, not a SIGBUS later. Bounds are multiples of 2 MiB for
 * large parts: where the kernel gives huge pages to shared memory (shmem_enabled = advise) they are used. */
#include "collectives/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/comms.h"
#include "core/memory.h"
#include "core/text.h"

enum { BOUNCE_BYTES = 512 << 10, PAGE = 4096, HUGE_PAGE = 2 << 20 };

static size_t round_up(size_t bytes)
{
    size_t unit = bytes >= HUGE_PAGE ? HUGE_PAGE : PAGE;
    return (bytes + unit - 1) / unit * unit;
}

/* Whether a rank's process lives. Each rank holds a lock on byte `seat` of the file through an open file
 * description of its own; the kernel releases it when the process ends, however it ends, even before its
 * parent takes notice, and in whatever PID namespace it is. The byte needs not exist for that. */
static bool alive(void *argument, int seat)
{
    ddp_shm *shm = argument;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = seat, .l_len = 1};
    return fcntl(ddp_rendezvous_fd(shm->rendezvous), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static void hold_lock(ddp_shm *shm)
{
    ddp_meet *meet = &shm->group.meet;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = meet->me, .l_len = 1};
    if (fcntl(ddp_rendezvous_fd(shm->rendezvous), F_OFD_SETLK, &lock) != 0)
        return; /* then only time-outs and the launcher notice our death */
    atomic_store_explicit(&ddp_control_seat(meet->control, meet->me)->watched, 1, memory_order_release);
}

/* The inherited descriptor shares one open file description between all ranks; locks need one of our own. */
static ddp_error *reopen(int fd, ddp_rendezvous **rendezvous)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, O_RDWR | O_CLOEXEC);
    if (own < 0)
        return ddp_error_help(ddp_error_errno(errno, "%s, the memory file of this host's ranks", path),
                              "is /proc mounted, and was this rank started by ddprun?");
    return ddp_rendezvous_open(own, rendezvous);
}

static void *reach(ddp_group *group, int seat, const ddp_call *call)
{
    if (call->arena < 0)
        return NULL;
    const ddp_arena *arena = &group->arenas[call->arena];
    return arena->base + (size_t)seat * arena->stride + call->offset;
}

/* Reserves this rank's part of a new region of the file and maps all of it; returns an errno. The region's
 * place is the same on all ranks. */
static int add_region(ddp_shm *shm, size_t stride, int64_t *at, char **base)
{
    const ddp_meet *meet = &shm->group.meet;
    int fd = ddp_rendezvous_fd(shm->rendezvous);
    int64_t unit = stride >= HUGE_PAGE ? HUGE_PAGE : PAGE;
    *at = (shm->file_end + unit - 1) / unit * unit;
    shm->file_end = *at + (int64_t)stride * meet->count;
    /* What the kernel thinks it can give: a reservation beyond would not fail but wake the OOM killer. */
    int64_t available = ddp_memory_info("MemAvailable");
    if (available > 0 && (double)stride * meet->count > (double)available)
        return ENOMEM;
    int code = posix_fallocate(fd, *at + (int64_t)stride * meet->me, (off_t)stride);
    if (code != 0)
        return code;
    size_t bytes = stride * (size_t)meet->count;
    void *got = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, *at);
    if (got == MAP_FAILED)
        return errno;
    (void)madvise(got, bytes, MADV_HUGEPAGE);
    *base = got;
    return 0;
}

static ddp_error *open_bounce(ddp_shm *shm)
{
    ddp_group *group = &shm->group;
    int64_t at;
    int code = add_region(shm, BOUNCE_BYTES, &at, &group->bounce);
    if (code != 0)
        return ddp_error_errno(code, "no room for the buffers between ranks");
    group->bounce_bytes = BOUNCE_BYTES;
    shm->bounce_mapped = (size_t)BOUNCE_BYTES * (size_t)group->meet.count;
    return NULL;
}

ddp_error *ddp_shm_begin(ddp_shm *shm, int fd)
{
    ddp_meet *meet = &shm->group.meet;
    DDP_TRY(reopen(fd, &shm->rendezvous));
    meet->control = ddp_rendezvous_control(shm->rendezvous);
    if (meet->control->world != meet->count || meet->me < 0 || meet->me >= meet->count)
        return ddp_error_make(DDP_ERR_INTERNAL,
                              "rank %d of %d on this host: the memory file was made for %d ranks", meet->me,
                              meet->count, meet->control->world);
    meet->alive = alive;
    meet->alive_arg = shm;
    shm->group.reach = reach;
    shm->file_end = (int64_t)ddp_control_bytes(meet->count);
    hold_lock(shm);
    ddp_error *error = open_bounce(shm);
    if (error != NULL)
        return ddp_meet_abort(meet, meet->ranks[meet->me], error);
    return ddp_group_open(&shm->group);
}

void ddp_shm_end(ddp_shm *shm)
{
    ddp_group *group = &shm->group;
    for (int i = 0; i < group->arena_count; i++)
        if (group->arenas[i].mine != NULL)
            ddp_shm_free(&group->base, group->arenas[i].mine);
    ddp_group_close(group);
    if (group->bounce != NULL)
        munmap(group->bounce, shm->bounce_mapped);
    ddp_rendezvous_close(shm->rendezvous);
}

/* All ranks hear whether all had room; the one that had not says so, and the others name it. */
static ddp_error *agree_on_room(ddp_shm *shm, size_t bytes, int code)
{
    ddp_meet *meet = &shm->group.meet;
    ddp_call call = {.kind = DDP_CALL_ALLOC, .arena = -1, .count = (int64_t)bytes, .failed = code};
    char size[32];
    ddp_meet_post(meet, &call);
    DDP_TRY(ddp_meet_wait(meet));
    DDP_TRY(ddp_meet_check(meet));
    for (int i = 0; i < meet->count; i++) {
        int failed = ddp_meet_call(meet, i)->failed;
        if (failed != 0)
            return ddp_error_make(DDP_ERR_MEMORY, "rank %d found no room for %s of shared memory: %s",
                                  meet->ranks[i], ddp_text_from_bytes((double)bytes, size, sizeof size),
                                  strerror(failed));
    }
    return NULL;
}

ddp_error *ddp_shm_alloc(ddp_comm *comm, size_t bytes, void **memory)
{
    ddp_shm *shm = (ddp_shm *)comm;
    ddp_arena arena = {.bytes = bytes, .stride = round_up(bytes)};
    DDP_TRY(ddp_group_may_alloc(&shm->group));
    int code = add_region(shm, arena.stride, &arena.at, &arena.base);
    ddp_error *error = agree_on_room(shm, bytes, code);
    if (error != NULL) {
        if (arena.base != NULL)
            munmap(arena.base, arena.stride * (size_t)shm->group.meet.count);
        return error;
    }
    arena.mine = arena.base + arena.stride * (size_t)shm->group.meet.me;
    DDP_TRY(ddp_group_add_arena(&shm->group, &arena));
    *memory = arena.mine;
    return NULL;
}

/* Gives back this rank's pages; the place in the file stays used up. */
void ddp_shm_free(ddp_comm *comm, void *memory)
{
    ddp_shm *shm = (ddp_shm *)comm;
    ddp_arena *arena = ddp_group_find_arena(&shm->group, memory);
    ddp_assert(arena != NULL);
    (void)fallocate(ddp_rendezvous_fd(shm->rendezvous), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    arena->at + (int64_t)arena->stride * shm->group.meet.me, (off_t)arena->stride);
    munmap(arena->base, arena->stride * (size_t)shm->group.meet.count);
    arena->mine = NULL;
}

static void close_shm(ddp_comm *comm)
{
    ddp_shm_end((ddp_shm *)comm);
    free(comm);
}

static ddp_error *open_shm(const ddp_comm_config *config, ddp_comm **comm)
{
    if (config->rendezvous_fd < 0)
        return ddp_error_help(
            ddp_error_make(DDP_ERR_INTERNAL, "the shm communicator without the launcher's memory file"),
            "ranks of one host are started by ddprun; under mpirun they meet through MPI");
    if (config->local_world != config->world)
        return ddp_error_make(DDP_ERR_INPUT,
                              "%d ranks of %d are on this host: shared memory does not reach the others",
                              config->local_world, config->world);
    if (!config->device->ops->host_memory)
        return ddp_error_make(DDP_ERR_INTERNAL, "the shm communicator works on host memory only");
    ddp_shm *made = NULL;
    DDP_TRY(DDP_NEW(&made));
    for (int i = 0; i < DDP_MAX_LOCAL_RANKS; i++)
        made->ranks[i] = i;
    made->group.base = (ddp_comm){.ops = &ddp_comm_shm_ops,
                                  .device = config->device,
                                  .rank = config->rank,
                                  .world = config->world,
                                  .local_rank = config->local_rank,
                                  .local_world = config->local_world,
                                  .timeout_s = config->timeout_s};
    made->group.meet =
        (ddp_meet){.me = config->local_rank, .count = config->local_world, .ranks = made->ranks};
    made->group.work = ddp_group_work;
    ddp_error *error = ddp_shm_begin(made, config->rendezvous_fd);
    if (error != NULL)
        close_shm(&made->group.base);
    else
        *comm = &made->group.base;
    return error;
}

const ddp_comm_ops ddp_comm_shm_ops = {
    .name = "shm",
    .open = open_shm,
    .close = close_shm,
    .alloc = ddp_shm_alloc,
    .free = ddp_shm_free,
    .all_reduce = ddp_group_all_reduce,
    .reduce_scatter = ddp_group_reduce_scatter,
    .all_gather = ddp_group_all_gather,
    .broadcast = ddp_group_broadcast,
    .barrier = ddp_group_barrier,
    .health = ddp_group_health,
    .abort = ddp_group_abort,
};
