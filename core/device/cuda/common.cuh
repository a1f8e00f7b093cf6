// What the kernels share: sums over a warp or a block in one fixed order, packs of neighbouring floats, and
// sizes of grids.
#ifndef DDP_CORE_DEVICE_CUDA_COMMON_CUH
#define DDP_CORE_DEVICE_CUDA_COMMON_CUH

#include <cstdint>

#include "core/device/cuda/kernels.h"

constexpr int WARP = 32;

// W floats that are loaded and stored at once.
template <int W> struct alignas(4 * W) pack {
    float at[W];
};

template <int W> __device__ pack<W> load(const float *from)
{
    return *reinterpret_cast<const pack<W> *>(from);
}

template <int W> __device__ void store(float *to, pack<W> value)
{
    *reinterpret_cast<pack<W> *>(to) = value;
}

// In every lane.
template <class T> __device__ T warp_sum(T x)
{
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

__device__ inline float warp_max(float x)
{
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

// Over a block of any number of whole warps, in every thread; all threads must call.
template <class T> __device__ T block_sum(T x)
{
    __shared__ T parts[WARP];
    int warps = blockDim.x / WARP;
    x = warp_sum(x);
    if (warps == 1)
        return x;
    __syncthreads(); // the last call's parts have been read
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_sum(static_cast<int>(threadIdx.x % WARP) < warps ? parts[threadIdx.x % WARP] : T(0));
}

__device__ inline float block_max(float x)
{
    __shared__ float parts[WARP];
    int warps = blockDim.x / WARP;
    x = warp_max(x);
    if (warps == 1)
        return x;
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_max(static_cast<int>(threadIdx.x % WARP) < warps ? parts[threadIdx.x % WARP] : -INFINITY);
}

__host__ __device__ inline int64_t parts_of(int64_t count, int64_t each)
{
    return (count + each - 1) / each;
}

// Whether rows of `width` floats from these addresses can be read in packs of four.
inline bool fits_packs(int64_t width)
{
    return width % 4 == 0;
}
template <class... Rest> bool fits_packs(int64_t width, const void *first, Rest... rest)
{
    return reinterpret_cast<uintptr_t>(first) % 16 == 0 && fits_packs(width, rest...);
}

#endif
