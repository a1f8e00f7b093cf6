/* Listening to ranks. */
#include "launcher/channel.h"

#include <arpa/inet.h>
#include <ddp/log.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/memory.h"
#include "core/text.h"
#include "runtime/channel.h"

#define LINE_BYTES 512
#define STRANGERS 8        /* connections that have not said hello yet */
#define HELLO_LIMIT_S 10.0 /* for them to do so */

typedef struct caller {
    int fd; /* -1 = free */
    int rank;
    double since;
    char line[LINE_BYTES];
    size_t length;
} caller;

struct ddp_channel_server {
    int fd, world, count; /* count: of callers, world + STRANGERS */
    char token[DDP_CHANNEL_TOKEN + 1];
    ddp_text address;
    caller *callers;
    ddp_channel_status *ranks;
};

/* The addresses of this host that others may reach. */
static ddp_error *add_addresses(ddp_text *out)
{
    struct ifaddrs *list;
    char text[INET_ADDRSTRLEN];
    if (getifaddrs(&list) != 0)
        return ddp_error_errno(errno, "asking for this host's addresses");
    for (const struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
        if (at->ifa_addr == NULL || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_LOOPBACK) ||
            !(at->ifa_flags & IFF_UP))
            continue;
        const struct sockaddr_in *address = (const struct sockaddr_in *)(const void *)at->ifa_addr;
        if (inet_ntop(AF_INET, &address->sin_addr, text, sizeof text) != NULL)
            ddp_text_add(out, "%s%s", out->length > 0 ? "," : "", text);
    }
    freeifaddrs(list);
    if (out->length == 0)
        ddp_text_add(out, "127.0.0.1");
    return NULL;
}

static ddp_error *make_token(ddp_channel_server *server)
{
    unsigned char bytes[DDP_CHANNEL_TOKEN / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return ddp_error_errno(errno, "making the job's token");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(server->token + 2 * i, 3, "%02x", bytes[i]);
    return NULL;
}

static ddp_error *open_socket(ddp_channel_server *server, bool local)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(local ? INADDR_LOOPBACK : INADDR_ANY)};
    socklen_t size = sizeof at;
    server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (server->fd < 0 || bind(server->fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(server->fd, server->world + STRANGERS) != 0 ||
        getsockname(server->fd, (struct sockaddr *)&at, &size) != 0)
        return ddp_error_errno(errno, "listening for the ranks");
    if (local)
        ddp_text_add(&server->address, "127.0.0.1");
    else
        DDP_TRY(add_addresses(&server->address));
    ddp_text_add(&server->address, ":%d:%s", (int)ntohs(at.sin_port), server->token);
    return server->address.failed ? ddp_error_make(DDP_ERR_MEMORY, "out of memory") : NULL;
}

static ddp_error *fill(ddp_channel_server *server, int world, bool local)
{
    void *memory;
    server->fd = -1;
    server->world = world;
    server->count = world + STRANGERS;
    DDP_TRY(ddp_memory_make((size_t)server->count, sizeof *server->callers, &memory));
    server->callers = memory;
    for (int i = 0; i < server->count; i++)
        server->callers[i].fd = -1;
    DDP_TRY(ddp_memory_make((size_t)world, sizeof *server->ranks, &memory));
    server->ranks = memory;
    DDP_TRY(make_token(server));
    return open_socket(server, local);
}

ddp_error *ddp_channel_listen(int world, bool local, ddp_channel_server **server)
{
    ddp_channel_server *made;
    DDP_TRY(DDP_NEW(&made));
    ddp_error *error = fill(made, world, local);
    if (error != NULL) {
        ddp_channel_shut(made);
        return error;
    }
    *server = made;
    return NULL;
}

const char *ddp_channel_address(const ddp_channel_server *server)
{
    return ddp_text_get(&server->address);
}

int ddp_channel_most(const ddp_channel_server *server)
{
    return server->count + 1;
}

int ddp_channel_polls(const ddp_channel_server *server, struct pollfd *polls)
{
    int count = 0;
    polls[count++] = (struct pollfd){.fd = server->fd, .events = POLLIN};
    for (int i = 0; i < server->count; i++)
        if (server->callers[i].fd >= 0)
            polls[count++] = (struct pollfd){.fd = server->callers[i].fd, .events = POLLIN};
    return count;
}

