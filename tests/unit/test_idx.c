/* IDX files: every element type, the shipped digits, and each kind of broken file (case C37). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/rng.h"
#include "data_support.h"
#include "runtime/data/bytes.h"
#include "runtime/data/datasets.h"
#include "support/test.h"

typedef struct labels {
    char *train, *validation;
} labels;

static const ddp_sample want_2x2 = {
    .input = DDP_F32, .input_count = 4, .target = DDP_I32, .target_count = 1, .classes = 10, .items = 1};

static ddp_error *open_with(const char *path, char *labels_path, ddp_sample want, ddp_dataset **dataset)
{
    labels settings = {labels_path, NULL};
    ddp_dataset_config config = {.settings = &settings, .path = path, .place = data_place, .want = want};
    return ddp_dataset_idx_ops.open(&config, dataset);
}

/* Three images of 2 x 2: 0, 1, ..., 10, 255. */
static const unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0,  0,
                                       0, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 255};
static const unsigned char classes[] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 9};

static const char *good_images(void)
{
    data_file("t-labels.idx", classes, sizeof classes);
    return data_file("t-images.idx", images, sizeof images);
}

Test(idx, bytes_become_features_from_0_to_1)
{
    ddp_dataset *dataset;
    float input[8];
    int32_t target[2] = {-9, -9};
    memset(input, 0xFF, sizeof input);
    check_ok(open_with(good_images(), NULL, want_2x2, &dataset));
    cr_assert_eq(dataset->count, 3);
    cr_assert_str_eq(dataset->description, "3 samples of 2 x 2, 10 classes");
    check_ok(dataset->ops->read(dataset, (int64_t[]){2, 0}, 2, input, target));
    cr_assert_eq(input[3], 1.0f);
    cr_assert_float_eq(input[0], 8 / 255.0, 1e-7);
    cr_assert_eq(input[4], 0.0f);
    cr_assert_float_eq(input[7], 3 / 255.0, 1e-7);
    cr_assert_eq(target[0], 9);
    cr_assert_eq(target[1], 7);
    ddp_dataset_close(dataset);
    data_files_remove();
}

static void check_type(unsigned char code, const unsigned char *elements, size_t bytes, double first,
                       double second)
{
    unsigned char file[64] = {0, 0, code, 2, 0, 0, 0, 1, 0, 0, 0, 2};
    const unsigned char label[] = {0, 0, 8, 1, 0, 0, 0, 1, 0};
    ddp_sample want = want_2x2;
    ddp_dataset *dataset;
    float input[2] = {NAN, NAN};
    int32_t target;
    want.input_count = 2;
    memcpy(file + 12, elements, bytes);
    data_file("x-labels", label, sizeof label);
    check_ok(open_with(data_file("x-images", file, 12 + bytes), NULL, want, &dataset));
    check_ok(dataset->ops->read(dataset, (int64_t[]){0}, 1, input, &target));
    cr_assert_float_eq(input[0], first, 1e-7, "type %02x: %g", code, input[0]);
    cr_assert_float_eq(input[1], second, 1e-7, "type %02x: %g", code, input[1]);
    ddp_dataset_close(dataset);
    data_files_remove();
}

Test(idx, every_element_type_is_big_endian)
{
    check_type(0x08, (const unsigned char[]){51, 255}, 2, 0.2, 1);
    check_type(0x09, (const unsigned char[]){0xFF, 0x7F}, 2, -1, 127);
    check_type(0x0B, (const unsigned char[]){0xFF, 0xFE, 0x01, 0x02}, 4, -2, 258);
    check_type(0x0C, (const unsigned char[]){0xFF, 0xFF, 0xFF, 0xFD, 0, 1, 0, 0}, 8, -3, 65536);
    check_type(0x0D, (const unsigned char[]){0x3F, 0x80, 0, 0, 0xC0, 0x20, 0, 0}, 8, 1, -2.5);
    check_type(0x0E, (const unsigned char[]){0x3F, 0xF0, 0, 0, 0, 0, 0, 0, 0xC0, 0x04, 0, 0, 0, 0, 0, 0}, 16,
               1, -2.5);
}

/* `change` bytes at `at` in the good images, cut or grown to `bytes`. */
static ddp_error *open_broken(size_t at, const void *change, size_t count, size_t bytes)
{
    unsigned char file[64] = {0};
    ddp_dataset *dataset;
    memcpy(file, images, sizeof images);
    memcpy(file + at, change, count);
    data_file("b-labels.idx", classes, sizeof classes);
    ddp_error *error = open_with(data_file("b-images.idx", file, bytes), NULL, want_2x2, &dataset);
    data_files_remove();
    return error;
}

