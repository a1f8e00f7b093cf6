/* What the trainer relies on: ready once a parameter and only when final, in the arena's order; the same bits
 * every time; memory as planned; misuse and impossible settings are errors. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/cases.h"
#include "support/test.h"

typedef struct watch {
    const trial *t;
    float *seen; /* each gradient as it was when ready was called */
    int *calls, order[256], count;
} watch;

static void note(void *arg, int param)
{
    watch *w = arg;
    const ddp_param *p = &w->t->params.at[param];
    w->calls[param]++;
    w->order[w->count++] = param;
    memcpy(w->seen + p->offset, w->t->gradients + p->offset, (size_t)p->count * sizeof(float));
}

static void check_ready(const char *name, trial *t)
{
    size_t bytes = (size_t)t->params.arena_count * sizeof(float);
    watch w = {.t = t, .seen = calloc(1, bytes), .calls = calloc((size_t)t->params.count, sizeof(int))};
    ddp_ready ready = {note, &w};
    trial_run(t, 0, t->samples, 1, &ready);
    cr_assert_eq(w.count, t->params.count, "%s: %d calls", name, w.count);
    for (int p = 0; p < t->params.count; p++) {
        cr_assert_eq(w.calls[p], 1, "%s: %s: %d calls", name, t->params.at[p].name, w.calls[p]);
        cr_assert_eq(w.order[p], t->params.count - 1 - p, "%s: call %d was for %s", name, p,
                     t->params.at[w.order[p]].name);
    }
    cr_assert_eq(memcmp(w.seen, t->gradients, bytes), 0, "%s: a gradient changed after ready", name);
    free(w.seen);
    free(w.calls);
}

Test(models, ready_once_and_only_when_final, .timeout = 60)
{
    model_case cases[CASES];
    cases_make(cases);
    for (int n = 0; n < CASES; n++) {
        trial t;
        trial_open(&t, cases[n].ops, cases[n].settings, cases[n].samples);
        check_ready(cases[n].name, &t);
        check_ready(cases[n].name, &t); /* a second micro-batch adds to the first */
        trial_close(&t);
    }
    cases_free(cases);
}

Test(models, same_bits_every_time, .timeout = 60)
{
    model_case cases[CASES];
    cases_make(cases);
    for (int n = 0; n < CASES; n++) {
        trial t;
        trial_open(&t, cases[n].ops, cases[n].settings, cases[n].samples);
        size_t bytes = (size_t)t.params.arena_count * sizeof(float);
        float *first = malloc(bytes);
        trial_run(&t, 0, t.samples, 1, NULL);
        memcpy(first, t.gradients, bytes);
        ddp_loss loss = t.loss;
        memset(t.gradients, 0, bytes);
        t.loss = (ddp_loss){0};
        trial_run(&t, 0, 1, 1, NULL); /* something smaller between: nothing of it may stay */
        memset(t.gradients, 0, bytes);
        t.loss = (ddp_loss){0};
        trial_run(&t, 0, t.samples, 1, NULL);
        cr_assert_eq(memcmp(first, t.gradients, bytes), 0, "%s", cases[n].name);
        cr_assert_eq(memcmp(&loss, &t.loss, sizeof loss), 0, "%s", cases[n].name);
        free(first);
        trial_close(&t);
    }
    cases_free(cases);
}

static void check_message(ddp_error *error, ddp_error_kind kind, const char *message)
{
    cr_assert_not_null(error);
    cr_assert_str_eq(ddp_error_message(error), message);
    cr_assert_eq(ddp_error_get_kind(error), kind);
    ddp_error_free(error);
}

/* A device that counts what is allocated through it. */
static const ddp_device_ops *counted;
static size_t counted_bytes, counted_calls;

static ddp_error *count_alloc(ddp_device *device, size_t bytes, void **memory)
{
    counted_bytes += bytes;
    counted_calls++;
    return counted->alloc(device, bytes, memory);
}

