/* Readers that are slow, stuck or gone. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "launcher/output.h"
#include "support/test.h"

static void add_lines(ddp_output *output, int lines)
{
    char line[101];
    memset(line, 'x', sizeof line);
    line[100] = '\n';
    for (int i = 0; i < lines; i++)
        ddp_output_add(output, line, sizeof line);
}

Test(output, everything_arrives_in_order, .timeout = 20)
{
    int ends[2];
    ddp_output *output;
    char text[4096];
    size_t got = 0;
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    check_ok(ddp_output_open(ends[1], &output));
    ddp_output_add(output, "one\n", 4);
    ddp_output_add(output, "two\n", 4);
    cr_assert_eq(ddp_output_close(output, 2).lines, 0);
    close(ends[1]);
    for (ssize_t part; (part = read(ends[0], text + got, sizeof text - got)) > 0;)
        got += (size_t)part;
    cr_assert(got == 8 && memcmp(text, "one\ntwo\n", 8) == 0);
    close(ends[0]);
}

Test(output, a_stuck_reader_costs_its_patience_and_lines_are_counted, .timeout = 30)
{
    int ends[2];
    ddp_output *output;
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    check_ok(ddp_output_open(ends[1], &output));
    double begin = ddp_clock_now();
    add_lines(output, 100000); /* 10 MB into a pipe of 64 KiB and a queue of 4 MiB */
    double added = ddp_clock_now() - begin;
    ddp_output_loss loss = ddp_output_close(output, 0.3);
    double waited = ddp_clock_now() - begin - added;
    cr_assert_lt(added, 2.0, "adding waited for the reader: %g s", added);
    cr_assert_lt(waited, 2.0, "closing took %g s", waited);
    cr_assert_gt(loss.lines, 50000);
    cr_assert_lt(loss.lines, 100000);
    cr_assert_eq(loss.reason, 0);
    close(ends[0]);
    close(ends[1]);
}

Test(output, a_gone_reader_is_named, .timeout = 20)
{
    int ends[2];
    ddp_output *output;
    signal(SIGPIPE, SIG_IGN);
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    close(ends[0]);
    check_ok(ddp_output_open(ends[1], &output));
    add_lines(output, 10);
    ddp_clock_sleep(0.2);
    add_lines(output, 10);
    ddp_output_loss loss = ddp_output_close(output, 1);
    cr_assert_eq(loss.lines, 20);
    cr_assert_eq(loss.reason, EPIPE);
    close(ends[1]);
}

Test(output, a_full_disk_is_named, .timeout = 20)
{
    ddp_output *output;
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    check_ok(ddp_output_open(fd, &output));
    add_lines(output, 3);
    ddp_output_loss loss = ddp_output_close(output, 1);
    cr_assert_eq(loss.lines, 3);
    cr_assert_eq(loss.reason, ENOSPC);
    close(fd);
}
