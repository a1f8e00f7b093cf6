/* The last word of a process that crashes: what it says, and that it still ends by its signal. */
#include "core/crash.h"
#include "core/crash_names.h"
#include "launcher/oom.h"
#include "support/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
static char said[8192];

/* Runs `what` in a process of its own that catches crashes; its stderr is in `said`, its wait status
 * returned. */
static int crash(void (*what)(void))
{
    int ends[2], status;
    size_t length = 0;
    ssize_t got;
    cr_assert_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        dup2(ends[1], STDERR_FILENO);
        for (int number = 1; number < 32; number++)
            signal(number, SIG_DFL);
        ddp_crash_catch();
        what();
        _exit(0);
    }
    close(ends[1]);
    while (length < sizeof said - 1 && (got = read(ends[0], said + length, sizeof said - 1 - length)) > 0)
        length += (size_t)got;
    said[length] = '\0';
    close(ends[0]);
    waitpid(child, &status, 0);
    return status;
}

static void ends_by(int number, void (*what)(void), const char *first)
{
    int status = crash(what);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == number, "status %d: %s", status, said);
    cr_assert_not_null(strstr(said, first), "\"%s\" is not in: %s", first, said);
}

__attribute__((noinline)) static void write_to_nowhere(void)
{
    volatile int *volatile nowhere = (volatile int *)16;
    *nowhere = 1;
}

Test(crash, names_signal_address_and_function, .timeout = 10)
{
    ends_by(SIGSEGV, write_to_nowhere,
            "crashed by signal 11 (SIGSEGV at address 0x10) in its main thread, at:\n");
    const char *function = strstr(said, "    write_to_nowhere+0x");
    cr_assert_not_null(function, "%s", said);
    cr_assert_not_null(strstr(function, "\n    crash+0x"), "%s", said);
}

Test(crash, one_that_somebody_sent_has_no_address, .timeout = 10)
{
    ends_by(SIGABRT, abort, "crashed by signal 6 (SIGABRT) in its main thread, at:\n");
}

static int deeper(volatile char *above)
{
    volatile char room[4096];
    room[0] = *above;
    return *above == 0 ? 0 : deeper(room) + room[0]; /* never 0, but the compiler cannot know */
}

static void run_out_of_stack(void)
{
    char top = 1;
    deeper(&top);
}

Test(crash, speaks_without_a_stack, .timeout = 10)
{
    ends_by(SIGSEGV, run_out_of_stack, "crashed by signal 11 (SIGSEGV at address 0x");
}

static void *crash_here(void *argument)
{
    pthread_setname_np(pthread_self(), "comm-thread");
    write_to_nowhere();
    return NULL;
}

static void crash_in_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, crash_here, NULL);
    pthread_join(thread, NULL);
}

Test(crash, names_the_thread, .timeout = 10)
{
    ends_by(SIGSEGV, crash_in_thread, ") in comm-thread, at:\n");
}

static void leave_with_nine(int number)
{
    _exit(9);
}

Test(crash, leaves_other_handlers_alone, .timeout = 10)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGBUS, leave_with_nine);
        ddp_crash_catch();
        raise(SIGBUS);
        _exit(0);
    }
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

static void do_nothing(void)
{
}

Test(crash, says_nothing_when_nothing_happens, .timeout = 10)
{
    cr_assert_eq(crash(do_nothing), 0);
    cr_assert_str_eq(said, "");
}
#endif

Test(crash, finds_static_functions, .timeout = 10)
{
    ddp_crash_names names = ddp_crash_names_open();
    uintptr_t offset = 77;
    cr_assert_not_null(names.file);
    const char *name = ddp_crash_names_find(&names, (uintptr_t)ddp_crash_catch + 1, &offset);
    cr_assert_not_null(name);
    cr_assert_str_eq(name, "ddp_crash_catch");
    cr_assert_eq(offset, 1u);
    cr_assert_null(ddp_crash_names_find(&names, 1, &offset));
    cr_assert_null(ddp_crash_names_find(&names, UINTPTR_MAX, &offset));
    ddp_crash_names_close(&names);
    cr_assert_null(ddp_crash_names_find(&names, (uintptr_t)ddp_crash_catch, &offset));
}

/* The program's file may have been replaced, or be cut off, since it was started. */
Test(crash, survives_a_damaged_file, .timeout = 30)
{
    ddp_crash_names names = ddp_crash_names_open();
    uintptr_t offset;
    unsigned char *copy = aligned_alloc(64, (names.bytes + 63) / 64 * 64);
    ddp_crash_names damaged = {.file = copy, .base = names.base};
    unsigned state = 99;
    for (int round = 0; round < 200; round++) {
        size_t cut = round % 4 == 0 ? 64 + (size_t)(state % (names.bytes - 64)) : names.bytes;
        memcpy(copy, names.file, names.bytes);
        damaged.bytes = cut;
        for (int i = 0; i < 40; i++) {
            state = state * 1103515245 + 12345;
            size_t end = 64 + (round % 2 ? 0 : cut - 64); /* the head, or anywhere */
            copy[16 + (state >> 4) % (end - 16)] = (unsigned char)(state >> 16);
        }
        ddp_crash_names_find(&damaged, (uintptr_t)ddp_crash_catch, &offset);
    }
    free(copy);
    ddp_crash_names_close(&names);
}

/* -- memory that ran out -- */

Test(oom, reads_the_kernels_log, .timeout = 10)
{
    const char *cgroup =
        "6,1234,16233554808,-;Memory cgroup out of memory: Killed process 13051 (exe) total-vm:228440kB";
    const char *global =
        "3,99,16233554808,-,caller=T1;Out of memory: Killed process 13051 (python3) total-vm:1kB";
    cr_assert(ddp_oom_names(cgroup, 13051, 16000));
    cr_assert(ddp_oom_names(global, 13051, 16000));
    cr_assert_not(ddp_oom_names(cgroup, 1305, 16000), "another process");
    cr_assert_not(ddp_oom_names(cgroup, 13051, 16234), "an earlier process of that number");
    cr_assert_not(
        ddp_oom_names("6,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,task=exe,pid=13051,uid=0", 13051, 0));
    cr_assert_not(ddp_oom_names("Killed process 13051", 13051, 0));
    cr_assert_not(ddp_oom_names("", 0, 0));
    cr_assert_not(ddp_oom_logged(1, 0));
}
