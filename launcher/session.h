/* A directory for mpirun's own files on this host (it makes some, and leaves them behind when it is killed).
 * It is gone after the job; one that a killed ddprun left is removed by the next ddprun of the same user. */
#ifndef DDP_LAUNCHER_SESSION_H
#define DDP_LAUNCHER_SESSION_H

#include <ddp/error.h>

typedef struct ddp_session {
    char *path;
    int lock; /* held while it is in use */
} ddp_session;

/* Makes one below $TMPDIR, or /tmp. IO. */
DDP_USE_RESULT ddp_error *ddp_session_make(ddp_session *session);
void ddp_session_remove(ddp_session *session); /* a zeroed one is fine */

#endif
