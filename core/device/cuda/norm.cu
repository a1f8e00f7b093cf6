// LayerNorm, beside core/device/cpu/nn.c. Bound by memory: a warp a row, 16 bytes a lane where rows allow it;
// the second and third pass over a row find it in the first-level cache.
#include "core/device/cuda/common.cuh"

namespace
{

constexpr float NORM_EPS = 1e-5f;
constexpr int ROW_WARPS = 8;          // rows a block works on
constexpr int COLUMNS = 32, ROWS = 8; // of a block that sums columns
constexpr int THREADS = 256;

template <int W>
__global__ void forward(float *y, float *sum, float *means, float *rstds, const float *a, const float *b,
                        const float *weight, const float *bias, int64_t R, int64_t C)
{
    int64_t row = static_cast<int64_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP;
    int64_t first = threadIdx.x % WARP * W;
    if (row >= R)
        return;
    const float *x = b ? sum + row * C : a + row * C;
    float total = 0, squares = 0;
    for (int64_t c = first; c < C; c += WARP * W) {
        pack<W> v = load<W>(a + row * C + c);
        if (b != nullptr) {
            pack<W> more = load<W>(b + row * C + c);
            for (int i = 0; i < W; i++)
                v.at[i] += more.at[i];
            store<W>(sum + row * C + c, v);
        }
        for (int i = 0; i < W; i++)
            total += v.at[i];
    }
    float mean = warp_sum(total) / static_cast<float>(C);
    for (int64_t c = first; c < C; c += WARP * W) {
        pack<W> v = load<W>(x + c);
        for (int i = 0; i < W; i++)
            squares += (v.at[i] - mean) * (v.at[i] - mean);
    }
    float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(C) + NORM_EPS);
    for (int64_t c = first; c < C; c += WARP * W) {
        pack<W> v = load<W>(x + c), w = load<W>(weight + c), add = load<W>(bias + c);
        for (int i = 0; i < W; i++)
            v.at[i] = (v.at[i] - mean) * rstd * w.at[i] + add.at[i];
        store<W>(y + row * C + c, v);
    }
    if (first == 0) {
        means[row] = mean;
        rstds[row] = rstd;
    }
}

// dx may be dy or residual: a lane reads its elements before it writes them, and the sums of the row are done
// by then.
template <int W>
__global__ void backward_rows(float *dx, const float *dy, const float *x, const float *means,
                              const float *rstds, const float *weight, const float *residual, int64_t R,
                              int64_t C)
{
    int64_t row = static_cast<int64_t>(blockIdx.x) * ROW_WARPS + threadIdx.x / WARP;
    int64_t first = threadIdx.x % WARP * W;
    if (row >= R)
        return;
    float mean = means[row], rstd = rstds[row], sum_g = 0, sum_gx = 0;
    dy += row * C, x += row * C, dx += row * C;
    for (int64_t c = first; c < C; c += WARP * W) {
        pack<W> d = load<W>(dy + c), v = load<W>(x + c), w = load<W>(weight + c);
        for (int i = 0; i < W; i++) {
            float g = d.at[i] * w.at[i];
            sum_g += g;
            sum_gx += g * ((v.at[i] - mean) * rstd);
        }
    }
    float mean_g = warp_sum(sum_g) / static_cast<float>(C),
          mean_gx = warp_sum(sum_gx) / static_cast<float>(C);
    for (int64_t c = first; c < C; c += WARP * W) {
        pack<W> d = load<W>(dy + c), v = load<W>(x + c), w = load<W>(weight + c), add = {};
        if (residual != nullptr)
            add = load<W>(residual + row * C + c);
        for (int i = 0; i < W; i++) {
            float normal = (v.at[i] - mean) * rstd;
            d.at[i] = (d.at[i] * w.at[i] - mean_g - normal * mean_gx) * rstd + add.at[i];
        }
        store<W>(dx + c, d);
    }
}

