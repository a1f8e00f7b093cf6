/* gpt against PyTorch: loss and gradients of the same weights and batch, with the figures that
 * make_gpt_reference.py recorded. With DDP_TEST_GRADIENTS=FILE in the environment the gradients are also
 * written there, for that program's own, complete comparison. */
#include <math.h>
#include <stdlib.h>

#include "models/cases.h"
#include "models/gpt_reference.h"
#include "support/test.h"

static const int gradient_count = sizeof gpt_gradients / sizeof *gpt_gradients;

static void save(const trial *t, const char *path)
{
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    for (int p = 0; p < t->params.count; p++) {
        const ddp_param *param = &t->params.at[p];
        size_t count = (size_t)param->count;
        cr_assert_eq(fwrite(t->gradients + param->offset, sizeof(float), count, file), count);
    }
    cr_assert_eq(fclose(file), 0);
}

/* `usual`: size of an element; a gradient that is zero by its formula (the keys' bias) holds rounding only.
 */
static void check(const gpt_gradient *wanted, const float *got, int64_t count, double usual)
{
    double sum = 0, squares = 0, root = sqrt((double)count), size = fmax(wanted->norm / root, 0.01 * usual);
    for (int64_t i = 0; i < count; i++) {
        sum += got[i];
        squares += (double)got[i] * got[i];
    }
    cr_assert(fabs(sum - wanted->sum) <= 1e-4 * size * root, "%s: sum %.8g, PyTorch has %.8g", wanted->name,
              sum, wanted->sum);
    cr_assert(fabs(sqrt(squares) - wanted->norm) <= 1e-4 * size * root, "%s: norm %.8g, PyTorch has %.8g",
              wanted->name, sqrt(squares), wanted->norm);
    for (int i = 0; i < GPT_PICKS; i++) {
        int64_t at = i * (count - 1) / (GPT_PICKS - 1);
        cr_assert(fabs(got[at] - wanted->picks[i]) <= 1e-4 * fmax(size, fabs(wanted->picks[i])),
                  "%s[%lld]: %.8g, PyTorch has %.8g", wanted->name, (long long)at, got[at], wanted->picks[i]);
    }
}

Test(gpt, loss_and_gradients_are_those_of_pytorch, .timeout = 20)
{
    trial t;
    void *settings = case_gpt(GPT_LAYERS, GPT_HEADS, GPT_WIDTH, GPT_CONTEXT, GPT_VOCAB);
    trial_open(&t, &ddp_model_gpt_ops, settings, GPT_SAMPLES);
    trial_run(&t, 0, GPT_SAMPLES, GPT_SCALE, NULL);
    cr_assert(fabs(t.loss.sum - GPT_LOSS) <= 1e-6 * GPT_LOSS, "loss %.9g, PyTorch has %.9g", t.loss.sum,
              (double)GPT_LOSS);
    cr_assert_eq(t.params.count, gradient_count);
    double squares = 0;
    for (int p = 0; p < gradient_count; p++)
        squares += gpt_gradients[p].norm * gpt_gradients[p].norm;
    double usual = sqrt(squares / (double)t.params.total_count);
    for (int p = 0; p < gradient_count; p++) {
        cr_assert_str_eq(t.params.at[p].name, gpt_gradients[p].name);
        check(&gpt_gradients[p], t.gradients + t.params.at[p].offset, t.params.at[p].count, usual);
    }
    const char *path = getenv("DDP_TEST_GRADIENTS");
    if (path != NULL)
        save(&t, path);
    free(settings);
    trial_close(&t);
}
