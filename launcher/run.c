/* The verb run: from a job file to its exit code. It checks everything, makes the run directory, starts
 * ranks, watches them. Found under somebody's own mpirun it becomes a rank instead (rank.c). */
#include <ddp/log.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/events.h"
#include "core/fault.h"
#include "core/files.h"
#include "launcher/attempt.h"
#include "launcher/mpirun.h"
#include "launcher/restart.h"
#include "launcher/resume.h"
#include "launcher/run.h"
#include "launcher/verbs.h"
#include "runtime/checkpoint/resume.h"
#include "runtime/checkpoint/shelf.h"

#define OUTPUT_PATIENCE_S 2.0 /* for a reader that does not read, at the end */

/* What a running job holds; opened top down, closed bottom up, half-built accepted. */
typedef struct run {
    const ddp_arguments *arguments;
    ddp_job *job;
    ddp_plan plan;
    char *mpirun;
    ddp_rundir rundir;
    int signal_fd, width;
    ddp_output *out, *err; /* the same one where both are one stream */
    ddp_restart restart;
    int64_t from_step; /* steps done before the present attempt */
} run;

static double since_start_ms(const run *run)
{
    return (ddp_clock_now() - run->arguments->started) * 1e3;
}

/* Everything that can be wrong, before anything exists. */
static ddp_error *check_all(run *run)
{
    DDP_TRY(ddp_verb_load_job(run->arguments, NULL, &run->job));
    DDP_TRY_AS(ddp_fault_load(-1), "reading the environment variable DDP_FAULT");
    ddp_log(DDP_DEBUG, "launch", "job file read after %.1f ms", since_start_ms(run));
    DDP_TRY(ddp_plan_make(run->job, 0, 0, &run->plan));
    if (run->plan.mpirun)
        DDP_TRY(ddp_mpirun_find(run->job, &run->mpirun));
    ddp_log(DDP_DEBUG, "launch", "everything checked after %.1f ms", since_start_ms(run));
    return NULL;
}

ddp_error *ddp_run_make_directory(const ddp_job *job, const ddp_plan *plan, ddp_rundir *rundir)
{
    ddp_text json = {0};
    ddp_continuation how;
    DDP_TRY(ddp_resume_decide(&plan->setup, true, &how));
    ddp_plan_write_json(plan, &json);
    ddp_error *error = json.failed
                           ? ddp_error_make(DDP_ERR_MEMORY, "out of memory")
                           : ddp_rundir_make(job, how != DDP_STARTS_ANEW, ddp_text_get(&json), rundir);
    ddp_text_free(&json);
    return error;
}

/* One terminal, one file, one pipe: then one writer keeps the order of lines. */
static bool is_same_stream(void)
{
    struct stat out, err;
    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
           out.st_ino == err.st_ino;
}

