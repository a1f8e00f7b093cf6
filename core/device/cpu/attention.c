/* Causal self-attention, one (sample, head) at a time.
 *
 * The products here are small (T x T x D with D about 32 to 128) and half of the square is masked, which a
 * BLAS call can neither see nor do well. So: heads are packed into padded scratch, and one 6 x 16 tile (12
 * accumulators, what 16 vector registers hold) does every product, for just the keys that a tile's rows may
 * see. The scores of six query rows stay in the first-level cache between product, softmax and product; no
 * T x T matrix is ever stored, forward or backward. Backward makes the probabilities again from the kept
 * log-sum-exp (Dao et al., "FlashAttention", 2022, algorithm 4), in blocks of 48 query rows, so that a tile
 * of dK or dV is loaded and stored once for 48 terms. */
#include "core/device/cpu/device.h"
#include "core/device/cpu/simd.h"

enum { TILE_ROWS = 6, TILE_COLUMNS = 16, BLOCK = 48 }; /* BLOCK: a multiple of both */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* c(6,16) = (add ? c : 0) + sum over k < count of a(i,k) b(k,j), count at least 1; a(i,k) is at
 * a[i * a_row + k * a_step], rows of b and c lie ldb and ldc apart. The loop tests at its end so that
 * compilers see no way around it and keep the sums in registers throughout. */
static __attribute__((noinline)) void tile(float *c, int64_t ldc, const float *a, int64_t a_row,
                                           int64_t a_step, const float *b, int64_t ldb, int64_t count,
                                           bool add)
{
    vec sum[TILE_ROWS][2] = {{{0}}};
    do {
        vec b0 = vec_load(b), b1 = vec_load(b + LANES);
        for (int i = 0; i < TILE_ROWS; i++) {
            vec x = vec_all(a[i * a_row]);
            sum[i][0] += x * b0;
            sum[i][1] += x * b1;
        }
        a += a_step;
        b += ldb;
    } while (--count > 0);
    for (int i = 0; i < TILE_ROWS; i++, c += ldc) {
        vec_store(c, add ? vec_load(c) + sum[i][0] : sum[i][0]);
        vec_store(c + LANES, add ? vec_load(c + LANES) + sum[i][1] : sum[i][1]);
    }
}

/* One head in scratch: matrices of `rows` x `width`, zero where they exceed T x D; transposed ones width x
 * rows. */
typedef struct head {
    int64_t T, D, rows, width;
    float *q, *k, *v, *k_t, *v_t, *dy, *dq, *dk, *dv; /* q is scaled by 1 / sqrt(D) */
    float *p, *ds;                                    /* BLOCK x rows */
    float *delta;                                     /* rows */
} head;

static float *take(float **at, int64_t count)
{
    float *got = *at;
    *at += count;
    return got;
}

static bool head_open(head *h, ddp_stream *s, int64_t T, int64_t D, bool backward)
{
    *h = (head){.T = T, .D = D, .rows = round_up(T, BLOCK), .width = round_up(D, TILE_COLUMNS)};
    int64_t size = h->rows * h->width;
    float *at = ddp_cpu_scratch(s, (size_t)(9 * size + (2 * BLOCK + 1) * h->rows) * sizeof(float));
    if (at == NULL)
        return false;
    h->q = take(&at, size);
    h->k = take(&at, size);
    h->v = take(&at, size);
    h->k_t = take(&at, size);
    h->dq = take(&at, size); /* forward: the output */
    h->p = take(&at, BLOCK * h->rows);
    if (backward) {
        h->v_t = take(&at, size);
        h->dy = take(&at, size);
        h->dk = take(&at, size);
        h->dv = take(&at, size);
        h->ds = take(&at, BLOCK * h->rows);
        h->delta = take(&at, h->rows);
    }
    return true;
}

static void pack(const head *h, float *to, const float *from, int64_t stride, float factor)
{
    for (int64_t t = 0; t < h->T; t++, to += h->width, from += stride) {
        int64_t d = 0;
        for (; d + LANES <= h->D; d += LANES)
            vec_store(to + d, vec_load(from + d) * factor);
        for (; d < h->D; d++)
            to[d] = from[d] * factor;
        memset(to + h->D, 0, (size_t)(h->width - h->D) * sizeof *to);
    }
    memset(to, 0, (size_t)((h->rows - h->T) * h->width) * sizeof *to);
}

