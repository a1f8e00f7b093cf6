/* The small models that the tests run, of sizes that fit no block of any kernel. */
#ifndef DDP_TESTS_MODELS_CASES_H
#define DDP_TESTS_MODELS_CASES_H

#include "models/formula.h"

typedef struct model_case {
    const char *name;
    const ddp_model_ops *ops;
    void *settings;
    formula *formula;
    int64_t samples;
} model_case;

enum { CASES = 5 };

/* Fills all of them; settings are freed by cases_free. */
void cases_make(model_case cases[CASES]);
void cases_free(model_case cases[CASES]);

/* A gpt of these sizes; freed with free(). */
void *case_gpt(int64_t layers, int64_t heads, int64_t width, int64_t context, int64_t vocab);

#endif
