/* Every operation of the kernel table, on shapes that fit its blocks and shapes that do not: forward against
 * the float64 formula, backward against central differences of that formula, outputs poisoned with NaN first,
 * added gradients started from known values, and everything twice for equal bits.
 *
 * A case is a function from up to four inputs to one output, differentiated in the direction `slope`. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/device/devices.h"
#include "core/rng.h"
#include "kernels/reference.h"
#include "support/test.h"

enum { INPUTS = 4, SAMPLES = 48 };

typedef struct problem problem;
struct problem {
    const char *name;
    int64_t shape[4];
    ddp_activation act;
    bool variant; /* linear: added dx, no bias; norm: residual; losses: some rows masked */
    /* Sizes of inputs and output, from the shape; 0 = no such input. */
    void (*describe)(problem *p);
    void (*reference)(const problem *p, double *const *in, double *out);
    /* Runs forward and backward: out, and the gradient of sum(slope * out) for each input. */
    void (*kernel)(const problem *p, ddp_stream *s, float *const *in, float *out, const float *slope,
                   float *const *grad);
    int64_t count[INPUTS], out_count;
    bool added[INPUTS]; /* the gradient is added to what is there */
    int32_t *ids;       /* token ids or targets */
    float *targets;
};

static const ddp_kernels *kernels;

static float *floats(int64_t count)
{
    float *memory = malloc((size_t)(count ? count : 1) * sizeof *memory);
    memset(memory, 0xff, (size_t)count * sizeof *memory); /* NaN */
    return memory;
}

static double *doubles(const float *from, int64_t count)
{
    double *memory = malloc((size_t)(count ? count : 1) * sizeof *memory);
    for (int64_t i = 0; i < count; i++)
        memory[i] = from ? (double)from[i] : NAN;
    return memory;
}

static void fill_ids(problem *p, int64_t count, int64_t below, bool masked)
{
    p->ids = malloc((size_t)count * sizeof *p->ids);
    for (int64_t i = 0; i < count; i++)
        p->ids[i] = masked && i % 3 == 1 ? -1 : (int32_t)(ddp_rng_u64(5, 5, (uint64_t)i) % (uint64_t)below);
}

/* -- linear: inputs saved (R,K), w (C,K), b (C); x = act(saved) -- */

static void describe_linear(problem *p)
{
    int64_t R = p->shape[0], K = p->shape[1], C = p->shape[2];
    p->count[0] = R * K;
    p->count[1] = C * K;
    p->count[2] = p->variant ? 0 : C;
    p->out_count = R * C;
    p->added[0] = p->variant && p->act == DDP_ACT_NONE;
    p->added[1] = p->added[2] = true;
}

static void linear_reference(const problem *p, double *const *in, double *out)
{
    double *x = doubles(NULL, p->count[0]);
    for (int64_t i = 0; i < p->count[0]; i++)
        x[i] = reference_activation(in[0][i], p->act);
    reference_linear(out, x, in[1], p->count[2] ? in[2] : NULL, p->shape[0], p->shape[1], p->shape[2]);
    free(x);
}

static void linear_kernel(const problem *p, ddp_stream *s, float *const *in, float *out, const float *slope,
                          float *const *grad)
{
    int64_t R = p->shape[0], K = p->shape[1], C = p->shape[2];
    float *x = floats(R * K);
    for (int64_t i = 0; i < R * K; i++)
        x[i] = (float)reference_activation((double)in[0][i], p->act);
    const float *saved = p->act == DDP_ACT_NONE ? NULL : p->act == DDP_ACT_RELU ? x : in[0];
    bool bias = p->count[2] > 0;
    kernels->linear_forward(s, out, NULL, x, in[1], bias ? in[2] : NULL, DDP_ACT_NONE, R, K, C);
    kernels->linear_backward_input(s, grad[0], slope, in[1], saved, p->act, p->added[0], R, K, C);
    kernels->linear_backward_weight(s, grad[1], bias ? grad[2] : NULL, slope, x, R, K, C);
    free(x);
}

/* -- norm: inputs a, b (R,C), weight, bias (C); output y and behind it the sum -- */

static void describe_norm(problem *p)
{
    int64_t R = p->shape[0], C = p->shape[1];
    p->count[0] = R * C;
    p->count[1] = p->variant ? R * C : 0;
    p->count[2] = p->count[3] = C;
    p->out_count = p->variant ? 2 * R * C : R * C;
    p->added[2] = p->added[3] = true;
}

static void norm_reference(const problem *p, double *const *in, double *out)
{
    int64_t size = p->count[0];
    double *sum = doubles(NULL, size);
    reference_norm(out, sum, in[0], p->variant ? in[1] : NULL, in[2], in[3], p->shape[0], p->shape[1]);
    if (p->variant)
        memcpy(out + size, sum, (size_t)size * sizeof *sum);
    free(sum);
}

