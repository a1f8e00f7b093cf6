/* The verb bench: how fast the ranks of this host agree. Columns and figures are those of nccl-tests, so that
 * they can be put side by side:
 *
 *   - algbw = bytes / time;
 *   - busbw = algbw x 2 (n - 1) / n for all_reduce, algbw x (n - 1) / n for reduce_scatter and all_gather;
 *   - n ranks, bytes of the whole vector, GB/s = 1e9 bytes/s. Source: nccl-tests, doc/PERFORMANCE.md.
 *
 * Only in place: that is how this library works, so the out-of-place columns are left out. A time is the
 * average over the repeats, of the slowest rank. #wrong counts wrong elements of a separate, checked run over
 * all ranks.
 *
 * The ranks are forked: no job, no run directory, no device but the cpu, shared memory. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ddp/comm.h>

#include "collectives/comms.h"
#include "collectives/rendezvous.h"
#include "core/clock.h"
#include "core/device/devices.h"
#include "launcher/verbs.h"
#include "runtime/bind.h"

enum { SMALLEST = 1 << 10, DEFAULT_MIB = 64, MOST_MIB = 4096 };

typedef enum bench_kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, KINDS } bench_kind;

typedef struct bench {
    ddp_comm *comm;
    ddp_stream *stream;
    float *data;
    double *numbers; /* two, for what the ranks tell each other */
    int64_t largest;
} bench;

static const char *const kind_names[KINDS] = {"all_reduce", "reduce_scatter", "all_gather"};

/* `count` elements of the whole vector. */
static ddp_error *enqueue(bench *b, bench_kind kind, int64_t count)
{
    switch (kind) {
    case ALL_REDUCE:
        return ddp_comm_all_reduce(b->comm, b->stream, b->data, count, DDP_F32, DDP_SUM);
    case REDUCE_SCATTER:
        return ddp_comm_reduce_scatter(b->comm, b->stream, b->data, count / b->comm->world, DDP_F32);
    default:
        return ddp_comm_all_gather(b->comm, b->stream, b->data, count / b->comm->world, DDP_F32);
    }
}

static ddp_error *tell_all(bench *b, double value, ddp_reduce op, double *result)
{
    *b->numbers = value;
    DDP_TRY(ddp_comm_all_reduce(b->comm, b->stream, b->numbers, 1, DDP_F64, op));
    DDP_TRY(ddp_stream_wait(b->stream));
    *result = *b->numbers;
    return NULL;
}

/* Small whole numbers, so that sums are exact in fp32. */
static float given(int rank, int64_t i)
{
    return (float)(i % 61 + rank);
}

static float expected(const bench *b, bench_kind kind, int64_t i, int64_t part)
{
    int world = b->comm->world;
    if (kind == ALL_GATHER)
        return given((int)(i / part), i);
    return (float)(i % 61 * world) + (float)(world * (world - 1) / 2);
}

static ddp_error *count_wrong(bench *b, bench_kind kind, int64_t count, double *wrong)
{
    int64_t part = count / b->comm->world, first = part * b->comm->rank, bad = 0;
    for (int64_t i = 0; i < count; i++)
        b->data[i] = given(b->comm->rank, i);
    DDP_TRY(enqueue(b, kind, count));
    DDP_TRY(ddp_stream_wait(b->stream));
    int64_t begin = kind == REDUCE_SCATTER ? first : 0, end = kind == REDUCE_SCATTER ? first + part : count;
    for (int64_t i = begin; i < end; i++)
        bad += b->data[i] != expected(b, kind, i, part);
    memset(b->data, 0, (size_t)count * sizeof *b->data); /* the timed repeats add zeros: nothing grows */
    return tell_all(b, (double)bad, DDP_SUM, wrong);
}

static ddp_error *time_it(bench *b, bench_kind kind, int64_t count, double *seconds)
{
    int repeats = count < 16 << 10 ? 1000 : count < 1 << 20 ? 100 : 10;
    double start = 0;
    for (int i = -repeats / 5; i < repeats; i++) {
        if (i == 0) {
            DDP_TRY(ddp_comm_barrier(b->comm, b->stream));
            DDP_TRY(ddp_stream_wait(b->stream));
            start = ddp_clock_now();
        }
        DDP_TRY(enqueue(b, kind, count));
        DDP_TRY(ddp_stream_wait(b->stream));
    }
    return tell_all(b, (ddp_clock_now() - start) / repeats, DDP_MAX, seconds);
}

static ddp_error *measure(bench *b, bench_kind kind, int64_t bytes)
{
    int world = b->comm->world;
    int64_t count = bytes / (int64_t)sizeof(float) / world * world;
    double wrong, seconds, factor = (kind == ALL_REDUCE ? 2.0 : 1.0) * (world - 1) / world;
    if (count == 0)
        return NULL;
    DDP_TRY(count_wrong(b, kind, count, &wrong));
    DDP_TRY(time_it(b, kind, count, &seconds));
    if (b->comm->rank != 0)
        return NULL;
    double algbw = (double)count * sizeof(float) / seconds / 1e9;
    printf("%12lld %12lld %7s %6s %10.2f %8.2f %8.2f %7.0f\n", (long long)(count * (int64_t)sizeof(float)),
           (long long)(kind == ALL_REDUCE ? count : count / world), "float",
           kind == ALL_GATHER ? "none" : "sum", seconds * 1e6, algbw, algbw * factor, wrong);
    fflush(stdout);
    return NULL;
}

