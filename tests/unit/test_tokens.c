/* Token files: headers, plain ids, shards, and files that are not what they are said to be (cases C36, C37).
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data_support.h"
#include "runtime/data/datasets.h"
#include "support/test.h"

enum { AUTO, U16, U32 };

static ddp_error *open_tokens(const char *path, int dtype, int64_t window, int64_t classes,
                              ddp_dataset **dataset)
{
    ddp_sample want = {DDP_I32, window, DDP_I32, window, classes, window};
    int settings = dtype; /* the one setting of the format */
    ddp_dataset_config config = {.settings = &settings, .path = path, .place = data_place, .want = want};
    cr_assert_eq(ddp_dataset_tokens_ops.config_bytes, sizeof settings);
    return ddp_dataset_tokens_ops.open(&config, dataset);
}

/* A file of ids first, first + 1, ... with llm.c's header (magic 0 = none). */
static const char *make_file(const char *name, int32_t magic, int32_t version, int width, int count,
                             int first)
{
    static unsigned char bytes[1024 + 4 * 1000];
    int32_t header[256] = {magic, version, count};
    size_t at = 0;
    if (magic != 0) {
        memcpy(bytes, header, sizeof header);
        at = sizeof header;
    }
    for (int i = 0; i < count; i++, at += (size_t)width) {
        uint32_t id = (uint32_t)(first + i);
        memcpy(bytes + at, &id, (size_t)width);
    }
    return data_file(name, bytes, at);
}

static void check_windows(ddp_dataset *dataset, int64_t window, int64_t count, const int32_t *first_ids)
{
    int32_t input[64], target[64];
    cr_assert_eq(dataset->count, count);
    for (int64_t id = 0; id < count; id++) {
        memset(input, 0x7F, sizeof input);
        memset(target, 0x7F, sizeof target);
        check_ok(dataset->ops->read(dataset, &id, 1, input, target));
        for (int64_t t = 0; t < window; t++) {
            cr_assert_eq(input[t], first_ids[id] + t);
            cr_assert_eq(target[t], first_ids[id] + t + 1);
        }
    }
}

Test(tokens, both_headers_and_plain_files_give_the_same_windows)
{
    static const int32_t begins[] = {100, 108, 116};
    const struct {
        int32_t magic, version;
        int width, dtype;
    } kinds[] = {{20240520, 1, 2, AUTO},
                 {20240801, 7, 4, AUTO},
                 {20240520, 1, 2, U16},
                 {0, 0, 2, U16},
                 {0, 0, 4, U32}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        ddp_dataset *dataset;
        const char *path = make_file("a.bin", kinds[i].magic, kinds[i].version, kinds[i].width, 25, 100);
        check_ok(open_tokens(path, kinds[i].dtype, 8, 50257, &dataset));
        check_windows(dataset, 8, 3, begins);
        ddp_dataset_close(dataset);
        data_files_remove();
    }
}

/* 0, 1, T, T + 1, T + 2 tokens with T = 8. */
Test(tokens, too_few_say_have_and_need)
{
    static const int counts[] = {0, 1, 8};
    ddp_dataset *dataset;
    for (int i = 0; i < 3; i++) {
        const char *path = make_file("few.bin", 20240520, 1, 2, counts[i], 0);
        check_error(open_tokens(path, AUTO, 8, 256, &dataset), DDP_ERR_INPUT,
                    "job.yaml:3:10: error: ", "one sample needs 9 in one file", NULL);
    }
    for (int count = 9; count <= 10; count++) {
        check_ok(open_tokens(make_file("few.bin", 20240520, 1, 2, count, 0), AUTO, 8, 256, &dataset));
        cr_assert_eq(dataset->count, 1);
        ddp_dataset_close(dataset);
    }
    data_files_remove();
}

/* Windows never reach from one shard into the next; an empty shard between them takes no id. */
Test(tokens, a_pattern_names_shards_in_the_order_of_their_names)
{
    static const int32_t begins[] = {0, 8, 500, 700};
    char pattern[512];
    ddp_dataset *dataset;
    make_file("t_000.bin", 20240520, 1, 2, 20, 0);
    make_file("t_001.bin", 20240520, 1, 2, 0, 0);
    make_file("t_002.bin", 20240520, 1, 2, 9, 500);
    snprintf(pattern, sizeof pattern, "%s", make_file("t_003.bin", 20240520, 1, 2, 12, 700));
    strcpy(strrchr(pattern, '/'), "/t_*.bin");
    check_ok(open_tokens(pattern, AUTO, 8, 50257, &dataset));
    check_windows(dataset, 8, 4, begins);
    cr_assert_not_null(strstr(dataset->description, "41 tokens in 4 files"), "%s", dataset->description);
    ddp_dataset_close(dataset);
    strcpy(strrchr(pattern, '/'), "/u_*.bin");
    check_error(open_tokens(pattern, AUTO, 8, 50257, &dataset), DDP_ERR_INPUT, "no file is named like this",
                NULL);
    data_files_remove();
}

