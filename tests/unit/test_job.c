/* Job files: against a build with two tiny models, formats and optimizers (fake_builtins.c). */
#include "core/files.h"
#include "core/text.h"
#include "support/test.h"

#include <ddp/job.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "model: {kind: tiny, inputs: 4, outputs: 2}\n"
#define DATA "data: {format: idx, train: a.idx}\n"
#define TRAIN "train: {steps: 10, global_batch: 8}\n"
#define OPTIMIZER "optimizer: {lr: 1e-4}\n"
#define GOOD MODEL DATA TRAIN OPTIMIZER

/* Loads a text with overrides ("a=1|b=2", split at bars; NULL = none). */
static ddp_error *load(const char *text, const char *overrides, ddp_job **job)
{
    char path[] = "/tmp/ddp-job-XXXXXX", words[512] = "", *list[16], *rest = words;
    size_t count = 0;
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    check_ok(ddp_file_write(fd, path, text, strlen(text)));
    close(fd);
    snprintf(words, sizeof words, "%s", overrides ? overrides : "");
    while ((list[count] = strsep(&rest, "|")) != NULL && *list[count] != '\0')
        count++;
    ddp_error *error = ddp_job_load(path, (const char *const *)list, count, job);
    unlink(path);
    return error;
}

static ddp_job *load_good(const char *text, const char *overrides)
{
    ddp_job *job = NULL;
    check_ok(load(text, overrides, &job));
    return job;
}

/* What a person sees, with the path cut down to "FILE". */
static char *print(const ddp_error *error)
{
    char *text = NULL, *at;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    ddp_error_print(error, "error", out);
    fclose(out);
    while ((at = strstr(text, "/tmp/ddp-job-")) != NULL) {
        memcpy(at, "FILE", 4);
        memmove(at + 4, at + strlen("/tmp/ddp-job-XXXXXX"), strlen(at + strlen("/tmp/ddp-job-XXXXXX")) + 1);
    }
    return text;
}

static void check_error(const char *text, const char *overrides, const char *expected)
{
    ddp_job *job = NULL;
    ddp_error *error = load(text, overrides, &job);
    cr_assert_not_null(error, "accepted, expected %s", expected);
    cr_assert_null(job);
    cr_assert_eq(ddp_error_exit_code(error), 2);
    char *printed = print(error);
    cr_assert_str_eq(printed, expected, "got:\n%s\nexpected:\n%s", printed, expected);
    free(printed);
    ddp_error_free(error);
}

/* Refused, and says these words somewhere. */
static void check_words(const char *text, const char *overrides, const char *words)
{
    ddp_job *job = NULL;
    ddp_error *error = load(text, overrides, &job);
    cr_assert_not_null(error, "accepted, expected %s", words);
    cr_assert_eq(ddp_error_exit_code(error), 2);
    char *printed = print(error);
    cr_assert_not_null(strstr(printed, words), "\"%s\" is not in:\n%s", words, printed);
    free(printed);
    ddp_error_free(error);
}

static char *write_job(const ddp_job *job, bool origins)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    ddp_job_write(job, origins, out);
    fclose(out);
    return text;
}

Test(job, every_key_has_its_value_or_its_default, .timeout = 10)
{
    ddp_job *job = load_good(GOOD, NULL);
    cr_assert_str_eq(job->model.ops->name, "tiny");
    cr_assert_str_eq(job->data.ops->name, "idx");
    cr_assert_str_eq(job->optimizer.ops->name, "adamw");
    cr_assert_not_null(job->data.settings);
    cr_assert_str_eq(job->data.train, "a.idx");
    cr_assert_null(job->data.validation);
    cr_assert(job->data.shuffle);
    cr_assert_eq(job->train.steps, 10);
    cr_assert_eq(job->train.epochs, 0);
    cr_assert_eq(job->train.micro_batch, DDP_AUTO);
    cr_assert_eq(job->optimizer.lr, 1e-4);
    cr_assert_eq(job->parallel.ranks, DDP_AUTO);
    cr_assert_eq(job->parallel.bucket_mb, 0);
    cr_assert_eq(job->parallel.first_bucket_mb, 1);
    cr_assert_eq(job->watchdog.timeout_s, 60);
    cr_assert_eq(job->metrics.every, 10);
    cr_assert_eq(job->launch.env.count, 0u);
    cr_assert(ddp_text_starts(job->name, "ddp-job-"));
    cr_assert(ddp_text_starts(job->output, "runs/ddp-job-"));
    ddp_job_free(job);
}

