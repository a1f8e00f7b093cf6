/* Faults for tests. The table is filled once, before any thread; firing marks are atomic. */
#include "core/fault.h"

#include <ctype.h>
#include <ddp/log.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/text.h"

#define MAX_FAULTS 16

static const char *const kind_names[] = {
    [DDP_FAULT_EXIT] = "exit",
    [DDP_FAULT_RAISE] = "raise",
    [DDP_FAULT_STOP] = "stop",
    [DDP_FAULT_FINALIZE] = "finalize",
    [DDP_FAULT_NAN] = "nan",
    [DDP_FAULT_INF] = "inf",
    [DDP_FAULT_SLEEP] = "sleep",
    [DDP_FAULT_SKIP_COLLECTIVE] = "skip_collective",
    [DDP_FAULT_SWAP_COLLECTIVES] = "swap_collectives",
    [DDP_FAULT_LOADER_ERROR] = "loader_error",
    [DDP_FAULT_SHORT_READ] = "short_read",
    [DDP_FAULT_SLOW_SAVE] = "slow_save",
    [DDP_FAULT_OOM] = "oom",
};

typedef struct fault {
    ddp_fault_kind kind;
    int64_t rank, step, attempt; /* -1 = every */
    double value;                /* exit code, signal number or seconds */
    char phase[16];              /* of sleep */
    atomic_bool fired;
} fault;

static struct {
    fault at[MAX_FAULTS];
    int count;
    atomic_int_fast64_t step;
} faults;

static bool find_signal(const char *name, double *number)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"SEGV", SIGSEGV}, {"KILL", SIGKILL}, {"ABRT", SIGABRT}, {"BUS", SIGBUS},  {"FPE", SIGFPE},
                   {"ILL", SIGILL},   {"TERM", SIGTERM}, {"INT", SIGINT},   {"STOP", SIGSTOP}};
    int64_t given;
    if (ddp_text_starts(name, "SIG"))
        name += 3;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        if (strcmp(signals[i].name, name) == 0) {
            *number = signals[i].number;
            return true;
        }
    }
    if (!ddp_text_to_int(name, &given) || given < 1 || given > 64)
        return false;
    *number = (double)given;
    return true;
}

static bool is_phase(const char *word)
{
    static const char *const phases[] = {"init", "load", "forward", "backward",
                                         "comm", "step", "eval",    "save"};
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++)
        if (strcmp(phases[i], word) == 0)
            return true;
    return false;
}

/* The part behind `do=`: KIND or KIND:VALUE or sleep:SECONDS@PHASE. */
static bool parse_do(char *text, fault *into)
{
    char *value = strchr(text, ':');
    if (value != NULL)
        *value++ = '\0';
    int kind = 0, kinds = (int)(sizeof kind_names / sizeof kind_names[0]);
    while (kind < kinds && strcmp(kind_names[kind], text) != 0)
        kind++;
    if (kind == kinds)
        return false;
    into->kind = (ddp_fault_kind)kind;
    switch (into->kind) {
    case DDP_FAULT_RAISE:
        return value != NULL && find_signal(value, &into->value);
    case DDP_FAULT_EXIT:
        return value != NULL && ddp_text_to_float(value, &into->value);
    case DDP_FAULT_SLEEP: {
        char *phase = value ? strchr(value, '@') : NULL;
        if (phase == NULL)
            return false;
        *phase++ = '\0';
        snprintf(into->phase, sizeof into->phase, "%s", phase);
        return is_phase(phase) && ddp_text_to_float(value, &into->value);
    }
    case DDP_FAULT_SLOW_SAVE:
        return value != NULL && ddp_text_to_float(value, &into->value);
    default:
        return value == NULL;
    }
}

