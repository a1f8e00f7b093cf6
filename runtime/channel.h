/* A rank's ear: orders from the launcher and from signals, and a beat back, on a thread of its own.
 *
 * The launcher listens on TCP and tells its ranks where, in DDP_CONTROL="ADDRESS[,ADDRESS...]:PORT:TOKEN"
 * (IPv4, numbers). One line of text each way: rank -> launcher   hello TOKEN RANK PID HOST     first; a
 * connection that says anything else is closed beat PHASE STEP               every DDP_BEAT_S seconds
 *   launcher -> rank   stop SIGNAL                   finish the step, save, leave
 * SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 sent to the rank itself mean the same as `stop`; a second one
 * ends the process at once, as that signal does by default. A launcher that cannot be reached is a warning: a
 * healthy rank goes on. Threads: open and close belong to one thread; tell and stop may be called from any.
 */
#ifndef DDP_RUNTIME_CHANNEL_H
#define DDP_RUNTIME_CHANNEL_H

#include <stdint.h>

#include <ddp/error.h>

#include "core/flight.h"

#define DDP_BEAT_S 0.5
#define DDP_CHANNEL_TOKEN 32 /* hex digits */

typedef struct ddp_channel ddp_channel;

/* Blocks those signals in this thread and in all it starts: before any thread. `mpi`: mpirun started this
 * rank. */
void ddp_channel_block(bool mpi);

/* `address`: the value of DDP_CONTROL, NULL = there is no launcher, only signals. IO (no thread), INPUT (no
 * such address). */
DDP_USE_RESULT ddp_error *ddp_channel_open(const char *address, int rank, bool mpi, ddp_channel **channel);

/* What the next beat says. `phase` is borrowed for ever (a literal); NULL: keep; step < 0: keep. */
void ddp_channel_tell(ddp_channel *channel, const char *phase, int64_t step); /* NULL is fine */

/* From now on each beat is left in the recorder's page, too; it is borrowed until the channel is closed. */
void ddp_channel_record(ddp_channel *channel, ddp_flight *flight);

/* The signal (SIGTERM...) that asks this rank to stop, 0 = none. */
int ddp_channel_stop(const ddp_channel *channel); /* NULL is fine */

/* From here on signals do again what they do to any process. */
void ddp_channel_close(ddp_channel *channel); /* NULL is fine */

#endif