Test(job, empty_sections_are_fine, .timeout = 10)
{
    ddp_job *job = load_good(GOOD "watchdog:\nlaunch: {}\nname:\n", NULL);
    cr_assert_eq(job->watchdog.startup_s, 300);
    ddp_job_free(job);
}

/* C01 */
Test(job, exponents_are_numbers, .timeout = 10)
{
    static const char *const same[] = {"1e-4", "1.0e-4", "1E-4", ".0001", "+1e-4", "\"1e-4\""};
    static const char *const bad[] = {"fast", "1e-4x", "1e400", ".nan", "-1e-4"};
    char text[512], expected[512];
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        snprintf(text, sizeof text, MODEL DATA TRAIN "optimizer:\n  lr: %s\n", same[i]);
        ddp_job *job = load_good(text, NULL);
        cr_assert_eq(job->optimizer.lr, 0.0001, "%s", same[i]);
        ddp_job_free(job);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(text, sizeof text, MODEL DATA TRAIN "optimizer:\n  lr: %s\n", bad[i]);
        snprintf(expected, sizeof expected,
                 "FILE:5:7: error: optimizer.lr: \"%s\" is not a number of at least 0\n", bad[i]);
        check_words(text, NULL, expected);
    }
    check_words(MODEL DATA TRAIN "optimizer:\n  lr:\n", NULL,
                "FILE:5:6: error: optimizer.lr: no value is given");
}

/* C02 */
Test(job, duplicates_are_refused_with_both_lines, .timeout = 10)
{
    check_error(MODEL DATA OPTIMIZER "train: {global_batch: 8, steps: 10, steps: 20}\n", NULL,
                "FILE:4:37: error: duplicate key \"steps\": it is on line 4 already\n"
                "     4 | train: {global_batch: 8, steps: 10, steps: 20}\n"
                "       |                                     ^~~~~\n");
    check_words(GOOD "name: a\ntrain: {steps: 20, global_batch: 8}\n", NULL,
                "FILE:6:1: error: duplicate key \"train\": it is on line 3 already\n");
    check_words(MODEL DATA OPTIMIZER "train:\n  global_batch: 8\n  steps: 10\n  \"steps\": 20\n", NULL,
                "FILE:7:3: error: duplicate key \"steps\": it is on line 6 already\n");
    check_words("train:\n  <<: {steps: 3}\n  steps: 4\n", NULL,
                "FILE:2:3: error: merge keys (<<) are not read\n");
}

/* C03 */
Test(job, misplaced_and_misspelt_keys_get_advice, .timeout = 10)
{
    check_error(GOOD "lr: 0.1\n", NULL,
                "FILE:5:1: error: unknown key \"lr\"\n"
                "     5 | lr: 0.1\n"
                "       | ^~\n"
                "    help: did you mean optimizer.lr? it belongs in section optimizer\n");
    check_error(MODEL DATA OPTIMIZER "train: {steps: 1, global_batch: 8, micro-batch: 4}\n", NULL,
                "FILE:4:36: error: unknown key \"train.micro-batch\"\n"
                "     4 | train: {steps: 1, global_batch: 8, micro-batch: 4}\n"
                "       |                                    ^~~~~~~~~~~\n"
                "    help: did you mean \"micro_batch\"?\n");
    check_words(MODEL DATA OPTIMIZER "train: {steps: 1, global_batch: 8, acumulate: 2}\n", NULL,
                "did you mean to accumulate?");
    check_error(GOOD "scheduling: {kind: cosine}\n", NULL,
                "FILE:5:1: error: unknown section \"scheduling\"\n"
                "     5 | scheduling: {kind: cosine}\n"
                "       | ^~~~~~~~~~\n"
                "    help: did you mean \"schedule\"? it is a section at the top of the file\n");
    check_words(GOOD "zzz: {a: 1}\n", NULL, "help: known here: name, output, model, data, train, optimizer");
    check_error(MODEL TRAIN OPTIMIZER "data:\n  format: idx\n  vocab_size: 5\n", NULL,
                "FILE:6:3: error: data.vocab_size is a key of format words, not of idx\n"
                "     6 |   vocab_size: 5\n"
                "       |   ^~~~~~~~~~\n");
    check_words(GOOD "metrics: {train: 1}\n", NULL, "did you mean data.train?");
    check_words(GOOD "learning_rate: 1\n", NULL, "did you mean optimizer.lr?");
    check_words(GOOD "metrics: {steps: 1}\n", NULL, "did you mean train.steps? it belongs in section train");
    check_words(GOOD "metrics: {optimizer: {}}\n", NULL,
                "did you mean \"optimizer\"? it is a section at the top of the file");
}

