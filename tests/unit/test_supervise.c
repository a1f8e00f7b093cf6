/* Supervision over shell scripts that play ranks: who failed first, what it costs, that nothing is left. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/files.h"
#include "launcher/supervise.h"
#include "support/test.h"

#define WORLD 3

typedef struct stage {
    char folder[64];
    int null_fd;
    ddp_output *out;
    ddp_show *show;
    ddp_rendezvous *rendezvous;
    ddp_child children[WORLD];
    ddp_supervise_config config;
    ddp_outcome outcome;
    double seconds;
} stage;

static void start_script(stage *stage, int rank, const char *script)
{
    char *arguments[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
    ddp_spawn spawn = {.path = "/bin/sh", .arguments = arguments, .keep_fd = -1, .err_fd = -1};
    check_ok(ddp_spawn_start(&spawn, &stage->children[rank]));
    check_ok(ddp_relay_add_pipe(stage->config.relay, rank, 1, stage->children[rank].out));
    check_ok(ddp_relay_add_pipe(stage->config.relay, rank, 2, stage->children[rank].err));
}

static void open_stage(stage *stage, double grace_s)
{
    char path[256];
    *stage = (struct stage){.folder = "/tmp/ddp-test-XXXXXX"};
    cr_assert_not_null(mkdtemp(stage->folder));
    snprintf(path, sizeof path, "%s/logs", stage->folder);
    check_ok(ddp_directory_make(path));
    stage->null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    stage->config = (ddp_supervise_config){
        .children = stage->children, .count = WORLD, .world = WORLD, .grace_s = grace_s};
    check_ok(ddp_supervise_block(&stage->config.signal_fd));
    check_ok(ddp_output_open(stage->null_fd, &stage->out));
    ddp_show_config show = {.world = WORLD, .out = stage->out, .err = stage->out};
    check_ok(ddp_show_open(&show, &stage->show));
    check_ok(ddp_relay_open(stage->folder, WORLD, stage->show, &stage->config.relay));
    check_ok(ddp_rendezvous_make(WORLD, &stage->rendezvous));
    stage->config.rendezvous = stage->rendezvous;
}

static void watch(stage *stage)
{
    double begin = ddp_clock_now();
    check_ok(ddp_supervise(&stage->config, &stage->outcome));
    stage->seconds = ddp_clock_now() - begin;
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1, "a process is left");
}

static void close_stage(stage *stage)
{
    char command[128];
    ddp_relay_close(stage->config.relay);
    ddp_show_close(stage->show);
    ddp_output_close(stage->out, 1);
    ddp_outcome_free(&stage->outcome);
    ddp_rendezvous_close(stage->rendezvous);
    close(stage->config.signal_fd);
    close(stage->null_fd);
    snprintf(command, sizeof command, "rm -r %s", stage->folder);
    cr_assert_eq(system(command), 0);
}

Test(supervise, all_well, .timeout = 20)
{
    stage stage;
    open_stage(&stage, 1);
    for (int rank = 0; rank < WORLD; rank++)
        start_script(&stage, rank, "echo done");
    for (int rank = 0; rank < WORLD; rank++)
        ddp_rendezvous_tell(stage.rendezvous, rank, "end", -1); /* as a rank does behind its last step */
    watch(&stage);
    cr_assert_eq(stage.outcome.code, 0);
    cr_assert_eq(stage.outcome.first, -1);
    close_stage(&stage);
}

/* A rank that leaves with 0 in the middle of its work leaves the others waiting: that is a failure, and its
 * own. */
Test(supervise, leaving_early_with_zero_is_a_failure, .timeout = 30)
{
    stage stage;
    open_stage(&stage, 1);
    start_script(&stage, 0, "exec sleep 60");
    start_script(&stage, 1, "exit 0");
    for (int rank = 2; rank < WORLD; rank++)
        start_script(&stage, rank, "exec sleep 60");
    watch(&stage);
    cr_assert_eq(stage.outcome.first, 1);
    cr_assert_eq(stage.outcome.code, 1);
    cr_assert(stage.seconds < 12, "%g s", stage.seconds);
    close_stage(&stage);
}

