/* Words and events about a failed job. */
#include "launcher/verdict.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/events.h"
#include "core/files.h"
#include "core/memory.h"
#include "launcher/mpirun.h"
#include "runtime/rank.h"

#define LOG_BYTES (16u << 20)
#define TAIL_BYTES (1 << 20) /* of the events: the last step is in there */

/* The end of a file from byte `from` on, at most TAIL_BYTES of it, as text; NULL where it cannot be read. */
static char *read_tail(const char *path, int64_t from)
{
    int fd;
    int64_t bytes;
    void *text = NULL;
    ddp_error *error = ddp_file_open(path, &fd, &bytes);
    if (error == NULL) {
        from = bytes - from > TAIL_BYTES ? bytes - TAIL_BYTES : from < bytes ? from : bytes;
        error = ddp_memory_make((size_t)(bytes - from) + 1, 1, &text);
        if (error == NULL)
            error = ddp_file_read(fd, path, from, text, (size_t)(bytes - from));
        close(fd);
    }
    if (error != NULL) {
        free(text);
        text = NULL;
    }
    ddp_error_free(error);
    return text;
}

/* mpirun's ranks share no page with the launcher: what they reported as done is in this run's events. */
static int64_t read_steps(const char *run_dir, int64_t from)
{
    static const char step_event[] = "{\"event\": \"step\"", step_key[] = "\"step\": ";
    char *path = NULL;
    int64_t steps = 0;
    ddp_error *error = ddp_path_join(run_dir, DDP_EVENTS_NAME, &path);
    char *text = error == NULL ? read_tail(path, from) : NULL;
    for (const char *at = text; at != NULL && (at = strstr(at, step_event)) != NULL; at++) {
        const char *step = strstr(at + sizeof step_event - 1, step_key);
        if (step != NULL)
            steps = strtoll(step + sizeof step_key - 1, NULL, 10);
    }
    ddp_error_free(error);
    free(text);
    free(path);
    return steps;
}

static void read_mpirun(ddp_verdict *verdict, long from)
{
    char *path = NULL, *text = NULL;
    size_t bytes;
    ddp_error *error = ddp_path_join(verdict->run_dir, "logs/mpirun.log", &path);
    if (error == NULL)
        error = ddp_file_load(path, LOG_BYTES, &text, &bytes);
    if (error == NULL && (size_t)from <= bytes) {
        ddp_mpirun_failure failure = ddp_mpirun_diagnose(text + from);
        if (failure.rank < verdict->plan->setup.world)
            verdict->rank = failure.rank;
        verdict->pid = failure.pid;
        if (failure.signal != 0 || failure.code != 0) {
            verdict->signal = failure.signal;
            verdict->code = failure.code;
        }
    }
    ddp_error_free(error);
    free(text);
    free(path);
}

ddp_verdict ddp_verdict_make(const ddp_plan *plan, const char *run_dir, const ddp_outcome *outcome,
                             long log_from, int64_t events_from)
{
    int status = outcome->status;
    ddp_verdict verdict = {
        .rank = plan->mpirun ? -1 : outcome->first,
        .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
        .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
        .pid = outcome->pid,
        .hung = outcome->hung,
        .differ = outcome->differ,
        .outcome = outcome,
        .plan = plan,
        .run_dir = run_dir,
    };
    verdict.steps = outcome->steps >= 0 ? outcome->steps : read_steps(run_dir, events_from);
    if (plan->mpirun && outcome->first >= 0)
        read_mpirun(&verdict, log_from);
    return verdict;
}

static const char *name_signal(int signal)
{
    static const char *const names[] = {
        [SIGHUP] = "SIGHUP",   [SIGINT] = "SIGINT",   [SIGQUIT] = "SIGQUIT", [SIGILL] = "SIGILL",
        [SIGTRAP] = "SIGTRAP", [SIGABRT] = "SIGABRT", [SIGBUS] = "SIGBUS",   [SIGFPE] = "SIGFPE",
        [SIGKILL] = "SIGKILL", [SIGUSR1] = "SIGUSR1", [SIGSEGV] = "SIGSEGV", [SIGUSR2] = "SIGUSR2",
        [SIGPIPE] = "SIGPIPE", [SIGALRM] = "SIGALRM", [SIGTERM] = "SIGTERM", [SIGXCPU] = "SIGXCPU",
        [SIGXFSZ] = "SIGXFSZ", [SIGSYS] = "SIGSYS",
    };
    size_t count = sizeof names / sizeof names[0];
    return signal > 0 && (size_t)signal < count && names[signal] != NULL ? names[signal] : "a signal";
}

