/* Communicators of real processes: shm (forked ranks) and mpi (mpirun). Criterion only starts comm_ranks and
 * looks at exit codes and words. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "core/clock.h"
#include "support/test.h"

static char output[1 << 16];

/* Runs a command line; its output (both streams) is in `output`. Returns the exit code. */
static int run(const char *format, ...) DDP_PRINTF(1, 2);
static int run(const char *format, ...)
{
    char command[1024];
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    snprintf(command + used, sizeof command - (size_t)used, " 2>&1");
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    size_t length = fread(output, 1, sizeof output - 1, pipe);
    output[length] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void says(const char *text)
{
    cr_assert_not_null(strstr(output, text), "expected: %s\nin:\n%s", text, output);
}

static void shm(int ranks, const char *what, int bad)
{
    int code = run("%s shm %d %s", COMM_RANKS, ranks, what);
    cr_assert_eq(code, bad, "comm_ranks shm %d %s: %d\n%s", ranks, what, code, output);
}

Test(shm, cases, .timeout = 120)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        shm(ranks, "cases", 0);
        shm(ranks, "cases-thread", 0);
    }
}

Test(shm, many_ranks_on_few_cores, .timeout = 120)
{
    shm(16, "bits", 0);
}

Test(shm, bits_are_the_same_on_all_ranks, .timeout = 60)
{
    shm(4, "bits", 0);
    char *digest = strstr(output, "digest"), first[64];
    snprintf(first, sizeof first, "%.23s", digest);
    for (int i = 0; i < 4; i++) {
        char line[96];
        snprintf(line, sizeof line, "rank %d: %s", i, first);
        says(line);
    }
}

Test(shm, differences_are_named, .timeout = 60)
{
    shm(3, "other-count", 3);
    says("collective #4 differs between ranks: ranks 0, 2 do all_reduce (sum) of 100 f32; rank 1 "
         "does all_reduce (sum) "
         "of 200 f32");
    shm(3, "other-count-outside", 3);
    says("ranks 0, 2 do all_reduce (sum) of 4095 f32; rank 1 does all_reduce (sum) of 4096 f32");
    shm(3, "other-operation", 3);
    says("rank 0 does broadcast of 100 f32 from rank 0; ranks 1, 2 do all_reduce (sum) of 100 f32");
    shm(2, "other-type", 2);
    says("rank 0 does all_reduce (sum) of 100 f64; rank 1 does all_reduce (sum) of 100 i64");
    shm(2, "other-size", 2);
    says("rank 0 does ddp_comm_alloc of 2000 bytes; rank 1 does ddp_comm_alloc of 1000 bytes");
    shm(2, "swapped", 2);
    says("rank 1 does all_reduce (sum) of 4096 f32 at byte 16384 of its shared memory 0");
    shm(2, "fault-skip", 2);
    says("rank 0 does all_reduce (sum) of 100 f32; rank 1 does all_reduce (sum) of 200 f32");
    shm(2, "fault-swap", 2);
    says("rank 0 does all_reduce (sum) of 100 f32; rank 1 does all_reduce (sum) of 200 f32");
}

Test(shm, absent_rank_is_named, .timeout = 60)
{
    shm(3, "absent", 2);
    says("all_reduce (sum) of 4096 f32 (collective #4): rank 1 did not come within 500 ms; rank 1 (pid ");
    says(", in load of step 5) has come to #3 last, all_reduce (sum) of 10 f32");
    shm(3, "late", 0);
}

Test(shm, lost_ranks_are_noticed_at_once, .timeout = 60)
{
    double start = ddp_clock_now();
    shm(3, "killed", 3);
    says("rank 1 died");
    says("rank 1: exit 137");
    shm(3, "leaves", 2);
    says("rank 1 left the group before it");
    shm(3, "fault-finalize", 2);
    says("rank 1 left the group before it");
    shm(3, "aborts", 2);
    says("rank 2: given up because of rank 1: the loader read nonsense");
    shm(3, "aborted", 2);
    says("rank 0: given up because of rank 1: killed by signal 9");
    cr_assert_lt(ddp_clock_now() - start, 10.0);
}

