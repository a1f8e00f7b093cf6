/* Time of each CPU kernel at the shapes of one rank's training step:
 *
 *     bench_kernels [threads [width [heads [T [batch [vocab]]]]]]     default 1 128 4 128 16 256
 *
 * One line a kernel: microseconds (the best of several runs; the machine may be shared), how often a step of
 * a 4-layer gpt runs it, its share of that step, and GFLOP/s (products) or GB/s (memory touched). */
#include <ddp/kernels.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/device/devices.h"
#include "core/rng.h"

enum { LAYERS = 4 };

static ddp_stream *stream;
static const ddp_kernels *kernels;
static int64_t B = 16, T = 128, C = 128, H = 4, V = 256, R;
static float *x, *y, *wide, *pre, *weight, *grad, *bias, *stats, *scores;
static int32_t *ids;
static float one = 1e-3f;

typedef struct timing {
    const char *name;
    void (*run)(void);
    double per_step;
    double flops, bytes; /* one of them */
    double seconds;
} timing;

static void qkv_forward(void)
{
    kernels->linear_forward(stream, wide, NULL, x, weight, bias, DDP_ACT_NONE, R, C, 3 * C);
}
static void projection_forward(void)
{
    kernels->linear_forward(stream, y, NULL, x, weight, bias, DDP_ACT_NONE, R, C, C);
}
static void up_forward(void)
{
    kernels->linear_forward(stream, wide, pre, x, weight, bias, DDP_ACT_GELU, R, C, 4 * C);
}
static void up_plain(void)
{
    kernels->linear_forward(stream, wide, NULL, x, weight, NULL, DDP_ACT_NONE, R, C, 4 * C);
}
static void down_forward(void)
{
    kernels->linear_forward(stream, y, NULL, wide, weight, bias, DDP_ACT_NONE, R, 4 * C, C);
}
static void head_forward(void)
{
    kernels->linear_forward(stream, scores, NULL, x, weight, NULL, DDP_ACT_NONE, R, C, V);
}
static void qkv_input(void)
{
    kernels->linear_backward_input(stream, y, wide, weight, NULL, DDP_ACT_NONE, false, R, C, 3 * C);
}
static void down_input(void)
{
    kernels->linear_backward_input(stream, wide, x, weight, pre, DDP_ACT_GELU, false, R, 4 * C, C);
}
static void up_input(void)
{
    kernels->linear_backward_input(stream, y, wide, weight, NULL, DDP_ACT_NONE, false, R, C, 4 * C);
}
static void up_weight(void)
{
    kernels->linear_backward_weight(stream, grad, grad + 4 * C * C, wide, x, R, C, 4 * C);
}
static void down_weight(void)
{
    kernels->linear_backward_weight(stream, grad, grad + 4 * C * C, x, wide, R, 4 * C, C);
}
static void norm_forward(void)
{
    kernels->norm_forward(stream, y, pre, stats, stats + R, x, wide, bias, bias, R, C);
}
static void norm_backward(void)
{
    kernels->norm_backward(stream, y, grad, grad + C, wide, x, stats, stats + R, bias, pre, R, C);
}
static void attention_forward(void)
{
    kernels->attention_forward(stream, y, stats, wide, B, T, H, C / H);
}
static void attention_backward(void)
{
    kernels->attention_backward(stream, pre, x, wide, y, stats, B, T, H, C / H);
}
static void cross_entropy(void)
{
    ddp_loss total = {0};
    kernels->cross_entropy(stream, &total, scores, ids, one, R, V);
}
static void embedding_forward(void)
{
    kernels->embedding_forward(stream, y, ids, weight, wide, B, T, C);
}
static void embedding_backward(void)
{
    kernels->embedding_backward(stream, grad, pre, x, ids, B, T, C, V);
}
static void adamw(void)
{
    ddp_adamw_args args = {&one, 1e-3f, 1e-8f, 0.01f, 0.9, 0.95, 0.5, 0.5};
    kernels->adamw(stream, weight, grad, pre, wide, 12 * C * C, &args);
}
static void sum_squares(void)
{
    double total = 0;
    kernels->sum_squares(stream, &total, weight, 12 * C * C);
}

static double time_of(void (*run)(void))
{
    double best = 1e9, begin = ddp_clock_now();
    run();
    for (int i = 0; i < 200 && (i < 5 || ddp_clock_now() - begin < 0.4); i++) {
        double start = ddp_clock_now();
        run();
        double took = ddp_clock_now() - start;
        best = took < best ? took : best;
    }
    return best;
}

static float *floats(int64_t count)
{
    void *memory = NULL;
    ddp_error *error = ddp_device_alloc(stream->device, (size_t)count * sizeof(float), &memory);
    if (error != NULL) {
        ddp_error_print(error, "error", stderr);
        exit(1);
    }
    ddp_rng_fill_normal(1, (uint64_t)count, 0, memory, (size_t)count, 0.1f);
    return memory;
}