Test(models, memory_is_as_planned_and_steps_take_none, .timeout = 60)
{
    model_case cases[CASES];
    cases_make(cases);
    for (int n = 0; n < CASES; n++) {
        trial t;
        trial_open(&t, cases[n].ops, cases[n].settings, cases[n].samples);
        ddp_model_env env = t.model->env;
        ddp_device_ops ops = *t.device->ops;
        counted = t.device->ops;
        ops.alloc = count_alloc;
        t.device->ops = &ops;
        ddp_model_close(t.model);
        counted_bytes = counted_calls = 0;
        check_ok(t.ops->open(&env, &t.model));
        cr_assert_eq((int64_t)counted_bytes, t.ops->activation_bytes(t.settings, t.samples), "%s: %zu",
                     cases[n].name, counted_bytes);
        cr_assert_eq(counted_calls, 1);
        trial_run(&t, 0, t.samples, 1, NULL);
        cr_assert_eq(counted_calls, 1, "%s", cases[n].name);
        t.device->ops = counted;
        trial_close(&t);
    }
    cases_free(cases);
}

static void never(void *arg, int param)
{
    cr_assert_fail("ready was called for %d", param);
}

Test(models, misuse_is_an_error, .timeout = 20)
{
    model_case cases[CASES];
    cases_make(cases);
    for (int n = 0; n < CASES; n++) {
        trial t;
        trial_open(&t, cases[n].ops, cases[n].settings, cases[n].samples);
        const char *untrained = "backward without a forward with scale > 0 before it";
        ddp_batch batch = trial_batch(&t, 0, t.samples);
        ddp_ready ready = {never, NULL};
        check_message(t.ops->backward(t.model, ready), DDP_ERR_INTERNAL, untrained);
        trial_run(&t, 0, t.samples, 0, NULL);
        check_message(t.ops->backward(t.model, ready), DDP_ERR_INTERNAL, untrained);
        trial_run(&t, 0, t.samples, 1, NULL);
        check_message(t.ops->backward(t.model, ready), DDP_ERR_INTERNAL, untrained);
        batch.count = 7;
        check_message(t.ops->forward(t.model, &batch, 1, &t.loss), DDP_ERR_INTERNAL,
                      "a batch of 7 samples; the model was opened for 1 to 6");
        batch.count = 0;
        check_message(t.ops->forward(t.model, &batch, 1, &t.loss), DDP_ERR_INTERNAL,
                      "a batch of 0 samples; the model was opened for 1 to 6");
        trial_close(&t);
    }
    ddp_model_close(NULL);
    cases_free(cases);
}

static ddp_error *refuse_alloc(ddp_device *device, size_t bytes, void **memory)
{
    return ddp_error_make(DDP_ERR_MEMORY, "%zu bytes are too many", bytes);
}

/* Sizes whose product no integer holds: counted up to a limit, then refused by the device. */
Test(models, too_large_a_model_is_refused, .timeout = 20)
{
    trial t;
    void *settings = case_gpt(2, 3, 33, 13, 57), *huge = case_gpt(1000, 1, 1 << 17, 1 << 20, 1 << 24);
    trial_open(&t, &ddp_model_gpt_ops, settings, 1);
    ddp_model_env env = t.model->env;
    ddp_model *model = NULL;
    ddp_device_ops ops = *t.device->ops;
    counted = t.device->ops;
    ops.alloc = refuse_alloc;
    t.device->ops = &ops;
    env.settings = huge;
    env.micro_batch = INT64_C(1) << 40;
    check_message(t.ops->open(&env, &model), DDP_ERR_MEMORY, "2305843009213693951 bytes are too many");
    cr_assert_null(model);
    t.device->ops = counted;
    trial_close(&t);
    free(settings);
    free(huge);
}

