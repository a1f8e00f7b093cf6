/* Listing, committing, deleting checkpoints. */
#include "runtime/checkpoint/shelf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files.h"
#include "core/memory.h"
#include "core/text.h"

#define PREFIX "step-"
#define PART ".part"
#define OLD ".old"
#define DAMAGED ".damaged"
#define LATEST "latest"

const char *ddp_shelf_name(int64_t step, char *name)
{
    snprintf(name, 32, PREFIX "%08lld", (long long)step);
    return name;
}

static bool is_leftover(const char *name)
{
    return name[0] == '.' && ddp_text_starts(name + 1, PREFIX) &&
           (ddp_text_ends(name, PART) || ddp_text_ends(name, OLD));
}

/* The files that the record names are there, whole. */
static ddp_error *check_files(const char *path, const ddp_checkpoint_record *record)
{
    ddp_error *error = NULL;
    for (int i = 0; i < record->file_count && error == NULL; i++) {
        char *file;
        struct stat info;
        DDP_TRY(ddp_path_join(path, record->files[i].name, &file));
        if (stat(file, &info) != 0)
            error = ddp_error_make(DDP_ERR_INPUT, "%s: %s", file, strerror(errno));
        else if (info.st_size != record->files[i].bytes)
            error = ddp_error_make(DDP_ERR_INPUT, "%s has %lld bytes; it was saved with %lld", file,
                                   (long long)info.st_size, (long long)record->files[i].bytes);
        free(file);
    }
    return error;
}

/* `path` becomes an entry, or one stranger more. */
static ddp_error *add_entry(ddp_shelf *shelf, size_t *capacity, const char *path)
{
    ddp_checkpoint_record record = {.files = NULL};
    ddp_shelf_entry entry = {.name = NULL};
    void *entries = shelf->at;
    ddp_error *error = NULL, *stranger;
    DDP_GO(ddp_memory_text(path, &entry.path));
    stranger = ddp_checkpoint_record_load(entry.path, &record);
    if (stranger == NULL)
        stranger = check_files(entry.path, &record);
    if (stranger != NULL) {
        shelf->strangers = ddp_error_join(shelf->strangers, stranger);
        goto out;
    }
    DDP_GO(ddp_memory_text(ddp_path_name(path), &entry.name));
    error = ddp_memory_grow(&entries, capacity, (size_t)shelf->count + 1, sizeof entry);
    shelf->at = entries;
    if (error != NULL)
        goto out;
    entry.state = record.state;
    entry.bytes = record.bytes;
    shelf->at[shelf->count++] = entry;
    entry = (ddp_shelf_entry){.name = NULL};
out:
    free(entry.name);
    free(entry.path);
    ddp_checkpoint_record_free(&record);
    return error;
}

static int compare_entries(const void *a, const void *b)
{
    int64_t one = ((const ddp_shelf_entry *)a)->state.sequence,
            two = ((const ddp_shelf_entry *)b)->state.sequence;
    return one < two ? 1 : one > two ? -1 : 0;
}

ddp_error *ddp_shelf_list(const char *directory, ddp_shelf *shelf)
{
    ddp_shelf made = {.at = NULL};
    ddp_error *error = NULL;
    size_t capacity = 0;
    DIR *opened = opendir(directory);
    if (opened == NULL && errno != ENOENT && errno != ENOTDIR)
        return ddp_error_errno(errno, "reading directory %s", directory);
    for (struct dirent *found; opened != NULL && error == NULL && (found = readdir(opened)) != NULL;) {
        char *path = NULL;
        if (!ddp_text_starts(found->d_name, PREFIX) || ddp_text_ends(found->d_name, DAMAGED))
            continue;
        error = ddp_path_join(directory, found->d_name, &path);
        if (error == NULL)
            error = add_entry(&made, &capacity, path);
        free(path);
    }
    if (opened != NULL)
        closedir(opened);
    if (error != NULL) {
        ddp_shelf_free(&made);
        return error;
    }
    if (made.count > 0)
        qsort(made.at, (size_t)made.count, sizeof *made.at, compare_entries);
    *shelf = made;
    return NULL;
}

ddp_error *ddp_shelf_open_one(const char *path, ddp_shelf *shelf)
{
    ddp_shelf made = {.at = NULL};
    size_t capacity = 0;
    ddp_error *error = add_entry(&made, &capacity, path);
    if (error == NULL)
        *shelf = made;
    else
        ddp_shelf_free(&made);
    return error;
}

void ddp_shelf_free(ddp_shelf *shelf)
{
    for (int i = 0; i < shelf->count; i++) {
        free(shelf->at[i].name);
        free(shelf->at[i].path);
    }
    free(shelf->at);
    ddp_error_free(shelf->strangers);
    *shelf = (ddp_shelf){.at = NULL};
}

