/* The trainer's life: memory, start weights, agreement, the loop over steps, evaluation, the end. */
#include "runtime/trainer.h"

#include <ddp/log.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "core/flight.h"
#include "core/memory.h"
#include "core/rng.h"
#include "runtime/agree.h"
#include "runtime/safetensors.h"
#include "runtime/saves.h"
#include "runtime/trainer_parts.h"

#define MIB (1024.0 * 1024.0)
#define LAUNCHER_FIRST_S 1.0
#define HANG_FACTOR 5
#define MAX_SKIPPED 20 /* steps in a row that were not finite: the run has left the road */

void trainer_phase(ddp_trainer *trainer, const char *phase)
{
    if (trainer->env.rendezvous != NULL)
        ddp_rendezvous_tell(trainer->env.rendezvous, trainer->env.comm->local_rank, phase, -1);
    ddp_channel_tell(trainer->env.channel, phase, -1);
    ddp_flight_phase(trainer->env.comm->flight, phase);
    ddp_fault_phase(phase);
}

/* Where a launcher watches, it is the one to say who does not come, before anything ends; ranks wait a little
 * longer. */
void trainer_limit(ddp_trainer *trainer, double seconds)
{
    if (seconds > 0 && trainer->env.channel != NULL)
        seconds += LAUNCHER_FIRST_S;
    trainer->env.comm->timeout_s = seconds;
}

/* Steps may have become slow for good reasons: a hang is five times as slow as the slowest of the last ones.
 */
void trainer_limit_step(ddp_trainer *trainer)
{
    double limit = trainer->env.job->watchdog.timeout_s, slowest = 0;
    for (int i = 0; i < TRAINER_RECENT; i++)
        slowest = trainer->recent_s[i] > slowest ? trainer->recent_s[i] : slowest;
    trainer_limit(trainer, limit > 0 && limit < HANG_FACTOR * slowest ? HANG_FACTOR * slowest : limit);
}

ddp_batch trainer_batch(ddp_trainer *trainer, const void *input, const void *target, int64_t first,
                        int64_t count)
{
    const ddp_sample *sample = &trainer->env.setup->sample;
    size_t input_bytes = (size_t)sample->input_count * ddp_dtype_bytes(sample->input);
    size_t target_bytes = (size_t)sample->target_count * ddp_dtype_bytes(sample->target);
    input = (const char *)input + (size_t)first * input_bytes;
    target = (const char *)target + (size_t)first * target_bytes;
    if (trainer->env.device->ops->host_memory)
        return (ddp_batch){.input = input, .target = target, .count = count};
    ddp_stream_copy(trainer->compute, trainer->input, input, (size_t)count * input_bytes);
    ddp_stream_copy(trainer->compute, trainer->target, target, (size_t)count * target_bytes);
    return (ddp_batch){.input = trainer->input, .target = trainer->target, .count = count};
}

static ddp_error *open_streams(ddp_trainer *trainer)
{
    ddp_device *device = trainer->env.device;
    DDP_TRY(ddp_stream_open(device, DDP_STREAM_COMPUTE, &trainer->compute));
    DDP_TRY(ddp_stream_open(device, DDP_STREAM_COMM, &trainer->comm_stream));
    DDP_TRY(ddp_event_open(device, &trainer->produced));
    return ddp_event_open(device, &trainer->reduced);
}

static ddp_error *alloc_arenas(ddp_trainer *trainer)
{
    const ddp_trainer_env *env = &trainer->env;
    size_t bytes = (size_t)env->setup->params.arena_count * sizeof(float);
    DDP_TRY_AS(ddp_device_alloc(env->device, bytes, (void **)&trainer->weights),
               "making room for the weights");
    DDP_TRY_AS(ddp_comm_alloc(env->comm, bytes, (void **)&trainer->gradients),
               "making room for the gradients");
    DDP_TRY(ddp_comm_alloc(env->comm, sizeof *trainer->totals, (void **)&trainer->totals));
    DDP_TRY(ddp_device_alloc(env->device, sizeof *trainer->numbers, (void **)&trainer->numbers));
    for (int slot = 0; slot < env->job->optimizer.ops->slots; slot++)
        DDP_TRY_AS(ddp_device_alloc(env->device, bytes, (void **)&trainer->slots[slot]),
                   "making room for the optimizer's state");
    return NULL;
}

