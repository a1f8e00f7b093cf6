/* The loop that watches a job. */
#include "launcher/supervise.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ddp/log.h>

#include "core/clock.h"
#include "core/memory.h"
#include "runtime/channel.h"
#include "runtime/rank.h"

#define INTERRUPTED_TERM_S 1.0 /* ranks that compute together leave by themselves until then */
#define HUNG_TERM_S 1.0        /* a rank that others have waited for has had its time */
#define HUNG_KILL_S 2.0
#define SECOND_TERM_S 0.1
#define SILENT_S (5 * DDP_BEAT_S)
#define DRAIN_S 1.0 /* for output of processes that are gone */
#define NEVER 1e300

typedef struct watch {
    const ddp_supervise_config *config;
    ddp_outcome *outcome;
    struct pollfd *polls; /* signal_fd, then pipes */
    unsigned char *running, *quiet;
    int *statuses; /* by child, of those that have ended */
    int alive;
    bool termed;             /* the first SIGTERM was sent */
    double term_at, kill_at; /* when what still runs gets these signals */
} watch;

ddp_error *ddp_supervise_block(int *signal_fd)
{
    static const int asking[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof asking / sizeof asking[0]; i++) {
        struct sigaction before;
        sigaction(asking[i], NULL, &before);
        if (before.sa_handler != SIG_IGN) /* nohup, and background jobs of a shell, want it ignored */
            sigaddset(&set, asking[i]);
    }
    signal(SIGPIPE, SIG_IGN);
    int code = pthread_sigmask(SIG_BLOCK, &set, NULL);
    *signal_fd = code == 0 ? signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK) : -1;
    return *signal_fd >= 0 ? NULL : ddp_error_errno(code ? code : errno, "waiting for signals");
}

static void signal_running(watch *watch, int signal)
{
    for (int i = 0; i < watch->config->count; i++)
        if (watch->running[i])
            ddp_child_signal(&watch->config->children[i], signal);
}

/* Asked to stop, and left in good order. */
static bool stopped(const watch *watch, int child, int status)
{
    const ddp_supervise_config *config = watch->config;
    if (!WIFEXITED(status))
        return false;
    if (WEXITSTATUS(status) == DDP_EXIT_SAVED)
        return true;
    return config->rendezvous != NULL && WEXITSTATUS(status) > 128 &&
           strcmp(ddp_rendezvous_ask(config->rendezvous, child).phase, "stopped") == 0;
}

/* A rank that leaves with 0 before its work is done has failed as well: the others would wait for it. */
static bool failed(const watch *watch, int child, int status)
{
    const ddp_supervise_config *config = watch->config;
    if (stopped(watch, child, status))
        return false;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return true;
    return config->rendezvous != NULL &&
           strcmp(ddp_rendezvous_ask(config->rendezvous, child).phase, "end") != 0;
}

static int code_of(int status)
{
    if (WIFSIGNALED(status))
        return 128 + WTERMSIG(status);
    return WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1; /* left too early with 0 */
}

/* Of failures that were seen together the one that is less likely an echo: a rank that only noticed another's
 * failure leaves with code 1. */
static bool is_likelier(int status, int than)
{
    return code_of(than) == 1 && code_of(status) != 1;
}

static int64_t steps_done(const ddp_supervise_config *config)
{
    int64_t least = INT64_MAX;
    for (int rank = 0; config->rendezvous != NULL && rank < config->world; rank++) {
        ddp_rendezvous_status status = ddp_rendezvous_ask(config->rendezvous, rank);
        bool whole = strcmp(status.phase, "end") == 0 || strcmp(status.phase, "stopped") == 0;
        int64_t done = status.step > 0 && !whole ? status.step - 1 : status.step;
        least = done < least ? done : least;
    }
    return least == INT64_MAX ? -1 : least;
}

