/* Between checkpoints and Hugging Face folders. */
#include "runtime/checkpoint/hub.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/files.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/text.h"
#include "runtime/builtins.h"
#include "runtime/checkpoint/layout.h"
#include "runtime/checkpoint/restore.h"
#include "runtime/safetensors.h"

#define WEIGHTS "model.safetensors"
#define CONFIG "config.json"
#define CONFIG_LIMIT (1 << 20)
#define GPT2_VOCAB 50257

/* Numbers of a gpt, in our words and in GPT2Config's. */
static const struct {
    const char *ours, *theirs;
} sizes[] = {
    {"model.layers", "n_layer"},      {"model.heads", "n_head"},     {"model.width", "n_embd"},
    {"model.context", "n_positions"}, {"model.vocab", "vocab_size"},
};
#define SIZES (sizeof sizes / sizeof sizes[0])

static bool is_transposed(const char *name)
{
    static const char *const endings[] = {".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight",
                                          ".mlp.c_proj.weight"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (ddp_text_ends(name, endings[i]))
            return true;
    return false;
}

static const char *get_setting(const ddp_checkpoint_record *record, const char *name)
{
    for (size_t i = 0; i < record->job.count; i++)
        if (strcmp(record->job.at[i].name, name) == 0)
            return record->job.at[i].value;
    return "";
}

static bool is_gpt(const ddp_checkpoint_record *record)
{
    return strcmp(get_setting(record, "model.kind"), "gpt") == 0;
}

/* to(columns, rows) = from(rows, columns)^T */
static void transpose(const float *from, float *to, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            to[c * rows + r] = from[r * columns + c];
}

/* Reads a tensor, turned around where it is one of the transposed ones. */
static ddp_error *read_turned(const ddp_safetensors *file, const ddp_stored_tensor *tensor, bool turn,
                              float *to)
{
    float *buffer;
    if (!turn)
        return ddp_safetensors_read_floats(file, tensor, to);
    DDP_TRY(ddp_memory_make((size_t)tensor->count, sizeof *buffer, (void **)&buffer));
    ddp_error *error = ddp_safetensors_read_floats(file, tensor, buffer);
    if (error == NULL)
        transpose(buffer, to, tensor->shape[0], tensor->shape[1]);
    free(buffer);
    return error;
}

/* The table that a stored file's tensors make, in their order; shapes turned where `turn` says so. */
static ddp_error *describe_file(const ddp_safetensors *file, bool turn, ddp_params *params)
{
    for (int i = 0; i < ddp_safetensors_count(file); i++) {
        const ddp_stored_tensor *tensor = ddp_safetensors_at(file, i);
        int64_t shape[DDP_SAFETENSORS_DIMS];
        int index;
        memcpy(shape, tensor->shape, sizeof shape);
        if (turn && tensor->dims == 2 && is_transposed(tensor->name)) {
            shape[0] = tensor->shape[1];
            shape[1] = tensor->shape[0];
        }
        DDP_TRY(ddp_params_add(params, tensor->name, DDP_INIT_ZERO, 0, false, tensor->dims, shape, &index));
    }
    return ddp_params_seal(params);
}

static ddp_error *save_weights(const char *directory, const ddp_params *params, const float *arena)
{
    char *path;
    DDP_TRY(ddp_path_join(directory, WEIGHTS, &path));
    ddp_error *error = ddp_safetensors_save(path, params, arena);
    free(path);
    return error;
}

static ddp_error *save_text(const char *directory, const char *name, ddp_text *text)
{
    char *path;
    if (text->failed)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    DDP_TRY(ddp_path_join(directory, name, &path));
    ddp_error *error = ddp_file_save(path, ddp_text_get(text), text->length);
    free(path);
    return error;
}

static void write_gpt_config(ddp_json *json, const ddp_checkpoint_record *record)
{
    int64_t number = 0;
    ddp_json_open_array(json, "architectures");
    ddp_json_text(json, NULL, "GPT2LMHeadModel");
    ddp_json_close_array(json);
    ddp_json_text(json, "model_type", "gpt2");
    for (size_t i = 0; i < SIZES; i++)
        if (ddp_text_to_int(get_setting(record, sizes[i].ours), &number))
            ddp_json_int(json, sizes[i].theirs, number);
    int64_t vocab = number, width = 0, ratio = 4;
    ddp_text_to_int(get_setting(record, "model.width"), &width);
    ddp_text_to_int(get_setting(record, "model.mlp_ratio"), &ratio);
    ddp_json_int(json, "n_inner", width * ratio);
    ddp_json_text(json, "activation_function", "gelu_new");
    ddp_json_float(json, "layer_norm_epsilon", 1e-5);
    ddp_json_bool(json, "tie_word_embeddings", true);
    static const char *const drops[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
    for (int i = 0; i < 3; i++)
        ddp_json_float(json, drops[i], 0);
    static const char *const marks[] = {"bos_token_id", "eos_token_id"};
    for (int i = 0; i < 2; i++) {
        if (vocab == GPT2_VOCAB)
            ddp_json_int(json, marks[i], GPT2_VOCAB - 1);
        else
            ddp_json_null(json, marks[i]);
    }
    ddp_json_text(json, "torch_dtype", "float32");
}

static ddp_error *save_config(const char *directory, const ddp_checkpoint_record *record)
{
    ddp_text text = {0};
    ddp_json json = {.text = &text};
    ddp_json_open_object(&json, NULL);
    if (is_gpt(record)) {
        write_gpt_config(&json, record);
    } else {
        ddp_json_text(&json, "model_type", get_setting(record, "model.kind"));
        for (size_t i = 0; i < record->job.count; i++)
            if (ddp_text_starts(record->job.at[i].name, "model."))
                ddp_json_text(&json, record->job.at[i].name + strlen("model."), record->job.at[i].value);
    }
    ddp_json_close_object(&json);
    ddp_text_add(&text, "\n");
    ddp_error *error = save_text(directory, CONFIG, &text);
    ddp_text_free(&text);
    return error;
}

static ddp_error *open_weights(const char *directory, ddp_safetensors **file)
{
    char *path;
    DDP_TRY(ddp_path_join(directory, WEIGHTS, &path));
    ddp_error *error = ddp_safetensors_open(path, file);
    free(path);
    return error;
}

static ddp_error *export_weights(const ddp_safetensors *file, bool turn, const char *to,
                                 ddp_hub_result *result)
{
    ddp_params params = {.count = 0};
    float *arena = NULL;
    ddp_error *error = NULL;
    DDP_GO(describe_file(file, turn, &params));
    DDP_GO(ddp_memory_make((size_t)params.arena_count, sizeof *arena, (void **)&arena));
    for (int i = 0; i < params.count; i++) {
        const ddp_stored_tensor *tensor = ddp_safetensors_at(file, i);
        DDP_GO(read_turned(file, tensor, turn && tensor->dims == 2 && is_transposed(tensor->name),
                           arena + params.at[i].offset));
    }
    DDP_GO(save_weights(to, &params, arena));
    *result = (ddp_hub_result){params.count, params.total_count};
out:
    free(arena);
    ddp_params_free(&params);
    return error;
}

/* An export replaces an export, nothing else. */
static ddp_error *check_folder(const char *path)
{
    DIR *directory = opendir(path);
    ddp_error *error = NULL;
    if (directory == NULL && errno == ENOENT)
        return NULL;
    if (directory == NULL)
        return ddp_error_make(DDP_ERR_INPUT, "%s: %s", path, strerror(errno));
    for (struct dirent *entry; error == NULL && (entry = readdir(directory)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strcmp(entry->d_name, CONFIG) != 0 && strcmp(entry->d_name, WEIGHTS) != 0)
            error = ddp_error_help(
                ddp_error_make(DDP_ERR_INPUT, "%s holds other files (%s)", path, entry->d_name),
                "name a folder that is to be made");
    closedir(directory);
    return error;
}

ddp_error *ddp_hub_export(const char *from, const char *to, ddp_hub_result *result)
{
    ddp_checkpoint_record record;
    ddp_safetensors *file = NULL;
    ddp_error *error = NULL;
    DDP_TRY(check_folder(to));
    DDP_TRY(ddp_checkpoint_record_load(from, &record));
    DDP_GO(ddp_restore_verify(from, &record));
    DDP_GO(open_weights(from, &file));
    DDP_GO(ddp_directory_make(to));
    DDP_GO(export_weights(file, is_gpt(&record), to, result));
    error = save_config(to, &record);
out:
    ddp_safetensors_close(file);
    ddp_checkpoint_record_free(&record);
    return error;
}

/* -- the other way -- */

/* Settings of a GPT2Config that a gpt has no other value for. NULL `text` = a number. */
static ddp_error *check_config(const char *path, const ddp_json_value *config)
{
    static const struct {
        const char *key, *texts[2];
    } wanted[] = {{"model_type", {"gpt2", NULL}}, {"activation_function", {"gelu_new", "gelu_pytorch_tanh"}}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const ddp_json_value *found = ddp_json_get(config, wanted[i].key);
        const char *text = found != NULL && found->kind == DDP_JSON_TEXT ? found->text : NULL;
        if (text == NULL && i > 0)
            continue; /* left to its default, which is ours */
        if (text == NULL || (strcmp(text, wanted[i].texts[0]) != 0 &&
                             (wanted[i].texts[1] == NULL || strcmp(text, wanted[i].texts[1]) != 0)))
            return ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "%s: %s is \"%s\"; gpt has \"%s\"", path,
                                                 wanted[i].key, text != NULL ? text : "", wanted[i].texts[0]),
                                  "only folders of GPT-2 models can be imported");
    }
    const ddp_json_value *epsilon = ddp_json_get(config, "layer_norm_epsilon");
    if (epsilon != NULL && epsilon->number != 1e-5)
        return ddp_error_make(DDP_ERR_INPUT, "%s: layer_norm_epsilon is %g; gpt has 1e-05", path,
                              epsilon->number);
    const ddp_json_value *tied = ddp_json_get(config, "tie_word_embeddings");
    if (tied != NULL && tied->kind == DDP_JSON_BOOL && !tied->integer)
        return ddp_error_make(DDP_ERR_INPUT,
                              "%s: tie_word_embeddings is false; gpt's output is its embedding", path);
    return NULL;
}

static ddp_error *add_setting(ddp_pairs *settings, const char *name, const char *format, int64_t number)
{
    char value[32];
    ddp_pair *pair = &settings->at[settings->count];
    snprintf(value, sizeof value, format, number);
    DDP_TRY(ddp_memory_text(name, &pair->name));
    settings->count++;
    return ddp_memory_text(format[0] == '%' ? value : format, &pair->value);
}

static ddp_error *read_settings(const char *path, const ddp_json_value *config, ddp_pairs *settings)
{
    int64_t width = 0, ratio = 4;
    DDP_TRY(check_config(path, config));
    DDP_TRY(ddp_memory_make(SIZES + 2, sizeof *settings->at, (void **)&settings->at));
    DDP_TRY(add_setting(settings, "model.kind", "gpt", 0));
    for (size_t i = 0; i < SIZES; i++) {
        const ddp_json_value *found = ddp_json_get(config, sizes[i].theirs);
        if (found == NULL || found->kind != DDP_JSON_INT || found->integer < 1)
            return ddp_error_make(DDP_ERR_INPUT, "%s: %s is no whole number above 0", path, sizes[i].theirs);
        if (strcmp(sizes[i].theirs, "n_embd") == 0)
            width = found->integer;
        DDP_TRY(add_setting(settings, sizes[i].ours, "%" PRId64, found->integer));
    }
    const ddp_json_value *inner = ddp_json_get(config, "n_inner");
    if (inner != NULL && inner->kind == DDP_JSON_INT) {
        ratio = inner->integer / width;
        if (ratio < 1 || ratio * width != inner->integer)
            return ddp_error_make(DDP_ERR_INPUT, "%s: n_inner is no multiple of n_embd", path);
    }
    return add_setting(settings, "model.mlp_ratio", "%" PRId64, ratio);
}

static ddp_error *load_settings(const char *folder, ddp_pairs *settings)
{
    char *path = NULL, *text = NULL;
    size_t bytes;
    ddp_json_document document = {0};
    ddp_error *error = NULL;
    DDP_GO(ddp_path_join(folder, CONFIG, &path));
    DDP_GO(ddp_file_load(path, CONFIG_LIMIT, &text, &bytes));
    DDP_GO(ddp_json_read(path, text, bytes, &document));
    error = read_settings(path, document.root, settings);
out:
    ddp_json_free(&document);
    free(text);
    free(path);
    return error;
}

static const ddp_model_ops *find_gpt(void)
{
    for (const ddp_model_ops *const *ops = ddp_builtin_models(); *ops != NULL; ops++)
        if (strcmp((*ops)->name, "gpt") == 0)
            return *ops;
    return NULL;
}

/* The parameter table of the model that the settings describe, from the model itself: all of gpt's settings
 * are whole numbers. */
static ddp_error *describe_model(const ddp_pairs *settings, ddp_params *params)
{
    const ddp_model_ops *ops = find_gpt();
    ddp_sample sample;
    char *filled;
    if (ops == NULL)
        return ddp_error_make(DDP_ERR_MACHINE, "model gpt is not in this build");
    DDP_TRY(ddp_memory_make(1, ops->config_bytes, (void **)&filled));
    for (const ddp_field *field = ops->fields; field->key != NULL; field++)
        for (size_t i = 0; i < settings->count; i++)
            if (strcmp(settings->at[i].name + strlen("model."), field->key) == 0)
                ddp_text_to_int(settings->at[i].value, (int64_t *)(filled + field->offset));
    ddp_error *error = ops->sample(filled, &sample); /* checks them against one another */
    if (error == NULL)
        error = ops->describe(filled, params);
    if (error == NULL)
        error = ddp_params_seal(params);
    free(filled);
    return error;
}

/* A tensor by our name: theirs may begin with "transformer.". */
static const ddp_stored_tensor *find_theirs(const ddp_safetensors *file, const char *name)
{
    char longer[128];
    const ddp_stored_tensor *found = ddp_safetensors_find(file, name);
    snprintf(longer, sizeof longer, "transformer.%s", name);
    return found != NULL ? found : ddp_safetensors_find(file, longer);
}

static ddp_error *import_param(const ddp_safetensors *file, const ddp_param *param, float *arena)
{
    const ddp_stored_tensor *tensor = find_theirs(file, param->name);
    bool turn = is_transposed(param->name);
    ddp_param wanted = *param;
    if (tensor == NULL)
        return ddp_error_make(DDP_ERR_INPUT, WEIGHTS " has no tensor %s", param->name);
    if (turn) {
        wanted.shape[0] = param->shape[1];
        wanted.shape[1] = param->shape[0];
    }
    if (!ddp_stored_tensor_fits(tensor, &wanted))
        return ddp_error_make(DDP_ERR_INPUT, WEIGHTS ": tensor %s has not the shape that " CONFIG " says",
                              tensor->name);
    return read_turned(file, tensor, turn, arena + param->offset);
}

static ddp_error *import_weights(const char *from, const char *to, const ddp_params *params)
{
    ddp_safetensors *file = NULL;
    float *arena = NULL;
    ddp_error *error = NULL;
    DDP_GO(open_weights(from, &file));
    DDP_GO(ddp_memory_make((size_t)params->arena_count, sizeof *arena, (void **)&arena));
    for (int i = 0; i < params->count; i++)
        DDP_GO(import_param(file, &params->at[i], arena));
    DDP_GO(ddp_directory_make(to));
    error = save_weights(to, params, arena);
out:
    free(arena);
    ddp_safetensors_close(file);
    return error;
}

/* Checksums of the file just written, part by part. */
static ddp_error *sum_file(const char *directory, ddp_record_file *record)
{
    char *path = NULL, *buffer = NULL;
    int fd = -1;
    ddp_error *error = NULL;
    record->name = (char *)WEIGHTS;
    DDP_GO(ddp_path_join(directory, WEIGHTS, &path));
    DDP_GO(ddp_file_open(path, &fd, &record->bytes));
    DDP_GO(ddp_memory_make((size_t)(record->bytes / DDP_PART_BYTES + 1), sizeof *record->parts,
                           (void **)&record->parts));
    DDP_GO(ddp_memory_make(DDP_PART_BYTES, 1, (void **)&buffer));
    for (int64_t at = 0; at < record->bytes; at += DDP_PART_BYTES) {
        int64_t left = record->bytes - at, count = left < DDP_PART_BYTES ? left : DDP_PART_BYTES;
        DDP_GO(ddp_file_read(fd, path, at, buffer, (size_t)count));
        record->parts[record->part_count++] =
            (ddp_record_part){at, at + count, ddp_hash(buffer, (size_t)count)};
    }
out:
    if (fd >= 0)
        close(fd);
    free(buffer);
    free(path);
    return error;
}

static ddp_error *write_import(const char *to, const ddp_pairs *settings, const ddp_params *params)
{
    ddp_record_file file = {.name = NULL};
    ddp_text text = {0};
    ddp_error *error = sum_file(to, &file);
    ddp_checkpoint_record record = {
        .state = {.sequence = 1,
                  .parameters = ddp_params_digest(params),
                  .time = ddp_clock_unix(),
                  .eval_loss = NAN},
        .job = *settings,
        .files = &file,
        .file_count = 1,
    };
    if (error == NULL) {
        ddp_checkpoint_record_write(&record, &text);
        error = save_text(to, DDP_CHECKPOINT_RECORD, &text);
    }
    ddp_text_free(&text);
    free(file.parts);
    return error;
}

ddp_error *ddp_hub_import(const char *from, const char *to, ddp_hub_result *result)
{
    ddp_pairs settings = {0};
    ddp_params params = {.count = 0};
    ddp_error *error = NULL;
    if (access(to, F_OK) == 0)
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "%s exists", to),
                              "name a directory that is to be made");
    DDP_GO(load_settings(from, &settings));
    DDP_GO(describe_model(&settings, &params));
    DDP_GO(import_weights(from, to, &params));
    DDP_GO(write_import(to, &settings, &params));
    *result = (ddp_hub_result){params.count, params.total_count};
out:
    ddp_params_free(&params);
    ddp_pairs_free(&settings);
    return error;
}