/* C05 */
Test(job, whole_numbers_are_decimal, .timeout = 10)
{
    static const char *const bad[] = {"1_000", "0x10", "0o10", "1e3", "3.0", "12:30", "99999999999999999999",
                                      "-1"};
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"010", 10}, {"08", 8}, {" 5 ", 5}, {"5 # five", 5}};
    char text[512], expected[512];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        snprintf(text, sizeof text, MODEL DATA OPTIMIZER "train:\n  global_batch: 8\n  steps: %s\n",
                 good[i].text);
        ddp_job *job = load_good(text, NULL);
        cr_assert_eq(job->train.steps, good[i].value, "%s", good[i].text);
        ddp_job_free(job);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(text, sizeof text, MODEL DATA OPTIMIZER "train:\n  global_batch: 8\n  steps: %s\n", bad[i]);
        snprintf(expected, sizeof expected,
                 "FILE:6:10: error: train.steps: \"%s\" is not a whole number from 1 to 1e12\n", bad[i]);
        check_words(text, NULL, expected);
    }
    check_words(GOOD "parallel: {ranks: 0}\n", NULL,
                "parallel.ranks: \"0\" is not a whole number from 1 to 65536, or auto");
    check_words(GOOD, "train.micro_batch=2147483648",
                "train.micro_batch: \"2147483648\" is not a whole number from 1 to 2147483647");
}

Test(job, all_errors_come_at_once_in_the_order_of_the_file, .timeout = 10)
{
    check_error("lr: 0.1\n"
                "model: {kind: tinny, inputs: 4}\n"
                "data: {format: idx}\n"
                "train: {steps: x, global_batch: 0}\n"
                "optimizer: {kind: sgd, lr: fast, momentum: 2}\n",
                "metrics.every=0",
                "FILE:1:1: error: unknown key \"lr\"\n"
                "     1 | lr: 0.1\n"
                "       | ^~\n"
                "    help: did you mean optimizer.lr? it belongs in section optimizer\n"
                "FILE:2:15: error: model.kind: \"tinny\" is not tiny or deep\n"
                "     2 | model: {kind: tinny, inputs: 4}\n"
                "       |               ^~~~~\n"
                "    help: did you mean \"tiny\"?\n"
                "FILE:4:16: error: train.steps: \"x\" is not a whole number from 1 to 1e12\n"
                "     4 | train: {steps: x, global_batch: 0}\n"
                "       |                ^\n"
                "FILE:4:33: error: train.global_batch: \"0\" is not a whole number from 1 to 2147483647\n"
                "     4 | train: {steps: x, global_batch: 0}\n"
                "       |                                 ^\n"
                "FILE:5:28: error: optimizer.lr: \"fast\" is not a number of at least 0\n"
                "     5 | optimizer: {kind: sgd, lr: fast, momentum: 2}\n"
                "       |                            ^~~~\n"
                "FILE:5:44: error: optimizer.momentum: \"2\" is not a number from 0 to 1\n"
                "     5 | optimizer: {kind: sgd, lr: fast, momentum: 2}\n"
                "       |                                            ^\n"
                "command line: error: metrics.every: \"0\" is not a whole number from 1 to 1e12\n"
                "       | metrics.every=0\n"
                "       |               ^\n");
}

Test(job, what_is_missing_is_named, .timeout = 10)
{
    check_error("model: {kind: tiny, inputs: 4}\n" DATA "train:\n  seed: 3\n", NULL,
                "FILE:1:1: error: model.outputs is missing\n"
                "     1 | model: {kind: tiny, inputs: 4}\n"
                "       | ^~~~~\n"
                "    help: a whole number from 1 to 1000000: classes\n"
                "FILE: error: optimizer.lr is missing\n"
                "    help: a number of at least 0: learning rate, at its highest; 1e-4, 0.0001 and .0001 are "
                "the same\n"
                "FILE:3:1: error: train.global_batch is missing\n"
                "     3 | train:\n"
                "       | ^~~~~\n"
                "    help: a whole number from 1 to 2147483647: samples of one optimizer step, over all "
                "ranks: micro_batch "
                "x accumulation x ranks\n"
                "FILE:3:1: error: train.steps is missing\n"
                "     3 | train:\n"
                "       | ^~~~~\n"
                "    help: a whole number of at least 1; train.epochs may stand for it\n");
    check_words(
        MODEL TRAIN OPTIMIZER, NULL,
        "FILE: error: data.format is missing\n    help: how the files are to be read: idx or words\n");
    check_words(DATA TRAIN OPTIMIZER, NULL, "FILE: error: model.kind is missing\n");
}

