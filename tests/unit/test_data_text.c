/* Text as byte tokens: windows, too little of it (case C36), and bytes that are no text. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data_support.h"
#include "runtime/data/bytes.h"
#include "runtime/data/datasets.h"
#include "support/test.h"

static ddp_sample want_tokens(int64_t tokens, int64_t classes)
{
    return (ddp_sample){.input = DDP_I32,
                        .input_count = tokens,
                        .target = DDP_I32,
                        .target_count = tokens,
                        .classes = classes,
                        .items = tokens};
}

static ddp_error *open_path(const char *path, ddp_sample want, ddp_dataset **dataset)
{
    ddp_dataset_config config = {.path = path, .place = data_place, .want = want};
    return ddp_dataset_text_ops.open(&config, dataset);
}

/* How many windows of 8 tokens `bytes` bytes give; -1 = refused. */
static int64_t count_windows(size_t bytes)
{
    char text[64];
    ddp_dataset *dataset;
    memset(text, 'x', sizeof text);
    ddp_error *error = open_path(data_file("t.txt", text, bytes), want_tokens(8, 256), &dataset);
    data_files_remove();
    if (error != NULL) {
        ddp_error_free(error);
        return -1;
    }
    int64_t count = dataset->count;
    ddp_dataset_close(dataset);
    return count;
}

/* C36 with T = 8: 0, 1, T, T + 1, T + 2 bytes, and around the second window. */
Test(data_text, windows_are_counted_exactly)
{
    cr_assert_eq(count_windows(0), -1);
    cr_assert_eq(count_windows(1), -1);
    cr_assert_eq(count_windows(8), -1);
    cr_assert_eq(count_windows(9), 1);
    cr_assert_eq(count_windows(10), 1);
    cr_assert_eq(count_windows(16), 1);
    cr_assert_eq(count_windows(17), 2);
    cr_assert_eq(count_windows(18), 2);
}

Test(data_text, too_little_text_says_have_and_need)
{
    ddp_dataset *dataset;
    check_error(open_path(data_file("a.txt", "12345678", 8), want_tokens(8, 256), &dataset), DDP_ERR_INPUT,
                "job.yaml:3:10: error: ", "a.txt has 8 bytes; one sample needs 9 (8 tokens", "help: ", NULL);
    check_error(open_path(data_file("b.txt", "", 0), want_tokens(8, 256), &dataset), DDP_ERR_INPUT,
                "b.txt has 0 bytes", NULL);
    data_files_remove();
}

Test(data_text, target_is_the_input_one_byte_on)
{
    ddp_dataset *dataset;
    int32_t input[8], target[8];
    memset(input, 0xFF, sizeof input);
    memset(target, 0xFF, sizeof target);
    check_ok(open_path(data_file("t.txt", "abcdefghi\xc3\xa9z", 12), want_tokens(4, 300), &dataset));
    cr_assert_eq(dataset->count, 2);
    cr_assert_str_eq(dataset->description, "2 windows of 4 bytes, 12 B of text");
    check_ok(dataset->ops->read(dataset, (int64_t[]){1, 0}, 2, input, target));
    cr_assert_eq(input[0], 'e');
    cr_assert_eq(target[0], 'f');
    cr_assert_eq(input[3], 'h');
    cr_assert_eq(target[3], 'i');
    cr_assert_eq(input[4], 'a');
    cr_assert_eq(target[7], 'e');
    ddp_dataset_close(dataset);
    data_files_remove();
}

Test(data_text, the_model_must_take_byte_tokens)
{
    ddp_dataset *dataset;
    ddp_sample features = {
        .input = DDP_F32, .input_count = 64, .target = DDP_I32, .target_count = 1, .classes = 10};
    const char *path = data_file("t.txt", "0123456789", 10);
    check_error(open_path(path, want_tokens(4, 255), &dataset), DDP_ERR_INPUT, "job.yaml:3:10",
                "ids below 255", "help: model.vocab: 256", NULL);
    check_error(open_path(path, features, &dataset), DDP_ERR_INPUT, "text makes tokens",
                "64 f32 features and 1 i32 class", NULL);
    check_error(open_path("nowhere.txt", want_tokens(4, 256), &dataset), DDP_ERR_INPUT, "job.yaml:3:10",
                "nowhere.txt: No such", NULL);
    data_files_remove();
}

static ddp_error *open_bytes(const char *bytes, size_t count)
{
    ddp_dataset *dataset = NULL;
    ddp_error *error = open_path(data_file("b.txt", bytes, count), want_tokens(4, 256), &dataset);
    data_files_remove();
    if (error == NULL)
        ddp_dataset_close(dataset);
    return error;
}

Test(data_text, bytes_that_are_no_utf8_are_refused_with_offset)
{
    check_ok(open_bytes("abcd\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", 13));
    check_ok(open_bytes("abcd\xe2\x82", 6)); /* the last character may be cut */
    check_error(open_bytes("\x1f\x8b\x08\0\0\0\0\0", 8), DDP_ERR_INPUT, "gzip", "help: gunzip", NULL);
    check_error(open_bytes("caf\xe9 au lait", 12), DDP_ERR_INPUT, "job.yaml:3:10", "b.txt: byte 3: found e9",
                "iconv", NULL);
    check_error(open_bytes("abcd\x80xyz", 8), DDP_ERR_INPUT, "byte 4: found 80", NULL);
    check_error(open_bytes("abcd\xc0\x80yz", 8), DDP_ERR_INPUT, "byte 4: found c0", NULL);
    check_error(open_bytes("abcd\xed\xa0\x80z", 8), DDP_ERR_INPUT, "byte 4: found ed", NULL);
    check_error(open_bytes("abcd\xf4\x90\x80\x80z", 9), DDP_ERR_INPUT, "byte 4: found f4", NULL);
    check_error(open_bytes("ab\0defgh", 8), DDP_ERR_INPUT, "byte 2: found 00", NULL);
}

/* Larger than what is held in memory, and windows larger than a chunk. */
Test(data_text, a_large_file_is_read_by_place)
{
    enum { TOKENS = 10000 };
    ddp_dataset *dataset;
    static int32_t input[TOKENS], target[TOKENS];
    int64_t bytes = DDP_BYTES_IN_MEMORY + 3 * TOKENS, windows = (bytes - 1) / TOKENS;
    const char *path = data_file("l.txt", "", 0);
    cr_assert_eq(truncate(path, bytes), 0);
    FILE *file = fopen(path, "r+b");
    fseeko(file, (windows - 1) * TOKENS, SEEK_SET);
    for (int i = 0; i <= TOKENS; i++)
        fputc('a' + i % 23, file);
    fclose(file);
    check_ok(open_path(path, want_tokens(TOKENS, 256), &dataset));
    cr_assert_eq(dataset->count, windows);
    check_ok(dataset->ops->read(dataset, (int64_t[]){windows - 1}, 1, input, target));
    for (int i = 0; i < TOKENS; i++) {
        cr_assert_eq(input[i], 'a' + i % 23);
        cr_assert_eq(target[i], 'a' + (i + 1) % 23);
    }
    ddp_dataset_close(dataset);
    data_files_remove();
}

Test(data_text, shipped_text_is_there)
{
    ddp_dataset *dataset;
    check_ok(open_path("configs/data/bible-train.txt", want_tokens(128, 256), &dataset));
    cr_assert_gt(dataset->count, 7000);
    ddp_dataset_close(dataset);
    check_ok(open_path("configs/data/bible-validation.txt", want_tokens(128, 256), &dataset));
    cr_assert_gt(dataset->count, 700);
    ddp_dataset_close(dataset);
}
