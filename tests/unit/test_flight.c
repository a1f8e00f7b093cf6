/* The flight recorder: what is written is read back, whatever happened to the writer or to the file. */
#include "core/flight.h"
#include "support/test.h"

#include <ddp/comm.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/files.h"
#include "core/flight_page.h"

static char directory[64];
static char path[128];
static ddp_flight_snapshot snapshot;

static ddp_flight *open_page(int rank, int world)
{
    ddp_flight *flight = NULL;
    strcpy(directory, "/tmp/ddp-flight-XXXXXX");
    cr_assert_not_null(mkdtemp(directory));
    check_ok(ddp_flight_open(directory, rank, world, &flight));
    ddp_flight_path(directory, rank, path, sizeof path);
    memset(&snapshot, 0xab, sizeof snapshot);
    return flight;
}

static void remove_all(ddp_flight *flight)
{
    ddp_flight_close(flight);
    check_ok(ddp_tree_remove(directory));
}

static ddp_flight_call call_of(uint64_t number)
{
    return (ddp_flight_call){.op = DDP_FLIGHT_ALL_REDUCE,
                             .dtype = DDP_F32,
                             .reduce = DDP_SUM,
                             .tag = DDP_TAG_BUCKET((int)(number % 7)),
                             .count = (int64_t)(3 * number + 1),
                             .bytes = (int64_t)(12 * number + 4)};
}

static uint64_t issue(ddp_flight *flight, uint64_t number)
{
    ddp_flight_call call = call_of(number);
    return ddp_flight_issue(flight, &call);
}

static void refuses(const char *why)
{
    ddp_error *error = ddp_flight_read(path, &snapshot);
    cr_assert_not_null(error, "%s was read", path);
    cr_assert_eq(ddp_error_get_kind(error), DDP_ERR_INPUT);
    cr_assert_not_null(strstr(ddp_error_message(error), path), "%s", ddp_error_message(error));
    cr_assert_not_null(strstr(ddp_error_message(error), why), "%s", ddp_error_message(error));
    ddp_error_free(error);
}

static void patch(size_t offset, const void *bytes, size_t count)
{
    int fd = open(path, O_WRONLY);
    cr_assert_eq(pwrite(fd, bytes, count, (off_t)offset), (ssize_t)count);
    close(fd);
}

Test(flight, is_read_back, .timeout = 10)
{
    ddp_flight *flight = open_page(2, 4);
    double before = ddp_clock_now();
    ddp_flight_phase(flight, "init");
    ddp_flight_phase(flight, "backward");
    ddp_flight_step(flight, 5);
    cr_assert_eq(issue(flight, 1), 1u);
    cr_assert_eq(issue(flight, 2), 2u);
    ddp_flight_done(flight, 1);
    check_ok(ddp_flight_read(path, &snapshot));
    cr_assert_eq(snapshot.rank, 2);
    cr_assert_eq(snapshot.world, 4);
    cr_assert_eq(snapshot.pid, getpid());
    cr_assert(snapshot.here);
    cr_assert(snapshot.host[0] != '\0');
    cr_assert_str_eq(snapshot.phase, "backward");
    cr_assert_eq(snapshot.step, 5);
    cr_assert_geq(snapshot.phase_since, before - 1e-6);
    cr_assert_float_eq(snapshot.beat, 0, 0);
    cr_assert_leq(snapshot.latest, ddp_clock_now());
    cr_assert_eq(snapshot.issued, 2u);
    cr_assert_eq(snapshot.count, 2);
    cr_assert_geq(snapshot.records[0].done, snapshot.records[0].issued);
    cr_assert_eq(snapshot.records[1].call.count, 7);
    cr_assert_eq(snapshot.records[1].call.tag, DDP_TAG_BUCKET(2));
    cr_assert_eq(ddp_flight_pending(&snapshot)->sequence, 2u);
    cr_assert_eq(ddp_flight_find(&snapshot, 1)->sequence, 1u);
    cr_assert_null(ddp_flight_find(&snapshot, 3));
    before = ddp_clock_now();
    ddp_flight_beat(flight);
    check_ok(ddp_flight_read(path, &snapshot));
    cr_assert_geq(snapshot.beat, before - 1e-6);
    cr_assert_lt(snapshot.latest, snapshot.beat, "a beat is no movement");
    remove_all(flight);
}

