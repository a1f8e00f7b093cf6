/* What the fuzz targets share. A target is one function that takes any bytes; libFuzzer calls it with bytes
 * that it makes up (-DDDP_FUZZ=ON, clang), replay.c with those of the corpus (every build, as a test). */
#ifndef DDP_TESTS_FUZZ_H
#define DDP_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include <ddp/dataset.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The bytes as a file, in memory; the next call replaces it. The path is always the same. There is a second
 * one. */
const char *fuzz_file(const uint8_t *data, size_t bytes);
const char *fuzz_second_file(const uint8_t *data, size_t bytes);

/* Prints the error to nowhere and frees it; NULL is fine. */
void fuzz_drop(ddp_error *error);

/* Opens a dataset of that file, reads its first and last samples and those between, closes it. */
void fuzz_dataset(const ddp_dataset_ops *ops, const ddp_dataset_config *config);

#endif
