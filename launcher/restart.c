/* Deciding about another attempt. */
#include "launcher/restart.h"

#include <stdio.h>

static bool divides(const ddp_job *job, int64_t ranks)
{
    int64_t unit = job->train.micro_batch == DDP_AUTO ? ranks : job->train.micro_batch * ranks;
    return job->train.global_batch % unit == 0;
}

static int fewer_ranks(const ddp_job *job, int world)
{
    for (int ranks = world - 1; ranks >= job->restart.min_ranks; ranks--)
        if (divides(job, ranks))
            return ranks;
    return 0;
}

ddp_restart_decision ddp_restart_decide(const ddp_job *job, const ddp_restart *restart,
                                        const ddp_failure *failure)
{
    ddp_restart_decision decision = {.ranks = failure->world};
    const ddp_failure *last = restart->has_last ? &restart->last : NULL;
    bool no_step = failure->steps <= failure->from_step;
    if (job->restart.max == 0)
        return decision;
    if (failure->code == 2 || failure->code == 3) {
        snprintf(decision.why, sizeof decision.why, "another attempt would fail alike");
        return decision;
    }
    if (restart->attempts >= job->restart.max) {
        snprintf(decision.why, sizeof decision.why, "restart.max is %d", (int)job->restart.max);
        return decision;
    }
    bool stuck = last != NULL && last->steps == failure->steps && last->saved == failure->saved &&
                 last->world == failure->world;
    if (stuck && no_step)
        decision.ranks = fewer_ranks(job, failure->world);
    if (stuck && !no_step) {
        snprintf(decision.why, sizeof decision.why, "it failed twice after step %lld and came no further",
                 (long long)failure->steps);
        return decision;
    }
    if (decision.ranks == 0) {
        snprintf(
            decision.why, sizeof decision.why,
            "it failed twice before a step was done, and restart.min_ranks and train.global_batch allow no "
            "fewer than %d ranks",
            failure->world);
        return decision;
    }
    decision.again = true;
    return decision;
}