Test(flight, a_fresh_page_says_nothing_yet, .timeout = 10)
{
    ddp_flight *flight = open_page(0, 1);
    check_ok(ddp_flight_read(path, &snapshot));
    cr_assert_str_eq(snapshot.phase, "");
    cr_assert_eq(snapshot.step, 0);
    cr_assert_eq(snapshot.count, 0);
    cr_assert_null(ddp_flight_pending(&snapshot));
    cr_assert_float_eq(snapshot.phase_since, snapshot.opened, 0);
    remove_all(flight);
}

Test(flight, outlives_the_writer, .timeout = 10)
{
    ddp_flight *flight = open_page(0, 1);
    ddp_flight_phase(flight, "save");
    ddp_flight_close(flight);
    check_ok(ddp_flight_read(path, &snapshot));
    cr_assert_str_eq(snapshot.phase, "save");
    remove_all(NULL);
}

Test(flight, a_shorter_phase_leaves_nothing_of_the_longer_one, .timeout = 10)
{
    ddp_flight *flight = open_page(0, 1);
    ddp_flight_phase(flight, "backward");
    ddp_flight_phase(flight, "end");
    check_ok(ddp_flight_read(path, &snapshot));
    cr_assert_eq(memcmp(snapshot.phase, "end\0\0\0\0\0", DDP_FLIGHT_PHASE), 0);
    ddp_flight_phase(flight, "a phase too long for it");
    check_ok(ddp_flight_read(path, &snapshot));
    cr_assert_str_eq(snapshot.phase, "a phase ");
    remove_all(flight);
}

/* Telling the same phase again does not begin it again: how long it has lasted is what hangs are found by. */
Test(flight, a_phase_begins_once, .timeout = 10)
{
    ddp_flight *flight = open_page(0, 1);
    ddp_flight_phase(flight, "comm");
    check_ok(ddp_flight_read(path, &snapshot));
    double since = snapshot.phase_since;
    ddp_clock_sleep(0.002);
    ddp_flight_phase(flight, "comm");
    check_ok(ddp_flight_read(path, &snapshot));
    cr_assert_float_eq(snapshot.phase_since, since, 0);
    remove_all(flight);
}

Test(flight, keeps_the_last_records, .timeout = 10)
{
    enum { ALL = 3 * DDP_FLIGHT_RECORDS + 17 };
    ddp_flight *flight = open_page(0, 1);
    for (uint64_t i = 1; i <= ALL; i++) {
        cr_assert_eq(issue(flight, i), i);
        if (i != ALL - 2)
            ddp_flight_done(flight, i);
    }
    ddp_flight_done(flight, 5); /* long overwritten: its place is another's now */
    check_ok(ddp_flight_read(path, &snapshot));
    cr_assert_eq(snapshot.issued, (uint64_t)ALL);
    cr_assert_eq(snapshot.count, DDP_FLIGHT_RECORDS);
    for (int i = 0; i < snapshot.count; i++) {
        uint64_t number = ALL - DDP_FLIGHT_RECORDS + 1 + (uint64_t)i;
        cr_assert_eq(snapshot.records[i].sequence, number);
        cr_assert_eq(snapshot.records[i].call.count, (int64_t)(3 * number + 1));
    }
    cr_assert_eq(ddp_flight_pending(&snapshot)->sequence, (uint64_t)ALL - 2);
    remove_all(flight);
}

Test(flight, without_a_recorder_nothing_happens, .timeout = 10)
{
    ddp_flight_phase(NULL, "load");
    ddp_flight_step(NULL, 1);
    cr_assert_eq(issue(NULL, 1), 0u);
    ddp_flight_done(NULL, 0);
    ddp_flight_close(NULL);
}

/* -- files that are no page -- */

Test(flight, refuses_what_is_no_page, .timeout = 10)
{
    ddp_flight *flight = open_page(1, 2);
    ddp_flight_close(flight);
    uint64_t zero = 0, other = DDP_FLIGHT_MAGIC + ((uint64_t)1 << 56);
    uint64_t magic = DDP_FLIGHT_MAGIC;
    int world = 1;
    patch(0, &zero, sizeof zero);
    refuses("just making it");
    patch(0, &other, sizeof other);
    refuses("another version");
    patch(0, "#!/bin/b", 8);
    refuses("no page of a flight recorder");
    patch(0, &magic, sizeof magic);
    patch(offsetof(ddp_flight_head, world), &world, sizeof world);
    refuses("damaged");
    remove_all(NULL);
}