Test(gpt, width_must_divide_over_heads, .timeout = 20)
{
    ddp_sample sample;
    ddp_params params = {0};
    void *settings = case_gpt(2, 3, 100, 13, 57);
    FILE *text = tmpfile();
    ddp_error *error = ddp_model_gpt_ops.sample(settings, &sample);
    char printed[256] = "";
    ddp_error_print(error, "error", text);
    rewind(text);
    cr_assert_gt(fread(printed, 1, sizeof printed - 1, text), 0);
    cr_assert_str_eq(printed, "ddprun: error: model.width: 100 does not divide over 3 heads\n"
                              "    help: 99 or 102 would\n");
    fclose(text);
    ddp_error_free(error);
    check_message(ddp_model_gpt_ops.describe(settings, &params), DDP_ERR_INPUT,
                  "model.width: 100 does not divide over 3 heads");
    cr_assert_eq(params.count, 0);
    free(settings);
}

/* GPT-2 124M: the known number of parameters, start values, and the operations a token. */
Test(gpt, gpt2_124m_is_gpt2_124m, .timeout = 20)
{
    void *settings = case_gpt(12, 12, 768, 1024, 50257);
    ddp_params params = {0};
    check_ok(ddp_model_gpt_ops.describe(settings, &params));
    check_ok(ddp_params_seal(&params));
    cr_assert_eq(params.total_count, 124439808, "%lld", (long long)params.total_count);
    cr_assert_eq(params.count, 148);
    for (int p = 0; p < params.count; p++) {
        const ddp_param *param = &params.at[p];
        bool matrix = param->dims == 2, norm = strstr(param->name, "ln_") != NULL;
        bool weight = strstr(param->name, ".weight") != NULL;
        double deviation = strstr(param->name, "c_proj.weight") ? 0.02 / sqrt(24) : matrix ? 0.02 : 0;
        cr_assert_eq(param->decay, matrix, "%s", param->name);
        cr_assert_eq(param->scale, deviation, "%s: %g", param->name, param->scale);
        cr_assert_eq(param->init,
                     matrix           ? DDP_INIT_NORMAL
                     : norm && weight ? DDP_INIT_ONE
                                      : DDP_INIT_ZERO,
                     "%s", param->name);
    }
    cr_assert_str_eq(params.at[0].name, "wte.weight");
    cr_assert_str_eq(params.at[1].name, "wpe.weight");
    cr_assert_str_eq(params.at[2 + 12 * 11 + 2].name, "h.11.attn.c_attn.weight");
    cr_assert_eq(params.at[2 + 12 * 11 + 2].shape[0], 2304);
    cr_assert_str_eq(params.at[147].name, "ln_f.bias");
    cr_assert_float_eq(ddp_model_gpt_ops.flops(settings) / 1024 / 1e6, 807.3, 0.1);
    ddp_params_free(&params);
    free(settings);
}

Test(models, operations_a_sample, .timeout = 20)
{
    model_case cases[CASES];
    cases_make(cases);
    cr_assert_eq(cases[0].ops->flops(cases[0].settings), 4 * 11 * 7);
    cr_assert_eq(cases[2].ops->flops(cases[2].settings), 4 * 11 * 19 + 6 * 19 * 5 + 6 * 5 * 7);
    cases_free(cases);
}

Test(models, samples_are_described, .timeout = 20)
{
    model_case cases[CASES];
    ddp_sample s;
    cases_make(cases);
    check_ok(cases[0].ops->sample(cases[0].settings, &s));
    cr_assert(s.input == DDP_F32 && s.input_count == 11 && s.target == DDP_I32 && s.target_count == 1);
    cr_assert(s.classes == 7 && s.items == 1);
    check_ok(cases[1].ops->sample(cases[1].settings, &s));
    cr_assert(s.target == DDP_F32 && s.target_count == 7 && s.classes == 0 && s.items == 1);
    check_ok(cases[4].ops->sample(cases[4].settings, &s));
    cr_assert(s.input == DDP_I32 && s.input_count == 13 && s.target == DDP_I32 && s.target_count == 13);
    cr_assert(s.classes == 57 && s.items == 13);
    cases_free(cases);
}
