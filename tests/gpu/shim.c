/* See shim.h. An address that is given twice is one memory on the GPU too, so that arguments that may alias
 * do. */
#include "gpu/shim.h"

#include <ddp/kernels.h>
#include <stdlib.h>

#include "core/device/devices.h"
#include "kernels/reference.h"

enum { MAX_PARTS = 12 };

typedef struct shim_device {
    ddp_device base;
    ddp_device *gpu;
} shim_device;

typedef struct shim_stream {
    ddp_stream base;
    ddp_stream *gpu;
} shim_stream;

/* One kernel call's arguments in memory. */
typedef struct call {
    shim_stream *stream;
    struct part {
        void *host, *device;
        size_t bytes;
        bool written;
    } parts[MAX_PARTS];
    int count;
} call;

static const ddp_kernels *table(const ddp_stream *s)
{
    return ((shim_device *)s->device)->gpu->kernels;
}

static void *put(call *c, const void *host, size_t bytes, bool written)
{
    if (host == NULL)
        return NULL;
    for (int i = 0; i < c->count; i++)
        if (c->parts[i].host == host) {
            c->parts[i].written |= written;
            return c->parts[i].device;
        }
    ddp_assert(c->count < MAX_PARTS);
    struct part *part = &c->parts[c->count++];
    *part = (struct part){.host = (void *)host, .bytes = bytes, .written = written};
    ddp_error *error = ddp_device_alloc(c->stream->gpu->device, bytes, &part->device);
    if (error != NULL) {
        ddp_error_print(error, "error", stderr);
        exit(1);
    }
    ddp_stream_copy(c->stream->gpu, part->device, host, bytes);
    return part->device;
}

static const void *in(call *c, const void *host, int64_t count)
{
    return put(c, host, (size_t)count * sizeof(float), false);
}

static void *out(call *c, void *host, int64_t count)
{
    return put(c, host, (size_t)count * sizeof(float), true);
}

static void finish(call *c)
{
    for (int i = 0; i < c->count; i++)
        if (c->parts[i].written)
            ddp_stream_copy(c->stream->gpu, c->parts[i].host, c->parts[i].device, c->parts[i].bytes);
    ddp_error_free(ddp_stream_wait(c->stream->gpu)); /* it stays on the stream */
    for (int i = 0; i < c->count; i++)
        ddp_device_free(c->stream->gpu->device, c->parts[i].device);
}

#define BEGIN(s)                             \
    call c = {.stream = (shim_stream *)(s)}; \
    ddp_stream *gpu = ((shim_stream *)s)->gpu

static void linear_forward(ddp_stream *s, void *y, void *pre, const void *x, const void *w, const void *b,
                           ddp_activation act, int64_t R, int64_t K, int64_t C)
{
    BEGIN(s);
    table(s)->linear_forward(gpu, out(&c, y, R * C), out(&c, pre, R * C), in(&c, x, R * K), in(&c, w, C * K),
                             in(&c, b, C), act, R, K, C);
    finish(&c);
}

static void linear_backward_input(ddp_stream *s, void *dx, const void *dy, const void *w, const void *saved,
                                  ddp_activation act, bool add, int64_t R, int64_t K, int64_t C)
{
    BEGIN(s);
    table(s)->linear_backward_input(gpu, out(&c, dx, R * K), in(&c, dy, R * C), in(&c, w, C * K),
                                    in(&c, saved, R * K), act, add, R, K, C);
    finish(&c);
}

static void linear_backward_weight(ddp_stream *s, float *dw, float *db, const void *dy, const void *x,
                                   int64_t R, int64_t K, int64_t C)
{
    BEGIN(s);
    table(s)->linear_backward_weight(gpu, out(&c, dw, C * K), out(&c, db, C), in(&c, dy, R * C),
                                     in(&c, x, R * K), R, K, C);
    finish(&c);
}

