/* Files and directories. Every error names the path. */
#ifndef DDP_CORE_FILES_H
#define DDP_CORE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ddp/error.h>

/* The whole regular file, with a NUL behind it; freed with free(). INPUT: missing, not a regular file
 * (a directory, FIFO or device is named as such, and never opened), or larger than `limit` bytes. */
DDP_USE_RESULT ddp_error *ddp_file_load(const char *path, size_t limit, char **data, size_t *bytes);

/* Opens a regular file for pread, close-on-exec. INPUT as above. */
DDP_USE_RESULT ddp_error *ddp_file_open(const char *path, int *fd, int64_t *bytes);

/* Exactly `bytes` bytes at `offset`; a short file is an IO error that names file and offset. */
DDP_USE_RESULT ddp_error *ddp_file_read(int fd, const char *path, int64_t offset, void *data, size_t bytes);

/* Writes all of it (EINTR, short writes). */
DDP_USE_RESULT ddp_error *ddp_file_write(int fd, const char *path, const void *data, size_t bytes);

/* A file that appears whole or not at all: what is written to `fd` lies beside it until ddp_draft_commit
 * syncs it (and its directory) and gives it its name. ddp_draft_discard after an error; both free the draft.
 */
typedef struct ddp_draft {
    int fd;
    char *path, *beside;
} ddp_draft;
DDP_USE_RESULT ddp_error *ddp_draft_open(const char *path, ddp_draft *draft);
DDP_USE_RESULT ddp_error *ddp_draft_commit(ddp_draft *draft); /* on an error it is discarded */
void ddp_draft_discard(ddp_draft *draft);

/* Such a file from bytes in memory. */
DDP_USE_RESULT ddp_error *ddp_file_save(const char *path, const void *data, size_t bytes);

/* Makes a directory and its parents; it may exist. */
DDP_USE_RESULT ddp_error *ddp_directory_make(const char *path);

/* The directory's own entries are on disk when this returns: new names, renames. */
DDP_USE_RESULT ddp_error *ddp_directory_sync(const char *path);

/* Removes a file, or a directory and all in it, on its file system; links are not followed. It need not
 * exist. */
DDP_USE_RESULT ddp_error *ddp_tree_remove(const char *path);

/* "a/b" from its parts; freed with free(). */
DDP_USE_RESULT ddp_error *ddp_path_join(const char *directory, const char *name, char **path);
const char *ddp_path_name(const char *path); /* the part behind the last slash, borrowed */

#endif
