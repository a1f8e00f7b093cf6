/* Reading JSON: what RFC 8259 allows is read, everything else is refused with its place. */
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "support/test.h"

/* Whether the whole message holds `part`. */
static bool says(const ddp_error *error, const char *part)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    ddp_error_print(error, "error", out);
    fclose(out);
    bool found = strstr(text, part) != NULL;
    if (!found)
        fprintf(stderr, "no \"%s\" in: %s", part, text);
    free(text);
    return found;
}

static ddp_error *read_text(const char *text, ddp_json_document *document)
{
    return ddp_json_read("x.json", text, strlen(text), document);
}

Test(json, reads_every_kind_of_value, .timeout = 10)
{
    ddp_json_document document;
    check_ok(read_text(
        " {\"a\": [1, -2.5e3, true, false, null, \"t\\n\\u00e9\\ud83d\\ude00\\/\"], \"b\": {}} ", &document));
    const ddp_json_value *a = ddp_json_get(document.root, "a"), *b = ddp_json_get(document.root, "b");
    cr_assert_eq(a->kind, DDP_JSON_ARRAY);
    cr_assert_eq(a->integer, 6);
    const ddp_json_value *at = a->first;
    cr_assert_eq(at->kind, DDP_JSON_INT);
    cr_assert_eq(at->integer, 1);
    at = at->next;
    cr_assert_eq(at->kind, DDP_JSON_FLOAT);
    cr_assert_eq(at->number, -2500.0);
    at = at->next;
    cr_assert(at->kind == DDP_JSON_BOOL && at->integer == 1);
    at = at->next;
    cr_assert(at->kind == DDP_JSON_BOOL && at->integer == 0);
    at = at->next;
    cr_assert_eq(at->kind, DDP_JSON_NULL);
    at = at->next;
    cr_assert_str_eq(at->text, "t\n\xC3\xA9\xF0\x9F\x98\x80/");
    cr_assert(b->kind == DDP_JSON_OBJECT && b->first == NULL && b->next == NULL);
    cr_assert_null(ddp_json_get(b, "a"));
    cr_assert_null(ddp_json_get(NULL, "a"));
    ddp_json_free(&document);
}

Test(json, keeps_numbers_exact, .timeout = 10)
{
    ddp_json_document document;
    check_ok(read_text("[9223372036854775807, -9223372036854775808, 9223372036854775808, 0.1, 1e-310]",
                       &document));
    const ddp_json_value *at = document.root->first;
    cr_assert_eq(at->integer, INT64_MAX);
    cr_assert_eq(at->next->integer, INT64_MIN);
    cr_assert_eq(at->next->next->kind, DDP_JSON_FLOAT);
    cr_assert_eq(at->next->next->next->number, 0.1);
    ddp_json_free(&document);
}

Test(json, refuses_what_is_not_json_and_says_where, .timeout = 10)
{
    static const struct {
        const char *text, *says;
        int line, column;
    } cases[] = {
        {"", "a value was expected", 1, 1},
        {"{\"a\": 1,\n \"b\" 2}", "a colon was expected", 2, 6},
        {"[1, 2,]", "a value was expected", 1, 7},
        {"[1 2]", "a comma or ] was expected", 1, 4},
        {"{\"a\": 1,}", "a key in quotes was expected", 1, 9},
        {"[01]", "a value was expected", 1, 2},
        {"[1.]", "digits belong behind the point", 1, 4},
        {"[1e]", "digits belong behind the e", 1, 4},
        {"[1e999]", "a number too large", 1, 2},
        {"[\"a", "closing quote", 1, 4},
        {"[\"a\tb\"]", "a control character", 1, 4},
        {"[\"\\x\"]", "an unknown escape", 1, 3},
        {"[\"\\u12\"]", "four hex digits", 1, 5},
        {"[\"\\u0000\"]", "a NUL character", 1, 5},
        {"[\"\\ud800\"]", "half of a surrogate pair", 1, 9},
        {"[\"\\udc00\"]", "half of a surrogate pair", 1, 9},
        {"[\"\xC0\x80\"]", "not UTF-8", 1, 3},
        {"[nul]", "a value was expected", 1, 2},
        {"[] x", "should end here", 1, 4},
        {"[\"a\\nb\", x]", "a value was expected", 1, 10},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddp_json_document document;
        ddp_error *error = read_text(cases[i].text, &document);
        char place[64];
        cr_assert_not_null(error, "%s was read", cases[i].text);
        snprintf(place, sizeof place, "x.json:%d:%d:", cases[i].line, cases[i].column);
        cr_assert(says(error, place), "%s", cases[i].text);
        cr_assert(says(error, cases[i].says), "%s", cases[i].text);
        ddp_error_free(error);
    }
}

Test(json, refuses_depth_and_a_nul_byte, .timeout = 10)
{
    char deep[2 * DDP_JSON_DEPTH + 8];
    ddp_json_document document;
    memset(deep, '[', DDP_JSON_DEPTH + 1);
    memset(deep + DDP_JSON_DEPTH + 1, ']', DDP_JSON_DEPTH + 1);
    ddp_error *error = ddp_json_read("x.json", deep, 2 * DDP_JSON_DEPTH + 2, &document);
    cr_assert_not_null(error);
    ddp_error_free(error);
    check_ok(ddp_json_read("x.json", deep + 1, 2 * DDP_JSON_DEPTH, &document));
    ddp_json_free(&document);
    error = ddp_json_read("x.json", "[1]\0", 4, &document);
    cr_assert_not_null(error);
    ddp_error_free(error);
}

Test(json, finds_a_repeated_key, .timeout = 10)
{
    ddp_json_document document;
    const char *key;
    check_ok(read_text("{\"a\": 1, \"b\": 2, \"a\": 3}", &document));
    check_ok(ddp_json_find_repeated(document.root, &key));
    cr_assert_str_eq(key, "a");
    cr_assert_eq(ddp_json_get(document.root, "a")->integer, 1);
    ddp_json_free(&document);
    check_ok(read_text("{\"a\": 1, \"b\": 2}", &document));
    check_ok(ddp_json_find_repeated(document.root, &key));
    cr_assert_null(key);
    ddp_json_free(&document);
}
