/* One optimizer step. */
#include <math.h>

#include "core/clock.h"
#include "core/fault.h"
#include "runtime/schedule.h"
#include "runtime/trainer_parts.h"

/* Times of one step in seconds, by what the rank was doing. */
typedef struct times {
    double data, forward, backward, comm, optimizer;
} times;

static double lap(double *since)
{
    double now = ddp_clock_now(), took = now - *since;
    *since = now;
    return took;
}

/* Sends bucket [first, first + count) on its way, behind what compute has produced so far. */
static ddp_error *launch(ddp_trainer *trainer, int first, int count)
{
    if (count == 0)
        return NULL;
    ddp_event_record(trainer->produced, trainer->compute);
    ddp_event_wait(trainer->comm_stream, trainer->produced);
    for (int i = first; i < first + count; i++) {
        const ddp_bucket *bucket = &trainer->buckets.at[i];
        trainer->env.comm->tag = DDP_TAG_BUCKET(i);
        DDP_TRY_AS(ddp_comm_all_reduce(trainer->env.comm, trainer->comm_stream,
                                       trainer->gradients + bucket->begin, bucket->count, DDP_F32, DDP_SUM),
                   "reducing gradient bucket %d of %d", i, trainer->buckets.count);
    }
    return NULL;
}

/* A gradient is final. The poll moves the comm stream on where no thread of its own does. */
static void on_ready(void *argument, int param)
{
    ddp_trainer *trainer = argument;
    int first, count = ddp_buckets_ready(&trainer->buckets, param, &first);
    if (!trainer->env.job->parallel.overlap || trainer->ready_error != NULL)
        return;
    trainer->ready_error = launch(trainer, first, count);
    if (trainer->ready_error == NULL)
        trainer->ready_error = ddp_stream_poll(trainer->comm_stream);
}

static void ignore_ready(void *argument, int param)
{
}

/* DDP_FAULT nan and inf: one bad gradient on this rank, before it is reduced. */
static void hurt_gradient(ddp_trainer *trainer)
{
    bool nan = ddp_fault_due(DDP_FAULT_NAN), inf = ddp_fault_due(DDP_FAULT_INF);
    if (!nan && !inf)
        return;
    float bad = nan ? NAN : INFINITY;
    ddp_stream_copy(trainer->compute, trainer->gradients, &bad, sizeof bad);
}

/* The rank's loss sums leave before the last backward, so their reduction is hidden behind it. With them goes
 * whether this rank was asked to stop: so all stop after the same step. */
static ddp_error *reduce_totals(ddp_trainer *trainer)
{
    trainer->stop_asked = ddp_channel_stop(trainer->env.channel) != 0;
    ddp_stream_copy(trainer->compute, &trainer->totals->stop, &trainer->stop_asked,
                    sizeof trainer->stop_asked);
    ddp_event_record(trainer->produced, trainer->compute);
    ddp_event_wait(trainer->comm_stream, trainer->produced);
    trainer->env.comm->tag = DDP_TAG_LOSS;
    return ddp_comm_all_reduce(trainer->env.comm, trainer->comm_stream, trainer->totals, TRAINER_TOTALS,
                               DDP_F64, DDP_SUM);
}

static ddp_error *run_backward(ddp_trainer *trainer, bool last)
{
    trainer_phase(trainer, "backward");
    if (!last)
        return trainer->model->ops->backward(trainer->model, (ddp_ready){ignore_ready, NULL});
    DDP_TRY_AS(reduce_totals(trainer), "adding up the loss of all ranks");
    ddp_buckets_begin(&trainer->buckets);
    hurt_gradient(trainer);
    ddp_error *error = trainer->model->ops->backward(trainer->model, (ddp_ready){on_ready, trainer});
    error = ddp_error_join(trainer->ready_error, error);
    trainer->ready_error = NULL;
    return error;
}

/* Samples [first, first + count) of a loaded micro-batch, forward and backward. */
static ddp_error *run_tile(ddp_trainer *trainer, const ddp_loader_batch *loaded, int64_t first, int64_t count,
                           bool last, float scale, times *spent, double *clock)
{
    ddp_batch batch = trainer_batch(trainer, loaded->input, loaded->target, first, count);
    trainer_phase(trainer, "forward");
    DDP_TRY(trainer->model->ops->forward(trainer->model, &batch, scale, &trainer->totals->loss));
    spent->forward += lap(clock);
    DDP_TRY(run_backward(trainer, last));
    spent->backward += lap(clock);
    return NULL;
}

static ddp_error *run_micro_batch(ddp_trainer *trainer, int64_t micro, float scale, times *spent,
                                  double *clock)
{
    const ddp_setup *setup = trainer->env.setup;
    ddp_loader_batch loaded;
    trainer_phase(trainer, "load");
    DDP_TRY_AS(ddp_loader_next(trainer->loader, &loaded), "loading a batch");
    if (trainer->trace != NULL)
        for (int64_t i = 0; i < loaded.count; i++)
            trainer->trace[micro * setup->micro_batch + i] = loaded.ids[i];
    spent->data += lap(clock);
    for (int64_t first = 0; first < loaded.count; first += setup->tile) {
        int64_t left = loaded.count - first, count = left < setup->tile ? left : setup->tile;
        bool last = micro == setup->accumulation - 1 && count == left;
        DDP_TRY(run_tile(trainer, &loaded, first, count, last, scale, spent, clock));
    }
    if (!trainer->env.device->ops->host_memory) /* it may still be copying from the loader's buffer */
        DDP_TRY(ddp_stream_wait(trainer->compute));
    spent->backward += lap(clock);
    ddp_loader_release(trainer->loader);
    return NULL;
}

