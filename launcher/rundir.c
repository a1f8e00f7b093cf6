/* Making, locking and filling a run directory. */
#include "launcher/rundir.h"

#include <ddp/log.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/events.h"
#include "core/files.h"
#include "core/flight.h"
#include "core/memory.h"
#include "core/text.h"
#include "runtime/checkpoint/resume.h"

#define JOB_BYTES (16u << 20)

/* The same failure, as a wrong request that points at `output`. */
static ddp_error *blame_output(const ddp_job *job, ddp_error *error)
{
    if (error == NULL)
        return NULL;
    ddp_error *made =
        ddp_error_at(DDP_ERR_INPUT, ddp_job_where(job, &job->output), "output: %s", ddp_error_message(error));
    ddp_error_free(error);
    return ddp_error_help(made, "output=DIRECTORY names another run directory");
}

static ddp_error *refuse_second(const ddp_job *job, int fd)
{
    char pid[32] = "";
    ssize_t got = pread(fd, pid, sizeof pid - 1, 0);
    pid[got > 0 ? strcspn(pid, "\n") : 0] = '\0';
    return ddp_error_help(ddp_error_at(DDP_ERR_INPUT, ddp_job_where(job, &job->output),
                                       "output: another job, pid %s, is running in %s",
                                       *pid ? pid : "unknown", job->output),
                          "wait for it, or choose another directory with output=DIRECTORY");
}

/* flock: it goes away with the process, however that ends, so a dead job never blocks the next one. */
static ddp_error *lock_directory(const ddp_job *job, int *lock)
{
    char *path;
    DDP_TRY(ddp_path_join(job->output, "lock", &path));
    ddp_error *error = NULL;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        error = blame_output(job, ddp_error_errno(errno, "opening %s", path));
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        error = refuse_second(job, fd);
        close(fd);
    } else {
        char pid[32];
        int length = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
        if (ftruncate(fd, 0) != 0 || pwrite(fd, pid, (size_t)length, 0) != length)
            ddp_log(DDP_WARN, "launch",
                    "%s cannot be written; a second job here would not be told this one's pid", path);
        *lock = fd;
    }
    free(path);
    return error;
}

/* The nearest existing part of the path must be a directory that we may write in. */
static ddp_error *check_reachable(const ddp_job *job)
{
    char *path;
    struct stat info;
    DDP_TRY(ddp_memory_text(job->output, &path));
    int found;
    while ((found = stat(path, &info)) != 0 && errno == ENOENT && strchr(path, '/') != NULL) {
        char *slash = strrchr(path, '/');
        slash[slash == path] = '\0'; /* "/a" becomes "/" */
        if (slash == path && stat(path, &info) != 0)
            break;
    }
    const char *nearest = found == 0 || errno != ENOENT ? path : ".";
    ddp_error *error = NULL;
    if (found != 0 && errno != ENOENT)
        error = ddp_error_errno(errno, "making directory %s", job->output);
    else if (found == 0 && !S_ISDIR(info.st_mode))
        error = ddp_error_make(DDP_ERR_IO, "%s exists and is no directory", path);
    else if (access(nearest, W_OK | X_OK) != 0)
        error = ddp_error_errno(errno, "writing in %s", nearest);
    free(path);
    return blame_output(job, error);
}

static ddp_error *check_lock(const ddp_job *job)
{
    char *path;
    DDP_TRY(ddp_path_join(job->output, "lock", &path));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ddp_error *error = NULL;
    if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        error = refuse_second(job, fd);
    if (fd >= 0)
        close(fd);
    free(path);
    return error;
}

static ddp_error *save_text(const ddp_job *job, const char *name, const char *text, size_t bytes)
{
    char *path;
    DDP_TRY(ddp_path_join(job->output, name, &path));
    ddp_error *error = ddp_file_save(path, text, bytes);
    free(path);
    return error;
}

static ddp_error *save_resolved(const ddp_job *job)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    ddp_job_write(job, false, out);
    fclose(out);
    ddp_error *error = text != NULL ? save_text(job, "resolved.yaml", text, bytes)
                                    : ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    free(text);
    return error;
}

/* What one run writes. `lock` stays. */
static const char *const written[] = {
    "job.yaml", "resolved.yaml",       "plan.json",     DDP_EVENTS_NAME,
    "logs",     "weights.safetensors", DDP_CHECKPOINTS, DDP_FLIGHT_DIRECTORY};

static bool exists(const char *directory, const char *name)
{
    struct stat info;
    char *path = NULL;
    ddp_error *error = ddp_path_join(directory, name, &path);
    bool found = error == NULL && lstat(path, &info) == 0;
    ddp_error_free(error);
    free(path);
    return found;
}