Test(flight, refuses_files_of_every_length, .timeout = 20)
{
    ddp_flight *flight = open_page(0, 1);
    ddp_flight_close(flight);
    for (off_t bytes = sizeof(ddp_flight_page) - 1; bytes > 0; bytes -= 997) {
        cr_assert_eq(truncate(path, bytes), 0);
        ddp_error *error = ddp_flight_read(path, &snapshot);
        cr_assert_not_null(error, "%ld bytes were read", (long)bytes);
        cr_assert_eq(ddp_error_get_kind(error), DDP_ERR_INPUT);
        ddp_error_free(error);
    }
    cr_assert_eq(truncate(path, 0), 0);
    refuses("empty");
    cr_assert_eq(truncate(path, 10 * (off_t)sizeof(ddp_flight_page)), 0);
    refuses("no page of a flight recorder");
    unlink(path);
    refuses("No such file");
    cr_assert_eq(mkfifo(path, 0600), 0);
    refuses("");
    unlink(path);
    cr_assert_eq(mkdir(path, 0700), 0);
    refuses("");
    remove_all(NULL);
}

Test(flight, leaves_out_a_torn_record, .timeout = 10)
{
    ddp_flight *flight = open_page(0, 1);
    for (uint64_t i = 1; i <= 5; i++)
        issue(flight, i);
    uint64_t wrong = 99;
    patch(offsetof(ddp_flight_page, ring) + 3 * WORDS * 8 + COUNT * 8, &wrong, sizeof wrong);
    patch(offsetof(ddp_flight_page, ring) + 2 * WORDS * 8 + SEQUENCE * 8, &(uint64_t){DDP_FLIGHT_RECORDS + 2},
          sizeof wrong);
    check_ok(ddp_flight_read(path, &snapshot));
    cr_assert_eq(snapshot.count, 3);
    cr_assert_null(ddp_flight_find(&snapshot, 2));
    cr_assert_null(ddp_flight_find(&snapshot, 3));
    cr_assert_eq(ddp_flight_find(&snapshot, 5)->call.count, 16);
    cr_assert_eq(snapshot.issued, 5u);
    remove_all(flight);
}

/* Bytes of chance: whatever they are, they are refused or read, never followed. */
Test(flight, survives_any_bytes, .timeout = 60)
{
    ddp_flight *flight = open_page(0, 1);
    ddp_flight_close(flight);
    unsigned state = 12345;
    for (int round = 0; round < 300; round++) {
        unsigned char bytes[512];
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (unsigned char)((state = state * 1103515245 + 12345) >> 16);
        size_t room = sizeof(ddp_flight_page) - sizeof bytes - 8;
        patch(8 + (state >> 8) % (round % 2 ? room : 200), bytes, sizeof bytes);
        ddp_error_free(ddp_flight_read(path, &snapshot));
        cr_assert_leq(snapshot.count, DDP_FLIGHT_RECORDS);
    }
    remove_all(NULL);
}

/* A rank that was killed between two stores. */
Test(flight, reads_a_page_whose_writer_died_at_it, .timeout = 10)
{
    ddp_flight *flight = open_page(0, 1);
    ddp_flight_phase(flight, "eval");
    uint64_t odd = 77;
    patch(offsetof(ddp_flight_page, now), &odd, sizeof odd);
    check_ok(ddp_flight_read(path, &snapshot));
    cr_assert_str_eq(snapshot.phase, "eval");
    remove_all(flight);
}

Test(flight, times_of_another_boot_are_put_on_our_clock, .timeout = 10)
{
    ddp_flight *flight = open_page(0, 1);
    ddp_flight_phase(flight, "load");
    int64_t opened, earlier = 1000000000;
    int fd = open(path, O_RDONLY);
    cr_assert_eq(pread(fd, &opened, sizeof opened, offsetof(ddp_flight_head, opened_ns)),
                 (ssize_t)sizeof opened);
    close(fd);
    patch(offsetof(ddp_flight_head, boot), "another", 8);
    patch(offsetof(ddp_flight_head, opened_ns), &earlier, sizeof earlier);
    int64_t phase_ns = 3000000000; /* two seconds after that page was opened */
    patch(offsetof(ddp_flight_page, now) + offsetof(ddp_flight_now, phase_ns), &phase_ns, sizeof phase_ns);
    check_ok(ddp_flight_read(path, &snapshot));
    cr_assert_not(snapshot.here);
    cr_assert_float_eq(snapshot.opened, (double)opened * 1e-9, 0.5);
    cr_assert_float_eq(snapshot.phase_since, snapshot.opened + 2, 1e-3);
    remove_all(flight);
}

/* -- making the page -- */

