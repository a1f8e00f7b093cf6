/* Errors, random numbers, faults, files. */
#include "core/fault.h"
#include "core/files.h"
#include "core/memory.h"
#include "core/rng.h"
#include "support/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void check_print(ddp_error *error, const char *expected)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    ddp_error_print(error, "error", out);
    fclose(out);
    cr_assert_str_eq(text, expected);
    free(text);
    ddp_error_free(error);
}

Test(error, prints_place_mark_while_and_help)
{
    ddp_place place = {"configs/gpt.yaml", 14, 17, 3, "  global_batch: 100"};
    ddp_error *error =
        ddp_error_at(DDP_ERR_INPUT, place, "train.global_batch: 100 samples do not divide over 8 ranks");
    error = ddp_error_help(ddp_error_while(error, "planning %d ranks on 1 node", 8), "96 or 104 would");
    cr_assert_eq(ddp_error_exit_code(error), 2);
    check_print(error,
                "configs/gpt.yaml:14:17: error: train.global_batch: 100 samples do not divide over 8 ranks\n"
                "    14 |   global_batch: 100\n"
                "       |                 ^~~\n"
                "    while planning 8 ranks on 1 node\n"
                "    help: 96 or 104 would\n");
}

Test(error, joins_and_counts)
{
    ddp_error *error = NULL;
    error = ddp_error_join(error, ddp_error_make(DDP_ERR_MACHINE, "one"));
    error = ddp_error_join(error, NULL);
    error = ddp_error_join(error, ddp_error_make(DDP_ERR_IO, "two"));
    cr_assert_eq(ddp_error_count(error), 2u);
    cr_assert_eq(ddp_error_exit_code(error), 3);
    check_print(error, "ddprun: error: one\nddprun: error: two\n");
    cr_assert_null(ddp_error_while(NULL, "nothing"));
    cr_assert_eq(ddp_error_exit_code(NULL), 0);
}

Test(error, a_place_is_given_once)
{
    ddp_error *error = ddp_error_make(DDP_ERR_INPUT, "x");
    error = ddp_error_locate(error, (ddp_place){.file = "a.yaml"});
    error = ddp_error_locate(error, (ddp_place){.file = "b.yaml"});
    check_print(error, "a.yaml: error: x\n");
}

/* The known answers of Philox 4x32-10 from the authors' test vectors. */
Test(rng, philox_known_answers)
{
    uint32_t words[4];
    ddp_rng_block(0, 0, 0, words);
    cr_assert_eq(words[0], 0x6627e8d5u);
    cr_assert_eq(words[1], 0xe169c58du);
    cr_assert_eq(words[2], 0xbc57ac4cu);
    cr_assert_eq(words[3], 0x9b00dbd8u);
    ddp_rng_block(UINT64_MAX, UINT64_MAX, UINT64_MAX, words);
    cr_assert_eq(words[0], 0x408f276du);
    cr_assert_eq(words[1], 0x41c83b0eu);
    cr_assert_eq(words[2], 0xa20bc7c6u);
    cr_assert_eq(words[3], 0x6d5451fdu);
}

Test(rng, any_part_of_a_sequence_stands_alone)
{
    float whole[100], part[10];
    ddp_rng_fill_normal(3, 4, 0, whole, 100, 1.0f);
    ddp_rng_fill_normal(3, 4, 57, part, 10, 1.0f);
    cr_assert_eq(memcmp(whole + 57, part, sizeof part), 0);
    ddp_rng_fill_uniform(3, 4, 0, whole, 100, -1, 1);
    ddp_rng_fill_uniform(3, 4, 33, part, 10, -1, 1);
    cr_assert_eq(memcmp(whole + 33, part, sizeof part), 0);
}

Test(rng, moments)
{
    enum { COUNT = 200000 };
    float *values = malloc(COUNT * sizeof *values);
    double sum = 0, squares = 0;
    ddp_rng_fill_normal(1, 2, 0, values, COUNT, 2.0f);
    for (int i = 0; i < COUNT; i++) {
        sum += values[i];
        squares += (double)values[i] * values[i];
    }
    cr_assert_float_eq(sum / COUNT, 0, 0.02);
    cr_assert_float_eq(sqrt(squares / COUNT), 2, 0.02);
    free(values);
}

Test(fault, fires_once_for_its_rank_and_step)
{
    setenv("DDP_FAULT", "rank=1,step=3,do=nan;rank=0,do=inf", 1);
    check_ok(ddp_fault_load(1));
    ddp_fault_set_step(2);
    cr_assert_not(ddp_fault_due(DDP_FAULT_NAN));
    ddp_fault_set_step(3);
    cr_assert_not(ddp_fault_due(DDP_FAULT_INF));
    cr_assert(ddp_fault_due(DDP_FAULT_NAN));
    cr_assert_not(ddp_fault_due(DDP_FAULT_NAN));
    unsetenv("DDP_FAULT");
}

Test(fault, refuses_what_it_does_not_know)
{
    static const char *const bad[] = {"do=explode",    "rank=1",  "rank=x,do=nan", "do=sleep:1",
                                      "do=raise:NOPE", "do=exit", "do=nan:1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("DDP_FAULT", bad[i], 1);
        ddp_error *error = ddp_fault_load(0);
        cr_assert_not_null(error, "%s", bad[i]);
        cr_assert_not_null(strstr(ddp_error_message(error), bad[i]), "%s", ddp_error_message(error));
        ddp_error_free(error);
    }
    unsetenv("DDP_FAULT");
}

Test(files, refuses_what_is_no_file_and_says_what_it_is)
{
    char *data;
    size_t bytes;
    char fifo[] = "/tmp/ddp-test-XXXXXX";
    cr_assert_not_null(mkdtemp(fifo));
    ddp_error *error = ddp_file_load(fifo, 100, &data, &bytes);
    cr_assert_not_null(strstr(ddp_error_message(error), "is a directory"));
    ddp_error_free(error);
    char *path;
    check_ok(ddp_path_join(fifo, "pipe", &path));
    cr_assert_eq(mkfifo(path, 0600), 0);
    error = ddp_file_load(path, 100, &data, &bytes);
    cr_assert_not_null(strstr(ddp_error_message(error), "named pipe"));
    ddp_error_free(error);
    unlink(path);
    check_ok(ddp_file_save(path, "hello", 5));
    error = ddp_file_load(path, 4, &data, &bytes);
    cr_assert_not_null(strstr(ddp_error_message(error), "5 bytes"));
    ddp_error_free(error);
    check_ok(ddp_file_load(path, 5, &data, &bytes));
    cr_assert_str_eq(data, "hello");
    free(data);
    int fd;
    int64_t size;
    char buffer[8];
    check_ok(ddp_file_open(path, &fd, &size));
    error = ddp_file_read(fd, path, 3, buffer, 4);
    cr_assert_not_null(strstr(ddp_error_message(error), "ends at byte 5"));
    ddp_error_free(error);
    close(fd);
    unlink(path);
    free(path);
    check_ok(ddp_path_join(fifo, "a/b/c", &path));
    check_ok(ddp_directory_make(path));
    check_ok(ddp_directory_make(path));
    free(path);
}
