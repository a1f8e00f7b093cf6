/* One process as a rank: started by ddprun (the hidden verb rank), or by a person's own mpirun. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <ddp/log.h>

#include "core/clock.h"
#include "core/events.h"
#include "core/files.h"
#include "launcher/relay.h"
#include "launcher/run.h"

#define FIRST_RANK_SPEAKS_S 1.0

static ddp_error *check_world(const ddp_job *job, const ddp_rank_config *config)
{
    if (job->parallel.ranks == DDP_AUTO || job->parallel.ranks == config->world)
        return NULL;
    return ddp_error_help(ddp_error_at(DDP_ERR_INPUT, ddp_job_where(job, &job->parallel.ranks),
                                       "parallel.ranks: the job asks for %lld ranks, but mpirun started %d",
                                       (long long)job->parallel.ranks, config->world),
                          "mpirun -np %lld, or parallel.ranks=auto", (long long)job->parallel.ranks);
}

static ddp_error *prepare_first(const ddp_job *job, const ddp_rank_config *config, ddp_plan *plan,
                                ddp_rundir *rundir)
{
    if (config->rank != 0)
        return NULL;
    DDP_TRY(ddp_plan_make(job, config->world, config->local_world, plan));
    return ddp_run_make_directory(job, plan, rundir);
}

/* There is no launcher of ours to write it. */
static void append_end(const char *run_dir, const ddp_error *cause, double seconds)
{
    ddp_text line = {0};
    ddp_json json = ddp_events_begin(&line, "end", ddp_clock_unix());
    ddp_json_text(&json, "outcome", "failed");
    ddp_json_text(&json, "cause", ddp_error_message(cause));
    ddp_json_float(&json, "seconds", seconds);
    ddp_json_int(&json, "exit", ddp_error_exit_code(cause));
    ddp_error *error = ddp_events_append(run_dir, &json);
    if (error != NULL)
        ddp_log(DDP_WARN, "launch", "%s", ddp_error_message(error));
    ddp_error_free(error);
    ddp_text_free(&line);
}

ddp_error *ddp_run_as_rank(const ddp_arguments *arguments, ddp_rank_config *config)
{
    ddp_job *job = NULL;
    ddp_plan plan = {0};
    ddp_rundir rundir = {.lock = -1};
    ddp_error *error = ddp_verb_load_job(arguments, NULL, &job);
    if (error == NULL)
        error = check_world(job, config);
    if (error == NULL)
        error = prepare_first(job, config, &plan, &rundir);
    if (error != NULL && config->rank != 0)
        ddp_clock_sleep(
            FIRST_RANK_SPEAKS_S); /* rank 0 says the same, and mpirun ends all when one has ended */
    if (error == NULL) {
        config->run_dir = job->output;
        config->started = arguments->started;
        error = ddp_rank_run(job, config);
        if (error != NULL && config->rank == 0)
            append_end(job->output, error, ddp_clock_now() - config->started);
    }
    ddp_rundir_close(&rundir);
    ddp_plan_free(&plan);
    ddp_job_free(job);
    return error;
}

/* A rank that mpirun started for ddprun: it ends with mpirun, and its output goes to a file that ddprun
 * follows, because mpirun's own forwarding cuts lines at 4 KiB and mixes in its own words. Only rank 0's
 * stdout takes that way. */
static ddp_error *join_mpirun(const ddp_rank_config *config)
{
    char *path;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() == 1)
        return ddp_error_make(DDP_ERR_PEER, "mpirun ended before rank %d began", config->rank);
    DDP_TRY(ddp_relay_raw_path(config->run_dir, config->rank, &path));
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    ddp_error *error = NULL;
    if (fd < 0)
        error = ddp_error_help(ddp_error_errno(errno, "opening %s", path),
                               "all hosts must reach the run directory");
    else if (dup2(fd, STDERR_FILENO) < 0 || (config->rank != 0 && dup2(fd, STDOUT_FILENO) < 0))
        error = ddp_error_errno(errno, "writing to %s", path);
    if (fd >= 0)
        close(fd);
    free(path);
    return error;
}

static ddp_error *rank_verb(const ddp_arguments *arguments, int *code)
{
    ddp_rank_config config;
    bool is_rank;
    char *path = NULL;
    ddp_job *job = NULL;
    ddp_error *error = NULL;
    DDP_TRY(ddp_rank_identify(&config, &is_rank));
    if (!is_rank)
        return ddp_error_help(
            ddp_error_make(DDP_ERR_INPUT,
                           "ddprun rank is what ddprun starts; by itself it has nobody to meet"),
            "ddprun JOB.yaml runs a job");
    config.run_dir = arguments->operands[0];
    if (config.mpi)
        DDP_TRY(join_mpirun(&config));
    DDP_GO(ddp_path_join(config.run_dir, "resolved.yaml", &path));
    DDP_GO(ddp_job_load(path, NULL, 0, &job));
    DDP_GO(ddp_rank_run(job, &config));
out:
    if (error != NULL && config.mpi && ddp_error_get_kind(error) == DDP_ERR_PEER)
        ddp_clock_sleep(
            FIRST_RANK_SPEAKS_S); /* mpirun blames, and ends all others with, whoever leaves first */
    ddp_job_free(job);
    free(path);
    return error;
}

const ddp_verb ddp_verb_rank = {
    .name = "rank",
    .usage = "RUN_DIR",
    .help = "one rank of a job; only ddprun starts it",
    .min_operands = 1,
    .max_operands = 1,
    .hidden = true,
    .run = rank_verb,
};