/* The rank that the others name when they abort; it may differ from the first that ends. */
static void blame_culprit(watch *watch)
{
    int culprit;
    const char *why;
    ddp_outcome *outcome = watch->outcome;
    const ddp_supervise_config *config = watch->config;
    if (config->rendezvous == NULL || !ddp_rendezvous_aborted(config->rendezvous, &culprit, &why))
        return;
    snprintf(outcome->why, sizeof outcome->why, "%s", why != NULL ? why : "");
    outcome->differ = culprit < 0;
    if (culprit < 0 || culprit >= config->count || culprit == outcome->first)
        return;
    if (watch->running[culprit]) {
        outcome->first = culprit;
        outcome->hung = true;
        outcome->status = 0;
    } else if (failed(watch, culprit, watch->statuses[culprit])) {
        outcome->first = culprit;
        outcome->status = watch->statuses[culprit];
        outcome->code = code_of(outcome->status);
    }
}

/* What the ranks' recorders show, before anything is ended. */
static void diagnose(watch *watch)
{
    ddp_outcome *outcome = watch->outcome;
    const ddp_supervise_config *config = watch->config;
    if (config->watchdog == NULL || outcome->diagnosis.kind != DDP_DIAGNOSIS_NOTHING)
        return;
    ddp_error *error =
        ddp_watchdog_judge(config->watchdog, config->mpirun ? -1 : outcome->first, &outcome->diagnosis);
    if (error != NULL)
        ddp_log(DDP_WARN, "launch", "%s", ddp_error_message(error));
    ddp_error_free(error);
    /* Somebody always waits for somebody: that is a hang only where a rank was given up for it. */
    if (outcome->diagnosis.kind == DDP_DIAGNOSIS_HANG && !outcome->hung)
        ddp_diagnosis_free(&outcome->diagnosis);
}

/* From here on: what the others write is an echo and goes to their logs only. */
static void end_others(watch *watch)
{
    const ddp_supervise_config *config = watch->config;
    ddp_outcome *outcome = watch->outcome;
    double now = ddp_clock_now();
    char why[64];
    if (config->mpirun) {
        if (outcome->hung) {
            watch->term_at = now;
            watch->kill_at = now + HUNG_KILL_S;
        }
        return;
    }
    ddp_relay_read(config->relay);
    memset(watch->quiet, 1, (size_t)config->world);
    watch->quiet[outcome->first] = 0;
    ddp_relay_quiet(config->relay, watch->quiet);
    snprintf(why, sizeof why, "rank %d failed", outcome->first);
    if (config->rendezvous != NULL)
        ddp_rendezvous_abort(config->rendezvous, outcome->first, why);
    double term_s = outcome->hung ? HUNG_TERM_S : DDP_FAILED_TERM_S;
    double kill_s = outcome->hung ? HUNG_KILL_S : DDP_FAILED_KILL_S;
    if (kill_s > term_s + config->grace_s)
        kill_s = term_s + config->grace_s;
    watch->term_at = now + term_s;
    watch->kill_at = now + kill_s;
}

static void note_first(watch *watch, int child, int status)
{
    ddp_outcome *outcome = watch->outcome;
    outcome->first = child;
    outcome->status = status;
    outcome->code = code_of(status);
    blame_culprit(watch);
    outcome->pid = watch->config->children[outcome->first].pid;
    outcome->steps = steps_done(watch->config);
    if (watch->config->rendezvous != NULL)
        outcome->at = ddp_rendezvous_ask(watch->config->rendezvous, outcome->first);
    diagnose(watch);
    end_others(watch);
}

/* Nothing moves: the rank to blame is taken for the first failure, or the lowest where it is nobody in
 * particular. */
static void note_hang(watch *watch, const ddp_diagnosis *diagnosis)
{
    ddp_outcome *outcome = watch->outcome;
    const ddp_supervise_config *config = watch->config;
    outcome->diagnosis = *diagnosis;
    outcome->first = config->mpirun || diagnosis->rank < 0 ? 0 : diagnosis->rank;
    outcome->hung = true;
    outcome->code = 1;
    outcome->pid = diagnosis->pid;
    outcome->steps = steps_done(config);
    if (config->rendezvous != NULL)
        outcome->at = ddp_rendezvous_ask(config->rendezvous, outcome->first);
    if (config->on_hang != NULL)
        config->on_hang(config->on_hang_argument, outcome);
    end_others(watch);
}

