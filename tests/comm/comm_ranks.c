/* Ranks for the tests of this folder.
 *
 *   - comm_ranks shm RANKS WHAT forks RANKS processes that inherit a rendezvous; the exit code is the number
 *     of those that did not end with 0;
 *   - mpirun ... comm_ranks mpi LOCAL WHAT is one rank; LOCAL > 0 splits the host into several of LOCAL
 * ranks.
 *
 * WHAT: cases, cases-thread (the comm stream has a thread of its own), bits, or one of faults[] below. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "collectives/comms.h"
#include "collectives/rendezvous.h"
#include "core/clock.h"
#include "core/device/devices.h"
#include "core/fault.h"

enum { COUNT = 4096 };

typedef struct rank {
    ddp_device *device;
    ddp_comm *comm;
    ddp_stream *stream;
    float *shared; /* 2 * COUNT elements */
    float outside[2 * COUNT];
    ddp_rendezvous *rendezvous; /* shm */
} rank;

static ddp_error *reduce(rank *r, int64_t count)
{
    DDP_TRY(ddp_comm_all_reduce(r->comm, r->stream, r->shared, count, DDP_F32, DDP_SUM));
    return ddp_stream_wait(r->stream);
}

static ddp_error *other_count(rank *r)
{
    DDP_TRY(reduce(r, COUNT));
    return reduce(r, r->comm->rank == 1 ? 200 : 100);
}

static ddp_error *other_count_outside(rank *r)
{
    DDP_TRY(ddp_comm_all_reduce(r->comm, r->stream, r->outside, r->comm->rank == 1 ? COUNT : COUNT - 1,
                                DDP_F32, DDP_SUM));
    return ddp_stream_wait(r->stream);
}

static ddp_error *other_operation(rank *r)
{
    if (r->comm->rank != 0)
        return reduce(r, 100);
    DDP_TRY(ddp_comm_broadcast(r->comm, r->stream, r->shared, 100, DDP_F32, 0));
    return ddp_stream_wait(r->stream);
}

static ddp_error *other_type(rank *r)
{
    DDP_TRY(ddp_comm_all_reduce(r->comm, r->stream, r->shared, 100, r->comm->rank == 1 ? DDP_I64 : DDP_F64,
                                DDP_SUM));
    return ddp_stream_wait(r->stream);
}

/* Two reductions of one size in another order: only where the data lies tells them apart. */
static ddp_error *swapped(rank *r)
{
    float *first = r->shared, *second = r->shared + COUNT;
    DDP_TRY(ddp_comm_all_reduce(r->comm, r->stream, r->comm->rank == 1 ? second : first, COUNT, DDP_F32,
                                DDP_SUM));
    DDP_TRY(ddp_comm_all_reduce(r->comm, r->stream, r->comm->rank == 1 ? first : second, COUNT, DDP_F32,
                                DDP_SUM));
    return ddp_stream_wait(r->stream);
}

static ddp_error *by_fault(rank *r, const char *fault)
{
    setenv("DDP_FAULT", fault, 1);
    DDP_TRY(ddp_fault_load(r->comm->rank));
    ddp_fault_set_step(3);
    DDP_TRY(ddp_comm_all_reduce(r->comm, r->stream, r->shared, 100, DDP_F32, DDP_SUM));
    DDP_TRY(ddp_comm_all_reduce(r->comm, r->stream, r->shared, 200, DDP_F32, DDP_SUM));
    return ddp_stream_wait(r->stream);
}

static ddp_error *fault_skip(rank *r)
{
    return by_fault(r, "rank=1,step=3,do=skip_collective");
}

static ddp_error *fault_swap(rank *r)
{
    return by_fault(r, "rank=1,step=3,do=swap_collectives");
}

static ddp_error *fault_finalize(rank *r)
{
    return by_fault(r, "rank=1,step=3,do=finalize");
}

static void tell(rank *r, const char *phase, int64_t step)
{
    if (r->rendezvous != NULL)
        ddp_rendezvous_tell(r->rendezvous, r->comm->local_rank, phase, step);
}

static ddp_error *absent(rank *r)
{
    DDP_TRY(reduce(r, 10));
    tell(r, "load", 5);
    if (r->comm->rank == 1) {
        ddp_clock_sleep(3);
        _exit(0);
    }
    return reduce(r, COUNT);
}

/* Slow, but within the time. */
static ddp_error *late(rank *r)
{
    if (r->comm->rank == 1)
        ddp_clock_sleep(0.7);
    return reduce(r, COUNT);
}

static ddp_error *killed(rank *r)
{
    if (r->comm->rank == 1) {
        ddp_clock_sleep(0.1);
        raise(SIGKILL);
    }
    return reduce(r, COUNT);
}

static ddp_error *leaves(rank *r)
{
    return r->comm->rank == 1 ? NULL : reduce(r, COUNT);
}

static ddp_error *aborts(rank *r)
{
    DDP_TRY(reduce(r, 10)); /* everyone has opened */
    if (r->comm->rank == 1) {
        ddp_comm_abort(r->comm, "the loader read nonsense");
        return NULL;
    }
    return reduce(r, COUNT);
}

/* The parent aborts while all wait for rank 1. */
static ddp_error *aborted(rank *r)
{
    if (r->comm->rank == 1) {
        ddp_clock_sleep(1);
        _exit(0);
    }
    return reduce(r, COUNT);
}

static ddp_error *no_room(rank *r)
{
    void *memory;
    struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    if (r->comm->rank == 1)
        setrlimit(RLIMIT_AS, &limit);
    return ddp_comm_alloc(r->comm, 1 << 20, &memory);
}