static void norm_kernel(const problem *p, ddp_stream *s, float *const *in, float *out, const float *slope,
                        float *const *grad)
{
    int64_t R = p->shape[0], C = p->shape[1], size = R * C;
    float *mean = floats(R), *rstd = floats(R);
    const float *x = in[0], *residual = NULL;
    if (p->variant) { /* the sum in place of a, the residual and dx in the memory of dy */
        memcpy(out + size, in[0], (size_t)size * sizeof *out);
        kernels->norm_forward(s, out, out + size, mean, rstd, out + size, in[1], in[2], in[3], R, C);
        x = out + size;
        residual = grad[0];
        memcpy(grad[0], slope + size, (size_t)size * sizeof *slope);
    } else {
        kernels->norm_forward(s, out, NULL, mean, rstd, in[0], NULL, in[2], in[3], R, C);
    }
    kernels->norm_backward(s, grad[0], grad[2], grad[3], slope, x, mean, rstd, in[2], residual, R, C);
    if (p->variant) { /* b's gradient is a's; made again with dx over dy */
        float *unused = calloc((size_t)(2 * C), sizeof *unused);
        memcpy(grad[1], slope, (size_t)size * sizeof *slope);
        kernels->norm_backward(s, grad[1], unused, unused + C, grad[1], x, mean, rstd, in[2], slope + size, R,
                               C);
        free(unused);
    }
    free(mean);
    free(rstd);
}

/* -- embedding: inputs tokens (V,C), positions (T+2,C) -- */

static void describe_embedding(problem *p)
{
    int64_t B = p->shape[0], T = p->shape[1], C = p->shape[2], V = p->shape[3];
    p->count[0] = V * C;
    p->count[1] = (T + 2) * C;
    p->out_count = B * T * C;
    p->added[0] = p->added[1] = true;
    fill_ids(p, B * T, V, false);
}

static void embedding_reference(const problem *p, double *const *in, double *out)
{
    reference_embedding(out, p->ids, in[0], in[1], p->shape[0], p->shape[1], p->shape[2]);
}

static void embedding_kernel(const problem *p, ddp_stream *s, float *const *in, float *out,
                             const float *slope, float *const *grad)
{
    int64_t B = p->shape[0], T = p->shape[1], C = p->shape[2], V = p->shape[3];
    kernels->embedding_forward(s, out, p->ids, in[0], in[1], B, T, C);
    kernels->embedding_backward(s, grad[0], grad[1], slope, p->ids, B, T, C, V);
}

/* -- attention: input qkv (B,T,3,H,D) -- */

static void describe_attention(problem *p)
{
    p->out_count = p->shape[0] * p->shape[1] * p->shape[2] * p->shape[3];
    p->count[0] = 3 * p->out_count;
}

static void attention_reference(const problem *p, double *const *in, double *out)
{
    reference_attention(out, in[0], p->shape[0], p->shape[1], p->shape[2], p->shape[3]);
}

static void attention_kernel(const problem *p, ddp_stream *s, float *const *in, float *out,
                             const float *slope, float *const *grad)
{
    int64_t B = p->shape[0], T = p->shape[1], H = p->shape[2], D = p->shape[3];
    float *stats = floats(B * H * T);
    kernels->attention_forward(s, out, stats, in[0], B, T, H, D);
    kernels->attention_backward(s, grad[0], slope, in[0], out, stats, B, T, H, D);
    free(stats);
}

/* -- losses: input scores; the output is the one number scale * sum -- */

#define LOSS_SCALE 0.25f

static void describe_cross_entropy(problem *p)
{
    p->count[0] = p->shape[0] * p->shape[1];
    p->out_count = 1;
    fill_ids(p, p->shape[0], p->shape[1], p->variant);
}

static void cross_entropy_reference(const problem *p, double *const *in, double *out)
{
    *out = (double)LOSS_SCALE * reference_cross_entropy(in[0], p->ids, p->shape[0], p->shape[1]);
}

static void loss_out(float *out, const ddp_loss *total, int64_t R, bool masked)
{
    *out = LOSS_SCALE * (float)total->sum;
    cr_assert_eq(total->items, (double)(masked ? R - (R + 1) / 3 : R), "%g items", total->items);
}

static void cross_entropy_kernel(const problem *p, ddp_stream *s, float *const *in, float *out,
                                 const float *slope, float *const *grad)
{
    ddp_loss total = {0}, evaluated = {0};
    size_t bytes = (size_t)p->count[0] * sizeof(float);
    memcpy(grad[0], in[0], bytes);
    kernels->cross_entropy(s, &evaluated, grad[0], p->ids, 0, p->shape[0], p->shape[1]);
    memcpy(grad[0], in[0], bytes);
    kernels->cross_entropy(s, &total, grad[0], p->ids, LOSS_SCALE * *slope, p->shape[0], p->shape[1]);
    cr_assert(memcmp(&total, &evaluated, sizeof total) == 0, "training and evaluation differ");
    loss_out(out, &total, p->shape[0], p->variant);
}

