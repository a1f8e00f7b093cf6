/* What a model computes: gradients against central differences of its float64 formula, the loss against the
 * formula itself, and sums over parts of a batch against the whole. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"
#include "models/cases.h"
#include "support/test.h"

enum { PICKS = 8 };
#define SCALE 0.125f

static double *widen(const float *from, int64_t count)
{
    double *to = malloc((size_t)count * sizeof *to);
    for (int64_t i = 0; i < count; i++)
        to[i] = from[i];
    return to;
}

static double root_mean_square(const float *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum / (double)count);
}

static double slope(const model_case *c, const trial *t, double *weights, int64_t at)
{
    const double step = 1e-5, was = weights[at];
    weights[at] = was + step;
    double above = c->formula(t, weights);
    weights[at] = was - step;
    double below = c->formula(t, weights);
    weights[at] = was;
    return (double)SCALE * (above - below) / (2 * step);
}

/* Relative to the element or, where that is small, to its parameter's and the model's usual size: fp32 sums
 * leave an error of the size of their terms. */
static void check_param(const model_case *c, const trial *t, double *weights, const ddp_param *p,
                        double usual)
{
    double own = root_mean_square(t->gradients + p->offset, p->count);
    for (int pick = 0; pick < PICKS; pick++) {
        int64_t i =
            pick == 0 ? p->count - 1 : (int64_t)(ddp_rng_u64(1, p->offset, pick) % (uint64_t)p->count);
        double wanted = slope(c, t, weights, p->offset + i), got = t->gradients[p->offset + i];
        double size = fmax(fmax(fabs(wanted), own), 0.01 * usual);
        cr_assert(fabs(got - wanted) <= 2e-5 * size, "%s: %s[%lld]: gradient %.9g, wanted %.9g", c->name,
                  p->name, (long long)i, got, wanted);
    }
}

Test(models, gradients_are_those_of_the_formula, .timeout = 60)
{
    model_case cases[CASES];
    cases_make(cases);
    for (int n = 0; n < CASES; n++) {
        trial t;
        trial_open(&t, cases[n].ops, cases[n].settings, cases[n].samples);
        double *weights = widen(t.weights, t.params.arena_count);
        double usual, wanted = cases[n].formula(&t, weights);
        trial_run(&t, 0, t.samples, SCALE, NULL);
        cr_assert(fabs(t.loss.sum - wanted) <= 1e-6 * wanted, "%s: loss %.9g, wanted %.9g", cases[n].name,
                  t.loss.sum, wanted);
        usual = root_mean_square(t.gradients, t.params.arena_count);
        for (int p = 0; p < t.params.count; p++)
            check_param(&cases[n], &t, weights, &t.params.at[p], usual);
        free(weights);
        trial_close(&t);
    }
    cases_free(cases);
}

/* |a - b| relative to |a|, a floor of the model's usual size included. */
static void check_same(const char *name, const trial *t, const float *whole, const float *parts)
{
    double usual = root_mean_square(whole, t->params.arena_count);
    for (int p = 0; p < t->params.count; p++) {
        const ddp_param *param = &t->params.at[p];
        const float *a = whole + param->offset, *b = parts + param->offset;
        double difference = 0;
        for (int64_t i = 0; i < param->count; i++)
            difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        difference = sqrt(difference / (double)param->count);
        cr_assert(difference <= 1e-5 * fmax(root_mean_square(a, param->count), 0.01 * usual),
                  "%s: %s differs by %g", name, param->name, difference);
    }
}

static void check_split(const char *name, trial *t, int64_t part)
{
    size_t bytes = (size_t)t->params.arena_count * sizeof(float);
    float *whole = malloc(bytes);
    memset(t->gradients, 0, bytes);
    t->loss = (ddp_loss){0};
    trial_run(t, 0, t->samples, SCALE, NULL);
    ddp_loss loss = t->loss;
    memcpy(whole, t->gradients, bytes);
    memset(t->gradients, 0, bytes);
    t->loss = (ddp_loss){0};
    for (int64_t first = 0; first < t->samples; first += part)
        trial_run(t, first, part, SCALE, NULL);
    cr_assert(fabs(t->loss.sum - loss.sum) <= 1e-6 * loss.sum, "%s: loss %g and %g", name, t->loss.sum,
              loss.sum);
    cr_assert_eq(t->loss.items, loss.items);
    cr_assert_eq(t->loss.correct, loss.correct);
    check_same(name, t, whole, t->gradients);
    free(whole);
}

Test(models, parts_of_a_batch_add_up_to_the_whole, .timeout = 60)
{
    model_case cases[CASES];
    cases_make(cases);
    for (int n = 0; n < CASES; n++) {
        trial t;
        trial_open(&t, cases[n].ops, cases[n].settings, cases[n].samples);
        for (int64_t part = 1; part <= 3; part++)
            check_split(cases[n].name, &t, part);
        trial_close(&t);
    }
    cases_free(cases);
}

/* 55 rows of 300,000 scores fit a chunk: 60 rows go in two, the 20 of one sample in one. */
Test(models, output_layer_in_chunks, .timeout = 60)
{
    trial t;
    void *settings = case_gpt(FORMULA_LAYERS, FORMULA_HEADS, 6, 20, 300000);
    trial_open(&t, &ddp_model_gpt_ops, settings, 3);
    double *weights = widen(t.weights, t.params.arena_count);
    double wanted = formula_gpt(&t, weights);
    trial_run(&t, 0, 3, 0, NULL);
    cr_assert(fabs(t.loss.sum - wanted) <= 1e-6 * wanted, "loss %.9g, wanted %.9g", t.loss.sum, wanted);
    check_split("gpt, 300,000 classes", &t, 1);
    free(weights);
    free(settings);
    trial_close(&t);
}

Test(models, evaluation_gives_the_loss_and_no_gradient, .timeout = 60)
{
    model_case cases[CASES];
    cases_make(cases);
    for (int n = 0; n < CASES; n++) {
        trial t;
        trial_open(&t, cases[n].ops, cases[n].settings, cases[n].samples);
        trial_run(&t, 0, t.samples, 0, NULL);
        ddp_loss evaluated = t.loss;
        for (int64_t i = 0; i < t.params.arena_count; i++)
            cr_assert_eq(t.gradients[i], 0, "%s: gradient %lld", cases[n].name, (long long)i);
        t.loss = (ddp_loss){0};
        trial_run(&t, 0, t.samples, SCALE, NULL);
        cr_assert_eq(memcmp(&evaluated, &t.loss, sizeof evaluated), 0, "%s", cases[n].name);
        trial_close(&t);
    }
    cases_free(cases);
}