/* More than any host has: refused, not reserved until the OOM killer comes. */
static ddp_error *far_too_much(rank *r)
{
    void *memory;
    return ddp_comm_alloc(r->comm, (size_t)1 << 45, &memory);
}

static ddp_error *other_size(rank *r)
{
    void *memory;
    return ddp_comm_alloc(r->comm, r->comm->rank == 1 ? 1000 : 2000, &memory);
}

static const struct {
    const char *name;
    ddp_error *(*run)(rank *r);
    double timeout_s;
} faults[] = {
    {"other-count", other_count, 20},
    {"other-count-outside", other_count_outside, 20},
    {"other-operation", other_operation, 20},
    {"other-type", other_type, 20},
    {"other-size", other_size, 20},
    {"swapped", swapped, 20},
    {"fault-skip", fault_skip, 20},
    {"fault-swap", fault_swap, 20},
    {"fault-finalize", fault_finalize, 20},
    {"absent", absent, 0.5},
    {"late", late, 5},
    {"killed", killed, 20},
    {"leaves", leaves, 20},
    {"aborts", aborts, 20},
    {"aborted", aborted, 20},
    {"no-room", no_room, 20},
    {"far-too-much", far_too_much, 20},
};

static int run_fault(rank *r, const char *what)
{
    ddp_error *error = ddp_error_make(DDP_ERR_INTERNAL, "no such test: %s", what);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        if (strcmp(faults[i].name, what) != 0)
            continue;
        ddp_error_free(error);
        r->comm->timeout_s = faults[i].timeout_s;
        error = faults[i].run(r);
    }
    if (error != NULL)
        printf("rank %d: %s\n", r->comm->rank, ddp_error_message(error));
    else
        printf("rank %d: fine\n", r->comm->rank);
    fflush(stdout);
    int code = ddp_error_exit_code(error);
    ddp_error_free(error);
    return code;
}

static int run_what(rank *r, const char *what)
{
    uint64_t digest;
    if (strncmp(what, "cases", 5) == 0)
        return comm_cases_run(r->comm) ? 0 : 1;
    if (strcmp(what, "bits") != 0)
        return run_fault(r, what);
    if (!comm_cases_bits(r->comm, &digest))
        return 1;
    printf("rank %d: digest %016llx\n", r->comm->rank, (unsigned long long)digest);
    return 0;
}

static ddp_error *open_rank(rank *r, const ddp_comm_ops *ops, ddp_comm_config config, const char *what)
{
    ddp_device_config device = {.threads = 1, .comm_thread = strcmp(what, "cases-thread") == 0};
    DDP_TRY(ddp_device_cpu_ops.open(&device, &r->device));
    config.device = r->device;
    config.timeout_s = 20;
    DDP_TRY(ops->open(&config, &r->comm));
    DDP_TRY(ddp_stream_open(r->device, DDP_STREAM_COMM, &r->stream));
    return ddp_comm_alloc(r->comm, 2 * COUNT * sizeof(float), (void **)&r->shared);
}

static int run_rank(const ddp_comm_ops *ops, const ddp_comm_config *config, const char *what)
{
    static rank r;
    if (config->rendezvous_fd >= 0) {
        ddp_error *ignored = ddp_rendezvous_open(dup(config->rendezvous_fd), &r.rendezvous);
        ddp_error_free(ignored);
    }
    ddp_error *error = open_rank(&r, ops, *config, what);
    if (error != NULL) {
        ddp_error_print(error, "error", stderr);
        return ddp_error_exit_code(error);
    }
    int code = run_what(&r, what);
    ddp_stream_close(r.stream);
    ddp_comm_close(r.comm);
    ddp_device_close(r.device);
    ddp_rendezvous_close(r.rendezvous);
    return code;
}

static int run_shm(int world, const char *what)
{
    ddp_rendezvous *rendezvous;
    ddp_error *error = ddp_rendezvous_make(world, &rendezvous);
    pid_t pids[64];
    int bad = 0;
    if (error != NULL) {
        ddp_error_print(error, "error", stderr);
        return 1;
    }
    for (int i = 0; i < world; i++) {
        ddp_comm_config config = {.rank = i,
                                  .world = world,
                                  .local_rank = i,
                                  .local_world = world,
                                  .rendezvous_fd = ddp_rendezvous_fd(rendezvous)};
        fflush(NULL);
        pids[i] = fork();
        if (pids[i] == 0)
            exit(run_rank(&ddp_comm_shm_ops, &config, what));
    }
    if (strcmp(what, "aborted") == 0) {
        ddp_clock_sleep(0.3);
        ddp_rendezvous_abort(rendezvous, 1, "killed by signal 9");
    }
    for (int i = 0; i < world; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        printf("rank %d: exit %d\n", i, code);
        bad += code != 0;
    }
    ddp_rendezvous_close(rendezvous);
    return bad;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "shm") == 0)
        return run_shm(atoi(argv[2]), argv[3]);
#if DDP_WITH_MPI
    const char *own = getenv("OMPI_COMM_WORLD_RANK"), *size = getenv("OMPI_COMM_WORLD_SIZE");
    if (argc == 4 && strcmp(argv[1], "mpi") == 0) {
        ddp_comm_config config = {.rank = own ? atoi(own) : 0,
                                  .world = size ? atoi(size) : 1,
                                  .local_world = atoi(argv[2]),
                                  .rendezvous_fd = -1};
        return run_rank(&ddp_comm_mpi_ops, &config, argv[3]);
    }
#endif
    fprintf(stderr, "comm_ranks shm RANKS WHAT | mpi LOCAL WHAT\n");
    return 64;
}
