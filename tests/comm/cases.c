/* The suite of all communicators. Inputs are small integers, so every sum is exact and every difference an
 * error. */
#include "cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/rng.h"

#if defined(__SANITIZE_THREAD__)
enum { MOST = 100000 }; /* every access costs there */
#else
enum { MOST = 1 << 20 };
#endif
enum { GUARD = 256, POISON = 0x5a };

typedef struct bench {
    ddp_comm *comm;
    ddp_stream *stream;
    unsigned char *memory; /* GUARD bytes, data, GUARD bytes */
    size_t bytes;
    const char *name; /* of the case, for messages */
    int64_t count;
    ddp_dtype dtype;
} bench;

static bool fail(const bench *b, const char *what, int64_t at)
{
    fprintf(stderr, "FAILED rank %d of %d, %s: %s of %lld %s: %s at %lld\n", b->comm->rank, b->comm->world,
            b->comm->ops->name, b->name, (long long)b->count, ddp_dtype_name(b->dtype), what, (long long)at);
    return false;
}

static bool ok(const bench *b, ddp_error *error)
{
    if (error == NULL)
        return true;
    ddp_error_print(error, "error", stderr);
    ddp_error_free(error);
    return fail(b, "an error", 0);
}

/* What rank brings as element i. */
static int64_t given(int rank, int64_t i)
{
    return i % 97 - 40 + 3 * rank * (i % 5 - 2);
}

static void put(void *data, ddp_dtype dtype, int64_t i, int64_t value)
{
    switch (dtype) {
    case DDP_F32:
        ((float *)data)[i] = (float)value;
        return;
    case DDP_F64:
        ((double *)data)[i] = (double)value;
        return;
    case DDP_I64:
        ((int64_t *)data)[i] = value;
        return;
    case DDP_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        return;
    case DDP_BF16:
    case DDP_F16:
        ((uint16_t *)data)[i] = (uint16_t)value;
        return;
    default:
        ((uint8_t *)data)[i] = (uint8_t)value;
    }
}

static bool holds(const void *data, ddp_dtype dtype, int64_t i, int64_t value)
{
    unsigned char expected[8], *found = (unsigned char *)data + (size_t)i * ddp_dtype_bytes(dtype);
    put(expected, dtype, 0, value);
    return memcmp(found, expected, ddp_dtype_bytes(dtype)) == 0;
}

/* Room for `count` elements between guards, all poisoned. */
static void *prepare(bench *b, const char *name, int64_t count, ddp_dtype dtype, int64_t total)
{
    size_t bytes = (size_t)total * ddp_dtype_bytes(dtype);
    b->name = name;
    b->count = count;
    b->dtype = dtype;
    memset(b->memory, POISON, GUARD);
    memset(b->memory + GUARD, POISON, bytes + GUARD);
    return b->memory + GUARD;
}

static bool guards_hold(const bench *b, int64_t total)
{
    const unsigned char *end = b->memory + GUARD + (size_t)total * ddp_dtype_bytes(b->dtype);
    for (int i = 0; i < GUARD; i++)
        if (b->memory[i] != POISON || end[i] != POISON)
            return fail(b, "wrote outside", i);
    return true;
}

static int64_t reduced(ddp_reduce op, int world, int64_t i)
{
    int64_t value = given(0, i);
    for (int r = 1; r < world; r++) {
        int64_t next = given(r, i);
        value = op == DDP_SUM ? value + next : (op == DDP_MIN) == (next < value) ? next : value;
    }
    return value;
}

static bool all_reduce(bench *b, int64_t count, ddp_dtype dtype, ddp_reduce op)
{
    static const char *const ops[] = {"all_reduce sum", "all_reduce min", "all_reduce max"};
    void *data = prepare(b, ops[op], count, dtype, count);
    for (int64_t i = 0; i < count; i++)
        put(data, dtype, i, given(b->comm->rank, i));
    if (!ok(b, ddp_comm_all_reduce(b->comm, b->stream, data, count, dtype, op)) ||
        !ok(b, ddp_stream_wait(b->stream)))
        return false;
    for (int64_t i = 0; i < count; i++)
        if (!holds(data, dtype, i, reduced(op, b->comm->world, i)))
            return fail(b, "wrong", i);
    return guards_hold(b, count);
}

