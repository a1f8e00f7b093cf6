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
#include "launcher/mpirun.h"
#include "launcher/run.h"
#include "launcher/start.h"
#include "launcher/supervise.h"
#include "launcher/verbs.h"
#include "launcher/verdict.h"

#define OUTPUT_PATIENCE_S 2.0 /* for a reader that does not read, at the end */

/* What a running job holds; opened top down, closed bottom up, half-built accepted. */
typedef struct run {
    const ddp_arguments *arguments;
    ddp_job *job;
    ddp_plan plan;
    char *mpirun;
    ddp_rundir rundir;
    int signal_fd, width;
    int64_t events_from;   /* bytes of events.jsonl that earlier runs wrote */
    ddp_output *out, *err; /* the same one where both are one stream */
    ddp_show *show;
    ddp_relay *relay;
    const char **hosts;
    ddp_crew crew;
    ddp_outcome outcome;
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
    ddp_plan_write_json(plan, &json);
    ddp_error *error = json.failed ? ddp_error_make(DDP_ERR_MEMORY, "out of memory")
                                   : ddp_rundir_make(job, ddp_text_get(&json), rundir);
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

/* Host names by rank where lines need them. */
static ddp_error *name_hosts(run *run)
{
    int local_rank, world = run->plan.setup.world;
    if (run->plan.host_count == 1)
        return NULL;
    run->hosts = calloc((size_t)world, sizeof *run->hosts);
    if (run->hosts == NULL)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    for (int rank = 0; rank < world; rank++)
        run->hosts[rank] = ddp_plan_find(&run->plan, rank, &local_rank)->name;
    return NULL;
}

static ddp_error *open_output(run *run)
{
    run->width = terminal_width();
    DDP_TRY(name_hosts(run));
    DDP_TRY(ddp_output_open(STDOUT_FILENO, &run->out));
    if (is_same_stream())
        run->err = run->out;
    else
        DDP_TRY(ddp_output_open(STDERR_FILENO, &run->err));
    ddp_show_config show = {
        .world = run->plan.setup.world,
        .hosts = run->hosts,
        .out = run->out,
        .err = run->err,
        .terminal = run->width > 0,
    };
    DDP_TRY(ddp_show_open(&show, &run->show));
    return ddp_relay_open(run->rundir.path, run->plan.setup.world, run->show, &run->relay);
}

static void measure_events(run *run)
{
    struct stat info;
    char *path = NULL;
    ddp_error *error = ddp_path_join(run->rundir.path, DDP_EVENTS_NAME, &path);
    run->events_from = error == NULL && stat(path, &info) == 0 ? info.st_size : 0;
    ddp_error_free(error);
    free(path);
}

static ddp_error *start_and_watch(run *run)
{
    measure_events(run);
    ddp_start_config start = {
        .plan = &run->plan,
        .run_dir = run->rundir.path,
        .mpirun = run->mpirun,
        .relay = run->relay,
        .width = run->width,
        .started = run->arguments->started,
    };
    DDP_TRY(ddp_start(&start, &run->crew));
    ddp_log(DDP_DEBUG, "launch", "%d process%s started after %.1f ms", run->crew.count,
            run->crew.count == 1 ? "" : "es", since_start_ms(run));
    ddp_supervise_config supervise = {
        .children = run->crew.children,
        .count = run->crew.count,
        .world = run->plan.setup.world,
        .mpirun = run->plan.mpirun,
        .rendezvous = run->crew.rendezvous,
        .relay = run->relay,
        .grace_s = run->job->launch.grace_s,
        .signal_fd = run->signal_fd,
        .err = run->err,
    };
    return ddp_supervise(&supervise, &run->outcome);
}

static void report(run *run)
{
    ddp_text text = {0};
    double seconds = ddp_clock_now() - run->arguments->started;
    ddp_verdict verdict =
        ddp_verdict_make(&run->plan, run->rundir.path, &run->outcome, run->crew.log_from, run->events_from);
    ddp_verdict_write(&verdict, &text);
    ddp_output_add(run->err, ddp_text_get(&text), text.length);
    ddp_text_free(&text);
    ddp_error *error = ddp_verdict_append(&verdict, seconds);
    if (error != NULL)
        ddp_log(DDP_WARN, "launch", "%s", ddp_error_message(error));
    ddp_error_free(error);
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
    ddp_relay_close(run->relay);
    ddp_show_close(run->show);
    if (run->outcome.first >= 0 || run->outcome.interrupted != 0)
        report(run);
    close_output(run);
    ddp_outcome_free(&run->outcome);
    ddp_crew_free(&run->crew);
    if (run->signal_fd >= 0)
        close(run->signal_fd);
    ddp_rundir_close(&run->rundir);
    free(run->hosts);
    free(run->mpirun);
    ddp_plan_free(&run->plan);
    ddp_job_free(run->job);
}

static ddp_error *launch(const ddp_arguments *arguments, int *code)
{
    run run = {.arguments = arguments, .rundir.lock = -1, .signal_fd = -1, .outcome.first = -1};
    ddp_error *error = NULL;
    DDP_GO(check_all(&run));
    DDP_GO(ddp_supervise_block(&run.signal_fd));
    DDP_GO(ddp_run_make_directory(run.job, &run.plan, &run.rundir));
    DDP_GO(open_output(&run));
    DDP_GO(start_and_watch(&run));
    *code = run.outcome.code;
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
    return is_rank ? ddp_run_as_rank(arguments, &config) : launch(arguments, code);
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