static void hang_up(ddp_channel_server *server, caller *caller)
{
    if (caller->rank >= 0) {
        server->ranks[caller->rank].connected = false;
        server->ranks[caller->rank].lost = true;
    }
    close(caller->fd);
    caller->fd = -1;
}

static void answer(ddp_channel_server *server)
{
    int fd;
    while ((fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        int i = 0;
        while (i < server->count && server->callers[i].fd >= 0)
            i++;
        if (i == server->count)
            close(fd); /* more strangers than there is room for */
        else
            server->callers[i] = (caller){.fd = fd, .rank = -1, .since = ddp_clock_now()};
    }
}

/* "hello TOKEN RANK PID HOST"; anything else is somebody else. */
static bool greet(ddp_channel_server *server, caller *caller, const char *line)
{
    char token[DDP_CHANNEL_TOKEN + 1], host[64];
    int rank, pid;
    if (sscanf(line, "hello %32s %d %d %63s", token, &rank, &pid, host) != 4 ||
        strcmp(token, server->token) != 0 || rank < 0 || rank >= server->world ||
        server->ranks[rank].connected)
        return false;
    ddp_channel_status *status = &server->ranks[rank];
    *status = (ddp_channel_status){.connected = true, .pid = pid, .heard = ddp_clock_now()};
    snprintf(status->host, sizeof status->host, "%s", host);
    caller->rank = rank;
    return true;
}

static bool hear(ddp_channel_server *server, caller *caller, const char *line)
{
    char phase[16];
    long long step;
    if (caller->rank < 0)
        return greet(server, caller, line);
    if (sscanf(line, "beat %15s %lld", phase, &step) != 2)
        return false;
    ddp_channel_status *status = &server->ranks[caller->rank];
    snprintf(status->phase, sizeof status->phase, "%s", phase);
    status->step = step;
    status->heard = ddp_clock_now();
    return true;
}

static void listen_to(ddp_channel_server *server, caller *caller)
{
    ssize_t got =
        recv(caller->fd, caller->line + caller->length, sizeof caller->line - 1 - caller->length, 0);
    bool good = got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
    if (got > 0) {
        caller->length += (size_t)got;
        caller->line[caller->length] = '\0';
        good = caller->length < sizeof caller->line - 1 && strlen(caller->line) == caller->length;
        for (char *end; good && (end = strchr(caller->line, '\n')) != NULL;) {
            *end = '\0';
            good = hear(server, caller, caller->line);
            caller->length -= (size_t)(end + 1 - caller->line);
            memmove(caller->line, end + 1, caller->length + 1);
        }
    }
    if (!good || (caller->rank < 0 && ddp_clock_now() > caller->since + HELLO_LIMIT_S))
        hang_up(server, caller);
}

void ddp_channel_read(ddp_channel_server *server)
{
    answer(server);
    for (int i = 0; i < server->count; i++)
        if (server->callers[i].fd >= 0)
            listen_to(server, &server->callers[i]);
}

int ddp_channel_order_stop(ddp_channel_server *server, int signal)
{
    char line[32];
    int count = 0, length = snprintf(line, sizeof line, "stop %d\n", signal);
    for (int i = 0; i < server->count; i++) {
        caller *caller = &server->callers[i];
        if (caller->fd >= 0 && caller->rank >= 0 &&
            send(caller->fd, line, (size_t)length, MSG_NOSIGNAL) == (ssize_t)length)
            count++;
    }
    return count;
}

const ddp_channel_status *ddp_channel_ask(const ddp_channel_server *server, int rank)
{
    return &server->ranks[rank];
}

void ddp_channel_shut(ddp_channel_server *server)
{
    if (server == NULL)
        return;
    for (int i = 0; server->callers != NULL && i < server->count; i++)
        if (server->callers[i].fd >= 0)
            close(server->callers[i].fd);
    if (server->fd >= 0)
        close(server->fd);
    ddp_text_free(&server->address);
    free(server->callers);
    free(server->ranks);
    free(server);
}
