/* One rank's life. */
#include "runtime/rank.h"

#include <ddp/ddp.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/crash.h"
#include "core/fault.h"
#include "core/files.h"
#include "core/flight.h"
#include "core/memory.h"
#include "core/text.h"
#include "runtime/agree.h"
#include "runtime/bind.h"
#include "runtime/builtins.h"
#include "runtime/channel.h"
#include "runtime/trainer.h"

#define WEIGHTS_NAME "weights.safetensors"

/* What a rank holds; opened top down, closed bottom up, half-built accepted. */
typedef struct life {
    const ddp_job *job;
    const ddp_rank_config *config;
    ddp_bind_share share;
    ddp_rendezvous *rendezvous;
    ddp_flight *flight; /* NULL where it could not be made */
    ddp_channel *channel;
    ddp_device *device;
    ddp_comm *comm;
    ddp_setup setup;
    ddp_reporter *reporter;
    ddp_trainer *trainer;
    ddp_rank_info *ranks; /* comm's world of them, on every rank */
    char comm_text[64], device_text[272], weights_path[4096];
} life;

static ddp_error *read_number(const char *name, int fallback, int *value)
{
    const char *text = getenv(name);
    int64_t number;
    if (text == NULL) {
        *value = fallback;
        return NULL;
    }
    if (!ddp_text_to_int(text, &number) || number < 0 || number > 1 << 24)
        return ddp_error_make(DDP_ERR_INPUT, "the environment variable %s is \"%s\", not a number", name,
                              text);
    *value = (int)number;
    return NULL;
}

static ddp_error *check_numbers(const ddp_rank_config *config, const char *from)
{
    if (config->rank < 0 || config->world < 1 || config->rank >= config->world || config->local_rank < 0 ||
        config->local_rank >= config->local_world)
        return ddp_error_make(DDP_ERR_INPUT, "%s says rank %d of %d, local rank %d of %d: that is no rank",
                              from, config->rank, config->world, config->local_rank, config->local_world);
    return NULL;
}

