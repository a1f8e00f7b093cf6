/* What the gradient table does not say: activations of the forward pass, masks, wrong ids, infinity and NaN,
 * optimizer steps against their formulas, the scale of a step, and the device itself. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/device/devices.h"
#include "core/rng.h"
#include "kernels/reference.h"
#include "support/test.h"

static ddp_device *device;
static ddp_stream *stream;
static const ddp_kernels *kernels;

static void open_all(void)
{
    ddp_device_config config = {.threads = 1, .compute = DDP_F32};
    check_ok(kernels_under_test->open(&config, &device));
    check_ok(ddp_stream_open(device, DDP_STREAM_COMPUTE, &stream));
    kernels = device->kernels;
}

static void close_all(void)
{
    check_ok(ddp_stream_wait(stream));
    ddp_stream_close(stream);
    ddp_device_close(device);
}

static void check_fails(const char *part)
{
    for (int i = 0; i < 2; i++) { /* sticky: every time */
        ddp_error *error = ddp_stream_wait(stream);
        cr_assert_not_null(error);
        cr_assert_eq(ddp_error_get_kind(error), DDP_ERR_INPUT);
        cr_assert_not_null(strstr(ddp_error_message(error), part), "message: %s", ddp_error_message(error));
        ddp_error_free(error);
    }
    ddp_stream_close(stream);
    ddp_device_close(device);
}

static void check_activation(ddp_activation act, bool keep)
{
    enum { R = 259, K = 6, C = 13 };
    float x[R * K], w[C * K], b[C], y[R * C], pre[R * C];
    double xd[R * K], wd[C * K], bd[C], want[R * C];
    ddp_rng_fill_normal(1, 1, 0, x, R * K, 2);
    ddp_rng_fill_normal(1, 2, 0, w, C * K, 1);
    ddp_rng_fill_normal(1, 3, 0, b, C, 1);
    for (int i = 0; i < R * K; i++)
        xd[i] = (double)x[i];
    for (int i = 0; i < C * K; i++)
        wd[i] = (double)w[i];
    for (int i = 0; i < C; i++)
        bd[i] = (double)b[i];
    memset(y, 0xff, sizeof y);
    memset(pre, 0xff, sizeof pre);
    kernels->linear_forward(stream, y, keep ? pre : NULL, x, w, b, act, R, K, C);
    reference_linear(want, xd, wd, bd, R, K, C);
    for (int i = 0; i < R * C; i++) {
        double expected = reference_activation(want[i], act);
        cr_assert(fabs((double)y[i] - expected) <= 1e-5 * (1 + fabs(expected)), "y[%d] %g, %g", i,
                  (double)y[i], expected);
        cr_assert(!keep || fabs((double)pre[i] - want[i]) <= 1e-5 * (1 + fabs(want[i])), "pre[%d]", i);
    }
}

Test(kernels, activations_forward_with_and_without_pre, .timeout = 30)
{
    open_all();
    for (int act = DDP_ACT_NONE; act <= DDP_ACT_GELU; act++) {
        check_activation((ddp_activation)act, false);
        check_activation((ddp_activation)act, true);
    }
    close_all();
}

Test(kernels, gelu_is_accurate_and_keeps_extremes, .timeout = 30)
{
    enum { COUNT = 4003 };
    float x[COUNT], y[COUNT], one = 1;
    open_all();
    for (int i = 0; i < COUNT; i++)
        x[i] = -10.0f + 20.0f * (float)i / COUNT;
    x[0] = NAN;
    x[1] = 1e30f;
    x[2] = -1e30f;
    x[3] = INFINITY;
    kernels->linear_forward(stream, y, NULL, x, &one, NULL, DDP_ACT_GELU, COUNT, 1, 1);
    cr_assert(isnan(y[0]));
    cr_assert_eq(y[1], 1e30f);
    cr_assert_eq(y[2], 0.0f);
    cr_assert_eq(y[3], INFINITY);
    for (int i = 4; i < COUNT; i++) {
        double want = reference_activation((double)x[i], DDP_ACT_GELU);
        cr_assert(fabs((double)y[i] - want) <= 4e-7 * fmax(fabs((double)x[i]), 1e-3), "gelu(%g) %g, %g",
                  (double)x[i], (double)y[i], want);
    }
    close_all();
}