Test(idx, broken_files_are_refused_with_place_offset_found_and_expected)
{
    const char *where = "job.yaml:3:10: error: ";
    size_t all = sizeof images;
    check_error(open_broken(0, "\x1f\x8b\x08", 3, all), DDP_ERR_INPUT, where,
                "b-images.idx: byte 0: found 1f 8b", "gzip", "help: gunzip ", NULL);
    check_error(open_broken(0, "\x03\x08\0\0", 4, all), DDP_ERR_INPUT, where, "byte 0: found 03 08 00 00",
                "begins with 00 00", "little-endian", NULL);
    check_error(open_broken(0, "\x89PNG", 4, all), DDP_ERR_INPUT, where, "byte 0: found 89 50 4e 47", NULL);
    check_error(open_broken(2, "\x07", 1, all), DDP_ERR_INPUT, where, "byte 2: found element type 07",
                "expected 08 (u8)", NULL);
    check_error(open_broken(2, "\x0a", 1, all), DDP_ERR_INPUT, "element type 0a", NULL);
    check_error(open_broken(2, "\xff", 1, all), DDP_ERR_INPUT, "element type ff", NULL);
    check_error(open_broken(3, "\0", 1, all), DDP_ERR_INPUT, where, "byte 3: found 0 dimensions", NULL);
    check_error(open_broken(3, "\xff", 1, all), DDP_ERR_INPUT, where, "byte 28: the file ends",
                "needs 1024 bytes", NULL);
    check_error(open_broken(4, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12, all), DDP_ERR_INPUT,
                where, "byte 4: found 4294967295 samples of 4294967295 x 4294967295", "the file has 28 bytes",
                NULL);
    check_error(open_broken(4, "\0\0\0\0", 4, all), DDP_ERR_INPUT, where, "found 0 samples", "no data", NULL);
    check_error(open_broken(8, "\0\0\0\0", 4, all), DDP_ERR_INPUT, where, "no data", NULL);
    check_error(open_broken(0, "", 0, all - 1), DDP_ERR_INPUT, where, "byte 27: found 27 bytes, 1 too few",
                "3 samples of 2 x 2 u8 need 28", NULL);
    check_error(open_broken(0, "", 0, all + 1), DDP_ERR_INPUT, where, "byte 28: found 29 bytes, 1 too many",
                "need 28", NULL);
    check_error(open_broken(0, "", 0, 10), DDP_ERR_INPUT, where,
                "byte 10: the file ends; its header needs 16", NULL);
    check_error(open_broken(0, "", 0, 3), DDP_ERR_INPUT, where, "byte 3: the file ends", NULL);
    check_error(open_broken(0, "", 0, 0), DDP_ERR_INPUT, where, "byte 0: the file ends", NULL);
}

/* 255 dimensions, all 1 but the first: legal. */
Test(idx, many_dimensions_are_fine)
{
    unsigned char file[4 + 4 * 255 + 2] = {0, 0, 8, 255};
    ddp_sample want = want_2x2;
    ddp_dataset *dataset;
    want.input_count = 1;
    for (int i = 0; i < 255; i++)
        file[4 + 4 * i + 3] = i == 0 ? 2 : 1;
    const unsigned char two[] = {0, 0, 8, 1, 0, 0, 0, 2, 1, 2};
    data_file("d-labels", two, sizeof two);
    check_ok(open_with(data_file("d-images", file, sizeof file), NULL, want, &dataset));
    cr_assert_eq(dataset->count, 2);
    ddp_dataset_close(dataset);
    data_files_remove();
}

static ddp_error *open_labels(const void *bytes, size_t count, ddp_sample want)
{
    ddp_dataset *dataset = NULL;
    data_file("t-labels.idx", bytes, count);
    ddp_error *error = open_with(data_file("t-images.idx", images, sizeof images), NULL, want, &dataset);
    ddp_dataset_close(error == NULL ? dataset : NULL);
    data_files_remove();
    return error;
}