ddp_error *ddp_shelf_clean(const char *directory)
{
    ddp_error *error = NULL;
    DIR *opened = opendir(directory);
    struct dirent *found;
    while (opened != NULL && error == NULL && (found = readdir(opened)) != NULL) {
        char *path = NULL;
        if (!is_leftover(found->d_name))
            continue;
        error = ddp_path_join(directory, found->d_name, &path);
        if (error == NULL)
            error = ddp_tree_remove(path);
        free(path);
    }
    if (opened != NULL)
        closedir(opened);
    return error;
}

/* `latest` is replaced in one step, too. */
static ddp_error *point_latest(const char *directory, const char *name)
{
    char *link = NULL, *draft = NULL;
    ddp_error *error = NULL;
    DDP_GO(ddp_path_join(directory, LATEST, &link));
    DDP_GO(ddp_path_join(directory, "." LATEST PART, &draft));
    unlink(draft);
    if (symlink(name, draft) != 0)
        error = ddp_error_errno(errno, "making the link %s", draft);
    else if (rename(draft, link) != 0)
        error = ddp_error_errno(errno, "renaming %s to %s", draft, link);
out:
    free(link);
    free(draft);
    return error;
}

/* Out of sight in one step, then bit by bit. */
static ddp_error *delete_checkpoint(const char *directory, const char *name)
{
    char *path = NULL, *old = NULL, hidden[512];
    ddp_error *error = NULL;
    snprintf(hidden, sizeof hidden, ".%s" OLD, name);
    DDP_GO(ddp_path_join(directory, name, &path));
    DDP_GO(ddp_path_join(directory, hidden, &old));
    DDP_GO(ddp_tree_remove(old));
    if (rename(path, old) != 0)
        error = ddp_error_errno(errno, "renaming %s to %s", path, old);
    else
        error = ddp_tree_remove(old);
out:
    free(path);
    free(old);
    return error;
}

/* What has the name already must be a checkpoint, complete or not: nothing foreign is replaced. */
static ddp_error *check_replaceable(const char *path)
{
    char *record;
    DDP_TRY(ddp_path_join(path, DDP_CHECKPOINT_RECORD, &record));
    bool ours = access(record, F_OK) == 0;
    free(record);
    if (ours)
        return NULL;
    return ddp_error_help(ddp_error_make(DDP_ERR_IO, "%s is in the way: it is no checkpoint of ddprun", path),
                          "move it away; it is left as it is");
}

ddp_error *ddp_shelf_commit(const char *directory, const char *name)
{
    char *part = NULL, *path = NULL, hidden[512];
    ddp_error *error = NULL;
    snprintf(hidden, sizeof hidden, ".%s" PART, name);
    DDP_GO(ddp_path_join(directory, hidden, &part));
    DDP_GO(ddp_path_join(directory, name, &path));
    if (rename(part, path) != 0) {
        if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) {
            error = ddp_error_errno(errno, "renaming %s to %s", part, path);
            goto out;
        }
        DDP_GO(check_replaceable(path));
        /* This step was saved before, by a run that had gone further: the two change places. */
        if (renameat2(AT_FDCWD, part, AT_FDCWD, path, RENAME_EXCHANGE) != 0) {
            DDP_GO(delete_checkpoint(directory, name)); /* a file system without exchange */
            if (rename(part, path) != 0)
                DDP_GO(ddp_error_errno(errno, "renaming %s to %s", part, path));
        }
        DDP_GO(ddp_tree_remove(part));
    }
    DDP_GO(ddp_directory_sync(directory));
    DDP_GO(point_latest(directory, name));
    error = ddp_directory_sync(directory);
out:
    free(part);
    free(path);
    return error;
}

static int find_best(const ddp_shelf *shelf)
{
    int best = -1;
    for (int i = 0; i < shelf->count; i++) /* of equals, the newest */
        if (shelf->at[i].state.has_eval &&
            (best < 0 || shelf->at[i].state.eval_loss < shelf->at[best].state.eval_loss))
            best = i;
    return best;
}

ddp_error *ddp_shelf_trim(const char *directory, int64_t keep, bool keep_best)
{
    ddp_shelf shelf;
    ddp_error *error = NULL;
    DDP_TRY(ddp_shelf_list(directory, &shelf));
    int best = keep_best ? find_best(&shelf) : -1;
    for (int i = keep > 1 ? (int)(keep < shelf.count ? keep : shelf.count) : 1; i < shelf.count; i++)
        if (i != best)
            error = ddp_error_join(error, delete_checkpoint(directory, shelf.at[i].name));
    ddp_shelf_free(&shelf);
    return error;
}

ddp_error *ddp_shelf_retire(const char *path, char **renamed)
{
    char *to = NULL;
    for (int number = 1; to == NULL; number++) {
        if (asprintf(&to, number == 1 ? "%s" DAMAGED : "%s.%d" DAMAGED, path, number) < 0)
            return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
        if (access(to, F_OK) == 0) {
            free(to);
            to = NULL;
        }
    }
    if (rename(path, to) != 0) {
        ddp_error *error = ddp_error_errno(errno, "renaming %s to %s", path, to);
        free(to);
        return error;
    }
    *renamed = to;
    return NULL;
}
