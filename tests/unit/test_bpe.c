/* GPT-2's splitting rule and byte-pair encoding. The ids in tests/unit/bpe were made by another
 * implementation: tests/support/bpe_reference.py, which also compares more where that is installed
 * (ranks_data_python). */
#include <stdlib.h>
#include <string.h>

#include "core/files.h"
#include "data_support.h"
#include "runtime/data/bpe.h"
#include "runtime/data/unicode_class.h"
#include "support/test.h"

#define FOLDER "tests/unit/bpe/"

static ddp_bpe *load_recorded(void)
{
    ddp_bpe *bpe;
    check_ok(ddp_bpe_load(FOLDER "vocab.json", FOLDER "merges.txt", &bpe));
    return bpe;
}

static void encode_all(ddp_bpe *bpe, const unsigned char *text, size_t bytes, ddp_ids *ids)
{
    size_t bad;
    ids->count = 0;
    for (size_t at = 0, piece; at < bytes; at += piece) {
        piece = ddp_bpe_split(text + at, bytes - at, true);
        cr_assert_gt(piece, 0);
        cr_assert_leq(piece, bytes - at);
        check_ok(ddp_bpe_encode(bpe, text + at, piece, ids, &bad));
    }
}

Test(bpe, recorded_ids_of_hostile_text, .timeout = 20)
{
    char *text, *expected;
    size_t bytes, ignored, count = 0;
    ddp_ids ids = {0};
    ddp_bpe *bpe = load_recorded();
    cr_assert_eq(ddp_bpe_vocab(bpe), 1024);
    cr_assert_eq(ddp_bpe_find(bpe, "<|endoftext|>", 13), 0);
    cr_assert_eq(ddp_bpe_find(bpe, "no such entry", 13), -1);
    check_ok(ddp_file_load(FOLDER "hostile.txt", 1 << 20, &text, &bytes));
    check_ok(ddp_file_load(FOLDER "hostile.ids", 1 << 20, &expected, &ignored));
    for (int again = 0; again < 2; again++) { /* the second time words are known */
        count = 0;
        encode_all(bpe, (const unsigned char *)text, bytes, &ids);
        for (char *at = expected, *next; count < ids.count; at = next, count++) {
            long wanted = strtol(at, &next, 10);
            cr_assert(next != at, "there are more ids than the %zu recorded", count);
            cr_assert_eq(ids.at[count], wanted, "id %zu is %d, recorded is %ld", count, ids.at[count],
                         wanted);
            if (count + 1 == ids.count)
                cr_assert_eq(strspn(next, " \n"), strlen(next), "recorded are more than %zu", ids.count);
        }
    }
    cr_assert_gt(count, 5000);
    free(ids.at);
    free(text);
    free(expected);
    ddp_bpe_free(bpe);
}

/* Pieces are written with | between them. */
static void check_pieces(const char *wanted)
{
    unsigned char text[256];
    size_t bytes = 0, at = 0;
    for (const char *p = wanted; *p != '\0'; p++)
        if (*p != '|')
            text[bytes++] = (unsigned char)*p;
    for (const char *p = wanted; at < bytes; p++) {
        size_t piece = ddp_bpe_split(text + at, bytes - at, true), length = strcspn(p, "|");
        cr_assert_eq(piece, length, "\"%s\": byte %zu begins a piece of %zu bytes", wanted, at, piece);
        at += piece;
        p += length;
    }
}

