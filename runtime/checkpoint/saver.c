/* Saving: begin, write, commit. */
#include "runtime/checkpoint/saver.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/fault.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/memory.h"
#include "runtime/agree.h"
#include "runtime/checkpoint/shelf.h"

#define ARENAS (1 + DDP_MAX_SLOTS)
#define POLL_S 0.002
#define OTHERS_END_S 10.0 /* a failed save waits for the other ranks to let go of its directory */
#define HASH_LINE (DDP_HASH_DIGITS + 1) /* 16 digits and a newline in rank-K.sums */

struct ddp_saver {
    ddp_saver_config config;
    ddp_checkpoint_layout layout;
    int first, end;   /* this rank's parts */
    void *snapshot;   /* host memory: their bytes, headers left out */
    double *sums;     /* device memory: of squares, an arena each */
    uint64_t *hashes; /* of all parts; each rank fills its own, rank 0 the rest from files */
    int64_t sequence; /* of the last commit */

    ddp_checkpoint_state state; /* of the save under way, as is all below */
    ddp_saved saved;
    char *part; /* directory .NAME.part; NULL = no save under way */
    int files[DDP_CHECKPOINT_FILES];
    double begun, ended, slow_s;
    ddp_error *error; /* the thread's */
    pthread_t thread;
    bool running;
    atomic_bool over, given_up;
};

static ddp_error *part_path(const ddp_saver *saver, const char *name, char **path)
{
    return ddp_path_join(saver->part, name, path);
}

static ddp_error *rank_path(const ddp_saver *saver, int rank, const char *ending, char **path)
{
    if (asprintf(path, "%s/rank-%d%s", saver->part, rank, ending) < 0)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    return NULL;
}

/* Rank 0: the directory, and its files at full length. */
static ddp_error *make_files(const ddp_saver *saver)
{
    DDP_TRY(ddp_directory_make(saver->config.directory));
    DDP_TRY(ddp_tree_remove(saver->part));
    DDP_TRY(ddp_directory_make(saver->part));
    for (int i = 0; i < saver->layout.file_count; i++) {
        char *path;
        ddp_error *error = NULL;
        DDP_TRY(part_path(saver, saver->layout.files[i].name, &path));
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 || ftruncate(fd, saver->layout.files[i].bytes) != 0)
            error = ddp_error_errno(errno, "making %s", path);
        if (fd >= 0)
            close(fd);
        free(path);
        DDP_TRY(error);
    }
    return NULL;
}

static void close_files(ddp_saver *saver)
{
    for (int i = 0; i < DDP_CHECKPOINT_FILES; i++) {
        if (saver->files[i] >= 0)
            close(saver->files[i]);
        saver->files[i] = -1;
    }
}

static ddp_error *open_files(ddp_saver *saver)
{
    for (int i = 0; i < saver->layout.file_count; i++) {
        char *path;
        DDP_TRY(part_path(saver, saver->layout.files[i].name, &path));
        saver->files[i] = open(path, O_WRONLY | O_CLOEXEC);
        ddp_error *error = saver->files[i] < 0 ? ddp_error_errno(errno, "opening %s", path) : NULL;
        free(path);
        DDP_TRY(error);
    }
    return NULL;
}

/* Replicas that drifted apart would give a checkpoint that is no one's state. */
static ddp_error *agree_on_state(ddp_saver *saver, ddp_stream *compute, ddp_stream *comm_stream)
{
    static const char *const names[ARENAS] = {"the weights", "the optimizer's state",
                                              "the optimizer's second state"};
    double sums[ARENAS];
    ddp_claim claims[ARENAS + 1];
    int count = 1 + saver->config.optim->slots;
    ddp_stream_zero(compute, saver->sums, sizeof sums);
    for (int i = 0; i < count; i++)
        saver->config.device->kernels->sum_squares(compute, &saver->sums[i], saver->config.arenas[i],
                                                   saver->config.params->arena_count);
    ddp_stream_copy(compute, sums, saver->sums, sizeof sums);
    DDP_TRY(ddp_stream_wait(compute));
    for (int i = 0; i < count; i++) {
        claims[i].what = names[i];
        memcpy(&claims[i].value, &sums[i], sizeof claims[i].value);
    }
    claims[count] = (ddp_claim){"the step to be saved", (uint64_t)saver->state.step};
    return ddp_agree(saver->config.comm, comm_stream, claims, count + 1);
}

static int64_t bytes_of(const ddp_checkpoint_part *part)
{
    return part->param < 0 ? 0 : part->end - part->begin; /* headers are not copied */
}

