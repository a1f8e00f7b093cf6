/* Finding, calling and understanding mpirun. Written for Open MPI 4 and 5 (options: their mpirun(1)). */
#include "launcher/mpirun.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "launcher/spawn.h"

#define VERSION_WAIT_S 20.0
#define MAX_ARGUMENTS 64
/* Between mpirun's SIGTERM and SIGKILL. Open MPI 4 sleeps that long twice, even when everyone is gone
 * already, and a job whose rank died has to be over within ten seconds. */
#define KILL_WAIT_S "1" /* mpirun waits so long before SIGTERM, and again before SIGKILL */

static ddp_error *refuse_version(const char *path, const ddp_text *answer)
{
    const char *text = ddp_text_get(answer);
    int length = (int)strcspn(text, "\n");
    return ddp_error_help(
        ddp_error_make(DDP_ERR_MACHINE, "%s is not Open MPI's mpirun; it calls itself \"%.*s\"", path,
                       length < 60 ? length : 60, text),
        "put Open MPI's first in PATH (Debian: apt install openmpi-bin), or launch.via=local on one host");
}

static ddp_error *check_version(const char *path)
{
    ddp_text answer = {0};
    char *arguments[] = {(char *)path, (char *)"--version", NULL};
    ddp_error *error = ddp_spawn_ask(path, arguments, VERSION_WAIT_S, &answer);
    if (error == NULL && strstr(ddp_text_get(&answer), "Open MPI") == NULL &&
        strstr(ddp_text_get(&answer), "OpenRTE") == NULL)
        error = refuse_version(path, &answer);
    ddp_text_free(&answer);
    return error;
}

ddp_error *ddp_mpirun_find(const ddp_job *job, char **path)
{
    if (!DDP_WITH_MPI)
        return ddp_error_help(
            ddp_error_make(DDP_ERR_MACHINE, "this ddprun was built without MPI: it runs on one host only"),
            "install Open MPI's development files and build again (./bootstrap build)");
    if (geteuid() == 0 && !job->launch.allow_root)
        return ddp_error_help(
            ddp_error_at(DDP_ERR_INPUT, ddp_job_where(job, &job->launch.allow_root),
                         "launch.allow_root: mpirun is not to be run as root, and this is root"),
            "launch.allow_root=true, or run as another user");
    char *found = ddp_spawn_find("mpirun");
    if (found == NULL)
        return ddp_error_help(
            ddp_error_make(DDP_ERR_MACHINE, "there is no mpirun in PATH, and this job needs one"),
            "Debian: apt install openmpi-bin; or launch.via=local on one host");
    ddp_error *error = check_version(found);
    if (error != NULL) {
        free(found);
        return error;
    }
    *path = found;
    return NULL;
}

/* Copies of everything, so that they are freed alike. */
typedef struct words {
    char **at;
    size_t count;
    bool failed;
} words;

static void add(words *words, const char *text)
{
    char *copy = words->count < MAX_ARGUMENTS ? strdup(text) : NULL;
    if (copy == NULL)
        words->failed = true;
    else
        words->at[words->count++] = copy;
}

static void add_setting(words *words, const char *name, const char *value)
{
    add(words, "--mca");
    add(words, name);
    add(words, value);
}

/* "a:2,b:2". Slots are what we planned, so mpirun's own counting of cores never has a say. */
static void add_hosts(words *words, const ddp_plan *plan)
{
    ddp_text list = {0};
    for (int i = 0; i < plan->host_count; i++)
        if (plan->hosts[i].ranks > 0)
            ddp_text_add(&list, "%s%s:%d", list.length > 0 ? "," : "",
                         plan->job->launch.hosts.count == 0 ? "localhost" : plan->hosts[i].name,
                         plan->hosts[i].ranks);
    add(words, "-H");
    add(words, ddp_text_get(&list));
    words->failed = words->failed || list.failed;
    ddp_text_free(&list);
}

static void add_flags(words *words, const ddp_plan *plan)
{
    char number[32];
    if (geteuid() == 0)
        add(words, "--allow-run-as-root");
    if (plan->job->launch.oversubscribe)
        add(words, "--oversubscribe");
    add(words, "--bind-to"); /* ranks bind themselves */
    add(words, "none");
    add(words, "--map-by");
    add(words, "slot");
    add(words, "-np");
    snprintf(number, sizeof number, "%d", plan->setup.world);
    add(words, number);
    add_hosts(words, plan);
    add_setting(words, "odls_base_sigkill_timeout", KILL_WAIT_S);
    /* From its main thread: a rank asks the kernel to die with the thread that started it. */
    add_setting(words, "odls_base_num_threads", "0");
    add_setting(words, "orte_abort_on_non_zero_status", "1");
    /* Ranks of one host meet in our own memory file; Open MPI's would be left in /dev/shm by a kill. */
    add_setting(words, "btl", "^vader,sm");
}

ddp_error *ddp_mpirun_arguments(const ddp_plan *plan, const char *mpirun, const char *program,
                                const char *session, char ***arguments)
{
    void *memory;
    DDP_TRY(ddp_memory_make(MAX_ARGUMENTS + 1, sizeof(char *), &memory));
    words words = {.at = memory};
    add(&words, mpirun);
    add_flags(&words, plan);
    /* Open MPI 4 refuses a directory for this host alone; the others keep their /tmp. */
    if (plan->host_count == 1 && plan->hosts[0].here)
        add_setting(&words, "orte_tmpdir_base", session);
    add(&words, "-x"); /* to other hosts, too */
    add(&words, "DDP_CONTROL");
    add(&words, "-x");
    add(&words, "DDP_ATTEMPT");
    add(&words, program);
    add(&words, "rank");
    add(&words, plan->job->output);
    if (words.failed) {
        ddp_mpirun_free_arguments(words.at);
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    }
    *arguments = words.at;
    return NULL;
}

void ddp_mpirun_free_arguments(char **arguments)
{
    for (char **at = arguments; at != NULL && *at != NULL; at++)
        free(*at);
    free(arguments);
}

/* The whole number behind `word` in `text`, or `fallback`. */
static int number_behind(const char *text, const char *word, int fallback)
{
    const char *at = strstr(text, word);
    int value;
    return at != NULL && sscanf(at + strlen(word), " %d", &value) == 1 ? value : fallback;
}

/* "Process name: [[57344,1],2]" (4) or "[prterun-host-123@1,2]" (5): the number before the last bracket. */
static int rank_of_name(const char *text)
{
    const char *at = strstr(text, "Process name:");
    const char *end = at ? at + strcspn(at, "\n") : NULL, *comma = NULL;
    for (; at != NULL && at < end; at++)
        if (*at == ',' && isdigit((unsigned char)at[1]))
            comma = at;
    return comma != NULL ? atoi(comma + 1) : -1;
}

ddp_mpirun_failure ddp_mpirun_diagnose(const char *log)
{
    ddp_mpirun_failure failure = {.rank = -1};
    const char *noticed = strstr(log, "noticed that process rank");
    const char *first = strstr(log, "The first process to do so was");
    if (noticed != NULL) {
        failure.rank = number_behind(noticed, "process rank", -1);
        failure.pid = number_behind(noticed, "with PID", 0);
        failure.signal = number_behind(noticed, "on signal", 0);
    } else if (first != NULL) {
        failure.rank = rank_of_name(first);
        failure.code = number_behind(first, "Exit code:", 0);
    }
    return failure;
}
