/* The YAML reader: trees with places, its bounds, hostile documents. */
#include "core/clock.h"
#include "core/config/yaml.h"
#include "core/files.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct got {
    ddp_yaml *yaml;
    ddp_error *error; /* of reading, or the duplicates found */
    char *printed;    /* all errors as a person sees them, with "FILE" for the path */
} got;

static char *print(const ddp_error *error, const char *path)
{
    char *text = NULL, *shown = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    ddp_error_print(error, "error", out);
    fclose(out);
    out = open_memstream(&shown, &bytes);
    for (char *at = text; *at != '\0';) {
        bool is_path = ddp_text_starts(at, path);
        fprintf(out, is_path ? "FILE" : "%c", *at);
        at += is_path ? strlen(path) : 1;
    }
    fclose(out);
    free(text);
    return shown;
}

static got load_bytes(const char *bytes, size_t count)
{
    char path[] = "/tmp/ddp-yaml-XXXXXX";
    got got = {.yaml = NULL};
    ddp_problems problems = {.count = 0};
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    check_ok(ddp_file_write(fd, path, bytes, count));
    close(fd);
    got.error = ddp_yaml_load(path, 0, &problems, &got.yaml);
    got.error = ddp_error_join(ddp_problems_take(&problems), got.error);
    unlink(path);
    got.printed = print(got.error, path);
    return got;
}

static got load(const char *text)
{
    return load_bytes(text, strlen(text));
}

static void drop(got *got)
{
    ddp_yaml_free(got->yaml);
    ddp_error_free(got->error);
    free(got->printed);
}

static void check_text(const char *text, const char *printed)
{
    got got = load(text);
    cr_assert_str_eq(got.printed, printed, "%s", got.printed);
    drop(&got);
}

/* Refused, quickly, with these words. */
static void check_refused(const char *bytes, size_t count, const char *words)
{
    double start = ddp_clock_now();
    got got = load_bytes(bytes, count);
    cr_assert_lt(ddp_clock_now() - start, 1.0);
    cr_assert_not_null(got.error);
    cr_assert_eq(ddp_error_exit_code(got.error), 2);
    cr_assert_not_null(strstr(got.printed, words), "\"%s\" is not in: %.300s", words, got.printed);
    drop(&got);
}

static void check_repeated(const char *piece, size_t times, const char *words)
{
    ddp_text text = {0};
    for (size_t i = 0; i < times; i++)
        ddp_text_add_bytes(&text, piece, strlen(piece));
    check_refused(ddp_text_get(&text), text.length, words);
    ddp_text_free(&text);
}

Test(yaml, remembers_where_everything_is, .timeout = 10)
{
    got got = load("# first\na: 1\nb:\n  \xc3\xbc: [x, 'two words']\n");
    cr_assert_null(got.error, "%s", got.printed);
    const ddp_yaml_node *root = ddp_yaml_root(got.yaml);
    cr_assert_eq(root->kind, DDP_YAML_MAP);
    cr_assert_eq(root->count, 4u);
    const ddp_yaml_node *list = root->items[3]->items[1];
    cr_assert_str_eq(list->items[1]->text, "two words");
    cr_assert_not(list->items[1]->plain);
    cr_assert(list->items[0]->plain);
    ddp_place place = ddp_yaml_place(list->items[1]);
    cr_assert_eq(place.line, 4);
    cr_assert_eq(place.column, 11); /* in bytes: the u with dots has two */
    cr_assert_eq(place.length, 11);
    cr_assert_str_eq(place.text, "  \xc3\xbc: [x, 'two words']");
    drop(&got);
}

Test(yaml, mark_and_crlf_are_fine, .timeout = 10)
{
    got got = load("\xef\xbb\xbf"
                   "a: 1\r\nb: \"x\\ty\"\r\n");
    cr_assert_null(got.error, "%s", got.printed);
    const ddp_yaml_node *root = ddp_yaml_root(got.yaml);
    cr_assert_str_eq(root->items[0]->text, "a");
    cr_assert_str_eq(root->items[3]->text, "x\ty");
    ddp_place place = ddp_yaml_place(root->items[2]);
    cr_assert_eq(place.line, 2);
    cr_assert_str_eq(place.text, "b: \"x\\ty\"");
    drop(&got);
}