static void unpack(const head *h, float *to, const float *from, int64_t stride, float factor)
{
    for (int64_t t = 0; t < h->T; t++, to += stride, from += h->width) {
        int64_t d = 0;
        for (; d + LANES <= h->D; d += LANES)
            vec_store(to + d, vec_load(from + d) * factor);
        for (; d < h->D; d++)
            to[d] = from[d] * factor;
    }
}

/* Sixteen columns at a time: their source lines stay in the cache while they are written out as rows. */
static void transpose(const head *h, float *to, const float *from)
{
    for (int64_t t = 0; t < h->rows; t += TILE_COLUMNS)
        for (int64_t d = 0; d < h->D; d++)
            for (int i = 0; i < TILE_COLUMNS; i++)
                to[d * h->rows + t + i] = from[(t + i) * h->width + d];
}

/* scores(6, seen) = a[row..row+6] b_t, a and b being T x D: for the keys that these rows can see, rounded up.
 */
static void products(const head *h, float *scores, const float *a, const float *b_t, int64_t row,
                     int64_t seen)
{
    for (int64_t j = 0; j < seen; j += TILE_COLUMNS)
        tile(scores + j, h->rows, a + row * h->width, h->width, 1, b_t + j, h->rows, h->D, false);
}

/* out[row..row+6] = weights(6, keys) b. */
static void combine(const head *h, float *out, const float *weights, const float *b, int64_t row)
{
    int64_t keys = least(row + TILE_ROWS, h->T);
    for (int64_t d = 0; d < h->width; d += TILE_COLUMNS)
        tile(out + row * h->width + d, h->width, weights, h->rows, 1, b + d, h->width, keys, false);
}

static int64_t seen_from(int64_t row)
{
    return round_up(row + TILE_ROWS, TILE_COLUMNS);
}

static void mask(float *scores, int64_t row, int64_t seen)
{
    for (int64_t j = row + 1; j < seen; j++)
        scores[j] = -INFINITY;
}

/* Scores of one row become e^(score - largest), masked ones 0; returns 1 / their sum and the log-sum-exp. */
static float softmax_row(float *scores, int64_t row, int64_t seen, float *log_sum)
{
    mask(scores, row, seen);
    vec most_lanes = vec_load(scores);
    for (int64_t j = LANES; j < seen; j += LANES)
        most_lanes = vec_max(vec_load(scores + j), most_lanes);
    float most = vec_largest(most_lanes);
    vec sums = {0};
    for (int64_t j = 0; j < seen; j += LANES) {
        vec e = vec_exp(vec_load(scores + j) - most);
        vec_store(scores + j, e);
        sums += e;
    }
    float sum = vec_sum(sums);
    *log_sum = most + logf(sum);
    return 1.0f / sum;
}

static void forward_head(const head *h, float *stats)
{
    for (int64_t row = 0; row < h->T; row += TILE_ROWS) {
        int64_t seen = seen_from(row);
        float inverse[TILE_ROWS];
        products(h, h->p, h->q, h->k_t, row, seen);
        for (int i = 0; i < TILE_ROWS && row + i < h->T; i++)
            inverse[i] = softmax_row(h->p + i * h->rows, row + i, seen, &stats[row + i]);
        combine(h, h->dq, h->p, h->v, row);
        for (int i = 0; i < TILE_ROWS && row + i < h->T; i++)
            for (int64_t d = 0; d < h->width; d += LANES) {
                float *y = h->dq + (row + i) * h->width + d;
                vec_store(y, vec_load(y) * inverse[i]);
            }
    }
}

void ddp_cpu_attention_forward(ddp_stream *s, void *y, float *stats, const void *qkv, int64_t B, int64_t T,
                               int64_t H, int64_t D)
{
    head h;
    if (!head_open(&h, s, T, D, false))
        return;
    int64_t stride = 3 * H * D;
    for (int64_t n = 0; n < B * H; n++) {
        const float *q = (const float *)qkv + n / H * T * stride + n % H * D;
        pack(&h, h.q, q, stride, 1.0f / sqrtf((float)D));
        pack(&h, h.k, q + H * D, stride, 1);
        pack(&h, h.v, q + 2 * H * D, stride, 1);
        transpose(&h, h.k_t, h.k);
        forward_head(&h, stats + n * T);
        unpack(&h, (float *)y + n / H * T * H * D + n % H * D, h.dq, H * D, 1);
    }
}

