/* The control channel, both ends in one process: beats, orders, strangers; and deciding about restarts. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/clock.h"
#include "launcher/channel.h"
#include "launcher/restart.h"
#include "runtime/channel.h"
#include "support/test.h"

#define PATIENCE_S 10.0

/* Until the rank is heard of in this phase, or patience ends. */
static bool hear(ddp_channel_server *server, int rank, const char *phase)
{
    double until = ddp_clock_now() + PATIENCE_S;
    while (ddp_clock_now() < until) {
        ddp_channel_read(server);
        if (strcmp(ddp_channel_ask(server, rank)->phase, phase) == 0)
            return true;
        ddp_clock_sleep(0.005);
    }
    return false;
}

static int call(const ddp_channel_server *server)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const char *port = strchr(ddp_channel_address(server), ':') + 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_port = htons((uint16_t)atoi(port));
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* Whether the server hangs up on whoever says this. */
static bool is_refused(ddp_channel_server *server, const char *line)
{
    char answer;
    int fd = call(server);
    double until = ddp_clock_now() + PATIENCE_S;
    bool over = false;
    cr_assert_eq(send(fd, line, strlen(line), MSG_NOSIGNAL), (ssize_t)strlen(line));
    while (!over && ddp_clock_now() < until) {
        ddp_channel_read(server);
        over = recv(fd, &answer, 1, MSG_DONTWAIT) == 0;
        ddp_clock_sleep(0.005);
    }
    close(fd);
    return over;
}

Test(channel, ranks_beat_and_obey, .timeout = 60)
{
    ddp_channel_server *server;
    ddp_channel *ranks[2];
    ddp_channel_block(false);
    check_ok(ddp_channel_listen(2, true, &server));
    cr_assert_not_null(strstr(ddp_channel_address(server), "127.0.0.1:"));
    cr_assert_eq(ddp_channel_order_stop(server, SIGTERM), 0); /* nobody is there yet */
    for (int r = 0; r < 2; r++)
        check_ok(ddp_channel_open(ddp_channel_address(server), r, false, &ranks[r]));
    ddp_channel_tell(ranks[0], "backward", 7);
    ddp_channel_tell(ranks[1], "eval", 9);
    cr_assert(hear(server, 0, "backward"));
    cr_assert(hear(server, 1, "eval"));
    cr_assert_eq(ddp_channel_ask(server, 1)->step, 9);
    cr_assert_eq(ddp_channel_ask(server, 1)->pid, (int)getpid());
    cr_assert_eq(ddp_channel_stop(ranks[0]), 0);
    cr_assert_eq(ddp_channel_order_stop(server, SIGUSR1), 2);
    double until = ddp_clock_now() + PATIENCE_S;
    while ((ddp_channel_stop(ranks[0]) == 0 || ddp_channel_stop(ranks[1]) == 0) && ddp_clock_now() < until)
        ddp_clock_sleep(0.005);
    cr_assert(ddp_channel_stop(ranks[0]) == SIGUSR1 && ddp_channel_stop(ranks[1]) == SIGUSR1);
    ddp_channel_close(ranks[0]);
    until = ddp_clock_now() + PATIENCE_S;
    while (!ddp_channel_ask(server, 0)->lost && ddp_clock_now() < until)
        ddp_channel_read(server);
    cr_assert(ddp_channel_ask(server, 0)->lost && !ddp_channel_ask(server, 0)->connected);
    ddp_channel_close(ranks[1]);
    ddp_channel_shut(server);
}

Test(channel, strangers_are_not_let_in, .timeout = 120)
{
    ddp_channel_server *server;
    ddp_channel *rank;
    char line[1024];
    check_ok(ddp_channel_listen(1, true, &server));
    cr_assert(is_refused(server, "GET / HTTP/1.1\r\n\r\n"));
    cr_assert(is_refused(server, "hello 00000000000000000000000000000000 0 1 host\n"));
    cr_assert(is_refused(server, "beat load 3\n"));
    memset(line, 'x', sizeof line - 1); /* a line without an end */
    line[sizeof line - 1] = '\0';
    cr_assert(is_refused(server, line));
    const char *token = strrchr(ddp_channel_address(server), ':') + 1;
    snprintf(line, sizeof line, "hello %s 1 1 host\n", token); /* no such rank */
    cr_assert(is_refused(server, line));
    ddp_channel_block(false);
    check_ok(ddp_channel_open(ddp_channel_address(server), 0, false, &rank));
    cr_assert(hear(server, 0, "init"));
    snprintf(line, sizeof line, "hello %s 0 1 host\n", token); /* the rank is there already */
    cr_assert(is_refused(server, line));
    cr_assert(ddp_channel_ask(server, 0)->connected);
    ddp_channel_close(rank);
    ddp_channel_shut(server);
}

