/* Files of checkpoints: layout, record, shelf; and safetensors as others might write them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include "core/files.h"
#include "core/hash.h"
#include "runtime/builtins.h"
#include "runtime/checkpoint/layout.h"
#include "runtime/checkpoint/shelf.h"
#include "runtime/safetensors.h"
#include "support/test.h"

static char directory[64];

static void make_directory(void)
{
    snprintf(directory, sizeof directory, "/tmp/ddp-ckpt-XXXXXX");
    cr_assert_not_null(mkdtemp(directory));
}

static void remove_directory(void)
{
    check_ok(ddp_tree_remove(directory));
}

static bool exists(const char *name)
{
    char *path;
    check_ok(ddp_path_join(directory, name, &path));
    bool found = access(path, F_OK) == 0;
    free(path);
    return found;
}

static const ddp_optim_ops *find_optim(const char *name)
{
    const ddp_optim_ops *const *ops = ddp_builtin_optims();
    while (strcmp((*ops)->name, name) != 0)
        ops++;
    return *ops;
}

/* -- layout -- */

static void make_params(ddp_params *params)
{
    int index;
    check_ok(
        ddp_params_add(params, "big.weight", DDP_INIT_NORMAL, 1, true, 2, (int64_t[]){3000, 1000}, &index));
    check_ok(ddp_params_add(params, "big.bias", DDP_INIT_ZERO, 0, false, 1, (int64_t[]){3000}, &index));
    check_ok(ddp_params_add(params, "one", DDP_INIT_ONE, 0, false, 1, (int64_t[]){1}, &index));
    check_ok(ddp_params_seal(params));
}

Test(layout, parts_cover_their_files_and_shares_cover_the_parts, .timeout = 20)
{
    ddp_params params = {.count = 0};
    ddp_checkpoint_layout layout;
    make_params(&params);
    check_ok(ddp_checkpoint_layout_make(&params, find_optim("adamw"), &layout));
    cr_assert_eq(layout.file_count, 2);
    int64_t at[2] = {0, 0};
    for (int i = 0; i < layout.part_count; i++) {
        const ddp_checkpoint_part *part = &layout.parts[i];
        cr_assert_eq(part->begin, at[part->file]);
        cr_assert(part->end - part->begin <= DDP_PART_BYTES);
        at[part->file] = part->end;
    }
    cr_assert(at[0] == layout.files[0].bytes && at[1] == layout.files[1].bytes);
    cr_assert_eq(at[0] + at[1], layout.bytes);
    for (int world = 1; world <= 40; world++) {
        int next = 0, first, end;
        for (int rank = 0; rank < world; rank++) {
            ddp_checkpoint_layout_share(&layout, rank, world, &first, &end);
            cr_assert_eq(first, next, "%d ranks", world);
            next = end;
        }
        cr_assert_eq(next, layout.part_count, "%d ranks", world);
    }
    ddp_checkpoint_layout_free(&layout);
    ddp_params_free(&params);
}

Test(layout, sgd_without_state_needs_no_second_file_only_where_it_has_none, .timeout = 20)
{
    ddp_params params = {.count = 0};
    ddp_checkpoint_layout layout;
    ddp_optim_ops stateless = *find_optim("sgd");
    make_params(&params);
    stateless.slots = 0;
    check_ok(ddp_checkpoint_layout_make(&params, &stateless, &layout));
    cr_assert_eq(layout.file_count, 1);
    ddp_checkpoint_layout_free(&layout);
    ddp_params_free(&params);
}

/* -- records and shelves -- */

