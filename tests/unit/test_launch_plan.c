/* Where ranks go, what mpirun is called with, and how its last words are read. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files.h"
#include "launcher/mpirun.h"
#include "support/test.h"

/* A plan of configs/smoke.yaml with overrides (NULL ends); the caller frees both. */
static ddp_error *make_plan(const char *const *overrides, ddp_job **job, ddp_plan *plan)
{
    size_t count = 0;
    while (overrides[count] != NULL)
        count++;
    check_ok(ddp_job_load("configs/smoke.yaml", overrides, count, job));
    return ddp_plan_make(*job, 0, 0, plan);
}

static void expect_refusal(const char *const *overrides, const char *words)
{
    ddp_job *job;
    ddp_plan plan;
    ddp_error *error = make_plan(overrides, &job, &plan);
    cr_assert_not_null(error, "it was accepted; wanted: %s", words);
    cr_assert_eq(ddp_error_exit_code(error), 2);
    cr_assert_not_null(strstr(ddp_error_message(error), words), "%s", ddp_error_message(error));
    ddp_error_free(error);
    ddp_job_free(job);
}

static void expect_spread(const char *const *overrides, const int *ranks)
{
    ddp_job *job;
    ddp_plan plan;
    int local_rank, before = 0;
    check_ok(make_plan(overrides, &job, &plan));
    for (int host = 0; host < plan.host_count; host++) {
        cr_assert_eq(plan.hosts[host].ranks, ranks[host], "host %d has %d ranks", host,
                     plan.hosts[host].ranks);
        for (int i = 0; i < ranks[host]; i++) {
            cr_assert_eq(ddp_plan_find(&plan, before + i, &local_rank), &plan.hosts[host]);
            cr_assert_eq(local_rank, i);
        }
        before += ranks[host];
    }
    cr_assert(plan.mpirun == (plan.host_count > 1 || !plan.hosts[0].here));
    ddp_plan_free(&plan);
    ddp_job_free(job);
}

#define WITH(...) ((const char *const[]){__VA_ARGS__, NULL})

Test(plan, ranks_fill_hosts_in_order, .timeout = 20)
{
    expect_spread(WITH("parallel.ranks=2", "launch.oversubscribe=true"), (const int[]){2});
    expect_spread(WITH("parallel.ranks=4", "launch.hosts=[a:1, b:3]"), (const int[]){1, 3});
    expect_spread(WITH("parallel.ranks=4", "launch.hosts=[a:3, b:3]"), (const int[]){3, 1});
    expect_spread(WITH("parallel.ranks=auto", "launch.hosts=[a:4, b:4]"), (const int[]){4, 4});
    expect_spread(WITH("parallel.ranks=4", "launch.oversubscribe=true", "launch.hosts=[a, b, c]"),
                  (const int[]){2, 2, 0});
    expect_spread(WITH("parallel.ranks=4", "launch.oversubscribe=true", "launch.hosts=[a:1, b, c]"),
                  (const int[]){1, 2, 1});
    expect_spread(WITH("parallel.ranks=8", "launch.oversubscribe=true", "launch.hosts=[a:1, b:1]"),
                  (const int[]){4, 4});
    expect_spread(WITH("parallel.ranks=2", "launch.oversubscribe=true", "launch.hosts=[localhost]"),
                  (const int[]){2});
}

Test(plan, hosts_that_are_none_are_refused, .timeout = 20)
{
    expect_refusal(WITH("launch.hosts=[--mca]"), "launch.hosts: \"--mca\" is no host");
    expect_refusal(WITH("launch.hosts=['a b']"), "is no host");
    expect_refusal(WITH("launch.hosts=['a;id']"), "is no host");
    expect_refusal(WITH("launch.hosts=['a:0']"), "is no host");
    expect_refusal(WITH("launch.hosts=['a:x']"), "is no host");
    expect_refusal(WITH("launch.hosts=['']"), "is no host");
    expect_refusal(WITH("launch.hosts=[a, b, a]"), "a is there twice");
    expect_refusal(WITH("launch.hosts=[a, b]", "launch.via=local"), "reaches this host only");
    expect_refusal(WITH("launch.via=srun"), "srun");
    expect_refusal(WITH("parallel.ranks=5000", "train.global_batch=5000"), "parallel.ranks: 5000 ranks, but");
}

