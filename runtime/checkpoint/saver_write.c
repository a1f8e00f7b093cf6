/* Writing a share, gathering checksums, committing: what the saver's thread does. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/memory.h"
#include "runtime/checkpoint/saver_parts.h"
#include "runtime/checkpoint/shelf.h"

#define POLL_S 0.002
#define HASH_LINE (DDP_HASH_DIGITS + 1) /* 16 digits and a newline in rank-K.sums */
#define OTHERS_END_S 10.0 /* a failed save waits for the other ranks to let go of its directory */

ddp_error *saver_part_path(const ddp_saver *saver, const char *name, char **path)
{
    return ddp_path_join(saver->part, name, path);
}

ddp_error *saver_rank_path(const ddp_saver *saver, int rank, const char *ending, char **path)
{
    if (asprintf(path, "%s/rank-%d%s", saver->part, rank, ending) < 0)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    return NULL;
}

int64_t saver_bytes_of(const ddp_checkpoint_part *part)
{
    return part->param < 0 ? 0 : part->end - part->begin; /* headers are not copied */
}

void saver_close_files(ddp_saver *saver)
{
    for (int i = 0; i < DDP_CHECKPOINT_FILES; i++) {
        if (saver->files[i] >= 0)
            close(saver->files[i]);
        saver->files[i] = -1;
    }
}