Test(yaml, aliases_share_what_they_repeat, .timeout = 10)
{
    got got = load("a: &x [1, 2]\nb: *x\n");
    cr_assert_null(got.error, "%s", got.printed);
    const ddp_yaml_node *root = ddp_yaml_root(got.yaml);
    cr_assert_eq(root->items[1], root->items[3]);
    cr_assert_eq(root->weight, 9u);
    drop(&got);
}

Test(yaml, standard_tags_change_nothing, .timeout = 10)
{
    got got = load("%YAML 1.1\n---\na: !!float 1e-4\n");
    cr_assert_null(got.error, "%s", got.printed);
    cr_assert_str_eq(ddp_yaml_root(got.yaml)->items[1]->text, "1e-4");
    drop(&got);
    check_text("a: !mine x\n", "FILE:1:4: error: tags are not read\n"
                               "     1 | a: !mine x\n"
                               "       |    ^~~~~~~\n"
                               "    help: leave the tag out: types come from the key\n");
}

Test(yaml, duplicate_keys_name_both_lines, .timeout = 10)
{
    check_text("train: {steps: 10, steps: 20}\n",
               "FILE:1:20: error: duplicate key \"steps\": it is on line 1 already\n"
               "     1 | train: {steps: 10, steps: 20}\n"
               "       |                    ^~~~~\n");
    check_text("t:\n  steps: 10\n  \"steps\": 20\n",
               "FILE:3:3: error: duplicate key \"steps\": it is on line 2 already\n"
               "     3 |   \"steps\": 20\n"
               "       |   ^~~~~~~\n");
    check_text("train: {a: 1}\nb: 2\ntrain: {c: 1}\nb: 3\n",
               "FILE:3:1: error: duplicate key \"train\": it is on line 1 already\n"
               "     3 | train: {c: 1}\n"
               "       | ^~~~~\n"
               "FILE:4:1: error: duplicate key \"b\": it is on line 2 already\n"
               "     4 | b: 3\n"
               "       | ^\n");
}

Test(yaml, the_first_of_duplicates_counts, .timeout = 10)
{
    got got = load("a: 1\nb: 2\na: 3\na: 4\nc: 5\n");
    cr_assert_eq(ddp_error_count(got.error), 2u);
    const ddp_yaml_node *root = ddp_yaml_root(got.yaml);
    cr_assert_eq(root->count, 6u);
    cr_assert_str_eq(root->items[1]->text, "1");
    cr_assert_str_eq(root->items[5]->text, "5");
    drop(&got);
}

Test(yaml, merge_keys_are_refused_by_name, .timeout = 10)
{
    check_text("d: &d {steps: 3}\ntrain:\n  <<: *d\n  steps: 4\n",
               "FILE:3:3: error: merge keys (<<) are not read\n"
               "     3 |   <<: *d\n"
               "       |   ^~\n"
               "    help: write the keys out where they belong\n");
}

Test(yaml, deep_documents_cost_nothing, .timeout = 10)
{
    check_repeated("[", 100000, ":1:33: error: more than 32 levels deep");
    check_repeated("[\n", 300000, "more than 32 levels deep");
    check_repeated("{a: ", 200000, "more than 32 levels deep");
    check_repeated("- ", 500000, "more than 32 levels deep");
    check_repeated("? ", 500000, "a key must be one word");
    check_repeated("[{", 400000, "a key must be one word");
    check_repeated("%TAG !a! tag:x\n", 60000, "directives are not read");
}

