/* Saving: beginning together, and the end. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/fault.h"
#include "core/files.h"
#include "core/memory.h"
#include "runtime/agree.h"
#include "runtime/checkpoint/saver_parts.h"
#include "runtime/checkpoint/shelf.h"

#define ARENAS (1 + DDP_MAX_SLOTS)
#define POLL_S 0.002

/* Rank 0: the directory, and its files at full length. */
static ddp_error *make_files(const ddp_saver *saver)
{
    DDP_TRY(ddp_directory_make(saver->config.directory));
    DDP_TRY(ddp_tree_remove(saver->part));
    DDP_TRY(ddp_directory_make(saver->part));
    for (int i = 0; i < saver->layout.file_count; i++) {
        char *path;
        ddp_error *error = NULL;
        DDP_TRY(saver_part_path(saver, saver->layout.files[i].name, &path));
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

static ddp_error *mark_writing(const ddp_saver *saver)
{
    char *path;
    DDP_TRY(saver_rank_path(saver, saver->config.comm->rank, ".writing", &path));
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    ddp_error *error = fd < 0 ? ddp_error_errno(errno, "making %s", path) : NULL;
    if (fd >= 0)
        close(fd);
    free(path);
    return error;
}

static ddp_error *open_files(ddp_saver *saver)
{
    for (int i = 0; i < saver->layout.file_count; i++) {
        char *path;
        DDP_TRY(saver_part_path(saver, saver->layout.files[i].name, &path));
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

static ddp_error *take_snapshot(ddp_saver *saver, ddp_stream *compute)
{
    char *to = saver->snapshot;
    for (int i = saver->first; i < saver->end; i++) {
        const ddp_checkpoint_part *part = &saver->layout.parts[i];
        if (part->param < 0)
            continue;
        ddp_stream_copy(compute, to, saver->config.arenas[part->arena] + part->element,
                        (size_t)saver_bytes_of(part));
        to += saver_bytes_of(part);
    }
    return ddp_stream_wait(compute);
}

/* Signals are the main thread's business. */
static ddp_error *start(ddp_saver *saver)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&saver->thread, NULL, saver_write, saver);
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
        bytes += saver_bytes_of(&saver->layout.parts[i]);
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
    saver_close_files(saver);
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

/* Whether all ranks may go on; to those with nothing to say for themselves it is another one's failure
 * (PEER). */
static ddp_error *agree_on_files(ddp_saver *saver, ddp_stream *comm_stream, ddp_error **failure)
{
    bool all;
    DDP_TRY(ddp_agree_all(saver->config.comm, comm_stream, *failure == NULL, &all));
    if (*failure == NULL && !all)
        *failure = ddp_error_make(DDP_ERR_PEER,
                                  "another rank could not make or open the files; its own output says why");
    return NULL;
}

/* Every rank's files, once rank 0 has made them. *failure is this rank's; what is returned concerns all. */
static ddp_error *open_together(ddp_saver *saver, ddp_stream *compute, ddp_stream *comm_stream,
                                ddp_error **failure)
{
    bool first = saver->config.comm->rank == 0;
    DDP_TRY(agree_on_state(saver, compute, comm_stream));
    *failure = first ? make_files(saver) : NULL;
    DDP_TRY(agree_on_files(saver, comm_stream, failure));
    if (*failure != NULL)
        return NULL;
    *failure = first ? NULL : mark_writing(saver);
    if (*failure == NULL)
        *failure = open_files(saver);
    return agree_on_files(saver, comm_stream, failure);
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
    saver_close_files(saver);
    ddp_error_free(saver->error);
    ddp_checkpoint_layout_free(&saver->layout);
    ddp_device_free_host(saver->config.device, saver->snapshot);
    ddp_device_free(saver->config.device, saver->sums);
    free(saver->hashes);
    free(saver->part);
    free(saver);
}