/* A directory with files in it, none of them the mark of a run: not ours to write into. */
static ddp_error *refuse_foreign(const ddp_job *job)
{
    DIR *directory = opendir(job->output);
    struct dirent *entry;
    bool filled = false;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        filled = filled || (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0);
    if (directory != NULL)
        closedir(directory);
    if (!filled || exists(job->output, "lock"))
        return NULL;
    return ddp_error_help(ddp_error_at(DDP_ERR_INPUT, ddp_job_where(job, &job->output),
                                       "output: %s holds other files and no run of ddprun", job->output),
                          "a run wants a directory of its own: output=DIRECTORY");
}

static ddp_error *move_into(const char *from, const char *to, const char *name)
{
    char *old = NULL, *new = NULL;
    ddp_error *error = NULL;
    DDP_GO(ddp_path_join(from, name, &old));
    DDP_GO(ddp_path_join(to, name, &new));
    if (rename(old, new) != 0 && errno != ENOENT)
        error = ddp_error_errno(errno, "moving %s to %s", old, new);
out:
    free(old);
    free(new);
    return error;
}

/* The files of an earlier run go to earlier/N, so that nothing of it is lost or taken for this one's. */
static ddp_error *set_earlier_aside(const ddp_job *job)
{
    char *aside = NULL;
    ddp_error *error = NULL;
    if (!exists(job->output, DDP_EVENTS_NAME) && !exists(job->output, "resolved.yaml") &&
        !exists(job->output, DDP_CHECKPOINTS))
        return NULL;
    for (int number = 1; aside == NULL; number++) {
        char name[32];
        snprintf(name, sizeof name, "earlier/%d", number);
        if (!exists(job->output, name))
            DDP_TRY(ddp_path_join(job->output, name, &aside));
    }
    DDP_GO(ddp_directory_make(aside));
    for (size_t i = 0; i < sizeof written / sizeof written[0]; i++)
        DDP_GO(move_into(job->output, aside, written[i]));
    ddp_log(DDP_INFO, "launch", "%s held an earlier run: moved to %s", job->output, aside);
out:
    free(aside);
    return error;
}

/* The recorders' pages of this run: those of an earlier one that it goes on from would be taken for its own.
 */
static ddp_error *empty_flight(const ddp_job *job)
{
    char *path;
    DDP_TRY(ddp_path_join(job->output, DDP_FLIGHT_DIRECTORY, &path));
    ddp_error *error = ddp_tree_remove(path);
    if (error == NULL)
        error = ddp_directory_make(path);
    free(path);
    return error;
}

ddp_error *ddp_rundir_rewrite(const ddp_job *job, const char *plan_json)
{
    DDP_TRY(save_resolved(job));
    return save_text(job, "plan.json", plan_json, strlen(plan_json));
}

static ddp_error *fill_directory(const ddp_job *job, const char *given, size_t bytes, const char *plan_json)
{
    char *logs;
    DDP_TRY(ddp_path_join(job->output, "logs", &logs));
    ddp_error *error = ddp_directory_make(logs);
    free(logs);
    if (error == NULL)
        error = empty_flight(job);
    if (error == NULL)
        error = save_text(job, "job.yaml", given, bytes);
    return error != NULL ? error : ddp_rundir_rewrite(job, plan_json);
}

ddp_error *ddp_rundir_check(const ddp_job *job)
{
    DDP_TRY(check_reachable(job));
    DDP_TRY(refuse_foreign(job));
    return check_lock(job);
}

ddp_error *ddp_rundir_make(const ddp_job *job, bool goes_on, const char *plan_json, ddp_rundir *rundir)
{
    char *given = NULL;
    size_t bytes;
    ddp_rundir made = {.path = job->output, .lock = -1};
    /* Read first: it may be the job.yaml of this very directory. */
    DDP_TRY(ddp_file_load(job->path, JOB_BYTES, &given, &bytes));
    ddp_error *error = refuse_foreign(job);
    if (error == NULL)
        error = blame_output(job, ddp_directory_make(job->output));
    if (error == NULL)
        error = lock_directory(job, &made.lock);
    if (error == NULL && !goes_on)
        error = blame_output(job, set_earlier_aside(job));
    if (error == NULL)
        error = fill_directory(job, given, bytes, plan_json);
    free(given);
    if (error != NULL) {
        ddp_rundir_close(&made);
        return error;
    }
    *rundir = made;
    return NULL;
}

void ddp_rundir_close(ddp_rundir *rundir)
{
    if (rundir->lock >= 0)
        close(rundir->lock);
    rundir->lock = -1;
}