static ddp_error *alloc_batches(ddp_trainer *trainer)
{
    const ddp_setup *setup = trainer->env.setup;
    ddp_device *device = trainer->env.device;
    size_t input = (size_t)setup->sample.input_count * ddp_dtype_bytes(setup->sample.input);
    size_t target = (size_t)setup->sample.target_count * ddp_dtype_bytes(setup->sample.target);
    if (!device->ops->host_memory) {
        DDP_TRY(ddp_device_alloc(device, (size_t)setup->tile * input, &trainer->input));
        DDP_TRY(ddp_device_alloc(device, (size_t)setup->tile * target, &trainer->target));
    }
    if (setup->validation == NULL)
        return NULL;
    DDP_TRY(ddp_device_alloc_host(device, (size_t)setup->eval_batch * input, &trainer->eval.input));
    DDP_TRY(ddp_device_alloc_host(device, (size_t)setup->eval_batch * target, &trainer->eval.target));
    return ddp_memory_make((size_t)setup->eval_batch, sizeof(int64_t), (void **)&trainer->eval.ids);
}

/* Neighbours in the arena with the same decay flag become one range; gaps go with the parameter before. */
static ddp_error *find_ranges(ddp_trainer *trainer)
{
    const ddp_params *params = &trainer->env.setup->params;
    DDP_TRY(ddp_memory_make((size_t)params->count, sizeof *trainer->ranges, (void **)&trainer->ranges));
    for (int i = params->count - 1; i >= 0; i--) {
        const ddp_param *param = &params->at[i];
        int64_t end = i > 0 ? params->at[i - 1].offset : params->arena_count;
        trainer_range *last = trainer->range_count > 0 ? &trainer->ranges[trainer->range_count - 1] : NULL;
        if (last == NULL || last->decay != param->decay)
            trainer->ranges[trainer->range_count++] =
                (trainer_range){.begin = param->offset, .count = end - param->offset, .decay = param->decay};
        else
            last->count += end - param->offset;
    }
    return NULL;
}

static ddp_error *make_weights(ddp_trainer *trainer)
{
    const ddp_params *params = &trainer->env.setup->params;
    size_t bytes = (size_t)params->arena_count * sizeof(float);
    void *host;
    DDP_TRY(ddp_memory_make((size_t)params->arena_count, sizeof(float), &host));
    ddp_params_init(params, (uint64_t)trainer->env.job->train.seed, host);
    ddp_stream_copy(trainer->compute, trainer->weights, host, bytes);
    ddp_error *error = ddp_stream_wait(trainer->compute);
    free(host);
    return error;
}

static ddp_error *open_model(ddp_trainer *trainer)
{
    const ddp_setup *setup = trainer->env.setup;
    ddp_model_env env = {
        .device = trainer->env.device,
        .stream = trainer->compute,
        .params = &setup->params,
        .weights = trainer->weights,
        .gradients = trainer->gradients,
        .settings = trainer->env.job->model.settings,
        .micro_batch = setup->tile,
    };
    return trainer->env.job->model.ops->open(&env, &trainer->model);
}

static ddp_error *open_loader(ddp_trainer *trainer)
{
    const ddp_setup *setup = trainer->env.setup;
    ddp_loader_config config = {
        .dataset = setup->train,
        .device = trainer->env.device,
        .sampler = setup->sampler,
        .rank = trainer->env.comm->rank,
        .world = trainer->env.comm->world,
        .micro_batch = setup->micro_batch,
        .accumulation = setup->accumulation,
        .first_step = trainer->resumed_step + 1,
        .steps = setup->steps,
        .prefetch = trainer->env.job->data.prefetch,
    };
    return ddp_loader_open(&config, &trainer->loader);
}

