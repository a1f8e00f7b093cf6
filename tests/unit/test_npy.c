/* .npy files: versions, types, and what is refused by name (case C37). The bytes are what numpy.save writes.
 */
#include <stdlib.h>
#include <string.h>

#include "data_support.h"
#include "runtime/data/datasets.h"
#include "support/test.h"

typedef struct labels {
    char *train, *validation; /* the settings of the format, see runtime/data/arrays.c */
} labels;

static ddp_error *open_pair(const char *samples, const char *label_path, int64_t inputs,
                            ddp_dataset **dataset)
{
    labels settings = {.train = (char *)label_path};
    cr_assert_eq(ddp_dataset_npy_ops.config_bytes, sizeof settings);
    ddp_dataset_config config = {.settings = &settings,
                                 .path = samples,
                                 .place = data_place,
                                 .split = DDP_TRAIN,
                                 .want = {DDP_F32, inputs, DDP_I32, 1, 10, 1}};
    return ddp_dataset_npy_ops.open(&config, dataset);
}

/* A file with this dictionary (padded as NumPy does it) and these elements. */
static const char *make_npy(const char *name, int version, const char *dictionary, const void *elements,
                            size_t bytes)
{
    static unsigned char file[1 << 16];
    size_t prefix = version == 1 ? 10 : 12, length = strlen(dictionary);
    size_t padded = (prefix + length + 1 + 63) / 64 * 64 - prefix;
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (unsigned char)version;
    file[7] = 0;
    for (size_t i = 8; i < prefix; i++)
        file[i] = (unsigned char)(padded >> (8 * (i - 8)));
    memset(file + prefix, ' ', padded);
    memcpy(file + prefix, dictionary, length);
    file[prefix + padded - 1] = '\n';
    memcpy(file + prefix + padded, elements, bytes);
    return data_file(name, file, prefix + padded + bytes);
}

static const char *keep(char *buffer, const char *path)
{
    return strcpy(buffer, path);
}

static const float numbers[6] = {0.5f, -1, 2, 3, 4, 1e-3f};
static const int64_t classes[3] = {9, 0, -1};

Test(npy, versions_and_types_give_the_same_numbers)
{
    static const uint8_t bytes[6] = {0, 1, 2, 3, 4, 255};
    static const double doubles[6] = {0.5, -1, 2, 3, 4, 1e-3};
    char x[512], y[512];
    keep(y, make_npy("y.npy", 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }", classes,
                     sizeof classes));
    for (int version = 1; version <= 3; version++) {
        ddp_dataset *dataset;
        float input[6];
        int32_t target[3];
        const int64_t ids[] = {0, 1, 2};
        keep(x, make_npy("x.npy", version, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }",
                         numbers, sizeof numbers));
        check_ok(open_pair(x, y, 2, &dataset));
        cr_assert_eq(dataset->count, 3);
        check_ok(dataset->ops->read(dataset, ids, 3, input, target));
        cr_assert_eq(memcmp(input, numbers, sizeof input), 0);
        cr_assert(target[0] == 9 && target[1] == 0 && target[2] == -1);
        ddp_dataset_close(dataset);
    }
    ddp_dataset *dataset;
    float input[2];
    int32_t target;
    int64_t id = 2;
    keep(x, make_npy("x.npy", 1, "{\"shape\": (3, 1, 2), 'fortran_order': False, 'descr': '<f8'}", doubles,
                     sizeof doubles));
    check_ok(open_pair(x, y, 2, &dataset));
    check_ok(dataset->ops->read(dataset, &id, 1, input, &target));
    cr_assert(input[0] == 4 && input[1] == 1e-3f);
    ddp_dataset_close(dataset);
    keep(x, make_npy("x.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (3, 2), }", bytes,
                     sizeof bytes));
    check_ok(open_pair(x, y, 2, &dataset));
    check_ok(dataset->ops->read(dataset, &id, 1, input, &target));
    cr_assert_float_eq(input[0], 4 / 255.0, 1e-7);
    cr_assert_float_eq(input[1], 1, 1e-7);
    ddp_dataset_close(dataset);
    data_files_remove();
}

Test(npy, what_is_not_read_is_refused_by_name)
{
    static const struct {
        const char *dictionary, *said;
    } bad[] = {
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (3, 2), }",
         "'>f4': big-endian numbers are not read"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }", "column (Fortran) order"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (3, 2), }", "'|O': Python objects are not read"},
        {"{'descr': '|b1', 'fortran_order': False, 'shape': (3, 2), }", "'|b1': bool are not read"},
        {"{'descr': '<f2', 'fortran_order': False, 'shape': (3, 2), }",
         "'<f2': floats of that size are not read"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (3, 2), }", "complex numbers are not read"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3, 2), }", "records with named fields"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "a single number"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 9999999999999999999), }",
         "a dimension below 2^63"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 4), }",
         "more than any file can hold"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2), }", "it holds no data"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2), }", "8 too few"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }", "8 too many"},
        {"{'descr': '<f4', 'fortran_order': False, }", "descr, fortran_order and shape before the end"},
        {"{'descr': '<f4', 'what': 1, }", "descr, fortran_order or shape is expected"},
        {"{'descr': '<f4", "a short text in quotes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3 2), }", "a comma or the end of the shape"},
        {"[]", "a dictionary is expected"},
    };
    ddp_dataset *dataset;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_error(
            open_pair(make_npy("x.npy", 1, bad[i].dictionary, numbers, sizeof numbers), "y.npy", 2, &dataset),
            DDP_ERR_INPUT, "job.yaml:3:10: error: ", "x.npy: byte ", bad[i].said, NULL);
    check_error(open_pair(data_file("x.npy", "not an array", 12), "y.npy", 2, &dataset), DDP_ERR_INPUT,
                "byte 0: a .npy file begins with", NULL);
    check_error(open_pair(data_file("x.npy", "\x93NUMPY\x04\0\0\0\0\0", 12), "y.npy", 2, &dataset),
                DDP_ERR_INPUT, "found version 4; versions 1, 2 and 3 are read", NULL);
    check_error(open_pair(data_file("x.npy", "\x93NUMPY\x01\0\xff\xff{ }", 14), "y.npy", 2, &dataset),
                DDP_ERR_INPUT, "byte 8: found a header of 65535 bytes; the file has 14", NULL);
    data_files_remove();
}

/* Whatever byte of a header changes, the file is read or refused, never a crash. */
Test(npy, changed_bytes_are_refused_or_read, .timeout = 60)
{
    static const char dictionary[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }";
    char x[512], y[512];
    unsigned char file[256];
    keep(y, make_npy("y.npy", 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }", classes,
                     sizeof classes));
    keep(x, make_npy("x.npy", 1, dictionary, numbers, sizeof numbers));
    FILE *in = fopen(x, "rb");
    size_t bytes = fread(file, 1, sizeof file, in);
    fclose(in);
    for (size_t at = 0; at < 80; at++) {
        static const unsigned char values[] = {0, '(', ')', '\'', ',', '9', 0xFF};
        for (size_t v = 0; v < sizeof values; v++) {
            ddp_dataset *dataset;
            unsigned char before = file[at];
            file[at] = values[v];
            ddp_error *error = open_pair(data_file("x.npy", file, bytes), y, 2, &dataset);
            if (error == NULL)
                ddp_dataset_close(dataset);
            ddp_error_free(error);
            file[at] = before;
        }
    }
    data_files_remove();
}
