/* Starting, copying, waiting; then saying how it ended. */
#include "launcher/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ddp/log.h>

#include "collectives/rendezvous.h"
#include "core/clock.h"
#include "core/memory.h"
#include "launcher/first.h"
#include "launcher/spawn.h"
#include "launcher/tee.h"
#include "launcher/verdict.h"

#define LOOK_MS 1000 /* whether mpirun is still there */
#define HURRY_MS 100
#define WAIT_DIRECTORY_S 2.0 /* for rank 0 to make it */
#define LINGER_S 0.5         /* mpirun, ending a job, kills at once what is left when one process has ended */

typedef struct keeper {
    const ddp_rank_config *config;
    const char *run_dir;
    double started;
    ddp_rendezvous *page; /* the rank tells where it is, and why it fails */
    ddp_child child;
    ddp_tee tee;
    pid_t parent;
    int signal_fd;
    bool asked;     /* to end, by a signal */
    bool ended;     /* `end` was appended */
    double kill_at; /* when a rank that was asked has had its time, where another one failed */
    int status;     /* of the rank that ended, as from waitpid */
} keeper;

static ddp_rendezvous_status ask(const keeper *keeper)
{
    return ddp_rendezvous_ask(keeper->page, keeper->config->local_rank);
}

/* The run directory is there once rank 0 says so, or the ranks have met. */
static void open_log(keeper *keeper, bool ready)
{
    ddp_rendezvous_status at = ask(keeper);
    if (ready || (at.phase[0] != '\0' && strcmp(at.phase, "init") != 0))
        ddp_tee_open_log(&keeper->tee);
}

/* -- life -- */

/* Only rank 0 makes it, and finds it empty. Hosts that share it late, or not at all, go on without. */
static bool wait_directory(const keeper *keeper)
{
    double until = ddp_clock_now() + WAIT_DIRECTORY_S;
    bool ready;
    while (!(ready = ddp_first_ready(keeper->run_dir)) && ddp_clock_now() < until)
        ddp_clock_sleep(0.005);
    return ready;
}

static ddp_error *block_signals(int *signal_fd)
{
    static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sigaddset(&set, numbers[i]);
    signal(SIGPIPE, SIG_IGN);
    int code = pthread_sigmask(SIG_BLOCK, &set, NULL);
    *signal_fd = code == 0 ? signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK) : -1;
    return *signal_fd >= 0 ? NULL : ddp_error_errno(code ? code : errno, "waiting for signals");
}

static ddp_error *start(keeper *keeper, const ddp_arguments *arguments)
{
    static const char *const dropped[] = {"DDP_RENDEZVOUS_FD=", "DDP_STARTED=", NULL};
    char fd[64], started[64], **environment = NULL, **words;
    char *added[] = {fd, started, NULL};
    size_t count = 0;
    void *memory;
    ddp_error *error = NULL;
    DDP_TRY(
        ddp_memory_make(arguments->operand_count + arguments->override_count + 3, sizeof *words, &memory));
    words = memory;
    words[count++] = (char *)"ddprun";
    words[count++] = (char *)"run";
    for (size_t i = 0; i < arguments->operand_count; i++)
        words[count++] = (char *)arguments->operands[i];
    for (size_t i = 0; i < arguments->override_count; i++)
        words[count++] = (char *)arguments->overrides[i];
    snprintf(fd, sizeof fd, "DDP_RENDEZVOUS_FD=%d", ddp_rendezvous_fd(keeper->page));
    snprintf(started, sizeof started, "DDP_STARTED=%.6f", keeper->started);
    DDP_GO(ddp_spawn_environment(dropped, added, &environment));
    ddp_spawn spawn = {
        .path = "/proc/self/exe",
        .arguments = words,
        .environment = environment,
        .keep_fd = ddp_rendezvous_fd(keeper->page),
        .err_fd = -1,
    };
    DDP_GO(ddp_spawn_start(&spawn, &keeper->child));
    keeper->tee = ddp_tee_make(keeper->run_dir, keeper->config->rank, keeper->child.out, keeper->child.err);
out:
    free(environment);
    free(words);
    return error;
}

