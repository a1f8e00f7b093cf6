/* The handler uses only what may be called in a signal handler: write, prctl, backtrace (which is called once
 * before, because its first call allocates), backtrace_symbols_fd; and crash_names.c. */
#include "core/crash.h"

#include <execinfo.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/crash_names.h"

enum { FRAMES = 18, OWN_FRAMES = 2, STACK_BYTES = 64 << 10, TEXT_BYTES = 256 };

typedef struct line {
    char at[TEXT_BYTES];
    size_t length;
} line;

static void add(line *line, const char *text)
{
    size_t bytes = strlen(text), room = sizeof line->at - line->length;
    bytes = bytes < room ? bytes : room;
    memcpy(line->at + line->length, text, bytes);
    line->length += bytes;
}

static void add_number(line *line, uintptr_t value, unsigned base)
{
    char digits[32];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do
        digits[--at] = "0123456789abcdef"[value % base];
    while ((value /= base) != 0 && at > 0);
    add(line, digits + at);
}

static void put(const line *line)
{
    ssize_t wrote = write(STDERR_FILENO, line->at, line->length);
    (void)wrote; /* nobody is left to be told */
}

static const char *name_of(int number)
{
    switch (number) {
    case SIGSEGV:
        return "SIGSEGV";
    case SIGBUS:
        return "SIGBUS";
    case SIGFPE:
        return "SIGFPE";
    case SIGILL:
        return "SIGILL";
    default:
        return "SIGABRT";
    }
}

/* "    run_tile+0x42" for what is ours, what the dynamic linker knows for the rest. */
static void put_frames(void *const *frames, int count)
{
    ddp_crash_names names = ddp_crash_names_open();
    for (int i = 0; i < count; i++) {
        uintptr_t offset;
        const char *name = ddp_crash_names_find(&names, (uintptr_t)frames[i], &offset);
        line text = {.length = 0};
        add(&text, "    ");
        if (name != NULL) {
            add(&text, name);
            add(&text, "+0x");
            add_number(&text, offset, 16);
            add(&text, "\n");
        }
        put(&text);
        if (name == NULL)
            backtrace_symbols_fd(frames + i, 1, STDERR_FILENO);
    }
    ddp_crash_names_close(&names);
}

static void on_crash(int number, siginfo_t *info, void *context)
{
    void *frames[FRAMES];
    char thread[17] = "";
    line text = {.length = 0};
    prctl(PR_GET_NAME, thread);
    add(&text, "crashed by signal ");
    add_number(&text, (uintptr_t)number, 10);
    add(&text, " (");
    add(&text, name_of(number));
    if (info->si_code > 0 && number != SIGABRT) { /* by what it did; otherwise somebody sent it */
        add(&text, " at address 0x");
        add_number(&text, (uintptr_t)info->si_addr, 16);
    }
    add(&text, ") in ");
    add(&text, gettid() == getpid() ? "its main thread" : thread);
    add(&text, ", at:\n");
    put(&text);
    int count = backtrace(frames, FRAMES);
    if (count > OWN_FRAMES)
        put_frames(frames + OWN_FRAMES, count - OWN_FRAMES);
    raise(number); /* the action is the default again */
}

/* For a thread that has run out of its own stack. */
static void give_stack(void)
{
    void *memory =
        mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    stack_t stack = {.ss_sp = memory, .ss_size = STACK_BYTES};
    if (memory != MAP_FAILED)
        sigaltstack(&stack, NULL);
}

void ddp_crash_catch(void)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    void *frame[1];
    struct sigaction action = {.sa_sigaction = on_crash,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    (void)backtrace(frame, 1);
    give_stack();
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++) {
        struct sigaction before;
        bool free_to_take = sigaction(fatal[i], NULL, &before) == 0 && (before.sa_flags & SA_SIGINFO) == 0 &&
                            before.sa_handler == SIG_DFL;
        if (free_to_take)
            sigaction(fatal[i], &action, NULL);
    }
}
