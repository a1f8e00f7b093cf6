/* The learning rate of a step. */
#include "runtime/schedule.h"

#include <math.h>

double ddp_schedule_lr(const ddp_job *job, int64_t step, int64_t steps)
{
    double lr = job->optimizer.lr, low = job->schedule.final * lr;
    int64_t warmup = job->schedule.warmup_steps;
    if (step <= warmup)
        return lr * (double)step / (double)warmup;
    if (job->schedule.kind == DDP_SCHEDULE_CONSTANT)
        return lr;
    double done = (double)(step - warmup) / (double)(steps - warmup);
    if (job->schedule.kind == DDP_SCHEDULE_LINEAR)
        return lr + (low - lr) * done;
    return low + (lr - low) * 0.5 * (1 + cos(3.14159265358979323846 * done));
}
