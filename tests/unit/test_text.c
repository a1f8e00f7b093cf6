/* Text, numbers as people write them, JSON. */
#include "core/json.h"
#include "core/text.h"
#include "support/test.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>

Test(text, grows_and_formats)
{
    ddp_text text = {0};
    for (int i = 0; i < 1000; i++)
        ddp_text_add(&text, "%d,", i);
    cr_assert_eq(text.length, 3890u);
    cr_assert(ddp_text_starts(ddp_text_get(&text), "0,1,2,"));
    cr_assert(ddp_text_ends(ddp_text_get(&text), ",998,999,"));
    ddp_text_free(&text);
    cr_assert_str_eq(ddp_text_get(&text), "");
}

Test(text, whole_numbers_are_decimal_and_nothing_else)
{
    int64_t value = 7;
    cr_assert(ddp_text_to_int("010", &value) && value == 10);
    cr_assert(ddp_text_to_int("-9223372036854775808", &value) && value == INT64_MIN);
    static const char *const bad[] = {"",
                                      "0x10",
                                      "0o10",
                                      "1_000",
                                      "1e3",
                                      "3.0",
                                      "12:30",
                                      " 5",
                                      "5 ",
                                      "+",
                                      "9223372036854775808",
                                      "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        value = 7;
        cr_assert_not(ddp_text_to_int(bad[i], &value), "%s", bad[i]);
        cr_assert_eq(value, 7);
    }
}

Test(text, real_numbers_do_not_follow_the_locale)
{
    double value = 7;
    setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is installed */
    static const char *const same[] = {"1e-4", "1.0e-4", "1E-4", ".0001", "+1e-4"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        cr_assert(ddp_text_to_float(same[i], &value) && value == 0.0001, "%s", same[i]);
    static const char *const bad[] = {"", "fast", "1e-4x", "1e400", "nan", "inf", "0x1p3", "1,5", "1e", "."};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_assert_not(ddp_text_to_float(bad[i], &value), "%s", bad[i]);
}

Test(text, shortest_number_reads_back)
{
    char buffer[32];
    static const double values[] = {0, 0.1, 1e-4, 1.0 / 3, 123456789.125, 6.02e23, -2.5e-300};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        cr_assert_eq(strtod(ddp_text_from_float(values[i], buffer, sizeof buffer), NULL), values[i]);
    cr_assert_str_eq(ddp_text_from_float(1e-4, buffer, sizeof buffer), "0.0001");
    cr_assert_str_eq(ddp_text_from_float(60, buffer, sizeof buffer), "60");
    cr_assert_str_eq(ddp_text_from_float(-1796094386.25, buffer, sizeof buffer), "-1796094386.25");
}

Test(text, amounts_for_people)
{
    char buffer[32];
    cr_assert_str_eq(ddp_text_from_count(1437, buffer, sizeof buffer), "1,437");
    cr_assert_str_eq(ddp_text_from_count(-1234567, buffer, sizeof buffer), "-1,234,567");
    cr_assert_str_eq(ddp_text_from_bytes(26004685, buffer, sizeof buffer), "24.8 MiB");
    cr_assert_str_eq(ddp_text_from_bytes(17, buffer, sizeof buffer), "17 B");
    cr_assert_str_eq(ddp_text_from_rate(12345, buffer, sizeof buffer), "12.3 k");
    cr_assert_str_eq(ddp_text_from_seconds(250, buffer, sizeof buffer), "4 min 10 s");
    cr_assert_str_eq(ddp_text_from_seconds(7380, buffer, sizeof buffer), "2 h 03 min");
}

Test(text, nearest_word)
{
    static const char *const words[] = {"micro_batch", "global_batch", "steps", "seed", "lr"};
    cr_assert_str_eq(ddp_text_nearest("micro-batch", words, 5), "micro_batch");
    cr_assert_str_eq(ddp_text_nearest("setps", words, 5), "steps");
    cr_assert_str_eq(ddp_text_nearest("glbal_batch", words, 5), "global_batch");
    cr_assert_null(ddp_text_nearest("momentum", words, 5));
}

Test(json, escapes_and_nests)
{
    ddp_text text = {0};
    ddp_json json = {.text = &text};
    ddp_json_open_object(&json, NULL);
    ddp_json_text(&json, "a", "q\"b\\\n\x01\xff\xc3\xbc");
    ddp_json_open_array(&json, "b");
    ddp_json_int(&json, NULL, -1);
    ddp_json_float(&json, NULL, 0.5);
    ddp_json_float(&json, NULL, NAN);
    ddp_json_close_array(&json);
    ddp_json_bool(&json, "c", true);
    ddp_json_text(&json, "d", NULL);
    ddp_json_close_object(&json);
    cr_assert_str_eq(ddp_text_get(&text), "{\"a\": \"q\\\"b\\\\\\n\\u0001\xef\xbf\xbd\xc3\xbc\", \"b\": [-1, "
                                          "0.5, null], \"c\": true, \"d\": null}");
    ddp_text_free(&text);
}