static void describe_squared_error(problem *p)
{
    int64_t R = p->shape[0], C = p->shape[1];
    p->count[0] = R * C;
    p->out_count = 1;
    p->targets = floats(R * C);
    ddp_rng_fill_normal(3, 3, 0, p->targets, (size_t)(R * C), 1);
    for (int64_t r = 1; p->variant && r < R; r += 3)
        p->targets[r * C] = NAN;
}

static void squared_error_reference(const problem *p, double *const *in, double *out)
{
    *out = (double)LOSS_SCALE * reference_squared_error(in[0], p->targets, p->shape[0], p->shape[1]);
}

static void squared_error_kernel(const problem *p, ddp_stream *s, float *const *in, float *out,
                                 const float *slope, float *const *grad)
{
    ddp_loss total = {0};
    memcpy(grad[0], in[0], (size_t)p->count[0] * sizeof(float));
    kernels->squared_error(s, &total, grad[0], p->targets, LOSS_SCALE * *slope, p->shape[0], p->shape[1]);
    loss_out(out, &total, p->shape[0], p->variant);
    cr_assert_eq(total.correct, 0);
}

/* -- the check -- */

static double directed(const problem *p, double *const *in, double *out, const float *slope)
{
    double sum = 0;
    p->reference(p, in, out);
    for (int64_t i = 0; i < p->out_count; i++)
        sum += out[i] * (double)slope[i];
    return sum;
}

static void check_near(const problem *p, const char *what, int64_t at, double got, double want,
                       double tolerance)
{
    cr_assert(fabs(got - want) <= tolerance * (1 + fabs(want)),
              "%s (%d, %d, %d, %d): %s[%d] is %.8g, should be %.8g", p->name, (int)p->shape[0],
              (int)p->shape[1], (int)p->shape[2], (int)p->shape[3], what, (int)at, got, want);
}

static void check_differences(const problem *p, double *const *in, double *out, const float *slope, int input,
                              const float *grad)
{
    const double h = 1e-5;
    int64_t count = p->count[input], samples = count < SAMPLES ? count : SAMPLES;
    for (int64_t n = 0; n < samples; n++) {
        int64_t i =
            count == samples ? n : (int64_t)(ddp_rng_u64(9, (uint64_t)input, (uint64_t)n) % (uint64_t)count);
        double x = in[input][i];
        in[input][i] = x + h;
        double above = directed(p, in, out, slope);
        in[input][i] = x - h;
        double below = directed(p, in, out, slope);
        in[input][i] = x;
        double start = p->added[input] ? 2 : 0;
        char what[] = "gradient 0";
        what[9] = (char)('0' + input);
        check_near(p, what, i, (double)grad[i] - start, (above - below) / (2 * h), 2e-4);
    }
}

typedef struct buffers {
    float *in[INPUTS], *out, *slope, *grad[INPUTS];
} buffers;

static buffers make_buffers(const problem *p)
{
    buffers b = {.out = floats(p->out_count), .slope = floats(p->out_count)};
    for (int i = 0; i < INPUTS; i++) {
        b.in[i] = floats(p->count[i]);
        b.grad[i] = floats(p->count[i]);
        ddp_rng_fill_normal(1, (uint64_t)i, 0, b.in[i], (size_t)p->count[i], 1);
        for (int64_t n = 0; n < p->count[i]; n++) {
            if (p->act == DDP_ACT_RELU && i == 0 && fabsf(b.in[i][n]) < 1e-3f)
                b.in[i][n] = 0.5f; /* no difference is taken over the kink */
            if (p->added[i])
                b.grad[i][n] = 2;
        }
    }
    ddp_rng_fill_normal(1, 77, 0, b.slope, (size_t)p->out_count, 1);
    if (p->out_count == 1)
        b.slope[0] = 1;
    return b;
}

static void free_buffers(buffers *b)
{
    for (int i = 0; i < INPUTS; i++) {
        free(b->in[i]);
        free(b->grad[i]);
    }
    free(b->out);
    free(b->slope);
}