static void pass_signals(keeper *keeper)
{
    struct signalfd_siginfo info;
    while (read(keeper->signal_fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        if (!keeper->asked)
            keeper->kill_at = ddp_clock_now() + LINGER_S;
        keeper->asked = true;
        ddp_child_signal(&keeper->child, (int)info.ssi_signo);
    }
}

/* mpirun ends a job that has failed, and this rank does not get on with it: its keeper has little time left.
 */
static bool is_overdue(const keeper *keeper)
{
    int rank, code;
    return keeper->asked && ddp_clock_now() >= keeper->kill_at &&
           ddp_first_ask(keeper->run_dir, &rank, &code);
}

/* Rank 0's keeper ends the events of a job that failed. */
static ddp_error *append_end(const keeper *keeper, bool asked, int code)
{
    int first = -1;
    bool failed = ddp_first_ask(keeper->run_dir, &first, &code) || !asked;
    ddp_rendezvous_status at = ask(keeper);
    return ddp_verdict_append_end(keeper->run_dir, failed ? "failed" : "interrupted",
                                  at.step > 0 ? at.step - 1 : 0, ddp_clock_now() - keeper->started, code);
}

/* mpirun asks rank 0 to go because another one has failed, and soon kills: the end is written before it can.
 */
static void end_in_time(keeper *keeper)
{
    int first, code = 1;
    if (!keeper->asked || keeper->ended || keeper->config->rank != 0 ||
        !ddp_first_ask(keeper->run_dir, &first, &code))
        return;
    ddp_error *error = append_end(keeper, true, code);
    if (error != NULL)
        ddp_log(DDP_WARN, "launch", "%s", ddp_error_message(error));
    ddp_error_free(error);
    keeper->ended = true;
}

/* Until the rank is gone; what it started goes with it. */
static void stay(keeper *keeper)
{
    pid_t ended = 0;
    while (ended == 0) {
        struct pollfd polls[] = {{.fd = keeper->signal_fd, .events = POLLIN},
                                 {.fd = keeper->tee.streams[0].from, .events = POLLIN},
                                 {.fd = keeper->tee.streams[1].from, .events = POLLIN}};
        poll(polls, sizeof polls / sizeof polls[0], keeper->asked ? HURRY_MS : LOOK_MS);
        ddp_tee_copy(&keeper->tee);
        open_log(keeper, false);
        pass_signals(keeper);
        end_in_time(keeper);
        if (getppid() != keeper->parent || is_overdue(keeper))
            ddp_child_signal(&keeper->child, SIGKILL);
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)keeper->child.pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
            return;
        ended = info.si_pid;
    }
    ddp_child_signal(&keeper->child, SIGKILL);
    waitpid(keeper->child.pid, &keeper->status, 0);
}

/* -- the end -- */

/* It was asked to end, did so in good order, and rank 0 has said so in the events. */
static bool has_stopped(const keeper *keeper)
{
    return WIFEXITED(keeper->status) && strcmp(ask(keeper).phase, "stopped") == 0;
}

static int code_of(const keeper *keeper)
{
    if (WIFSIGNALED(keeper->status))
        return 128 + WTERMSIG(keeper->status);
    if (WEXITSTATUS(keeper->status) != 0)
        return WEXITSTATUS(keeper->status);
    return strcmp(ask(keeper).phase, "end") == 0 ? 0 : 1; /* it left before its work was done */
}

/* The pid that a rank's complaint about another one names: "; rank 2 (pid 4711, ..." */
static int find_pid(const char *why, int rank)
{
    char mark[48];
    int pid = 0;
    snprintf(mark, sizeof mark, "rank %d (pid ", rank);
    const char *at = strstr(why, mark);
    return at != NULL && sscanf(at + strlen(mark), "%d", &pid) == 1 ? pid : 0;
}

/* This rank, or the one that it waited for in vain. */
static void judge(const keeper *keeper, ddp_verdict *verdict, ddp_outcome *outcome)
{
    int culprit = -1, own = keeper->config->rank;
    const char *why = NULL;
    int status = keeper->status;
    outcome->at = ask(keeper);
    verdict->rank = own;
    verdict->pid = keeper->child.pid;
    verdict->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    verdict->code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    verdict->steps = outcome->at.step > 0 ? outcome->at.step - 1 : 0;
    if (!ddp_rendezvous_aborted(keeper->page, &culprit, &why))
        return;
    snprintf(outcome->why, sizeof outcome->why, "%s", why);
    verdict->differ = culprit < 0;
    if (verdict->differ) {
        verdict->rank = -1;
        verdict->pid = 0;
    }
    if (verdict->differ || culprit == own)
        return;
    verdict->hung = true;
    verdict->rank = culprit;
    verdict->pid = outcome->at.pid = find_pid(why, culprit);
    outcome->at.phase[0] = '\0'; /* of this rank, not of that one */
    outcome->followed[own] = 1;
}

static void say(const ddp_verdict *verdict)
{
    ddp_text text = {0};
    ddp_verdict_write(verdict, &text);
    fputs(ddp_text_get(&text), stderr);
    ddp_text_free(&text);
    ddp_error *error = ddp_verdict_append(verdict);
    if (error != NULL)
        ddp_log(DDP_WARN, "launch", "%s", ddp_error_message(error));
    ddp_error_free(error);
}