static void warn_of_late(const watch *watch, const ddp_diagnosis *diagnosis)
{
    ddp_text text = {0};
    ddp_text_add(&text, "ddprun: warning: nothing moves: %s\n", diagnosis->cause);
    if (watch->config->err != NULL)
        ddp_output_add(watch->config->err, ddp_text_get(&text), text.length);
    ddp_text_free(&text);
}

/* Nothing is heard of any of its ranks: of one alone, it would be that rank's fault. */
static bool is_host_silent(const ddp_supervise_config *config, const char *host)
{
    double now = ddp_clock_now();
    for (int rank = 0; rank < config->world; rank++) {
        const ddp_channel_status *status = ddp_channel_ask(config->channel, rank);
        if (strcmp(status->host, host) == 0 && status->connected && now - status->heard < SILENT_S)
            return false;
    }
    return *host != '\0';
}

/* Who is connected, and from where, comes through the control channel; it matters where mpirun started them.
 */
static void introduce(watch *watch)
{
    const ddp_supervise_config *config = watch->config;
    for (int rank = 0; rank < config->world && config->channel != NULL; rank++) {
        const ddp_channel_status *status = ddp_channel_ask(config->channel, rank);
        if (status->pid != 0)
            ddp_watchdog_know(config->watchdog, rank, status->pid, status->host);
        if (config->mpirun && is_host_silent(config, status->host))
            ddp_watchdog_lost(config->watchdog, rank);
    }
}

static void look_for_hang(watch *watch)
{
    ddp_watchdog_view view;
    ddp_diagnosis diagnosis;
    const ddp_supervise_config *config = watch->config;
    if (config->watchdog == NULL || watch->alive == 0 || watch->outcome->first >= 0 ||
        watch->outcome->interrupted != 0 || watch->outcome->stopped != 0)
        return;
    introduce(watch);
    ddp_error *error = ddp_watchdog_look(config->watchdog, &view, &diagnosis);
    if (error != NULL) {
        ddp_error_free(error);
        return;
    }
    if (view == DDP_HANGS)
        note_hang(watch, &diagnosis);
    if (view != DDP_IS_LATE)
        return;
    warn_of_late(watch, &diagnosis);
    ddp_diagnosis_free(&diagnosis);
}

/* One ended child, -1 = none; what it started ends with it. */
static int reap(watch *watch, int *status)
{
    siginfo_t info = {0};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
        return -1;
    for (int i = 0; i < watch->config->count; i++) {
        if (!watch->running[i] || watch->config->children[i].pid != info.si_pid)
            continue;
        ddp_child_signal(&watch->config->children[i], SIGKILL);
        waitpid(info.si_pid, status, 0);
        watch->running[i] = 0;
        watch->alive--;
        return i;
    }
    waitpid(info.si_pid, NULL, 0);
    return watch->config->count;
}

/* The rank that the others named was not stuck, only later out of the door than they. */
static void accept_culprit(ddp_outcome *outcome, int status)
{
    outcome->hung = false;
    outcome->status = status;
    outcome->code = code_of(status);
}

/* All that have ended by now. The first failure of the job is the likeliest of the first batch that has any.
 */
