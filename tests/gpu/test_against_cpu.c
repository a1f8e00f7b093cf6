/* The GPU's kernels against the CPU's on the same random inputs: shapes that a model has, and random ones.
 * Outputs are poisoned with NaN; everything a kernel may touch is compared, inputs too; and a second run must
 * give the same bits. */
#include <ddp/kernels.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/device/devices.h"
#include "core/rng.h"
#include "gpu/shim.h"
#include "support/test.h"

enum { BUFFERS = 8, RANDOM_SHAPES = 12 };

typedef struct shape {
    int64_t a, b, c, d;
} shape;

/* Buffers of one call. Those that are only written start as NaN. */
typedef struct buffers {
    float *at[BUFFERS];
    int64_t count[BUFFERS];
    int32_t *ids;
    ddp_loss total;
} buffers;

typedef struct operation {
    const char *name;
    shape largest;    /* of the random ones */
    shape fixed[4];   /* a is 0 behind the last */
    unsigned written; /* bit i: buffer i is only written */
    int64_t (*id_count)(shape s);
    int64_t (*id_limit)(shape s);
    void (*count)(shape s, int64_t *count);
    void (*run)(const ddp_kernels *k, ddp_stream *stream, shape s, buffers *b);
} operation;

typedef struct target {
    ddp_device *device;
    ddp_stream *stream;
} target;

static void count_forward(shape s, int64_t *n)
{
    n[0] = n[1] = s.a * s.c;
    n[2] = s.a * s.b;
    n[3] = s.b * s.c;
    n[4] = s.c;
}

static void run_gelu(const ddp_kernels *k, ddp_stream *stream, shape s, buffers *b)
{
    k->linear_forward(stream, b->at[0], b->at[1], b->at[2], b->at[3], b->at[4], DDP_ACT_GELU, s.a, s.b, s.c);
}

static void run_relu(const ddp_kernels *k, ddp_stream *stream, shape s, buffers *b)
{
    k->linear_forward(stream, b->at[0], NULL, b->at[2], b->at[3], b->at[4], DDP_ACT_RELU, s.a, s.b, s.c);
    k->linear_forward(stream, b->at[1], NULL, b->at[2], b->at[3], NULL, DDP_ACT_NONE, s.a, s.b, s.c);
}

static void count_backward_input(shape s, int64_t *n)
{
    n[0] = n[1] = n[4] = s.a * s.b;
    n[2] = s.a * s.c;
    n[3] = s.b * s.c;
    n[5] = s.a * s.b;
}

static void run_backward_input(const ddp_kernels *k, ddp_stream *stream, shape s, buffers *b)
{
    k->linear_backward_input(stream, b->at[0], b->at[2], b->at[3], b->at[4], DDP_ACT_GELU, false, s.a, s.b,
                             s.c);
    k->linear_backward_input(stream, b->at[1], b->at[2], b->at[3], b->at[4], DDP_ACT_RELU, false, s.a, s.b,
                             s.c);
    k->linear_backward_input(stream, b->at[5], b->at[2], b->at[3], NULL, DDP_ACT_NONE, true, s.a, s.b, s.c);
}

static void count_backward_weight(shape s, int64_t *n)
{
    n[0] = s.b * s.c;
    n[1] = s.c;
    n[2] = s.a * s.c;
    n[3] = s.a * s.b;
}

static void run_backward_weight(const ddp_kernels *k, ddp_stream *stream, shape s, buffers *b)
{
    k->linear_backward_weight(stream, b->at[0], b->at[1], b->at[2], b->at[3], s.a, s.b, s.c);
}

static void count_norm(shape s, int64_t *n)
{
    n[0] = n[1] = n[4] = n[5] = s.a * s.b;
    n[2] = n[3] = s.a;
    n[6] = n[7] = s.b;
}

static void run_norm(const ddp_kernels *k, ddp_stream *stream, shape s, buffers *b)
{
    k->norm_forward(stream, b->at[0], b->at[1], b->at[2], b->at[3], b->at[4], b->at[5], b->at[6], b->at[7],
                    s.a, s.b);
}

static void count_norm_backward(shape s, int64_t *n)
{
    n[0] = n[1] = n[2] = s.a * s.b;
    n[3] = n[4] = s.a;
    n[5] = n[6] = n[7] = s.b;
}

/* dx over its residual, as models call it; mean and deviation are made by a forward pass first. */
static void run_norm_backward(const ddp_kernels *k, ddp_stream *stream, shape s, buffers *b)
{
    float *y = malloc((size_t)(s.a * s.b) * sizeof *y);
    k->norm_forward(stream, y, NULL, b->at[3], b->at[4], b->at[2], NULL, b->at[7], b->at[7], s.a, s.b);
    free(y);
    k->norm_backward(stream, b->at[0], b->at[5], b->at[6], b->at[1], b->at[2], b->at[3], b->at[4], b->at[7],
                     b->at[0], s.a, s.b);
}

static int64_t count_tokens(shape s)
{
    return s.a * s.b;
}

static int64_t limit_tokens(shape s)
{
    return s.d;
}

