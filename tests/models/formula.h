/* The models as their formulas say, in float64: what gradients are finite differences of. */
#ifndef DDP_TESTS_MODELS_FORMULA_H
#define DDP_TESTS_MODELS_FORMULA_H

#include "models/trial.h"

/* Sum of the item losses of the trial's whole batch with these weights (arena layout). */
typedef double formula(const trial *t, const double *weights);

formula formula_linear_classes; /* cross-entropy */
formula formula_linear_values;  /* squared error */
formula formula_mlp_relu;       /* two hidden layers of FORMULA_WIDTHS */
formula formula_mlp_gelu;
formula formula_gpt; /* layers, heads as below; the rest from the shapes */

enum { FORMULA_WIDTH_1 = 19, FORMULA_WIDTH_2 = 5, FORMULA_LAYERS = 2, FORMULA_HEADS = 3 };

#endif
