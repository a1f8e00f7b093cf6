/* Environments, command lines, and the rendezvous of ranks. See runtime/rank.h for what a rank is told. */
#include "launcher/start.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files.h"
#include "core/memory.h"
#include "launcher/mpirun.h"
#include "launcher/supervise.h"

#define OWN_PROGRAM "/proc/self/exe"
#define ENTRIES 9
#define COMMON_ENTRIES 4 /* of set_common */
#define ENTRY_BYTES 512

/* Of an outer job; ours are set anew. */
static const char *const dropped[] = {
    "DDP_RANK=",        "DDP_WORLD=",         "DDP_LOCAL_RANK=",
    "DDP_LOCAL_WORLD=", "DDP_RENDEZVOUS_FD=", "DDP_TERMINAL=",
    "DDP_STARTED=",     "DDP_CONTROL=",       NULL,
};

/* Variables of one process, rewritten in place for each rank. */
typedef struct entries {
    char text[ENTRIES][ENTRY_BYTES];
    char *at[ENTRIES + 1];
    char **environment;
} entries;

static ddp_error *make_entries(entries *entries, int count)
{
    for (int i = 0; i < count; i++)
        entries->at[i] = entries->text[i];
    entries->at[count] = NULL;
    return ddp_spawn_environment(dropped, entries->at, &entries->environment);
}

static void set_entry(entries *entries, int index, const char *name, long long value)
{
    snprintf(entries->text[index], ENTRY_BYTES, "%s=%lld", name, value);
}

static void set_common(entries *entries, const ddp_start_config *config, int first)
{
    set_entry(entries, first, "DDP_TERMINAL", config->width);
    snprintf(entries->text[first + 1], ENTRY_BYTES, "DDP_STARTED=%.6f", config->started);
    snprintf(entries->text[first + 2], ENTRY_BYTES, "DDP_CONTROL=%s", config->control);
    set_entry(entries, first + 3, "DDP_ATTEMPT", config->attempt);
}

static ddp_error *start_rank(const ddp_start_config *config, ddp_crew *crew, const entries *entries, int rank)
{
    char *arguments[] = {(char *)"ddprun", (char *)"rank", (char *)config->run_dir, NULL};
    ddp_spawn spawn = {
        .path = OWN_PROGRAM,
        .arguments = arguments,
        .environment = entries->environment,
        .keep_fd = ddp_rendezvous_fd(crew->rendezvous),
        .err_fd = -1,
    };
    ddp_child *child = &crew->children[rank];
    DDP_TRY_AS(ddp_spawn_start(&spawn, child), "starting rank %d", rank);
    DDP_TRY(ddp_relay_add_pipe(config->relay, rank, 1, child->out));
    child->out = -1;
    DDP_TRY(ddp_relay_add_pipe(config->relay, rank, 2, child->err));
    child->err = -1;
    return NULL;
}

static ddp_error *start_ranks(const ddp_start_config *config, ddp_crew *crew)
{
    enum { RANK, WORLD, LOCAL_RANK, LOCAL_WORLD, FD, COMMON };
    int world = config->plan->setup.world;
    entries entries = {.environment = NULL};
    ddp_error *error = make_entries(&entries, COMMON + COMMON_ENTRIES);
    set_entry(&entries, WORLD, "DDP_WORLD", world);
    set_entry(&entries, LOCAL_WORLD, "DDP_LOCAL_WORLD", world);
    set_entry(&entries, FD, "DDP_RENDEZVOUS_FD", ddp_rendezvous_fd(crew->rendezvous));
    set_common(&entries, config, COMMON);
    for (int rank = 0; rank < world && error == NULL; rank++) {
        set_entry(&entries, RANK, "DDP_RANK", rank);
        set_entry(&entries, LOCAL_RANK, "DDP_LOCAL_RANK", rank);
        error = start_rank(config, crew, &entries, rank);
    }
    free(entries.environment);
    return error;
}

/* Where mpirun's stderr goes. Ranks write to files of their own, so it is mpirun's words only. */
static ddp_error *open_log(const ddp_start_config *config, int *fd, long *from)
{
    char *path;
    struct stat info = {0};
    DDP_TRY(ddp_path_join(config->run_dir, "logs/mpirun.log", &path));
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    ddp_error *error = *fd < 0 ? ddp_error_errno(errno, "opening %s", path) : NULL;
    if (error == NULL && fstat(*fd, &info) == 0)
        *from = (long)info.st_size;
    free(path);
    return error;
}

static ddp_error *find_program(char *path, size_t bytes)
{
    ssize_t length = readlink(OWN_PROGRAM, path, bytes - 1);
    if (length < 0)
        return ddp_error_errno(errno, "reading " OWN_PROGRAM);
    path[length] = '\0';
    return NULL;
}

static ddp_error *start_mpirun(const ddp_start_config *config, ddp_crew *crew)
{
    char program[4096], **arguments = NULL;
    entries entries = {.environment = NULL};
    int log = -1;
    ddp_error *error = NULL;
    DDP_GO(find_program(program, sizeof program));
    DDP_GO(ddp_session_make(&crew->session));
    DDP_GO(ddp_mpirun_arguments(config->plan, config->mpirun, program, crew->session.path, &arguments));
    DDP_GO(make_entries(&entries, COMMON_ENTRIES));
    set_common(&entries, config, 0);
    DDP_GO(open_log(config, &log, &crew->log_from));
    for (int rank = 0; rank < config->plan->setup.world; rank++)
        DDP_GO(ddp_relay_add_file(config->relay, rank));
    ddp_spawn spawn = {
        .path = config->mpirun,
        .arguments = arguments,
        .environment = entries.environment,
        .keep_fd = -1,
        .err_fd = log,
    };
    DDP_GO(ddp_spawn_start(&spawn, crew->children));
    DDP_GO(ddp_relay_add_pipe(config->relay, 0, 1, crew->children->out));
    crew->children->out = -1;
out:
    if (log >= 0)
        close(log);
    free(entries.environment);
    ddp_mpirun_free_arguments(arguments);
    return error;
}

ddp_error *ddp_start(const ddp_start_config *config, ddp_crew *crew)
{
    void *children;
    bool mpirun = config->plan->mpirun;
    ddp_crew made = {.count = mpirun ? 1 : config->plan->setup.world};
    DDP_TRY(ddp_memory_make((size_t)made.count, sizeof *made.children, &children));
    made.children = children;
    for (int i = 0; i < made.count; i++)
        made.children[i] = (ddp_child){.out = -1, .err = -1};
    ddp_error *error = mpirun ? NULL : ddp_rendezvous_make(config->plan->setup.world, &made.rendezvous);
    if (error == NULL)
        error = mpirun ? start_mpirun(config, &made) : start_ranks(config, &made);
    if (error != NULL) {
        ddp_supervise_kill(made.children, made.count);
        ddp_crew_free(&made);
        return error;
    }
    *crew = made;
    return NULL;
}

void ddp_crew_free(ddp_crew *crew)
{
    for (int i = 0; crew->children != NULL && i < crew->count; i++)
        ddp_child_close(&crew->children[i]);
    free(crew->children);
    ddp_rendezvous_close(crew->rendezvous);
    ddp_session_remove(&crew->session);
    *crew = (ddp_crew){0};
}
