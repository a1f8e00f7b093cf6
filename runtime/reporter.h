/* The reporter hands records to the sinks on a thread of its own, so that no file, pipe or terminal ever
 * slows a step. Its queue is bounded: when it is full, step records are dropped and counted (the newest
 * matter less than the run); all other kinds wait for room. */
#ifndef DDP_RUNTIME_REPORTER_H
#define DDP_RUNTIME_REPORTER_H

#include <ddp/sink.h>

typedef struct ddp_reporter ddp_reporter;

/* `sinks` ends with NULL. A sink that cannot be opened is an error. */
DDP_USE_RESULT ddp_error *ddp_reporter_open(const ddp_sink_ops *const *sinks, const ddp_sink_config *config,
                                            ddp_reporter **reporter);

/* Copies the record (trace's samples too); other pointers stay borrowed for the life of the run. `time` is
 * set here. From one thread. */
void ddp_reporter_add(ddp_reporter *reporter, const ddp_record *record);

/* Waits until all that was added is written, at most a second if a sink is stuck. From the same thread. */
void ddp_reporter_flush(ddp_reporter *reporter);

/* Writes what is queued, at most for a few seconds if a sink is stuck, and closes the sinks. NULL is fine. */
void ddp_reporter_close(ddp_reporter *reporter);

#endif