static void reap_all(watch *watch)
{
    ddp_outcome *outcome = watch->outcome;
    int status, first = -1, first_status = 0;
    for (int child; (child = reap(watch, &status)) >= 0;) {
        if (child == watch->config->count)
            continue;
        watch->statuses[child] = status;
        if (watch->config->watchdog != NULL && !watch->config->mpirun)
            ddp_watchdog_ended(watch->config->watchdog, child, status);
        if (stopped(watch, child, status))
            outcome->stopped = WEXITSTATUS(status);
        if (!failed(watch, child, status))
            continue;
        ddp_log(DDP_DEBUG, "launch", "child %d, pid %d, ended with code %d", child,
                (int)watch->config->children[child].pid, code_of(status));
        if (outcome->interrupted == 0)
            outcome->followed[child] = 1;
        if (child == outcome->first && outcome->hung && !outcome->killed[child])
            accept_culprit(outcome, status);
        if (outcome->first < 0 && (first < 0 || is_likelier(status, first_status))) {
            first = child;
            first_status = status;
        }
    }
    if (first >= 0 && outcome->interrupted == 0)
        note_first(watch, first, first_status);
}

/* Without anybody to ask: what runs is told that it is over, and ends. */
static void break_off(watch *watch)
{
    const ddp_supervise_config *config = watch->config;
    memset(watch->quiet, 1, (size_t)config->world);
    ddp_relay_quiet(config->relay, watch->quiet);
    if (config->rendezvous != NULL)
        ddp_rendezvous_abort(config->rendezvous, -1, "interrupted");
}

static void interrupt(watch *watch, int signal)
{
    const ddp_supervise_config *config = watch->config;
    double now = ddp_clock_now();
    if (watch->outcome->interrupted != 0) {
        break_off(watch);
        watch->kill_at = now;
        return;
    }
    watch->outcome->interrupted = signal;
    watch->outcome->steps = steps_done(config);
    char said[96];
    int length = snprintf(said, sizeof said, "ddprun: stopping, at most %g s; once more ends it at once\n",
                          config->grace_s);
    if (config->err != NULL)
        ddp_output_add(config->err, said, (size_t)length);
    double term_at = now + config->grace_s;
    if (config->channel == NULL || ddp_channel_order_stop(config->channel, signal) < config->world) {
        break_off(watch); /* some are not there yet: there is nothing to finish */
        term_at = now + (config->world > 1 && !config->mpirun ? INTERRUPTED_TERM_S : 0);
    }
    double kill_at = now + config->grace_s + (config->mpirun ? 2 : 0); /* mpirun kills by itself before */
    watch->term_at = term_at < watch->term_at ? term_at : watch->term_at;
    watch->kill_at = kill_at < watch->kill_at ? kill_at : watch->kill_at;
}

