/* Token ids into files: a buffer, a draft of the file under way, and the names of those that are done. */
#include "runtime/data/shards.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/files.h"
#include "core/memory.h"
#include "runtime/data/token_file.h"

#define BUFFER_IDS (1 << 16)

struct ddp_shards {
    ddp_shards_config config;
    ddp_draft draft; /* fd -1 = no file under way */
    int64_t files;   /* done */
    int64_t in_file; /* ids of the one under way, those in the buffer included */
    int64_t ids;     /* of all */
    int64_t buffered;
    bool finished;
    unsigned char buffer[BUFFER_IDS * 4];
};

static ddp_error *make_path(const char *prefix, int64_t number, char **path)
{
    if (asprintf(path, "%s_%06" PRId64 ".bin", prefix, number) < 0)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    return NULL;
}

ddp_error *ddp_shards_check(const char *prefix)
{
    char *pattern;
    glob_t found = {0};
    if (asprintf(&pattern, "%s_*.bin", prefix) < 0)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    ddp_error *error = NULL;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0)
        error = ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                              "%s is there already, and %s would name it and the new ones",
                                              found.gl_pathv[0], pattern),
                               "another name, or remove the old ones");
    globfree(&found);
    free(pattern);
    return error;
}

ddp_error *ddp_shards_open(const ddp_shards_config *config, ddp_shards **shards)
{
    ddp_shards *made;
    DDP_TRY(DDP_NEW(&made));
    made->config = *config;
    made->draft.fd = -1;
    *shards = made;
    return NULL;
}

static ddp_error *begin_file(ddp_shards *shards)
{
    char *path;
    unsigned char header[DDP_TOKEN_HEADER_BYTES] = {0};
    if (shards->files == DDP_SHARDS_MAX)
        return ddp_error_help(
            ddp_error_make(DDP_ERR_INPUT, "%s: more than %d files", shards->config.prefix, DDP_SHARDS_MAX),
            "more ids a file");
    DDP_TRY(make_path(shards->config.prefix, shards->files, &path));
    ddp_error *error = ddp_draft_open(path, &shards->draft);
    if (error == NULL) /* room for it: the number is known at the end */
        error = ddp_file_write(shards->draft.fd, path, header, sizeof header);
    free(path);
    return error;
}

static ddp_error *flush(ddp_shards *shards)
{
    size_t bytes = (size_t)(shards->buffered * shards->config.width);
    shards->buffered = 0;
    return ddp_file_write(shards->draft.fd, shards->draft.path, shards->buffer, bytes);
}

static ddp_error *end_file(ddp_shards *shards)
{
    unsigned char header[DDP_TOKEN_HEADER_BYTES];
    DDP_TRY(flush(shards));
    ddp_token_file_make_header(shards->config.width, shards->in_file, header);
    if (lseek(shards->draft.fd, 0, SEEK_SET) != 0)
        return ddp_error_make(DDP_ERR_IO, "%s: its beginning cannot be written again", shards->draft.path);
    DDP_TRY(ddp_file_write(shards->draft.fd, shards->draft.path, header, sizeof header));
    DDP_TRY(ddp_draft_commit(&shards->draft));
    shards->files++;
    shards->in_file = 0;
    return NULL;
}

ddp_error *ddp_shards_add(ddp_shards *shards, const int32_t *ids, int64_t count)
{
    int width = shards->config.width;
    while (count > 0) {
        if (shards->draft.fd < 0)
            DDP_TRY(begin_file(shards));
        int64_t part = shards->config.shard_ids - shards->in_file;
        part = part < count ? part : count;
        part = part < BUFFER_IDS - shards->buffered ? part : BUFFER_IDS - shards->buffered;
        ddp_token_file_pack(width, ids, part, shards->buffer + shards->buffered * width);
        shards->buffered += part;
        shards->in_file += part;
        shards->ids += part;
        ids += part;
        count -= part;
        if (shards->in_file == shards->config.shard_ids)
            DDP_TRY(end_file(shards));
        else if (shards->buffered == BUFFER_IDS)
            DDP_TRY(flush(shards));
    }
    return NULL;
}

ddp_error *ddp_shards_finish(ddp_shards *shards)
{
    if (shards->draft.fd >= 0)
        DDP_TRY(end_file(shards));
    shards->finished = true;
    return NULL;
}

int64_t ddp_shards_ids(const ddp_shards *shards)
{
    return shards->ids;
}

int64_t ddp_shards_files(const ddp_shards *shards)
{
    return shards->files;
}

static void take_back(const ddp_shards *shards)
{
    for (int64_t i = 0; i < shards->files; i++) {
        char *path;
        ddp_error *error = make_path(shards->config.prefix, i, &path);
        if (error == NULL) {
            unlink(path);
            free(path);
        }
        ddp_error_free(error);
    }
}

void ddp_shards_close(ddp_shards *shards)
{
    if (shards == NULL)
        return;
    ddp_draft_discard(&shards->draft);
    if (!shards->finished)
        take_back(shards);
    free(shards);
}