static void write_checkpoint(const char *name, int64_t sequence, int64_t step, double loss)
{
    char *path, *file;
    ddp_record_part part = {0, 4, ddp_hash("abcd", 4)};
    ddp_record_file files = {(char *)"model.safetensors", 4, &part, 1};
    ddp_pair pair = {(char *)"train.steps", (char *)"\"10\""};
    ddp_text text = {0};
    ddp_checkpoint_record record = {
        .state = {.sequence = sequence,
                  .step = step,
                  .samples = 24 * step,
                  .updates = step,
                  .has_eval = isfinite(loss),
                  .eval_loss = loss,
                  .accuracy = NAN,
                  .lr = 0.1,
                  .parameters = 7,
                  .data = UINT64_MAX,
                  .world = 3},
        .job = {&pair, 1},
        .files = &files,
        .file_count = 1,
    };
    check_ok(ddp_path_join(directory, name, &path));
    check_ok(ddp_directory_make(path));
    check_ok(ddp_path_join(path, "model.safetensors", &file));
    check_ok(ddp_file_save(file, "abcd", 4));
    free(file);
    ddp_checkpoint_record_write(&record, &text);
    check_ok(ddp_path_join(path, DDP_CHECKPOINT_RECORD, &file));
    check_ok(ddp_file_save(file, ddp_text_get(&text), text.length));
    free(file);
    free(path);
    ddp_text_free(&text);
}

static void age(const char *name, time_t when)
{
    char *path;
    check_ok(ddp_path_join(directory, name, &path));
    cr_assert_eq(utime(path, &(struct utimbuf){when, when}), 0);
    free(path);
}

Test(record, reads_back_what_was_written, .timeout = 10)
{
    make_directory();
    write_checkpoint("step-00000010", 5, 10, 1.25);
    char *path;
    ddp_checkpoint_record record;
    check_ok(ddp_path_join(directory, "step-00000010", &path));
    check_ok(ddp_checkpoint_record_load(path, &record));
    cr_assert(record.state.sequence == 5 && record.state.step == 10 && record.state.samples == 240);
    cr_assert(record.state.has_eval && record.state.eval_loss == 1.25 && isnan(record.state.accuracy));
    cr_assert(record.state.data == UINT64_MAX && record.state.world == 3);
    cr_assert(record.job.count == 1 && record.file_count == 1 && record.bytes == 4);
    cr_assert_str_eq(record.job.at[0].value, "\"10\"");
    cr_assert_eq(record.files[0].parts[0].hash, ddp_hash("abcd", 4));
    ddp_checkpoint_record_free(&record);
    free(path);
    remove_directory();
}

/* Every single damaged byte is noticed, whatever it hits. */
Test(record, notices_every_flipped_byte_and_every_cut, .timeout = 60)
{
    make_directory();
    write_checkpoint("step-00000010", 5, 10, 1.25);
    char *path, *file, *text;
    size_t bytes;
    ddp_checkpoint_record record;
    check_ok(ddp_path_join(directory, "step-00000010", &path));
    check_ok(ddp_path_join(path, DDP_CHECKPOINT_RECORD, &file));
    check_ok(ddp_file_load(file, 1 << 20, &text, &bytes));
    for (size_t i = 0; i < bytes; i++) {
        text[i] ^= 0x10;
        check_ok(ddp_file_save(file, text, bytes));
        text[i] ^= 0x10;
        ddp_error *error = ddp_checkpoint_record_load(path, &record);
        cr_assert_not_null(error, "byte %zu", i);
        ddp_error_free(error);
        check_ok(ddp_file_save(file, text, i));
        error = ddp_checkpoint_record_load(path, &record);
        cr_assert_not_null(error, "cut at %zu", i);
        ddp_error_free(error);
    }
    free(text);
    free(file);
    free(path);
    remove_directory();
}

