/* One process as a rank: started by ddprun (the hidden verb rank), or by a person's own mpirun. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/files.h"
#include "launcher/first.h"
#include "launcher/keeper.h"
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
    DDP_TRY(ddp_run_make_directory(job, plan, rundir));
    return ddp_first_announce(job->output);
}

/* The others complain later: rank 0 says the same, and mpirun blames, and ends all others with, whoever
 * leaves first. */
static void let_first_speak(void)
{
    ddp_clock_sleep(FIRST_RANK_SPEAKS_S);
}

/* What its keeper cannot see comes through a pipe; a person's own program may print without flushing. */
static ddp_error *run_kept(const ddp_job *job, const ddp_rank_config *config, int *code)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    ddp_error *error = ddp_rank_run(job, config, code);
    if (error != NULL)
        ddp_keeper_tell(config, error);
    if (error != NULL && ddp_error_get_kind(error) == DDP_ERR_PEER && *code == 0)
        let_first_speak();
    return error;
}

static ddp_error *run_keeper(const ddp_arguments *arguments, const ddp_job *job,
                             const ddp_rank_config *config, int *code)
{
    ddp_plan plan = {0};
    ddp_rundir rundir = {.lock = -1};
    ddp_error *error = check_world(job, config);
    if (error == NULL)
        error = prepare_first(job, config, &plan, &rundir);
    ddp_plan_free(&plan);
    if (error != NULL && config->rank != 0)
        let_first_speak();
    if (error == NULL)
        error = ddp_keeper_run(arguments, config, job->output, code);
    ddp_rundir_close(&rundir);
    return error;
}

ddp_error *ddp_run_as_rank(const ddp_arguments *arguments, ddp_rank_config *config, int *code)
{
    ddp_job *job = NULL;
    ddp_error *error = ddp_verb_load_job(arguments, NULL, &job);
    if (error != NULL) {
        if (config->rank != 0)
            let_first_speak();
        return error;
    }
    config->run_dir = job->output;
    if (config->rendezvous_fd >= 0)
        error = run_kept(job, config, code);
    else
        error = run_keeper(arguments, job, config, code);
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
    DDP_GO(ddp_rank_run(job, &config, code));
out:
    if (error != NULL && config.mpi && ddp_error_get_kind(error) == DDP_ERR_PEER && *code == 0)
        let_first_speak(); /* unless mpirun asks it to go already */
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
