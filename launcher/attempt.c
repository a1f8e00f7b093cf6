/* Start, watch, report. */
#include "launcher/attempt.h"

#include <ddp/log.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "core/events.h"
#include "core/files.h"
#include "core/memory.h"

/* Host names by rank where lines need them. */
static ddp_error *name_hosts(ddp_attempt *attempt)
{
    const ddp_plan *plan = attempt->config->plan;
    void *names;
    int local_rank, world = plan->setup.world;
    if (plan->host_count == 1)
        return NULL;
    DDP_TRY(ddp_memory_make((size_t)world, sizeof *attempt->hosts, &names));
    attempt->hosts = names;
    for (int rank = 0; rank < world; rank++)
        attempt->hosts[rank] = ddp_plan_find(plan, rank, &local_rank)->name;
    return NULL;
}

static ddp_error *open_relay(ddp_attempt *attempt)
{
    const ddp_attempt_config *config = attempt->config;
    DDP_TRY(name_hosts(attempt));
    ddp_show_config show = {
        .world = config->plan->setup.world,
        .hosts = attempt->hosts,
        .out = config->out,
        .err = config->err,
        .terminal = config->width > 0,
    };
    DDP_TRY(ddp_show_open(&show, &attempt->show));
    return ddp_relay_open(config->run_dir, config->plan->setup.world, attempt->show, &attempt->relay);
}

static void measure_events(ddp_attempt *attempt)
{
    struct stat info;
    char *path = NULL;
    ddp_error *error = ddp_path_join(attempt->config->run_dir, DDP_EVENTS_NAME, &path);
    attempt->events_from = error == NULL && stat(path, &info) == 0 ? info.st_size : 0;
    ddp_error_free(error);
    free(path);
}

static ddp_error *start(ddp_attempt *attempt)
{
    const ddp_attempt_config *config = attempt->config;
    const ddp_plan *plan = config->plan;
    DDP_TRY(ddp_watchdog_open(plan->job, config->run_dir, plan->setup.world, &attempt->watchdog));
    DDP_TRY(ddp_channel_listen(plan->setup.world, plan->host_count == 1, &attempt->channel));
    ddp_start_config start = {
        .plan = plan,
        .run_dir = config->run_dir,
        .mpirun = config->mpirun,
        .relay = attempt->relay,
        .control = ddp_channel_address(attempt->channel),
        .width = config->width,
        .attempt = config->number,
        .started = config->started,
    };
    DDP_TRY(ddp_start(&start, &attempt->crew));
    for (int rank = 0; rank < attempt->crew.count && !plan->mpirun; rank++)
        ddp_watchdog_know(attempt->watchdog, rank, attempt->crew.children[rank].pid, NULL);
    return NULL;
}

static void warn_of(ddp_error *error)
{
    if (error != NULL)
        ddp_log(DDP_WARN, "launch", "%s", ddp_error_message(error));
    ddp_error_free(error);
}

static ddp_verdict make_verdict(const ddp_attempt *attempt, const ddp_outcome *outcome)
{
    const ddp_attempt_config *config = attempt->config;
    return ddp_verdict_make(config->plan, config->run_dir, outcome, attempt->crew.log_from,
                            attempt->events_from);
}

static void tell(const ddp_attempt *attempt, const ddp_verdict *verdict, bool failed)
{
    ddp_text text = {0};
    ddp_verdict_write(verdict, &text);
    ddp_output_add(attempt->config->err, ddp_text_get(&text), text.length);
    ddp_text_free(&text);
    if (failed)
        warn_of(ddp_verdict_append(verdict));
}

static void tell_hang(void *argument, const ddp_outcome *outcome)
{
    ddp_attempt *attempt = argument;
    ddp_verdict verdict = make_verdict(attempt, outcome);
    tell(attempt, &verdict, true);
    attempt->told = true;
}

static ddp_error *watch(ddp_attempt *attempt)
{
    const ddp_attempt_config *config = attempt->config;
    ddp_supervise_config supervise = {
        .children = attempt->crew.children,
        .count = attempt->crew.count,
        .world = config->plan->setup.world,
        .mpirun = config->plan->mpirun,
        .rendezvous = attempt->crew.rendezvous,
        .channel = attempt->channel,
        .watchdog = attempt->watchdog,
        .relay = attempt->relay,
        .grace_s = config->plan->job->launch.grace_s,
        .signal_fd = config->signal_fd,
        .err = config->err,
        .on_hang = tell_hang,
        .on_hang_argument = attempt,
    };
    return ddp_supervise(&supervise, &attempt->outcome);
}

ddp_error *ddp_attempt_run(const ddp_attempt_config *config, ddp_attempt *attempt)
{
    *attempt = (ddp_attempt){.config = config, .outcome.first = -1};
    measure_events(attempt);
    ddp_error *error = open_relay(attempt);
    if (error == NULL)
        error = start(attempt);
    if (error == NULL)
        ddp_log(DDP_DEBUG, "launch", "%d process%s started after %.1f ms", attempt->crew.count,
                attempt->crew.count == 1 ? "" : "es", (ddp_clock_now() - config->started) * 1e3);
    if (error == NULL)
        error = watch(attempt);
    ddp_relay_close(attempt->relay);
    ddp_show_close(attempt->show);
    attempt->relay = NULL;
    attempt->show = NULL;
    return error;
}

bool ddp_attempt_failed(const ddp_attempt *attempt)
{
    return attempt->outcome.first >= 0;
}

ddp_verdict ddp_attempt_report(const ddp_attempt *attempt)
{
    const ddp_outcome *outcome = &attempt->outcome;
    ddp_verdict verdict = make_verdict(attempt, outcome);
    bool failed = ddp_attempt_failed(attempt);
    if (!attempt->told && (failed || outcome->interrupted != 0 || outcome->stopped != 0))
        tell(attempt, &verdict, failed);
    return verdict;
}

void ddp_attempt_append_end(const ddp_attempt *attempt, const ddp_verdict *verdict)
{
    const ddp_outcome *outcome = &attempt->outcome;
    bool interrupted = outcome->interrupted != 0;
    if (outcome->stopped != 0 || (!interrupted && !ddp_attempt_failed(attempt)))
        return; /* rank 0 has done it */
    warn_of(ddp_verdict_append_end(attempt->config->run_dir, interrupted ? "interrupted" : "failed",
                                   verdict->steps, ddp_clock_now() - attempt->config->started,
                                   outcome->code));
}

void ddp_attempt_free(ddp_attempt *attempt)
{
    ddp_relay_close(attempt->relay);
    ddp_show_close(attempt->show);
    ddp_outcome_free(&attempt->outcome);
    ddp_crew_free(&attempt->crew);
    ddp_channel_shut(attempt->channel);
    ddp_watchdog_close(attempt->watchdog);
    free(attempt->hosts);
    *attempt = (ddp_attempt){.config = NULL};
}