Test(shelf, keeps_by_order_of_commit_whatever_names_and_times_say, .timeout = 10)
{
    static const time_t times[][4] = {{5, 5, 5, 5}, {4, 3, 2, 1}, {1, 2, 3, 2000000000}};
    for (int round = 0; round < 3; round++) {
        make_directory();
        /* 1100 was committed before 900 and 1000: a run went back. */
        write_checkpoint("step-00000800", 1, 800, NAN);
        write_checkpoint("step-00001100", 2, 1100, NAN);
        write_checkpoint("step-00000900", 3, 900, NAN);
        write_checkpoint("step-00001000", 4, 1000, NAN);
        age("step-00000800", times[round][0]);
        age("step-00001100", times[round][1]);
        age("step-00000900", times[round][2]);
        age("step-00001000", times[round][3]);
        char *foreign;
        check_ok(ddp_path_join(directory, "step-5000", &foreign));
        check_ok(ddp_directory_make(foreign));
        free(foreign);
        check_ok(ddp_path_join(directory, "step-abc", &foreign));
        check_ok(ddp_file_save(foreign, "mine", 4));
        free(foreign);
        ddp_shelf shelf;
        check_ok(ddp_shelf_list(directory, &shelf));
        cr_assert_eq(shelf.count, 4);
        cr_assert_eq(shelf.at[0].state.step, 1000);
        cr_assert_eq(ddp_error_count(shelf.strangers), 2);
        ddp_shelf_free(&shelf);
        check_ok(ddp_shelf_trim(directory, 2, false));
        cr_assert(exists("step-00000900") && exists("step-00001000"));
        cr_assert(!exists("step-00000800") && !exists("step-00001100"));
        cr_assert(exists("step-5000") && exists("step-abc"));
        check_ok(ddp_shelf_trim(directory, 0, false)); /* never none */
        cr_assert(exists("step-00001000") && !exists("step-00000900"));
        remove_directory();
    }
}

Test(shelf, keeps_the_best_besides, .timeout = 10)
{
    make_directory();
    write_checkpoint("step-00000001", 1, 1, 3.0);
    write_checkpoint("step-00000002", 2, 2, 1.0);
    write_checkpoint("step-00000003", 3, 3, 2.0);
    write_checkpoint("step-00000004", 4, 4, NAN);
    check_ok(ddp_shelf_trim(directory, 1, true));
    cr_assert(exists("step-00000002") && exists("step-00000004"));
    cr_assert(!exists("step-00000001") && !exists("step-00000003"));
    remove_directory();
}

Test(shelf, commits_in_one_step_and_replaces_only_its_own, .timeout = 10)
{
    make_directory();
    write_checkpoint(".step-00000010.part", 1, 10, NAN);
    check_ok(ddp_shelf_commit(directory, "step-00000010"));
    cr_assert(exists("step-00000010") && exists("latest/checkpoint.json") && !exists(".step-00000010.part"));
    write_checkpoint(".step-00000010.part", 2, 10, 0.5);
    check_ok(ddp_shelf_commit(directory, "step-00000010"));
    ddp_shelf shelf;
    check_ok(ddp_shelf_list(directory, &shelf));
    cr_assert(shelf.count == 1 && shelf.at[0].state.sequence == 2);
    ddp_shelf_free(&shelf);
    char *foreign;
    check_ok(ddp_path_join(directory, "step-00000020/mine", &foreign));
    *strrchr(foreign, '/') = '\0';
    check_ok(ddp_directory_make(foreign));
    *(foreign + strlen(foreign)) = '/';
    check_ok(ddp_file_save(foreign, "mine", 4));
    free(foreign);
    write_checkpoint(".step-00000020.part", 3, 20, NAN);
    ddp_error *error = ddp_shelf_commit(directory, "step-00000020");
    cr_assert_not_null(error);
    cr_assert_not_null(strstr(ddp_error_message(error), "is in the way"));
    ddp_error_free(error);
    cr_assert(exists("step-00000020/mine"));
    check_ok(ddp_shelf_clean(directory));
    cr_assert(!exists(".step-00000020.part"));
    remove_directory();
}

/* -- safetensors -- */

static ddp_error *open_bytes(const char *header, int64_t length, const char *data, size_t bytes,
                             ddp_safetensors **file)
{
    char path[96];
    ddp_text text = {0};
    int64_t count = length >= 0 ? length : (int64_t)strlen(header);
    for (int i = 0; i < 8; i++)
        ddp_text_add_bytes(&text, &(char){(char)((uint64_t)count >> (8 * i))}, 1);
    ddp_text_add_bytes(&text, header, strlen(header));
    ddp_text_add_bytes(&text, data, bytes);
    snprintf(path, sizeof path, "%s/x.safetensors", directory);
    check_ok(ddp_file_save(path, ddp_text_get(&text), text.length));
    ddp_text_free(&text);
    return ddp_safetensors_open(path, file);
}

