/* The learning rate of a step: a function of the optimizer step alone, never of ranks or accumulation. */
#ifndef DDP_RUNTIME_SCHEDULE_H
#define DDP_RUNTIME_SCHEDULE_H

#include <ddp/job.h>

/* Step counts from 1 to `steps`. Linear warm-up: lr * step / warmup_steps up to step warmup_steps. Then
 * constant; or from lr to final * lr, reached exactly at the last step, along a line or half a cosine. */
double ddp_schedule_lr(const ddp_job *job, int64_t step, int64_t steps);

#endif