Test(job, steps_and_epochs_exclude_each_other, .timeout = 10)
{
    check_error(MODEL DATA OPTIMIZER "train:\n  epochs: 2\n  global_batch: 8\n  steps: 10\n", NULL,
                "FILE:7:3: error: train.epochs and train.steps exclude each other\n"
                "     7 |   steps: 10\n"
                "       |   ^~~~~\n"
                "    while train.epochs is on line 5\n"
                "    help: leave one of them out\n");
    ddp_job *job = load_good(GOOD, "train.epochs=3");
    cr_assert_eq(job->train.epochs, 3);
    cr_assert_eq(job->train.steps, 0);
    ddp_job_free(job);
    job = load_good(MODEL DATA OPTIMIZER "train: {epochs: 2, global_batch: 8}\n",
                    "train.epochs=5|train.steps=7");
    cr_assert_eq(job->train.epochs, 0);
    cr_assert_eq(job->train.steps, 7);
    ddp_job_free(job);
}

Test(job, overrides_win_and_the_last_one_most, .timeout = 10)
{
    ddp_job *job = load_good(GOOD, "train.steps=20|train.steps=30|optimizer.betas=[.5, "
                                   ".6]|output=/tmp/x|launch.env.A=1|launch.env.B=|launch.env.A=2");
    cr_assert_eq(job->train.steps, 30);
    cr_assert_str_eq(job->output, "/tmp/x");
    cr_assert_eq(job->launch.env.count, 2u);
    cr_assert_str_eq(job->launch.env.at[0].value, "");
    cr_assert_str_eq(job->launch.env.at[1].value, "2");
    ddp_job_free(job);
    job = load_good(GOOD, "launch.env={X: 1}|launch.env.Y=2|launch.env={Z: 3}");
    cr_assert_eq(job->launch.env.count, 1u);
    cr_assert_str_eq(job->launch.env.at[0].name, "Z");
    ddp_job_free(job);
    /* What an override replaces needs not be right. */
    job = load_good(MODEL DATA TRAIN "optimizer: {lr: fast}\n", "optimizer.lr=1");
    cr_assert_eq(job->optimizer.lr, 1);
    ddp_job_free(job);
}

Test(job, overrides_are_checked_like_keys, .timeout = 10)
{
    check_error(GOOD, "train.steps=2x",
                "command line: error: train.steps: \"2x\" is not a whole number from 1 to 1e12\n"
                "       | train.steps=2x\n"
                "       |             ^~\n");
    check_error(GOOD, "train.stpes=2",
                "command line: error: unknown key \"train.stpes\"\n"
                "       | train.stpes=2\n"
                "       | ^~~~~~~~~~~\n"
                "    help: did you mean \"steps\"?\n");
    check_error(GOOD, "optmizer.lr=2",
                "command line: error: unknown key \"optmizer.lr\"\n"
                "       | optmizer.lr=2\n"
                "       | ^~~~~~~~~~~\n"
                "    help: did you mean \"optimizer.lr\"?\n");
    check_error(GOOD, "lr=2",
                "command line: error: unknown key \"lr\"\n"
                "       | lr=2\n"
                "       | ^~\n"
                "    help: did you mean optimizer.lr? it belongs in section optimizer\n");
    check_error(GOOD, "steps",
                "ddprun: error: \"steps\" is no override\n"
                "    help: overrides look like train.steps=20\n");
    check_words(GOOD, "launch.env.A-B=1", "launch.env: \"A-B\" is not a name");
    check_words(GOOD, "train.steps.x=1", "unknown key \"train.steps.x\"");
    check_words(GOOD, ".x=1", "unknown key \".x\"");
    check_words(GOOD, "train.=1", "unknown key \"train.\"");
    check_words(GOOD, "train=5", "train: a section with keys of its own is needed, not \"5\"");
    check_words(GOOD, "data.train=[a", "command line: error: not YAML: did not find expected ',' or ']'");
}

