/* From the ranks' pipes to logs/rank-K.log (every byte) and to the person (see show.h).
 *
 * A pipe is read as soon as it has something and its lines wait for nobody, so a rank never blocks on its
 * output. Lines stay whole: a line reaches file and screen when its newline has come, or the stream has
 * ended. Lines above 8 KiB are shown up to there; the file has all of it. Threads: one. */
#ifndef DDP_LAUNCHER_RELAY_H
#define DDP_LAUNCHER_RELAY_H

#include <poll.h>
#include <stdbool.h>

#include "launcher/show.h"

#define DDP_RELAY_SHOWN_BYTES 8192
#define DDP_RELAY_POLL_S 0.05 /* how often followed files are looked at */

typedef struct ddp_relay ddp_relay;

/* logs/ of run_dir exists. `show` is borrowed. */
DDP_USE_RESULT ddp_error *ddp_relay_open(const char *run_dir, int world, ddp_show *show, ddp_relay **relay);
void ddp_relay_close(ddp_relay *relay); /* NULL is fine */

/* Reads a rank's stream (1 or 2) from a pipe that does not block; takes over the descriptor. */
DDP_USE_RESULT ddp_error *ddp_relay_add_pipe(ddp_relay *relay, int rank, int stream, int fd);

/* Reads what a rank that mpirun started writes into logs/rank-K.raw, as it grows; removed at the end. */
DDP_USE_RESULT ddp_error *ddp_relay_add_file(ddp_relay *relay, int rank);
DDP_USE_RESULT ddp_error *ddp_relay_raw_path(const char *run_dir, int rank, char **path);

/* At most two per rank. */
size_t ddp_relay_polls(const ddp_relay *relay, struct pollfd *polls);

/* Reads everything that is there and shows what is due. Seconds until it wants to be called again even if no
 * pipe has anything, negative = never. */
double ddp_relay_read(ddp_relay *relay);

/* From now on lines of these ranks are only logged (one byte a rank; not 0 = quiet). */
void ddp_relay_quiet(ddp_relay *relay, const unsigned char *ranks);

/* "RUN_DIR/logs/rank-K.log". buffer is returned. */
const char *ddp_relay_log_path(const char *run_dir, int rank, char *buffer, size_t bytes);

#endif