Test(channel, without_a_launcher_only_signals_count, .timeout = 60)
{
    ddp_channel *rank;
    ddp_channel_block(false);
    check_ok(ddp_channel_open(NULL, 0, false, &rank));
    kill(getpid(), SIGUSR2);
    double until = ddp_clock_now() + PATIENCE_S;
    while (ddp_channel_stop(rank) == 0 && ddp_clock_now() < until)
        ddp_clock_sleep(0.005);
    cr_assert_eq(ddp_channel_stop(rank), SIGUSR2);
    ddp_channel_close(rank);
    ddp_error *error = ddp_channel_open("nonsense", 0, false, &rank);
    cr_assert_not_null(error);
    ddp_error_free(error);
}

/* -- restarts -- */

static ddp_job job_with(int64_t max, int64_t min_ranks, int64_t batch, int64_t micro)
{
    ddp_job job = {.train.global_batch = batch, .train.micro_batch = micro};
    job.restart.max = max;
    job.restart.min_ranks = min_ranks;
    return job;
}

static const ddp_failure at_7 = {.code = 9, .world = 4, .from_step = 0, .steps = 7, .saved = 5};

Test(restart, is_for_who_asked_and_may_help, .timeout = 10)
{
    ddp_job none = job_with(0, 1, 24, DDP_AUTO), two = job_with(2, 1, 24, DDP_AUTO);
    ddp_restart fresh = {.attempts = 0}, used = {.attempts = 2, .last = {.steps = 3}, .has_last = true};
    ddp_failure wrong = at_7;
    cr_assert(!ddp_restart_decide(&none, &fresh, &at_7).again);
    cr_assert(ddp_restart_decide(&two, &fresh, &at_7).again);
    cr_assert_eq(ddp_restart_decide(&two, &fresh, &at_7).ranks, 4);
    cr_assert(!ddp_restart_decide(&two, &used, &at_7).again);
    wrong.code = 2;
    cr_assert(!ddp_restart_decide(&two, &fresh, &wrong).again);
}

Test(restart, stops_where_nothing_is_won, .timeout = 10)
{
    ddp_job job = job_with(9, 1, 24, DDP_AUTO);
    ddp_failure next = at_7;
    ddp_restart restart = {.attempts = 1, .last = at_7, .has_last = true};
    next.from_step = 5;
    cr_assert(!ddp_restart_decide(&job, &restart, &next).again); /* the same step once more */
    next.steps = 8;
    cr_assert(ddp_restart_decide(&job, &restart, &next).again); /* one further */
    next.steps = 7;
    next.saved = 6;
    cr_assert(ddp_restart_decide(&job, &restart, &next).again); /* something new was saved */
}

Test(restart, takes_fewer_ranks_when_none_gets_off_the_ground, .timeout = 10)
{
    ddp_job any = job_with(9, 1, 24, DDP_AUTO), micro = job_with(9, 1, 24, 4),
            three = job_with(9, 3, 16, DDP_AUTO);
    ddp_failure start = {.code = 9, .world = 6, .from_step = 5, .steps = 5, .saved = 5};
    ddp_restart restart = {.attempts = 1, .last = start, .has_last = true};
    cr_assert_eq(ddp_restart_decide(&any, &restart, &start).ranks, 4);
    cr_assert_eq(ddp_restart_decide(&micro, &restart, &start).ranks, 3);
    start.world = restart.last.world = 4;
    cr_assert(!ddp_restart_decide(&three, &restart, &start).again); /* 16 does not divide by 3 */
}
