/* How lines of many ranks become what one person reads.
 *
 * Rank 0's stdout is shown as it is, on stdout. Everything else goes to stderr with its rank before it ("r3 |
 * text", with several hosts "nodeb r3 | text"); a line that several ranks write within a tenth of a second is
 * shown once
 * ("ranks 0-3 | text"). Log lines of ddprun's own count as the same when they differ in time and rank only.
 * Control characters and terminal escapes are taken out, and what a carriage return would have overwritten.
 * A live status line is kept below the text while stdout is a terminal. Threads: one. */
#ifndef DDP_LAUNCHER_SHOW_H
#define DDP_LAUNCHER_SHOW_H

#include <stdbool.h>

#include "core/text.h"
#include "launcher/output.h"

#define DDP_SHOW_FOLD_S 0.1

typedef struct ddp_show ddp_show;

typedef struct ddp_show_config {
    int world;
    const char *const *hosts; /* by rank; NULL = all on this one */
    ddp_output *out, *err;    /* the same one twice where both are one terminal */
    bool terminal;            /* stdout is one */
} ddp_show_config;

/* Everything in config is borrowed. */
DDP_USE_RESULT ddp_error *ddp_show_open(const ddp_show_config *config, ddp_show **show);
void ddp_show_close(ddp_show *show); /* shows what is held back; NULL is fine */

/* One line without its newline; stream is 1 or 2. `note` (may be NULL) is put behind it. */
void ddp_show_line(ddp_show *show, int rank, int stream, const char *line, size_t count, const char *note);

/* The live line; dropped without a terminal. */
void ddp_show_status(ddp_show *show, const char *line, size_t count);

/* Shows what has been held back long enough. Seconds until there is more to do, negative = nothing is held.
 */
double ddp_show_flush(ddp_show *show);

/* "0-3,7" of a set of ranks (one byte a rank, not 0 = in it). */
void ddp_show_add_ranks(ddp_text *out, const unsigned char *set, int world);

#endif
