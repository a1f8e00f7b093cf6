/* The memory file by which the ranks of one host meet. Not here: what they do with it (meet.c, shm.c).
 *
 * Its blocks are reserved when it is made: a store into a memory file for which the host has no page left
 * would be a SIGBUS, a reservation that fails is an error. */
#include "collectives/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collectives/control.h"
#include "core/memory.h"

struct ddp_rendezvous {
    int fd;
    ddp_control *control;
    size_t bytes;
};

static ddp_error *map_control(int fd, size_t bytes, ddp_rendezvous **rendezvous)
{
    ddp_rendezvous *made = NULL;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return ddp_error_errno(errno, "the memory file of the ranks cannot be mapped");
    ddp_error *error = DDP_NEW(&made);
    if (error != NULL) {
        munmap(memory, bytes);
        return error;
    }
    *made = (ddp_rendezvous){.fd = fd, .control = memory, .bytes = bytes};
    *rendezvous = made;
    return NULL;
}

ddp_error *ddp_rendezvous_make(int world, ddp_rendezvous **rendezvous)
{
    if (world < 1 || world > DDP_MAX_LOCAL_RANKS)
        return ddp_error_make(DDP_ERR_INPUT, "%d ranks on one host: 1 to %d are possible", world,
                              DDP_MAX_LOCAL_RANKS);
    ddp_rendezvous *made = NULL;
    int fd = memfd_create("ddprun", MFD_CLOEXEC);
    if (fd < 0)
        return ddp_error_errno(errno, "no memory file for the ranks to meet");
    int code = posix_fallocate(fd, 0, (off_t)ddp_control_bytes(world));
    ddp_error *error = code ? ddp_error_errno(code, "no room for the memory file of the ranks") : NULL;
    if (error == NULL)
        error = map_control(fd, ddp_control_bytes(world), &made);
    if (error != NULL) {
        close(fd);
        return error;
    }
    ddp_control_init(made->control, world);
    *rendezvous = made;
    return NULL;
}

ddp_error *ddp_rendezvous_open(int fd, ddp_rendezvous **rendezvous)
{
    ddp_rendezvous *made = NULL;
    struct stat status;
    ddp_error *error = NULL;
    if (fstat(fd, &status) != 0)
        return ddp_error_errno(errno, "the memory file of the ranks, descriptor %d", fd);
    bool fits = S_ISREG(status.st_mode) && (size_t)status.st_size >= ddp_control_bytes(1);
    if (fits)
        error = map_control(fd, (size_t)status.st_size, &made);
    fits = made != NULL && ddp_control_valid(made->control) &&
           ddp_control_bytes(made->control->world) <= (size_t)status.st_size;
    if (error == NULL && !fits)
        error =
            ddp_error_make(DDP_ERR_INTERNAL, "descriptor %d is not the memory file of this job's ranks", fd);
    if (error != NULL) {
        if (made != NULL)
            ddp_rendezvous_close(made);
        else
            close(fd);
        return error;
    }
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    *rendezvous = made;
    return NULL;
}

int ddp_rendezvous_fd(const ddp_rendezvous *rendezvous)
{
    return rendezvous->fd;
}

int ddp_rendezvous_world(const ddp_rendezvous *rendezvous)
{
    return rendezvous->control->world;
}

ddp_control *ddp_rendezvous_control(const ddp_rendezvous *rendezvous)
{
    return rendezvous->control;
}

void ddp_rendezvous_close(ddp_rendezvous *rendezvous)
{
    if (rendezvous == NULL)
        return;
    munmap(rendezvous->control, rendezvous->bytes);
    close(rendezvous->fd);
    free(rendezvous);
}

void ddp_rendezvous_tell(ddp_rendezvous *rendezvous, int local_rank, const char *phase, int64_t step)
{
    ddp_assert(local_rank >= 0 && local_rank < rendezvous->control->world);
    ddp_control_tell(rendezvous->control, local_rank, phase, step);
}

ddp_rendezvous_status ddp_rendezvous_ask(const ddp_rendezvous *rendezvous, int local_rank)
{
    ddp_assert(local_rank >= 0 && local_rank < rendezvous->control->world);
    return ddp_control_ask(rendezvous->control, local_rank);
}

void ddp_rendezvous_abort(ddp_rendezvous *rendezvous, int culprit, const char *why)
{
    ddp_control_abort(rendezvous->control, culprit, why);
}

bool ddp_rendezvous_aborted(const ddp_rendezvous *rendezvous, int *culprit, const char **why)
{
    return ddp_control_aborted(rendezvous->control, culprit, why);
}
