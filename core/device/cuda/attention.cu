// Causal self-attention in fp32, beside core/device/cpu/attention.c; no T x T matrix is stored. Forward is
// the tiled form with a running maximum and sum (Dao et al., "FlashAttention", 2022, algorithm 1). Backward
// makes the probabilities again from the kept log-sum-exp (algorithm 4), but as two kernels: one owns a tile
// of keys and sums dK and dV over the queries that see it, one owns a tile of queries and sums dQ. That costs
// seven products instead of five and needs neither atomics nor an order between blocks.
//
// A tile is TILE queries or keys of one head, kept in shared memory with rows of an odd length, so that 16
// neighbouring rows or columns lie in different banks. 256 threads in a 16 x 16 square: thread (y, x) owns
// rows y + 16 i of the result and columns x + 16 j. Heads are padded with zeros to the next of a few widths.
#include "core/device/cuda/common.cuh"

namespace
{

constexpr int SIDE = 16, THREADS = SIDE * SIDE;

template <int WIDTH> struct shape {
    static constexpr int tile = WIDTH <= 64 ? 64 : 32;
    static constexpr int rows = tile / SIDE;     // of a thread
    static constexpr int columns = WIDTH / SIDE; // of a thread, in a tile x WIDTH result
    static constexpr int head_stride = WIDTH + 1, score_stride = tile + 1;
    static constexpr int head_size = tile * head_stride, score_size = tile * score_stride; // floats
};

// Where one head's data lie: element (t, d) is at t * stride + d.
struct view {
    const float *q, *k, *v;
    int64_t stride;
};

__device__ view view_head(const float *qkv, int64_t T, int H, int D, int64_t head)
{
    int64_t stride = 3 * static_cast<int64_t>(H) * D;
    const float *q = qkv + head / H * T * stride + head % H * D;
    return {q, q + static_cast<int64_t>(H) * D, q + 2 * static_cast<int64_t>(H) * D, stride};
}

// Rows [first, first + tile) of a matrix, times `factor`; zeros behind T and D.
template <int WIDTH>
__device__ void load_tile(float *to, const float *from, int64_t stride, int64_t first, int64_t T, int D,
                          float factor)
{
    using S = shape<WIDTH>;
    for (int i = threadIdx.x; i < S::tile * WIDTH; i += THREADS) {
        int row = i / WIDTH, d = i % WIDTH;
        bool inside = first + row < T && d < D;
        to[row * S::head_stride + d] = inside ? from[(first + row) * stride + d] * factor : 0.0f;
    }
}

// out = a b^T, both tile x WIDTH.
template <int WIDTH>
__device__ void products(float out[shape<WIDTH>::rows][shape<WIDTH>::rows], const float *a, const float *b)
{
    using S = shape<WIDTH>;
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    for (int i = 0; i < S::rows; i++)
        for (int j = 0; j < S::rows; j++)
            out[i][j] = 0;
#pragma unroll 8
    for (int d = 0; d < WIDTH; d++) {
        float left[S::rows], right[S::rows];
        for (int i = 0; i < S::rows; i++) {
            left[i] = a[(y + SIDE * i) * S::head_stride + d];
            right[i] = b[(x + SIDE * i) * S::head_stride + d];
        }
        for (int i = 0; i < S::rows; i++)
            for (int j = 0; j < S::rows; j++)
                out[i][j] += left[i] * right[j];
    }
}

// out += weights b, weights tile x tile; or weights^T b.
template <int WIDTH, bool TRANSPOSED>
__device__ void combine(float out[shape<WIDTH>::rows][shape<WIDTH>::columns], const float *weights,
                        const float *b)
{
    using S = shape<WIDTH>;
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
#pragma unroll 4
    for (int k = 0; k < S::tile; k++) {
        float left[S::rows];
        for (int i = 0; i < S::rows; i++)
            left[i] = TRANSPOSED ? weights[k * S::score_stride + y + SIDE * i]
                                 : weights[(y + SIDE * i) * S::score_stride + k];
        for (int j = 0; j < S::columns; j++) {
            float right = b[k * S::head_stride + x + SIDE * j];
            for (int i = 0; i < S::rows; i++)
                out[i][j] += left[i] * right;
        }
    }
}

// A thread's part of a tile x WIDTH result to rows of `to`.
template <int WIDTH>
__device__ void store_tile(float *to, int64_t stride, int64_t first, int64_t T, int D,
                           const float from[shape<WIDTH>::rows][shape<WIDTH>::columns],
                           const float factor[shape<WIDTH>::rows])
{
    using S = shape<WIDTH>;
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    for (int i = 0; i < S::rows; i++)
        for (int j = 0; j < S::columns; j++)
            if (first + y + SIDE * i < T && x + SIDE * j < D)
                to[(first + y + SIDE * i) * stride + x + SIDE * j] = from[i][j] * factor[i];
}

// Over the 16 threads that share rows of a result: half a warp.
__device__ float row_max(float x)
{
    for (int offset = SIDE / 2; offset > 0; offset /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

__device__ float row_sum(float x)
{
    for (int offset = SIDE / 2; offset > 0; offset /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

// Which head and which tile this block owns; the tiles with most work come first.
struct task {
    int64_t head, tile;
};

__device__ task find_task(int64_t tiles, bool last_first)
{
    int64_t heads = gridDim.x / tiles, tile = blockIdx.x / heads;
    return {blockIdx.x % heads, last_first ? tiles - 1 - tile : tile};
}

template <int WIDTH>
__global__ void __launch_bounds__(THREADS)
    forward(float *y_out, float *stats, const float *qkv, int64_t T, int H, int D, float factor)
{
    using S = shape<WIDTH>;
    extern __shared__ float shared[];
    float *q = shared, *k = q + S::head_size, *v = k + S::head_size, *p = v + S::head_size;
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    task own = find_task(parts_of(T, S::tile), true);
    int64_t first = own.tile * S::tile;
    view head = view_head(qkv, T, H, D, own.head);
    float out[S::rows][S::columns] = {}, score[S::rows][S::rows], most[S::rows], sum[S::rows] = {};
    for (int i = 0; i < S::rows; i++)
        most[i] = -INFINITY;
    load_tile<WIDTH>(q, head.q, head.stride, first, T, D, factor);
    for (int64_t key = 0; key <= first; key += S::tile) {
        __syncthreads();
        load_tile<WIDTH>(k, head.k, head.stride, key, T, D, 1);
        load_tile<WIDTH>(v, head.v, head.stride, key, T, D, 1);
        __syncthreads();
        products<WIDTH>(score, q, k);
        for (int i = 0; i < S::rows; i++) {
            float now = most[i];
            for (int j = 0; j < S::rows; j++) {
                if (key + x + SIDE * j > first + y + SIDE * i)
                    score[i][j] = -INFINITY;
                now = fmaxf(now, score[i][j]);
            }
            now = row_max(now);
            float shrink = expf(most[i] - now), added = 0;
            for (int j = 0; j < S::rows; j++) {
                float e = expf(score[i][j] - now);
                added += e;
                p[(y + SIDE * i) * S::score_stride + x + SIDE * j] = e;
            }
            sum[i] = sum[i] * shrink + row_sum(added);
            most[i] = now;
            for (int j = 0; j < S::columns; j++)
                out[i][j] *= shrink;
        }
        __syncthreads();
        combine<WIDTH, false>(out, p, v);
    }
    float inverse[S::rows];
    for (int i = 0; i < S::rows; i++) {
        inverse[i] = 1.0f / sum[i];
        if (x == 0 && first + y + SIDE * i < T)
            stats[own.head * T + first + y + SIDE * i] = most[i] + logf(sum[i]);
    }
    int64_t stride = static_cast<int64_t>(H) * D;
    store_tile<WIDTH>(y_out + own.head / H * T * stride + own.head % H * D, stride, first, T, D, out,
                      inverse);
}

// delta = row sums of dy * y: what softmax's derivative subtracts. A warp a row of a head.
__global__ void row_products(float *delta, const float *dy, const float *y, int64_t count, int64_t T, int H,
                             int D)
{
    int64_t row = static_cast<int64_t>(blockIdx.x) * (THREADS / WARP) + threadIdx.x / WARP; // (b, t, h)
    if (row >= count)
        return;
    float sum = 0;
    for (int d = threadIdx.x % WARP; d < D; d += WARP)
        sum += dy[row * D + d] * y[row * D + d];
    sum = warp_sum(sum);
    int64_t t = row / H % T, head = row / H / T * H + row % H;
    if (threadIdx.x % WARP == 0)
        delta[head * T + t] = sum;
}

// Probabilities and derivatives of the scores of one pair of tiles, to shared memory.
template <int WIDTH>
__device__ void score_gradients(float *p, float *ds, const float *q, const float *k, const float *dy,
                                const float *v, const float *stats, const float *delta, int64_t query,
                                int64_t key, int64_t T)
{
    using S = shape<WIDTH>;
    int y = threadIdx.x / SIDE, x = threadIdx.x % SIDE;
    float score[S::rows][S::rows], change[S::rows][S::rows];
    products<WIDTH>(score, q, k);
    products<WIDTH>(change, dy, v);
    for (int i = 0; i < S::rows; i++) {
        int64_t row = query + y + SIDE * i;
        float log_sum = row < T ? stats[row] : 0, mean = row < T ? delta[row] : 0;
        for (int j = 0; j < S::rows; j++) {
            bool seen = row < T && key + x + SIDE * j <= row;
            float e = seen ? expf(score[i][j] - log_sum) : 0.0f;
            int at = (y + SIDE * i) * S::score_stride + x + SIDE * j;
            if (p != nullptr)
                p[at] = e;
            ds[at] = seen ? e * (change[i][j] - mean) : 0.0f;
        }
    }
}

// What both backward kernels read.
struct backward_input {
    const float *qkv, *dy, *stats, *delta;
    int64_t T;
    int H, D;
    float factor;
};

template <int WIDTH> __global__ void __launch_bounds__(THREADS) backward_keys(float *dqkv, backward_input in)
{
    using S = shape<WIDTH>;
    extern __shared__ float shared[];
    float *k = shared, *v = k + S::head_size, *q = v + S::head_size, *dy = q + S::head_size;
    float *p = dy + S::head_size, *ds = p + S::score_size;
    task own = find_task(parts_of(in.T, S::tile), false);
    int64_t first = own.tile * S::tile, stride = static_cast<int64_t>(in.H) * in.D;
    int64_t at = own.head / in.H * in.T * stride + own.head % in.H * in.D;
    view head = view_head(in.qkv, in.T, in.H, in.D, own.head);
    float dk[S::rows][S::columns] = {}, dv[S::rows][S::columns] = {}, one[S::rows];
    for (int i = 0; i < S::rows; i++)
        one[i] = 1;
    load_tile<WIDTH>(k, head.k, head.stride, first, in.T, in.D, 1);
    load_tile<WIDTH>(v, head.v, head.stride, first, in.T, in.D, 1);
    for (int64_t query = first; query < in.T; query += S::tile) {
        __syncthreads();
        load_tile<WIDTH>(q, head.q, head.stride, query, in.T, in.D, in.factor);
        load_tile<WIDTH>(dy, in.dy + at, stride, query, in.T, in.D, 1);
        __syncthreads();
        score_gradients<WIDTH>(p, ds, q, k, dy, v, in.stats + own.head * in.T, in.delta + own.head * in.T,
                               query, first, in.T);
        __syncthreads();
        combine<WIDTH, true>(dv, p, dy);
        combine<WIDTH, true>(dk, ds, q);
    }
    float *to = dqkv + (head.k - in.qkv);
    store_tile<WIDTH>(to, head.stride, first, in.T, in.D, dk, one);
    store_tile<WIDTH>(to + stride, head.stride, first, in.T, in.D, dv, one);
}

template <int WIDTH>
__global__ void __launch_bounds__(THREADS) backward_queries(float *dqkv, backward_input in)
{
    using S = shape<WIDTH>;
    extern __shared__ float shared[];
    float *k = shared, *v = k + S::head_size, *q = v + S::head_size, *dy = q + S::head_size;
    float *ds = dy + S::head_size;
    task own = find_task(parts_of(in.T, S::tile), true);
    int64_t first = own.tile * S::tile, stride = static_cast<int64_t>(in.H) * in.D;
    int64_t at = own.head / in.H * in.T * stride + own.head % in.H * in.D;
    view head = view_head(in.qkv, in.T, in.H, in.D, own.head);
    float dq[S::rows][S::columns] = {}, factor[S::rows];
    for (int i = 0; i < S::rows; i++)
        factor[i] = in.factor;
    load_tile<WIDTH>(q, head.q, head.stride, first, in.T, in.D, in.factor);
    load_tile<WIDTH>(dy, in.dy + at, stride, first, in.T, in.D, 1);
    for (int64_t key = 0; key <= first; key += S::tile) {
        __syncthreads();
        load_tile<WIDTH>(k, head.k, head.stride, key, in.T, in.D, 1);
        load_tile<WIDTH>(v, head.v, head.stride, key, in.T, in.D, 1);
        __syncthreads();
        score_gradients<WIDTH>(nullptr, ds, q, k, dy, v, in.stats + own.head * in.T,
                               in.delta + own.head * in.T, first, key, in.T);
        __syncthreads();
        combine<WIDTH, false>(dq, ds, k);
    }
    store_tile<WIDTH>(dqkv + (head.q - in.qkv), head.stride, first, in.T, in.D, dq, factor);
}

// More than 48 KiB of shared memory must be asked for; a refusal shows as a launch that fails.
template <class KERNEL> void allow_shared(KERNEL kernel, size_t bytes)
{
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

template <int WIDTH>
void launch_forward(cudaStream_t stream, float *y, float *stats, const float *qkv, int64_t B, int64_t T,
                    int64_t H, int64_t D)
{
    using S = shape<WIDTH>;
    size_t bytes = (3 * S::head_size + S::score_size) * sizeof(float);
    unsigned blocks = static_cast<unsigned>(B * H * parts_of(T, S::tile));
    allow_shared(forward<WIDTH>, bytes);
    forward<WIDTH><<<blocks, THREADS, bytes, stream>>>(
        y, stats, qkv, T, static_cast<int>(H), static_cast<int>(D), 1.0f / sqrtf(static_cast<float>(D)));
}

template <int WIDTH>
void launch_backward(cudaStream_t stream, float *dqkv, const backward_input &in, int64_t B)
{
    using S = shape<WIDTH>;
    size_t bytes = (4 * S::head_size + 2 * S::score_size) * sizeof(float);
    unsigned blocks = static_cast<unsigned>(B * in.H * parts_of(in.T, S::tile));
    allow_shared(backward_keys<WIDTH>, bytes);
    allow_shared(backward_queries<WIDTH>, bytes);
    backward_keys<WIDTH><<<blocks, THREADS, bytes, stream>>>(dqkv, in);
    backward_queries<WIDTH><<<blocks, THREADS, bytes, stream>>>(dqkv, in);
}

} // namespace

void ddp_cuda_attention_forward(cudaStream_t stream, float *y, float *stats, const float *qkv, int64_t B,
                                int64_t T, int64_t H, int64_t D)
{
    auto *launch = D <= 16    ? launch_forward<16>
                   : D <= 32  ? launch_forward<32>
                   : D <= 64  ? launch_forward<64>
                   : D <= 128 ? launch_forward<128>
                              : launch_forward<DDP_CUDA_MAX_HEAD>;
    launch(stream, y, stats, qkv, B, T, H, D);
}

size_t ddp_cuda_attention_backward_bytes(int64_t B, int64_t T, int64_t H)
{
    return static_cast<size_t>(B * T * H) * sizeof(float);
}

void ddp_cuda_attention_backward(cudaStream_t stream, float *dqkv, const float *dy, const float *qkv,
                                 const float *y, const float *stats, void *scratch, int64_t B, int64_t T,
                                 int64_t H, int64_t D)
{
    float *delta = static_cast<float *>(scratch);
    int64_t rows = B * T * H;
    row_products<<<parts_of(rows, THREADS / WARP), THREADS, 0, stream>>>(
        delta, dy, y, rows, T, static_cast<int>(H), static_cast<int>(D));
    backward_input in = {qkv,
                         dy,
                         stats,
                         delta,
                         T,
                         static_cast<int>(H),
                         static_cast<int>(D),
                         1.0f / sqrtf(static_cast<float>(D))};
    auto *launch = D <= 16    ? launch_backward<16>
                   : D <= 32  ? launch_backward<32>
                   : D <= 64  ? launch_backward<64>
                   : D <= 128 ? launch_backward<128>
                              : launch_backward<DDP_CUDA_MAX_HEAD>;
    launch(stream, dqkv, in, B);
}
