/* Text files to token files: encoding through a moving window, and sets of shards. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files.h"
#include "data_support.h"
#include "runtime/data/encode.h"
#include "runtime/data/shards.h"
#include "runtime/data/token_file.h"
#include "support/test.h"

#define FOLDER "tests/unit/bpe/"

static void encode_file(const ddp_encoder_config *config, const char *path, ddp_ids *ids)
{
    ddp_encoder *encoder;
    ids->count = 0;
    check_ok(ddp_encoder_open(config, path, &encoder));
    while (ddp_encoder_offset(encoder) < ddp_encoder_bytes(encoder))
        check_ok(ddp_encoder_next(encoder, INT64_MAX, ids));
    ddp_encoder_close(encoder);
}

static void encode_at_once(ddp_bpe *bpe, const char *text, size_t bytes, ddp_ids *ids)
{
    size_t bad;
    const unsigned char *at = (const unsigned char *)text;
    for (size_t done = 0, piece; done < bytes; done += piece) {
        piece = ddp_bpe_split(at + done, bytes - done, true);
        check_ok(ddp_bpe_encode(bpe, at + done, piece, ids, &bad));
    }
}

static void check_same(const ddp_ids *a, const ddp_ids *b)
{
    cr_assert_eq(a->count, b->count);
    cr_assert_eq(memcmp(a->at, b->at, a->count * sizeof *a->at), 0);
}

/* The window ends everywhere in the text: in pieces, in characters, and pieces longer than it. */
Test(tokenize, windows_do_not_show_in_the_ids, .timeout = 60)
{
    char *part, *text;
    size_t bytes, total = 0;
    ddp_bpe *bpe;
    ddp_ids once = {0}, windows = {0};
    check_ok(ddp_bpe_load(FOLDER "vocab.json", FOLDER "merges.txt", &bpe));
    check_ok(ddp_file_load(FOLDER "hostile.txt", 1 << 20, &part, &bytes));
    text = malloc(bytes * 200 + (3 << 20));
    for (int i = 0; i < 100; i++, total += bytes)
        memcpy(text + total, part, bytes);
    memset(text + total, 'q', 3 << 20);
    total += 3 << 20;
    for (int i = 0; i < 50; i++, total += bytes)
        memcpy(text + total, part, bytes);
    encode_at_once(bpe, text, total, &once);
    encode_file(&(ddp_encoder_config){.bpe = bpe}, data_file("text", text, total), &windows);
    check_same(&once, &windows);
    encode_file(&(ddp_encoder_config){.bpe = bpe, .mark = "<|endoftext|>"}, data_file("text", text, total),
                &windows);
    check_same(&once, &windows); /* a mark that does not occur changes nothing */
    free(once.at);
    free(windows.at);
    free(text);
    free(part);
    ddp_bpe_free(bpe);
    data_files_remove();
}

Test(tokenize, a_mark_is_one_id_and_ends_the_text_before_it)
{
    static const char text[] = "ab  <|endoftext|> ab<|endoftext|><|endoftext|>\n <|endoftex";
    ddp_bpe *bpe;
    ddp_ids wanted = {0}, got = {0};
    check_ok(ddp_bpe_load(FOLDER "vocab.json", FOLDER "merges.txt", &bpe));
    static const struct {
        const char *text;
        int marks;
    } parts[] = {{"ab  ", 1}, {" ab", 2}, {"\n <|endoftex", 0}};
    for (int i = 0; i < 3; i++) {
        encode_at_once(bpe, parts[i].text, strlen(parts[i].text), &wanted);
        for (int mark = 0; mark < parts[i].marks; mark++)
            wanted.at[wanted.count++] = 0;
    }
    encode_file(&(ddp_encoder_config){.bpe = bpe, .mark = "<|endoftext|>", .mark_id = 0},
                data_file("text", text, strlen(text)), &got);
    check_same(&wanted, &got);
    encode_file(&(ddp_encoder_config){.mark = "<|endoftext|>", .mark_id = 256},
                data_file("text", text, strlen(text)), &got);
    cr_assert_eq(got.count, strlen(text) - 3 * 12);
    cr_assert_eq(got.at[4], 256);
    cr_assert_eq(got.at[5], ' ');
    free(wanted.at);
    free(got.at);
    ddp_bpe_free(bpe);
    data_files_remove();
}

/* Byte by byte exactly; otherwise the piece that begins before the place is the last. */
Test(tokenize, stops_where_it_is_told)
{
    ddp_encoder *encoder;
    ddp_ids ids = {0};
    ddp_bpe *bpe;
    const char *path = data_file("text", "In the beginning was the Word", 29);
    check_ok(ddp_encoder_open(&(ddp_encoder_config){.bpe = NULL}, path, &encoder));
    check_ok(ddp_encoder_next(encoder, 5, &ids));
    cr_assert_eq(ddp_encoder_offset(encoder), 5);
    cr_assert_eq(ids.count, 5);
    cr_assert_eq(ids.at[4], 'h');
    ddp_encoder_close(encoder);
    check_ok(ddp_bpe_load(FOLDER "vocab.json", FOLDER "merges.txt", &bpe));
    check_ok(ddp_encoder_open(&(ddp_encoder_config){.bpe = bpe}, path, &encoder));
    check_ok(ddp_encoder_next(encoder, 3, &ids));
    cr_assert_eq(ddp_encoder_offset(encoder), 6); /* "In", " the" */
    check_ok(ddp_encoder_next(encoder, 6, &ids));
    cr_assert_eq(ddp_encoder_offset(encoder), 6);
    ddp_encoder_close(encoder);
    ddp_bpe_free(bpe);
    free(ids.at);
    data_files_remove();
}

