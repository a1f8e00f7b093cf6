/* The bytes of a data file, for the formats of this folder. A small file is held in memory; a large one is
 * read where and when it is needed. Never mapped: a mapped file that is cut short while a job runs kills the
 * rank with SIGBUS, a read says which byte is missing. */
#ifndef DDP_RUNTIME_DATA_BYTES_H
#define DDP_RUNTIME_DATA_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ddp/error.h>

/* Up to this many bytes a file is held in memory. */
#define DDP_BYTES_IN_MEMORY (64 << 20)

typedef struct ddp_bytes {
    char *path; /* NULL = not open */
    int fd;
    int64_t count;         /* bytes of the file when it was opened */
    unsigned char *memory; /* all of it, or NULL */
} ddp_bytes;

/* INPUT: missing, not a regular file, or compressed by gzip (the help line says gunzip). IO, MEMORY. */
DDP_USE_RESULT ddp_error *ddp_bytes_open(const char *path, ddp_bytes *bytes);

/* Points *at at `count` bytes from `offset` on: into memory, or into `buffer`, which has room for them. The
 * range lies inside the file as it was opened. IO: file and offset, also when it has been cut since.
 * Threads: any number at once, each with its own buffer. */
DDP_USE_RESULT ddp_error *ddp_bytes_get(const ddp_bytes *bytes, int64_t offset, size_t count,
                                        unsigned char *buffer, const unsigned char **at);

void ddp_bytes_close(ddp_bytes *bytes); /* a zeroed one is fine */

#endif