Test(tokens, what_is_wrong_is_said_with_its_byte)
{
    ddp_dataset *dataset;
    int64_t id = 1;
    int32_t input[8], target[8];
    check_error(open_tokens(make_file("a.bin", 20240520, 2, 2, 20, 0), AUTO, 8, 256, &dataset), DDP_ERR_INPUT,
                "a.bin: byte 4: found version 2; version 1 is expected", NULL);
    check_error(open_tokens(make_file("a.bin", 20240520, 1, 4, 20, 0), AUTO, 8, 256, &dataset), DDP_ERR_INPUT,
                "a.bin: byte 8: found 20 tokens of 2 bytes, which make a file of 1064 bytes; it has 1104",
                NULL);
    check_error(open_tokens(make_file("a.bin", 20240520, 1, 2, 20, 0), U32, 8, 256, &dataset), DDP_ERR_INPUT,
                "its header says ids of 2 bytes, data.dtype says uint32", NULL);
    check_error(open_tokens(make_file("a.bin", 0, 0, 2, 20, 0), AUTO, 8, 256, &dataset), DDP_ERR_INPUT,
                "no header of a token file", "data.dtype=uint16 or uint32", NULL);
    check_error(open_tokens(make_file("a.bin", 0, 0, 4, 40, 0), U16, 8, 256, &dataset), DDP_ERR_INPUT,
                "every second uint16 is 0", "data.dtype=uint32", NULL);
    check_error(open_tokens(data_file("odd.bin", "abcdefghijk", 11), U16, 2, 50257, &dataset), DDP_ERR_INPUT,
                "odd.bin has 11 bytes, which is no whole number of 2-byte ids", NULL);
    check_ok(open_tokens(make_file("a.bin", 20240520, 1, 2, 20, 245), AUTO, 8, 256, &dataset));
    check_error(dataset->ops->read(dataset, &id, 1, input, target), DDP_ERR_INPUT,
                "a.bin: byte 1046: found token id 256; the model takes ids below 256", NULL);
    ddp_dataset_close(dataset);
    data_files_remove();
}

/* Offsets beyond 2^31 bytes and 2^31 tokens, in a file that takes no room: all zeros but one known run. */
Test(tokens, large_files_are_read_right, .timeout = 60)
{
    const char *path = data_file("large.bin", "", 0);
    const int64_t bytes = 5LL << 30, window = 8;
    const int64_t at[] = {(1LL << 31) + 16,
                          (1LL << 32) + 32}; /* byte offsets; the second is token 2^31 + 16 */
    ddp_dataset *dataset;
    int fd = open(path, O_RDWR);
    if (ftruncate(fd, bytes) != 0) {
        close(fd);
        data_files_remove();
        return; /* a file system without room for the name of so large a file */
    }
    for (int i = 0; i < 2; i++) {
        uint16_t ids[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
        cr_assert_eq(pwrite(fd, ids, sizeof ids, at[i]), (ssize_t)sizeof ids);
    }
    close(fd);
    check_ok(open_tokens(path, U16, window, 16, &dataset));
    cr_assert_eq(dataset->count, (bytes / 2 - 1) / window);
    for (int i = 0; i < 2; i++) {
        int64_t id = at[i] / 2 / window;
        int32_t input[8], target[8];
        check_ok(dataset->ops->read(dataset, &id, 1, input, target));
        for (int t = 0; t < 8; t++) {
            cr_assert_eq(input[t], t + 1);
            cr_assert_eq(target[t], t + 2);
        }
    }
    cr_assert_eq(truncate(path, 1 << 20),
                 0); /* cut while it is open: an error with file and place, no SIGBUS */
    int64_t id = at[0] / 2 / window;
    int32_t input[8], target[8];
    check_error(dataset->ops->read(dataset, &id, 1, input, target), DDP_ERR_IO, "large.bin ends at byte",
                NULL);
    ddp_dataset_close(dataset);
    data_files_remove();
}

/* Ids that follow one another are read together, and not across the end of a shard. */
Test(tokens, runs_of_ids_read_the_same)
{
    static const int64_t orders[][6] = {
        {0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {1, 2, 4, 5, 0, 1}, {2, 3, 3, 4, 1, 2}};
    int32_t input[6 * 8], target[6 * 8], one_input[8], one_target[8];
    char pattern[512];
    ddp_dataset *dataset;
    make_file("t_0.bin", 20240520, 1, 2, 28, 0);
    make_file("t_1.bin", 20240801, 7, 4, 12, 500);
    snprintf(pattern, sizeof pattern, "%s", make_file("t_2.bin", 20240520, 1, 2, 20, 700));
    strcpy(strrchr(pattern, '/'), "/t_*.bin");
    check_ok(open_tokens(pattern, AUTO, 8, 50257, &dataset));
    cr_assert_eq(dataset->count, 6);
    for (size_t o = 0; o < sizeof orders / sizeof orders[0]; o++) {
        memset(input, 0x7F, sizeof input);
        memset(target, 0x7F, sizeof target);
        check_ok(dataset->ops->read(dataset, orders[o], 6, input, target));
        for (int i = 0; i < 6; i++) {
            check_ok(dataset->ops->read(dataset, &orders[o][i], 1, one_input, one_target));
            cr_assert_eq(memcmp(input + i * 8, one_input, sizeof one_input), 0);
            cr_assert_eq(memcmp(target + i * 8, one_target, sizeof one_target), 0);
        }
    }
    ddp_dataset_close(dataset);
    data_files_remove();
}

/* A window longer than what is converted at a time. */
Test(tokens, long_windows)
{
    enum { WINDOW = 40000 };
    static uint16_t ids[2 * WINDOW + 1];
    static int32_t input[WINDOW], target[WINDOW];
    ddp_dataset *dataset;
    for (int i = 0; i <= 2 * WINDOW; i++)
        ids[i] = (uint16_t)(i * 7 % 50000);
    check_ok(open_tokens(data_file("long.bin", ids, sizeof ids), U16, WINDOW, 50257, &dataset));
    cr_assert_eq(dataset->count, 2);
    int64_t id = 1;
    check_ok(dataset->ops->read(dataset, &id, 1, input, target));
    for (int i = 0; i < WINDOW; i++) {
        cr_assert_eq(input[i], ids[WINDOW + i]);
        cr_assert_eq(target[i], ids[WINDOW + i + 1]);
    }
    ddp_dataset_close(dataset);
    data_files_remove();
}