static void norm_forward(ddp_stream *s, void *y, void *sum, float *mean, float *rstd, const void *a,
                         const void *b, const void *weight, const void *bias, int64_t R, int64_t C)
{
    BEGIN(s);
    table(s)->norm_forward(gpu, out(&c, y, R * C), out(&c, sum, R * C), out(&c, mean, R), out(&c, rstd, R),
                           in(&c, a, R * C), in(&c, b, R * C), in(&c, weight, C), in(&c, bias, C), R, C);
    finish(&c);
}

static void norm_backward(ddp_stream *s, void *dx, float *dweight, float *dbias, const void *dy,
                          const void *x, const float *mean, const float *rstd, const void *weight,
                          const void *residual, int64_t R, int64_t C)
{
    BEGIN(s);
    table(s)->norm_backward(gpu, out(&c, dx, R * C), out(&c, dweight, C), out(&c, dbias, C),
                            in(&c, dy, R * C), in(&c, x, R * C), in(&c, mean, R), in(&c, rstd, R),
                            in(&c, weight, C), in(&c, residual, R * C), R, C);
    finish(&c);
}

/* Tokens up to the largest id: the call does not say how many there are. */
static void embedding_forward(ddp_stream *s, void *y, const int32_t *ids, const void *tokens,
                              const void *positions, int64_t B, int64_t T, int64_t C)
{
    int32_t most = 0;
    BEGIN(s);
    for (int64_t i = 0; i < B * T; i++)
        most = ids[i] > most ? ids[i] : most;
    table(s)->embedding_forward(gpu, out(&c, y, B * T * C), in(&c, ids, B * T),
                                in(&c, tokens, (most + 1) * C), in(&c, positions, T * C), B, T, C);
    finish(&c);
}

static void embedding_backward(ddp_stream *s, float *dtokens, float *dpositions, const void *dy,
                               const int32_t *ids, int64_t B, int64_t T, int64_t C, int64_t V)
{
    BEGIN(s);
    table(s)->embedding_backward(gpu, out(&c, dtokens, V * C), out(&c, dpositions, T * C),
                                 in(&c, dy, B * T * C), in(&c, ids, B * T), B, T, C, V);
    finish(&c);
}

static void attention_forward(ddp_stream *s, void *y, float *stats, const void *qkv, int64_t B, int64_t T,
                              int64_t H, int64_t D)
{
    int64_t size = B * T * H * D;
    BEGIN(s);
    table(s)->attention_forward(gpu, out(&c, y, size), out(&c, stats, B * H * T), in(&c, qkv, 3 * size), B, T,
                                H, D);
    finish(&c);
}

static void attention_backward(ddp_stream *s, void *dqkv, const void *dy, const void *qkv, const void *y,
                               const float *stats, int64_t B, int64_t T, int64_t H, int64_t D)
{
    int64_t size = B * T * H * D;
    BEGIN(s);
    table(s)->attention_backward(gpu, out(&c, dqkv, 3 * size), in(&c, dy, size), in(&c, qkv, 3 * size),
                                 in(&c, y, size), in(&c, stats, B * H * T), B, T, H, D);
    finish(&c);
}

static void cross_entropy(ddp_stream *s, ddp_loss *total, void *logits, const int32_t *targets, float scale,
                          int64_t R, int64_t V)
{
    BEGIN(s);
    table(s)->cross_entropy(gpu, put(&c, total, sizeof *total, true), out(&c, logits, R * V),
                            in(&c, targets, R), scale, R, V);
    finish(&c);
}

static void squared_error(ddp_stream *s, ddp_loss *total, void *prediction, const float *targets, float scale,
                          int64_t R, int64_t C)
{
    BEGIN(s);
    table(s)->squared_error(gpu, put(&c, total, sizeof *total, true), out(&c, prediction, R * C),
                            in(&c, targets, R * C), scale, R, C);
    finish(&c);
}