static bool parse_fault(char *text, fault *into)
{
    bool has_do = false, has_step = false;
    *into = (fault){.rank = -1, .step = 1, .attempt = -1};
    for (char *part; (part = strsep(&text, ",")) != NULL;) {
        while (isspace((unsigned char)*part))
            part++;
        if (ddp_text_starts(part, "rank=") && ddp_text_to_int(part + 5, &into->rank))
            continue;
        if (ddp_text_starts(part, "attempt=") && ddp_text_to_int(part + 8, &into->attempt))
            continue;
        if (ddp_text_starts(part, "step=") && ddp_text_to_int(part + 5, &into->step)) {
            has_step = true;
            continue;
        }
        if (!ddp_text_starts(part, "do=") || !parse_do(part + 3, into))
            return false;
        has_do = true;
    }
    if (!has_step && (into->kind == DDP_FAULT_SLEEP || into->kind == DDP_FAULT_SLOW_SAVE))
        into->step = -1;
    return has_do;
}

ddp_error *ddp_fault_load(int rank)
{
    const char *text = getenv("DDP_FAULT"), *number = getenv("DDP_ATTEMPT");
    int64_t attempt = 1;
    if (number != NULL)
        ddp_text_to_int(number, &attempt);
    faults.count = 0;
    if (text == NULL || *text == '\0')
        return NULL;
    char *copy = strdup(text), *rest = copy;
    ddp_error *error = copy ? NULL : ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    for (char *part; error == NULL && (part = strsep(&rest, ";")) != NULL;) {
        fault one;
        char *shown = strdup(part);
        if (faults.count == MAX_FAULTS || !parse_fault(part, &one))
            error = ddp_error_help(
                ddp_error_make(DDP_ERR_INPUT, "DDP_FAULT: \"%s\" is not understood", shown ? shown : ""),
                "write it as rank=1,step=3,do=exit:3; do is one of exit:N raise:SIGNAL stop finalize nan "
                "inf sleep:SECONDS@PHASE skip_collective swap_collectives loader_error short_read "
                "slow_save:SECONDS oom");
        else if ((one.rank < 0 || one.rank == rank) && (one.attempt < 0 || one.attempt == attempt)) {
            fault *slot = &faults.at[faults.count++];
            slot->kind = one.kind;
            slot->rank = one.rank;
            slot->step = one.step;
            slot->value = one.value;
            memcpy(slot->phase, one.phase, sizeof slot->phase);
            atomic_store(&slot->fired, false);
        }
        free(shown);
    }
    free(copy);
    if (error == NULL && faults.count > 0 && rank >= 0)
        ddp_log(DDP_WARN, "fault", "DDP_FAULT is set: this run will be hurt on purpose (%s)", text);
    return error;
}

void ddp_fault_set_step(int64_t step)
{
    atomic_store(&faults.step, step);
}

static fault *find_due(ddp_fault_kind kind, const char *phase)
{
    int64_t step = atomic_load(&faults.step);
    for (int i = 0; i < faults.count; i++) {
        fault *one = &faults.at[i];
        if (one->kind != kind || (one->step >= 0 && one->step != step) ||
            (kind == DDP_FAULT_SLEEP && strcmp(one->phase, phase) != 0))
            continue;
        if (kind != DDP_FAULT_SLEEP && kind != DDP_FAULT_SLOW_SAVE && atomic_exchange(&one->fired, true))
            continue;
        return one;
    }
    return NULL;
}

bool ddp_fault_due(ddp_fault_kind kind)
{
    return faults.count > 0 && find_due(kind, "") != NULL;
}

double ddp_fault_slow_save_s(void)
{
    fault *due = faults.count > 0 ? find_due(DDP_FAULT_SLOW_SAVE, "") : NULL;
    return due != NULL ? due->value : 0;
}

/* To the process: what a rank listens to is not this thread's business. But a fault of the processor is. */
static void raise_fault(int number)
{
    if (number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL || number == SIGABRT)
        raise(number);
    else
        kill(getpid(), number);
}

void ddp_fault_phase(const char *phase)
{
    fault *due;
    if (faults.count == 0)
        return;
    if ((due = find_due(DDP_FAULT_SLEEP, phase)) != NULL)
        ddp_clock_sleep(due->value);
    if ((due = find_due(DDP_FAULT_EXIT, phase)) != NULL)
        _exit((int)due->value); /* at once, as a program that gives up in a deep place does */
    if ((due = find_due(DDP_FAULT_RAISE, phase)) != NULL)
        raise_fault((int)due->value);
    if (find_due(DDP_FAULT_STOP, phase) != NULL)
        raise(SIGSTOP);
}
