/* The kernel table: every operation a model or an optimizer is made of, once per device and compute type.
 *
 * All are ordered on the stream given first and return nothing (errors are sticky on the stream).
 * `void *` points to elements of the table's compute type, `float *` always to fp32. Row-major.
 * Gradients of parameters are fp32 and ADDED to (the trainer zeroes them once a step); gradients of
 * activations are overwritten unless said otherwise. Pointers must not alias unless said so.
 * Sums over rows go in one fixed order, so that the same inputs give the same bits on every run.
 *
 * Letters: B batch, T tokens, R rows (B*T), C width, K inner width, H heads, D head width, V classes. */
#ifndef DDP_KERNELS_H
#define DDP_KERNELS_H

#include <stdint.h>

#include <ddp/device.h>

typedef enum ddp_activation { DDP_ACT_NONE, DDP_ACT_RELU, DDP_ACT_GELU } ddp_activation;

/* What one evaluation of the loss adds up, in device memory. */
typedef struct ddp_loss {
    double sum;     /* of the item losses (nats, or squared error) */
    double items;   /* items counted: targets that are not masked */
    double correct; /* items whose largest score is the target (0 for squared error) */
} ddp_loss;

/* Hyperparameters of one update, see optim.h. `scale` is in DEVICE memory: what every gradient is
 * multiplied with first (clip and item correction); a negative value means: leave everything as it is. */
typedef struct ddp_adamw_args {
    const float *scale;
    float lr, eps, decay;
    double beta1, beta2;             /* double: 1 - 0.999 as floats is off by 5e-5 */
    double correction1, correction2; /* 1 - beta^t of this update t >= 1 */
} ddp_adamw_args;

typedef struct ddp_sgd_args {
    const float *scale;
    float lr, momentum, decay;
} ddp_sgd_args;

typedef struct ddp_kernels {
    const char *name; /* "cpu f32" */
    ddp_dtype compute;

    /* y(R,C) = act(x(R,K) w(C,K)^T + b(C)). b may be NULL. `pre` (R,C), may be NULL, gets the value before
     * the activation (needed by GELU's backward). */
    void (*linear_forward)(ddp_stream *s, void *y, void *pre, const void *x, const void *w, const void *b,
                           ddp_activation act, int64_t R, int64_t K, int64_t C);
    /* dx(R,K) = (dy(R,C) w(C,K)) * act'(saved(R,K)), where x = act(saved): saved is `pre` for GELU, x itself
     * for RELU, NULL for NONE. `add`: dx is added to instead (only with DDP_ACT_NONE). */
    void (*linear_backward_input)(ddp_stream *s, void *dx, const void *dy, const void *w, const void *saved,
                                  ddp_activation act, bool add, int64_t R, int64_t K, int64_t C);
    /* dw(C,K) += dy(R,C)^T x(R,K); db(C) += column sums of dy (db may be NULL). */
    void (*linear_backward_weight)(ddp_stream *s, float *dw, float *db, const void *dy, const void *x,
                                   int64_t R, int64_t K, int64_t C);

    /* LayerNorm over C, eps 1e-5, after an optional residual sum: sum = a + b (b and sum NULL: norm of a).
     * y = (sum - mean) * rstd * weight + bias; mean(R), rstd(R) are kept for backward. sum may alias a. */
    void (*norm_forward)(ddp_stream *s, void *y, void *sum, float *mean, float *rstd, const void *a,
                         const void *b, const void *weight, const void *bias, int64_t R, int64_t C);
    /* dx = residual + d(norm); `residual` (R,C) may be NULL or alias dx; dx may alias dy. x is what was
     * normalised. */
    void (*norm_backward)(ddp_stream *s, void *dx, float *dweight, float *dbias, const void *dy,
                          const void *x, const float *mean, const float *rstd, const void *weight,
                          const void *residual, int64_t R, int64_t C);

    /* y(B,T,C) = tokens[ids(B,T)] + positions[0..T). tokens (V,C), positions (T',C) with T' >= T. */
    void (*embedding_forward)(ddp_stream *s, void *y, const int32_t *ids, const void *tokens,
                              const void *positions, int64_t B, int64_t T, int64_t C);
    void (*embedding_backward)(ddp_stream *s, float *dtokens, float *dpositions, const void *dy,
                               const int32_t *ids, int64_t B, int64_t T, int64_t C, int64_t V);

    /* Causal self-attention, softmax(q k^T / sqrt(D)) v. qkv (B,T,3,H,D) packed as one linear layer gives it,
     * y (B,T,H,D); stats (B,H,T) fp32 keeps log-sum-exp of each row for backward. */
    void (*attention_forward)(ddp_stream *s, void *y, float *stats, const void *qkv, int64_t B, int64_t T,
                              int64_t H, int64_t D);
    void (*attention_backward)(ddp_stream *s, void *dqkv, const void *dy, const void *qkv, const void *y,
                               const float *stats, int64_t B, int64_t T, int64_t H, int64_t D);

    /* Softmax cross-entropy. Adds to *total; where `scale` > 0, logits(R,V) become
     * scale * (softmax - one-hot) in place (rows of masked targets: zero); where scale is 0 (evaluation) the
     * logits are left in an unspecified state. targets (R): class ids, -1 = masked. An id outside [-1, V) is
     * an error on the stream. */
    void (*cross_entropy)(ddp_stream *s, ddp_loss *total, void *logits, const int32_t *targets, float scale,
                          int64_t R, int64_t V);
    /* Half squared error summed over C: 0.5 * |prediction - target|^2 a row is one item. Where scale > 0,
     * prediction becomes scale * (prediction - target) in place. A row whose first target is NaN is masked.
     */
    void (*squared_error)(ddp_stream *s, ddp_loss *total, void *prediction, const float *targets, float scale,
                          int64_t R, int64_t C);

    /* Over flat fp32 ranges, count elements each. */
    void (*sum_squares)(ddp_stream *s, double *total, const float *x, int64_t count); /* adds to *total */
    void (*adamw)(ddp_stream *s, float *weights, const float *gradients, float *mean, float *square,
                  int64_t count, const ddp_adamw_args *args);
    void (*sgd)(ddp_stream *s, float *weights, const float *gradients, float *velocity, int64_t count,
                const ddp_sgd_args *args); /* velocity may be NULL when momentum is 0 */
    /* From the reduced sums of a step to the one factor of its update. With
     * correction = nominal_items / totals->items:  norm = sqrt(*sum_squares) * correction,
     * scale = correction * min(1, clip / norm) (clip 0 = none). Nothing counted, or norm not finite:
     * scale = -1 (the step is skipped). All pointers in device memory. */
    void (*step_scale)(ddp_stream *s, float *scale, double *norm, const double *sum_squares,
                       const ddp_loss *totals, double nominal_items, double clip);
} ddp_kernels;

#endif
