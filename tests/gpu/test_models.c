/* Whole models on the GPU against the CPU: loss and every gradient of the same weights and batch; twice, for
 * equal bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/device/devices.h"
#include "models/cases.h"
#include "support/test.h"

#define TOLERANCE 1e-4 /* of a parameter's gradient, relative to its length */

static ddp_device *device;

static void *to_gpu(const trial *t, ddp_stream *stream, const void *host, size_t bytes)
{
    void *memory;
    check_ok(ddp_device_alloc(device, bytes, &memory));
    ddp_stream_copy(stream, memory, host, bytes);
    return memory;
}

static void ignore(void *arg, int param)
{
}

/* One forward and backward pass of the trial's weights and batch. */
static void run_on_gpu(const trial *t, float scale, float *gradients, ddp_loss *loss)
{
    const ddp_sample *s = &t->sample;
    size_t arena = (size_t)t->params.arena_count * sizeof(float);
    ddp_stream *stream = NULL;
    ddp_model *model = NULL;
    memset(gradients, 0, arena);
    *loss = (ddp_loss){0};
    check_ok(ddp_stream_open(device, DDP_STREAM_COMPUTE, &stream));
    void *weights = to_gpu(t, stream, t->weights, arena), *gradient = to_gpu(t, stream, gradients, arena);
    void *total = to_gpu(t, stream, loss, sizeof *loss);
    void *input =
        to_gpu(t, stream, t->input, (size_t)(t->samples * s->input_count) * ddp_dtype_bytes(s->input));
    void *target =
        to_gpu(t, stream, t->target, (size_t)(t->samples * s->target_count) * ddp_dtype_bytes(s->target));
    ddp_model_env env = {.device = device,
                         .stream = stream,
                         .params = &t->params,
                         .weights = weights,
                         .gradients = gradient,
                         .settings = t->settings,
                         .micro_batch = t->samples};
    check_ok(t->ops->open(&env, &model));
    ddp_batch batch = {.input = input, .target = target, .count = t->samples};
    check_ok(t->ops->forward(model, &batch, scale, total));
    check_ok(t->ops->backward(model, (ddp_ready){ignore, NULL}));
    ddp_stream_copy(stream, gradients, gradient, arena);
    ddp_stream_copy(stream, loss, total, sizeof *loss);
    check_ok(ddp_stream_wait(stream));
    ddp_model_close(model);
    ddp_stream_close(stream);
    ddp_device_free(device, weights);
    ddp_device_free(device, gradient);
    ddp_device_free(device, total);
    ddp_device_free(device, input);
    ddp_device_free(device, target);
}

/* Gradients that are zero by their formula (the keys' bias) hold rounding only: measured against the usual.
 */
static double compare(const trial *t, const float *got)
{
    double worst = 0, all = 0;
    for (int64_t i = 0; i < t->params.arena_count; i++)
        all += (double)t->gradients[i] * (double)t->gradients[i];
    double usual = sqrt(all / (double)t->params.total_count);
    for (int p = 0; p < t->params.count; p++) {
        const ddp_param *param = &t->params.at[p];
        double difference = 0, size = 0;
        for (int64_t i = param->offset; i < param->offset + param->count; i++) {
            difference += pow((double)got[i] - (double)t->gradients[i], 2);
            size += (double)t->gradients[i] * (double)t->gradients[i];
        }
        double error = sqrt(difference) / fmax(sqrt(size), 0.01 * usual * sqrt((double)param->count));
        cr_assert(error <= TOLERANCE, "%s: gradient differs by %.3g", param->name, error);
        worst = fmax(worst, error);
    }
    return worst;
}

static void check_model(const char *name, const ddp_model_ops *ops, void *settings, int64_t samples)
{
    trial t;
    ddp_loss loss, again;
    ddp_device_config config = {.threads = 1, .compute = DDP_F32};
    check_ok(ddp_device_cuda_ops.open(&config, &device));
    trial_open(&t, ops, settings, samples);
    trial_run(&t, 0, samples, 0.01f, NULL);
    size_t bytes = (size_t)t.params.arena_count * sizeof(float);
    float *got = malloc(bytes), *second = malloc(bytes);
    run_on_gpu(&t, 0.01f, got, &loss);
    run_on_gpu(&t, 0.01f, second, &again);
    double error = fabs(loss.sum - t.loss.sum) / fabs(t.loss.sum);
    cr_assert(error <= 1e-5, "loss %.9g, the cpu has %.9g", loss.sum, t.loss.sum);
    cr_assert(loss.items == t.loss.items && loss.correct == t.loss.correct);
    printf("%-24s loss differs by %.2g, the worst gradient by %.2g\n", name, error, compare(&t, got));
    fflush(stdout);
    cr_assert(memcmp(got, second, bytes) == 0, "gradients differ from run to run");
    cr_assert(memcmp(&loss, &again, sizeof loss) == 0, "losses differ from run to run");
    free(got);
    free(second);
    free(settings);
    trial_close(&t);
    ddp_device_close(device);
}

Test(models, gpt, .timeout = 120)
{
    check_model("gpt 2 x 64, T 33", &ddp_model_gpt_ops, case_gpt(2, 4, 64, 33, 301), 3);
}

Test(models, gpt_odd_widths, .timeout = 120)
{
    check_model("gpt 2 x 33, T 17", &ddp_model_gpt_ops, case_gpt(2, 3, 33, 17, 29), 2);
}

Test(models, gpt_long, .timeout = 120)
{
    check_model("gpt 4 x 256, T 256", &ddp_model_gpt_ops, case_gpt(4, 4, 256, 256, 5000), 4);
}

Test(models, mlp, .timeout = 120)
{
    int64_t hidden[] = {512, 512};
    void *settings = trial_settings(&ddp_model_mlp_ops);
    trial_set(&ddp_model_mlp_ops, settings, "inputs", 784);
    trial_set(&ddp_model_mlp_ops, settings, "outputs", 10);
    trial_set_ints(&ddp_model_mlp_ops, settings, "hidden", hidden, 2);
    check_model("mlp 784-512-512-10", &ddp_model_mlp_ops, settings, 128);
}

Test(models, linear, .timeout = 120)
{
    void *settings = trial_settings(&ddp_model_linear_ops);
    trial_set(&ddp_model_linear_ops, settings, "inputs", 13);
    trial_set(&ddp_model_linear_ops, settings, "outputs", 3);
    check_model("linear 13-3", &ddp_model_linear_ops, settings, 50);
}