/* Columns of the terminal behind stdout, 0 = none that can be drawn on. */
static int terminal_width(void)
{
    struct winsize size = {0};
    const char *term = getenv("TERM");
    if (!isatty(STDOUT_FILENO) || (term != NULL && strcmp(term, "dumb") == 0))
        return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

static ddp_error *open_output(run *run)
{
    run->width = terminal_width();
    DDP_TRY(ddp_output_open(STDOUT_FILENO, &run->out));
    if (is_same_stream())
        run->err = run->out;
    else
        DDP_TRY(ddp_output_open(STDERR_FILENO, &run->err));
    return NULL;
}

/* Nothing that was written is lost without a word: what did not reach its reader is counted. */
static void close_output(run *run)
{
    static const char *const slow = "its reader did not keep up";
    ddp_output *err = run->err != run->out ? run->err : NULL;
    ddp_output_loss lost =
        run->out != NULL ? ddp_output_close(run->out, OUTPUT_PATIENCE_S) : (ddp_output_loss){0};
    if (err == NULL)
        return;
    if (lost.lines > 0) {
        ddp_text text = {0};
        ddp_text_add(&text, "ddprun: warning: %lld line%s could not be written to standard output (%s)",
                     (long long)lost.lines, lost.lines == 1 ? "" : "s",
                     lost.reason ? strerror(lost.reason) : slow);
        ddp_text_add(&text, "; all of it is in %s/logs\n", run->rundir.path);
        ddp_output_add(err, ddp_text_get(&text), text.length);
        ddp_text_free(&text);
    }
    ddp_output_close(err, OUTPUT_PATIENCE_S);
}

static void close_run(run *run)
{
    close_output(run);
    if (run->signal_fd >= 0)
        close(run->signal_fd);
    ddp_rundir_close(&run->rundir);
    free(run->mpirun);
    ddp_plan_free(&run->plan);
    ddp_job_free(run->job);
}

static int64_t newest_step(const run *run)
{
    char *directory = NULL;
    ddp_shelf shelf = {.at = NULL};
    ddp_error *error = ddp_path_join(run->rundir.path, DDP_CHECKPOINTS, &directory);
    if (error == NULL)
        error = ddp_shelf_list(directory, &shelf);
    int64_t step = error == NULL && shelf.count > 0 ? shelf.at[0].state.step : 0;
    ddp_error_free(error);
    ddp_shelf_free(&shelf);
    free(directory);
    return step;
}

/* The job as the next attempt runs it: from the newest checkpoint of this run, if it has one, whatever
 * checkpoint.resume says of the first. */
static ddp_error *plan_again(run *run, int ranks, bool saved)
{
    char count[48];
    const char *extras[] = {count, saved ? "checkpoint.resume=auto" : NULL, NULL};
    ddp_job *job;
    ddp_text json = {0};
    snprintf(count, sizeof count, "parallel.ranks=%d", ranks);
    DDP_TRY(ddp_verb_load_job_with(run->arguments, extras, &job));
    ddp_plan_free(&run->plan);
    ddp_job_free(run->job);
    run->plan = (ddp_plan){.job = NULL};
    run->job = job;
    run->rundir.path = job->output;
    DDP_TRY(ddp_plan_make(job, 0, 0, &run->plan));
    ddp_plan_write_json(&run->plan, &json);
    ddp_error *error = json.failed ? ddp_error_make(DDP_ERR_MEMORY, "out of memory")
                                   : ddp_rundir_rewrite(job, ddp_text_get(&json));
    ddp_text_free(&json);
    return error;
}

static void say_restart(const run *run, int attempt, int64_t from_step, int ranks)
{
    ddp_text line = {0};
    ddp_text_add(&line, "ddprun: restarting from step %lld with %d rank%s: attempt %d of %d\n",
                 (long long)from_step, ranks, ranks == 1 ? "" : "s", attempt, (int)run->job->restart.max + 1);
    ddp_output_add(run->err, ddp_text_get(&line), line.length);
    ddp_json json = ddp_events_begin(&line, "restart", ddp_clock_unix());
    ddp_json_int(&json, "attempt", attempt);
    ddp_json_int(&json, "from_step", from_step);
    ddp_json_int(&json, "ranks", ranks);
    ddp_error *error = ddp_events_append(run->rundir.path, &json);
    if (error != NULL)
        ddp_log(DDP_WARN, "launch", "%s", ddp_error_message(error));
    ddp_error_free(error);
    ddp_text_free(&line);
}

/* After an attempt that failed: whether there is another one, which is then planned. */
static ddp_error *prepare_restart(run *run, const ddp_attempt *attempt, const ddp_verdict *verdict,
                                  bool *again)
{
    ddp_failure failure = {
        .code = attempt->outcome.code,
        .world = run->plan.setup.world,
        .from_step = run->from_step,
        .steps = verdict->steps,
        .saved = newest_step(run),
    };
    ddp_restart_decision decision = ddp_restart_decide(run->job, &run->restart, &failure);
    *again = decision.again;
    if (!decision.again && decision.why[0] != '\0')
        ddp_log(DDP_WARN, "launch", "no other attempt: %s", decision.why);
    if (!decision.again)
        return NULL;
    run->restart.last = failure;
    run->restart.has_last = true;
    run->restart.attempts++;
    run->from_step = failure.saved;
    DDP_TRY_AS(plan_again(run, decision.ranks, failure.saved > 0), "planning another attempt");
    say_restart(run, run->restart.attempts + 1, failure.saved, decision.ranks);
    return NULL;
}

/* Attempts, until one ends well, is stopped, or was the last. */
static ddp_error *run_attempts(run *run, int *code)
{
    bool again = true;
    ddp_error *error = NULL;
    while (again && error == NULL) {
        ddp_attempt_config config = {
            .plan = &run->plan,
            .run_dir = run->rundir.path,
            .mpirun = run->mpirun,
            .out = run->out,
            .err = run->err,
            .width = run->width,
            .signal_fd = run->signal_fd,
            .number = run->restart.attempts + 1,
            .started = run->arguments->started,
        };
        ddp_attempt attempt;
        again = false;
        error = ddp_attempt_run(&config, &attempt);
        if (error == NULL) {
            ddp_verdict verdict = ddp_attempt_report(&attempt);
            *code = attempt.outcome.code;
            if (ddp_attempt_failed(&attempt))
                error = prepare_restart(run, &attempt, &verdict, &again);
            if (!again)
                ddp_attempt_append_end(&attempt, &verdict);
        }
        ddp_attempt_free(&attempt);
    }
    return error;
}

static ddp_error *launch(const ddp_arguments *arguments, int *code)
{
    run run = {.arguments = arguments, .rundir.lock = -1, .signal_fd = -1};
    ddp_continuation how;
    ddp_error *error = NULL;
    DDP_GO(check_all(&run));
    DDP_GO(ddp_resume_decide(&run.plan.setup, false, &how));
    if (how == DDP_IS_FINISHED) {
        error = ddp_resume_decide(&run.plan.setup, true, &how);
        goto out;
    }
    DDP_GO(ddp_supervise_block(&run.signal_fd));
    DDP_GO(ddp_run_make_directory(run.job, &run.plan, &run.rundir));
    run.from_step = how == DDP_GOES_ON ? newest_step(&run) : 0;
    DDP_GO(open_output(&run));
    error = run_attempts(&run, code);
out:
    close_run(&run);
    return error;
}

static ddp_error *run_verb(const ddp_arguments *arguments, int *code)
{
    ddp_rank_config config;
    bool is_rank = false;
    if (getenv("OMPI_COMM_WORLD_RANK") != NULL && getenv("DDP_RANK") == NULL)
        DDP_TRY(ddp_rank_identify(&config, &is_rank));
    return is_rank ? ddp_run_as_rank(arguments, &config, code) : launch(arguments, code);
}

const ddp_verb ddp_verb_run = {
    .name = "run",
    .usage = "JOB.yaml [key=value ...]",
    .help = "run a job; `ddprun JOB.yaml` is the same",
    .more = "\nThe job file is checked first; what is wrong in it is said all at once, and nothing starts. "
            "Then its ranks run,\n"
            "here or through mpirun (launch.via, launch.hosts), and output, plan and events go to the run "
            "directory (output).\n"
            "key=value sets a key of the job on top of the file: train.steps=20 parallel.ranks=2. `ddprun "
            "keys` lists them.\n"
            "Under `mpirun -np N ddprun JOB.yaml` each process becomes a rank.",
    .max_operands = 1,
    .min_operands = 1,
    .overrides = true,
    .run = run_verb,
};