/* Only the job's first failure is told; of several ranks that failed for the same reason, one tells it. */
static ddp_error *accuse(const keeper *keeper, int code)
{
    const ddp_rank_config *config = keeper->config;
    ddp_plan_host host = {.here = true, .ranks = config->world};
    ddp_plan plan = {.hosts = &host, .host_count = 1, .setup.world = config->world};
    ddp_outcome outcome = {.code = code, .first = config->rank};
    ddp_verdict verdict = {.outcome = &outcome, .plan = &plan, .run_dir = keeper->run_dir};
    void *sets;
    DDP_TRY(ddp_memory_make((size_t)config->world, 2, &sets));
    outcome.followed = sets;
    outcome.killed = (unsigned char *)sets + config->world;
    gethostname(host.name, sizeof host.name - 1);
    judge(keeper, &verdict, &outcome);
    if (verdict.hung && verdict.pid == 0)
        host.name[0] = '\0'; /* on another host, of which nothing is known here */
    if (ddp_first_take(keeper->run_dir, verdict.rank, code))
        say(&verdict);
    free(sets);
    return NULL;
}

static void finish(keeper *keeper, int *code)
{
    bool first_rank = keeper->config->rank == 0;
    *code = code_of(keeper);
    bool stopped = has_stopped(keeper);
    bool asked = keeper->asked || stopped;
    open_log(keeper, ddp_first_ready(keeper->run_dir));
    ddp_tee_copy(&keeper->tee);
    ddp_tee_close(&keeper->tee);
    ddp_error *error = *code != 0 && !asked ? accuse(keeper, *code) : NULL;
    if (*code != 0 && first_rank && !stopped && !keeper->ended)
        error = ddp_error_join(error, append_end(keeper, asked, *code));
    if (first_rank)
        ddp_first_forget(keeper->run_dir);
    if (error != NULL)
        ddp_log(DDP_WARN, "launch", "%s", ddp_error_message(error));
    ddp_error_free(error);
    if (asked && !first_rank)
        ddp_clock_sleep(LINGER_S); /* until rank 0's has written the end */
}

/* So that mpirun sees the rank's own end. One core file, the rank's, is enough. */
static void die_alike(int status)
{
    int number = WTERMSIG(status);
    sigset_t set;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    sigemptyset(&set);
    sigaddset(&set, number);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
}

ddp_error *ddp_keeper_run(const ddp_arguments *arguments, const ddp_rank_config *config, const char *run_dir,
                          int *code)
{
    keeper keeper = {
        .config = config,
        .run_dir = run_dir,
        .started = arguments->started,
        .child = {.out = -1, .err = -1},
        .tee = ddp_tee_make(run_dir, config->rank, -1, -1),
        .parent = getppid(),
        .signal_fd = -1,
    };
    ddp_error *error = NULL;
    DDP_GO(ddp_rendezvous_make(config->local_world, &keeper.page));
    bool ready = wait_directory(&keeper);
    DDP_GO(block_signals(&keeper.signal_fd));
    DDP_GO(start(&keeper, arguments));
    open_log(&keeper, ready);
    stay(&keeper);
    finish(&keeper, code);
out:
    ddp_tee_close(&keeper.tee);
    if (keeper.signal_fd >= 0)
        close(keeper.signal_fd);
    ddp_rendezvous_close(keeper.page);
    if (error == NULL && WIFSIGNALED(keeper.status))
        die_alike(keeper.status);
    return error;
}

/* -- in the rank -- */

/* Whom a complaint of the communicator is about, -1 = nobody in particular: the number behind the last "rank"
 * before one of its verbs. */
static int find_culprit(const char *why)
{
    static const char *const verbs[] = {" did not come", " did not answer", " died", " left the group",
                                        " could not join"};
    static const char echo[] = "given up because of rank ";
    if (ddp_text_starts(why, echo))
        return atoi(why + sizeof echo - 1);
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        const char *verb = strstr(why, verbs[i]), *last = NULL;
        for (const char *at = why; verb != NULL && (at = strstr(at, "rank")) != NULL && at < verb; at++)
            last = at;
        if (last != NULL)
            return atoi(last + strcspn(last, "0123456789"));
    }
    return -1;
}

void ddp_keeper_tell(const ddp_rank_config *config, const ddp_error *why)
{
    ddp_rendezvous *page = NULL;
    ddp_error *error = NULL;
    int fd = fcntl(config->rendezvous_fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0)
        error = ddp_rendezvous_open(fd, &page);
    if (page != NULL)
        ddp_rendezvous_abort(page,
                             ddp_error_get_kind(why) == DDP_ERR_PEER ? find_culprit(ddp_error_message(why))
                                                                     : config->rank,
                             ddp_error_message(why));
    ddp_rendezvous_close(page);
    ddp_error_free(error);
}