Test(job, an_override_of_the_kind_says_what_it_breaks, .timeout = 10)
{
    check_error(GOOD, "model.kind=deep|model.layers=3",
                "FILE:1:21: error: model.inputs is a key of kind tiny, not of deep\n"
                "     1 | model: {kind: tiny, inputs: 4, outputs: 2}\n"
                "       |                     ^~~~~~\n"
                "    help: the override model.kind=deep chose kind deep\n"
                "FILE:1:32: error: model.outputs is a key of kind tiny, not of deep\n"
                "     1 | model: {kind: tiny, inputs: 4, outputs: 2}\n"
                "       |                                ^~~~~~~\n"
                "    help: the override model.kind=deep chose kind deep\n");
    ddp_job *job = load_good(GOOD, "model={kind: deep, layers: 3}"); /* a whole section */
    cr_assert_str_eq(job->model.ops->name, "deep");
    ddp_job_free(job);
}

Test(job, every_value_knows_where_it_was_written, .timeout = 10)
{
    ddp_job *job = load_good(GOOD, "optimizer.lr=3");
    ddp_place place = ddp_job_where(job, &job->train.global_batch);
    cr_assert_eq(place.line, 3);
    cr_assert_eq(place.column, 34);
    cr_assert_str_eq(place.text, "train: {steps: 10, global_batch: 8}");
    cr_assert_eq(ddp_job_where(job, &job->model.ops).line, 1);
    cr_assert_eq(ddp_job_where(job, &job->data.ops).line, 2);
    cr_assert_eq(ddp_job_where(job, &job->data.train).line, 2);
    cr_assert_eq(ddp_job_where(job, job->model.settings).line, 1);
    cr_assert_str_eq(ddp_job_where(job, &job->optimizer.lr).file, "command line");
    cr_assert_str_eq(ddp_job_where(job, &job->optimizer.lr).text, "optimizer.lr=3");
    cr_assert_null(ddp_job_where(job, &job->optimizer.ops).file);
    cr_assert_null(ddp_job_where(job, &job->train.seed).file);
    ddp_job_free(job);
}

/* C14, and everything else that is written: it reads back to the same job. */
Test(job, what_is_written_reads_back_to_the_same_job, .timeout = 10)
{
    ddp_job *job = load_good(
        "name: \xc3\xbcn\xc3\xaf (1)\noutput: \"/tmp/sp ace/x\"\n"
        "model: {kind: tiny, inputs: 4, outputs: 2, hidden: [3, 5]}\n"
        "data: {format: words, train: 'a: b', suffixes: ['', '.x']}\n"
        "train: {epochs: 2, global_batch: 8, clip_norm: 1e-7}\n"
        "optimizer: {kind: sgd, lr: .3333333333333333, momentum: 0}\n"
        "parallel: {bucket_mb: 2.5, ranks: 3, comm_thread: true}\n"
        "launch:\n  hosts: [a, 'b:2']\n  env:\n    A: \"64(x2)\"\n    B: \"01 02 03\"\n    C: \"a'b\\\"c\"\n"
        "    D: \"line1\\nline2\"\n    E: \"$HOME;id\"\n    F: \"back\\\\\"\n    G: \"\"\n    H: \"k=v\"\n"
        "    N: null\n    I: |\n      two\n      lines\n",
        NULL);
    char *text = write_job(job, false);
    ddp_job *again = load_good(text, NULL);
    char *text_again = write_job(again, false), *shown = write_job(again, true);
    cr_assert_str_eq(text, text_again);
    cr_assert_eq(ddp_job_digest(job), ddp_job_digest(again));
    cr_assert_eq(again->launch.env.count, 10u);
    for (size_t i = 0; i < 10; i++) {
        cr_assert_str_eq(job->launch.env.at[i].name, again->launch.env.at[i].name);
        cr_assert_str_eq(job->launch.env.at[i].value, again->launch.env.at[i].value);
    }
    cr_assert_str_eq(again->launch.env.at[3].value, "line1\nline2");
    cr_assert_str_eq(again->launch.env.at[8].value, "null");
    cr_assert_str_eq(again->launch.env.at[9].value, "two\nlines\n");
    cr_assert_str_eq(again->name, "\xc3\xbcn\xc3\xaf (1)");
    cr_assert_eq(again->optimizer.lr, job->optimizer.lr);
    ddp_job *shown_again = load_good(shown, NULL); /* origins are comments */
    cr_assert_eq(ddp_job_digest(job), ddp_job_digest(shown_again));
    free(text);
    free(text_again);
    free(shown);
    ddp_job_free(job);
    ddp_job_free(again);
    ddp_job_free(shown_again);
}

