// Embeddings, beside core/device/cpu/nn.c. The gradient of a token is the sum over the rows that hold it, in
// the order of the rows and without atomics: the rows are sorted by token (CUB's radix sort keeps the order
// of equals), and each token's run of rows is added up by the blocks that find its head.
#include <cub/device/device_radix_sort.cuh>

#include "core/device/cuda/common.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr int RUN_WARPS = 8; // of a block that adds up a run: each takes every RUN_WARPS-th row
constexpr int COLUMNS = WARP;

template <int W>
__global__ void forward(float *y, const int32_t *ids, const float *tokens, const float *positions,
                        int64_t count, int64_t T, int64_t C)
{
    int64_t i = (static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x) * W;
    if (i >= count)
        return;
    int64_t row = i / C, c = i % C;
    pack<W> token = load<W>(tokens + ids[row] * C + c), position = load<W>(positions + row % T * C + c);
    for (int j = 0; j < W; j++)
        token.at[j] += position.at[j];
    store<W>(y + i, token);
}

__global__ void number_rows(int32_t *rows, int count)
{
    int i = static_cast<int>(blockIdx.x) * THREADS + threadIdx.x;
    if (i < count)
        rows[i] = i;
}

// One block a sorted place and group of columns; only the head of a run goes on.
__global__ void add_runs(float *dtokens, const float *dy, const int32_t *ids, const int32_t *rows, int count,
                         int64_t C, int64_t V)
{
    __shared__ float sums[RUN_WARPS][COLUMNS];
    int head = static_cast<int>(blockIdx.x), lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int32_t id = ids[head];
    if (id < 0 || id >= V || (head > 0 && ids[head - 1] == id))
        return;
    int64_t column = static_cast<int64_t>(blockIdx.y) * COLUMNS + lane;
    float sum = 0;
    for (int i = head + warp; i < count && ids[i] == id; i += RUN_WARPS)
        if (column < C)
            sum += dy[rows[i] * C + column];
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || column >= C)
        return;
    for (int i = 1; i < RUN_WARPS; i++)
        sum += sums[i][lane];
    dtokens[id * C + column] += sum;
}

__global__ void add_positions(float *dpositions, const float *dy, int64_t B, int64_t size)
{
    int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    if (i >= size)
        return;
    float sum = 0;
    for (int64_t b = 0; b < B; b++)
        sum += dy[b * size + i];
    dpositions[i] += sum;
}

// Scratch memory of the sort: four arrays of `count` and what CUB asks for.
struct sort_space {
    int32_t *ids, *rows, *numbers;
    void *work;
    size_t work_bytes;
};

size_t array_bytes(int64_t count)
{
    return static_cast<size_t>(parts_of(count * 4, 256)) * 256;
}

size_t sort_bytes(int64_t count)
{
    size_t bytes = 0;
    int32_t *none = nullptr;
    cub::DeviceRadixSort::SortPairs(nullptr, bytes, none, none, none, none, static_cast<int>(count));
    return bytes;
}

sort_space divide(void *scratch, int64_t count)
{
    char *at = static_cast<char *>(scratch);
    size_t array = array_bytes(count);
    sort_space space;
    space.ids = reinterpret_cast<int32_t *>(at);
    space.rows = reinterpret_cast<int32_t *>(at + array);
    space.numbers = reinterpret_cast<int32_t *>(at + 2 * array);
    space.work = at + 3 * array;
    space.work_bytes = sort_bytes(count);
    return space;
}

int bits_of(int64_t V)
{
    int bits = 1;
    while (bits < 31 && (int64_t{1} << bits) < V)
        bits++;
    return bits;
}

} // namespace

void ddp_cuda_embedding_forward(cudaStream_t stream, float *y, const int32_t *ids, const float *tokens,
                                const float *positions, int64_t B, int64_t T, int64_t C)
{
    int64_t count = B * T * C;
    if (fits_packs(C, y, tokens, positions))
        forward<4>
            <<<parts_of(count, 4 * THREADS), THREADS, 0, stream>>>(y, ids, tokens, positions, count, T, C);
    else
        forward<1><<<parts_of(count, THREADS), THREADS, 0, stream>>>(y, ids, tokens, positions, count, T, C);
}

size_t ddp_cuda_embedding_backward_bytes(int64_t rows)
{
    return 3 * array_bytes(rows) + sort_bytes(rows);
}

void ddp_cuda_embedding_backward(cudaStream_t stream, float *dtokens, float *dpositions, const float *dy,
                                 const int32_t *ids, void *scratch, int64_t B, int64_t T, int64_t C,
                                 int64_t V)
{
    int count = static_cast<int>(B * T);
    sort_space space = divide(scratch, count);
    add_positions<<<parts_of(T * C, THREADS), THREADS, 0, stream>>>(dpositions, dy, B, T * C);
    number_rows<<<parts_of(count, THREADS), THREADS, 0, stream>>>(space.numbers, count);
    cub::DeviceRadixSort::SortPairs(space.work, space.work_bytes, ids, space.ids, space.numbers, space.rows,
                                    count, 0, bits_of(V), stream);
    dim3 grid(static_cast<unsigned>(count), static_cast<unsigned>(parts_of(C, COLUMNS)));
    add_runs<<<grid, RUN_WARPS * WARP, 0, stream>>>(dtokens, dy, space.ids, space.rows, count, C, V);
}
