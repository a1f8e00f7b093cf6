/* Making, removing, and sweeping after the dead. A directory whose lock can be taken belongs to nobody any
 * more. */
#include "launcher/session.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files.h"
#include "core/text.h"

#define PREFIX "ddprun-mpi-"

static const char *parent_directory(void)
{
    const char *given = getenv("TMPDIR");
    return given != NULL && given[0] == '/' ? given : "/tmp";
}

static void remove_tree(const char *path)
{
    ddp_error_free(ddp_tree_remove(path)); /* what cannot go now goes with a later sweep */
}

/* The lock file of a session, locked; -1 = it is in use, not ours, or not there. */
static int take_lock(const char *directory, int flags)
{
    char *path = NULL;
    struct stat info;
    if (asprintf(&path, "%s/lock", directory) < 0)
        return -1;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    free(path);
    if (fd >= 0 && (fstat(fd, &info) != 0 || info.st_uid != geteuid() || flock(fd, LOCK_EX | LOCK_NB) != 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void sweep(const char *parent)
{
    DIR *directory = opendir(parent);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        char *path = NULL;
        if (!ddp_text_starts(entry->d_name, PREFIX) || asprintf(&path, "%s/%s", parent, entry->d_name) < 0)
            continue;
        int lock = take_lock(path, 0);
        if (lock >= 0) {
            remove_tree(path);
            close(lock);
        }
        free(path);
    }
    if (directory != NULL)
        closedir(directory);
}

ddp_error *ddp_session_make(ddp_session *session)
{
    const char *parent = parent_directory();
    ddp_session made = {.lock = -1};
    sweep(parent);
    if (asprintf(&made.path, "%s/" PREFIX "XXXXXX", parent) < 0)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    if (mkdtemp(made.path) == NULL) {
        ddp_error *error = ddp_error_errno(errno, "making %s for mpirun's files", made.path);
        free(made.path);
        return error;
    }
    made.lock = take_lock(made.path, O_CREAT);
    *session = made;
    return NULL;
}

void ddp_session_remove(ddp_session *session)
{
    if (session->path == NULL)
        return;
    remove_tree(session->path);
    if (session->lock >= 0)
        close(session->lock);
    free(session->path);
    *session = (ddp_session){0};
}
