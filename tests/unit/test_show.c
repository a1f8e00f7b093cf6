/* What a person reads of many ranks' lines, and what the log files keep. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files.h"
#include "launcher/relay.h"
#include "support/test.h"

#define WORLD 4

/* A relay whose screen is two files. */
typedef struct stage {
    char folder[64];
    int out_fd, err_fd;
    ddp_output *out, *err;
    ddp_show *show;
    ddp_relay *relay;
} stage;

static void path_of(const stage *stage, const char *name, char *path)
{
    snprintf(path, 256, "%s/%s", stage->folder, name);
}

static void open_stage(stage *stage, bool terminal, const char *const *hosts)
{
    char path[256];
    strcpy(stage->folder, "/tmp/ddp-test-XXXXXX");
    cr_assert_not_null(mkdtemp(stage->folder));
    path_of(stage, "logs", path);
    check_ok(ddp_directory_make(path));
    path_of(stage, "out", path);
    stage->out_fd = open(path, O_RDWR | O_CREAT, 0600);
    path_of(stage, "err", path);
    stage->err_fd = open(path, O_RDWR | O_CREAT, 0600);
    check_ok(ddp_output_open(stage->out_fd, &stage->out));
    check_ok(ddp_output_open(stage->err_fd, &stage->err));
    ddp_show_config config = {
        .world = WORLD, .hosts = hosts, .out = stage->out, .err = stage->err, .terminal = terminal};
    check_ok(ddp_show_open(&config, &stage->show));
    check_ok(ddp_relay_open(stage->folder, WORLD, stage->show, &stage->relay));
}

/* Ends it and gives what stands in a file of it; the caller frees. */
static void end_stage(stage *stage)
{
    ddp_relay_close(stage->relay);
    ddp_show_close(stage->show);
    cr_assert_eq(ddp_output_close(stage->out, 1).lines, 0);
    cr_assert_eq(ddp_output_close(stage->err, 1).lines, 0);
}

static char *text_of(const stage *stage, const char *name)
{
    char path[256], *text;
    size_t bytes;
    path_of(stage, name, path);
    check_ok(ddp_file_load(path, 1 << 24, &text, &bytes));
    return text;
}

static void remove_stage(const stage *stage)
{
    char command[128];
    close(stage->out_fd);
    close(stage->err_fd);
    snprintf(command, sizeof command, "rm -r %s", stage->folder);
    cr_assert_eq(system(command), 0);
}

static void say(stage *stage, int rank, int stream, const char *line)
{
    ddp_show_line(stage->show, rank, stream, line, strlen(line), NULL);
}

static void expect_text(const stage *stage, const char *name, const char *wanted)
{
    char *text = text_of(stage, name);
    cr_assert_str_eq(text, wanted);
    free(text);
}

Test(show, prefixes_and_folding, .timeout = 20)
{
    stage stage;
    open_stage(&stage, false, NULL);
    say(&stage, 0, 1, "result");
    for (int rank = 0; rank < WORLD; rank++)
        say(&stage, rank, 2, "the same");
    say(&stage, 2, 1, "only two");
    say(&stage, 1, 2, "few");
    say(&stage, 3, 2, "few");
    say(&stage, 0, 2, "");
    end_stage(&stage);
    expect_text(&stage, "out", "result\n");
    expect_text(&stage, "err", "ranks 0-3 | the same\nr2 | only two\nranks 1,3 | few\nr0 | \n");
    remove_stage(&stage);
}

Test(show, a_rank_keeps_its_order, .timeout = 20)
{
    stage stage;
    open_stage(&stage, false, NULL);
    say(&stage, 0, 2, "first");
    say(&stage, 0, 2, "second");
    say(&stage, 1, 2, "second");
    say(&stage, 1, 2, "first"); /* must not join the line that comes before its "second" */
    end_stage(&stage);
    expect_text(&stage, "err", "r0 | first\nranks 0,1 | second\nr1 | first\n");
    remove_stage(&stage);
}