static ddp_error *choose_traces(ddp_trainer *trainer)
{
    const ddp_texts *trace = &trainer->env.job->metrics.trace;
    for (size_t i = 0; i < trace->count; i++) {
        trainer->trace_samples |= strcmp(trace->at[i], "samples") == 0;
        trainer->trace_checksum |= strcmp(trace->at[i], "checksum") == 0;
    }
    if (!trainer->trace_samples)
        return NULL;
    const ddp_setup *setup = trainer->env.setup;
    return ddp_memory_make((size_t)(setup->micro_batch * setup->accumulation), sizeof(int64_t),
                           (void **)&trainer->trace);
}

static ddp_error *checksum(ddp_trainer *trainer, uint64_t *value)
{
    size_t bytes = (size_t)trainer->env.setup->params.arena_count * sizeof(float);
    void *host;
    DDP_TRY(ddp_memory_make(bytes, 1, &host));
    ddp_stream_copy(trainer->compute, host, trainer->weights, bytes);
    ddp_error *error = ddp_stream_wait(trainer->compute);
    *value = ddp_rng_hash(0, host, bytes);
    free(host);
    return error;
}

static ddp_error *agree_on_start(ddp_trainer *trainer)
{
    const ddp_setup *setup = trainer->env.setup;
    uint64_t weights;
    DDP_TRY(checksum(trainer, &weights));
    const ddp_claim claims[] = {
        {"the job", ddp_job_digest(trainer->env.job)},
        {"the number of ranks", (uint64_t)trainer->env.comm->world},
        {"the parameter table", ddp_params_digest(&setup->params)},
        {"the gradient buckets", ddp_buckets_digest(&trainer->buckets)},
        {"the number of training samples", (uint64_t)setup->train->count},
        {"the number of validation samples", setup->validation ? (uint64_t)setup->validation->count : 0},
        {"the number of steps", (uint64_t)setup->steps},
        {"the start weights", weights},
        {"the step to go on from", (uint64_t)trainer->resumed_step},
    };
    return ddp_agree(trainer->env.comm, trainer->comm_stream, claims,
                     (int)(sizeof claims / sizeof claims[0]));
}

static ddp_error *make_buckets(ddp_trainer *trainer)
{
    const ddp_job *job = trainer->env.job;
    double mib = job->parallel.bucket_mb > 0 ? job->parallel.bucket_mb : DDP_AUTO_BUCKET_MIB;
    return ddp_buckets_make(&trainer->env.setup->params, job->parallel.first_bucket_mb * MIB, mib * MIB,
                            &trainer->buckets);
}

static ddp_error *open_parts(ddp_trainer *trainer)
{
    DDP_TRY(open_streams(trainer));
    DDP_TRY(alloc_arenas(trainer));
    DDP_TRY(alloc_batches(trainer));
    DDP_TRY(find_ranges(trainer));
    DDP_TRY(make_weights(trainer));
    DDP_TRY(trainer_resume(trainer));
    DDP_TRY_AS(open_model(trainer), "opening the model");
    DDP_TRY(make_buckets(trainer));
    DDP_TRY(choose_traces(trainer));
    DDP_TRY(agree_on_start(trainer));
    DDP_TRY(trainer_open_saves(trainer));
    return open_loader(trainer);
}

ddp_error *ddp_trainer_open(const ddp_trainer_env *env, ddp_trainer **trainer)
{
    ddp_trainer *made;
    DDP_TRY(DDP_NEW(&made));
    made->env = *env;
    ddp_error *error = open_parts(made);
    if (error != NULL) {
        ddp_trainer_close(made);
        return error;
    }
    *trainer = made;
    return NULL;
}

