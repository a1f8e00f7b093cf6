/* gpt: GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019): learned
 * positions, LayerNorm before each branch, causal attention, tanh-GELU, output tied to the token embedding,
 * no dropout.
 *
 * Parameters have the names of the Hugging Face state dict without its leading "transformer."; our matrices
 * are (out, in) where its Conv1D are (in, out), so the four matrices of a block are transposed on the way
 * there and back.
 *
 * One block, x being the residual stream:   x += c_proj(attention(c_attn(ln_1(x))));
 *                                           x += mlp.c_proj(gelu(mlp.c_fc(ln_2(x))))
 * Each sum is made by the norm that reads it. The output layer works in chunks of rows, since scores of a
 * whole batch would be the largest thing in memory (8,192 rows of 50,257 classes: 1.5 GiB); in training the
 * gradient of a chunk's scores is used at once, in forward, for the embedding's gradient and the last norm's.
 *
 * Note [Why wte is last]: the token embedding gets gradients at both ends of backward: from the output layer
 * first, from the embedding look-up last. It is final only then, and so is told last, behind wpe. As the
 * first parameter of the table it also lies last in the arena, where the last bucket ends. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/memory.h"
#include "models/layers.h"
#include "models/models.h"

/* Of one chunk of the output layer. A chunk costs one pass over wte and two over its gradient (147 MiB each
 * for GPT-2) whatever its rows: with 16 MiB, 83 rows, one block of GPT-2 and its output layer take 1.4 times
 * as long as with 64 MiB, and 256 MiB gain nothing more (one core, T = 1024). */
enum { SCORE_BYTES = 64 << 20 };

/* Places in the parameter table: WTE, WPE, then 12 a block, then ln_f. */
enum { WTE, WPE, FIRST_BLOCK };
enum { LN_1 = 0, C_ATTN = 2, ATTN_PROJ = 4, LN_2 = 6, C_FC = 8, MLP_PROJ = 10, BLOCK_PARAMS = 12 };

typedef struct gpt_settings {
    int64_t layers, heads, width, context, vocab, mlp_ratio;
} gpt_settings;

/* What one block keeps for backward. R rows of all samples, C width, K inner width. */
typedef struct block {
    ddp_norm ln_1, ln_2;   /* their x are the residual stream before each branch */
    void *qkv, *attention; /* (R, 3C), (R, C) */
    float *stats;          /* (B, H, T) */
    void *pre, *inner;     /* (R, K), before and after GELU */
} block;

typedef struct gpt {
    ddp_model base;
    const gpt_settings *settings;
    block *blocks;
    ddp_norm ln_f;
    void *branch; /* (R, C): forward, what a branch adds; backward, gradients on the way through one */
    void *stream; /* (R, C): gradient of the residual stream */
    void *wide;   /* (R, max(3C, K)): gradient of qkv or of pre */
    void *scores; /* one chunk of (R, vocab) */
    void *memory;
    ddp_batch batch; /* of the last forward that trains; count 0 = none */
} gpt;

#define SIZE(name, least, most, ...)                                                               \
    {                                                                                              \
        .key = #name, .type = DDP_FIELD_INT, .offset = offsetof(gpt_settings, name), .min = least, \
        .max = most, __VA_ARGS__                                                                   \
    }

static const ddp_field fields[] = {
    SIZE(layers, 1, 1000, .help = "transformer blocks"),
    SIZE(heads, 1, 1024, .help = "attention heads a block; width divides by it"),
    SIZE(width, 1, 1 << 17, .help = "elements of a token's vector"),
    SIZE(context, 1, 1 << 20, .unit = "tokens", .help = "length of a sample"),
    SIZE(vocab, 2, 1 << 24, .help = "different tokens; 256 for bytes, 50257 for GPT-2's"),
    SIZE(mlp_ratio, 1, 64, .fallback = "4", .help = "inner width of a block's mlp, as a multiple of width"),
    DDP_FIELD_END,
};

/* -- what needs no device -- */