static void expect_failure(const char *script, int code, int status_signal)
{
    stage stage;
    open_stage(&stage, 1);
    ddp_rendezvous_tell(stage.rendezvous, 1, "forward", 3);
    start_script(&stage, 0, "sleep 1000");
    start_script(&stage, 1, script);
    start_script(&stage, 2, "sleep 0.3; exit 1"); /* an echo */
    watch(&stage);
    cr_assert_eq(stage.outcome.code, code);
    cr_assert_eq(stage.outcome.first, 1);
    cr_assert_eq(WIFSIGNALED(stage.outcome.status) ? WTERMSIG(stage.outcome.status) : 0, status_signal);
    cr_assert_str_eq(stage.outcome.at.phase, "forward");
    cr_assert_eq(stage.outcome.at.step, 3);
    cr_assert(stage.outcome.followed[0] && stage.outcome.killed[0]);
    cr_assert(stage.outcome.followed[2] && !stage.outcome.killed[2]);
    cr_assert(!stage.outcome.followed[1]);
    cr_assert_lt(stage.seconds, 10);
    int culprit;
    const char *why;
    cr_assert(ddp_rendezvous_aborted(stage.rendezvous, &culprit, &why));
    cr_assert_eq(culprit, 1);
    close_stage(&stage);
}

Test(supervise, a_code_is_passed_on, .timeout = 30)
{
    expect_failure("exit 3", 3, 0);
}

Test(supervise, a_signal_is_passed_on, .timeout = 30)
{
    expect_failure("kill -SEGV $$", 139, SIGSEGV);
}

Test(supervise, one_that_ignores_everything_is_killed_in_time, .timeout = 30)
{
    stage stage;
    open_stage(&stage, 100);
    start_script(&stage, 0, "trap '' TERM; while :; do sleep 1; done");
    start_script(&stage, 1, "exit 5");
    start_script(&stage, 2, "kill -STOP $$");
    watch(&stage);
    cr_assert_eq(stage.outcome.code, 5);
    cr_assert_lt(stage.seconds, 10);
    cr_assert(stage.outcome.killed[0] && stage.outcome.killed[2]);
    close_stage(&stage);
}

Test(supervise, the_stuck_rank_is_blamed_not_those_who_waited, .timeout = 30)
{
    stage stage;
    open_stage(&stage, 1);
    start_script(&stage, 0, "sleep 0.2; exit 1");
    start_script(&stage, 1, "sleep 0.2; exit 1");
    start_script(&stage, 2, "sleep 1000");
    ddp_rendezvous_abort(stage.rendezvous, 2, "rank 2 did not come");
    watch(&stage);
    cr_assert_eq(stage.outcome.first, 2);
    cr_assert(stage.outcome.hung);
    cr_assert_eq(stage.outcome.code, 1);
    cr_assert_str_eq(stage.outcome.why, "rank 2 did not come");
    cr_assert_lt(stage.seconds, 6);
    close_stage(&stage);
}

Test(supervise, a_named_rank_that_leaves_last_keeps_its_code, .timeout = 30)
{
    stage stage;
    open_stage(&stage, 1);
    start_script(&stage, 0, "exit 1");
    start_script(&stage, 1, "sleep 0.3; exit 9");
    start_script(&stage, 2, "exit 1");
    ddp_rendezvous_abort(stage.rendezvous, 1, "rank 1 has left");
    watch(&stage);
    cr_assert_eq(stage.outcome.first, 1);
    cr_assert(!stage.outcome.hung);
    cr_assert_eq(stage.outcome.code, 9);
    close_stage(&stage);
}

Test(supervise, interruption, .timeout = 30)
{
    stage stage;
    open_stage(&stage, 5);
    for (int rank = 0; rank < WORLD; rank++)
        start_script(&stage, rank, "sleep 1000");
    kill(getpid(), SIGTERM);
    watch(&stage);
    cr_assert_eq(stage.outcome.code, 143);
    cr_assert_eq(stage.outcome.interrupted, SIGTERM);
    cr_assert_lt(stage.seconds, 3);
    close_stage(&stage);
}

Test(supervise, interruption_of_the_stubborn, .timeout = 30)
{
    stage stage;
    open_stage(&stage, 2);
    for (int rank = 0; rank < WORLD; rank++)
        start_script(&stage, rank, "trap '' TERM INT HUP; while :; do sleep 1; done");
    kill(getpid(), SIGINT);
    watch(&stage);
    cr_assert_eq(stage.outcome.code, 130);
    cr_assert_lt(stage.seconds, 5);
    close_stage(&stage);
}

Test(supervise, a_second_signal_ends_at_once, .timeout = 30)
{
    stage stage;
    open_stage(&stage, 100);
    start_script(
        &stage, 0,
        "trap '' TERM INT HUP; kill -INT $PPID; sleep 0.3; kill -TERM $PPID; while :; do sleep 1; done");
    for (int rank = 1; rank < WORLD; rank++)
        start_script(&stage, rank, "trap '' TERM; while :; do sleep 1; done");
    watch(&stage);
    cr_assert_eq(stage.outcome.code, 130);
    cr_assert_lt(stage.seconds, 3);
    close_stage(&stage);
}