static void add_cause(const ddp_verdict *verdict, ddp_text *out)
{
    if (verdict->hung)
        ddp_text_add(out, "it was stuck");
    else if (verdict->signal != 0)
        ddp_text_add(out, "killed by signal %d (%s, %s)", verdict->signal, name_signal(verdict->signal),
                     strsignal(verdict->signal));
    else if (verdict->code == 0)
        ddp_text_add(out, "it left with exit code 0 before its work was done");
    else
        ddp_text_add(out, "exit code %d", verdict->code);
    if (verdict->outcome->why[0] != '\0' && verdict->hung)
        ddp_text_add(out, ": %s", verdict->outcome->why);
}

static void add_place(const ddp_verdict *verdict, ddp_text *out)
{
    const ddp_rendezvous_status *at = &verdict->outcome->at;
    if (at->pid == 0 && at->phase[0] == '\0')
        ddp_text_add(out, verdict->plan->mpirun ? "" : ", before it was ready");
    else if (at->step <= 0)
        ddp_text_add(out, ", in phase %s before the first step", at->phase[0] ? at->phase : "start");
    else if (at->phase[0] == '\0')
        ddp_text_add(out, ", in step %lld", (long long)at->step);
    else
        ddp_text_add(out, ", in phase %s of step %lld", at->phase, (long long)at->step);
}

/* Ranks that ended because of the first one: by themselves, or because they had to be killed. */
static void add_set(const ddp_verdict *verdict, bool killed, ddp_text *out)
{
    unsigned char set[DDP_MAX_LOCAL_RANKS] = {0};
    int count = 0, world = verdict->plan->setup.world;
    for (int rank = 0; rank < world && rank < DDP_MAX_LOCAL_RANKS; rank++) {
        set[rank] = verdict->outcome->followed[rank] && (verdict->outcome->killed[rank] != 0) == killed;
        count += set[rank];
    }
    if (count == 0)
        return;
    ddp_text_add(out, "    because of that, rank%s ", count == 1 ? "" : "s");
    ddp_show_add_ranks(out, set, world < DDP_MAX_LOCAL_RANKS ? world : DDP_MAX_LOCAL_RANKS);
    ddp_text_add(out, killed ? " had to be ended\n" : " ended too\n");
}

static void write_interrupted(const ddp_verdict *verdict, ddp_text *out)
{
    int signal = verdict->outcome->interrupted;
    if (verdict->outcome->stopped == DDP_EXIT_SAVED) {
        ddp_text_add(out,
                     "ddprun: stopped after %lld step%s, all of it saved: run it again to go on from there\n",
                     (long long)verdict->steps, verdict->steps == 1 ? "" : "s");
        return;
    }
    if (verdict->outcome->stopped != 0)
        signal = verdict->outcome->stopped - 128;
    ddp_text_add(out, "ddprun: interrupted by %s after %lld step%s; logs are in %s/logs\n",
                 name_signal(signal), (long long)verdict->steps, verdict->steps == 1 ? "" : "s",
                 verdict->run_dir);
}

/* mpirun failed and does not say which rank did. */
static void write_unknown(const ddp_verdict *verdict, ddp_text *out)
{
    ddp_text_add(out, "ddprun: error: mpirun failed: ");
    add_cause(verdict, out);
    ddp_text_add(out, "; its own words are in %s/logs/mpirun.log\n", verdict->run_dir);
}

/* The recorders show who waits for whom; of a plain crash the exit code says enough. */
static bool tells_more(const ddp_verdict *verdict)
{
    ddp_diagnosis_kind kind = verdict->outcome->diagnosis.kind;
    return kind == DDP_DIAGNOSIS_HANG || kind == DDP_DIAGNOSIS_MISMATCH || kind == DDP_DIAGNOSIS_LOST_HOST ||
           kind == DDP_DIAGNOSIS_OOM;
}