static ddp_error *check(const gpt_settings *s)
{
    if (s->width % s->heads == 0)
        return NULL;
    int64_t below = s->width / s->heads * s->heads, above = below + s->heads;
    ddp_error *error = ddp_error_make(
        DDP_ERR_INPUT, "model.width: %" PRId64 " does not divide over %" PRId64 " heads", s->width, s->heads);
    if (below == 0)
        return ddp_error_help(error, "%" PRId64 " would", above);
    return ddp_error_help(error, "%" PRId64 " or %" PRId64 " would", below, above);
}

static ddp_error *sample(const void *settings, ddp_sample *sample)
{
    const gpt_settings *s = settings;
    DDP_TRY(check(s));
    *sample = (ddp_sample){
        .input = DDP_I32,
        .input_count = s->context,
        .target = DDP_I32,
        .target_count = s->context,
        .classes = s->vocab,
        .items = s->context,
    };
    return NULL;
}

static int64_t inner_width(const gpt_settings *s)
{
    return s->width * s->mlp_ratio;
}

/* The layer at place `which` of block `i`. */
static ddp_layer layer(const gpt_settings *s, int64_t i, int which)
{
    ddp_layer l = {.weight = FIRST_BLOCK + (int)i * BLOCK_PARAMS + which, .in = s->width, .out = s->width};
    if (which == C_ATTN)
        l.out = 3 * s->width;
    else if (which == C_FC)
        l.out = inner_width(s);
    else if (which == MLP_PROJ)
        l.in = inner_width(s);
    return l;
}

static ddp_layer last_norm(const gpt_settings *s)
{
    return (ddp_layer){
        .weight = FIRST_BLOCK + (int)s->layers * BLOCK_PARAMS, .in = s->width, .out = s->width};
}

/* Start values as in GPT-2: normal with deviation 0.02; layers that add to the residual stream divided by the
 * root of their number, so that its variance does not grow with depth (section 2.3 of the paper). */
static ddp_error *describe_block(const gpt_settings *s, int64_t i, ddp_params *params)
{
    static const struct {
        int which;
        const char *name;
        bool adds;
    } rows[] = {
        {LN_1, "ln_1", false}, {C_ATTN, "attn.c_attn", false}, {ATTN_PROJ, "attn.c_proj", true},
        {LN_2, "ln_2", false}, {C_FC, "mlp.c_fc", false},      {MLP_PROJ, "mlp.c_proj", true},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        char prefix[48];
        snprintf(prefix, sizeof prefix, "h.%" PRId64 ".%s", i, rows[r].name);
        ddp_layer l = layer(s, i, rows[r].which);
        ddp_assert(params->count == l.weight);
        double deviation = rows[r].adds ? 0.02 / sqrt(2.0 * (double)s->layers) : 0.02;
        if (rows[r].which == LN_1 || rows[r].which == LN_2)
            DDP_TRY(ddp_layer_add_norm(params, prefix, l.in));
        else
            DDP_TRY(ddp_layer_add_linear(params, prefix, l.in, l.out, DDP_INIT_NORMAL, deviation));
    }
    return NULL;
}

static ddp_error *describe(const void *settings, ddp_params *params)
{
    const gpt_settings *s = settings;
    int index;
    DDP_TRY(check(s));
    DDP_TRY(ddp_params_add(params, "wte.weight", DDP_INIT_NORMAL, 0.02, true, 2,
                           (int64_t[]){s->vocab, s->width}, &index));
    DDP_TRY(ddp_params_add(params, "wpe.weight", DDP_INIT_NORMAL, 0.02, true, 2,
                           (int64_t[]){s->context, s->width}, &index));
    for (int64_t i = 0; i < s->layers; i++)
        DDP_TRY(describe_block(s, i, params));
    return ddp_layer_add_norm(params, "ln_f", s->width);
}

/* Matrix products: 2 operations for each weight and token forward, twice that backward; the output layer
 * counts, the look-ups do not (Kaplan et al., "Scaling laws for neural language models", 2020, table 1).
 * Attention: 2 products forward and 5 backward (Dao, "FlashAttention-2", 2023, section 3), each of 2 C
 * operations for each of the T (T + 1) / 2 pairs that the mask leaves. GPT-2 124M at T = 1024: 807.3 MFLOP a
 * token. */