Test(kernels, cross_entropy_of_extreme_scores, .timeout = 30)
{
    ddp_loss total = {0};
    float scores[3][10] = {{1e4f, -1e4f}, {0}, {0}};
    int32_t targets[3] = {1, 3, -1};
    open_all();
    scores[1][3] = scores[1][7] = 80;
    for (int v = 0; v < 10; v++)
        scores[2][v] = NAN; /* masked: must not matter */
    kernels->cross_entropy(stream, &total, scores, targets, 1, 3, 10);
    cr_assert_eq(total.items, 2);
    cr_assert_eq(total.correct, 1, "the first of two equal scores counts");
    cr_assert_float_eq(total.sum, 2e4 + log(2), 1e-3);
    cr_assert_float_eq((double)scores[0][1], -1, 1e-6);
    cr_assert_float_eq((double)scores[0][0], 1, 1e-6);
    cr_assert_float_eq((double)scores[1][3], -0.5, 1e-6);
    for (int v = 0; v < 10; v++)
        cr_assert_eq(scores[2][v], 0.0f);
    close_all();
}

Test(kernels, nan_and_infinity_reach_the_loss, .timeout = 30)
{
    open_all();
    float bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++)
        for (int at = 0; at < 11; at++) {
            ddp_loss total = {0};
            float scores[11] = {0};
            int32_t target = 5;
            scores[at] = bad[i];
            kernels->cross_entropy(stream, &total, scores, &target, 1, 1, 11);
            cr_assert(!isfinite(total.sum), "bad score %d at %d gave %g", i, at, total.sum);
        }
    close_all();
}

Test(kernels, losses_add_to_the_total, .timeout = 30)
{
    ddp_loss total = {.sum = 10, .items = 3, .correct = 2};
    float scores[2] = {0, 0}, prediction[2] = {1, 4}, values[2] = {0, 2};
    int32_t target = 0;
    open_all();
    kernels->cross_entropy(stream, &total, scores, &target, 0, 1, 2);
    kernels->squared_error(stream, &total, prediction, values, 0, 1, 2);
    cr_assert_float_eq(total.sum, 10 + log(2) + 2.5, 1e-6);
    cr_assert_eq(total.items, 5);
    cr_assert_eq(total.correct, 3);
    cr_assert_eq(prediction[1], 4.0f, "evaluation leaves predictions alone");
    close_all();
}

Test(kernels, target_out_of_range_is_sticky, .timeout = 30)
{
    ddp_loss total = {0};
    float scores[20] = {0};
    int32_t targets[2] = {0, 10};
    open_all();
    kernels->cross_entropy(stream, &total, scores, targets, 1, 2, 10);
    check_fails("target 10 (row 1 of the batch)");
}

Test(kernels, target_below_minus_one_is_sticky, .timeout = 30)
{
    ddp_loss total = {0};
    float scores[10] = {0};
    int32_t target = -2;
    open_all();
    kernels->cross_entropy(stream, &total, scores, &target, 0, 1, 10);
    check_fails("target -2");
}

Test(kernels, token_out_of_range_is_sticky, .timeout = 30)
{
    float dy[6] = {0}, tokens[8] = {0}, positions[6] = {0};
    int32_t ids[3] = {0, 3, 4};
    open_all();
    kernels->embedding_backward(stream, tokens, positions, dy, ids, 1, 3, 2, 4);
    check_fails("token id 4 (sample 0, token 2 of the batch)");
}

Test(kernels, sum_squares_in_double, .timeout = 30)
{
    enum { COUNT = 100003 };
    float *x = malloc(COUNT * sizeof *x);
    double want = 7, total = 7;
    open_all();
    ddp_rng_fill_normal(1, 1, 0, x, COUNT, 1);
    x[COUNT - 1] = 1e25f; /* its square is no float */
    for (int i = 0; i < COUNT; i++)
        want += (double)x[i] * (double)x[i];
    kernels->sum_squares(stream, &total, x, COUNT);
    cr_assert_float_eq(total / want, 1, 1e-12);
    for (int count = 0; count < 40; count++) {
        double part = 0, expected = 0;
        kernels->sum_squares(stream, &part, x, count);
        for (int i = 0; i < count; i++)
            expected += (double)x[i] * (double)x[i];
        cr_assert_float_eq(part, expected, 1e-12 * expected);
    }
    x[17] = NAN;
    kernels->sum_squares(stream, &total, x, COUNT);
    cr_assert(isnan(total));
    free(x);
    close_all();
}