void ddp_trainer_close(ddp_trainer *trainer)
{
    if (trainer == NULL)
        return;
    ddp_device *device = trainer->env.device;
    trainer_close_saves(trainer);
    ddp_loader_close(trainer->loader);
    ddp_model_close(trainer->model);
    ddp_stream_close(trainer->comm_stream);
    ddp_stream_close(trainer->compute);
    ddp_event_close(trainer->produced);
    ddp_event_close(trainer->reduced);
    for (int slot = 0; slot < DDP_MAX_SLOTS; slot++)
        ddp_device_free(device, trainer->slots[slot]);
    ddp_device_free(device, trainer->weights);
    ddp_device_free(device, trainer->numbers);
    ddp_device_free(device, trainer->input);
    ddp_device_free(device, trainer->target);
    ddp_comm_free(trainer->env.comm, trainer->gradients);
    ddp_comm_free(trainer->env.comm, trainer->totals);
    ddp_device_free_host(device, trainer->eval.input);
    ddp_device_free_host(device, trainer->eval.target);
    free(trainer->eval.ids);
    free(trainer->trace);
    free(trainer->ranges);
    free(trainer->resumed_from);
    ddp_buckets_free(&trainer->buckets);
    free(trainer);
}

const char *ddp_trainer_resumed(const ddp_trainer *trainer, int64_t *step)
{
    *step = trainer->resumed_step;
    return trainer->resumed_from;
}

int ddp_trainer_buckets(const ddp_trainer *trainer)
{
    return trainer->buckets.count;
}

static void report(ddp_trainer *trainer, const ddp_record *record)
{
    if (trainer->env.reporter != NULL)
        ddp_reporter_add(trainer->env.reporter, record);
}

static ddp_error *report_trace(ddp_trainer *trainer, int64_t step)
{
    const ddp_setup *setup = trainer->env.setup;
    ddp_record record = {.kind = DDP_RECORD_TRACE, .step = step};
    if (!trainer->trace_samples && !trainer->trace_checksum)
        return NULL;
    record.trace.rank = trainer->env.comm->rank;
    record.trace.samples = trainer->trace;
    record.trace.count = setup->micro_batch * setup->accumulation;
    record.trace.has_checksum = trainer->trace_checksum;
    if (trainer->trace_checksum)
        DDP_TRY(checksum(trainer, &record.trace.checksum));
    report(trainer, &record);
    return NULL;
}

/* A skipped step left the weights as they were. Many in a row: no good will come any more. */
static ddp_error *count_skip(ddp_trainer *trainer, const ddp_record *stepped, bool skipped)
{
    int64_t step = stepped->step;
    if (!skipped) {
        trainer->updates++;
        trainer->skipped = 0;
        return NULL;
    }
    ddp_record record = {.kind = DDP_RECORD_SKIP, .step = step};
    record.skip.reason = stepped->measured.items == 0       ? "every target is masked: nothing to learn from"
                         : isfinite(stepped->measured.loss) ? "a gradient is not finite"
                                                            : "the loss is not finite";
    record.skip.rank = -1;
    report(trainer, &record);
    if (++trainer->skipped < MAX_SKIPPED)
        return NULL;
    return ddp_error_help(ddp_error_make(DDP_ERR_NUMERIC,
                                         "%d steps in a row were not finite; the last good one was step %lld",
                                         MAX_SKIPPED, (long long)(step - MAX_SKIPPED)),
                          "a lower optimizer.lr, train.clip_norm or a longer schedule.warmup_steps may help");
}

static ddp_error *evaluate(ddp_trainer *trainer, int64_t step, ddp_trainer_result *result)
{
    ddp_loss totals;
    trainer_limit(trainer, trainer->env.job->watchdog.eval_s);
    DDP_TRY(trainer_evaluate(trainer, &totals));
    trainer_limit_step(trainer);
    if (totals.items == 0)
        return ddp_error_make(DDP_ERR_INPUT,
                              "every target of the validation set is masked: there is nothing to count");
    ddp_record record = {.kind = DDP_RECORD_EVAL, .step = step};
    record.eval.items = (int64_t)totals.items;
    record.eval.loss = totals.sum / totals.items;
    record.eval.accuracy = trainer->env.setup->sample.target == DDP_I32 ? totals.correct / totals.items : NAN;
    report(trainer, &record);
    result->eval_loss = trainer->eval_loss = record.eval.loss;
    result->accuracy = trainer->accuracy = record.eval.accuracy;
    trainer->evaluated_step = step;
    return NULL;
}

