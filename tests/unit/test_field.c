/* Rows of settings: one value at a time. */
#include "core/config/field.h"
#include "support/test.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    int64_t count, threads, limit;
    double rate, share, size;
    bool flag;
    char *text, *path;
    int colour;
    ddp_ints widths;
    ddp_floats betas;
    ddp_texts words, traces;
    ddp_pairs env;
} settings;

static const char *const colours[] = {"red", "green", "blue", NULL};
static const char *const traces[] = {"samples", "checksum", NULL};

enum {
    COUNT,
    THREADS,
    LIMIT,
    RATE,
    SHARE,
    SIZE,
    FLAG,
    TEXT,
    PATH,
    COLOUR,
    WIDTHS,
    BETAS,
    WORDS,
    TRACES,
    ENV,
    ROWS
};

#define ROW(member, kind, ...)                                                                           \
    {                                                                                                    \
        .key = #member, .type = DDP_FIELD_##kind, .offset = offsetof(settings, member), .help = #member, \
        __VA_ARGS__                                                                                      \
    }
static const ddp_field fields[] = {
    [COUNT] = ROW(count, INT, .min = 1, .max = 65536, .fallback = "3"),
    [THREADS] = ROW(threads, INT, .min = 1, .max = 64, .automatic = true, .fallback = "auto"),
    [LIMIT] = ROW(limit, INT, .min = 1, .max = 1e12, .optional = true),
    [RATE] = ROW(rate, FLOAT, .max = HUGE_VAL),
    [SHARE] = ROW(share, FLOAT, .max = 1, .exclusive_min = true, .fallback = "0.5"),
    [SIZE] = ROW(size, FLOAT, .max = 1e6, .exclusive_min = true, .automatic = true, .fallback = "auto"),
    [FLAG] = ROW(flag, BOOL, .fallback = "true"),
    [TEXT] = ROW(text, TEXT, .fallback = "abc"),
    [PATH] = ROW(path, TEXT, .optional = true),
    [COLOUR] = ROW(colour, CHOICE, .choices = colours, .fallback = "green"),
    [WIDTHS] = ROW(widths, INTS, .min = 1, .max = 1000, .fallback = "[8, 16]"),
    [BETAS] = ROW(betas, FLOATS, .max = 0.999, .fallback = "[0.9]"),
    [WORDS] = ROW(words, TEXTS, .fallback = "[]"),
    [TRACES] = ROW(traces, TEXTS, .choices = traces, .fallback = "[samples]"),
    [ENV] = ROW(env, PAIRS, .fallback = "{}"),
    [ROWS] = DDP_FIELD_END,
};

/* Reads "k=VALUE"; NULL, or the problems in one text (message; help). */
static char *read_value(int row, const char *value, settings *settings)
{
    ddp_text text = {0};
    ddp_problems problems = {.count = 0};
    ddp_yaml *yaml = NULL;
    char *printed = NULL;
    size_t bytes = 0;
    ddp_text_add(&text, "k=%s", value);
    check_ok(ddp_yaml_parse_override(ddp_text_get(&text), 0, &problems, &yaml));
    ddp_field_read(&fields[row], "k", ddp_yaml_root(yaml), settings, &problems);
    ddp_error *error = ddp_problems_take(&problems);
    if (error != NULL) {
        FILE *out = open_memstream(&printed, &bytes);
        ddp_error_print(error, "error", out);
        fclose(out);
    }
    ddp_error_free(error);
    ddp_yaml_free(yaml);
    ddp_text_free(&text);
    return printed;
}

static void check_read(int row, const char *value, settings *settings)
{
    char *printed = read_value(row, value, settings);
    cr_assert_null(printed, "%s: %s", value, printed ? printed : "");
    free(printed);
}