Test(idx, labels_must_fit_the_samples_and_the_model)
{
    const unsigned char two[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 0};
    const unsigned char high[] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 10};
    const unsigned char negative[] = {0, 0, 9, 1, 0, 0, 0, 3, 7, 0xFE, 1};
    const unsigned char masked[] = {0, 0, 9, 1, 0, 0, 0, 3, 7, 0xFF, 1};
    const unsigned char pairs[] = {0, 0, 8, 2, 0, 0, 0, 3, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6};
    const unsigned char floats[] = {0, 0, 13, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    const char *where = "job.yaml:3:10: error: ";
    check_error(open_labels(two, sizeof two, want_2x2), DDP_ERR_INPUT, where,
                "t-labels.idx: byte 4: found 2 labels", "t-images.idx has 3 samples", NULL);
    check_error(open_labels(high, sizeof high, want_2x2), DDP_ERR_INPUT, where,
                "byte 10: found label 10 (sample 2)", "classes 0 to 9", NULL);
    check_error(open_labels(negative, sizeof negative, want_2x2), DDP_ERR_INPUT, where,
                "byte 9: found label -2", NULL);
    check_ok(open_labels(masked, sizeof masked, want_2x2));
    check_error(open_labels(pairs, sizeof pairs, want_2x2), DDP_ERR_INPUT, where, "found 2 values a label",
                NULL);
    check_error(open_labels(floats, sizeof floats, want_2x2), DDP_ERR_INPUT, where,
                "byte 2: found labels of type f32", NULL);
    check_error(open_labels(high, sizeof high - 1, want_2x2), DDP_ERR_INPUT, where,
                "t-labels.idx: byte 10: ", "1 too few", "while looking for the labels of", NULL);
}

Test(idx, a_model_of_values_takes_labels_as_they_are)
{
    const unsigned char pairs[] = {0, 0, 8, 2, 0, 0, 0, 3, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6};
    ddp_sample want = want_2x2;
    ddp_dataset *dataset;
    float input[4], target[2] = {NAN, NAN};
    want.target = DDP_F32;
    want.target_count = 2;
    want.classes = 0;
    data_file("t-labels.idx", pairs, sizeof pairs);
    check_ok(open_with(data_file("t-images.idx", images, sizeof images), NULL, want, &dataset));
    check_ok(dataset->ops->read(dataset, (int64_t[]){1}, 1, input, target));
    cr_assert_eq(target[0], 3.0f);
    cr_assert_eq(target[1], 4.0f);
    ddp_dataset_close(dataset);
    data_files_remove();
}

Test(idx, labels_file_is_named_or_found)
{
    ddp_dataset *dataset;
    const char *path = data_file("train-images-idx3-ubyte", images, sizeof images);
    check_error(open_with(path, NULL, want_2x2, &dataset), DDP_ERR_INPUT,
                "train-labels-idx1-ubyte: No such file", "while looking for the labels of", NULL);
    const char *labels_path = data_file("train-labels-idx1-ubyte", classes, sizeof classes);
    check_ok(open_with(path, NULL, want_2x2, &dataset));
    ddp_dataset_close(dataset);
    const char *odd = data_file("pictures", images, sizeof images);
    check_error(open_with(odd, NULL, want_2x2, &dataset), DDP_ERR_INPUT, "job.yaml:3:10",
                "pictures: which file has its labels?", "help: data.train_labels: FILE", NULL);
    check_ok(open_with(odd, (char *)labels_path, want_2x2, &dataset));
    ddp_dataset_close(dataset);
    data_files_remove();
}

Test(idx, another_shape_than_the_model_takes_is_refused)
{
    ddp_sample want = want_2x2;
    ddp_dataset *dataset;
    const char *path = good_images();
    want.input_count = 784;
    check_error(open_with(path, NULL, want, &dataset), DDP_ERR_INPUT, "job.yaml:3:10",
                "found samples of 2 x 2, 4 values", "the model takes 784", "help: model.inputs: 4", NULL);
    want = (ddp_sample){
        .input = DDP_I32, .input_count = 32, .target = DDP_I32, .target_count = 32, .classes = 256};
    check_error(open_with(path, NULL, want, &dataset), DDP_ERR_INPUT, "idx makes features", "32 i32 tokens",
                NULL);
    check_error(open_with("/nowhere/images", NULL, want_2x2, &dataset), DDP_ERR_INPUT, "job.yaml:3:10",
                "/nowhere/images: ", NULL);
    check_error(open_with("/tmp", NULL, want_2x2, &dataset), DDP_ERR_INPUT, "/tmp is a directory", NULL);
    data_files_remove();
}