static double flops(const void *settings)
{
    const gpt_settings *s = settings;
    double C = (double)s->width, T = (double)s->context, L = (double)s->layers;
    double weights = L * (4 * C * C + 2 * C * (double)inner_width(s)) + C * (double)s->vocab;
    return 6 * weights * T + L * 7 * C * T * (T + 1);
}

/* -- memory -- */

/* As many rows as fit SCORE_BYTES, spread evenly over the chunks. */
static int64_t chunk_rows(const gpt_settings *s, int64_t rows)
{
    int64_t most = SCORE_BYTES / (s->vocab * (int64_t)sizeof(float));
    int64_t chunks = most > 0 ? (rows + most - 1) / most : rows;
    return (rows + chunks - 1) / chunks;
}

static ddp_norm carve_norm(ddp_carver *carver, int64_t rows, int64_t width, size_t element)
{
    ddp_norm norm;
    norm.x = ddp_carve(carver, rows, width, element);
    norm.y = ddp_carve(carver, rows, width, element);
    norm.mean = ddp_carve(carver, rows, 1, sizeof(float));
    norm.rstd = ddp_carve(carver, rows, 1, sizeof(float));
    return norm;
}

static block carve_block(ddp_carver *carver, const gpt_settings *s, int64_t rows, size_t element)
{
    block b;
    b.ln_1 = carve_norm(carver, rows, s->width, element);
    b.qkv = ddp_carve(carver, rows, 3 * s->width, element);
    b.stats = ddp_carve(carver, rows, s->heads, sizeof(float));
    b.attention = ddp_carve(carver, rows, s->width, element);
    b.ln_2 = carve_norm(carver, rows, s->width, element);
    b.pre = ddp_carve(carver, rows, inner_width(s), element);
    b.inner = ddp_carve(carver, rows, inner_width(s), element);
    return b;
}

/* Gives every buffer its place; only counts where the carver has no base. */
static void carve(gpt *m, ddp_carver *carver, const gpt_settings *s, int64_t micro_batch, size_t element)
{
    int64_t rows = micro_batch * s->context, qkv = 3 * s->width, inner = inner_width(s);
    for (int64_t i = 0; i < s->layers; i++) {
        block b = carve_block(carver, s, rows, element);
        if (carver->base != NULL)
            m->blocks[i] = b;
    }
    m->ln_f = carve_norm(carver, rows, s->width, element);
    m->branch = ddp_carve(carver, rows, s->width, element);
    m->stream = ddp_carve(carver, rows, s->width, element);
    m->wide = ddp_carve(carver, rows, qkv > inner ? qkv : inner, element);
    m->scores = ddp_carve(carver, chunk_rows(s, rows), s->vocab, element);
}

static int64_t activation_bytes(const void *settings, int64_t micro_batch)
{
    gpt counted;
    ddp_carver carver = {0};
    carve(&counted, &carver, settings, micro_batch, sizeof(float));
    return carver.bytes;
}

static void close_gpt(ddp_model *model)
{
    gpt *m = (gpt *)model;
    ddp_device_free(model->env.device, m->memory);
    free(m->blocks);
    free(m);
}

static ddp_error *open_buffers(gpt *m)
{
    const ddp_model_env *env = &m->base.env;
    size_t bytes = (size_t)activation_bytes(env->settings, env->micro_batch);
    DDP_TRY(ddp_memory_make((size_t)m->settings->layers, sizeof *m->blocks, (void **)&m->blocks));
    DDP_TRY(ddp_device_alloc(env->device, bytes, &m->memory));
    ddp_carver carver = {.base = m->memory};
    carve(m, &carver, m->settings, env->micro_batch, ddp_dtype_bytes(env->device->kernels->compute));
    return NULL;
}