/* Refused with these words; the member keeps its value. */
static void check_refused(int row, const char *value, const char *words)
{
    settings settings, before;
    memset(&settings, 0, sizeof settings);
    settings.count = settings.threads = settings.limit = 77;
    settings.rate = settings.share = settings.size = 77;
    memcpy(&before, &settings, sizeof before);
    char *printed = read_value(row, value, &settings);
    cr_assert_not_null(printed, "%s was taken", value);
    cr_assert_not_null(strstr(printed, words), "\"%s\" is not in: %s", words, printed);
    cr_assert_eq(memcmp(&settings, &before, sizeof before), 0, "%s", value);
    free(printed);
}

static void check_floats(void)
{
    static const char *const same[] = {"1e-4",     "1.0e-4", "1E-4",   ".0001", "+1e-4",
                                       "\"1e-4\"", "0.0001", "'1e-4'", " 1e-4 "};
    static const char *const bad[] = {"fast", "1e-4x", "1e400", ".nan", "-1e-4",
                                      ".inf", "0x1p3", "nan",   "1e",   "\" 1\""};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        settings settings = {.rate = 7};
        check_read(RATE, same[i], &settings);
        cr_assert_eq(settings.rate, 0.0001, "%s", same[i]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_refused(RATE, bad[i], "\" is not a number of at least 0");
    check_refused(RATE, "fast",
                  "command line: error: k: \"fast\" is not a number of at least 0\n"
                  "       | k=fast\n"
                  "       |   ^~~~\n");
    check_refused(RATE, "", "k: no value is given; it is a number of at least 0");
    check_refused(RATE, "1,5", "the decimal mark is a dot");
    check_refused(RATE, "[1]", "k: a list is not a number of at least 0");
    check_refused(RATE, "{a: 1}", "k: a map is not a number");
    check_refused(SHARE, "0", "\"0\" is not a number above 0 and at most 1");
    check_refused(SHARE, "1.5", "is not a number above 0 and at most 1");
}

/* C01 */
Test(field, numbers_as_people_write_them, .timeout = 10)
{
    check_floats();
}

Test(field, numbers_do_not_follow_the_locale, .timeout = 10)
{
    setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is installed */
    check_floats();
}

/* C05 */
Test(field, whole_numbers_are_decimal, .timeout = 10)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"010", 10}, {"08", 8},      {" 5 ", 5},      {"5 # five", 5},
                {"+5", 5},   {"\"12\"", 12}, {"65536", 65536}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        settings settings = {.count = 7};
        check_read(COUNT, good[i].text, &settings);
        cr_assert_eq(settings.count, good[i].value, "%s", good[i].text);
    }
    check_refused(COUNT, "1_000", "k: \"1_000\" is not a whole number from 1 to 65536\n");
    check_refused(COUNT, "1_000", "help: whole numbers are written in decimal digits only: 1000\n");
    check_refused(COUNT, "0x10", "decimal digits only: 16\n");
    check_refused(COUNT, "0o10", "decimal digits only: 8\n");
    check_refused(COUNT, "1e3", "decimal digits only: 1000\n");
    check_refused(COUNT, "3.0", "decimal digits only: 3\n");
    check_refused(COUNT, "3.5", "k: \"3.5\" is not a whole number");
    check_refused(COUNT, "12:30", "k: \"12:30\" is not a whole number");
    check_refused(COUNT, "99999999999999999999", "k: \"99999999999999999999\" is not a whole number");
    check_refused(COUNT, "-1", "k: \"-1\" is not a whole number from 1");
    check_refused(COUNT, "0", "k: \"0\" is not a whole number from 1");
    check_refused(COUNT, "65537", "k: \"65537\" is not a whole number from 1 to 65536");
    check_refused(COUNT, "auto", "k: \"auto\" is not a whole number");
    check_refused(LIMIT, "1e13", "is not a whole number from 1 to 1e12\n");
}