enum { WEIGHTS = 37, UPDATES = 8 };

static void fill_gradient(float *g, int update)
{
    ddp_rng_fill_normal(4, (uint64_t)update, 0, g, WEIGHTS, 1);
}

Test(kernels, adamw_follows_its_formula, .timeout = 30)
{
    const double lr = 0.01, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0.1, scale = 0.5;
    float w[WEIGHTS], g[WEIGHTS], m[WEIGHTS] = {0}, v[WEIGHTS] = {0}, factor = (float)scale;
    double wd[WEIGHTS], md[WEIGHTS] = {0}, vd[WEIGHTS] = {0};
    open_all();
    ddp_rng_fill_normal(2, 2, 0, w, WEIGHTS, 1);
    for (int i = 0; i < WEIGHTS; i++)
        wd[i] = (double)w[i];
    for (int t = 1; t <= UPDATES; t++) {
        ddp_adamw_args args = {.scale = &factor,
                               .lr = (float)lr,
                               .eps = (float)eps,
                               .decay = (float)decay,
                               .beta1 = beta1,
                               .beta2 = beta2,
                               .correction1 = 1 - pow(beta1, t),
                               .correction2 = 1 - pow(beta2, t)};
        fill_gradient(g, t);
        kernels->adamw(stream, w, g, m, v, WEIGHTS, &args);
        for (int i = 0; i < WEIGHTS; i++) {
            double gd = (double)g[i] * scale;
            md[i] = beta1 * md[i] + (1 - beta1) * gd;
            vd[i] = beta2 * vd[i] + (1 - beta2) * gd * gd;
            wd[i] -= lr * decay * wd[i];
            wd[i] -= lr * (md[i] / args.correction1) / (sqrt(vd[i] / args.correction2) + eps);
            cr_assert_float_eq((double)w[i], wd[i], 2e-6, "update %d, weight %d: %.9g, %.9g", t, i,
                               (double)w[i], wd[i]);
        }
    }
    close_all();
}

Test(kernels, sgd_follows_its_formula, .timeout = 30)
{
    const double lr = 0.1, momentum = 0.9, decay = 0.01, scale = 2;
    open_all();
    for (int with = 0; with < 2; with++) {
        float w[WEIGHTS], g[WEIGHTS], v[WEIGHTS] = {0}, factor = (float)scale;
        double wd[WEIGHTS], vd[WEIGHTS] = {0};
        ddp_sgd_args args = {
            .scale = &factor, .lr = (float)lr, .momentum = with ? (float)momentum : 0, .decay = (float)decay};
        ddp_rng_fill_normal(2, 2, 0, w, WEIGHTS, 1);
        for (int i = 0; i < WEIGHTS; i++)
            wd[i] = (double)w[i];
        for (int t = 1; t <= UPDATES; t++) {
            fill_gradient(g, t);
            kernels->sgd(stream, w, g, with ? v : NULL, WEIGHTS, &args);
            for (int i = 0; i < WEIGHTS; i++) {
                vd[i] = (with ? momentum : 0) * vd[i] + (double)g[i] * scale;
                wd[i] -= lr * (vd[i] + decay * wd[i]);
                cr_assert_float_eq((double)w[i], wd[i], 2e-5 * (1 + fabs(wd[i])), "update %d, weight %d", t,
                                   i);
            }
        }
    }
    close_all();
}

Test(kernels, negative_scale_leaves_everything, .timeout = 30)
{
    float w[3] = {1, 2, 3}, g[3] = {NAN, NAN, NAN}, m[3] = {4, 5, 6}, v[3] = {7, 8, 9}, skip = -1;
    const float w0[3] = {1, 2, 3}, m0[3] = {4, 5, 6}, v0[3] = {7, 8, 9};
    ddp_adamw_args adamw = {
        .scale = &skip, .lr = 1, .beta1 = 0.9, .beta2 = 0.9, .correction1 = 1, .correction2 = 1};
    ddp_sgd_args sgd = {.scale = &skip, .lr = 1, .momentum = 0.5f, .decay = 1};
    open_all();
    kernels->adamw(stream, w, g, m, v, 3, &adamw);
    kernels->sgd(stream, w, g, m, 3, &sgd);
    cr_assert(memcmp(w, w0, sizeof w) == 0 && memcmp(m, m0, sizeof m) == 0 && memcmp(v, v0, sizeof v) == 0);
    close_all();
}