static bool has_word(char *const *arguments, const char *word)
{
    for (; *arguments != NULL; arguments++)
        if (strcmp(*arguments, word) == 0)
            return true;
    return false;
}

Test(mpirun, is_called_with_what_was_planned, .timeout = 20)
{
    ddp_job *job;
    ddp_plan plan;
    char **arguments;
    check_ok(make_plan(WITH("parallel.ranks=4", "launch.hosts=[a:1, b:3]", "output='/tmp/sp ace/(1)'",
                            "launch.oversubscribe=true"),
                       &job, &plan));
    check_ok(ddp_mpirun_arguments(&plan, "/usr/bin/mpirun", "/opt/ddprun", "/tmp/session", &arguments));
    cr_assert(has_word(arguments, "a:1,b:3"));
    cr_assert(has_word(arguments, "4"));
    cr_assert(has_word(arguments, "--oversubscribe"));
    cr_assert(has_word(arguments, "/opt/ddprun"));
    cr_assert(has_word(arguments, "rank"));
    cr_assert(has_word(arguments, "/tmp/sp ace/(1)"));
    cr_assert(has_word(arguments, "--allow-run-as-root") == (geteuid() == 0));
    ddp_mpirun_free_arguments(arguments);
    ddp_plan_free(&plan);
    ddp_job_free(job);
}

Test(mpirun, last_words_are_understood, .timeout = 20)
{
    ddp_mpirun_failure a =
        ddp_mpirun_diagnose("-----\nmpirun noticed that process rank 3 with PID 1234 on node nodeb exited on "
                            "signal 11 (Segmentation fault).\n-----\n");
    cr_assert(a.rank == 3 && a.pid == 1234 && a.signal == 11 && a.code == 0);
    ddp_mpirun_failure b =
        ddp_mpirun_diagnose("one or more processes exited with non-zero status, thus causing\n"
                            "the job to be terminated. The first process to do so was:\n\n"
                            "  Process name: [[6551,1],12]\n  Exit code:    3\n");
    cr_assert(b.rank == 12 && b.signal == 0 && b.code == 3);
    ddp_mpirun_failure c =
        ddp_mpirun_diagnose("The first process to do so was:\n\n   Process name: [prterun-host-99@1,2]\n"
                            "   Exit code:    139\n");
    cr_assert(c.rank == 2 && c.code == 139);
    ddp_mpirun_failure d = ddp_mpirun_diagnose("There are not enough slots available\n");
    cr_assert(d.rank == -1 && d.code == 0 && d.signal == 0);
    cr_assert_eq(ddp_mpirun_diagnose("").rank, -1);
}

/* A directory with a program `mpirun` that prints `text`, alone in PATH. */
static void pretend(const char *text, char *folder)
{
    char path[256], script[512];
    strcpy(folder, "/tmp/ddp-test-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/mpirun", folder);
    snprintf(script, sizeof script, "#!/bin/sh\necho '%s'\n", text);
    check_ok(ddp_file_save(path, script, strlen(script)));
    cr_assert_eq(chmod(path, 0755), 0);
    setenv("PATH", folder, 1);
}

Test(mpirun, others_of_that_name_are_refused, .timeout = 20)
{
    char folder[64], path[128], *found = NULL;
    const ddp_job job = {.launch.allow_root = true};
    if (!DDP_WITH_MPI)
        return;
    pretend("HYDRA build details:", folder);
    ddp_error *error = ddp_mpirun_find(&job, &found);
    cr_assert_not_null(error);
    cr_assert_eq(ddp_error_exit_code(error), 3);
    cr_assert_not_null(strstr(ddp_error_message(error), "HYDRA build details:"));
    ddp_error_free(error);
    snprintf(path, sizeof path, "%s/mpirun", folder);
    unlink(path);
    error = ddp_mpirun_find(&job, &found);
    cr_assert_eq(ddp_error_exit_code(error), 3);
    cr_assert_not_null(strstr(ddp_error_message(error), "no mpirun in PATH"));
    ddp_error_free(error);
    rmdir(folder);
    pretend("mpirun (Open MPI) 4.1.4", folder);
    check_ok(ddp_mpirun_find(&job, &found));
    snprintf(path, sizeof path, "%s/mpirun", folder);
    cr_assert_str_eq(found, path);
    free(found);
    unlink(path);
    rmdir(folder);
}