Test(field, automatic_and_optional, .timeout = 10)
{
    settings settings = {.threads = 7, .size = 7, .limit = 7};
    check_read(THREADS, "auto", &settings);
    check_read(SIZE, "auto", &settings);
    check_read(LIMIT, "null", &settings);
    cr_assert_eq(settings.threads, DDP_AUTO);
    cr_assert_eq(settings.size, 0);
    cr_assert_eq(settings.limit, 0);
    check_read(PATH, "a/b c", &settings);
    cr_assert_str_eq(settings.path, "a/b c");
    check_read(PATH, "~", &settings);
    cr_assert_null(settings.path);
    check_read(PATH, "\"null\"", &settings);
    cr_assert_str_eq(settings.path, "null");
    check_refused(THREADS, "many", "is not a whole number from 1 to 64, or auto");
    check_refused(THREADS, "-9223372036854775808", "is not a whole number");
    ddp_field_free(fields, &settings);
}

Test(field, truth_has_two_words, .timeout = 10)
{
    settings settings = {.flag = true};
    check_read(FLAG, "false", &settings);
    cr_assert_not(settings.flag);
    check_read(FLAG, "\"true\"", &settings);
    cr_assert(settings.flag);
    check_refused(FLAG, "yes",
                  "k: \"yes\" is not true or false\n       | k=yes\n       |   ^~~\n    help: write true\n");
    check_refused(FLAG, "Off", "help: write false");
    check_refused(FLAG, "TRUE", "help: write true");
    check_refused(FLAG, "1", "help: write true");
    check_refused(FLAG, "maybe", "is not true or false");
}

Test(field, choices_say_what_there_is, .timeout = 10)
{
    settings settings = {.colour = 7};
    check_read(COLOUR, "blue", &settings);
    cr_assert_eq(settings.colour, 2);
    check_refused(COLOUR, "gren", "k: \"gren\" is not red, green or blue");
    check_refused(COLOUR, "gren", "help: did you mean \"green\"?");
    check_refused(COLOUR, "", "no value is given; it is red, green or blue");
}

Test(field, lists_and_their_elements, .timeout = 10)
{
    settings settings = {.count = 0};
    check_read(WIDTHS, "[1, 02, 3]", &settings);
    cr_assert_eq(settings.widths.count, 3u);
    cr_assert_eq(settings.widths.at[1], 2);
    check_read(WIDTHS, "[]", &settings);
    cr_assert_eq(settings.widths.count, 0u);
    check_read(BETAS, "[0.9, 95e-2]", &settings);
    cr_assert_eq(settings.betas.at[1], 0.95);
    check_read(WORDS, "[a b, \"\", 5]", &settings);
    cr_assert_eq(settings.words.count, 3u);
    cr_assert_str_eq(settings.words.at[2], "5");
    check_read(WORDS, "alone", &settings);
    cr_assert_eq(settings.words.count, 1u);
    cr_assert_str_eq(settings.words.at[0], "alone");
    check_refused(WIDTHS, "[1, x, 3]",
                  "k: \"x\" is not a whole number from 1 to 1000\n       | k=[1, x, 3]\n       |       ^\n");
    check_refused(WIDTHS, "128", "help: lists are written in brackets: [128]");
    check_refused(BETAS, "[0.9, 1]", "k: \"1\" is not a number from 0 to 0.999");
    check_refused(TRACES, "[samples, sums]", "k: \"sums\" is not samples or checksum");
    check_refused(WORDS, "{a: b}", "k: a map is not a list of texts");
    check_refused(WORDS, "", "no value is given");
    ddp_field_free(fields, &settings);
}

