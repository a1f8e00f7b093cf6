/* When the trainer saves, and what. */
#include "runtime/saves.h"

#include <ddp/ddp.h>
#include <gnu/libc-version.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files.h"
#include "core/memory.h"
#include "runtime/checkpoint/restore.h"
#include "runtime/schedule.h"

ddp_error *trainer_resume(ddp_trainer *trainer)
{
    const ddp_trainer_env *env = &trainer->env;
    ddp_checkpoint_state state = {.step = 0};
    if (env->run_dir == NULL)
        return NULL;
    ddp_restore_config config = {
        .setup = env->setup,
        .device = env->device,
        .comm = env->comm,
        .compute = trainer->compute,
        .comm_stream = trainer->comm_stream,
        .arenas = {trainer->weights, trainer->slots[0], trainer->slots[1]},
        .run_dir = env->run_dir,
    };
    DDP_TRY_AS(ddp_restore(&config, &state, &trainer->resumed_from), "resuming");
    if (trainer->resumed_from == NULL)
        return NULL;
    trainer->resumed_step = state.step;
    trainer->updates = state.updates;
    trainer->skipped = (int)state.skipped;
    return NULL;
}

static ddp_error *add_environment(ddp_pairs *pairs, const char *name, const char *value)
{
    ddp_pair *pair = &pairs->at[pairs->count];
    DDP_TRY(ddp_memory_text(name, &pair->name));
    pairs->count++;
    return ddp_memory_text(value, &pair->value);
}

/* What might explain a difference between two runs. */
static ddp_error *describe_environment(ddp_trainer *trainer)
{
    enum { ENTRIES = 6 };
    ddp_pairs *pairs = &trainer->saves.environment;
    char host[256] = "?";
    gethostname(host, sizeof host - 1);
    DDP_TRY(ddp_memory_make(ENTRIES, sizeof *pairs->at, (void **)&pairs->at));
    DDP_TRY(add_environment(pairs, "ddprun", DDP_VERSION));
    DDP_TRY(add_environment(pairs, "compiler", __VERSION__));
    DDP_TRY(add_environment(pairs, "glibc", gnu_get_libc_version()));
    DDP_TRY(add_environment(pairs, "host", host));
    DDP_TRY(add_environment(pairs, "device", trainer->env.device->description));
    return add_environment(pairs, "comm", trainer->env.comm->ops->name);
}

ddp_error *trainer_open_saves(ddp_trainer *trainer)
{
    const ddp_trainer_env *env = &trainer->env;
    if (env->job->checkpoint.every == 0 || env->run_dir == NULL)
        return NULL;
    DDP_TRY_AS(ddp_resume_digest_data(env->setup, &trainer->saves.data), "reading the training set");
    DDP_TRY(ddp_job_settings(env->job, &trainer->saves.job));
    DDP_TRY(describe_environment(trainer));
    DDP_TRY(ddp_path_join(env->run_dir, DDP_CHECKPOINTS, &trainer->saves.directory));
    ddp_saver_config config = {
        .device = env->device,
        .comm = env->comm,
        .params = &env->setup->params,
        .optim = env->job->optimizer.ops,
        .arenas = {trainer->weights, trainer->slots[0], trainer->slots[1]},
        .directory = trainer->saves.directory,
        .job = &trainer->saves.job,
        .environment = &trainer->saves.environment,
        .keep = env->job->checkpoint.keep,
        .keep_best = env->job->checkpoint.keep_best,
        .wait_s = env->job->watchdog.save_s,
    };
    return ddp_saver_open(&config, &trainer->saves.saver);
}

void trainer_close_saves(ddp_trainer *trainer)
{
    ddp_saver_close(trainer->saves.saver);
    ddp_pairs_free(&trainer->saves.job);
    ddp_pairs_free(&trainer->saves.environment);
    free(trainer->saves.directory);
}

bool trainer_save_due(const ddp_trainer *trainer, int64_t step)
{
    int64_t every = trainer->env.job->checkpoint.every;
    return trainer->saves.saver != NULL && (step % every == 0 || step == trainer->env.setup->steps);
}

static ddp_checkpoint_state state_after(const ddp_trainer *trainer, int64_t step)
{
    const ddp_setup *setup = trainer->env.setup;
    return (ddp_checkpoint_state){
        .step = step,
        .samples = ddp_sampler_position(&setup->sampler, step + 1),
        .updates = trainer->updates,
        .skipped = trainer->skipped,
        .steps = setup->steps,
        .seed = trainer->env.job->train.seed,
        .has_eval = trainer->evaluated_step == step && isfinite(trainer->eval_loss),
        .eval_loss = trainer->eval_loss,
        .accuracy = trainer->accuracy,
        .lr = ddp_schedule_lr(trainer->env.job, step, setup->steps),
        .parameters = ddp_params_digest(&setup->params),
        .data = trainer->saves.data,
    };
}

ddp_error *trainer_save(ddp_trainer *trainer, int64_t step)
{
    ddp_checkpoint_state state = state_after(trainer, step);
    DDP_TRY(trainer_end_save(trainer, true));
    if (trainer->env.reporter != NULL)
        ddp_reporter_flush(trainer->env.reporter); /* what a checkpoint goes on from has been told */
    trainer_limit(trainer, trainer->env.job->watchdog.save_s);
    trainer_phase(trainer, "save");
    DDP_TRY_AS(ddp_saver_begin(trainer->saves.saver, trainer->compute, trainer->comm_stream, &state),
               "saving a checkpoint after step %lld", (long long)step);
    trainer_limit_step(trainer);
    return NULL;
}

/* Rank 0 has seen the checkpoint become whole; the others have only written their share. */
static void report(ddp_trainer *trainer, const ddp_saved *saved)
{
    ddp_record record = {.kind = DDP_RECORD_CHECKPOINT, .step = saved->step};
    if (trainer->env.reporter == NULL || trainer->env.comm->rank != 0)
        return;
    snprintf(record.checkpoint.name, sizeof record.checkpoint.name, "%s", saved->name);
    record.checkpoint.bytes = saved->bytes;
    record.checkpoint.seconds = saved->seconds;
    record.checkpoint.blocked_s = saved->blocked_s;
    ddp_reporter_add(trainer->env.reporter, &record);
}

ddp_error *trainer_end_save(ddp_trainer *trainer, bool wait)
{
    bool ended;
    ddp_saved saved;
    if (trainer->saves.saver == NULL)
        return NULL;
    ddp_error *error = ddp_saver_end(trainer->saves.saver, wait, &ended, &saved);
    if (!ended)
        return error;
    if (error == NULL) {
        trainer->saves.saved_step = saved.step;
        report(trainer, &saved);
    }
    if (error == NULL || trainer->env.job->checkpoint.on_error == DDP_ON_ERROR_FAIL)
        return error;
    if (ddp_error_get_kind(error) == DDP_ERR_PEER && trainer->env.comm->rank != 0) {
        ddp_error_free(error); /* the rank it happened to says so */
        return NULL;
    }
    error = ddp_error_help(error, "training goes on; earlier checkpoints are as they were. "
                                  "checkpoint.on_error=fail would end the job");
    ddp_error_print(error, "warning", stderr);
    ddp_error_free(error);
    return NULL;
}
