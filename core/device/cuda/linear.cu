// What a linear layer needs beside its matrix products (matmul.c): bias and activation, their derivative,
// and column sums for the bias gradient. Formulas: core/device/cpu/matmul.c.
#include "core/device/cuda/common.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int COLUMNS = 32, ROWS = 8; // of a block that sums columns

// Sigmoid of 2u where tanh-GELU is x * that, u = sqrt(2 / pi) (x + 0.044715 x^3): no cancellation for x << 0.
constexpr float GELU_C = 1.5957691216057308f, GELU_A = 0.044715f;

__device__ float gelu_gate(float x)
{
    return 1.0f / (1.0f + expf(x * (x * x * (-GELU_C * GELU_A) - GELU_C)));
}

template <ddp_activation ACT> __device__ float activate(float x)
{
    if (ACT == DDP_ACT_GELU)
        return x * gelu_gate(x);
    if (ACT == DDP_ACT_RELU)
        return x < 0 ? 0 : x; // NaN stays
    return x;
}

template <ddp_activation ACT> __device__ float derive(float saved)
{
    if (ACT == DDP_ACT_GELU) {
        float gate = gelu_gate(saved);
        float slope = saved * (saved * saved * (3 * GELU_C * GELU_A) + GELU_C);
        return gate + slope * (gate - gate * gate);
    }
    return saved > 0 ? 1.0f : 0.0f;
}

// z is where the product lies: pre where it is kept, otherwise y.
template <ddp_activation ACT, int W>
__global__ void activate_all(float *y, float *pre, const float *b, int64_t count, int64_t width)
{
    int64_t i = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * W;
    if (i >= count)
        return;
    pack<W> z = load<W>((pre ? pre : y) + i), out;
    for (int j = 0; j < W; j++) {
        if (b != nullptr)
            z.at[j] += b[(i + j) % width];
        out.at[j] = activate<ACT>(z.at[j]);
    }
    if (pre != nullptr && b != nullptr)
        store<W>(pre + i, z);
    store<W>(y + i, out);
}

template <ddp_activation ACT, int W> __global__ void derive_all(float *dx, const float *saved, int64_t count)
{
    int64_t i = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * W;
    if (i >= count)
        return;
    pack<W> d = load<W>(dx + i), z = load<W>(saved + i);
    for (int j = 0; j < W; j++)
        d.at[j] *= derive<ACT>(z.at[j]);
    store<W>(dx + i, d);
}

// Block (column group, part): rows of its part, each thread one column and every ROWS-th row.
__global__ void sum_parts(float *partial, const float *x, int64_t R, int64_t C, int64_t part_rows)
{
    __shared__ float sums[ROWS][COLUMNS];
    int64_t column = static_cast<int64_t>(blockIdx.x) * COLUMNS + threadIdx.x;
    int64_t row = blockIdx.y * part_rows, end = min(row + part_rows, R);
    float sum = 0;
    for (row += threadIdx.y; column < C && row < end; row += ROWS)
        sum += x[row * C + column];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= C)
        return;
    for (int i = 1; i < ROWS; i++)
        sum += sums[i][threadIdx.x];
    partial[blockIdx.y * C + column] = sum;
}

__global__ void add_parts(float *sums, const float *partial, int parts, int64_t C)
{
    int64_t column = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (column >= C)
        return;
    float sum = 0;
    for (int i = 0; i < parts; i++)
        sum += partial[i * C + column];
    sums[column] += sum;
}

int row_parts(int64_t R)
{
    constexpr int64_t LEAST_ROWS = 32, MOST_PARTS = 64;
    int64_t parts = parts_of(R, LEAST_ROWS);
    return static_cast<int>(parts < MOST_PARTS ? parts : MOST_PARTS);
}

template <ddp_activation ACT>
void launch_activate(cudaStream_t stream, float *y, float *pre, const float *b, int64_t count, int64_t width)
{
    if (fits_packs(count, y, pre))
        activate_all<ACT, 4><<<parts_of(count, 4 * THREADS), THREADS, 0, stream>>>(y, pre, b, count, width);
    else
        activate_all<ACT, 1><<<parts_of(count, THREADS), THREADS, 0, stream>>>(y, pre, b, count, width);
}

template <ddp_activation ACT>
void launch_derive(cudaStream_t stream, float *dx, const float *saved, int64_t count)
{
    if (fits_packs(count, dx, saved))
        derive_all<ACT, 4><<<parts_of(count, 4 * THREADS), THREADS, 0, stream>>>(dx, saved, count);
    else
        derive_all<ACT, 1><<<parts_of(count, THREADS), THREADS, 0, stream>>>(dx, saved, count);
}

} // namespace

void ddp_cuda_activate(cudaStream_t stream, float *y, float *pre, const float *b, ddp_activation act,
                       int64_t R, int64_t C)
{
    if (act == DDP_ACT_GELU)
        launch_activate<DDP_ACT_GELU>(stream, y, pre, b, R * C, C);
    else if (act == DDP_ACT_RELU)
        launch_activate<DDP_ACT_RELU>(stream, y, pre, b, R * C, C);
    else
        launch_activate<DDP_ACT_NONE>(stream, y, pre, b, R * C, C);
}

void ddp_cuda_derive(cudaStream_t stream, float *dx, const float *saved, ddp_activation act, int64_t count)
{
    if (act == DDP_ACT_GELU)
        launch_derive<DDP_ACT_GELU>(stream, dx, saved, count);
    else
        launch_derive<DDP_ACT_RELU>(stream, dx, saved, count);
}

size_t ddp_cuda_column_sums_bytes(int64_t R, int64_t C)
{
    return static_cast<size_t>(row_parts(R) * C) * sizeof(float);
}

void ddp_cuda_column_sums(cudaStream_t stream, float *sums, const float *x, void *scratch, int64_t R,
                          int64_t C)
{
    int parts = row_parts(R);
    float *partial = static_cast<float *>(scratch);
    dim3 grid(static_cast<unsigned>(parts_of(C, COLUMNS)), static_cast<unsigned>(parts));
    sum_parts<<<grid, dim3(COLUMNS, ROWS), 0, stream>>>(partial, x, R, C, parts_of(R, parts));
    add_parts<<<parts_of(C, THREADS), THREADS, 0, stream>>>(sums, partial, parts, C);
}