static void prepare(int threads)
{
    ddp_device *device = NULL;
    ddp_device_config config = {.threads = threads, .compute = DDP_F32};
    ddp_error *error = ddp_device_cpu_ops.open(&config, &device);
    if (error == NULL)
        error = ddp_stream_open(device, DDP_STREAM_COMPUTE, &stream);
    if (error != NULL) {
        ddp_error_print(error, "error", stderr);
        exit(1);
    }
    kernels = device->kernels;
    R = B * T;
    int64_t largest = 12 * C * C > V * C ? 12 * C * C : V * C;
    x = floats(R * C);
    y = floats(R * C);
    wide = floats(R * 4 * C + largest);
    pre = floats(R * 4 * C + largest);
    weight = floats(largest);
    grad = floats(largest + 4 * C);
    bias = floats(4 * C);
    stats = floats(2 * R * H);
    scores = floats(R * V);
    ids = calloc((size_t)R, sizeof *ids);
    for (int64_t r = 0; r < R; r++)
        ids[r] = (int32_t)(ddp_rng_u64(1, 1, (uint64_t)r) % (uint64_t)V);
    printf("%s, %d thread%s: width %d, heads %d, T %d, batch %d, vocabulary %d\n", device->description,
           threads, threads == 1 ? "" : "s", (int)C, (int)H, (int)T, (int)B, (int)V);
}

static void report(timing *t, size_t count)
{
    double total = 0;
    for (size_t i = 0; i < count; i++) {
        t[i].seconds = time_of(t[i].run);
        total += t[i].seconds * t[i].per_step;
    }
    printf("%-22s %9s %6s %7s %9s %7s\n", "kernel", "us", "a step", "share", "GFLOP/s", "GB/s");
    for (size_t i = 0; i < count; i++) {
        printf("%-22s %9.1f %6.0f %6.1f%%", t[i].name, t[i].seconds * 1e6, t[i].per_step,
               100 * t[i].seconds * t[i].per_step / total);
        if (t[i].flops > 0)
            printf(" %9.1f\n", t[i].flops / t[i].seconds * 1e-9);
        else
            printf(" %9s %7.1f\n", "", t[i].bytes / t[i].seconds * 1e-9);
    }
    printf("step %.1f ms, %.0f tokens/s\n", total * 1e3, (double)R / total);
}

int main(int argc, char **argv)
{
    int64_t *sizes[] = {&C, &H, &T, &B, &V};
    for (int i = 2; i < argc && i < 7; i++)
        *sizes[i - 2] = atoll(argv[i]);
    prepare(argc > 1 ? atoi(argv[1]) : 1);

    double r = (double)R, c = (double)C, v = (double)V, t = (double)T, f = sizeof(float);
    double pairs = (double)B * (double)H * t * (t + 1) / 2, d = c / (double)H;
    timing timings[] = {
        {"up plain", up_plain, 0, 8 * r * c * c, 0, 0},
        {"qkv forward", qkv_forward, LAYERS, 6 * r * c * c, 0, 0},
        {"projection forward", projection_forward, LAYERS, 2 * r * c * c, 0, 0},
        {"up + gelu forward", up_forward, LAYERS, 8 * r * c * c, 0, 0},
        {"down forward", down_forward, LAYERS, 8 * r * c * c, 0, 0},
        {"head forward", head_forward, 1, 2 * r * c * v, 0, 0},
        {"qkv input", qkv_input, LAYERS, 6 * r * c * c, 0, 0},
        {"projection input", projection_forward, LAYERS, 2 * r * c * c, 0, 0},
        {"down input + gelu", down_input, LAYERS, 8 * r * c * c, 0, 0},
        {"up input", up_input, LAYERS, 8 * r * c * c, 0, 0},
        {"up weight", up_weight, LAYERS * 2, 8 * r * c * c, 0, 0},
        {"down weight", down_weight, LAYERS, 8 * r * c * c, 0, 0},
        {"attention forward", attention_forward, LAYERS, 4 * pairs * d, 0, 0},
        {"attention backward", attention_backward, LAYERS, 10 * pairs * d, 0, 0},
        {"norm forward", norm_forward, 2 * LAYERS + 1, 0, 4 * r * c * f, 0},
        {"norm backward", norm_backward, 2 * LAYERS + 1, 0, 4 * r * c * f, 0},
        {"cross-entropy", cross_entropy, 1, 0, 2 * r * v * f, 0},
        {"embedding forward", embedding_forward, 1, 0, 3 * r * c * f, 0},
        {"embedding backward", embedding_backward, 1, 0, 5 * r * c * f, 0},
        {"sum of squares", sum_squares, LAYERS, 0, 12 * c * c * f, 0},
        {"adamw", adamw, LAYERS, 0, 7 * 12 * c * c * f, 0},
    };
    report(timings, sizeof timings / sizeof *timings);
    return 0;
}
