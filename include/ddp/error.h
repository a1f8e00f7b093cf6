/* Errors: why something failed, for a person to read.
 *
 * Every fallible function returns `ddp_error *`; NULL is success. The caller owns what it gets and
 * passes it on (DDP_TRY), adds to it, prints it at one of the three mouths (launcher main, rank main,
 * thread main) or frees it. Outputs come last in an argument list and are set only on success.
 *
 * An error is one message with, optionally: a place in a text file, "while ..." lines (innermost
 * first), one help line, and further errors that were found beside it (`ddp_error_join`).
 *
 * Threads: an error belongs to one thread at a time. Out of memory is one static object; all functions
 * here accept it and freeing it does nothing. */
#ifndef DDP_ERROR_H
#define DDP_ERROR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct ddp_error ddp_error;

/* What sort of failure; decides the exit code (`ddp_error_exit_code`). */
typedef enum ddp_error_kind {
    DDP_ERR_INPUT,    /* job file, option, data or request is wrong          -> exit 2 */
    DDP_ERR_MACHINE,  /* this machine or build cannot do it                  -> exit 3 */
    DDP_ERR_IO,       /* a read, write or system call failed                 -> exit 1 */
    DDP_ERR_MEMORY,   /* out of memory (host or device)                      -> exit 1 */
    DDP_ERR_PEER,     /* another rank died, is absent or does something else -> exit 1 */
    DDP_ERR_NUMERIC,  /* the training itself went wrong: nothing finite left -> exit 1 */
    DDP_ERR_FAULT,    /* asked for by DDP_FAULT                              -> exit 1 */
    DDP_ERR_INTERNAL, /* a defect of ddprun itself                           -> exit 1 */
} ddp_error_kind;

/* A span in a text. `file` NULL = nowhere. Lines and columns count from 1, columns in bytes; `length` is
 * the marked width in bytes (0 = one mark). `text` is the whole source line without its newline, or NULL.
 * All pointers are borrowed: ddp_error_at copies them. */
typedef struct ddp_place {
    const char *file;
    int line, column, length;
    const char *text;
} ddp_place;

#define DDP_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define DDP_USE_RESULT __attribute__((warn_unused_result))

/* Makes an error. Never returns NULL. */
DDP_USE_RESULT ddp_error *ddp_error_make(ddp_error_kind kind, const char *format, ...) DDP_PRINTF(2, 3);

/* The same with a place. */
DDP_USE_RESULT ddp_error *ddp_error_at(ddp_error_kind kind, ddp_place place, const char *format, ...)
    DDP_PRINTF(3, 4);

/* Appends ": strerror(code)" to the formatted message (kind DDP_ERR_IO). */
DDP_USE_RESULT ddp_error *ddp_error_errno(int code, const char *format, ...) DDP_PRINTF(2, 3);

/* Each takes an error (NULL stays NULL), adds to it and returns it. */
DDP_USE_RESULT ddp_error *ddp_error_while(ddp_error *error, const char *format, ...) DDP_PRINTF(2, 3);
DDP_USE_RESULT ddp_error *ddp_error_help(ddp_error *error, const char *format, ...) DDP_PRINTF(2, 3);

/* Gives an error that has no place yet this one; NULL stays NULL. For code that checks values without knowing
 * where they were written. */
DDP_USE_RESULT ddp_error *ddp_error_locate(ddp_error *error, ddp_place place);

/* Chains `next` behind `first` (either may be NULL) and returns the whole. Both are consumed. */
DDP_USE_RESULT ddp_error *ddp_error_join(ddp_error *first, ddp_error *next);

/* A second error that says the same, joined ones included; NULL gives NULL. */
DDP_USE_RESULT ddp_error *ddp_error_copy(const ddp_error *error);

/* Reading, of the first of the chain. Strings are borrowed. */
ddp_error_kind ddp_error_get_kind(const ddp_error *error);
const char *ddp_error_message(const ddp_error *error);
size_t ddp_error_count(const ddp_error *error); /* 0 for NULL */

/* 0 for NULL, otherwise the code of the first error, see ddp_error_kind. */
int ddp_error_exit_code(const ddp_error *error);

/* Prints every error of the chain as blocks, one write for all of it:
 *   configs/gpt.yaml:14:17: error: train.global_batch: 100 samples do not divide over 8 ranks
 *      14 |   global_batch: 100
 *         |                 ^~~
 *       while planning 8 ranks on 1 node
 *       help: 96 or 104 would
 * Without a place the first line is "ddprun: error: ...". `severity` is "error" or "warning". */
void ddp_error_print(const ddp_error *error, const char *severity, FILE *out);

/* Frees the chain. NULL is fine. */
void ddp_error_free(ddp_error *error);

/* Passes a failure on. */
#define DDP_TRY(call)                      \
    do {                                   \
        ddp_error *ddp_try_error = (call); \
        if (ddp_try_error != NULL)         \
            return ddp_try_error;          \
    } while (0)

/* Passes it on with a "while ..." line. */
#define DDP_TRY_AS(call, ...)                                   \
    do {                                                        \
        ddp_error *ddp_try_error = (call);                      \
        if (ddp_try_error != NULL)                              \
            return ddp_error_while(ddp_try_error, __VA_ARGS__); \
    } while (0)

/* Sets the local `error` and jumps to the one `out:` label. */
#define DDP_GO(call)       \
    do {                   \
        error = (call);    \
        if (error != NULL) \
            goto out;      \
    } while (0)

/* Invariants of our own code; never user input. Always compiled in. Prints file:line and aborts, which
 * the supervisor reports as the first failure. */
#define ddp_assert(condition)                                  \
    do {                                                       \
        if (!(condition))                                      \
            ddp_assert_failed(__FILE__, __LINE__, #condition); \
    } while (0)
__attribute__((noreturn)) void ddp_assert_failed(const char *file, int line, const char *condition);

#endif