static ddp_error *take_snapshot(ddp_saver *saver, ddp_stream *compute)
{
    char *to = saver->snapshot;
    for (int i = saver->first; i < saver->end; i++) {
        const ddp_checkpoint_part *part = &saver->layout.parts[i];
        if (part->param < 0)
            continue;
        ddp_stream_copy(compute, to, saver->config.arenas[part->arena] + part->element,
                        (size_t)bytes_of(part));
        to += bytes_of(part);
    }
    return ddp_stream_wait(compute);
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
        from += bytes_of(part);
    }
    for (int i = 0; i < saver->layout.file_count; i++)
        if (fsync(saver->files[i]) != 0)
            return ddp_error_errno(errno, "writing %s to disk", saver->layout.files[i].name);
    close_files(saver);
    return NULL;
}

static ddp_error *write_sums(const ddp_saver *saver)
{
    char *path, digits[DDP_HASH_DIGITS + 1];
    ddp_text text = {0};
    DDP_TRY(rank_path(saver, saver->config.comm->rank, ".sums", &path));
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
    ddp_error *error = rank_path(saver, saver->config.comm->rank, ".writing", &from);
    if (error == NULL)
        error = rank_path(saver, saver->config.comm->rank, ".failed", &to);
    if (error == NULL && rename(from, to) != 0)
        error = ddp_error_errno(errno, "renaming %s", from);
    ddp_error_free(error); /* rank 0 finds out when its patience ends */
    free(from);
    free(to);
}

static ddp_error *mark_writing(const ddp_saver *saver)
{
    char *path;
    DDP_TRY(rank_path(saver, saver->config.comm->rank, ".writing", &path));
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    ddp_error *error = fd < 0 ? ddp_error_errno(errno, "making %s", path) : NULL;
    if (fd >= 0)
        close(fd);
    free(path);
    return error;
}

static bool exists(const ddp_saver *saver, int rank, const char *ending)
{
    char *path = NULL;
    ddp_error *error = rank_path(saver, rank, ending, &path);
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
    DDP_TRY(rank_path(saver, rank, ".sums", &path));
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
    DDP_GO(part_path(saver, DDP_CHECKPOINT_RECORD, &path));
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
            DDP_TRY(rank_path(saver, rank, endings[i], &path));
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

static void *work(void *argument)
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
    close_files(saver);
    if (error != NULL && first)
        error = ddp_error_join(error, remove_part(saver));
    saver->error = error;
    saver->ended = ddp_clock_now();
    atomic_store(&saver->over, true);
    return NULL;
}

/* Signals are the main thread's business. */
static ddp_error *start(ddp_saver *saver)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&saver->thread, NULL, work, saver);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0)
        return ddp_error_errno(failed, "starting the thread that saves");
    pthread_setname_np(saver->thread, "ddp-save");
    saver->running = true;
    return NULL;
}

static ddp_error *alloc(ddp_saver *saver)
{
    const ddp_saver_config *config = &saver->config;
    int64_t bytes = 0;
    DDP_TRY(ddp_checkpoint_layout_make(config->params, config->optim, &saver->layout));
    ddp_checkpoint_layout_share(&saver->layout, config->comm->rank, config->comm->world, &saver->first,
                                &saver->end);
    for (int i = saver->first; i < saver->end; i++)
        bytes += bytes_of(&saver->layout.parts[i]);
    DDP_TRY(
        ddp_memory_make((size_t)saver->layout.part_count, sizeof *saver->hashes, (void **)&saver->hashes));
    DDP_TRY(ddp_device_alloc(config->device, ARENAS * sizeof *saver->sums, (void **)&saver->sums));
    return ddp_device_alloc_host(config->device, (size_t)(bytes > 0 ? bytes : 1), &saver->snapshot);
}

static ddp_error *prepare_directory(ddp_saver *saver)
{
    ddp_shelf shelf;
    if (saver->config.comm->rank != 0)
        return NULL;
    DDP_TRY(ddp_shelf_clean(saver->config.directory));
    DDP_TRY(ddp_shelf_list(saver->config.directory, &shelf));
    saver->sequence = shelf.count > 0 ? shelf.at[0].state.sequence : 0;
    ddp_shelf_free(&shelf);
    return NULL;
}

ddp_error *ddp_saver_open(const ddp_saver_config *config, ddp_saver **saver)
{
    ddp_saver *made;
    DDP_TRY(DDP_NEW(&made));
    made->config = *config;
    for (int i = 0; i < DDP_CHECKPOINT_FILES; i++)
        made->files[i] = -1;
    ddp_error *error = alloc(made);
    if (error == NULL)
        error = prepare_directory(made);
    if (error != NULL) {
        ddp_saver_close(made);
        return error;
    }
    *saver = made;
    return NULL;
}