Test(flight, an_older_page_is_replaced_not_cut, .timeout = 10)
{
    ddp_flight *old = open_page(0, 1), *new = NULL;
    ddp_flight_phase(old, "load");
    check_ok(ddp_flight_open(directory, 0, 1, &new));
    ddp_flight_phase(old, "forward"); /* a SIGBUS if the file had been cut */
    check_ok(ddp_flight_read(path, &snapshot));
    cr_assert_str_eq(snapshot.phase, "");
    ddp_flight_close(old);
    remove_all(new);
}

Test(flight, says_why_no_page_can_be_made, .timeout = 10)
{
    ddp_flight *flight = open_page(0, 1), *other = NULL;
    struct rlimit limit = {1000, 1000};
    signal(SIGXFSZ, SIG_IGN);
    if (fork() == 0) {
        setrlimit(RLIMIT_FSIZE, &limit);
        ddp_error *error = ddp_flight_open(directory, 3, 4, &other);
        bool named = error != NULL && ddp_error_get_kind(error) == DDP_ERR_IO &&
                     strstr(ddp_error_message(error), "rank-3.page") != NULL;
        char left[128];
        _exit(named && access(ddp_flight_path(directory, 3, left, sizeof left), F_OK) != 0 ? 0 : 1);
    }
    int status;
    wait(&status);
    cr_assert_eq(status, 0);
    ddp_flight_close(flight);
    check_ok(ddp_tree_remove(directory));
    int fd = open(directory, O_WRONLY | O_CREAT, 0600);
    close(fd);
    ddp_error *error = ddp_flight_open(directory, 0, 1, &other);
    cr_assert_not_null(error);
    cr_assert_not_null(strstr(ddp_error_message(error), directory));
    ddp_error_free(error);
    unlink(directory);
}

/* -- at once, and cheaply -- */

typedef struct writer {
    ddp_flight *flight;
    atomic_bool stop;
} writer;

static void *write_on(void *argument)
{
    writer *writer = argument;
    static const char *const phases[] = {"load", "forward", "backward", "comm", "step"};
    for (uint64_t i = 1; !atomic_load(&writer->stop); i++) {
        ddp_flight_phase(writer->flight, phases[i % 5]);
        ddp_flight_step(writer->flight, (int64_t)i);
        ddp_flight_done(writer->flight, issue(writer->flight, i));
    }
    return NULL;
}

Test(flight, what_is_read_while_it_is_written_fits_together, .timeout = 30)
{
    writer writer = {.flight = open_page(0, 1)};
    pthread_t thread;
    pthread_create(&thread, NULL, write_on, &writer);
    uint64_t seen = 0;
    for (int round = 0; round < 200 || seen < 3 * DDP_FLIGHT_RECORDS; round++) {
        check_ok(ddp_flight_read(path, &snapshot));
        for (int i = 0; i < snapshot.count; i++) {
            const ddp_flight_record *record = &snapshot.records[i];
            ddp_flight_call expected = call_of(record->sequence);
            cr_assert_eq(record->digest, ddp_flight_digest(&expected), "#%llu is torn",
                         (unsigned long long)record->sequence);
            cr_assert(i == 0 || record->sequence > snapshot.records[i - 1].sequence);
        }
        cr_assert_geq(snapshot.issued, seen);
        seen = snapshot.issued;
    }
    atomic_store(&writer.stop, true);
    pthread_join(thread, NULL);
    remove_all(writer.flight);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
/* Generous: tests/bench/flight.c measures 1.5 looks at the clock. */
Test(flight, a_record_costs_little_more_than_a_look_at_the_clock, .timeout = 20)
{
    enum { ROUNDS = 20, CALLS = 2000 };
    ddp_flight *flight = open_page(0, 1);
    double look_s = 1e9, record_s = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double begun = ddp_clock_now(), took;
        for (int i = 0; i < CALLS; i++)
            ddp_clock_now();
        took = ddp_clock_now() - begun;
        look_s = took < look_s ? took : look_s;
        begun = ddp_clock_now();
        for (uint64_t i = 0; i < CALLS; i++)
            ddp_flight_done(flight, issue(flight, i));
        took = (ddp_clock_now() - begun) / 2;
        record_s = took < record_s ? took : record_s;
    }
    cr_assert_lt(record_s, 20 * look_s, "a record takes %g, a look at the clock %g", record_s / CALLS,
                 look_s / CALLS);
    remove_all(flight);
}