// Gradients of weight and bias over the rows of one part; each thread one column and every ROWS-th row.
__global__ void backward_parts(float *partial, const float *dy, const float *x, const float *means,
                               const float *rstds, int64_t R, int64_t C, int64_t part_rows)
{
    __shared__ float weights[ROWS][COLUMNS], biases[ROWS][COLUMNS];
    int64_t column = static_cast<int64_t>(blockIdx.x) * COLUMNS + threadIdx.x;
    int64_t row = blockIdx.y * part_rows, end = min(row + part_rows, R);
    float weight = 0, bias = 0;
    for (row += threadIdx.y; column < C && row < end; row += ROWS) {
        float d = dy[row * C + column];
        weight += d * ((x[row * C + column] - means[row]) * rstds[row]);
        bias += d;
    }
    weights[threadIdx.y][threadIdx.x] = weight;
    biases[threadIdx.y][threadIdx.x] = bias;
    __syncthreads();
    if (threadIdx.y > 0 || column >= C)
        return;
    for (int i = 1; i < ROWS; i++) {
        weight += weights[i][threadIdx.x];
        bias += biases[i][threadIdx.x];
    }
    partial[2 * blockIdx.y * C + column] = weight;
    partial[(2 * blockIdx.y + 1) * C + column] = bias;
}

__global__ void add_parts(float *dweight, float *dbias, const float *partial, int parts, int64_t C)
{
    int64_t column = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (column >= C)
        return;
    float weight = 0, bias = 0;
    for (int i = 0; i < parts; i++) {
        weight += partial[2 * i * C + column];
        bias += partial[(2 * i + 1) * C + column];
    }
    dweight[column] += weight;
    dbias[column] += bias;
}

int row_parts(int64_t R)
{
    constexpr int64_t LEAST_ROWS = 32, MOST_PARTS = 64;
    int64_t parts = parts_of(R, LEAST_ROWS);
    return static_cast<int>(parts < MOST_PARTS ? parts : MOST_PARTS);
}

} // namespace

void ddp_cuda_norm_forward(cudaStream_t stream, float *y, float *sum, float *mean, float *rstd,
                           const float *a, const float *b, const float *weight, const float *bias, int64_t R,
                           int64_t C)
{
    unsigned blocks = static_cast<unsigned>(parts_of(R, ROW_WARPS));
    if (fits_packs(C, y, sum, a, b, weight, bias))
        forward<4><<<blocks, ROW_WARPS * WARP, 0, stream>>>(y, sum, mean, rstd, a, b, weight, bias, R, C);
    else
        forward<1><<<blocks, ROW_WARPS * WARP, 0, stream>>>(y, sum, mean, rstd, a, b, weight, bias, R, C);
}

size_t ddp_cuda_norm_backward_bytes(int64_t R, int64_t C)
{
    return static_cast<size_t>(2 * row_parts(R) * C) * sizeof(float);
}

// Columns first: rows may write dx over dy.
void ddp_cuda_norm_backward(cudaStream_t stream, float *dx, float *dweight, float *dbias, const float *dy,
                            const float *x, const float *mean, const float *rstd, const float *weight,
                            const float *residual, void *scratch, int64_t R, int64_t C)
{
    int parts = row_parts(R);
    float *partial = static_cast<float *>(scratch);
    dim3 grid(static_cast<unsigned>(parts_of(C, COLUMNS)), static_cast<unsigned>(parts));
    backward_parts<<<grid, dim3(COLUMNS, ROWS), 0, stream>>>(partial, dy, x, mean, rstd, R, C,
                                                             parts_of(R, parts));
    add_parts<<<parts_of(C, THREADS), THREADS, 0, stream>>>(dweight, dbias, partial, parts, C);
    unsigned blocks = static_cast<unsigned>(parts_of(R, ROW_WARPS));
    if (fits_packs(C, dx, dy, x, weight, residual))
        backward_rows<4>
            <<<blocks, ROW_WARPS * WARP, 0, stream>>>(dx, dy, x, mean, rstd, weight, residual, R, C);
    else
        backward_rows<1>
            <<<blocks, ROW_WARPS * WARP, 0, stream>>>(dx, dy, x, mean, rstd, weight, residual, R, C);
}