ddp_error *ddp_rank_identify(ddp_rank_config *config, bool *is_rank)
{
    static const char *const own[] = {"DDP_RANK", "DDP_WORLD", "DDP_LOCAL_RANK", "DDP_LOCAL_WORLD"};
    static const char *const mpirun[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
    ddp_rank_config found = {.rendezvous_fd = -1, .started = ddp_clock_now()};
    const char *const *names = getenv(own[0]) != NULL ? own : mpirun;
    found.mpi = names == mpirun;
    *is_rank = getenv(names[0]) != NULL;
    if (!*is_rank)
        return NULL;
    int fd = -1;
    DDP_TRY(read_number(names[0], -1, &found.rank));
    DDP_TRY(read_number(names[1], -1, &found.world));
    DDP_TRY(read_number(names[2], -1, &found.local_rank));
    DDP_TRY(read_number(names[3], -1, &found.local_world));
    DDP_TRY(read_number("DDP_RENDEZVOUS_FD", -1, &fd));
    DDP_TRY(read_number("DDP_TERMINAL", 0, &found.width));
    DDP_TRY(check_numbers(&found, found.mpi ? "mpirun" : "the launcher"));
    found.rendezvous_fd = fd;
    const char *started = getenv("DDP_STARTED");
    if (started != NULL)
        ddp_text_to_float(started, &found.started);
    *config = found;
    return NULL;
}

/* launch.env reaches every rank through the job, byte for byte, whatever started it. */
static ddp_error *set_environment(const ddp_job *job)
{
    for (size_t i = 0; i < job->launch.env.count; i++) {
        const ddp_pair *pair = &job->launch.env.at[i];
        if (setenv(pair->name, pair->value, 1) != 0)
            return ddp_error_make(DDP_ERR_INPUT, "launch.env: %s cannot be set", pair->name);
    }
    return NULL;
}

static ddp_error *bind_cores(life *life)
{
    bool bound;
    DDP_TRY_AS(ddp_bind_plan(life->config->local_rank, life->config->local_world, &life->share),
               "choosing cores");
    DDP_TRY(ddp_bind_apply(&life->share, &bound));
    if (!bound)
        ddp_log(DDP_WARN, "bind", "the system refused to bind this rank to cores %s; it runs unbound",
                life->share.cores);
    else
        ddp_log(DDP_DEBUG, "bind", "cores %s", life->share.cores);
    return NULL;
}

/* Which device, and whether the comm stream has a core of its own. */
static ddp_error *open_device(life *life)
{
    enum { AUTO, YES };
    int cores = life->share.count > 0 ? life->share.count : 1;
    int asked = life->job->parallel.comm_thread;
    int threads = life->job->parallel.threads == DDP_AUTO ? cores : (int)life->job->parallel.threads;
    ddp_device_config config = {
        .index = life->setup.gpus > 0 ? life->config->local_rank % life->setup.gpus : 0,
        .threads = threads,
        .comm_thread = life->config->world > 1 && (asked == AUTO ? threads < cores : asked == YES),
        .compute = DDP_F32,
    };
    DDP_TRY(life->setup.device->open(&config, &life->device));
    snprintf(life->device_text, sizeof life->device_text, "%s%s%s%s", life->device->description,
             life->setup.no_gpu[0] ? " (no GPU: " : "", life->setup.no_gpu, life->setup.no_gpu[0] ? ")" : "");
    return NULL;
}

static const ddp_comm_ops *find_comm(const char *name)
{
    for (const ddp_comm_ops *const *ops = ddp_builtin_comms(); *ops != NULL; ops++)
        if (strcmp((*ops)->name, name) == 0)
            return *ops;
    return NULL;
}

static ddp_error *open_comm(life *life)
{
    const ddp_rank_config *config = life->config;
    const char *name = config->world == 1 ? "self" : config->mpi ? "mpi" : "shm";
    const ddp_comm_ops *ops = find_comm(name);
    if (ops == NULL)
        return ddp_error_make(DDP_ERR_INPUT, "the %s communicator is not in this build", name);
    ddp_comm_config comm = {
        .device = life->device,
        .rank = config->rank,
        .world = config->world,
        .local_rank = config->local_rank,
        .local_world = config->local_world,
        .rendezvous_fd = config->rendezvous_fd,
        .timeout_s = life->job->watchdog.startup_s,
    };
    ddp_flight_call meeting = {.op = DDP_FLIGHT_OPEN, .dtype = DDP_U8, .count = config->world};
    uint64_t recorded = ddp_flight_issue(life->flight, &meeting);
    DDP_TRY_AS(ops->open(&comm, &life->comm), "meeting the other ranks");
    ddp_flight_done(life->flight, recorded);
    life->comm->flight = life->flight;
    snprintf(life->comm_text, sizeof life->comm_text, "%s, overlap %s", name,
             life->job->parallel.overlap ? (life->device->config.comm_thread ? "on (own thread)" : "on")
                                         : "off");
    return NULL;
}

/* Every rank tells who it is, in one all-gather. */
static ddp_error *gather_ranks(life *life)
{
    size_t bytes = (size_t)life->comm->world * sizeof *life->ranks;
    void *gathered = NULL, *host = NULL;
    ddp_stream *stream = NULL;
    ddp_error *error = NULL;
    DDP_GO(ddp_memory_make((size_t)life->comm->world, sizeof *life->ranks, &host));
    life->ranks = host;
    ddp_rank_info *mine = &life->ranks[life->comm->rank];
    *mine =
        (ddp_rank_info){.rank = life->comm->rank,
                        .local_rank = life->comm->local_rank,
                        .pid = getpid(),
                        .gpu = life->setup.gpus > 0 ? life->setup.gpu[life->device->config.index].index : -1};
    gethostname(mine->host, sizeof mine->host - 1);
    snprintf(mine->cores, sizeof mine->cores, "%s", life->share.cores);
    DDP_GO(ddp_device_alloc(life->device, bytes, &gathered));
    DDP_GO(ddp_stream_open(life->device, DDP_STREAM_COMM, &stream));
    ddp_stream_copy(stream, gathered, life->ranks, bytes);
    life->comm->tag = DDP_TAG_RANKS;
    DDP_GO(ddp_comm_all_gather(life->comm, stream, gathered, sizeof *mine, DDP_U8));
    DDP_GO(ddp_stream_wait(stream));
    ddp_stream_copy(stream, life->ranks, gathered, bytes);
    DDP_GO(ddp_stream_wait(stream));
out:
    ddp_stream_close(stream);
    ddp_device_free(life->device, gathered);
    return error;
}

static bool traces(const ddp_job *job)
{
    return job->metrics.trace.count > 0;
}

/* Rank 0 reports everything; the others only their traces, straight to the event file. */
static ddp_error *open_reporter(life *life)
{
    const ddp_sink_ops *sinks[8] = {NULL};
    int count = 0;
    if (life->config->rank != 0 && !traces(life->job))
        return NULL;
    for (const ddp_sink_ops *const *ops = ddp_builtin_sinks(); *ops != NULL; ops++)
        if (life->config->rank == 0 || strcmp((*ops)->name, "jsonl") == 0)
            sinks[count++] = *ops;
    ddp_sink_config config = {
        .run_dir = life->config->run_dir,
        .rank = life->config->rank,
        .every = life->job->metrics.every,
        .width = life->config->width,
    };
    return ddp_reporter_open(sinks, &config, &life->reporter);
}

static void report_start(life *life)
{
    const ddp_setup *setup = &life->setup;
    ddp_record record = {.kind = DDP_RECORD_START};
    record.start.job = life->job->name;
    record.start.model = life->job->model.ops->name;
    record.start.device_name = setup->device->name;
    record.start.device = life->device_text;
    record.start.comm = life->comm_text;
    record.start.run_dir = life->config->run_dir;
    record.start.train = setup->train->description;
    record.start.validation = setup->validation ? setup->validation->description : NULL;
    record.start.parameters = setup->params.total_count;
    record.start.buckets = ddp_trainer_buckets(life->trainer);
    record.start.bucket_bytes = (double)setup->params.arena_count * sizeof(float);
    record.start.steps = setup->steps;
    record.start.steps_per_epoch = setup->steps_per_epoch;
    record.start.samples = setup->train->count;
    record.start.dropped = setup->dropped;
    record.start.global_batch = setup->global_batch;
    record.start.micro_batch = setup->micro_batch;
    record.start.accumulation = (int)setup->accumulation;
    record.start.world = life->comm->world;
    record.start.ranks = life->ranks;
    record.start.resumed_from = ddp_trainer_resumed(life->trainer, &record.start.resumed_step);
    record.start.startup_s = ddp_clock_now() - life->config->started;
    ddp_reporter_add(life->reporter, &record);
}

static void report_end(life *life, const ddp_trainer_result *result, int code)
{
    ddp_record record = {.kind = DDP_RECORD_END, .step = result->steps};
    record.end.outcome = result->stopped ? "interrupted" : "done";
    record.end.exit = code;
    record.end.steps = result->steps;
    record.end.items = result->items;
    record.end.skipped = result->skipped;
    record.end.training_s = result->seconds;
    record.end.seconds = ddp_clock_now() - life->config->started;
    record.end.loss = result->loss;
    record.end.eval_loss = result->eval_loss;
    record.end.accuracy = result->accuracy;
    record.end.items_per_s = result->seconds > 0 ? (double)result->items / result->seconds : NAN;
    record.end.weights = result->stopped ? NULL : life->weights_path;
    ddp_reporter_add(life->reporter, &record);
}

static void tell(life *life, const char *phase)
{
    if (life->rendezvous != NULL)
        ddp_rendezvous_tell(life->rendezvous, life->config->local_rank, phase, -1);
    ddp_channel_tell(life->channel, phase, -1);
    ddp_flight_phase(life->flight, phase);
}

/* Without its recorder a rank trains as well; only who looks for the reason of a hang sees less. */
static void open_flight(life *life)
{
    const ddp_rank_config *config = life->config;
    ddp_error *error = ddp_flight_open(config->run_dir, config->rank, config->world, &life->flight);
    if (error != NULL)
        ddp_log(DDP_WARN, "flight", "no flight recorder: %s", ddp_error_message(error));
    ddp_error_free(error);
    ddp_channel_record(life->channel, life->flight);
}

/* mpirun's SIGTERM reaches this process itself; a rank with a keeper (launcher/keeper.h) is its keeper's. */
static bool ended_by_mpirun(const ddp_rank_config *config)
{
    return config->mpi && config->rendezvous_fd < 0;
}

static ddp_error *open_life(life *life)
{
    const ddp_rank_config *config = life->config;
    ddp_log_set_rank(config->rank);
    ddp_crash_catch();
    DDP_TRY(set_environment(life->job));
    DDP_TRY(ddp_fault_load(config->rank));
    if (config->rendezvous_fd >= 0) {
        /* The communicator opens the file once more, on a descriptor of its own; neither goes to what a rank
         * may start itself. */
        int fd = fcntl(config->rendezvous_fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0 || fcntl(config->rendezvous_fd, F_SETFD, FD_CLOEXEC) != 0)
            return ddp_error_errno(errno, "opening the rendezvous that the launcher left in descriptor %d",
                                   config->rendezvous_fd);
        DDP_TRY(ddp_rendezvous_open(fd, &life->rendezvous));
    }
    DDP_TRY(ddp_channel_open(getenv("DDP_CONTROL"), config->rank, ended_by_mpirun(config), &life->channel));
    open_flight(life);
    tell(life, "init");
    ddp_fault_phase("init");
    DDP_TRY(bind_cores(life));
    DDP_TRY(ddp_setup_make(life->job, config->world, config->local_world, 1, &life->setup));
    DDP_TRY(open_device(life));
    DDP_TRY(open_comm(life));
    DDP_TRY(gather_ranks(life));
    DDP_TRY(open_reporter(life));
    ddp_trainer_env env = {
        .job = life->job,
        .setup = &life->setup,
        .device = life->device,
        .comm = life->comm,
        .rendezvous = life->rendezvous,
        .channel = life->channel,
        .reporter = life->reporter,
        .run_dir = config->run_dir,
    };
    return ddp_trainer_open(&env, &life->trainer);
}

/* Asked to stop, and did. Nobody leaves before rank 0 has seen the checkpoint whole and said so: whoever
 * leaves first may take the others along. */
static ddp_error *leave_early(life *life, const ddp_trainer_result *result, int *code)
{
    ddp_stream *stream;
    bool saved;
    DDP_TRY(ddp_stream_open(life->device, DDP_STREAM_COMM, &stream));
    ddp_error *error = ddp_agree_all(life->comm, stream, result->saved, &saved);
    int signal = ddp_channel_stop(life->channel);
    *code = saved ? DDP_EXIT_SAVED : 128 + (signal != 0 ? signal : SIGTERM);
    if (error == NULL && life->config->rank == 0) {
        report_end(life, result, *code);
        ddp_reporter_flush(life->reporter);
    }
    tell(life, "stopped");
    if (error == NULL)
        error = ddp_comm_barrier(life->comm, stream);
    if (error == NULL)
        error = ddp_stream_wait(stream);
    ddp_stream_close(stream);
    return error;
}

static ddp_error *train(life *life, int *code)
{
    ddp_trainer_result result;
    if (life->config->rank == 0)
        report_start(life);
    DDP_TRY(ddp_trainer_run(life->trainer, &result));
    if (result.stopped)
        return leave_early(life, &result, code);
    snprintf(life->weights_path, sizeof life->weights_path, "%s/" WEIGHTS_NAME, life->config->run_dir);
    DDP_TRY_AS(ddp_trainer_save(life->trainer, life->weights_path), "saving the trained weights");
    tell(life, "end");
    if (life->config->rank == 0)
        report_end(life, &result, 0);
    return NULL;
}

static void close_life(life *life)
{
    ddp_trainer_close(life->trainer);
    ddp_channel_close(life->channel);
    ddp_reporter_close(life->reporter);
    ddp_comm_close(life->comm);
    ddp_device_close(life->device);
    ddp_setup_free(&life->setup);
    ddp_rendezvous_close(life->rendezvous);
    ddp_flight_close(life->flight);
    free(life->ranks);
}

ddp_error *ddp_rank_run(const ddp_job *job, const ddp_rank_config *config, int *code)
{
    life life = {.job = job, .config = config};
    *code = 0;
    ddp_channel_block(ended_by_mpirun(config));
    ddp_error *error = open_life(&life);
    if (error == NULL)
        error = train(&life, code);
    int signal = ddp_channel_stop(life.channel);
    if (error != NULL)
        *code = signal != 0 ? 128 + signal : 0;
    if (error != NULL && life.comm != NULL && ddp_error_get_kind(error) != DDP_ERR_PEER)
        ddp_comm_abort(life.comm,
                       ddp_error_message(error)); /* the others end now, and say whose fault it was */
    close_life(&life);
    return error;
}