static void count_embedding(shape s, int64_t *n)
{
    n[0] = n[1] = s.a * s.b * s.c;
    n[2] = n[4] = s.d * s.c;
    n[3] = n[5] = s.b * s.c;
}

static void run_embedding(const ddp_kernels *k, ddp_stream *stream, shape s, buffers *b)
{
    k->embedding_forward(stream, b->at[0], b->ids, b->at[2], b->at[3], s.a, s.b, s.c);
    k->embedding_backward(stream, b->at[4], b->at[5], b->at[1], b->ids, s.a, s.b, s.c, s.d);
}

static void count_attention(shape s, int64_t *n)
{
    int64_t size = s.a * s.b * s.c * s.d;
    n[0] = n[4] = size;
    n[1] = s.a * s.b * s.c;
    n[2] = n[3] = 3 * size;
}

static void run_attention(const ddp_kernels *k, ddp_stream *stream, shape s, buffers *b)
{
    k->attention_forward(stream, b->at[0], b->at[1], b->at[3], s.a, s.b, s.c, s.d);
    k->attention_backward(stream, b->at[2], b->at[4], b->at[3], b->at[0], b->at[1], s.a, s.b, s.c, s.d);
}

static int64_t count_rows(shape s)
{
    return s.a;
}

static int64_t limit_rows(shape s)
{
    return s.b;
}

static void count_loss(shape s, int64_t *n)
{
    n[0] = n[1] = n[2] = s.a * s.b;
}

static void run_losses(const ddp_kernels *k, ddp_stream *stream, shape s, buffers *b)
{
    k->cross_entropy(stream, &b->total, b->at[0], b->ids, 0.01f, s.a, s.b);
    k->squared_error(stream, &b->total, b->at[1], b->at[2], 0.01f, s.a, s.b);
}

static void count_update(shape s, int64_t *n)
{
    for (int i = 0; i < 6; i++)
        n[i] = s.a;
}

static void run_update(const ddp_kernels *k, ddp_stream *stream, shape s, buffers *b)
{
    float scale = 0.7f;
    ddp_adamw_args adamw = {.scale = &scale,
                            .lr = 1e-2f,
                            .eps = 1e-8f,
                            .decay = 0.1f,
                            .beta1 = 0.9,
                            .beta2 = 0.95,
                            .correction1 = 0.1,
                            .correction2 = 0.05};
    ddp_sgd_args sgd = {.scale = &scale, .lr = 0.1f, .momentum = 0.9f, .decay = 0.01f};
    for (int64_t i = 0; i < s.a; i++)
        b->at[3][i] = fabsf(b->at[3][i]);
    k->adamw(stream, b->at[0], b->at[1], b->at[2], b->at[3], s.a, &adamw);
    k->sgd(stream, b->at[4], b->at[1], b->at[5], s.a, &sgd);
    k->sum_squares(stream, &b->total.sum, b->at[1], s.a);
}

