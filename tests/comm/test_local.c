/* Communicators inside one process: self, and local with ranks as threads; the rendezvous file; what the
 * public wrappers refuse. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"
#include "collectives/comms.h"
#include "collectives/local.h"
#include "collectives/rendezvous.h"
#include "core/clock.h"
#include "core/device/devices.h"
#include "support/test.h"

enum { MOST = 8 };

typedef struct member {
    ddp_local_group *group;
    int rank, world;
    bool comm_thread, passed;
    double timeout_s;
    bool (*run)(struct member *member);
    ddp_device *device;
    ddp_comm *comm;
    ddp_stream *stream;
    char message[1024];
    uint64_t digest;
    pthread_t thread;
} member;

static ddp_error *open_member(member *m)
{
    ddp_device_config device = {.threads = 1, .comm_thread = m->comm_thread};
    DDP_TRY(ddp_device_cpu_ops.open(&device, &m->device));
    ddp_comm_config config = {.device = m->device,
                              .rank = m->rank,
                              .world = m->world,
                              .local_rank = m->rank,
                              .local_world = m->world,
                              .rendezvous_fd = -1,
                              .group = m->group,
                              .timeout_s = m->timeout_s};
    DDP_TRY((m->group ? &ddp_comm_local_ops : &ddp_comm_self_ops)->open(&config, &m->comm));
    return ddp_stream_open(m->device, DDP_STREAM_COMM, &m->stream);
}

static bool said(member *m, ddp_error *error)
{
    if (error == NULL)
        return true;
    snprintf(m->message, sizeof m->message, "%s", ddp_error_message(error));
    ddp_error_free(error);
    return false;
}

static void *run_member(void *argument)
{
    member *m = argument;
    m->passed = said(m, open_member(m)) && m->run(m);
    ddp_stream_close(m->stream);
    ddp_comm_close(m->comm);
    ddp_device_close(m->device);
    return NULL;
}

/* world 0: the self communicator. */
static void run_members(member *members, int world, bool comm_thread, double timeout_s, bool (*run)(member *))
{
    ddp_local_group *group = NULL;
    memset(members, 0, MOST * sizeof *members);
    if (world > 0)
        check_ok(ddp_local_group_make(world, &group));
    for (int i = 0; i < (world ? world : 1); i++) {
        members[i] = (member){.group = group,
                              .rank = i,
                              .world = world ? world : 1,
                              .comm_thread = comm_thread,
                              .timeout_s = timeout_s,
                              .run = run};
        cr_assert_eq(pthread_create(&members[i].thread, NULL, run_member, &members[i]), 0);
    }
    for (int i = 0; i < (world ? world : 1); i++)
        pthread_join(members[i].thread, NULL);
    ddp_local_group_free(group);
}

static bool cases(member *m)
{
    return comm_cases_run(m->comm);
}

static bool bits(member *m)
{
    return comm_cases_bits(m->comm, &m->digest);
}

static void all_pass(int world, bool comm_thread, bool (*run)(member *))
{
    member members[MOST];
    run_members(members, world, comm_thread, 60, run);
    for (int i = 0; i < (world ? world : 1); i++) {
        cr_assert(members[i].passed, "rank %d of %d: %s", i, world, members[i].message);
        cr_assert_eq(members[i].digest, members[0].digest, "rank %d has other bits", i);
    }
}

Test(self, cases, .timeout = 60)
{
    all_pass(0, false, cases);
    all_pass(0, true, cases);
    all_pass(0, false, bits);
}

Test(local, cases_polled, .timeout = 120)
{
    for (int world = 1; world <= 4; world++)
        all_pass(world, false, cases);
}

Test(local, cases_threaded, .timeout = 120)
{
    all_pass(2, true, cases);
    all_pass(3, true, cases);
}

Test(local, bits_repeat, .timeout = 60)
{
    for (int world = 1; world <= 5; world += 2)
        all_pass(world, world == 3, bits);
}

static bool sums(member *m, int64_t count)
{
    float *data = calloc((size_t)count, sizeof *data);
    bool passed = said(m, ddp_comm_all_reduce(m->comm, m->stream, data, count, DDP_F32, DDP_SUM)) &&
                  said(m, ddp_stream_wait(m->stream));
    free(data);
    return passed;
}

static bool other_count(member *m)
{
    return sums(m, 1000 + (m->rank == 2));
}

Test(local, other_count_is_named, .timeout = 30)
{
    member members[MOST];
    run_members(members, 4, false, 20, other_count);
    static const char told[] = "given up: "; /* by a rank that compared a moment earlier */
    for (int i = 0; i < 4; i++) {
        const char *message = members[i].message;
        if (strncmp(message, told, sizeof told - 1) == 0)
            message += sizeof told - 1;
        cr_assert_str_eq(message,
                         "collective #2 differs between ranks: ranks 0, 1, 3 do all_reduce (sum) of 1000 "
                         "f32; rank 2 does all_reduce (sum) of 1001 f32");
    }
}

static bool absent(member *m)
{
    if (m->rank == 1) {
        ddp_clock_sleep(1.5); /* opened, but does not come */
        return true;
    }
    return sums(m, 10);
}

Test(local, absent_rank_is_named, .timeout = 30)
{
    member members[MOST];
    run_members(members, 3, true, 0.3, absent);
    cr_assert(members[1].passed);
    cr_assert_not_null(
        strstr(members[0].message, "all_reduce (sum) of 10 f32 (collective #2): rank 1 did not come within"),
        "%s", members[0].message);
    cr_assert_not_null(strstr(members[2].message, "rank 1"), "%s", members[2].message);
}

