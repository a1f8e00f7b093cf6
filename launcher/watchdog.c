/* Looking, and counting the time in which nothing moved. */
#include "launcher/watchdog.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/memory.h"
#include "launcher/evidence.h"

#define RECENT_STEPS 16
#define SLOWEST_FACTOR 5
#define LARGEST_GAP_S 1.0

struct ddp_watchdog {
    const ddp_job *job;
    const char *run_dir;
    ddp_evidence evidence;
    double looked;  /* when, last */
    double latest;  /* newest time in any page */
    double quiet_s; /* for so long nothing newer */
    bool warned;
    int64_t step; /* newest step that was seen to begin, and when */
    double step_since;
    double steps[RECENT_STEPS]; /* seconds of the last ones */
    int step_count;
};

ddp_error *ddp_watchdog_open(const ddp_job *job, const char *run_dir, int world, ddp_watchdog **watchdog)
{
    ddp_watchdog *made;
    DDP_TRY(DDP_NEW(&made));
    made->job = job;
    made->run_dir = run_dir;
    ddp_error *error = ddp_evidence_make(world, &made->evidence);
    if (error != NULL) {
        free(made);
        return error;
    }
    *watchdog = made;
    return NULL;
}

void ddp_watchdog_close(ddp_watchdog *watchdog)
{
    if (watchdog == NULL)
        return;
    ddp_evidence_free(&watchdog->evidence);
    free(watchdog);
}

void ddp_watchdog_know(ddp_watchdog *watchdog, int rank, int pid, const char *host)
{
    watchdog->evidence.ranks[rank].pid = pid;
    watchdog->evidence.ranks[rank].host = host;
}

void ddp_watchdog_lost(ddp_watchdog *watchdog, int rank)
{
    watchdog->evidence.ranks[rank].lost = true;
}

void ddp_watchdog_ended(ddp_watchdog *watchdog, int rank, int status)
{
    watchdog->evidence.ranks[rank].ended = true;
    watchdog->evidence.ranks[rank].status = status;
}

static double endless(double limit_s)
{
    return limit_s > 0 ? limit_s : HUGE_VAL;
}

static double step_limit(const ddp_watchdog *watchdog)
{
    double slowest = 0;
    for (int i = 0; i < watchdog->step_count && i < RECENT_STEPS; i++)
        slowest = fmax(slowest, watchdog->steps[i]);
    return endless(watchdog->job->watchdog.timeout_s) < SLOWEST_FACTOR * slowest
               ? SLOWEST_FACTOR * slowest
               : endless(watchdog->job->watchdog.timeout_s);
}

static double limit_of(const ddp_watchdog *watchdog, const ddp_flight_snapshot *page)
{
    if (page == NULL || page->step <= 0 || strcmp(page->phase, "init") == 0)
        return endless(watchdog->job->watchdog.startup_s);
    if (strcmp(page->phase, "save") == 0)
        return endless(watchdog->job->watchdog.save_s);
    if (strcmp(page->phase, "eval") == 0)
        return endless(watchdog->job->watchdog.eval_s);
    return step_limit(watchdog);
}

static double limit_of_all(const ddp_watchdog *watchdog)
{
    double limit = 0;
    for (int rank = 0; rank < watchdog->evidence.world; rank++)
        if (!watchdog->evidence.ranks[rank].ended)
            limit = fmax(limit, limit_of(watchdog, watchdog->evidence.ranks[rank].page));
    return limit > 0 ? limit : HUGE_VAL;
}

static void note_steps(ddp_watchdog *watchdog, const ddp_flight_snapshot *page)
{
    if (page->step <= watchdog->step)
        return;
    int64_t steps = page->step - watchdog->step;
    if (watchdog->step > 0)
        watchdog->steps[watchdog->step_count++ % RECENT_STEPS] =
            (page->step_since - watchdog->step_since) / (double)steps;
    watchdog->step = page->step;
    watchdog->step_since = page->step_since;
}

/* What is new, and how long nothing has been. */
static void look(ddp_watchdog *watchdog, double now)
{
    double latest = 0, gap = watchdog->looked > 0 ? now - watchdog->looked : 0;
    ddp_evidence_collect(&watchdog->evidence, watchdog->run_dir);
    for (int rank = 0; rank < watchdog->evidence.world; rank++) {
        const ddp_flight_snapshot *page = watchdog->evidence.ranks[rank].page;
        if (page == NULL)
            continue;
        latest = fmax(latest, page->latest);
        note_steps(watchdog, page);
    }
    if (latest > watchdog->latest) {
        watchdog->latest = latest;
        watchdog->quiet_s = fmin(fmax(0, now - latest), fmin(gap, LARGEST_GAP_S));
        watchdog->warned = false;
    } else {
        watchdog->quiet_s += fmin(gap, LARGEST_GAP_S);
    }
    watchdog->looked = now;
}

static ddp_error *diagnose(const ddp_watchdog *watchdog, int first, double limit_s, ddp_diagnosis *diagnosis)
{
    ddp_question question = {
        .ranks = watchdog->evidence.ranks,
        .world = watchdog->evidence.world,
        .now = ddp_clock_now(),
        .first = first,
        .limit_s = limit_s,
    };
    return ddp_diagnose(&question, diagnosis);
}

ddp_error *ddp_watchdog_look(ddp_watchdog *watchdog, ddp_watchdog_view *view, ddp_diagnosis *diagnosis)
{
    double now = ddp_clock_now();
    *view = DDP_ALL_WELL;
    if (now - watchdog->looked < DDP_WATCHDOG_LOOK_S)
        return NULL;
    look(watchdog, now);
    double limit = limit_of_all(watchdog);
    if (watchdog->quiet_s < limit / 2 || (watchdog->quiet_s < limit && watchdog->warned))
        return NULL;
    DDP_TRY(diagnose(watchdog, -1, watchdog->quiet_s, diagnosis));
    *view = watchdog->quiet_s < limit ? DDP_IS_LATE : DDP_HANGS;
    watchdog->warned = true;
    /* A process that has ended is seen by whoever started it. */
    if (diagnosis->kind == DDP_DIAGNOSIS_NOTHING || diagnosis->kind == DDP_DIAGNOSIS_CRASH ||
        diagnosis->kind == DDP_DIAGNOSIS_OOM) {
        ddp_diagnosis_free(diagnosis);
        *view = DDP_ALL_WELL;
    }
    return NULL;
}

ddp_error *ddp_watchdog_judge(ddp_watchdog *watchdog, int first, ddp_diagnosis *diagnosis)
{
    ddp_evidence_collect(&watchdog->evidence, watchdog->run_dir);
    return diagnose(watchdog, first, 0, diagnosis);
}