#ifndef __SANITIZE_ADDRESS__ /* its shadow memory needs the address space */
Test(shm, lack_of_room_is_an_error_of_all, .timeout = 30)
{
    shm(3, "no-room", 3);
    says("rank 2: rank 1 found no room for 1.0 MiB of shared memory: Cannot allocate memory");
    shm(2, "far-too-much", 2);
    says("found no room for 32.0 TiB of shared memory: Cannot allocate memory");
}
#endif

Test(bench, measures_and_checks, .timeout = 60)
{
    int rows = 0;
    cr_assert_eq(run("%s bench --ranks 3 --mib 1", DDPRUN), 0, "%s", output);
    says("# all_reduce, 3 ranks, shared memory, in place only");
    says("# all_gather, 3 ranks, shared memory, in place only");
    for (char *line = strtok(output, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        long long bytes, count;
        double us, algbw, busbw;
        int wrong;
        if (line[0] == '#' || strchr(line, '#') != NULL)
            continue;
        cr_assert_eq(
            sscanf(line, "%lld %lld float %*s %lf %lf %lf %d", &bytes, &count, &us, &algbw, &busbw, &wrong),
            6, "%s", line);
        cr_assert_eq(wrong, 0, "%s", line);
        cr_assert_eq(bytes % (3 * (long long)sizeof(float)), 0, "%s", line);
        cr_assert_float_eq(algbw, (double)bytes / us / 1e3, 0.01 + algbw * 0.02, "%s", line);
        rows++;
    }
    cr_assert_eq(rows, 18);
    cr_assert_eq(run("%s bench --ranks 0", DDPRUN), 2);
}

#if DDP_WITH_MPI
static void mpi(int ranks, int local, const char *what, int expected)
{
    /* ThreadSanitizer cannot see how Open MPI's own, uninstrumented, threads synchronise. */
    int code = run("BUILD=" BUILD_FOLDER "; . tests/support/leaks.sh; "
                   "TSAN_OPTIONS=ignore_noninstrumented_modules=1 "
                   "mpirun --allow-run-as-root --oversubscribe --bind-to none -n %d %s mpi %d %s",
                   ranks, COMM_RANKS, local, what);
    cr_assert_eq(code != 0, expected != 0, "comm_ranks mpi %d %s on %d ranks: %d\n%s", local, what, ranks,
                 code, output);
}

Test(mpi, cases_on_one_host, .timeout = 180)
{
    mpi(1, 0, "cases", 0);
    mpi(2, 0, "cases", 0);
    mpi(4, 0, "cases-thread", 0);
}

/* Two ranks make a "host": 2 equal ones, and a smaller last one. */
Test(mpi, cases_on_several_hosts, .timeout = 180)
{
    mpi(4, 2, "cases", 0);
    mpi(3, 2, "cases-thread", 0);
    mpi(3, 1, "cases", 0);
}

Test(mpi, bits_are_those_of_shm, .timeout = 60)
{
    char digest[24];
    shm(3, "bits", 0);
    snprintf(digest, sizeof digest, "%.23s", strstr(output, "digest"));
    mpi(3, 0, "bits", 0);
    says(digest);
    mpi(4, 2, "bits", 0);
}

Test(mpi, differences_are_named, .timeout = 60)
{
    mpi(2, 0, "other-count", 1);
    says("rank 0 does all_reduce (sum) of 100 f32; rank 1 does all_reduce (sum) of 200 f32");
    mpi(2, 1, "other-count", 1);
    says("rank 0 does all_reduce (sum) of 100 f32; rank 1 does all_reduce (sum) of 200 f32");
}

Test(mpi, absent_and_lost_ranks_are_named, .timeout = 60)
{
    mpi(2, 0, "absent", 1);
    says("rank 1 did not come within 500 ms");
    mpi(2, 1, "absent", 1);
    says("(its first rank is 1) did not answer within 500 ms");
    mpi(2, 1, "aborts", 1);
    says("given up because of rank 1: the loader read nonsense");
    mpi(2, 0, "killed", 1);
}
#endif