Test(yaml, thirty_two_levels_are_enough, .timeout = 10)
{
    ddp_text text = {0};
    ddp_text_add(&text, "a: %.*s%.*s\n", 31, "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 31,
                 "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
    got got = load(ddp_text_get(&text));
    cr_assert_null(got.error, "%s", got.printed);
    drop(&got);
    ddp_text_free(&text);
    check_refused("a: &x [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]\nb: [[[[[[[[[[[[[[[[*x]]]]]]]]]]]]]]]]\n", 73,
                  ":2:20: error: more than 32 levels");
}

Test(yaml, aliases_are_bounded, .timeout = 10)
{
    ddp_text text = {0};
    ddp_text_add(&text, "a: &a [x,x,x,x,x,x,x,x,x]\n");
    for (char name = 'b'; name < 'k'; name++) {
        ddp_text_add(&text, "%c: &%c [", name, name);
        for (int i = 0; i < 9; i++)
            ddp_text_add(&text, "*%c%s", name - 1, i < 8 ? "," : "]\n");
    }
    check_refused(ddp_text_get(&text), text.length, ":5:11: error: more than 20000 values");
    ddp_text_free(&text);
    check_text("a: &a [*a]\n", "FILE:1:8: error: alias *a stands inside what it repeats\n"
                               "     1 | a: &a [*a]\n"
                               "       |        ^~\n");
    check_text("a: *nope\n", "FILE:1:4: error: alias *nope: there is no anchor &nope before it\n"
                             "     1 | a: *nope\n"
                             "       |    ^~~~~\n");
}

Test(yaml, many_values_are_bounded, .timeout = 10)
{
    check_repeated("- a\n", 200000, "more than 20000 values");
    check_repeated("? a\n", 200000, "more than 20000 values");
    check_repeated("# nothing\n", 6000000, "has 60000000 bytes; at most 1048576 are read");
}

Test(yaml, one_document_of_sections, .timeout = 10)
{
    check_text("", "FILE: error: there is nothing in it\n");
    check_text("# only\n# comments\n", "FILE: error: there is nothing in it\n");
    check_text("- a\n- b\n", "FILE:1:1: error: a job file is a map of sections (\"train:\"), not a list\n"
                             "     1 | - a\n"
                             "       | ^\n"
                             "    help: ddprun keys lists them\n");
    check_text("a: 1\n---\na: 2\n", "FILE:2:1: error: a second document begins here; a job file holds one\n"
                                    "     2 | ---\n"
                                    "       | ^~~\n");
}

Test(yaml, tabs_are_named, .timeout = 10)
{
    check_text("a:\n\tb: 1\n", "FILE:2:1: error: not YAML: found character that cannot start any token\n"
                               "     2 | \tb: 1\n"
                               "       | ^\n"
                               "    help: this is a tab: YAML is indented with spaces\n");
}

Test(yaml, what_is_no_text_is_refused_with_its_byte, .timeout = 10)
{
    check_refused("a: 1\nb: x\0y\n", 12, "FILE:2:5: error: byte 9 is NUL: this is not a text file in UTF-8");
    check_refused("a: x\xff\n", 6, "FILE:1:5: error: byte 4 is 0xFF, not UTF-8");
    check_refused("a: x\xc3", 5, "FILE:1:5: error: byte 4 is 0xC3, not UTF-8");
    check_refused("a: \xed\xa0\x80\n", 7, "byte 3 is 0xED, not UTF-8");
    check_refused("a: \x1b[31m\n", 9, "byte 3 is the control character U+001B");
    check_refused("\xff\xfe"
                  "a\0:\0",
                  6, "byte 0 begins UTF-16");
    check_refused("\0a\0:\0 ", 6, "byte 0 begins UTF-16");
    check_refused("\xef\xbb\xbf\xef\xbb\xbf"
                  "a: 1\n",
                  11, "U+FEFF");
    check_refused("a: \"x\\0y\"\n", 10, "a text cannot hold a NUL character");
}

Test(yaml, what_is_no_file_is_not_opened, .timeout = 10)
{
    char directory[] = "/tmp/ddp-yaml-XXXXXX", path[64];
    ddp_problems problems = {.count = 0};
    ddp_yaml *yaml = (ddp_yaml *)&problems;
    cr_assert_not_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/pipe", directory);
    cr_assert_eq(mkfifo(path, 0600), 0);
    const char *const paths[] = {directory, path, "/tmp/ddp-there-is-no-such-file"};
    for (size_t i = 0; i < 3; i++) {
        ddp_error *error = ddp_yaml_load(paths[i], 0, &problems, &yaml);
        cr_assert_eq(ddp_error_exit_code(error), 2);
        cr_assert_not_null(strstr(ddp_error_message(error), paths[i]));
        ddp_error_free(error);
    }
    cr_assert_eq((void *)yaml, (void *)&problems);
    unlink(path);
    rmdir(directory);
}

Test(yaml, unreadable_files_are_refused, .timeout = 10)
{
    char path[] = "/tmp/ddp-yaml-XXXXXX";
    ddp_problems problems = {.count = 0};
    ddp_yaml *yaml = NULL;
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    fchmod(fd, 0);
    close(fd);
    if (geteuid() != 0) {
        ddp_error *error = ddp_yaml_load(path, 0, &problems, &yaml);
        cr_assert_eq(ddp_error_exit_code(error), 2);
        ddp_error_free(error);
    }
    unlink(path);
}

Test(yaml, overrides_have_places_too, .timeout = 10)
{
    ddp_problems problems = {.count = 0};
    ddp_yaml *yaml = NULL;
    check_ok(ddp_yaml_parse_override("a.b=[1, 'x y']", 1, &problems, &yaml));
    cr_assert_str_eq(ddp_yaml_key(yaml)->text, "a.b");
    cr_assert_eq(ddp_yaml_place(ddp_yaml_key(yaml)).column, 1);
    ddp_place place = ddp_yaml_place(ddp_yaml_root(yaml)->items[1]);
    cr_assert_str_eq(place.file, "command line");
    cr_assert_str_eq(place.text, "a.b=[1, 'x y']");
    cr_assert_eq(place.line, 0);
    cr_assert_eq(place.column, 9);
    cr_assert_eq(place.length, 5);
    ddp_yaml_free(yaml);
    static const char *const empty[] = {"k=", "k=~", "k= # nothing"};
    for (size_t i = 0; i < 3; i++) {
        check_ok(ddp_yaml_parse_override(empty[i], 1, &problems, &yaml));
        cr_assert(ddp_yaml_is_null(ddp_yaml_root(yaml)), "%s", empty[i]);
        ddp_yaml_free(yaml);
    }
    static const char *const bad[] = {"k",    "=v",     "",           "k=[1",  "k=%TAG x",
                                      "k=*x", "k=a: b", "k=x\n--- y", "k=\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ddp_error *error = ddp_yaml_parse_override(bad[i], 1, &problems, &yaml);
        cr_assert_eq(ddp_error_exit_code(error), 2, "%s", bad[i]);
        ddp_error_free(error);
    }
}

Test(yaml, texts_read_back_exactly, .timeout = 10)
{
    static const char *const texts[] = {"plain",
                                        "two words",
                                        "",
                                        " lead",
                                        "trail ",
                                        "a: b",
                                        "a #b",
                                        "#",
                                        "5",
                                        "1e-4",
                                        "null",
                                        "~",
                                        "true",
                                        "No",
                                        "-x",
                                        "- x",
                                        "?",
                                        "[a]",
                                        "{a}",
                                        "a,b",
                                        "&a",
                                        "*a",
                                        "!a",
                                        "%a",
                                        "@a",
                                        "`a",
                                        "|",
                                        ">",
                                        "'",
                                        "\"",
                                        "\\",
                                        "back\\",
                                        "a'b\"c",
                                        "line1\nline2",
                                        "\n",
                                        "\r\n",
                                        "\t",
                                        "\x01\x1f\x7f",
                                        "\xc3\xbcn\xc3\xaf",
                                        "\xf0\x9f\x8e\x89",
                                        "\xe2\x80\xa8",
                                        "\xc2\x85",
                                        "\xef\xbb\xbf",
                                        "\xef\xbf\xbe",
                                        "./a/b.idx",
                                        "../x",
                                        ".hidden",
                                        "64(x2)",
                                        "$HOME;id",
                                        "k=v",
                                        "---",
                                        "...",
                                        "<<",
                                        "a:",
                                        ":a"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ddp_text text = {0};
        ddp_problems problems = {.count = 0};
        ddp_yaml *yaml = NULL;
        ddp_text_add(&text, "k=[{k: ");
        ddp_yaml_write_text(&text, texts[i]);
        ddp_text_add(&text, "}] # x");
        check_ok(ddp_yaml_parse_override(ddp_text_get(&text), 0, &problems, &yaml));
        cr_assert_str_eq(ddp_yaml_root(yaml)->items[0]->items[1]->text, texts[i], "%s", ddp_text_get(&text));
        ddp_yaml_free(yaml);
        ddp_text_free(&text);
    }
}

Test(yaml, only_fifty_problems_are_shown, .timeout = 10)
{
    ddp_text text = {0};
    for (int i = 0; i < 9000; i++)
        ddp_text_add(&text, "a: 1\n");
    got got = load(ddp_text_get(&text));
    cr_assert_eq(ddp_error_count(got.error), 51u);
    cr_assert_not_null(strstr(got.printed, "8949 more errors are not shown"));
    drop(&got);
    ddp_text_free(&text);
}