/* In each row: what was summed, and what must come out. C18's gradients (2,0) and (0,2) over two items add up
 * to (2,2) / 2 items; with the nominal scale 1/2 already in them the sum of squares is 2. */
static const struct {
    const char *what;
    double squares, items, nominal, clip;
    double scale, norm;
} scales[] = {
    {"plain", 4, 8, 8, 0, 1, 2},
    {"clip, C18", 2, 2, 2, 1, 0.70710678, 1.41421356},
    {"clip not reached", 0.25, 8, 8, 1, 1, 0.5},
    {"fewer items than nominal", 4, 4, 8, 0, 2, 4},
    {"fewer items, clipped", 4, 4, 8, 1, 0.5, 4},
    {"zero gradient", 0, 8, 8, 1, 1, 0},
    {"nothing counted", 0, 0, 8, 1, -1, 0},
    {"infinite", INFINITY, 8, 8, 1, -1, INFINITY},
    {"NaN", NAN, 8, 8, 0, -1, NAN},
};

Test(kernels, step_scale, .timeout = 30)
{
    open_all();
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        float scale = NAN;
        double norm = -5;
        ddp_loss totals = {.items = scales[i].items};
        kernels->step_scale(stream, &scale, &norm, &scales[i].squares, &totals, scales[i].nominal,
                            scales[i].clip);
        cr_assert_float_eq((double)scale, scales[i].scale, 1e-6, "%s: scale %g", scales[i].what,
                           (double)scale);
        if (isfinite(scales[i].norm))
            cr_assert_float_eq(norm, scales[i].norm, 1e-6, "%s: norm %g", scales[i].what, norm);
        else
            cr_assert(!isfinite(norm), "%s: norm %g", scales[i].what, norm);
    }
    close_all();
}

Test(device, memory_is_zeroed_and_aligned, .timeout = 30)
{
    const size_t sizes[] = {0, 1, 300, 4096, (3 << 20) + 5};
    open_all();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *memory = NULL;
        check_ok(ddp_device_alloc(device, sizes[i], (void **)&memory));
        cr_assert_eq((uintptr_t)memory % 256, 0);
        for (size_t n = 0; n < sizes[i]; n++)
            cr_assert_eq(memory[n], 0);
        memset(memory, 0xff, sizes[i]);
        ddp_device_free(device, memory);
    }
    ddp_device_free(device, NULL);
    close_all();
}

Test(device, too_much_memory_says_what_was_asked, .timeout = 30)
{
    void *memory = NULL;
    open_all();
    ddp_error *error = ddp_device_alloc(device, SIZE_MAX - 1, &memory);
    cr_assert_not_null(error);
    cr_assert_eq(ddp_error_get_kind(error), DDP_ERR_MEMORY);
    cr_assert_not_null(strstr(ddp_error_message(error), "were asked for"));
    cr_assert_not_null(strstr(ddp_error_message(error), "available"));
    ddp_error_free(error);
    close_all();
}

Test(device, computes_in_fp32_only, .timeout = 30)
{
    ddp_device_config config = {.threads = 1, .compute = DDP_BF16};
    ddp_device *none = NULL;
    ddp_error *error = ddp_device_cpu_ops.open(&config, &none);
    cr_assert_not_null(error);
    cr_assert_eq(ddp_error_get_kind(error), DDP_ERR_INPUT);
    cr_assert_str_eq(ddp_error_message(error), "the cpu computes in fp32, not in bf16");
    ddp_error_free(error);
}

Test(device, names_and_sizes_of_types, .timeout = 30)
{
    const char *names[] = {"f32", "f64", "bf16", "f16", "i32", "i64", "u8"};
    const size_t bytes[] = {4, 8, 2, 2, 4, 8, 1};
    for (int i = 0; i < DDP_DTYPE_COUNT; i++) {
        cr_assert_str_eq(ddp_dtype_name((ddp_dtype)i), names[i]);
        cr_assert_eq(ddp_dtype_bytes((ddp_dtype)i), bytes[i]);
    }
    ddp_view view = {.dims = 3, .shape = {2, 3, 4}};
    cr_assert_eq(ddp_view_count(&view), 24);
}