/* Shapes have as many sizes as their operation takes; clang minds short rows. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
static const operation operations[] = {
    {.name = "linear forward, gelu",
     .largest = {600, 300, 300},
     .written = 3,
     .fixed = {{1, 1, 1}, {128, 784, 512}, {2048, 768, 3072}},
     .count = count_forward,
     .run = run_gelu},
    {.name = "linear forward, relu and none",
     .largest = {600, 300, 300},
     .written = 3,
     .fixed = {{128, 512, 10}, {256, 768, 2304}},
     .count = count_forward,
     .run = run_relu},
    {.name = "linear backward, input",
     .largest = {600, 300, 300},
     .written = 3,
     .fixed = {{1, 1, 1}, {128, 512, 10}, {1024, 768, 3072}},
     .count = count_backward_input,
     .run = run_backward_input},
    {.name = "linear backward, weight",
     .largest = {900, 300, 300},
     .fixed = {{1, 1, 1}, {128, 784, 512}, {4096, 768, 768}},
     .count = count_backward_weight,
     .run = run_backward_weight},
    {.name = "norm forward",
     .largest = {500, 1200},
     .written = 15,
     .fixed = {{1, 1}, {4096, 768}, {33, 4100}},
     .count = count_norm,
     .run = run_norm},
    {.name = "norm backward",
     .largest = {500, 1200},
     .written = 24,
     .fixed = {{1, 1}, {4096, 768}, {5000, 36}},
     .count = count_norm_backward,
     .run = run_norm_backward},
    {.name = "embedding",
     .largest = {20, 70, 200, 500},
     .written = 1,
     .fixed = {{1, 1, 1, 1}, {8, 256, 768, 50257}, {16, 128, 64, 2}},
     .id_count = count_tokens,
     .id_limit = limit_tokens,
     .count = count_embedding,
     .run = run_embedding},
    {.name = "attention",
     .largest = {3, 150, 4, 140},
     .written = 7,
     .fixed = {{2, 1024, 2, 64}, {1, 300, 2, 128}, {1, 65, 1, 256}, {4, 128, 4, 32}},
     .count = count_attention,
     .run = run_attention},
    {.name = "losses",
     .largest = {300, 3000},
     .fixed = {{1, 1}, {128, 10}, {64, 50257}},
     .id_count = count_rows,
     .id_limit = limit_rows,
     .count = count_loss,
     .run = run_losses},
    {.name = "updates",
     .largest = {300000},
     .fixed = {{1}, {5}, {1 << 20}},
     .count = count_update,
     .run = run_update},
};

static target open_target(const ddp_device_ops *ops)
{
    target t;
    ddp_device_config config = {.threads = 2, .compute = DDP_F32};
    check_ok(ops->open(&config, &t.device));
    check_ok(ddp_stream_open(t.device, DDP_STREAM_COMPUTE, &t.stream));
    return t;
}

static void close_target(target *t)
{
    ddp_stream_close(t->stream);
    ddp_device_close(t->device);
}

static buffers make_buffers(const operation *o, shape s, uint64_t seed)
{
    buffers b = {.ids = NULL};
    o->count(s, b.count);
    for (int i = 0; i < BUFFERS; i++) {
        b.at[i] = malloc((size_t)(b.count[i] + 1) * sizeof(float));
        ddp_rng_fill_normal(seed, (uint64_t)i, 0, b.at[i], (size_t)b.count[i], 1);
        if (o->written >> i & 1)
            memset(b.at[i], 0xff, (size_t)b.count[i] * sizeof(float));
    }
    int64_t ids = o->id_count != NULL ? o->id_count(s) : 0;
    b.ids = malloc((size_t)(ids + 1) * sizeof *b.ids);
    for (int64_t i = 0; i < ids; i++)
        b.ids[i] = (int32_t)(ddp_rng_u64(seed, 99, (uint64_t)i) % (uint64_t)o->id_limit(s));
    return b;
}

static void free_buffers(buffers *b)
{
    for (int i = 0; i < BUFFERS; i++)
        free(b->at[i]);
    free(b->ids);
}

static double relative(const float *got, const float *want, int64_t count)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += pow((double)got[i] - (double)want[i], 2);
        size += pow((double)want[i], 2);
    }
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

static double check_shape(const operation *o, shape s, uint64_t seed, target *cpu, target *gpu)
{
    buffers want = make_buffers(o, s, seed), got = make_buffers(o, s, seed), again = make_buffers(o, s, seed);
    double worst = 0;
    o->run(cpu->device->kernels, cpu->stream, s, &want);
    check_ok(ddp_stream_wait(cpu->stream));
    o->run(gpu->device->kernels, gpu->stream, s, &got);
    o->run(gpu->device->kernels, gpu->stream, s, &again);
    check_ok(ddp_stream_wait(gpu->stream));
    for (int i = 0; i < BUFFERS; i++) {
        double error = relative(got.at[i], want.at[i], want.count[i]);
        cr_assert(error <= 1e-5, "%s (%d, %d, %d, %d): buffer %d differs by %.3g", o->name, (int)s.a,
                  (int)s.b, (int)s.c, (int)s.d, i, error);
        cr_assert(memcmp(got.at[i], again.at[i], (size_t)got.count[i] * sizeof(float)) == 0,
                  "%s: buffer %d differs from run to run", o->name, i);
        worst = error > worst ? error : worst;
    }
    cr_assert(memcmp(&got.total, &again.total, sizeof got.total) == 0, "%s: totals differ from run to run",
              o->name);
    cr_assert(fabs(got.total.sum - want.total.sum) <= 1e-6 * fabs(want.total.sum), "%s: total %.9g, %.9g",
              o->name, got.total.sum, want.total.sum);
    cr_assert(got.total.items == want.total.items && got.total.correct == want.total.correct, "%s: counts",
              o->name);
    free_buffers(&want);
    free_buffers(&got);
    free_buffers(&again);
    return worst;
}

static int64_t draw(uint64_t seed, uint64_t at, int64_t largest)
{
    return largest == 0 ? 0 : 1 + (int64_t)(ddp_rng_u64(seed, 7, at) % (uint64_t)largest);
}

static void check_operation(size_t index)
{
    const operation *o = &operations[index];
    target cpu = open_target(&ddp_device_cpu_ops), gpu = open_target(&shim_device_ops);
    double worst = 0;
    for (uint64_t n = 0; n < RANDOM_SHAPES + 4; n++) {
        shape s = {draw(n, 0, o->largest.a), draw(n, 1, o->largest.b), draw(n, 2, o->largest.c),
                   draw(n, 3, o->largest.d)};
        if (n < 4)
            s = o->fixed[n];
        if (s.a > 0)
            worst = fmax(worst, check_shape(o, s, n, &cpu, &gpu));
    }
    printf("%-32s worst relative error %.2g\n", o->name, worst);
    fflush(stdout);
    close_target(&gpu);
    close_target(&cpu);
}

#define EACH(index, what)                   \
    Test(against_cpu, what, .timeout = 120) \
    {                                       \
        check_operation(index);             \
    }
EACH(0, linear_forward_gelu)
EACH(1, linear_forward_relu)
EACH(2, linear_backward_input)
EACH(3, linear_backward_weight)
EACH(4, norm_forward)
EACH(5, norm_backward)
EACH(6, embedding)
EACH(7, attention)
EACH(8, losses)
EACH(9, updates)