void ddp_verdict_write(const ddp_verdict *verdict, ddp_text *out)
{
    int local_rank;
    if (verdict->outcome->interrupted != 0 || verdict->outcome->stopped != 0) {
        write_interrupted(verdict, out);
        return;
    }
    if (tells_more(verdict)) {
        ddp_text_add(out, "ddprun: error: ");
        ddp_diagnosis_write(&verdict->outcome->diagnosis, out);
        ddp_text_add(out, "    logs are in %s/logs; ddprun postmortem %s shows what every rank was doing\n",
                     verdict->run_dir, verdict->run_dir);
        return;
    }
    if (verdict->differ) {
        ddp_text_add(out, "ddprun: error: the ranks do not agree: %s; logs are in %s/logs\n",
                     verdict->outcome->why, verdict->run_dir);
        return;
    }
    if (verdict->rank < 0) {
        write_unknown(verdict, out);
        return;
    }
    ddp_text_add(out, "ddprun: error: rank %d failed first", verdict->rank);
    if (verdict->plan->host_count > 1)
        ddp_text_add(out, " (on %s)", ddp_plan_find(verdict->plan, verdict->rank, &local_rank)->name);
    add_place(verdict, out);
    ddp_text_add(out, ": ");
    add_cause(verdict, out);
    ddp_text_add(out, "; its log is %s/logs/rank-%d.log\n", verdict->run_dir, verdict->rank);
    if (verdict->plan->mpirun) {
        ddp_text_add(out, "    mpirun's own words are in %s/logs/mpirun.log\n", verdict->run_dir);
        return;
    }
    add_set(verdict, false, out);
    add_set(verdict, true, out);
    if (verdict->signal == SIGKILL)
        ddp_text_add(out,
                     "    help: ddprun did not send it; where memory ran out, the kernel did: see dmesg\n");
}

static void add_waiting(const ddp_verdict *verdict, ddp_json *json)
{
    ddp_json_open_array(json, "waiting");
    for (int rank = 0; !verdict->plan->mpirun && rank < verdict->plan->setup.world; rank++)
        if (verdict->outcome->followed[rank])
            ddp_json_int(json, NULL, rank);
    ddp_json_close_array(json);
}

static void add_int(ddp_json *json, const char *key, bool known, int64_t value)
{
    if (known)
        ddp_json_int(json, key, value);
    else
        ddp_json_null(json, key);
}

static const char *name_host(const ddp_verdict *verdict)
{
    int local_rank;
    const char *name =
        verdict->rank >= 0 ? ddp_plan_find(verdict->plan, verdict->rank, &local_rank)->name : "";
    return *name != '\0' ? name : NULL;
}

ddp_error *ddp_verdict_append(const ddp_verdict *verdict)
{
    ddp_text line = {0}, cause = {0};
    const ddp_rendezvous_status *at = &verdict->outcome->at;
    ddp_json json = ddp_events_begin(&line, "verdict", ddp_clock_unix());
    if (tells_more(verdict)) {
        ddp_diagnosis_add_fields(&verdict->outcome->diagnosis, &json);
        ddp_error *error = ddp_events_append(verdict->run_dir, &json);
        ddp_text_free(&line);
        return error;
    }
    if (verdict->differ)
        ddp_text_add(&cause, "%s", verdict->outcome->why);
    else
        add_cause(verdict, &cause);
    ddp_json_text(&json, "kind", verdict->differ ? "mismatch" : verdict->hung ? "hang" : "crash");
    add_int(&json, "rank", verdict->rank >= 0, verdict->rank);
    ddp_json_text(&json, "host", name_host(verdict));
    add_int(&json, "pid", verdict->pid > 0, verdict->pid);
    ddp_json_text(&json, "phase", at->phase[0] ? at->phase : NULL);
    add_int(&json, "step", !verdict->plan->mpirun, at->step);
    ddp_json_null(&json, "seq");
    ddp_json_null(&json, "op");
    add_waiting(verdict, &json);
    ddp_json_text(&json, "cause", ddp_text_get(&cause));
    ddp_json_null(&json, "advice");
    ddp_error *error = ddp_events_append(verdict->run_dir, &json);
    ddp_text_free(&cause);
    ddp_text_free(&line);
    return error;
}

ddp_error *ddp_verdict_append_end(const char *run_dir, const char *outcome, int64_t steps, double seconds,
                                  int code)
{
    ddp_text line = {0};
    ddp_json json = ddp_events_begin(&line, "end", ddp_clock_unix());
    ddp_json_text(&json, "outcome", outcome);
    ddp_json_int(&json, "steps", steps);
    ddp_json_float(&json, "seconds", seconds);
    ddp_json_int(&json, "exit", code);
    ddp_error *error = ddp_events_append(run_dir, &json);
    ddp_text_free(&line);
    return error;
}
