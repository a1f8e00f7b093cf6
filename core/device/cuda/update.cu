// Norm, scale and updates of flat fp32 ranges, beside core/device/cpu/update.c. All are bound by memory: 16
// bytes a thread at a time, and a grid whose size depends on the count alone, so that sums have one order.
#include "core/device/cuda/common.cuh"

namespace
{

constexpr int THREADS = 256, SUM_BLOCKS = 1024;

// In double from the first square on, as on the CPU.
template <int W> __global__ void square_parts(double *partial, const float *x, int64_t count)
{
    double sum = 0;
    int64_t stride = static_cast<int64_t>(gridDim.x) * THREADS * W;
    for (int64_t i = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * W; i < count; i += stride) {
        pack<W> v = load<W>(x + i);
        for (int j = 0; j < W; j++)
            sum += static_cast<double>(v.at[j]) * v.at[j];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

__global__ void add_parts(double *total, const double *partial, int count)
{
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += THREADS)
        sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *total += sum;
}

__global__ void scale_of_step(float *scale, double *norm, const double *sum_squares, const ddp_loss *totals,
                              double nominal_items, double clip)
{
    *scale = -1;
    *norm = 0;
    if (!(totals->items > 0))
        return;
    double correction = nominal_items / totals->items, length = sqrt(*sum_squares) * correction;
    *norm = length;
    if (!isfinite(length))
        return;
    *scale = static_cast<float>(correction * (clip > 0 && length > clip ? clip / length : 1));
}

// What is the same for all weights of an update, worked out once.
struct adamw_constants {
    float beta1, rest1, beta2, rest2, step, root, eps, decay;
};

template <int W>
__global__ void adamw(float *weights, const float *gradients, float *means, float *squares, int64_t count,
                      const float *scale_at, adamw_constants k)
{
    int64_t i = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * W;
    float scale = *scale_at;
    if (i >= count || scale < 0)
        return;
    pack<W> w = load<W>(weights + i), m = load<W>(means + i), v = load<W>(squares + i),
            gradient = load<W>(gradients + i);
    for (int j = 0; j < W; j++) {
        float g = gradient.at[j] * scale;
        m.at[j] = k.beta1 * m.at[j] + k.rest1 * g;
        v.at[j] = k.beta2 * v.at[j] + k.rest2 * (g * g);
        w.at[j] -= k.decay * w.at[j] + k.step * m.at[j] / (sqrtf(v.at[j]) * k.root + k.eps);
    }
    store<W>(weights + i, w);
    store<W>(means + i, m);
    store<W>(squares + i, v);
}

template <int W>
__global__ void sgd(float *weights, const float *gradients, float *velocities, int64_t count,
                    ddp_sgd_args args)
{
    int64_t i = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * W;
    float scale = *args.scale;
    if (i >= count || scale < 0)
        return;
    pack<W> w = load<W>(weights + i), step = load<W>(gradients + i), v = {};
    if (velocities != nullptr)
        v = load<W>(velocities + i);
    for (int j = 0; j < W; j++) {
        v.at[j] = args.momentum * v.at[j] + step.at[j] * scale;
        w.at[j] -= args.lr * (v.at[j] + args.decay * w.at[j]);
    }
    if (velocities != nullptr)
        store<W>(velocities + i, v);
    store<W>(weights + i, w);
}

} // namespace

cudaError_t ddp_cuda_probe(void)
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, scale_of_step);
}

size_t ddp_cuda_sum_squares_bytes(void)
{
    return SUM_BLOCKS * sizeof(double);
}

void ddp_cuda_sum_squares(cudaStream_t stream, double *total, const float *x, void *scratch, int64_t count)
{
    double *partial = static_cast<double *>(scratch);
    bool packs = fits_packs(count, x);
    int64_t wanted = parts_of(count, THREADS * (packs ? 4 : 1));
    int blocks = static_cast<int>(wanted < SUM_BLOCKS ? wanted : SUM_BLOCKS);
    if (packs)
        square_parts<4><<<blocks, THREADS, 0, stream>>>(partial, x, count);
    else
        square_parts<1><<<blocks, THREADS, 0, stream>>>(partial, x, count);
    add_parts<<<1, THREADS, 0, stream>>>(total, partial, blocks);
}

void ddp_cuda_adamw(cudaStream_t stream, float *weights, const float *gradients, float *mean, float *square,
                    int64_t count, const ddp_adamw_args *args)
{
    adamw_constants k = {
        static_cast<float>(args->beta1),
        static_cast<float>(1 - args->beta1),
        static_cast<float>(args->beta2),
        static_cast<float>(1 - args->beta2),
        static_cast<float>(args->lr / args->correction1),
        static_cast<float>(1 / sqrt(args->correction2)),
        args->eps,
        args->lr * args->decay,
    };
    if (fits_packs(count, weights, gradients, mean, square))
        adamw<4><<<parts_of(count, 4 * THREADS), THREADS, 0, stream>>>(weights, gradients, mean, square,
                                                                       count, args->scale, k);
    else
        adamw<1><<<parts_of(count, THREADS), THREADS, 0, stream>>>(weights, gradients, mean, square, count,
                                                                   args->scale, k);
}

void ddp_cuda_sgd(cudaStream_t stream, float *weights, const float *gradients, float *velocity, int64_t count,
                  const ddp_sgd_args *args)
{
    ddp_sgd_args used = *args;
    if (velocity == nullptr)
        used.momentum = 0;
    if (fits_packs(count, weights, gradients, velocity))
        sgd<4>
            <<<parts_of(count, 4 * THREADS), THREADS, 0, stream>>>(weights, gradients, velocity, count, used);
    else
        sgd<1><<<parts_of(count, THREADS), THREADS, 0, stream>>>(weights, gradients, velocity, count, used);
}

void ddp_cuda_step_scale(cudaStream_t stream, float *scale, double *norm, const double *sum_squares,
                         const ddp_loss *totals, double nominal_items, double clip)
{
    scale_of_step<<<1, 1, 0, stream>>>(scale, norm, sum_squares, totals, nominal_items, clip);
}