static bool reduce_scatter(bench *b, int64_t count, ddp_dtype dtype)
{
    int64_t total = count * b->comm->world, first = count * b->comm->rank;
    void *data = prepare(b, "reduce_scatter", count, dtype, total);
    for (int64_t i = 0; i < total; i++)
        put(data, dtype, i, given(b->comm->rank, i));
    if (!ok(b, ddp_comm_reduce_scatter(b->comm, b->stream, data, count, dtype)) ||
        !ok(b, ddp_stream_wait(b->stream)))
        return false;
    for (int64_t i = first; i < first + count; i++)
        if (!holds(data, dtype, i, reduced(DDP_SUM, b->comm->world, i)))
            return fail(b, "wrong", i);
    return guards_hold(b, total);
}

static bool all_gather(bench *b, int64_t count, ddp_dtype dtype)
{
    int64_t total = count * b->comm->world, first = count * b->comm->rank;
    void *data = prepare(b, "all_gather", count, dtype, total);
    for (int64_t i = first; i < first + count; i++)
        put(data, dtype, i, given(b->comm->rank, i));
    if (!ok(b, ddp_comm_all_gather(b->comm, b->stream, data, count, dtype)) ||
        !ok(b, ddp_stream_wait(b->stream)))
        return false;
    for (int64_t i = 0; i < total; i++)
        if (!holds(data, dtype, i, given((int)(i / count), i)))
            return fail(b, "wrong", i);
    return guards_hold(b, total);
}

static bool broadcast(bench *b, int64_t count, ddp_dtype dtype, int root)
{
    void *data = prepare(b, "broadcast", count, dtype, count);
    for (int64_t i = 0; b->comm->rank == root && i < count; i++)
        put(data, dtype, i, given(root, i));
    if (!ok(b, ddp_comm_broadcast(b->comm, b->stream, data, count, dtype, root)) ||
        !ok(b, ddp_stream_wait(b->stream)))
        return false;
    for (int64_t i = 0; i < count; i++)
        if (!holds(data, dtype, i, given(root, i)))
            return fail(b, "wrong", i);
    return guards_hold(b, count);
}

/* Twenty operations enqueued before the first wait, each on the result of the one before. */
static bool in_a_row(bench *b, int64_t count)
{
    enum { ROW = 20 };
    double *data = prepare(b, "all_reduces in a row", count, DDP_F64, count), expected = 0;
    for (int64_t i = 0; i < count; i++)
        data[i] = b->comm->rank;
    for (int i = 0; i < ROW; i++)
        if (!ok(b,
                ddp_comm_all_reduce(b->comm, b->stream, data, count, DDP_F64, i % 2 ? DDP_MAX : DDP_SUM)) ||
            !ok(b, ddp_comm_barrier(b->comm, b->stream)) || !ok(b, ddp_stream_poll(b->stream)))
            return false;
    for (int r = 0; r < b->comm->world; r++)
        expected += r;
    for (int i = 2; i < ROW; i += 2)
        expected *= b->comm->world;
    if (!ok(b, ddp_stream_wait(b->stream)))
        return false;
    for (int64_t i = 0; i < count; i++)
        if (data[i] != expected)
            return fail(b, "wrong", i);
    return guards_hold(b, count);
}

/* What an operation reads is what a copy queued before it wrote, and not what was there when it was enqueued.
 */
static bool behind_a_copy(bench *b, int64_t count)
{
    float *data = prepare(b, "all_reduce behind a copy", count, DDP_F32, count);
    float *source = malloc((size_t)count * sizeof *source);
    for (int64_t i = 0; i < count; i++)
        source[i] = (float)given(b->comm->rank, i);
    for (int repeat = 0; repeat < 3; repeat++) {
        ddp_stream_copy(b->stream, data, source, (size_t)count * sizeof *data);
        if (!ok(b, ddp_comm_all_reduce(b->comm, b->stream, data, count, DDP_F32, DDP_SUM)))
            return false;
    }
    if (!ok(b, ddp_stream_wait(b->stream)))
        return false;
    for (int64_t i = 0; i < count; i++)
        if (!holds(data, DDP_F32, i, reduced(DDP_SUM, b->comm->world, i)))
            return fail(b, "wrong", i);
    free(source);
    return guards_hold(b, count);
}