static bool aborts(member *m)
{
    if (m->rank == 0) {
        ddp_comm_abort(m->comm, "a test says so");
        return true;
    }
    return sums(m, 5000);
}

Test(local, abort_ends_waits, .timeout = 30)
{
    member members[MOST];
    run_members(members, 3, false, 0, aborts);
    cr_assert_str_eq(members[1].message, "given up because of rank 0: a test says so");
    cr_assert_str_eq(members[2].message, "given up because of rank 0: a test says so");
}

static bool leaves(member *m)
{
    return m->rank == 1 || sums(m, 5000);
}

Test(local, leaving_early_is_noticed, .timeout = 30)
{
    member members[MOST];
    run_members(members, 2, false, 0, leaves);
    cr_assert_not_null(strstr(members[0].message, "rank 1 left the group before it"), "%s",
                       members[0].message);
}

static void refused(member *m, ddp_error *error, const char *text)
{
    cr_assert_not_null(error, "expected: %s", text);
    cr_assert_eq(ddp_error_get_kind(error), DDP_ERR_INTERNAL);
    cr_assert_not_null(strstr(ddp_error_message(error), text), "%s", ddp_error_message(error));
    ddp_error_free(error);
}

static bool bad_arguments(member *m)
{
    float data[4] = {0};
    void *memory;
    refused(m, ddp_comm_all_reduce(m->comm, m->stream, NULL, 1, DDP_F32, DDP_SUM),
            "all_reduce of 1 elements");
    refused(m, ddp_comm_all_reduce(m->comm, m->stream, data, -1, DDP_F32, DDP_SUM),
            "all_reduce of -1 elements");
    refused(m, ddp_comm_all_reduce(m->comm, NULL, data, 1, DDP_F32, DDP_SUM),
            "without a communicator or a stream");
    refused(m, ddp_comm_all_reduce(m->comm, m->stream, data, 4, DDP_BF16, DDP_SUM), "cannot add bf16");
    refused(m, ddp_comm_reduce_scatter(m->comm, m->stream, data, 4, DDP_U8), "cannot add u8");
    refused(m, ddp_comm_all_gather(m->comm, m->stream, data, INT64_MAX / 4, DDP_F64), "all_gather of");
    refused(m, ddp_comm_broadcast(m->comm, m->stream, data, 4, DDP_F32, 1), "from rank 1 of 1");
    refused(m, ddp_comm_alloc(m->comm, 0, &memory), "0 bytes");
    if (!said(m, ddp_comm_all_reduce(m->comm, m->stream, NULL, 0, DDP_F32, DDP_SUM)) ||
        m->comm->sequence != 0)
        return false;
    return said(m, ddp_comm_all_reduce(m->comm, m->stream, data, 4, DDP_F32, DDP_SUM)) &&
           m->comm->sequence == 1 && m->comm->bytes == 16;
}

Test(comm, refuses_bad_arguments, .timeout = 10)
{
    all_pass(0, false, bad_arguments);
}

Test(rendezvous, tells_and_aborts, .timeout = 10)
{
    ddp_rendezvous *made, *opened;
    const char *why;
    int culprit;
    check_ok(ddp_rendezvous_make(3, &made));
    cr_assert(fcntl(ddp_rendezvous_fd(made), F_GETFD) & FD_CLOEXEC);
    check_ok(ddp_rendezvous_open(dup(ddp_rendezvous_fd(made)), &opened));
    cr_assert_eq(ddp_rendezvous_world(opened), 3);
    cr_assert_eq(ddp_rendezvous_ask(made, 2).pid, 0);
    ddp_rendezvous_tell(opened, 2, "backward", 7);
    ddp_rendezvous_tell(opened, 2, NULL, -1);
    ddp_rendezvous_status status = ddp_rendezvous_ask(made, 2);
    cr_assert_eq(status.pid, getpid());
    cr_assert_eq(status.step, 7);
    cr_assert_str_eq(status.phase, "backward");
    cr_assert_not(ddp_rendezvous_aborted(made, &culprit, &why));
    ddp_rendezvous_abort(opened, 2, "first");
    ddp_rendezvous_abort(made, 1, "second");
    cr_assert(ddp_rendezvous_aborted(made, &culprit, &why));
    cr_assert_eq(culprit, 2);
    cr_assert_str_eq(why, "first");
    ddp_rendezvous_close(opened);
    ddp_rendezvous_close(made);
    ddp_rendezvous_close(NULL);
}

static void not_a_rendezvous(int fd, ddp_error_kind kind, const char *text)
{
    ddp_rendezvous *opened;
    ddp_error *error = ddp_rendezvous_open(fd, &opened);
    cr_assert_not_null(error);
    cr_assert_eq(ddp_error_get_kind(error), kind);
    cr_assert_not_null(strstr(ddp_error_message(error), text), "%s", ddp_error_message(error));
    ddp_error_free(error);
}

Test(rendezvous, refuses_other_files, .timeout = 10)
{
    ddp_rendezvous *made;
    char path[] = "/tmp/ddp-test-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_eq(ftruncate(fd, 100000), 0);
    not_a_rendezvous(fd, DDP_ERR_INTERNAL, "is not the memory file");
    unlink(path);
    not_a_rendezvous(open("/dev/null", O_RDWR), DDP_ERR_INTERNAL, "is not the memory file");
    not_a_rendezvous(9999, DDP_ERR_IO, "descriptor 9999");
    ddp_error *error = ddp_rendezvous_make(DDP_MAX_LOCAL_RANKS + 1, &made);
    cr_assert_eq(ddp_error_get_kind(error), DDP_ERR_INPUT);
    ddp_error_free(error);
}