Test(show, a_repeated_line_is_not_folded_into_itself, .timeout = 20)
{
    stage stage;
    open_stage(&stage, false, NULL);
    for (int i = 0; i < 100; i++)
        say(&stage, 1, 2, "again");
    end_stage(&stage);
    char *text = text_of(&stage, "err");
    cr_assert_eq(strlen(text), 100 * strlen("r1 | again\n"));
    free(text);
    remove_stage(&stage);
}

Test(show, log_lines_fold_whatever_their_time, .timeout = 20)
{
    stage stage;
    open_stage(&stage, false, NULL);
    say(&stage, 0, 2, "12:00:00.001 r0 comm  warning: slow");
    say(&stage, 1, 2, "12:00:00.017 r1 comm  warning: slow");
    say(&stage, 2, 2, "12:00:00.017 r2 comm  warning: other");
    end_stage(&stage);
    expect_text(&stage, "err",
                "ranks 0,1 | 12:00:00.001 comm  warning: slow\nr2 | 12:00:00.017 comm  warning: other\n");
    remove_stage(&stage);
}

Test(show, hosts_are_named, .timeout = 20)
{
    static const char *const hosts[WORLD] = {"a", "a", "b", "b"};
    stage stage;
    open_stage(&stage, false, hosts);
    say(&stage, 2, 2, "here");
    end_stage(&stage);
    expect_text(&stage, "err", "b r2 | here\n");
    remove_stage(&stage);
}

Test(show, control_characters_do_not_get_through, .timeout = 20)
{
    stage stage;
    open_stage(&stage, false, NULL);
    say(&stage, 1, 2, "10%\r 50%\r100%");
    say(&stage, 1, 2, "windows\r");
    say(&stage, 1, 2,
        "\x1b[1;31mred\x1b[0m and \x1b]0;title\x07"
        "plain\ttab\b\x7f");
    say(&stage, 1, 2, "cut \x1b[");
    say(&stage, 1, 2, "\xc3\xbc");
    end_stage(&stage);
    expect_text(&stage, "err",
                "r1 | 100%\nr1 | windows\nr1 | red and plain\ttab\nr1 | cut \nr1 | \xc3\xbc\n");
    remove_stage(&stage);
}

Test(show, live_line_only_on_a_terminal, .timeout = 20)
{
    stage stage;
    open_stage(&stage, false, NULL);
    ddp_show_status(stage.show, "50 %", 4);
    say(&stage, 0, 1, "text");
    end_stage(&stage);
    expect_text(&stage, "out", "text\n");
    remove_stage(&stage);
    open_stage(&stage, true, NULL);
    ddp_show_status(stage.show, "50 %", 4);
    say(&stage, 0, 1, "text");
    ddp_show_status(stage.show, "60 %", 4);
    end_stage(&stage);
    expect_text(&stage, "out", "\r\033[K50 %\r\033[Ktext\n50 %\r\033[K60 %\r\033[K");
    remove_stage(&stage);
}

/* -- relay -- */

static void feed(int fd, const char *bytes, size_t count, stage *stage)
{
    while (count > 0) {
        size_t part = count < 4096 ? count : 4096;
        cr_assert_eq(write(fd, bytes, part), (ssize_t)part);
        bytes += part;
        count -= part;
        ddp_relay_read(stage->relay);
    }
}

static int open_pipe(stage *stage, int rank, int stream)
{
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    check_ok(ddp_relay_add_pipe(stage->relay, rank, stream, ends[0]));
    return ends[1];
}

