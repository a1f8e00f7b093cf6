/* Files and directories. */
#include "core/files.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"

#define OPEN_DIRECTORIES 16

static const char *type_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a named pipe"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

ddp_error *ddp_file_open(const char *path, int *fd, int64_t *bytes)
{
    struct stat info;
    /* O_NONBLOCK: a named pipe must not make us wait before we see what it is. */
    int got = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (got < 0) {
        ddp_error *error = ddp_error_make(DDP_ERR_INPUT, "%s: %s", path, strerror(errno));
        return errno == ENOENT && path[0] != '/'
                   ? ddp_error_help(error, "relative paths start from where ddprun was called")
                   : error;
    }
    if (fstat(got, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(got);
        return ddp_error_make(DDP_ERR_INPUT, "%s is %s, not a regular file", path, type_of(info.st_mode));
    }
    *fd = got;
    *bytes = info.st_size;
    return NULL;
}

ddp_error *ddp_file_read(int fd, const char *path, int64_t offset, void *data, size_t bytes)
{
    char *to = data;
    while (bytes > 0) {
        ssize_t got = pread(fd, to, bytes, offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return ddp_error_errno(errno, "reading %s at byte %lld", path, (long long)offset);
        if (got == 0)
            return ddp_error_make(DDP_ERR_IO, "%s ends at byte %lld, %zu bytes more were expected", path,
                                  (long long)offset, bytes);
        to += got;
        offset += got;
        bytes -= (size_t)got;
    }
    return NULL;
}

ddp_error *ddp_file_load(const char *path, size_t limit, char **data, size_t *bytes)
{
    int fd;
    int64_t size;
    void *memory = NULL;
    DDP_TRY(ddp_file_open(path, &fd, &size));
    ddp_error *error = NULL;
    if ((uint64_t)size > limit)
        error = ddp_error_make(DDP_ERR_INPUT, "%s has %lld bytes; at most %zu are read", path,
                               (long long)size, limit);
    if (error == NULL)
        error = ddp_memory_make((size_t)size + 1, 1, &memory);
    if (error == NULL)
        error = ddp_file_read(fd, path, 0, memory, (size_t)size);
    close(fd);
    if (error != NULL) {
        free(memory);
        return error;
    }
    *data = memory;
    *bytes = (size_t)size;
    return NULL;
}

ddp_error *ddp_file_write(int fd, const char *path, const void *data, size_t bytes)
{
    const char *from = data;
    while (bytes > 0) {
        ssize_t done = write(fd, from, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return ddp_error_errno(errno, "writing %s", path);
        from += done;
        bytes -= (size_t)done;
    }
    return NULL;
}

void ddp_draft_discard(ddp_draft *draft)
{
    if (draft->fd >= 0) {
        close(draft->fd);
        unlink(draft->beside);
    }
    free(draft->path);
    free(draft->beside);
    *draft = (ddp_draft){.fd = -1};
}

ddp_error *ddp_draft_open(const char *path, ddp_draft *draft)
{
    ddp_draft made = {.fd = -1};
    DDP_TRY(ddp_memory_text(path, &made.path));
    ddp_error *error = NULL;
    if (asprintf(&made.beside, "%s.%d.part", path, (int)getpid()) < 0) {
        made.beside = NULL;
        error = ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    } else if ((made.fd = open(made.beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0) {
        error = ddp_error_errno(errno, "making %s", made.beside);
    }
    if (error != NULL) {
        ddp_draft_discard(&made);
        return error;
    }
    *draft = made;
    return NULL;
}

ddp_error *ddp_directory_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ddp_error *error = NULL;
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL)) /* EINVAL: a file system that has nothing to sync */
        error = ddp_error_errno(errno, "writing the directory %s to disk", path);
    if (fd >= 0)
        close(fd);
    return error;
}

/* The new name is on disk only once its directory is. */
static ddp_error *sync_directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *directory = slash == NULL   ? strdup(".")
                      : slash == path ? strdup("/")
                                      : strndup(path, (size_t)(slash - path));
    if (directory == NULL)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    ddp_error *error = ddp_directory_sync(directory);
    free(directory);
    return error;
}

ddp_error *ddp_draft_commit(ddp_draft *draft)
{
    ddp_error *error = NULL;
    if (fsync(draft->fd) != 0)
        error = ddp_error_errno(errno, "writing %s to disk", draft->path);
    if (error == NULL && rename(draft->beside, draft->path) != 0)
        error = ddp_error_errno(errno, "renaming to %s", draft->path);
    if (error == NULL)
        error = sync_directory_of(draft->path);
    if (error == NULL) {
        close(draft->fd); /* synced: nothing can fail any more */
        draft->fd = -1;
    }
    ddp_draft_discard(draft);
    return error;
}

ddp_error *ddp_file_save(const char *path, const void *data, size_t bytes)
{
    ddp_draft draft;
    DDP_TRY(ddp_draft_open(path, &draft));
    ddp_error *error = ddp_file_write(draft.fd, path, data, bytes);
    if (error == NULL)
        return ddp_draft_commit(&draft);
    ddp_draft_discard(&draft);
    return error;
}

ddp_error *ddp_directory_make(const char *path)
{
    char *copy;
    DDP_TRY(ddp_memory_text(path, &copy));
    ddp_error *error = NULL;
    for (char *at = copy + 1; error == NULL; at++) {
        char kept = *at;
        if (kept != '/' && kept != '\0')
            continue;
        *at = '\0';
        struct stat info;
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            error = ddp_error_errno(errno, "making directory %s", copy);
        else if (stat(copy, &info) != 0 || !S_ISDIR(info.st_mode))
            error = ddp_error_make(DDP_ERR_IO, "%s exists and is no directory", copy);
        *at = kept;
        if (kept == '\0')
            break;
    }
    free(copy);
    return error;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

ddp_error *ddp_tree_remove(const char *path)
{
    if (nftw(path, remove_entry, OPEN_DIRECTORIES, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0 && errno != ENOENT)
        return ddp_error_errno(errno, "removing %s", path);
    return NULL;
}

ddp_error *ddp_path_join(const char *directory, const char *name, char **path)
{
    size_t length = strlen(directory);
    if (asprintf(path, "%s%s%s", directory, length > 0 && directory[length - 1] == '/' ? "" : "/", name) < 0)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    return NULL;
}

const char *ddp_path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