static bool eval_due(const ddp_trainer *trainer, int64_t step)
{
    const ddp_job *job = trainer->env.job;
    int64_t every = job->train.eval_every;
    return trainer->env.setup->validation != NULL &&
           (step == trainer->env.setup->steps || (every > 0 && step % every == 0) ||
            (job->checkpoint.keep_best && trainer_save_due(trainer, step)));
}

/* One step, and what is due after it. */
static ddp_error *run_step(ddp_trainer *trainer, int64_t step, ddp_trainer_result *result)
{
    ddp_record record;
    bool skipped;
    ddp_fault_set_step(step);
    if (trainer->env.rendezvous != NULL)
        ddp_rendezvous_tell(trainer->env.rendezvous, trainer->env.comm->local_rank, NULL, step);
    ddp_channel_tell(trainer->env.channel, NULL, step);
    ddp_flight_step(trainer->env.comm->flight, step);
    DDP_TRY_AS(trainer_step(trainer, step, &record, &skipped), "training step %lld", (long long)step);
    report(trainer, &record);
    DDP_TRY(report_trace(trainer, step));
    DDP_TRY(count_skip(trainer, &record, skipped));
    result->steps = step;
    result->skipped += skipped;
    result->items += record.measured.items;
    result->seconds += record.measured.step_ms * 1e-3;
    trainer->recent_s[step % TRAINER_RECENT] = record.measured.step_ms * 1e-3;
    trainer_limit_step(trainer);
    result->loss = record.measured.loss;
    if (eval_due(trainer, step))
        DDP_TRY_AS(evaluate(trainer, step, result), "evaluating after step %lld", (long long)step);
    result->stopped = trainer->stopping && step < trainer->env.setup->steps;
    if (trainer_save_due(trainer, step) || (result->stopped && trainer->saves.saver != NULL))
        DDP_TRY(trainer_save(trainer, step));
    return trainer_end_save(trainer, false);
}

ddp_error *ddp_trainer_run(ddp_trainer *trainer, ddp_trainer_result *result)
{
    const ddp_setup *setup = trainer->env.setup;
    trainer_limit_step(trainer);
    *result =
        (ddp_trainer_result){.steps = trainer->resumed_step, .loss = NAN, .eval_loss = NAN, .accuracy = NAN};
    if (trainer->resumed_step >= setup->steps)
        return NULL;
    for (int64_t step = trainer->resumed_step + 1; step <= setup->steps && !result->stopped; step++)
        DDP_TRY(run_step(trainer, step, result));
    DDP_TRY(trainer_end_save(trainer, true));
    result->saved = trainer->saves.saved_step == result->steps;
    if (result->stopped)
        return NULL;
    if (setup->validation != NULL && !isfinite(result->eval_loss))
        return ddp_error_help(
            ddp_error_make(DDP_ERR_NUMERIC, "the validation loss is not finite: the weights are of no use"),
            "a lower optimizer.lr, train.clip_norm or a longer schedule.warmup_steps may help");
    if (trainer->updates == 0)
        return ddp_error_help(ddp_error_make(DDP_ERR_NUMERIC,
                                             "all %lld steps were skipped: nothing was learnt",
                                             (long long)setup->steps),
                              "the skip lines above say why");
    return NULL;
}

ddp_error *ddp_trainer_save(ddp_trainer *trainer, const char *path)
{
    const ddp_params *params = &trainer->env.setup->params;
    size_t bytes = (size_t)params->arena_count * sizeof(float);
    ddp_claim claim = {"the trained weights", 0};
    void *host;
    trainer_limit(trainer, trainer->env.job->watchdog.save_s);
    trainer_phase(trainer, "save");
    DDP_TRY(checksum(trainer, &claim.value));
    DDP_TRY(ddp_agree(trainer->env.comm, trainer->comm_stream, &claim, 1));
    if (trainer->env.comm->rank != 0)
        return NULL;
    DDP_TRY(ddp_memory_make(bytes, 1, &host));
    ddp_stream_copy(trainer->compute, host, trainer->weights, bytes);
    ddp_error *error = ddp_stream_wait(trainer->compute);
    if (error == NULL)
        error = ddp_safetensors_save(path, params, host);
    free(host);
    return error;
}
