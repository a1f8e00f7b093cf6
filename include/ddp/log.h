/* The log: one line, one write, to stderr:  12:03:44.120 r3 comm  bucket 5 launched, 24.8 MiB
 * stdout carries results, stderr the log. Errors are returned, not logged.
 * Threads: all functions may be called from any thread. */
#ifndef DDP_LOG_H
#define DDP_LOG_H

#include <stdbool.h>

#include <ddp/error.h>

typedef enum ddp_log_level { DDP_ERROR, DDP_WARN, DDP_INFO, DDP_DEBUG, DDP_TRACE } ddp_log_level;

/* `subsystem` is a short word (comm, data, launch, ...). Dropped at once unless the filter lets it pass. */
void ddp_log(ddp_log_level level, const char *subsystem, const char *format, ...) DDP_PRINTF(3, 4);

/* Sets the filter from a text: "info" (all), or "warn,comm=debug,data=trace". Default "info"; the
 * environment variable DDP_LOG is read at the first use. Error: a word that is no level. */
DDP_USE_RESULT ddp_error *ddp_log_set_filter(const char *text);

/* Whether such a line would be written; for work needed only to log. */
bool ddp_log_enabled(ddp_log_level level, const char *subsystem);

/* The rank put into each line from now on; -1 (the start value) = "--", the launcher. */
void ddp_log_set_rank(int rank);

#endif