Test(safetensors, reads_every_float_type_in_any_order, .timeout = 10)
{
    ddp_safetensors *file;
    float values[2];
    make_directory();
    /* 1.5 and -2 as F16, BF16, F64; a scalar; an empty tensor */
    static const char data[] = "\x00\x3e\x00\xc0"
                               "\xc0\x3f\x00\xc0"
                               "\x00\x00\x00\x00\x00\x00\xf8\x3f\x00\x00\x00\x00\x00\x00\x00\xc0"
                               "\x00\x00\xc0\x3f";
    check_ok(open_bytes("{\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[8,24]},"
                        "\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[24,28]},"
                        "\"e\":{\"dtype\":\"I8\",\"shape\":[0,3],\"data_offsets\":[4,4]},"
                        "\"h\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[0,4]},"
                        "\"__metadata__\":{\"format\":\"pt\"},"
                        "\"b\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[4,8]}}   ",
                        -1, data, sizeof data - 1, &file));
    cr_assert_eq(ddp_safetensors_count(file), 5);
    cr_assert_str_eq(ddp_safetensors_metadata(file, "format"), "pt");
    static const char *const names[] = {"h", "b", "d"};
    for (int i = 0; i < 3; i++) {
        values[0] = values[1] = NAN;
        check_ok(ddp_safetensors_read_floats(file, ddp_safetensors_find(file, names[i]), values));
        cr_assert(values[0] == 1.5f && values[1] == -2.0f, "%s", names[i]);
    }
    check_ok(ddp_safetensors_read_floats(file, ddp_safetensors_find(file, "s"), values));
    cr_assert_eq(values[0], 1.5f);
    cr_assert_null(ddp_safetensors_find(file, "x"));
    ddp_error *error = ddp_safetensors_read_floats(file, ddp_safetensors_find(file, "e"), values);
    cr_assert_not_null(error);
    ddp_error_free(error);
    ddp_safetensors_close(file);
    remove_directory();
}

Test(safetensors, refuses_what_breaks_the_format, .timeout = 10)
{
#define ONE(rest) "{\"a\":{\"dtype\":\"F32\",\"shape\":[2]," rest "}}"
    static const struct {
        const char *header;
        int64_t length;
        size_t bytes;
        const char *says;
    } cases[] = {
        {"{}", 1 << 30, 0, "no length of a header"},
        {"{}", 200, 0, "no length of a header"},
        {"[]", -1, 0, "no JSON object"},
        {"{\"a\"", -1, 0, "not JSON"},
        {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", -1, 8, "has no dtype"},
        {"{\"a\":{\"dtype\":\"Q4\",\"shape\":[2],\"data_offsets\":[0,8]}}", -1, 8, "dtype is not known"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", -1, 8, "its shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}", -1, 8,
         "its shape"},
        {ONE("\"data_offsets\":[8,0]"), -1, 8, "data_offsets"},
        {ONE("\"data_offsets\":[0,4]"), -1, 8, "more or fewer"},
        {ONE("\"data_offsets\":[4,12]"), -1, 12, "a hole"},
        {ONE("\"data_offsets\":[0,8]"), -1, 7, "cut short"},
        {ONE("\"data_offsets\":[0,8]"), -1, 9, "bytes behind"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":["
         "2],"
         "\"data_offsets\":[1,3]}}",
         -1, 3, "overlaps"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"a\":{\"dtype\":\"U8\",\"shape\":["
         "2],"
         "\"data_offsets\":[2,4]}}",
         -1, 4, "there twice"},
    };
    static const char zeros[16];
    make_directory();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ddp_safetensors *file;
        ddp_error *error = open_bytes(cases[i].header, cases[i].length, zeros, cases[i].bytes, &file);
        cr_assert_not_null(error, "%s was read", cases[i].header);
        cr_assert_not_null(strstr(ddp_error_message(error), cases[i].says), "%s: %s", cases[i].header,
                           ddp_error_message(error));
        ddp_error_free(error);
    }
    remove_directory();
}