/* Made with Python's regex and the pattern in bpe.h. */
Test(bpe, text_is_split_as_gpt2_does)
{
    static const char *const cases[] = {
        "Hello| world",
        "don|'t| we|'ll| they|'re| I|'m| he|'s| you|'d| we|'ve",
        "DON|'|T| '|Re|'|x|'ll|l",
        "it|''|s| ''| '|tis",
        " '|s",
        "x| | y| |\n|z",
        "a|  | b|   ",
        "one|\n\n|\n|two|\n",
        " ",
        "  ",
        "\t| x",
        "a|\r\n\r\n",
        "12|ab|34| 12| ab| !?| !?|12|.|5",
        "a|\xC2\xA0|b",
        "a| \xC2\xA0| b",
        "a|\xE2\x80\x8B|b",
        "\xC3\xA9t\xC3\xA9| \xC3\xA9|1\xC2\xBD|\xE2\x84\x96|\xE2\x85\xA7",
        "\xE6\x97\xA5\xE6\x9C\xAC|\xE3\x80\x82|\xE8\xAA\x9E",
        "\xE0\xA4\xA8|\xE0\xA5\x8D|\xE0\xA4\xA4",
        "\xF0\x9F\x99\x82|\xF0\x9D\x9F\x98|\xF0\x90\x8E\x80\xF0\xA0\x80\x80",
        "a|\xE3\x80\x80|\xE3\x80\x80|b",
        "\x1C| a",
        "\xE2\x80\xA8|x",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_pieces(cases[i]);
}

/* Stray bytes, overlong forms, surrogates, characters cut short. */
Test(bpe, bytes_that_are_not_utf8_are_neither_letter_number_nor_space)
{
    static const char *const cases[] = {
        "a|\xFF\xFE|b| \xC3(|x",
        "z|\xED\xA0\x80|z",
        "1|\xC0\xB1\xE0\x80\xA0|1",
        "\xF4\x90\x80\x80|a|\xE6\x97",
    };
    ddp_bpe *bpe = load_recorded();
    ddp_ids ids = {0};
    unsigned char bytes[256];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_pieces(cases[i]);
    for (int i = 0; i < 256; i++) /* every byte has its id, alone */
        bytes[i] = (unsigned char)(255 - i);
    for (int i = 0; i < 256; i++) {
        encode_all(bpe, bytes + i, 1, &ids);
        cr_assert_eq(ids.count, 1);
        cr_assert_eq(ids.at[0], ddp_bpe_find(bpe, bytes + i, 1));
    }
    free(ids.at);
    ddp_bpe_free(bpe);
}

/* With only a part of the text it says the same, or that it cannot say. */
Test(bpe, a_split_is_certain_or_waits, .timeout = 30)
{
    char *text;
    size_t bytes;
    check_ok(ddp_file_load(FOLDER "hostile.txt", 1 << 20, &text, &bytes));
    const unsigned char *at = (const unsigned char *)text;
    for (size_t done = 0, piece; done < bytes; done += piece) {
        piece = ddp_bpe_split(at + done, bytes - done, true);
        for (size_t part = 1; part <= piece + 8 && part < bytes - done; part++) {
            size_t got = ddp_bpe_split(at + done, part, false);
            cr_assert(got == 0 || got == piece, "byte %zu: of %zu bytes %zu, not %zu", done, part, got,
                      piece);
            cr_assert(part < piece + 8 || got == piece, "byte %zu: %zu bytes say nothing", done, part);
        }
    }
    free(text);
}

/* Counted from Unicode's own data, version 18.0: general categories L*, N*, property White_Space. */
Test(bpe, classes_of_all_characters)
{
    size_t counts[4] = {0};
    cr_assert_str_eq(ddp_unicode_version, "18.0.0");
    for (uint32_t code = 0; code < 0x110000; code++)
        counts[ddp_unicode_classify(code)]++;
    cr_assert_eq(counts[DDP_UNICODE_LETTER], 158172);
    cr_assert_eq(counts[DDP_UNICODE_NUMBER], 2247);
    cr_assert_eq(counts[DDP_UNICODE_SPACE], 25);
    cr_assert_eq(ddp_unicode_classify(0x10FFFF), DDP_UNICODE_OTHER);
    cr_assert_eq(ddp_unicode_classify(0xD800), DDP_UNICODE_OTHER);
    for (uint32_t code = 0; code < 0x110000; code += 0x3F) { /* as UTF-8 too */
        unsigned char text[8];
        size_t bytes, length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        static const unsigned char heads[] = {0, 0, 0xC0, 0xE0, 0xF0};
        for (size_t i = length; i-- > 1;)
            text[i] = (unsigned char)(0x80 | (code >> 6 * (length - 1 - i) & 0x3F));
        text[0] = (unsigned char)(heads[length] | code >> 6 * (length - 1));
        bool surrogate = code >= 0xD800 && code < 0xE000;
        cr_assert_eq(ddp_unicode_read(text, length, &bytes), ddp_unicode_classify(code));
        cr_assert_eq(bytes, surrogate ? 1 : length);
        if (length > 1) {
            cr_assert_eq(ddp_unicode_read(text, length - 1, &bytes), DDP_UNICODE_OTHER);
            cr_assert_eq(bytes, 1);
        }
    }
}

static void check_load(const char *vocab, const char *merges, const char *place, const char *message)
{
    ddp_bpe *bpe = NULL;
    const char *vocab_path = data_file("vocab.json", vocab, strlen(vocab));
    const char *merges_path = data_file("merges.txt", merges, strlen(merges));
    check_error(ddp_bpe_load(vocab_path, merges_path, &bpe), DDP_ERR_INPUT, place, message, NULL);
    cr_assert_null(bpe);
}

Test(bpe, what_is_wrong_with_the_files_is_said_with_its_line)
{
    static const char good[] = "{\"a\": 0, \"b\": 1,\n \"ab\": 2, \"\\u0120\": 3}";
    check_load("{\"a\": 0,", "", "vocab.json:1:", "not JSON");
    check_load("[1, 2]", "", "vocab.json: ", "one object, of every token and its id, is expected");
    check_load("{}", "", "vocab.json: ", "one object");
    check_load("{\"a\": 0,\n \"b\": \"x\"}", "", "vocab.json:2:3: ", "the id of \"b\" is no whole number");
    check_load("{\"a\": -1}", "", "vocab.json:1:3: ", "whole number from 0 to 16777215");
    check_load("{\"model\": {\"vocab\": {}}}", "",
               "vocab.json:1:3: ", "a tokenizer.json holds it as model.vocab");
    check_load("{\"a\": 0,\n \"b\": 0}", "", "vocab.json:2:3: ", "the id of \"b\", 0, has been given before");
    check_load("{\"a\": 0, \"a\": 1}", "",
               "vocab.json:1:11: ", "the entry of \"a\", 1, has been given before");
    check_load(good, "#version: 0.2\na b\na  b\n",
               "merges.txt:3:1: ", "two symbols with one space between them");
    check_load(good, "a b\nab\n", "merges.txt:2:1: ", "two symbols");
    check_load(good, "a b\na c\n", "merges.txt:2:3: ", "\"c\" is not in ");
    check_load(good, "b a\n", "merges.txt:1:1: ", "\"b\" and \"a\" make a token that is not in ");
    check_load(good, "a b\n\na b", "merges.txt:3:1: ", "given before");
    check_load(good, "a \xE2\x96\x81\n", "merges.txt:1:3: ", "is not in ");
    data_files_remove();
}

Test(bpe, a_byte_without_an_entry_is_an_error)
{
    static const char vocab[] = "{\"a\": 0, \"b\": 1, \"ab\": 7, \"\\u0120\": 3}";
    ddp_bpe *bpe;
    ddp_ids ids = {0};
    size_t bad = 99;
    const char *path = data_file("vocab.json", vocab, strlen(vocab));
    check_ok(ddp_bpe_load(path, data_file("merges.txt", "a b\r\n", 5), &bpe));
    cr_assert_eq(ddp_bpe_vocab(bpe), 8);
    cr_assert_eq(ddp_bpe_merges(bpe), 1);
    encode_all(bpe, (const unsigned char *)" aabb", 5, &ids);
    cr_assert_eq(ids.count, 4);
    cr_assert_eq(ids.at[0], 3);
    cr_assert_eq(ids.at[2], 7);
    check_error(ddp_bpe_encode(bpe, (const unsigned char *)"abc", 3, &ids, &bad), DDP_ERR_INPUT,
                "found byte 0x63, for which the vocabulary has no entry", NULL);
    cr_assert_eq(bad, 2);
    cr_assert_eq(ids.count, 4);
    free(ids.at);
    ddp_bpe_free(bpe);
    data_files_remove();
}