/* p becomes the probabilities, ds (which holds dy v^T) the derivative of the scores. */
static void backward_row(float *p, float *ds, float log_sum, float delta, int64_t row, int64_t seen)
{
    mask(p, row, seen);
    for (int64_t j = 0; j < seen; j += LANES) {
        vec e = vec_exp(vec_load(p + j) - log_sum);
        vec_store(p + j, e);
        vec_store(ds + j, e * (vec_load(ds + j) - delta));
    }
}

/* to[key..] += weights^T b over the query rows of the block that see a key; weights are block rows x keys. */
static void spread(const head *h, float *to, const float *weights, const float *b, int64_t block)
{
    int64_t end = least(block + BLOCK, h->T);
    for (int64_t key = 0; key < end; key += TILE_ROWS) {
        int64_t from = key > block ? key : block;
        for (int64_t d = 0; d < h->width; d += TILE_COLUMNS)
            tile(to + key * h->width + d, h->width, weights + (from - block) * h->rows + key, 1, h->rows,
                 b + from * h->width + d, h->width, end - from, key < block);
    }
}

static void backward_block(const head *h, const float *stats, int64_t block)
{
    int64_t end = least(block + BLOCK, h->T);
    for (int64_t row = block; row < end; row += TILE_ROWS) {
        int64_t seen = seen_from(row);
        float *p = h->p + (row - block) * h->rows, *ds = h->ds + (row - block) * h->rows;
        products(h, p, h->q, h->k_t, row, seen);
        products(h, ds, h->dy, h->v_t, row, seen);
        for (int i = 0; i < TILE_ROWS && row + i < h->T; i++)
            backward_row(p + i * h->rows, ds + i * h->rows, stats[row + i], h->delta[row + i], row + i, seen);
        combine(h, h->dq, ds, h->k, row);
    }
    spread(h, h->dv, h->p, h->dy, block);
    spread(h, h->dk, h->ds, h->q, block);
}

/* delta = row sums of dy * y: what softmax's derivative subtracts. */
static void fill_delta(const head *h, const float *dy, const float *y, int64_t stride)
{
    for (int64_t t = 0; t < h->T; t++, dy += stride, y += stride) {
        vec sum = {0};
        int64_t d = 0;
        for (; d + LANES <= h->D; d += LANES)
            sum += vec_load(dy + d) * vec_load(y + d);
        float rest = 0;
        for (; d < h->D; d++)
            rest += dy[d] * y[d];
        h->delta[t] = vec_sum(sum) + rest;
    }
}

void ddp_cpu_attention_backward(ddp_stream *s, void *dqkv, const void *dy, const void *qkv, const void *y,
                                const float *stats, int64_t B, int64_t T, int64_t H, int64_t D)
{
    head h;
    if (!head_open(&h, s, T, D, true))
        return;
    int64_t stride = 3 * H * D;
    float factor = 1.0f / sqrtf((float)D);
    for (int64_t n = 0; n < B * H; n++) {
        int64_t at = n / H * T * stride + n % H * D, at_y = n / H * T * H * D + n % H * D;
        const float *q = (const float *)qkv + at;
        pack(&h, h.q, q, stride, factor);
        pack(&h, h.k, q + H * D, stride, 1);
        pack(&h, h.v, q + 2 * H * D, stride, 1);
        pack(&h, h.dy, (const float *)dy + at_y, H * D, 1);
        transpose(&h, h.k_t, h.k);
        transpose(&h, h.v_t, h.v);
        fill_delta(&h, (const float *)dy + at_y, (const float *)y + at_y, H * D);
        for (int64_t block = 0; block < T; block += BLOCK)
            backward_block(&h, stats + n * T, block);
        float *dq = (float *)dqkv + at;
        unpack(&h, dq, h.dq, stride, factor);
        unpack(&h, dq + H * D, h.dk, stride, 1);
        unpack(&h, dq + 2 * H * D, h.dv, stride, 1);
    }
}
