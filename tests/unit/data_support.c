/* Files and failures, for the tests of data formats. */
#include "data_support.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"

static char directory[] = "/tmp/ddp-data-XXXXXX";
static char paths[16][128];
static int path_count;

const ddp_place data_place = {
    .file = "job.yaml", .line = 3, .column = 10, .length = 5, .text = "  train: a.idx"};

const char *data_file(const char *name, const void *bytes, size_t count)
{
    if (path_count == 0)
        cr_assert_not_null(mkdtemp(directory));
    char wanted[sizeof paths[0]];
    snprintf(wanted, sizeof wanted, "%s/%s", directory, name);
    int at = 0;
    while (at < path_count && strcmp(paths[at], wanted) != 0)
        at++;
    cr_assert_lt(at, 16);
    if (at == path_count)
        strcpy(paths[path_count++], wanted);
    char *path = paths[at]; /* a name used again is the same file with other bytes */
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, count, file), count);
    cr_assert_eq(fclose(file), 0);
    return path;
}

void data_files_remove(void)
{
    if (path_count == 0)
        return;
    for (int i = 0; i < path_count; i++)
        unlink(paths[i]);
    path_count = 0;
    cr_assert_eq(rmdir(directory), 0);
    memcpy(directory + sizeof directory - 7, "XXXXXX", 6);
}

void check_error(ddp_error *error, ddp_error_kind kind, ...)
{
    char *text = NULL;
    size_t size = 0;
    cr_assert_not_null(error, "no error came back");
    FILE *out = open_memstream(&text, &size);
    ddp_error_print(error, "error", out);
    fclose(out);
    va_list wanted;
    va_start(wanted, kind);
    for (const char *one; (one = va_arg(wanted, const char *)) != NULL;)
        cr_assert(strstr(text, one) != NULL, "\"%s\" is not in: %s", one, text);
    va_end(wanted);
    cr_assert_eq((int)ddp_error_get_kind(error), (int)kind, "%s", text);
    free(text);
    ddp_error_free(error);
}