static void check_problem(ddp_stream *s, problem p)
{
    p.describe(&p);
    buffers b = make_buffers(&p), again = make_buffers(&p);
    p.kernel(&p, s, b.in, b.out, b.slope, b.grad);
    p.kernel(&p, s, again.in, again.out, again.slope, again.grad);
    check_ok(ddp_stream_wait(s));

    double *in[INPUTS], *out = doubles(NULL, p.out_count);
    for (int i = 0; i < INPUTS; i++)
        in[i] = doubles(b.in[i], p.count[i]);
    p.reference(&p, in, out);
    for (int64_t i = 0; i < p.out_count; i++)
        check_near(&p, "output", i, (double)b.out[i], out[i], 1e-5);
    cr_assert(memcmp(b.out, again.out, (size_t)p.out_count * sizeof(float)) == 0, "%s: outputs differ",
              p.name);
    for (int i = 0; i < INPUTS; i++) {
        check_differences(&p, in, out, b.slope, i, b.grad[i]);
        cr_assert(memcmp(b.grad[i], again.grad[i], (size_t)p.count[i] * sizeof(float)) == 0,
                  "%s: gradient %d differs from run to run", p.name, i);
    }
    for (int i = 0; i < INPUTS; i++)
        free(in[i]);
    free(out);
    free_buffers(&b);
    free_buffers(&again);
    free(p.ids);
    free(p.targets);
}

#define LINEAR(...)                                                                                        \
    .name = "linear", .describe = describe_linear, .reference = linear_reference, .kernel = linear_kernel, \
    __VA_ARGS__
#define NORM(...) \
    .name = "norm", .describe = describe_norm, .reference = norm_reference, .kernel = norm_kernel, __VA_ARGS__
#define EMBEDDING(...)                                                                     \
    .name = "embedding", .describe = describe_embedding, .reference = embedding_reference, \
    .kernel = embedding_kernel, __VA_ARGS__
#define ATTENTION(...)                                                                     \
    .name = "attention", .describe = describe_attention, .reference = attention_reference, \
    .kernel = attention_kernel, __VA_ARGS__
#define CROSS_ENTROPY(...)                                                                             \
    .name = "cross_entropy", .describe = describe_cross_entropy, .reference = cross_entropy_reference, \
    .kernel = cross_entropy_kernel, __VA_ARGS__
#define SQUARED_ERROR(...)                                                                             \
    .name = "squared_error", .describe = describe_squared_error, .reference = squared_error_reference, \
    .kernel = squared_error_kernel, __VA_ARGS__

static const problem problems[] = {
    {LINEAR(.shape = {1, 1, 1})},
    {LINEAR(.shape = {3, 5, 7})},
    {LINEAR(.shape = {3, 5, 7}, .variant = true)},
    {LINEAR(.shape = {17, 33, 9}, .act = DDP_ACT_RELU)},
    {LINEAR(.shape = {17, 33, 9}, .act = DDP_ACT_GELU)},
    {LINEAR(.shape = {1, 64, 32}, .act = DDP_ACT_GELU, .variant = true)},
    {LINEAR(.shape = {300, 20, 43}, .act = DDP_ACT_RELU)},
    {LINEAR(.shape = {300, 20, 43}, .act = DDP_ACT_GELU)},
    {LINEAR(.shape = {64, 64, 64})},
    {NORM(.shape = {1, 1})},
    {NORM(.shape = {1, 8}, .variant = true)},
    {NORM(.shape = {5, 7})},
    {NORM(.shape = {130, 33}, .variant = true)},
    {NORM(.shape = {64, 128})},
    {EMBEDDING(.shape = {1, 1, 1, 1})},
    {EMBEDDING(.shape = {3, 5, 7, 11})},
    {EMBEDDING(.shape = {4, 16, 32, 5})},
    {ATTENTION(.shape = {1, 1, 1, 1})},
    {ATTENTION(.shape = {1, 7, 2, 3})},
    {ATTENTION(.shape = {2, 5, 3, 4})},
    {ATTENTION(.shape = {1, 48, 1, 16})},
    {ATTENTION(.shape = {2, 49, 2, 8})},
    {ATTENTION(.shape = {1, 97, 1, 17})},
    {ATTENTION(.shape = {1, 128, 2, 32})},
    {ATTENTION(.shape = {1, 60, 1, 64})},
    {CROSS_ENTROPY(.shape = {1, 1})},
    {CROSS_ENTROPY(.shape = {1, 2})},
    {CROSS_ENTROPY(.shape = {7, 10}, .variant = true)},
    {CROSS_ENTROPY(.shape = {20, 65})},
    {CROSS_ENTROPY(.shape = {5, 1001}, .variant = true)},
    {SQUARED_ERROR(.shape = {1, 1})},
    {SQUARED_ERROR(.shape = {9, 5}, .variant = true)},
    {SQUARED_ERROR(.shape = {4, 33})},
};

Test(kernels, gradients, .timeout = 60)
{
    ddp_device *device = NULL;
    ddp_stream *stream = NULL;
    ddp_device_config config = {.threads = 1, .compute = DDP_F32};
    check_ok(kernels_under_test->open(&config, &device));
    check_ok(ddp_stream_open(device, DDP_STREAM_COMPUTE, &stream));
    kernels = device->kernels;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++)
        check_problem(stream, problems[i]);
    ddp_stream_close(stream);
    ddp_device_close(device);
}
