/* Starting one process: a rank, mpirun, or a program that is only asked something.
 *
 * A child is in a process group of its own (so that Ctrl-C on the terminal reaches ddprun alone), dies by
 * SIGKILL when the thread that started it ends (so that nothing outlives a killed launcher), reads /dev/null,
 * and inherits nothing but its standard streams and `keep_fd`. */
#ifndef DDP_LAUNCHER_SPAWN_H
#define DDP_LAUNCHER_SPAWN_H

#include <sys/types.h>

#include <ddp/error.h>

#include "core/text.h"

typedef struct ddp_spawn {
    const char *path;         /* of the executable, no search */
    char *const *arguments;   /* argv, ends with NULL */
    char *const *environment; /* ends with NULL; NULL = the caller's own */
    int keep_fd;              /* one more inherited descriptor, -1 = none */
    int err_fd;               /* where stderr goes; -1 = a pipe to us */
} ddp_spawn;

typedef struct ddp_child {
    pid_t pid;    /* also its process group; 0 = not started */
    int out, err; /* our ends of its stdout and stderr, not blocking; -1 = none */
} ddp_child;

/* Starts it. That the program could not be executed comes back as an error here (through a close-on-exec
 * pipe), not as an exit code later. Call from the main thread: the child's life hangs on it. IO, MACHINE (no
 * such program, or not executable). */
DDP_USE_RESULT ddp_error *ddp_spawn_start(const ddp_spawn *spawn, ddp_child *child);

/* Closes our ends. */
void ddp_child_close(ddp_child *child);

/* Sends a signal to the child and everything it started. Nothing happens if it is gone. */
void ddp_child_signal(const ddp_child *child, int signal);

/* An environment: the caller's without the variables whose names begin with one of `dropped` (ends with
 * NULL), and with `added` ("NAME=value", ends with NULL). One allocation for the list; texts of `added` are
 * borrowed. */
DDP_USE_RESULT ddp_error *ddp_spawn_environment(const char *const *dropped, char *const *added,
                                                char ***environment);

/* Runs a program to its end, at most `timeout_s`, and gives the first bytes of its stdout. MACHINE: it cannot
 * be run, or takes too long. */
DDP_USE_RESULT ddp_error *ddp_spawn_ask(const char *path, char *const *arguments, double timeout_s,
                                        ddp_text *output);

/* The path of `name` in $PATH, freed with free(); NULL when it is not there. */
char *ddp_spawn_find(const char *name);

#endif
