/* See cases.h. */
#include "models/cases.h"

#include <stdlib.h>

static int64_t widths[] = {FORMULA_WIDTH_1, FORMULA_WIDTH_2};

static void *case_linear(const char *loss)
{
    const ddp_model_ops *ops = &ddp_model_linear_ops;
    void *settings = trial_settings(ops);
    trial_set(ops, settings, "inputs", 11);
    trial_set(ops, settings, "outputs", 7);
    trial_set_word(ops, settings, "loss", loss);
    return settings;
}

static void *case_mlp(const char *activation)
{
    const ddp_model_ops *ops = &ddp_model_mlp_ops;
    void *settings = trial_settings(ops);
    trial_set(ops, settings, "inputs", 11);
    trial_set(ops, settings, "outputs", 7);
    trial_set_ints(ops, settings, "hidden", widths, 2);
    trial_set_word(ops, settings, "activation", activation);
    return settings;
}

void *case_gpt(int64_t layers, int64_t heads, int64_t width, int64_t context, int64_t vocab)
{
    const ddp_model_ops *ops = &ddp_model_gpt_ops;
    void *settings = trial_settings(ops);
    trial_set(ops, settings, "layers", layers);
    trial_set(ops, settings, "heads", heads);
    trial_set(ops, settings, "width", width);
    trial_set(ops, settings, "context", context);
    trial_set(ops, settings, "vocab", vocab);
    return settings;
}

void cases_make(model_case cases[CASES])
{
    const model_case made[CASES] = {
        {"linear, classes", &ddp_model_linear_ops, case_linear("cross_entropy"), formula_linear_classes, 6},
        {"linear, values", &ddp_model_linear_ops, case_linear("squared_error"), formula_linear_values, 6},
        {"mlp, relu", &ddp_model_mlp_ops, case_mlp("relu"), formula_mlp_relu, 6},
        {"mlp, gelu", &ddp_model_mlp_ops, case_mlp("gelu"), formula_mlp_gelu, 6},
        {"gpt", &ddp_model_gpt_ops, case_gpt(FORMULA_LAYERS, FORMULA_HEADS, 33, 13, 57), formula_gpt, 6},
    };
    for (int i = 0; i < CASES; i++)
        cases[i] = made[i];
}

void cases_free(model_case cases[CASES])
{
    for (int i = 0; i < CASES; i++)
        free(cases[i].settings);
}