Test(tokenize, errors_name_file_and_byte, .timeout = 30)
{
    static const char vocab[] = "{\"a\": 0, \"b\": 1, \"ab\": 2}";
    ddp_encoder *encoder;
    ddp_ids ids = {0};
    ddp_bpe *bpe;
    check_ok(
        ddp_bpe_load(data_file("vocab.json", vocab, strlen(vocab)), data_file("merges.txt", "a b", 3), &bpe));
    check_ok(ddp_encoder_open(&(ddp_encoder_config){.bpe = bpe}, data_file("text", "ababcab", 7), &encoder));
    check_error(ddp_encoder_next(encoder, INT64_MAX, &ids), DDP_ERR_INPUT,
                "text: byte 4: found byte 0x63, for which", NULL);
    ddp_encoder_close(encoder);
    check_error(ddp_encoder_open(&(ddp_encoder_config){.bpe = bpe}, "/tmp/ddp-no-such-file", &encoder),
                DDP_ERR_INPUT, "No such file", NULL);
    const char *large = data_file("large", "ab ", 3); /* zeros to its end: no break in them */
    cr_assert_eq(truncate(large, (16 << 20) + (3 << 20)), 0);
    ddp_bpe_free(bpe);
    check_ok(ddp_bpe_load(FOLDER "vocab.json", FOLDER "merges.txt", &bpe));
    check_ok(ddp_encoder_open(&(ddp_encoder_config){.bpe = bpe}, large, &encoder));
    check_error(ddp_encoder_next(encoder, INT64_MAX, &ids), DDP_ERR_INPUT,
                "large: byte 2: here begins a run of 16 MiB and more without a break", "help: ", NULL);
    ddp_encoder_close(encoder);
    ddp_bpe_free(bpe);
    free(ids.at);
    data_files_remove();
}

static void make_ids(int32_t *ids, int count)
{
    for (int i = 0; i < count; i++)
        ids[i] = i * 7;
}

static void check_shard(const char *prefix, int number, int width, int64_t count, int32_t first)
{
    char path[256];
    unsigned char buffer[4];
    const unsigned char *at;
    int32_t id;
    ddp_token_file file;
    snprintf(path, sizeof path, "%s_%06d.bin", prefix, number);
    check_ok(ddp_token_file_open(path, 0, "--dtype ", &file));
    cr_assert_eq(file.count, count);
    cr_assert_eq(file.width, width);
    for (int64_t i = 0; i < count; i++) {
        check_ok(ddp_token_file_get(&file, i, 1, buffer, &at));
        cr_assert_eq(ddp_token_file_convert(width, at, 1, &id), (uint32_t)(first + i * 7));
    }
    ddp_token_file_close(&file);
    unlink(path);
}

Test(tokenize, shards_are_filled_and_the_last_one_holds_the_rest)
{
    enum { COUNT = 2500 };
    static int32_t ids[COUNT];
    char prefix[256];
    make_ids(ids, COUNT);
    strcpy(prefix, data_file("set", "", 0));
    for (int width = 2; width <= 4; width += 2)
        for (int part = 1; part < COUNT; part = part * 40 + 1) { /* however the ids come */
            ddp_shards *shards;
            check_ok(ddp_shards_check(prefix));
            check_ok(ddp_shards_open(
                &(ddp_shards_config){.prefix = prefix, .width = width, .shard_ids = 1000}, &shards));
            for (int done = 0; done < COUNT; done += part)
                check_ok(ddp_shards_add(shards, ids + done, COUNT - done < part ? COUNT - done : part));
            check_ok(ddp_shards_finish(shards));
            cr_assert_eq(ddp_shards_ids(shards), COUNT);
            cr_assert_eq(ddp_shards_files(shards), 3);
            ddp_shards_close(shards);
            check_error(ddp_shards_check(prefix), DDP_ERR_INPUT, "set_00000", "is there already", NULL);
            check_shard(prefix, 0, width, 1000, 0);
            check_shard(prefix, 1, width, 1000, 7000);
            check_shard(prefix, 2, width, 500, 14000);
        }
    data_files_remove(); /* fails if a file is left */
}

Test(tokenize, an_unfinished_set_leaves_nothing)
{
    static int32_t ids[2500];
    char prefix[256];
    ddp_shards *shards;
    strcpy(prefix, data_file("set", "", 0));
    check_ok(ddp_shards_open(&(ddp_shards_config){.prefix = prefix, .width = 2, .shard_ids = 1000}, &shards));
    check_ok(ddp_shards_add(shards, ids, 2500));
    cr_assert_eq(ddp_shards_files(shards), 2);
    ddp_shards_close(shards);
    check_ok(ddp_shards_check(prefix));
    check_ok(ddp_shards_open(&(ddp_shards_config){.prefix = "/no/such/folder/x", .width = 2, .shard_ids = 10},
                             &shards));
    check_error(ddp_shards_add(shards, ids, 1), DDP_ERR_IO, "/no/such/folder/x_000000.bin", NULL);
    ddp_shards_close(shards);
    ddp_shards_close(NULL);
    data_files_remove();
}
