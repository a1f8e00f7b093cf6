/* Ranks as threads of one process: for tests, and the readable reference of the collectives. The threads
 * share a group object; each opens its own communicator with config->group = that object. */
#ifndef DDP_COLLECTIVES_LOCAL_H
#define DDP_COLLECTIVES_LOCAL_H

#include <ddp/error.h>

typedef struct ddp_local_group ddp_local_group;

/* Good for one communicator a rank; make another for another. */
DDP_USE_RESULT ddp_error *ddp_local_group_make(int world, ddp_local_group **group);
void ddp_local_group_free(ddp_local_group *group); /* after all communicators are closed; NULL is fine */

#endif
