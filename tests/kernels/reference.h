/* The operations of ddp/kernels.h as their formulas say, in float64, one loop nest each: what the fast
 * kernels are compared with and what finite differences are taken of. */
#ifndef DDP_TESTS_KERNELS_REFERENCE_H
#define DDP_TESTS_KERNELS_REFERENCE_H

#include <ddp/kernels.h>

/* The device whose kernels are tested; its streams take host memory. */
extern const ddp_device_ops *const kernels_under_test;

double reference_activation(double x, ddp_activation act);

/* y(R,C) = x(R,K) w(C,K)^T + b(C); b may be NULL. */
void reference_linear(double *y, const double *x, const double *w, const double *b, int64_t R, int64_t K,
                      int64_t C);

/* sum = a + b (b may be NULL), y = its layer norm. */
void reference_norm(double *y, double *sum, const double *a, const double *b, const double *weight,
                    const double *bias, int64_t R, int64_t C);

void reference_embedding(double *y, const int32_t *ids, const double *tokens, const double *positions,
                         int64_t B, int64_t T, int64_t C);
void reference_attention(double *y, const double *qkv, int64_t B, int64_t T, int64_t H, int64_t D);

/* Sums of the item losses. */
double reference_cross_entropy(const double *logits, const int32_t *targets, int64_t R, int64_t V);
double reference_squared_error(const double *prediction, const float *targets, int64_t R, int64_t C);

#endif
