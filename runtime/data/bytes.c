/* The bytes of a data file: in memory, or by pread. */
#include "runtime/data/bytes.h"

#include <stdlib.h>
#include <unistd.h>

#include "core/files.h"
#include "core/memory.h"

static ddp_error *load(ddp_bytes *bytes)
{
    void *memory;
    if (bytes->count > DDP_BYTES_IN_MEMORY || bytes->count == 0)
        return NULL;
    DDP_TRY(ddp_memory_make((size_t)bytes->count, 1, &memory));
    bytes->memory = memory;
    return ddp_file_read(bytes->fd, bytes->path, 0, memory, (size_t)bytes->count);
}

static ddp_error *refuse_gzip(const ddp_bytes *bytes)
{
    unsigned char buffer[2];
    const unsigned char *at;
    if (bytes->count < 2)
        return NULL;
    DDP_TRY(ddp_bytes_get(bytes, 0, 2, buffer, &at));
    if (at[0] != 0x1F || at[1] != 0x8B)
        return NULL;
    return ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                         "%s: byte 0: found 1f 8b, which is gzip; plain bytes are expected",
                                         bytes->path),
                          "gunzip %s", bytes->path);
}

ddp_error *ddp_bytes_open(const char *path, ddp_bytes *bytes)
{
    ddp_bytes made = {.fd = -1};
    DDP_TRY(ddp_file_open(path, &made.fd, &made.count));
    ddp_error *error = ddp_memory_text(path, &made.path);
    if (error == NULL)
        error = load(&made);
    if (error == NULL)
        error = refuse_gzip(&made);
    if (error != NULL) {
        if (made.path == NULL)
            close(made.fd);
        ddp_bytes_close(&made);
        return error;
    }
    *bytes = made;
    return NULL;
}

ddp_error *ddp_bytes_get(const ddp_bytes *bytes, int64_t offset, size_t count, unsigned char *buffer,
                         const unsigned char **at)
{
    ddp_assert(offset >= 0 && (int64_t)count <= bytes->count - offset);
    if (bytes->memory != NULL) {
        *at = bytes->memory + offset;
        return NULL;
    }
    DDP_TRY(ddp_file_read(bytes->fd, bytes->path, offset, buffer, count));
    *at = buffer;
    return NULL;
}

void ddp_bytes_close(ddp_bytes *bytes)
{
    if (bytes->path == NULL)
        return;
    close(bytes->fd);
    free(bytes->memory);
    free(bytes->path);
    *bytes = (ddp_bytes){.fd = -1};
}