/* C14 */
Test(field, pairs_keep_every_byte, .timeout = 10)
{
    settings settings = {.count = 0};
    check_read(ENV,
               "{A: \"64(x2)\", C: \"a'b\\\"c\", D: \"line1\\nline2\", E: \"$HOME;id\", F: \"back\\\\\", G: "
               "\"\", H: \"k=v\", _1: 01}",
               &settings);
    static const char *const values[] = {"64(x2)", "a'b\"c", "line1\nline2", "$HOME;id",
                                         "back\\", "",       "k=v",          "01"};
    cr_assert_eq(settings.env.count, 8u);
    for (size_t i = 0; i < 8; i++)
        cr_assert_str_eq(settings.env.at[i].value, values[i]);
    check_refused(ENV, "{1A: x}", "k: \"1A\" is not a name");
    check_refused(ENV, "{\"a b\": x}", "k: \"a b\" is not a name");
    check_refused(ENV, "{a-b: x}", "help: names are letters, digits and _, and begin with no digit");
    check_refused(ENV, "{\"\": x}", "k: \"\" is not a name");
    check_refused(ENV, "{a: [1]}", "k: a list is not a map of names to texts");
    check_refused(ENV, "[A=1]", "k: a list is not a map of names to texts");
    ddp_field_free(fields, &settings);
}

Test(field, defaults_are_read_like_values, .timeout = 10)
{
    settings settings;
    memset(&settings, 0, sizeof settings);
    for (int row = 0; row < ROWS; row++)
        check_ok(ddp_field_set_default(&fields[row], &settings));
    cr_assert_eq(settings.count, 3);
    cr_assert_eq(settings.threads, DDP_AUTO);
    cr_assert_str_eq(settings.text, "abc");
    cr_assert_eq(settings.colour, 1);
    cr_assert_eq(settings.widths.count, 2u);
    cr_assert_eq(settings.widths.at[1], 16);
    cr_assert_null(settings.path);
    ddp_field_free(fields, &settings);
    ddp_field broken = fields[COUNT];
    broken.fallback = "none";
    ddp_error *error = ddp_field_set_default(&broken, &settings);
    cr_assert_eq(ddp_error_get_kind(error), DDP_ERR_INTERNAL);
    ddp_error_free(error);
}

Test(field, what_is_written_reads_back, .timeout = 10)
{
    static const struct {
        int row;
        const char *value;
    } cases[] = {{COUNT, "12"},
                 {THREADS, "auto"},
                 {LIMIT, "null"},
                 {RATE, "0.0001"},
                 {RATE, "60"},
                 {RATE, "6.02e+23"},
                 {SIZE, "auto"},
                 {SIZE, "2.5"},
                 {FLAG, "false"},
                 {TEXT, "\"a: b\""},
                 {PATH, "null"},
                 {COLOUR, "blue"},
                 {WIDTHS, "[1, 2]"},
                 {WIDTHS, "[]"},
                 {BETAS, "[0.9, 0.95]"},
                 {WORDS, "[a, \"\", b c]"},
                 {ENV, "{}"},
                 {ENV, "{A: \"line1\\nline2\", B: \"\xc3\xbc\"}"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        settings settings = {.count = 0};
        ddp_text text = {0};
        check_read(cases[i].row, cases[i].value, &settings);
        ddp_field_write(&fields[cases[i].row], &settings, &text);
        cr_assert_str_eq(ddp_text_get(&text), cases[i].value);
        ddp_text_free(&text);
        ddp_field_free(fields, &settings);
    }
}

Test(field, a_pair_alone_can_be_set, .timeout = 10)
{
    settings settings = {.count = 0};
    ddp_problems problems = {.count = 0};
    ddp_yaml *yaml = NULL;
    static const char *const values[] = {"env.A=1", "env.B=2", "env.A=3"};
    for (size_t i = 0; i < 3; i++) {
        check_ok(ddp_yaml_parse_override(values[i], 0, &problems, &yaml));
        ddp_field_set_pair(&fields[ENV], "env", ddp_yaml_key(yaml)->text + 4, ddp_yaml_root(yaml), &settings,
                           &problems);
        ddp_yaml_free(yaml);
    }
    check_ok(ddp_problems_take(&problems));
    cr_assert_eq(settings.env.count, 2u);
    cr_assert_str_eq(settings.env.at[0].value, "3");
    cr_assert_str_eq(settings.env.at[1].value, "2");
    ddp_field_free(fields, &settings);
}