static bool of_count(bench *b, int64_t count)
{
    static const ddp_dtype sums[] = {DDP_F32, DDP_F64, DDP_I64};
    static const ddp_dtype moves[] = {DDP_F32, DDP_BF16, DDP_I32, DDP_U8};
    int types = count > 100000 ? 1 : 3;
    for (int t = 0; t < types; t++) {
        for (int op = DDP_SUM; op <= DDP_MAX; op++)
            if (!all_reduce(b, count, sums[t], (ddp_reduce)op))
                return false;
        if (!reduce_scatter(b, count, sums[t]))
            return false;
    }
    for (int t = 0; t < types + 1; t++)
        if (!all_gather(b, count, moves[t]))
            return false;
    for (int root = 0; root < b->comm->world; root++)
        if (!broadcast(b, count, moves[root % 4], root))
            return false;
    return behind_a_copy(b, count > 0 ? count : 1) && in_a_row(b, count);
}

static bool in_memory(bench *b)
{
    static const int64_t counts[] = {0, 1, 7, 300, (64 << 10) + 3, MOST};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (!of_count(b, counts[i]))
            return false;
    return true;
}

bool comm_cases_run(ddp_comm *comm)
{
    bench b = {.comm = comm,
               .name = "opening",
               .bytes = 2 * GUARD + ((size_t)comm->world + 1) * MOST * sizeof(double)};
    void *shared = NULL, *second = NULL;
    bool passed = ok(&b, ddp_stream_open(comm->device, DDP_STREAM_COMM, &b.stream));
    passed =
        passed && ok(&b, ddp_comm_alloc(comm, b.bytes, &shared)) && ok(&b, ddp_comm_alloc(comm, 24, &second));
    for (size_t i = 0; passed && i < b.bytes; i++)
        if (((unsigned char *)shared)[i] != 0)
            passed = fail(&b, "shared memory is not zero", (int64_t)i);
    if (passed && (uintptr_t)shared % 256 != 0)
        passed = fail(&b, "shared memory is not aligned", 0);
    b.memory = shared;
    passed = passed && in_memory(&b);
    b.memory = malloc(b.bytes);
    passed = passed && in_memory(&b);
    free(b.memory);
    passed = passed && ok(&b, ddp_comm_health(comm));
    ddp_stream_close(b.stream);
    ddp_comm_free(comm, second);
    ddp_comm_free(comm, shared);
    return passed;
}

bool comm_cases_bits(ddp_comm *comm, uint64_t *digest)
{
    enum { COUNT = 200003 };
    static const int64_t pieces[] = {1, 13, 255, 256, 257, 4096, 50001, COUNT};
    bench b = {.comm = comm, .name = "bits", .count = COUNT, .dtype = DDP_F32};
    float *shared = NULL, *first = malloc(COUNT * sizeof *first);
    bool passed = ok(&b, ddp_stream_open(comm->device, DDP_STREAM_COMM, &b.stream)) &&
                  ok(&b, ddp_comm_alloc(comm, COUNT * sizeof *shared, (void **)&shared));
    float *outside = malloc(COUNT * sizeof *outside);
    for (int round = 0; passed && round < 4; round++) {
        float *data = round % 2 ? outside : shared;
        ddp_rng_fill_normal(7, (uint64_t)comm->rank, 0, data, COUNT, 1.0f);
        if (round == 0)
            passed = ok(&b, ddp_comm_all_reduce(comm, b.stream, data, COUNT, DDP_F32, DDP_SUM));
        for (int64_t at = 0, i = round; passed && round > 0 && at < COUNT; i++) {
            int64_t piece = pieces[i % 7] < COUNT - at ? pieces[i % 7] : COUNT - at;
            passed = ok(&b, ddp_comm_all_reduce(comm, b.stream, data + at, piece, DDP_F32, DDP_SUM));
            at += piece;
        }
        passed = passed && ok(&b, ddp_stream_wait(b.stream));
        if (round == 0)
            memcpy(first, data, COUNT * sizeof *first);
        else if (passed && memcmp(first, data, COUNT * sizeof *first) != 0)
            passed = fail(&b, "other bits than in one call, round", round);
    }
    *digest = ddp_rng_hash(0, first, COUNT * sizeof *first);
    ddp_stream_close(b.stream);
    ddp_comm_free(comm, shared);
    free(first);
    free(outside);
    return passed;
}