static void sum_squares(ddp_stream *s, double *total, const float *x, int64_t count)
{
    BEGIN(s);
    table(s)->sum_squares(gpu, put(&c, total, sizeof *total, true), in(&c, x, count), count);
    finish(&c);
}

static void adamw(ddp_stream *s, float *weights, const float *gradients, float *mean, float *square,
                  int64_t count, const ddp_adamw_args *args)
{
    ddp_adamw_args used = *args;
    BEGIN(s);
    used.scale = in(&c, args->scale, 1);
    table(s)->adamw(gpu, out(&c, weights, count), in(&c, gradients, count), out(&c, mean, count),
                    out(&c, square, count), count, &used);
    finish(&c);
}

static void sgd(ddp_stream *s, float *weights, const float *gradients, float *velocity, int64_t count,
                const ddp_sgd_args *args)
{
    ddp_sgd_args used = *args;
    BEGIN(s);
    used.scale = in(&c, args->scale, 1);
    table(s)->sgd(gpu, out(&c, weights, count), in(&c, gradients, count), out(&c, velocity, count), count,
                  &used);
    finish(&c);
}

static void step_scale(ddp_stream *s, float *scale, double *norm, const double *squares,
                       const ddp_loss *totals, double nominal_items, double clip)
{
    BEGIN(s);
    table(s)->step_scale(gpu, out(&c, scale, 1), put(&c, norm, sizeof *norm, true),
                         put(&c, squares, sizeof *squares, false), put(&c, totals, sizeof *totals, false),
                         nominal_items, clip);
    finish(&c);
}

static const ddp_kernels kernels = {
    .name = "cuda f32 over host memory",
    .compute = DDP_F32,
    .linear_forward = linear_forward,
    .linear_backward_input = linear_backward_input,
    .linear_backward_weight = linear_backward_weight,
    .norm_forward = norm_forward,
    .norm_backward = norm_backward,
    .embedding_forward = embedding_forward,
    .embedding_backward = embedding_backward,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .cross_entropy = cross_entropy,
    .squared_error = squared_error,
    .sum_squares = sum_squares,
    .adamw = adamw,
    .sgd = sgd,
    .step_scale = step_scale,
};

static ddp_error *open_device(const ddp_device_config *config, ddp_device **device)
{
    ddp_device *gpu;
    DDP_TRY(ddp_device_cuda_ops.open(config, &gpu));
    shim_device *made = calloc(1, sizeof *made);
    ddp_assert(made != NULL);
    made->gpu = gpu;
    made->base = (ddp_device){.ops = &shim_device_ops, .kernels = &kernels, .config = *config};
    *device = &made->base;
    return NULL;
}

static void close_device(ddp_device *device)
{
    ddp_device_close(((shim_device *)device)->gpu);
    free(device);
}

static ddp_error *open_stream(ddp_device *device, ddp_stream_kind kind, ddp_stream **stream)
{
    ddp_stream *gpu;
    DDP_TRY(ddp_stream_open(((shim_device *)device)->gpu, kind, &gpu));
    shim_stream *made = calloc(1, sizeof *made);
    ddp_assert(made != NULL);
    made->gpu = gpu;
    made->base = (ddp_stream){.device = device, .kind = kind};
    *stream = &made->base;
    return NULL;
}

static void close_stream(ddp_stream *stream)
{
    ddp_stream_close(((shim_stream *)stream)->gpu);
    free(stream);
}

static ddp_error *wait_stream(ddp_stream *stream)
{
    return ddp_stream_wait(((shim_stream *)stream)->gpu);
}

/* What the tests of kernels need of a device; they keep their data in memory of their own. */
const ddp_device_ops shim_device_ops = {
    .name = "shim",
    .host_memory = true,
    .open = open_device,
    .close = close_device,
    .stream_open = open_stream,
    .stream_close = close_stream,
    .stream_wait = wait_stream,
    .stream_poll = wait_stream,
};

const ddp_device_ops *const kernels_under_test = &shim_device_ops;