/* In strict mode the kernel ends whoever makes a system call but read, write and exit. */
Test(flight, writes_without_a_system_call, .timeout = 10)
{
    ddp_flight *flight = open_page(0, 1);
    int ends[2], status;
    char got[2] = "";
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        issue(flight, 1); /* the first touch of each page is a fault of memory, not a call, but be fair */
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        ddp_clock_now();
        ssize_t wrote = write(ends[1], "c", 1);
        for (uint64_t i = 2; i < 3000; i++) {
            ddp_flight_phase(flight, i % 2 ? "load" : "forward");
            ddp_flight_step(flight, (int64_t)i);
            ddp_flight_done(flight, issue(flight, i));
        }
        wrote += write(ends[1], "r", 1);
        syscall(SYS_exit, wrote != 2);
    }
    close(ends[1]);
    waitpid(child, &status, 0);
    ssize_t count = read(ends[0], got, 2);
    close(ends[0]);
    if (count >= 1) /* otherwise reading the clock is a system call on this machine */
        cr_assert(count == 2 && WIFEXITED(status) && WEXITSTATUS(status) == 0, "a system call was made");
    remove_all(flight);
}
#endif

/* -- processes -- */

Test(flight, looks_at_processes, .timeout = 10)
{
    uint64_t started, again;
    cr_assert_eq(ddp_flight_look(getpid(), &started), 'R');
    cr_assert_neq(started, 0u);
    void *memory = malloc(64 << 20); /* the field behind is the size of its memory */
    cr_assert_eq(ddp_flight_look(getpid(), &again), 'R');
    cr_assert_eq(again, started);
    free(memory);
    ddp_flight *flight = open_page(0, 1);
    check_ok(ddp_flight_read(path, &snapshot));
    cr_assert_eq(snapshot.pid_started, started);
    remove_all(flight);
    pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    int status;
    waitpid(child, &status, WUNTRACED);
    cr_assert_eq(ddp_flight_look(child, &started), 'T');
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    cr_assert_eq(ddp_flight_look(child, &started), 'X');
}

/* -- words -- */

static void says(ddp_flight_call call, const char *expected)
{
    char buffer[128];
    memset(buffer, 'x', sizeof buffer);
    cr_assert_str_eq(ddp_flight_text(&call, buffer, sizeof buffer), expected);
}

Test(flight, names_collectives, .timeout = 10)
{
    says((ddp_flight_call){DDP_FLIGHT_ALL_REDUCE, DDP_F32, DDP_SUM, 0, DDP_TAG_BUCKET(2), 65536, 0},
         "all_reduce (sum) of 65,536 f32 (gradient bucket 2)");
    says((ddp_flight_call){DDP_FLIGHT_ALL_REDUCE, DDP_I64, DDP_MIN, 0, DDP_TAG_AGREE, 2, 16},
         "all_reduce (min) of 2 i64 (comparing the ranks)");
    says((ddp_flight_call){.op = DDP_FLIGHT_BROADCAST, .dtype = DDP_U8, .root = 3, .count = 4096},
         "broadcast of 4,096 u8 from rank 3");
    says((ddp_flight_call){.op = DDP_FLIGHT_BARRIER}, "barrier");
    says((ddp_flight_call){.op = DDP_FLIGHT_OPEN, .count = 4}, "the meeting of the ranks");
    says((ddp_flight_call){.op = DDP_FLIGHT_ALLOC, .dtype = DDP_U8, .count = 1000},
         "the allocation of 1,000 shared bytes");
    says((ddp_flight_call){.op = DDP_FLIGHT_ALL_GATHER, .dtype = DDP_F64, .count = 1, .tag = -77},
         "all_gather of 1 f64");
    says((ddp_flight_call){.op = (ddp_flight_op)77, .tag = 0}, "unknown");
}

/* Any difference in what is meant is a difference of the digest. */
Test(flight, tells_calls_apart, .timeout = 10)
{
    ddp_flight_call base = {DDP_FLIGHT_ALL_REDUCE, DDP_F32, DDP_SUM, 0, 1, 100, 400};
    ddp_flight_call others[7];
    for (int i = 0; i < 7; i++)
        others[i] = base;
    others[0].op = DDP_FLIGHT_REDUCE_SCATTER;
    others[1].dtype = DDP_I32; /* of equal size */
    others[2].reduce = DDP_MAX;
    others[3].root = 1;
    others[4].tag = 2; /* only the bucket differs */
    others[5].count = 101;
    others[6].bytes = 800;
    for (int i = 0; i < 7; i++) {
        cr_assert_neq(ddp_flight_digest(&base), ddp_flight_digest(&others[i]), "%d", i);
        for (int j = 0; j < i; j++)
            cr_assert_neq(ddp_flight_digest(&others[j]), ddp_flight_digest(&others[i]), "%d %d", i, j);
    }
}
