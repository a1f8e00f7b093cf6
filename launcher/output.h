/* ddprun's own stdout and stderr while a job runs. Whoever reads them may be slow, stuck or gone: text goes
 * through a bounded queue that a thread empties, what does not fit is dropped and counted, and nothing here
 * ever waits for the reader (but ddp_output_close, briefly). Threads: all but open and close from any thread.
 */
#ifndef DDP_LAUNCHER_OUTPUT_H
#define DDP_LAUNCHER_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

#include <ddp/error.h>

#define DDP_OUTPUT_LIMIT (4u << 20) /* bytes that wait at most */

typedef struct ddp_output ddp_output;

/* What was not shown. */
typedef struct ddp_output_loss {
    int64_t lines;
    int reason; /* errno of a failed write; 0 = the reader was too slow */
} ddp_output_loss;

/* fd is borrowed. */
DDP_USE_RESULT ddp_error *ddp_output_open(int fd, ddp_output **output);

/* Queues a text of whole lines: all of it, or none. */
void ddp_output_add(ddp_output *output, const char *bytes, size_t count);

/* Waits while the reader makes progress, at most `patience_s` without any, and gives out what was lost. */
ddp_output_loss ddp_output_close(ddp_output *output, double patience_s);

#endif