static void take_signals(watch *watch)
{
    struct signalfd_siginfo info;
    while (read(watch->config->signal_fd, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD)
            interrupt(watch, (int)info.ssi_signo);
}

/* SIGTERM twice: the first only asks a rank to stop. SIGKILL again and again (a process may just be forking).
 */
static void keep_deadlines(watch *watch)
{
    double now = ddp_clock_now();
    if (watch->alive == 0)
        return;
    if (now >= watch->kill_at) {
        memcpy(watch->outcome->killed, watch->running, (size_t)watch->config->count);
        signal_running(watch, SIGKILL);
        watch->kill_at = now + 0.2;
    } else if (now >= watch->term_at) {
        memcpy(watch->outcome->killed, watch->running, (size_t)watch->config->count);
        signal_running(watch, SIGTERM);
        watch->term_at = watch->termed ? NEVER : now + SECOND_TERM_S;
        watch->termed = true;
    }
}

static void wait_event(watch *watch, double due)
{
    double now = ddp_clock_now(), until = watch->term_at < watch->kill_at ? watch->term_at : watch->kill_at;
    if (due >= 0 && now + due < until)
        until = now + due;
    if (watch->config->watchdog != NULL && now + DDP_WATCHDOG_LOOK_S < until)
        until = now + DDP_WATCHDOG_LOOK_S;
    int wait_ms = until > now + 3600 ? 3600 * 1000 : until > now ? (int)((until - now) * 1000) + 1 : 0;
    watch->polls[0] = (struct pollfd){.fd = watch->config->signal_fd, .events = POLLIN};
    int count = 1 + ddp_relay_polls(watch->config->relay, watch->polls + 1);
    if (watch->config->channel != NULL)
        count += ddp_channel_polls(watch->config->channel, watch->polls + count);
    poll(watch->polls, (nfds_t)count, wait_ms);
    if (watch->config->channel != NULL)
        ddp_channel_read(watch->config->channel);
}

/* What the ended processes have left in their pipes. */
static void drain(watch *watch)
{
    double until = ddp_clock_now() + DRAIN_S;
    do
        ddp_relay_read(watch->config->relay);
    while (ddp_relay_polls(watch->config->relay, watch->polls) > 0 && ddp_clock_now() < until &&
           poll(watch->polls, ddp_relay_polls(watch->config->relay, watch->polls), 10) >= 0);
}

static void run_loop(watch *watch)
{
    double due = 0;
    while (watch->alive > 0) {
        wait_event(watch, due);
        due = ddp_relay_read(watch->config->relay);
        take_signals(watch);
        reap_all(watch);
        look_for_hang(watch);
        keep_deadlines(watch);
    }
    drain(watch);
}

static void finish_outcome(watch *watch)
{
    ddp_outcome *outcome = watch->outcome;
    if (outcome->first >= 0) {
        outcome->followed[outcome->first] = 0;
        for (int i = 0; i < watch->config->count; i++)
            outcome->followed[i] = i != outcome->first && (outcome->followed[i] || outcome->killed[i]);
    }
    if (outcome->first >= 0)
        outcome->interrupted = 0; /* it had failed before somebody lost patience */
    if (outcome->first >= 0)
        outcome->stopped = 0;
    if (outcome->interrupted != 0)
        outcome->code = 128 + outcome->interrupted;
    if (outcome->stopped != 0) {
        outcome->code = outcome->stopped;
        outcome->steps = steps_done(watch->config);
    }
}

static ddp_error *open_watch(watch *watch)
{
    const ddp_supervise_config *config = watch->config;
    size_t count = (size_t)config->count;
    void *memory;
    size_t polls = (size_t)config->world * 2 + 2;
    if (config->channel != NULL)
        polls += (size_t)ddp_channel_most(config->channel);
    DDP_TRY(ddp_memory_make(polls, sizeof *watch->polls, &memory));
    watch->polls = memory;
    DDP_TRY(ddp_memory_make(count, 1, &memory));
    watch->running = memory;
    memset(watch->running, 1, count);
    DDP_TRY(ddp_memory_make(count, sizeof *watch->statuses, &memory));
    watch->statuses = memory;
    DDP_TRY(ddp_memory_make((size_t)config->world, 1, &memory));
    watch->quiet = memory;
    DDP_TRY(ddp_memory_make(count, 1, &memory));
    watch->outcome->followed = memory;
    DDP_TRY(ddp_memory_make(count, 1, &memory));
    watch->outcome->killed = memory;
    return NULL;
}

ddp_error *ddp_supervise(const ddp_supervise_config *config, ddp_outcome *outcome)
{
    watch watch = {
        .config = config, .outcome = outcome, .alive = config->count, .term_at = NEVER, .kill_at = NEVER};
    *outcome = (ddp_outcome){.first = -1, .steps = -1};
    ddp_error *error = open_watch(&watch);
    if (error == NULL) {
        run_loop(&watch);
        finish_outcome(&watch);
    } else {
        ddp_supervise_kill(config->children, config->count);
    }
    free(watch.polls);
    free(watch.running);
    free(watch.statuses);
    free(watch.quiet);
    return error;
}

void ddp_outcome_free(ddp_outcome *outcome)
{
    ddp_diagnosis_free(&outcome->diagnosis);
    free(outcome->followed);
    free(outcome->killed);
    outcome->followed = outcome->killed = NULL;
}

void ddp_supervise_kill(ddp_child *children, int count)
{
    for (int i = 0; i < count; i++)
        ddp_child_signal(&children[i], SIGKILL);
    for (int i = 0; i < count; i++)
        if (children[i].pid > 0)
            waitpid(children[i].pid, NULL, 0);
}