static ddp_error *open_gpt(const ddp_model_env *env, ddp_model **model)
{
    gpt *m = NULL;
    DDP_TRY(DDP_NEW(&m));
    m->base = (ddp_model){.ops = &ddp_model_gpt_ops, .env = *env};
    m->settings = env->settings;
    ddp_error *error = open_buffers(m);
    if (error != NULL) {
        close_gpt(&m->base);
        return error;
    }
    *model = &m->base;
    return NULL;
}

/* -- forward -- */

static const ddp_kernels *kernels(const gpt *m)
{
    return m->base.env.device->kernels;
}

/* From ln_1's output to what the block's mlp adds, in m->branch. */
static void forward_block(gpt *m, int64_t i, int64_t samples)
{
    const gpt_settings *s = m->settings;
    const ddp_model *model = &m->base;
    const block *b = &m->blocks[i];
    int64_t rows = samples * s->context;
    ddp_layer_forward(model, layer(s, i, C_ATTN), b->qkv, NULL, b->ln_1.y, DDP_ACT_NONE, rows);
    kernels(m)->attention_forward(model->env.stream, b->attention, b->stats, b->qkv, samples, s->context,
                                  s->heads, s->width / s->heads);
    ddp_layer_forward(model, layer(s, i, ATTN_PROJ), m->branch, NULL, b->attention, DDP_ACT_NONE, rows);
    ddp_norm_forward(model, layer(s, i, LN_2), &b->ln_2, b->ln_1.x, m->branch, rows);
    ddp_layer_forward(model, layer(s, i, C_FC), b->inner, b->pre, b->ln_2.y, DDP_ACT_GELU, rows);
    ddp_layer_forward(model, layer(s, i, MLP_PROJ), m->branch, NULL, b->inner, DDP_ACT_NONE, rows);
}

static char *row_at(const gpt *m, void *matrix, int64_t row)
{
    return (char *)matrix + (size_t)(row * m->settings->width) * ddp_dtype_bytes(kernels(m)->compute);
}

/* The output layer over rows [begin, begin + rows): loss; in training also its backward, which leaves the
 * gradient of ln_f's output in m->branch. */
static void head_chunk(gpt *m, const int32_t *targets, float scale, ddp_loss *total, int64_t begin,
                       int64_t rows)
{
    const ddp_model *model = &m->base;
    const ddp_kernels *k = kernels(m);
    ddp_stream *stream = model->env.stream;
    int64_t C = m->settings->width, V = m->settings->vocab;
    const void *x = row_at(m, m->ln_f.y, begin), *wte = ddp_model_weights(model, WTE);
    k->linear_forward(stream, m->scores, NULL, x, wte, NULL, DDP_ACT_NONE, rows, C, V);
    k->cross_entropy(stream, total, m->scores, targets + begin, scale, rows, V);
    if (scale > 0) {
        k->linear_backward_weight(stream, ddp_model_gradients(model, WTE), NULL, m->scores, x, rows, C, V);
        k->linear_backward_input(stream, row_at(m, m->branch, begin), m->scores, wte, NULL, DDP_ACT_NONE,
                                 false, rows, C, V);
    }
}

static ddp_error *forward(ddp_model *model, const ddp_batch *batch, float scale, ddp_loss *total)
{
    gpt *m = (gpt *)model;
    const gpt_settings *s = m->settings;
    int64_t samples = batch->count, rows = samples * s->context;
    DDP_TRY(ddp_model_check_batch(model, batch));
    const void *x = m->blocks[0].ln_1.x, *added = NULL;
    kernels(m)->embedding_forward(model->env.stream, m->blocks[0].ln_1.x, batch->input,
                                  ddp_model_weights(model, WTE), ddp_model_weights(model, WPE), samples,
                                  s->context, s->width);
    for (int64_t i = 0; i < s->layers; i++) {
        ddp_norm_forward(model, layer(s, i, LN_1), &m->blocks[i].ln_1, x, added, rows);
        forward_block(m, i, samples);
        x = m->blocks[i].ln_2.x;
        added = m->branch;
    }
    ddp_norm_forward(model, last_norm(s), &m->ln_f, x, added, rows);
    int64_t chunk = chunk_rows(s, rows);
    for (int64_t begin = 0; begin < rows; begin += chunk)
        head_chunk(m, batch->target, scale, total, begin, rows - begin < chunk ? rows - begin : chunk);
    m->batch = scale > 0 ? *batch : (ddp_batch){0};
    return NULL;
}