/* Larger than what is held in memory: read by place; then cut while it is open. */
Test(idx, a_large_file_is_read_by_place_and_may_not_shrink, .timeout = 60)
{
    const int64_t rows = DDP_BYTES_IN_MEMORY / 4 + 2;
    unsigned char header[] = {0,
                              0,
                              8,
                              2,
                              (unsigned char)(rows >> 24),
                              (unsigned char)(rows >> 16),
                              (unsigned char)(rows >> 8),
                              (unsigned char)rows,
                              0,
                              0,
                              0,
                              4};
    unsigned char label_header[] = {0, 0, 8, 1, header[4], header[5], header[6], header[7]};
    const unsigned char last[] = {255, 0, 51, 255};
    ddp_dataset *dataset;
    float input[4];
    int32_t target;
    const char *path = data_file("l-images", header, sizeof header);
    const char *labels_path = data_file("l-labels", label_header, sizeof label_header);
    cr_assert_eq(truncate(labels_path, 8 + rows), 0);
    cr_assert_eq(truncate(path, 12 + 4 * rows - 4), 0);
    FILE *file = fopen(path, "ab");
    cr_assert_eq(fwrite(last, 1, 4, file), 4);
    fclose(file);
    check_ok(open_with(path, NULL, want_2x2, &dataset));
    cr_assert_eq(dataset->count, rows);
    check_ok(dataset->ops->read(dataset, (int64_t[]){rows - 1}, 1, input, &target));
    cr_assert_eq(input[0], 1.0f);
    cr_assert_float_eq(input[2], 0.2, 1e-7);
    cr_assert_eq(truncate(path, 1000), 0);
    check_error(dataset->ops->read(dataset, (int64_t[]){rows - 1}, 1, input, &target), DDP_ERR_IO,
                "l-images ends at byte", NULL);
    ddp_dataset_close(dataset);
    data_files_remove();
}

/* The files in configs/data: counts, and each class about equally often in both parts. */
Test(idx, shipped_digits_are_whole)
{
    static const struct {
        const char *path;
        int64_t count;
    } parts[] = {{"configs/data/digits-train-images.idx", 1437},
                 {"configs/data/digits-validation-images.idx", 360}};
    ddp_sample want = want_2x2;
    want.input_count = 64;
    for (int part = 0; part < 2; part++) {
        ddp_dataset *dataset;
        int counts[10] = {0};
        float brightest = 0, darkest = 1;
        check_ok(open_with(parts[part].path, NULL, want, &dataset));
        cr_assert_eq(dataset->count, parts[part].count);
        for (int64_t id = 0; id < dataset->count; id++) {
            float input[64];
            int32_t target;
            check_ok(dataset->ops->read(dataset, &id, 1, input, &target));
            counts[target]++;
            for (int i = 0; i < 64; i++) {
                brightest = fmaxf(brightest, input[i]);
                darkest = fminf(darkest, input[i]);
            }
        }
        cr_assert_eq(brightest, 1.0f);
        cr_assert_eq(darkest, 0.0f);
        for (int i = 0; i < 10; i++)
            cr_assert_float_eq(counts[i], parts[part].count / 10.0, parts[part].count / 25.0);
        ddp_dataset_close(dataset);
    }
}

/* Any change of up to three bytes and of the length: refused or read, never a crash (AddressSanitizer
 * watches). */
Test(idx, changed_bytes_are_refused_or_read, .timeout = 30)
{
    int opened = 0, refused = 0;
    for (uint64_t trial = 0; trial < 1000; trial++) {
        unsigned char file[sizeof images + 4];
        uint64_t random = ddp_rng_u64(1, 2, trial);
        size_t bytes = random % 8 == 0 ? random / 8 % sizeof file : sizeof images;
        memcpy(file, images, sizeof images);
        memset(file + sizeof images, 0, 4);
        for (uint64_t i = 0; i <= random % 3; i++) {
            uint64_t change = ddp_rng_u64(1, 3 + i, trial);
            file[change % (random % 2 == 0 ? 16 : sizeof images)] = (unsigned char)(change >> 32);
        }
        ddp_dataset *dataset;
        data_file("f-labels", classes, sizeof classes);
        ddp_error *error = open_with(data_file("f-images", file, bytes), NULL, want_2x2, &dataset);
        if (error == NULL) {
            float input[4 * 3];
            int32_t target[3];
            check_ok(dataset->ops->read(dataset, (int64_t[]){0, 1, 2}, (int64_t)dataset->count < 3 ? 1 : 3,
                                        input, target));
            ddp_dataset_close(dataset);
        }
        refused += error != NULL;
        opened += error == NULL;
        ddp_error_free(error);
        data_files_remove();
    }
    cr_assert_gt(opened, 20);
    cr_assert_gt(refused, 300);
}