Test(relay, lines_of_any_length_are_whole, .timeout = 20)
{
    static const size_t lengths[] = {10, 5000, 100000, 3u << 20};
    stage stage;
    open_stage(&stage, false, NULL);
    int a = open_pipe(&stage, 1, 2), b = open_pipe(&stage, 3, 2);
    char *line = malloc(lengths[3] + 1);
    for (int i = 0; i < 4; i++) {
        memset(line, 'a' + i, lengths[i]);
        line[lengths[i]] = '\n';
        feed(a, line, lengths[i] / 2, &stage);
        feed(b, "between\n", 8, &stage);
        feed(a, line + lengths[i] / 2, lengths[i] + 1 - lengths[i] / 2, &stage);
    }
    feed(b, "no newline at the end", 21, &stage);
    close(a);
    close(b);
    ddp_relay_read(stage.relay);
    struct pollfd polls[2 * WORLD];
    cr_assert_eq(ddp_relay_polls(stage.relay, polls), 0);
    end_stage(&stage);
    char *log = text_of(&stage, "logs/rank-1.log"), *err = text_of(&stage, "err"), *at = log;
    for (int i = 0; i < 4; i++) {
        memset(line, 'a' + i, lengths[i]);
        cr_assert_eq(memcmp(at, line, lengths[i]), 0);
        cr_assert_eq(at[lengths[i]], '\n');
        at += lengths[i] + 1;
    }
    cr_assert_eq(*at, '\0');
    cr_assert_not_null(strstr(err, "[... 91,808 bytes more in logs/rank-1.log]\n"));
    cr_assert_not_null(strstr(err, "[... 3,137,536 bytes more in logs/rank-1.log]\n"));
    cr_assert_not_null(strstr(err, "r3 | no newline at the end\n"));
    size_t longest = 0;
    for (char *next = err; *next != '\0'; next += strcspn(next, "\n") + 1) {
        size_t length = strcspn(next, "\n");
        longest = length > longest ? length : longest;
        cr_assert_eq(next[0], 'r', "a torn line: %.40s", next);
    }
    cr_assert_lt(longest, DDP_RELAY_SHOWN_BYTES + 100u);
    free(line);
    free(log);
    free(err);
    remove_stage(&stage);
}

Test(relay, status_lines_are_not_kept, .timeout = 20)
{
    stage stage;
    open_stage(&stage, true, NULL);
    int fd = open_pipe(&stage, 0, 1);
    feed(fd,
         "\x1e"
         "50 %\ndone\n",
         11, &stage);
    close(fd);
    ddp_relay_read(stage.relay);
    end_stage(&stage);
    expect_text(&stage, "logs/rank-0.log", "done\n");
    expect_text(&stage, "out", "\r\033[K50 %\r\033[Kdone\n50 %\r\033[K");
    remove_stage(&stage);
}

Test(relay, quiet_ranks_are_only_logged, .timeout = 20)
{
    static const unsigned char quiet[WORLD] = {0, 1, 0, 0};
    stage stage;
    open_stage(&stage, false, NULL);
    int fd = open_pipe(&stage, 1, 2);
    ddp_relay_quiet(stage.relay, quiet);
    feed(fd, "echo\n", 5, &stage);
    close(fd);
    ddp_relay_read(stage.relay);
    end_stage(&stage);
    expect_text(&stage, "logs/rank-1.log", "echo\n");
    expect_text(&stage, "err", "");
    remove_stage(&stage);
}

Test(relay, follows_files_that_come_later, .timeout = 20)
{
    stage stage;
    char *path;
    open_stage(&stage, false, NULL);
    check_ok(ddp_relay_add_file(stage.relay, 2));
    cr_assert_leq(ddp_relay_read(stage.relay), DDP_RELAY_POLL_S);
    check_ok(ddp_relay_raw_path(stage.folder, 2, &path));
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    feed(fd, "one\ntw", 6, &stage);
    feed(fd, "o\n", 2, &stage);
    end_stage(&stage);
    expect_text(&stage, "err", "r2 | one\nr2 | two\n");
    expect_text(&stage, "logs/rank-2.log", "one\ntwo\n");
    cr_assert_neq(access(path, F_OK), 0, "the raw file is still there");
    close(fd);
    free(path);
    remove_stage(&stage);
}
