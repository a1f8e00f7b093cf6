/* The stand-in runner for ThreadSanitizer builds; empty elsewhere. */
#include "support/test.h"

#ifdef __SANITIZE_THREAD__
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static ddp_test *first, **last = &first;

void ddp_test_add(ddp_test *test, double timeout)
{
    test->timeout = timeout > 0 ? timeout : 60;
    *last = test;
    last = &test->next;
}

void ddp_test_fail(const char *file, int line, const char *what, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s:%d: failed: %s ", file, line, what);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

int main(void)
{
    int count = 0;
    for (ddp_test *test = first; test != NULL; test = test->next, count++) {
        fprintf(stderr, "[ RUN  ] %s::%s\n", test->suite, test->name);
        alarm((unsigned)(test->timeout * 10)); /* the sanitizer is slow; a hang still ends */
        test->run();
    }
    fprintf(stderr, "[====] Synthesis: Tested: %d | Passing: %d | Failing: 0\n", count, count);
    return 0;
}
#endif
