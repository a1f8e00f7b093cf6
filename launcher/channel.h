/* The launcher's side of the control channel (runtime/channel.h): who is connected, what each rank said last,
 * and orders to all. Only this job's ranks get in: they know its token. */
#ifndef DDP_LAUNCHER_CHANNEL_H
#define DDP_LAUNCHER_CHANNEL_H

#include <poll.h>
#include <stdint.h>

#include <ddp/error.h>

typedef struct ddp_channel_server ddp_channel_server;

/* What a rank said last. */
typedef struct ddp_channel_status {
    bool connected, lost; /* lost: it was connected, and the connection ended */
    int pid;              /* 0 = it has not come */
    char host[64], phase[16];
    int64_t step;
    double heard; /* ddp_clock_now() of its last line */
} ddp_channel_status;

/* `local`: all ranks are on this host, so only the loopback address is listened on. IO. */
DDP_USE_RESULT ddp_error *ddp_channel_listen(int world, bool local, ddp_channel_server **server);
const char *ddp_channel_address(const ddp_channel_server *server); /* what DDP_CONTROL is to be */

/* Descriptors to wait for: at most ddp_channel_most of them. */
int ddp_channel_most(const ddp_channel_server *server);
int ddp_channel_polls(const ddp_channel_server *server, struct pollfd *polls);
/* Takes whatever has come, without waiting. */
void ddp_channel_read(ddp_channel_server *server);

/* Asks every connected rank to finish its step, save and leave; how many were asked. */
int ddp_channel_order_stop(ddp_channel_server *server, int signal);

const ddp_channel_status *ddp_channel_ask(const ddp_channel_server *server, int rank);
void ddp_channel_shut(ddp_channel_server *server); /* NULL is fine */

#endif