/* -- backward -- */

/* m->stream: from the gradient behind the block's mlp to the one behind its attention. */
static void backward_mlp(gpt *m, int64_t i, int64_t rows, ddp_ready ready)
{
    const gpt_settings *s = m->settings;
    const ddp_model *model = &m->base;
    const block *b = &m->blocks[i];
    ddp_layer_backward_weight(model, layer(s, i, MLP_PROJ), m->stream, b->inner, rows, ready);
    ddp_layer_backward_input(model, layer(s, i, MLP_PROJ), m->wide, m->stream, b->pre, DDP_ACT_GELU, rows);
    ddp_layer_backward_weight(model, layer(s, i, C_FC), m->wide, b->ln_2.y, rows, ready);
    ddp_layer_backward_input(model, layer(s, i, C_FC), m->branch, m->wide, NULL, DDP_ACT_NONE, rows);
    ddp_norm_backward(model, layer(s, i, LN_2), &b->ln_2, m->stream, m->branch, m->stream, rows, ready);
}

/* m->stream: from there to the gradient before the block. */
static void backward_attention(gpt *m, int64_t i, int64_t samples, ddp_ready ready)
{
    const gpt_settings *s = m->settings;
    const ddp_model *model = &m->base;
    const block *b = &m->blocks[i];
    int64_t rows = samples * s->context;
    ddp_layer_backward_weight(model, layer(s, i, ATTN_PROJ), m->stream, b->attention, rows, ready);
    ddp_layer_backward_input(model, layer(s, i, ATTN_PROJ), m->branch, m->stream, NULL, DDP_ACT_NONE, rows);
    kernels(m)->attention_backward(model->env.stream, m->wide, m->branch, b->qkv, b->attention, b->stats,
                                   samples, s->context, s->heads, s->width / s->heads);
    ddp_layer_backward_weight(model, layer(s, i, C_ATTN), m->wide, b->ln_1.y, rows, ready);
    ddp_layer_backward_input(model, layer(s, i, C_ATTN), m->branch, m->wide, NULL, DDP_ACT_NONE, rows);
    ddp_norm_backward(model, layer(s, i, LN_1), &b->ln_1, m->stream, m->branch, m->stream, rows, ready);
}

static ddp_error *backward(ddp_model *model, ddp_ready ready)
{
    gpt *m = (gpt *)model;
    const gpt_settings *s = m->settings;
    int64_t samples = m->batch.count, rows = samples * s->context;
    DDP_TRY(ddp_model_check_trained(&m->batch));
    ddp_norm_backward(model, last_norm(s), &m->ln_f, m->stream, m->branch, NULL, rows, ready);
    for (int64_t i = s->layers - 1; i >= 0; i--) {
        backward_mlp(m, i, rows, ready);
        backward_attention(m, i, samples, ready);
    }
    kernels(m)->embedding_backward(model->env.stream, ddp_model_gradients(model, WTE),
                                   ddp_model_gradients(model, WPE), m->stream, m->batch.input, samples,
                                   s->context, s->width, s->vocab);
    ready.call(ready.arg, WPE);
    ready.call(ready.arg, WTE); /* Note [Why wte is last] */
    m->batch.count = 0;
    return NULL;
}

const ddp_model_ops ddp_model_gpt_ops = {
    .name = "gpt",
    .help = "GPT-2: a transformer that predicts the next token",
    .fields = fields,
    .config_bytes = sizeof(gpt_settings),
    .sample = sample,
    .describe = describe,
    .activation_bytes = activation_bytes,
    .flops = flops,
    .open = open_gpt,
    .close = close_gpt,
    .forward = forward,
    .backward = backward,
};
