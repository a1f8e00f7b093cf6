/* Starting processes with vfork and exec. */
#include "launcher/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/memory.h"

extern char **environ;

/* Everything the child needs, prepared by the parent: between vfork and exec it only makes system calls. */
typedef struct plan {
    const ddp_spawn *spawn;
    char *const *environment;
    int null_fd, out_fd, err_fd, report_fd;
    pid_t parent;
} plan;

static bool place_stream(int from, int to)
{
    return from == to ? fcntl(to, F_SETFD, 0) == 0 : dup2(from, to) == to;
}

static bool become_child(const plan *plan)
{
    sigset_t none;
    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != plan->parent)
        return false;
    if (!place_stream(plan->null_fd, 0) || !place_stream(plan->out_fd, 1) || !place_stream(plan->err_fd, 2))
        return false;
    if (plan->spawn->keep_fd >= 0 && fcntl(plan->spawn->keep_fd, F_SETFD, 0) != 0)
        return false;
    return sigprocmask(SIG_SETMASK, &none, NULL) == 0;
}

/* Note [Why vfork]
 * A fork copies page tables and runs the fork handlers of every library; vfork does neither, and 100 ranks
 * start in the time that fork needs for a few. The child has its own descriptors, signal handlers and mask;
 * it shares memory, so it writes to none but its own frame. */
static __attribute__((noinline)) pid_t start(const plan *plan)
{
    pid_t pid = vfork();
    if (pid != 0)
        return pid;
    if (become_child(plan))
        execve(plan->spawn->path, plan->spawn->arguments, plan->environment);
    int code = errno;
    ssize_t written = write(plan->report_fd, &code, sizeof code);
    _exit(written == sizeof code ? 126 : 127);
}

/* A pipe whose read end does not block. */
static ddp_error *make_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) != 0)
        return ddp_error_errno(errno, "making a pipe");
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return NULL;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* What the child said before exec: nothing (the pipe closed), or why it failed. */
static ddp_error *read_report(int fd, const char *path)
{
    int code = 0;
    ssize_t got;
    do
        got = read(fd, &code, sizeof code);
    while (got < 0 && errno == EINTR);
    if (got != sizeof code)
        return NULL;
    return ddp_error_make(DDP_ERR_MACHINE, "%s cannot be started: %s", path, strerror(code));
}

static ddp_error *run_plan(plan *plan, int report, ddp_child *child)
{
    const char *path = plan->spawn->path;
    pid_t pid = start(plan);
    if (pid < 0)
        return ddp_error_errno(errno, "starting %s", path);
    close_fd(&plan->report_fd);
    ddp_error *error = read_report(report, path);
    if (error != NULL)
        waitpid(pid, NULL, 0);
    else
        child->pid = pid;
    return error;
}

ddp_error *ddp_spawn_start(const ddp_spawn *spawn, ddp_child *child)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1}, report[2] = {-1, -1};
    ddp_child made = {.out = -1, .err = -1};
    ddp_error *error = NULL;
    int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null_fd < 0)
        return ddp_error_errno(errno, "opening /dev/null");
    DDP_GO(make_pipe(out));
    if (spawn->err_fd < 0)
        DDP_GO(make_pipe(err));
    if (pipe2(report, O_CLOEXEC) != 0)
        DDP_GO(ddp_error_errno(errno, "making a pipe"));
    plan plan = {
        .spawn = spawn,
        .environment = spawn->environment ? spawn->environment : environ,
        .null_fd = null_fd,
        .out_fd = out[1],
        .err_fd = spawn->err_fd < 0 ? err[1] : spawn->err_fd,
        .report_fd = report[1],
        .parent = getpid(),
    };
    error = run_plan(&plan, report[0], &made);
    report[1] = plan.report_fd;
    if (error != NULL)
        goto out;
    made.out = out[0];
    made.err = err[0];
    out[0] = err[0] = -1;
    *child = made;
out:
    close(null_fd);
    for (int i = 0; i < 2; i++) {
        close_fd(&out[i]);
        close_fd(&err[i]);
        close_fd(&report[i]);
    }
    return error;
}

void ddp_child_close(ddp_child *child)
{
    close_fd(&child->out);
    close_fd(&child->err);
}

void ddp_child_signal(const ddp_child *child, int signal)
{
    if (child->pid > 0)
        kill(-child->pid, signal);
}

static bool is_dropped(const char *variable, const char *const *dropped)
{
    for (; *dropped != NULL; dropped++)
        if (ddp_text_starts(variable, *dropped))
            return true;
    return false;
}

ddp_error *ddp_spawn_environment(const char *const *dropped, char *const *added, char ***environment)
{
    size_t count = 0, kept = 0;
    void *list;
    for (char **at = environ; *at != NULL; at++)
        count++;
    for (char *const *at = added; *at != NULL; at++)
        count++;
    DDP_TRY(ddp_memory_make(count + 1, sizeof(char *), &list));
    char **made = list;
    for (char **at = environ; *at != NULL; at++)
        if (!is_dropped(*at, dropped))
            made[kept++] = *at;
    for (char *const *at = added; *at != NULL; at++)
        made[kept++] = *at;
    *environment = made;
    return NULL;
}

/* Reads until the end of the stream or of the time. */
static bool read_answer(int fd, double deadline, ddp_text *output)
{
    enum { LIMIT = 64 << 10 };
    for (;;) {
        char buffer[4096];
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        double left = deadline - ddp_clock_now();
        if (left <= 0 || poll(&ready, 1, (int)(left * 1000) + 1) == 0)
            return false;
        ssize_t got = read(fd, buffer, sizeof buffer);
        if (got == 0)
            return true;
        if (got > 0 && output->length < LIMIT)
            ddp_text_add_bytes(output, buffer, (size_t)got);
    }
}

ddp_error *ddp_spawn_ask(const char *path, char *const *arguments, double timeout_s, ddp_text *output)
{
    ddp_child child;
    ddp_spawn spawn = {.path = path, .arguments = arguments, .keep_fd = -1};
    int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null_fd < 0)
        return ddp_error_errno(errno, "opening /dev/null");
    spawn.err_fd = null_fd;
    ddp_error *error = ddp_spawn_start(&spawn, &child);
    close(null_fd);
    if (error != NULL)
        return error;
    if (!read_answer(child.out, ddp_clock_now() + timeout_s, output))
        error = ddp_error_make(DDP_ERR_MACHINE, "%s %s does not answer within %.0f s", path, arguments[1],
                               timeout_s);
    ddp_child_signal(&child, SIGKILL);
    waitpid(child.pid, NULL, 0);
    ddp_child_close(&child);
    return error;
}

char *ddp_spawn_find(const char *name)
{
    const char *path = getenv("PATH");
    for (const char *at = path; at != NULL; at = strchr(at, ':') ? strchr(at, ':') + 1 : NULL) {
        char *file = NULL;
        struct stat info;
        int length = (int)strcspn(at, ":");
        if (asprintf(&file, "%.*s%s%s", length, at, length > 0 ? "/" : "", name) < 0)
            return NULL;
        if (stat(file, &info) == 0 && S_ISREG(info.st_mode) && access(file, X_OK) == 0)
            return file;
        free(file);
    }
    return NULL;
}