Test(job, shown_values_tell_their_origin, .timeout = 10)
{
    ddp_job *job = load_good(GOOD, "optimizer.lr=3");
    char *text = write_job(job, true);
    cr_assert_not_null(strstr(text, "  steps: 10                                 # ddp-job-"));
    cr_assert_not_null(strstr(text, "\n  lr: 3                                     # command line\n"), "%s",
                       text);
    cr_assert_not_null(strstr(text, "\n  seed: 1                                   # default\n"), "%s", text);
    cr_assert_null(strstr(text, "epochs"));
    cr_assert_null(strstr(text, "validation"));
    free(text);
    ddp_job_free(job);
}

Test(job, the_digest_is_of_what_decides_numbers, .timeout = 10)
{
    ddp_job *job = load_good(GOOD, NULL);
    uint64_t digest = ddp_job_digest(job);
    ddp_job_free(job);
    static const char *const same[] = {"name=x", "output=y", "launch.env.A=1", "metrics.every=3",
                                       "watchdog.timeout_s=5"};
    static const char *const other[] = {"train.steps=11",   "train.seed=2", "optimizer.lr=2e-4",
                                        "model.hidden=[9]", "data.train=b", "optimizer.kind=sgd",
                                        "data.format=words"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        job = load_good(GOOD, same[i]);
        cr_assert_eq(ddp_job_digest(job), digest, "%s", same[i]);
        ddp_job_free(job);
    }
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        job = load_good(GOOD, other[i]);
        cr_assert_neq(ddp_job_digest(job), digest, "%s", other[i]);
        ddp_job_free(job);
    }
}

Test(job, names_are_fit_for_paths, .timeout = 10)
{
    static const char *const bad[] = {"name=a/b", "name=..", "name=\"\"", "name=\"a\\nb\""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_words(GOOD, bad[i], "name: a name is up to 200 characters");
    check_words(GOOD, "output=\"\"", "output: a directory is needed");
    ddp_job *job = NULL;
    ddp_error *error = ddp_job_load("-", NULL, 0, &job);
    cr_assert_eq(ddp_error_exit_code(error), 2);
    ddp_error_free(error);
}

static char *keys(const char *key)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    ddp_error *error = ddp_job_print_keys(key, out);
    if (error != NULL)
        ddp_error_print(error, "error", out);
    ddp_error_free(error);
    fclose(out);
    return text;
}

Test(job, keys_are_explained, .timeout = 10)
{
    char *all = keys(NULL);
    cr_assert_not_null(strstr(all, "\nmodel.tiny: a small one\n"));
    cr_assert_not_null(strstr(all, "\nmodel.deep: a large one\n"));
    cr_assert_not_null(strstr(all, "micro_batch"));
    free(all);
    static const struct {
        const char *asked, *there, *not_there;
    } cases[] = {{"train", "global_batch", "momentum"},
                 {"train.steps", "steps", "global_batch"},
                 {"model.deep.layers", "layers", "inputs"},
                 {"model.layers", "layers", "inputs"},
                 {"model.deep", "dropout", "inputs"},
                 {"name", "name of the job", "output"},
                 {"model.kind", "tiny | deep", "layers"},
                 {"data.idx", "images", "vocab_size"},
                 {"trian", "did you mean \"train\"?", "loss"},
                 {"steps", "did you mean \"train.steps\"?", "loss"},
                 {"train.stepz", "did you mean \"train.steps\"?", "loss"},
                 {"qqqqqq", "ddprun keys lists all", "did you"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = keys(cases[i].asked);
        cr_assert_not_null(strstr(text, cases[i].there), "%s: %s", cases[i].asked, text);
        cr_assert_null(strstr(text, cases[i].not_there), "%s: %s", cases[i].asked, text);
        free(text);
    }
}

Test(job, the_schema_is_closed, .timeout = 10)
{
    char *text = NULL;
    size_t bytes = 0, opened = 0, closed = 0;
    FILE *out = open_memstream(&text, &bytes);
    ddp_job_print_schema(out);
    fclose(out);
    cr_assert(ddp_text_starts(text, "{\"$schema\": \"https://json-schema.org/draft/2020-12/schema\""));
    cr_assert_not_null(strstr(text, "\"const\": \"deep\""));
    for (char *at = text; (at = strstr(at, "\"properties\"")) != NULL; at++)
        opened++;
    for (char *at = text; (at = strstr(at, "\"additionalProperties\": false")) != NULL; at++)
        closed++;
    cr_assert_eq(opened, closed);
    free(text);
}
