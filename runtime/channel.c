/* The control thread: one poll over the launcher's connection, signals and the end. */
#include "runtime/channel.h"

#include <arpa/inet.h>
#include <ddp/log.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/flight.h"
#include "core/memory.h"
#include "core/text.h"

#define CONNECT_MS 3000
#define LINE_BYTES 512

static const int asking[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
#define ASKING (sizeof asking / sizeof asking[0])

struct ddp_channel {
    char *addresses, token[DDP_CHANNEL_TOKEN + 1];
    int port, rank;
    int socket, signals, wake; /* descriptors; socket -1 = no launcher */
    pthread_t thread;
    bool started, lost, mpi;
    char line[LINE_BYTES]; /* from the launcher, unfinished */
    size_t length;
    _Atomic(const char *) phase;
    atomic_int_fast64_t step;
    _Atomic(ddp_flight *) flight;
    atomic_int stop;
    atomic_bool closing;
};

/* The asking signals that are not ignored: nohup, and background jobs of a shell, want them to be. */
static void fill_set(sigset_t *set, bool mpi)
{
    sigemptyset(set);
    for (size_t i = 0; i < ASKING; i++) {
        if (mpi && asking[i] == SIGTERM)
            continue;
        struct sigaction before;
        sigaction(asking[i], NULL, &before);
        if (before.sa_handler != SIG_IGN)
            sigaddset(set, asking[i]);
    }
}

void ddp_channel_block(bool mpi)
{
    sigset_t set;
    fill_set(&set, mpi);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static void unblock(void)
{
    sigset_t set;
    fill_set(&set, false);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* "10.0.0.1,10.1.0.1:4711:0123..." */
static ddp_error *parse_address(ddp_channel *channel, const char *address)
{
    int64_t port = 0;
    char *first, *second;
    DDP_TRY(ddp_memory_text(address, &channel->addresses));
    first = strchr(channel->addresses, ':');
    second = first != NULL ? strchr(first + 1, ':') : NULL;
    if (second != NULL) {
        *first = *second = '\0';
        snprintf(channel->token, sizeof channel->token, "%s", second + 1);
    }
    if (second == NULL || !ddp_text_to_int(first + 1, &port) || port < 1 || port > 65535)
        return ddp_error_make(DDP_ERR_INPUT, "the environment variable DDP_CONTROL is \"%s\", not an address",
                              address);
    channel->port = (int)port;
    return NULL;
}

static int connect_one(const char *address, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), code = 0;
    socklen_t size = sizeof code;
    if (fd < 0 || inet_pton(AF_INET, address, &to.sin_addr) != 1)
        goto failed;
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        if (errno != EINPROGRESS || poll(&wait, 1, CONNECT_MS) != 1 ||
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size) != 0 || code != 0)
            goto failed;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    return fd;
failed:
    if (fd >= 0)
        close(fd);
    return -1;
}

static void send_line(ddp_channel *channel, const char *line, size_t length)
{
    if (channel->socket < 0 || send(channel->socket, line, length, MSG_NOSIGNAL) == (ssize_t)length)
        return;
    close(channel->socket);
    channel->socket = -1;
    channel->lost = true;
}

static void reach_launcher(ddp_channel *channel)
{
    char host[256] = "?", line[LINE_BYTES], *rest = NULL;
    for (char *at = strtok_r(channel->addresses, ",", &rest); at != NULL && channel->socket < 0;
         at = strtok_r(NULL, ",", &rest))
        channel->socket = connect_one(at, channel->port);
    if (channel->socket < 0) {
        ddp_log(DDP_WARN, "channel",
                "the launcher cannot be reached; this rank goes on, but cannot be asked to stop");
        return;
    }
    gethostname(host, sizeof host - 1);
    int length = snprintf(line, sizeof line, "hello %s %d %d %s\n", channel->token, channel->rank,
                          (int)getpid(), host);
    send_line(channel, line, (size_t)length);
}

static void send_beat(ddp_channel *channel)
{
    char line[LINE_BYTES];
    int length = snprintf(line, sizeof line, "beat %s %lld\n", atomic_load(&channel->phase),
                          (long long)atomic_load(&channel->step));
    send_line(channel, line, (size_t)length);
}

static void obey(ddp_channel *channel, const char *line)
{
    int64_t signal;
    if (ddp_text_starts(line, "stop ") && ddp_text_to_int(line + 5, &signal))
        atomic_store(&channel->stop, (int)signal);
}

static void read_orders(ddp_channel *channel)
{
    ssize_t got =
        recv(channel->socket, channel->line + channel->length, sizeof channel->line - 1 - channel->length, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0 || channel->length + (size_t)got == sizeof channel->line - 1) {
        close(channel->socket); /* the launcher is gone: what becomes of its ranks is the kernel's business */
        channel->socket = -1;
        return;
    }
    channel->length += (size_t)got;
    channel->line[channel->length] = '\0';
    for (char *end; (end = strchr(channel->line, '\n')) != NULL;) {
        *end = '\0';
        obey(channel, channel->line);
        channel->length -= (size_t)(end + 1 - channel->line);
        memmove(channel->line, end + 1, channel->length + 1);
    }
}

/* The second request is meant at once: the signal does what it does to any process. */
static void end_by(int number)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    signal(number, SIG_DFL);
    kill(getpid(), number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

static void read_signals(ddp_channel *channel)
{
    struct signalfd_siginfo info;
    while (read(channel->signals, &info, sizeof info) == sizeof info) {
        int number = (int)info.ssi_signo;
        if (atomic_load(&channel->stop) != 0)
            end_by(number);
        atomic_store(&channel->stop, number);
    }
}

static void *work(void *argument)
{
    ddp_channel *channel = argument;
    double next = 0;
    if (channel->addresses != NULL)
        reach_launcher(channel);
    while (!atomic_load(&channel->closing)) {
        double now = ddp_clock_now();
        if (now >= next) {
            send_beat(channel);
            ddp_flight_beat(atomic_load(&channel->flight));
            next = now + DDP_BEAT_S;
        }
        struct pollfd polls[] = {{.fd = channel->wake, .events = POLLIN},
                                 {.fd = channel->signals, .events = POLLIN},
                                 {.fd = channel->socket, .events = POLLIN}};
        poll(polls, 3, (int)((next - now) * 1e3) + 1);
        if (polls[1].revents != 0)
            read_signals(channel);
        if (channel->socket >= 0 && polls[2].revents != 0)
            read_orders(channel);
    }
    send_beat(channel); /* the last phase is told, too */
    return NULL;
}

static ddp_error *open_descriptors(ddp_channel *channel)
{
    sigset_t set;
    fill_set(&set, channel->mpi);
    channel->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    channel->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (channel->signals < 0 || channel->wake < 0)
        return ddp_error_errno(errno, "waiting for signals");
    int failed = pthread_create(&channel->thread, NULL, work, channel);
    if (failed != 0)
        return ddp_error_errno(failed, "starting the thread that listens to the launcher");
    pthread_setname_np(channel->thread, "ddp-control");
    channel->started = true;
    return NULL;
}

ddp_error *ddp_channel_open(const char *address, int rank, bool mpi, ddp_channel **channel)
{
    ddp_channel *made;
    DDP_TRY(DDP_NEW(&made));
    made->socket = made->signals = made->wake = -1;
    made->rank = rank;
    made->mpi = mpi;
    atomic_store(&made->phase, "init");
    ddp_error *error = address != NULL ? parse_address(made, address) : NULL;
    if (error == NULL)
        error = open_descriptors(made);
    if (error != NULL) {
        ddp_channel_close(made);
        return error;
    }
    *channel = made;
    return NULL;
}

void ddp_channel_tell(ddp_channel *channel, const char *phase, int64_t step)
{
    if (channel == NULL)
        return;
    if (phase != NULL)
        atomic_store_explicit(&channel->phase, phase, memory_order_relaxed);
    if (step >= 0)
        atomic_store_explicit(&channel->step, step, memory_order_relaxed);
}

void ddp_channel_record(ddp_channel *channel, ddp_flight *flight)
{
    atomic_store(&channel->flight, flight);
}

int ddp_channel_stop(const ddp_channel *channel)
{
    return channel != NULL ? atomic_load(&((ddp_channel *)channel)->stop) : 0;
}

void ddp_channel_close(ddp_channel *channel)
{
    if (channel == NULL)
        return;
    atomic_store(&channel->closing, true);
    if (channel->started) {
        if (write(channel->wake, &(uint64_t){1}, sizeof(uint64_t)) < 0)
            ddp_log(DDP_WARN, "channel", "its thread cannot be woken");
        pthread_join(channel->thread, NULL);
    }
    if (channel->socket >= 0)
        close(channel->socket);
    if (channel->signals >= 0)
        close(channel->signals);
    if (channel->wake >= 0)
        close(channel->wake);
    unblock();
    free(channel->addresses);
    free(channel);
}