static ddp_error *write_at(int fd, const char *name, const char *from, int64_t bytes, int64_t offset)
{
    while (bytes > 0) {
        ssize_t done = pwrite(fd, from, (size_t)bytes, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return ddp_error_errno(errno, "writing %s at byte %lld", name, (long long)offset);
        from += done;
        offset += done;
        bytes -= done;
    }
    return NULL;
}

static ddp_error *write_share(ddp_saver *saver)
{
    const char *from = saver->snapshot;
    for (int i = saver->first; i < saver->end; i++) {
        const ddp_checkpoint_part *part = &saver->layout.parts[i];
        const char *name = saver->layout.files[part->file].name;
        const char *bytes = part->param < 0 ? ddp_text_get(&saver->layout.files[part->file].header) : from;
        int64_t count = part->end - part->begin;
        if (atomic_load(&saver->given_up))
            return ddp_error_make(DDP_ERR_IO, "the job ended before %s was saved", saver->saved.name);
        saver->hashes[i] = ddp_hash(bytes, (size_t)count);
        DDP_TRY(write_at(saver->files[part->file], name, bytes, count, part->begin));
        from += saver_bytes_of(part);
    }
    for (int i = 0; i < saver->layout.file_count; i++)
        if (fsync(saver->files[i]) != 0)
            return ddp_error_errno(errno, "writing %s to disk", saver->layout.files[i].name);
    saver_close_files(saver);
    return NULL;
}

static ddp_error *write_sums(const ddp_saver *saver)
{
    char *path, digits[DDP_HASH_DIGITS + 1];
    ddp_text text = {0};
    DDP_TRY(saver_rank_path(saver, saver->config.comm->rank, ".sums", &path));
    for (int i = saver->first; i < saver->end; i++)
        ddp_text_add(&text, "%s\n", ddp_hash_write(saver->hashes[i], digits));
    ddp_error *error = text.failed ? ddp_error_make(DDP_ERR_MEMORY, "out of memory")
                                   : ddp_file_save(path, ddp_text_get(&text), text.length);
    ddp_text_free(&text);
    free(path);
    return error;
}

/* Tells rank 0 without needing any room: a file that is there already changes its name. */
static void tell_failure(const ddp_saver *saver)
{
    char *from = NULL, *to = NULL;
    ddp_error *error = saver_rank_path(saver, saver->config.comm->rank, ".writing", &from);
    if (error == NULL)
        error = saver_rank_path(saver, saver->config.comm->rank, ".failed", &to);
    if (error == NULL && rename(from, to) != 0)
        error = ddp_error_errno(errno, "renaming %s", from);
    ddp_error_free(error); /* rank 0 finds out when its patience ends */
    free(from);
    free(to);
}

static bool exists(const ddp_saver *saver, int rank, const char *ending)
{
    char *path = NULL;
    ddp_error *error = saver_rank_path(saver, rank, ending, &path);
    bool found = error == NULL && access(path, F_OK) == 0;
    ddp_error_free(error);
    free(path);
    return found;
}

/* The checksums of another rank's share, once they are there. */
static ddp_error *take_sums(ddp_saver *saver, int rank)
{
    char *path, *text;
    size_t bytes;
    int first, end;
    ddp_checkpoint_layout_share(&saver->layout, rank, saver->config.comm->world, &first, &end);
    DDP_TRY(saver_rank_path(saver, rank, ".sums", &path));
    ddp_error *error = ddp_file_load(path, (size_t)(end - first) * HASH_LINE, &text, &bytes);
    free(path);
    DDP_TRY(error);
    bool good = bytes == (size_t)(end - first) * HASH_LINE;
    for (int i = first; i < end && good; i++) {
        char *digits = text + (size_t)(i - first) * HASH_LINE;
        digits[DDP_HASH_DIGITS] = '\0';
        good = ddp_hash_parse(digits, &saver->hashes[i]);
    }
    free(text);
    return good ? NULL : ddp_error_make(DDP_ERR_IO, "rank %d left checksums that cannot be read", rank);
}

static ddp_error *wait_for_ranks(ddp_saver *saver)
{
    double deadline = ddp_clock_now() + saver->config.wait_s;
    for (int rank = 1; rank < saver->config.comm->world; rank++) {
        while (!exists(saver, rank, ".sums")) {
            if (exists(saver, rank, ".failed"))
                return ddp_error_make(DDP_ERR_IO,
                                      "rank %d could not write its share; its own output says why", rank);
            if (atomic_load(&saver->given_up))
                return ddp_error_make(DDP_ERR_IO, "the job ended before %s was saved", saver->saved.name);
            if (saver->config.wait_s > 0 && ddp_clock_now() > deadline)
                return ddp_error_help(ddp_error_make(DDP_ERR_IO,
                                                     "rank %d has not written its share after %g s", rank,
                                                     saver->config.wait_s),
                                      "watchdog.save_s is how long rank 0 waits");
            ddp_clock_sleep(POLL_S);
        }
        DDP_TRY(take_sums(saver, rank));
    }
    return NULL;
}

/* Fills what checkpoint.json says about the files; parts are in the order of files and bytes. */
static void describe_files(const ddp_saver *saver, ddp_record_file *files, ddp_record_part *parts)
{
    for (int i = 0; i < saver->layout.part_count; i++) {
        const ddp_checkpoint_part *part = &saver->layout.parts[i];
        ddp_record_file *file = &files[part->file];
        if (file->part_count == 0)
            *file = (ddp_record_file){.name = (char *)saver->layout.files[part->file].name,
                                      .bytes = saver->layout.files[part->file].bytes,
                                      .parts = &parts[i]};
        file->parts[file->part_count++] = (ddp_record_part){part->begin, part->end, saver->hashes[i]};
    }
}

static ddp_error *write_record(const ddp_saver *saver)
{
    ddp_record_file files[DDP_CHECKPOINT_FILES] = {{.name = NULL}};
    ddp_record_part *parts;
    ddp_text text = {0};
    char *path = NULL;
    DDP_TRY(ddp_memory_make((size_t)saver->layout.part_count, sizeof *parts, (void **)&parts));
    describe_files(saver, files, parts);
    ddp_error *error = NULL;
    ddp_checkpoint_record record = {
        .state = saver->state,
        .job = *saver->config.job,
        .environment = *saver->config.environment,
        .files = files,
        .file_count = saver->layout.file_count,
    };
    ddp_checkpoint_record_write(&record, &text);
    DDP_GO(text.failed ? ddp_error_make(DDP_ERR_MEMORY, "out of memory") : NULL);
    DDP_GO(saver_part_path(saver, DDP_CHECKPOINT_RECORD, &path));
    error = ddp_file_save(path, ddp_text_get(&text), text.length);
out:
    free(path);
    ddp_text_free(&text);
    free(parts);
    return error;
}

static ddp_error *remove_notes(const ddp_saver *saver)
{
    static const char *const endings[] = {".writing", ".sums"};
    for (int rank = 0; rank < saver->config.comm->world; rank++)
        for (int i = 0; i < 2; i++) {
            char *path;
            DDP_TRY(saver_rank_path(saver, rank, endings[i], &path));
            unlink(path);
            free(path);
        }
    return NULL;
}

static ddp_error *commit(ddp_saver *saver)
{
    const ddp_saver_config *config = &saver->config;
    DDP_TRY(wait_for_ranks(saver));
    DDP_TRY(remove_notes(saver));
    DDP_TRY(write_record(saver)); /* last: it is what makes the checkpoint a whole one */
    DDP_TRY(ddp_directory_sync(saver->part));
    DDP_TRY(ddp_shelf_commit(config->directory, saver->saved.name));
    ddp_error *error = ddp_shelf_trim(config->directory, config->keep, config->keep_best);
    if (error != NULL) { /* the save itself is done */
        ddp_error_print(ddp_error_while(error, "deleting old checkpoints"), "warning", stderr);
        ddp_error_free(error);
    }
    return NULL;
}

/* The directory of a failed save goes once no other rank writes into it any more. */
static ddp_error *remove_part(const ddp_saver *saver)
{
    double deadline = ddp_clock_now() + OTHERS_END_S;
    for (int rank = 1; rank < saver->config.comm->world; rank++)
        while (!exists(saver, rank, ".sums") && !exists(saver, rank, ".failed") &&
               !atomic_load(&saver->given_up) && ddp_clock_now() < deadline)
            ddp_clock_sleep(POLL_S);
    return ddp_tree_remove(saver->part);
}

void *saver_write(void *argument)
{
    ddp_saver *saver = argument;
    bool first = saver->config.comm->rank == 0;
    if (saver->slow_s > 0)
        ddp_clock_sleep(saver->slow_s / 2); /* DDP_FAULT slow_save: before and behind the bytes */
    ddp_error *error = write_share(saver);
    if (saver->slow_s > 0)
        ddp_clock_sleep(saver->slow_s / 2);
    if (error == NULL && !first)
        error = write_sums(saver);
    if (error != NULL && !first)
        tell_failure(saver);
    if (error == NULL && first)
        error = commit(saver);
    saver_close_files(saver);
    if (error != NULL && first)
        error = ddp_error_join(error, remove_part(saver));
    saver->error = error;
    saver->ended = ddp_clock_now();
    atomic_store(&saver->over, true);
    return NULL;
}