static ddp_error *measure_all(bench *b)
{
    for (int kind = 0; kind < KINDS; kind++) {
        if (b->comm->rank == 0)
            printf("# %s, %d ranks, shared memory, in place only\n%12s %12s %7s %6s %10s %8s %8s %7s\n%12s "
                   "%12s %7s %6s %10s "
                   "%8s %8s %7s\n",
                   kind_names[kind], b->comm->world, "# size", "count", "type", "redop", "time", "algbw",
                   "busbw", "#wrong", "# (B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "");
        for (int64_t bytes = SMALLEST; bytes <= b->largest; bytes *= 4)
            DDP_TRY(measure(b, (bench_kind)kind, bytes));
    }
    return NULL;
}

static ddp_error *run_rank(int rank, int world, int fd, int64_t largest)
{
    bench b = {.largest = largest};
    ddp_bind_share share;
    ddp_device *device = NULL;
    bool bound;
    ddp_device_config device_config = {.threads = 1, .compute = DDP_F32};
    ddp_comm_config config = {.rank = rank,
                              .world = world,
                              .local_rank = rank,
                              .local_world = world,
                              .rendezvous_fd = fd,
                              .timeout_s = 60};
    ddp_error *error;
    DDP_GO(ddp_bind_plan(rank, world, &share));
    DDP_GO(ddp_bind_apply(&share, &bound));
    DDP_GO(ddp_device_cpu_ops.open(&device_config, &device));
    config.device = device;
    DDP_GO(ddp_comm_shm_ops.open(&config, &b.comm));
    DDP_GO(ddp_stream_open(device, DDP_STREAM_COMM, &b.stream));
    DDP_GO(ddp_comm_alloc(b.comm, (size_t)largest, (void **)&b.data));
    DDP_GO(ddp_comm_alloc(b.comm, sizeof *b.numbers, (void **)&b.numbers));
    error = measure_all(&b);
out:
    ddp_stream_close(b.stream);
    ddp_comm_close(b.comm);
    ddp_device_close(device);
    return error;
}

/* The child's whole life. */
static _Noreturn void be_rank(int rank, int world, const ddp_rendezvous *rendezvous, int64_t largest,
                              pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    ddp_error *error = run_rank(rank, world, ddp_rendezvous_fd(rendezvous), largest);
    if (error != NULL)
        ddp_error_print(error, "error", stderr);
    _exit(ddp_error_exit_code(error));
}

/* Waits for all ranks; the first that fails ends the others' waits and gives the exit code. */
static int wait_for_ranks(ddp_rendezvous *rendezvous, const pid_t *pids, int started)
{
    int code = 0, status;
    for (int left = started; left > 0;) {
        pid_t pid = waitpid(-1, &status, 0);
        if (pid < 0 && errno != EINTR)
            break;
        for (int i = 0; i < started; i++) {
            if (pid != pids[i])
                continue;
            left--;
            int own = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            if (own != 0 && code == 0) {
                code = own;
                ddp_rendezvous_abort(rendezvous, i, WIFSIGNALED(status) ? "it was killed" : "it failed");
            }
        }
    }
    return code;
}

static ddp_error *start_ranks(int world, int64_t largest, int *code)
{
    ddp_rendezvous *rendezvous;
    ddp_error *error = NULL;
    pid_t pids[DDP_MAX_LOCAL_RANKS], parent = getpid();
    int started = 0;
    DDP_TRY(ddp_rendezvous_make(world, &rendezvous));
    fflush(NULL);
    while (started < world && error == NULL) {
        pids[started] = fork();
        if (pids[started] == 0)
            be_rank(started, world, rendezvous, largest, parent);
        if (pids[started] > 0)
            started++;
        else
            error = ddp_error_errno(errno, "rank %d of the benchmark cannot be started", started);
    }
    if (error != NULL)
        ddp_rendezvous_abort(rendezvous, started, "it could not be started");
    *code = wait_for_ranks(rendezvous, pids, started);
    ddp_rendezvous_close(rendezvous);
    return error;
}

static ddp_error *run_bench(const ddp_arguments *arguments, int *code)
{
    ddp_bind_share share;
    DDP_TRY(ddp_bind_plan(0, 1, &share));
    int64_t ranks = share.allowed > 1 ? share.allowed : 2, mib = DEFAULT_MIB;
    if (ranks > DDP_MAX_LOCAL_RANKS)
        ranks = DDP_MAX_LOCAL_RANKS;
    DDP_TRY(ddp_verb_read_int("--ranks", arguments->options[0], 1, DDP_MAX_LOCAL_RANKS, &ranks));
    DDP_TRY(ddp_verb_read_int("--mib", arguments->options[1], 1, MOST_MIB, &mib));
    return start_ranks((int)ranks, mib << 20, code);
}

static const ddp_option options[] = {
    {"--ranks", "N", "this many ranks; default: one a core that may be used, at least 2"},
    {"--mib", "N", "sizes up to N MiB; default 64"},
    {NULL, NULL, NULL},
};

const ddp_verb ddp_verb_bench = {
    .name = "bench",
    .usage = "[--ranks N] [--mib N]",
    .help = "time and bandwidth of all_reduce, reduce_scatter and all_gather by size",
    .more = "Columns are those of nccl-tests, for in-place operations. GB/s = 1e9 bytes a second.",
    .options = options,
    .run = run_bench,
};