/* A save that cannot even begin is over at once, with its error. */
static void end_early(ddp_saver *saver, ddp_error *error)
{
    close_files(saver);
    if (saver->config.comm->rank == 0)
        error = ddp_error_join(error, ddp_tree_remove(saver->part));
    saver->error = error;
    saver->ended = ddp_clock_now();
    atomic_store(&saver->over, true);
}

static ddp_error *name_save(ddp_saver *saver, const ddp_checkpoint_state *state)
{
    saver->begun = ddp_clock_now();
    saver->slow_s = ddp_fault_slow_save_s();
    saver->state = *state;
    saver->state.sequence = saver->sequence + 1;
    saver->state.world = saver->config.comm->world;
    saver->state.time = ddp_clock_unix();
    saver->saved = (ddp_saved){.step = state->step, .bytes = saver->layout.bytes};
    ddp_shelf_name(state->step, saver->saved.name);
    atomic_store(&saver->over, false);
    if (asprintf(&saver->part, "%s/.%s.part", saver->config.directory, saver->saved.name) < 0) {
        saver->part = NULL;
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    }
    return NULL;
}

/* Every rank's files, once rank 0 has made them (agreeing on the state comes between). *failure is this
 * rank's; what is returned concerns all. */
static ddp_error *open_together(ddp_saver *saver, ddp_stream *compute, ddp_stream *comm_stream,
                                ddp_error **failure)
{
    ddp_comm *comm = saver->config.comm;
    bool all;
    *failure = comm->rank == 0 ? make_files(saver) : NULL;
    DDP_TRY(agree_on_state(saver, compute, comm_stream));
    if (comm->rank != 0)
        *failure = mark_writing(saver);
    if (*failure == NULL)
        *failure = open_files(saver);
    DDP_TRY(ddp_agree_all(comm, comm_stream, *failure == NULL, &all));
    if (*failure == NULL && !all)
        *failure =
            ddp_error_make(DDP_ERR_IO, "another rank could not open the files; its own output says why");
    return NULL;
}

ddp_error *ddp_saver_begin(ddp_saver *saver, ddp_stream *compute, ddp_stream *comm_stream,
                           const ddp_checkpoint_state *state)
{
    ddp_error *failure = NULL;
    ddp_assert(saver->part == NULL);
    DDP_TRY(name_save(saver, state));
    ddp_error *error = open_together(saver, compute, comm_stream, &failure);
    if (error == NULL && failure == NULL)
        error = take_snapshot(saver, compute);
    if (error != NULL) {
        ddp_error_free(failure);
        return error;
    }
    if (failure == NULL)
        failure = start(saver);
    if (failure != NULL)
        end_early(saver, failure);
    saver->saved.blocked_s = ddp_clock_now() - saver->begun;
    return NULL;
}

bool ddp_saver_busy(const ddp_saver *saver)
{
    return saver->part != NULL;
}

/* A rank that waits for its thread must still notice that another one is gone. */
static ddp_error *wait_until_over(ddp_saver *saver)
{
    ddp_error *error = NULL;
    while (!atomic_load(&saver->over) && error == NULL) {
        ddp_clock_sleep(POLL_S);
        error = ddp_comm_health(saver->config.comm);
    }
    atomic_store(&saver->given_up, error != NULL);
    return error;
}

ddp_error *ddp_saver_end(ddp_saver *saver, bool wait, bool *ended, ddp_saved *saved)
{
    double waited = ddp_clock_now();
    *ended = false;
    if (saver->part != NULL && wait)
        DDP_TRY_AS(wait_until_over(saver), "saving checkpoint %s", saver->saved.name);
    *ended = saver->part != NULL && atomic_load(&saver->over);
    if (!*ended)
        return NULL;
    if (saver->running)
        pthread_join(saver->thread, NULL);
    saver->running = false;
    saver->saved.blocked_s += ddp_clock_now() - waited;
    saver->saved.seconds = saver->ended - saver->begun;
    ddp_error *error = saver->error;
    saver->error = NULL;
    if (error == NULL) {
        saver->sequence++;
        *saved = saver->saved;
    }
    error = ddp_error_while(error, "saving checkpoint %s", saver->saved.name);
    free(saver->part);
    saver->part = NULL;
    return error;
}

void ddp_saver_close(ddp_saver *saver)
{
    if (saver == NULL)
        return;
    atomic_store(&saver->given_up, true);
    if (saver->running)
        pthread_join(saver->thread, NULL);
    close_files(saver);
    ddp_error_free(saver->error);
    ddp_checkpoint_layout_free(&saver->layout);
    ddp_device_free_host(saver->config.device, saver->snapshot);
    ddp_device_free(saver->config.device, saver->sums);
    free(saver->hashes);
    free(saver->part);
    free(saver);
}