/* Compute goes on only behind the last bucket. */
static ddp_error *finish_reduction(ddp_trainer *trainer)
{
    trainer_phase(trainer, "comm");
    if (!trainer->env.job->parallel.overlap)
        DDP_TRY(launch(trainer, 0, trainer->buckets.count));
    ddp_event_record(trainer->reduced, trainer->comm_stream);
    ddp_event_wait(trainer->compute, trainer->reduced);
    if (trainer->env.device->ops->host_memory)
        return ddp_stream_wait(trainer->comm_stream);
    return NULL;
}

static void update_weights(ddp_trainer *trainer, int64_t step)
{
    const ddp_trainer_env *env = &trainer->env;
    const ddp_kernels *kernels = env->device->kernels;
    double nominal = (double)(env->setup->global_batch * env->setup->sample.items);
    trainer_numbers *numbers = trainer->numbers;
    ddp_stream_zero(trainer->compute, &numbers->sum_squares, sizeof numbers->sum_squares);
    kernels->sum_squares(trainer->compute, &numbers->sum_squares, trainer->gradients,
                         env->setup->params.arena_count);
    kernels->step_scale(trainer->compute, &numbers->scale, &numbers->norm, &numbers->sum_squares,
                        &trainer->totals->loss, nominal, env->job->train.clip_norm);
    for (int i = 0; i < trainer->range_count; i++) {
        const trainer_range *range = &trainer->ranges[i];
        ddp_update update = {
            .stream = trainer->compute,
            .weights = trainer->weights + range->begin,
            .gradients = trainer->gradients + range->begin,
            .count = range->count,
            .scale = &numbers->scale,
            .lr = ddp_schedule_lr(env->job, step, env->setup->steps),
            .decay = range->decay,
            .step = trainer->updates + 1,
        };
        for (int slot = 0; slot < env->job->optimizer.ops->slots; slot++)
            update.slots[slot] = trainer->slots[slot] + range->begin;
        env->job->optimizer.ops->update(env->job->optimizer.settings, &update);
    }
}

/* The one host read of a step. */
static ddp_error *read_numbers(ddp_trainer *trainer, trainer_numbers *numbers, trainer_totals *totals)
{
    ddp_stream_copy(trainer->compute, numbers, trainer->numbers, sizeof *numbers);
    ddp_stream_copy(trainer->compute, totals, trainer->totals, sizeof *totals);
    return ddp_stream_wait(trainer->compute);
}

static void fill_record(const ddp_trainer *trainer, int64_t step, const ddp_loss *totals, const times *spent,
                        double took, ddp_record *record)
{
    const ddp_setup *setup = trainer->env.setup;
    double known = spent->data + spent->forward + spent->backward + spent->comm + spent->optimizer;
    *record = (ddp_record){.kind = DDP_RECORD_STEP, .step = step};
    record->measured.epoch = (step - 1) / setup->steps_per_epoch;
    record->measured.items = (int64_t)totals->items;
    record->measured.loss = totals->sum / totals->items;
    record->measured.lr = ddp_schedule_lr(trainer->env.job, step, setup->steps);
    record->measured.items_per_s = totals->items / took;
    record->measured.step_ms = took * 1e3;
    record->measured.data_ms = spent->data * 1e3;
    record->measured.forward_ms = spent->forward * 1e3;
    record->measured.backward_ms = spent->backward * 1e3;
    record->measured.comm_exposed_ms = spent->comm * 1e3;
    record->measured.optimizer_ms = spent->optimizer * 1e3;
    record->measured.other_ms = (took - known) * 1e3;
}

ddp_error *trainer_step(ddp_trainer *trainer, int64_t step, ddp_record *record, bool *skipped)
{
    const ddp_setup *setup = trainer->env.setup;
    float scale = (float)(1.0 / (double)(setup->global_batch * setup->sample.items));
    double begun = ddp_clock_now(), clock = begun;
    times spent = {0};
    trainer_numbers numbers;
    trainer_totals totals;
    if (ddp_fault_due(DDP_FAULT_OOM))
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory, as DDP_FAULT asks");
    ddp_stream_zero(trainer->compute, trainer->gradients, (size_t)setup->params.arena_count * sizeof(float));
    ddp_stream_zero(trainer->compute, trainer->totals, sizeof *trainer->totals);
    for (int64_t micro = 0; micro < setup->accumulation; micro++)
        DDP_TRY(run_micro_batch(trainer, micro, scale, &spent, &clock));
    DDP_TRY(finish_reduction(trainer));
    spent.comm = lap(&clock);
    trainer_phase(trainer, "step");
    update_weights(trainer, step);
    DDP_TRY(read_numbers(trainer, &numbers, &totals));
    spent.optimizer = lap(&clock);
    fill_record(trainer, step, &totals.loss, &spent, clock - begun, record);
    record->measured.grad_norm = numbers.norm;
    *skipped = numbers.scale < 0;
    trainer->stopping = totals.stop > 0;
    return NULL;
}
