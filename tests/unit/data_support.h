/* Files and failures, for the tests of data formats. */
#ifndef DDP_TESTS_DATA_SUPPORT_H
#define DDP_TESTS_DATA_SUPPORT_H

#include <ddp/dataset.h>
#include <stddef.h>

/* Makes a file in this test's own new directory (same directory for all files of a process). The path is
 * valid until the test ends. */
const char *data_file(const char *name, const void *bytes, size_t count);

/* Removes them all. */
void data_files_remove(void);

/* Fails the test unless `error` is of this kind and its printed block holds every text up to NULL. Frees it.
 */
void check_error(ddp_error *error, ddp_error_kind kind, ...) __attribute__((sentinel));

/* A place in a job file, for config.place. */
extern const ddp_place data_place;

#endif
