/* What every test includes. It is Criterion, except under ThreadSanitizer: Criterion's fork server cannot
 * run there, so a small runner with the same names stands in (one process, tests in order of definition).
 * Use only: Test(suite, name, .timeout = s), cr_assert, cr_assert_not, cr_assert_eq, cr_assert_neq,
 * cr_assert_lt, cr_assert_leq, cr_assert_gt, cr_assert_geq, cr_assert_str_eq, cr_assert_null,
 * cr_assert_not_null, cr_assert_float_eq, cr_assert_fail; an optional format and arguments may follow each.
 */
#ifndef DDP_TESTS_SUPPORT_TEST_H
#define DDP_TESTS_SUPPORT_TEST_H

#ifndef __SANITIZE_THREAD__
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#endif

#include <ddp/error.h>

#ifndef __SANITIZE_THREAD__
#include <criterion/criterion.h>
#else
#include <math.h>
#include <string.h>

typedef struct ddp_test {
    const char *suite, *name;
    void (*run)(void);
    double timeout;
    struct ddp_test *next;
} ddp_test;
void ddp_test_add(ddp_test *test, double timeout);
_Noreturn void ddp_test_fail(const char *file, int line, const char *what, const char *format, ...);

struct ddp_test_options {
    double timeout;
};
#define Test(s, n, ...)                                                                   \
    static void s##_##n(void);                                                            \
    static ddp_test s##_##n##_entry = {#s, #n, s##_##n, 0, NULL};                         \
    __attribute__((constructor)) static void s##_##n##_add(void)                          \
    {                                                                                     \
        ddp_test_add(&s##_##n##_entry, ((struct ddp_test_options){__VA_ARGS__}).timeout); \
    }                                                                                     \
    static void s##_##n(void)
#define cr_assert_that_(ok, text, ...)                               \
    do {                                                             \
        if (!(ok))                                                   \
            ddp_test_fail(__FILE__, __LINE__, text, "" __VA_ARGS__); \
    } while (0)
#define cr_assert(c, ...) cr_assert_that_((c), #c, __VA_ARGS__)
#define cr_assert_not(c, ...) cr_assert_that_(!(c), "not " #c, __VA_ARGS__)
#define cr_assert_eq(a, b, ...) cr_assert_that_((a) == (b), #a " == " #b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) cr_assert_that_((a) != (b), #a " != " #b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) cr_assert_that_((a) < (b), #a " < " #b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) cr_assert_that_((a) <= (b), #a " <= " #b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...) cr_assert_that_((a) > (b), #a " > " #b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) cr_assert_that_((a) >= (b), #a " >= " #b, __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) cr_assert_that_(strcmp((a), (b)) == 0, #a " eq " #b, __VA_ARGS__)
#define cr_assert_null(a, ...) cr_assert_that_((a) == NULL, #a " is NULL", __VA_ARGS__)
#define cr_assert_not_null(a, ...) cr_assert_that_((a) != NULL, #a " is not NULL", __VA_ARGS__)
#define cr_assert_float_eq(a, b, e, ...) cr_assert_that_(fabs((a) - (b)) <= (e), #a " ~ " #b, __VA_ARGS__)
#define cr_assert_fail(...) cr_assert_that_(0, "reached", __VA_ARGS__)
#endif

/* Fails the test with the whole message if an error came back. */
#define check_ok(call)                                        \
    do {                                                      \
        ddp_error *check_ok_error = (call);                   \
        if (check_ok_error != NULL) {                         \
            ddp_error_print(check_ok_error, "error", stderr); \
            ddp_error_free(check_ok_error);                   \
            cr_assert_fail("%s failed", #call);               \
        }                                                     \
    } while (0)

#endif
