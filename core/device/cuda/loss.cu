// Losses, with their gradient written over the scores, beside core/device/cpu/loss.c. A block a row: the
// row's share goes to scratch memory, and one block adds the shares of all rows in a fixed order.
#include "core/device/cuda/common.cuh"

namespace
{

constexpr int SUM_THREADS = 256, CHECK_THREADS = 1024;

__global__ void check_ids(ddp_cuda_fault *fault, const int32_t *ids, int64_t count, int32_t least,
                          ddp_cuda_fault found)
{
    __shared__ unsigned long long first;
    if (threadIdx.x == 0)
        first = ~0ull;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < count; i += CHECK_THREADS)
        if (ids[i] < least || ids[i] >= found.limit) {
            atomicMin(&first, static_cast<unsigned long long>(i));
            break;
        }
    __syncthreads();
    volatile ddp_cuda_fault *to = fault;
    if (threadIdx.x > 0 || first == ~0ull || to->kind != DDP_CUDA_NO_FAULT)
        return;
    to->id = ids[first];
    to->row = static_cast<int64_t>(first);
    to->tokens = found.tokens;
    to->limit = found.limit;
    __threadfence_system(); // the host sees the kind last
    to->kind = found.kind;
}

__global__ void cross_entropy_rows(ddp_loss *rows, float *logits, const int32_t *targets, float scale,
                                   int64_t V)
{
    float *x = logits + blockIdx.x * V;
    int64_t target = targets[blockIdx.x];
    if (target < 0 || target >= V) { // masked, or already an error on the stream
        for (int64_t v = threadIdx.x; scale > 0 && v < V; v += blockDim.x)
            x[v] = 0;
        if (threadIdx.x == 0)
            rows[blockIdx.x] = ddp_loss{0, 0, 0};
        return;
    }
    float most = -INFINITY;
    for (int64_t v = threadIdx.x; v < V; v += blockDim.x)
        most = fmaxf(most, x[v]);
    most = block_max(most);
    float score = x[target], sum = 0, before = 0; // before: equal scores in front of the target
    for (int64_t v = threadIdx.x; v < V; v += blockDim.x) {
        sum += expf(x[v] - most);
        before += v < target && x[v] == most ? 1.0f : 0.0f;
    }
    sum = block_sum(sum);
    before = block_sum(before);
    if (threadIdx.x == 0)
        rows[blockIdx.x] = ddp_loss{log(static_cast<double>(sum)) + most - score, 1,
                                    score == most && before == 0 ? 1.0 : 0.0};
    if (!(scale > 0))
        return;
    float factor = scale / sum;
    for (int64_t v = threadIdx.x; v < V; v += blockDim.x)
        x[v] = expf(x[v] - most) * factor - (v == target ? scale : 0.0f);
}

__global__ void squared_error_rows(ddp_loss *rows, float *prediction, const float *targets, float scale,
                                   int64_t C)
{
    float *x = prediction + blockIdx.x * C;
    const float *target = targets + blockIdx.x * C;
    bool masked = isnan(target[0]);
    double sum = 0;
    for (int64_t c = threadIdx.x; c < C; c += blockDim.x) {
        float difference = masked ? 0.0f : x[c] - target[c];
        sum += static_cast<double>(difference) * difference;
        if (scale > 0)
            x[c] = masked ? 0.0f : scale * difference;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        rows[blockIdx.x] = ddp_loss{0.5 * sum, masked ? 0.0 : 1.0, 0};
}

__global__ void add_rows(ddp_loss *total, const ddp_loss *rows, int64_t R)
{
    ddp_loss sum = {0, 0, 0};
    for (int64_t r = threadIdx.x; r < R; r += SUM_THREADS) {
        sum.sum += rows[r].sum;
        sum.items += rows[r].items;
        sum.correct += rows[r].correct;
    }
    sum.sum = block_sum(sum.sum);
    sum.items = block_sum(sum.items);
    sum.correct = block_sum(sum.correct);
    if (threadIdx.x > 0)
        return;
    total->sum += sum.sum;
    total->items += sum.items;
    total->correct += sum.correct;
}

// Whole warps, about four elements a thread.
unsigned row_threads(int64_t width)
{
    int64_t threads = parts_of(parts_of(width, 4), WARP) * WARP;
    return static_cast<unsigned>(threads < 1024 ? threads : 1024);
}

} // namespace

void ddp_cuda_check_ids(cudaStream_t stream, ddp_cuda_fault *fault, const int32_t *ids, int64_t count,
                        int32_t least, ddp_cuda_fault found)
{
    check_ids<<<1, CHECK_THREADS, 0, stream>>>(fault, ids, count, least, found);
}

size_t ddp_cuda_loss_bytes(int64_t R)
{
    return static_cast<size_t>(R) * sizeof(ddp_loss);
}

void ddp_cuda_cross_entropy(cudaStream_t stream, ddp_loss *total, float *logits, const int32_t *targets,
                            float scale, void *scratch, int64_t R, int64_t V)
{
    ddp_loss *rows = static_cast<ddp_loss *>(scratch);
    cross_entropy_rows<<<static_cast<unsigned>(R), row_threads(V), 0, stream>>>(rows, logits, targets, scale,
                                                                                V);
    add_rows<<<1, SUM_THREADS, 0, stream>>>(total, rows, R);
}

void ddp_cuda_squared_error(cudaStream_t stream, ddp_loss *total, float *prediction, const float *targets,
                            float scale, void *scratch, int64_t R, int64_t C)
{
    ddp_loss *rows = static_cast<ddp_loss *>(scratch);
    squared_error_rows<<<static_cast<unsigned>(R), row_threads(C), 0, stream>>>(rows, prediction, targets,
                                                                                scale, C);
    add_rows<<<1, SUM_THREADS, 0, stream>>>(total, rows, R);
}
