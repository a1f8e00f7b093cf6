/* Starting processes: what they inherit, how a failed start is told, that they die with us. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "launcher/spawn.h"
#include "support/test.h"

/* Starts `sh -c script`. */
static ddp_child start_script(const char *script, char *const *environment, int keep_fd)
{
    ddp_child child;
    char *arguments[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
    ddp_spawn spawn = {.path = "/bin/sh",
                       .arguments = arguments,
                       .environment = environment,
                       .keep_fd = keep_fd,
                       .err_fd = -1};
    check_ok(ddp_spawn_start(&spawn, &child));
    return child;
}

/* Everything until the end of the stream. */
static void read_all(int fd, char *text, size_t bytes)
{
    size_t used = 0;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (poll(&ready, 1, 10000) > 0) {
        ssize_t got = read(fd, text + used, bytes - 1 - used);
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    text[used] = '\0';
}

static int wait_code(ddp_child *child)
{
    int status;
    cr_assert_eq(waitpid(child->pid, &status, 0), child->pid);
    ddp_child_close(child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Test(spawn, streams_and_code, .timeout = 20)
{
    char out[64], err[64];
    ddp_child child = start_script("echo to out; echo to err >&2; cat; exit 7", NULL, -1);
    read_all(child.out, out, sizeof out);
    read_all(child.err, err, sizeof err);
    cr_assert_str_eq(out, "to out\n");
    cr_assert_str_eq(err, "to err\n");
    cr_assert_eq(wait_code(&child), 7);
}

Test(spawn, a_failed_start_says_why, .timeout = 20)
{
    ddp_child child;
    char *arguments[] = {(char *)"nothing", NULL};
    ddp_spawn spawn = {.path = "/no/such/program", .arguments = arguments, .keep_fd = -1, .err_fd = -1};
    ddp_error *error = ddp_spawn_start(&spawn, &child);
    cr_assert_not_null(error);
    cr_assert_eq(ddp_error_get_kind(error), DDP_ERR_MACHINE);
    cr_assert_not_null(strstr(ddp_error_message(error), "/no/such/program"));
    cr_assert_not_null(strstr(ddp_error_message(error), "No such file"));
    ddp_error_free(error);
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
    cr_assert_eq(errno, ECHILD);
}

Test(spawn, environment_is_byte_for_byte, .timeout = 20)
{
    static const char *const dropped[] = {"DDP_TEST_GONE=", NULL};
    char *added[] = {(char *)"A=64(x2)", (char *)"D=line1\nline2", (char *)"E=$HOME;id", (char *)"G=", NULL};
    char **environment, out[256];
    setenv("DDP_TEST_GONE", "1", 1);
    setenv("DDP_TEST_KEPT", "2", 1);
    check_ok(ddp_spawn_environment(dropped, added, &environment));
    ddp_child child =
        start_script("printf '%s|' \"$A\" \"$D\" \"$E\" \"${G-unset}\" \"${DDP_TEST_GONE-unset}\" "
                     "\"$DDP_TEST_KEPT\"",
                     environment, -1);
    read_all(child.out, out, sizeof out);
    cr_assert_str_eq(out, "64(x2)|line1\nline2|$HOME;id||unset|2|");
    cr_assert_eq(wait_code(&child), 0);
    free(environment);
}

Test(spawn, inherits_only_what_it_is_given, .timeout = 20)
{
    char script[128], out[256];
    int given = open("/dev/null", O_RDONLY | O_CLOEXEC), other = open("/dev/null", O_RDONLY | O_CLOEXEC);
    snprintf(script, sizeof script,
             "test -e /proc/self/fd/%d && echo given; test -e /proc/self/fd/%d && echo other; true", given,
             other);
    ddp_child child = start_script(script, NULL, given);
    read_all(child.out, out, sizeof out);
    cr_assert_str_eq(out, "given\n");
    cr_assert_eq(wait_code(&child), 0);
    cr_assert_neq(fcntl(given, F_GETFD) & FD_CLOEXEC, 0);
    close(given);
    close(other);
}

Test(spawn, signal_dispositions_are_the_usual_ones, .timeout = 20)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    ddp_child child = start_script("grep -E '^Sig(Blk|Ign)' /proc/self/status", NULL, -1);
    char out[256];
    read_all(child.out, out, sizeof out);
    cr_assert_not_null(strstr(out, "SigBlk:\t0000000000000000"), "%s", out);
    cr_assert_not_null(strstr(out, "SigIgn:\t0000000000000000"), "%s", out);
    cr_assert_eq(wait_code(&child), 0);
}

Test(spawn, signals_reach_what_it_started, .timeout = 20)
{
    char out[64];
    ddp_child child = start_script("sleep 1000 & echo $!; wait", NULL, -1);
    struct pollfd ready = {.fd = child.out, .events = POLLIN};
    cr_assert_eq(poll(&ready, 1, 10000), 1);
    ssize_t got = read(child.out, out, sizeof out - 1);
    cr_assert_gt(got, 0);
    out[got] = '\0';
    ddp_child_signal(&child, SIGKILL);
    cr_assert_eq(wait_code(&child), 137);
    for (int i = 0; i < 100 && kill(atoi(out), 0) == 0; i++) {
        char path[64], state[256] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", atoi(out));
        FILE *file = fopen(path, "r");
        if (file == NULL || fgets(state, sizeof state, file) == NULL || strstr(state, ") Z") != NULL) {
            if (file != NULL)
                fclose(file);
            return; /* dead; nobody reaps orphans where process 1 does not */
        }
        fclose(file);
        cr_assert_lt(i, 99, "the grandchild lives on");
        ddp_clock_sleep(0.02);
    }
}

Test(spawn, ask_gives_the_answer_or_gives_up, .timeout = 20)
{
    ddp_text answer = {0};
    char *echo[] = {(char *)"echo", (char *)"hello", NULL};
    check_ok(ddp_spawn_ask("/bin/echo", echo, 5, &answer));
    cr_assert_str_eq(ddp_text_get(&answer), "hello\n");
    ddp_text_free(&answer);
    char *wait[] = {(char *)"sleep", (char *)"1000", NULL};
    double begin = ddp_clock_now();
    ddp_error *error = ddp_spawn_ask("/bin/sleep", wait, 0.2, &answer);
    cr_assert_not_null(error);
    cr_assert_not_null(strstr(ddp_error_message(error), "does not answer"));
    cr_assert_lt(ddp_clock_now() - begin, 5);
    ddp_error_free(error);
    ddp_text_free(&answer);
}

Test(spawn, find_looks_in_path, .timeout = 20)
{
    setenv("PATH", "/nowhere::/bin:/usr/bin", 1);
    char *found = ddp_spawn_find("sh");
    cr_assert_not_null(found);
    cr_assert(access(found, X_OK) == 0);
    free(found);
    setenv("PATH", "/nowhere", 1);
    cr_assert_null(ddp_spawn_find("sh"));
    unsetenv("PATH");
    cr_assert_null(ddp_spawn_find("sh"));
}
