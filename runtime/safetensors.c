/* Reading and writing safetensors. */
#include "runtime/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files.h"
#include "core/json.h"
#include "core/memory.h"

#define LENGTH_BYTES 8
#define HEADER_LIMIT (100 << 20) /* what other readers allow, too */
#define SLICE_ELEMENTS 8192

struct ddp_safetensors {
    char *path;
    int fd;
    int64_t bytes, data; /* of the file; where tensors begin */
    ddp_json_document header;
    ddp_stored_tensor *at; /* in order of bytes */
    const ddp_stored_tensor **by_name;
    int count;
};

static const struct {
    const char *name;
    int bytes;
} dtypes[] = {
    {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},     {"I32", 4},     {"I16", 2},  {"I8", 1},
    {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1},   {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"BOOL", 1},
};

static int bytes_of(const char *dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, dtype) == 0)
            return dtypes[i].bytes;
    return 0;
}

static ddp_error *refuse(const ddp_safetensors *file, const char *tensor, const char *what)
{
    if (tensor == NULL)
        return ddp_error_make(DDP_ERR_INPUT, "%s is no safetensors file: %s", file->path, what);
    return ddp_error_make(DDP_ERR_INPUT, "%s is no safetensors file: tensor %s: %s", file->path, tensor,
                          what);
}

/* The product of the dims; false on a negative one or an overflow. */
static bool read_shape(const ddp_json_value *shape, ddp_stored_tensor *tensor)
{
    if (shape == NULL || shape->kind != DDP_JSON_ARRAY || shape->integer > DDP_SAFETENSORS_DIMS)
        return false;
    tensor->count = 1;
    for (const ddp_json_value *dim = shape->first; dim != NULL; dim = dim->next) {
        if (dim->kind != DDP_JSON_INT || dim->integer < 0 ||
            __builtin_mul_overflow(tensor->count, dim->integer, &tensor->count))
            return false;
        tensor->shape[tensor->dims++] = dim->integer;
    }
    return true;
}

static bool read_offsets(const ddp_json_value *offsets, ddp_stored_tensor *tensor)
{
    if (offsets == NULL || offsets->kind != DDP_JSON_ARRAY || offsets->integer != 2 ||
        offsets->first->kind != DDP_JSON_INT || offsets->first->next->kind != DDP_JSON_INT)
        return false;
    tensor->begin = offsets->first->integer;
    tensor->end = offsets->first->next->integer;
    return tensor->begin >= 0 && tensor->end >= tensor->begin;
}

static ddp_error *read_tensor(const ddp_safetensors *file, const ddp_json_value *member,
                              ddp_stored_tensor *tensor)
{
    const ddp_json_value *dtype = ddp_json_get(member, "dtype");
    int64_t bytes;
    tensor->name = member->key;
    if (dtype == NULL || dtype->kind != DDP_JSON_TEXT)
        return refuse(file, member->key, "it has no dtype");
    tensor->dtype = dtype->text;
    if (bytes_of(tensor->dtype) == 0)
        return refuse(file, member->key, "its dtype is not known here");
    if (!read_shape(ddp_json_get(member, "shape"), tensor))
        return refuse(file, member->key, "its shape is no list of at most 8 sizes");
    if (!read_offsets(ddp_json_get(member, "data_offsets"), tensor))
        return refuse(file, member->key, "its data_offsets are not two offsets in order");
    if (__builtin_mul_overflow(tensor->count, bytes_of(tensor->dtype), &bytes) ||
        tensor->end - tensor->begin != bytes)
        return refuse(file, member->key, "its bytes are more or fewer than its shape takes");
    return NULL;
}

static int compare_begin(const void *a, const void *b)
{
    const ddp_stored_tensor *one = a, *two = b;
    if (one->begin != two->begin)
        return one->begin < two->begin ? -1 : 1;
    return one->end < two->end ? -1 : one->end > two->end; /* an empty tensor lies before its neighbour */
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const ddp_stored_tensor *const *)a)->name, (*(const ddp_stored_tensor *const *)b)->name);
}

/* Sorted by bytes, tensors must lie end to end from the header to the end of the file. */
static ddp_error *check_layout(ddp_safetensors *file)
{
    int64_t at = 0;
    qsort(file->at, (size_t)file->count, sizeof *file->at, compare_begin);
    for (int i = 0; i < file->count; i++) {
        ddp_stored_tensor *tensor = &file->at[i];
        if (tensor->begin != at)
            return refuse(file, tensor->name,
                          tensor->begin < at ? "it overlaps another" : "there is a hole before it");
        at = tensor->end;
        if (at > file->bytes - file->data) {
            ddp_error *error = ddp_error_make(DDP_ERR_INPUT,
                                              "%s is cut short: tensor %s ends at byte %" PRId64
                                              ", the file at byte %" PRId64,
                                              file->path, tensor->name, file->data + at, file->bytes);
            return ddp_error_help(error, "copy or download it again");
        }
        tensor->begin += file->data;
        tensor->end += file->data;
        file->by_name[i] = tensor;
    }
    if (file->data + at != file->bytes)
        return refuse(file, NULL, "there are bytes behind its last tensor");
    qsort(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names);
    for (int i = 1; i < file->count; i++)
        if (strcmp(file->by_name[i - 1]->name, file->by_name[i]->name) == 0)
            return refuse(file, file->by_name[i]->name, "it is there twice");
    return NULL;
}

static ddp_error *read_tensors(ddp_safetensors *file)
{
    const ddp_json_value *root = file->header.root;
    if (root->kind != DDP_JSON_OBJECT)
        return refuse(file, NULL, "its header is no JSON object");
    DDP_TRY(ddp_memory_make((size_t)root->integer + 1, sizeof *file->at, (void **)&file->at));
    DDP_TRY(ddp_memory_make((size_t)root->integer + 1, sizeof *file->by_name, (void **)&file->by_name));
    for (const ddp_json_value *member = root->first; member != NULL; member = member->next)
        if (strcmp(member->key, "__metadata__") != 0)
            DDP_TRY(read_tensor(file, member, &file->at[file->count++]));
    return check_layout(file);
}

static ddp_error *read_header(ddp_safetensors *file)
{
    unsigned char length[LENGTH_BYTES];
    uint64_t bytes = 0;
    char *text;
    if (file->bytes < LENGTH_BYTES)
        return refuse(file, NULL, "it is shorter than 8 bytes");
    DDP_TRY(ddp_file_read(file->fd, file->path, 0, length, sizeof length));
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        bytes = bytes << 8 | length[i];
    if (bytes > HEADER_LIMIT || (int64_t)bytes > file->bytes - LENGTH_BYTES)
        return refuse(file, NULL, "its first 8 bytes are no length of a header");
    file->data = LENGTH_BYTES + (int64_t)bytes;
    DDP_TRY(ddp_memory_make(bytes + 1, 1, (void **)&text));
    ddp_error *error = ddp_file_read(file->fd, file->path, LENGTH_BYTES, text, bytes);
    if (error == NULL)
        error = ddp_error_while(ddp_json_read(file->path, text, bytes, &file->header),
                                "reading the header of a safetensors file");
    free(text);
    return error;
}

ddp_error *ddp_safetensors_open(const char *path, ddp_safetensors **file)
{
    ddp_safetensors *made;
    DDP_TRY(DDP_NEW(&made));
    made->fd = -1;
    ddp_error *error = ddp_memory_text(path, &made->path);
    if (error == NULL)
        error = ddp_file_open(path, &made->fd, &made->bytes);
    if (error == NULL)
        error = read_header(made);
    if (error == NULL)
        error = read_tensors(made);
    if (error != NULL) {
        ddp_safetensors_close(made);
        return error;
    }
    *file = made;
    return NULL;
}

void ddp_safetensors_close(ddp_safetensors *file)
{
    if (file == NULL)
        return;
    if (file->fd >= 0)
        close(file->fd);
    ddp_json_free(&file->header);
    free(file->at);
    free(file->by_name);
    free(file->path);
    free(file);
}

int ddp_safetensors_count(const ddp_safetensors *file)
{
    return file->count;
}

const ddp_stored_tensor *ddp_safetensors_at(const ddp_safetensors *file, int index)
{
    return &file->at[index];
}

const ddp_stored_tensor *ddp_safetensors_find(const ddp_safetensors *file, const char *name)
{
    ddp_stored_tensor wanted = {.name = name};
    const ddp_stored_tensor *key = &wanted;
    const ddp_stored_tensor **found =
        bsearch(&key, file->by_name, (size_t)file->count, sizeof *file->by_name, compare_names);
    return found != NULL ? *found : NULL;
}

const char *ddp_safetensors_metadata(const ddp_safetensors *file, const char *key)
{
    const ddp_json_value *value = ddp_json_get(ddp_json_get(file->header.root, "__metadata__"), key);
    return value != NULL && value->kind == DDP_JSON_TEXT ? value->text : NULL;
}

ddp_error *ddp_safetensors_read(const ddp_safetensors *file, int64_t begin, void *to, size_t bytes)
{
    return ddp_file_read(file->fd, file->path, begin, to, bytes);
}

/* One fp16 number (IEEE 754 binary16). */
static float from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 0x1F, fraction = half & 0x3FF;
    float value;
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24 */
        value = (float)fraction * 0x1p-24f;
        return sign != 0 ? -value : value;
    }
    uint32_t bits = sign | (exponent == 31 ? 0xFFu : exponent + 112) << 23 | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void convert(const char *dtype, const void *from, float *to, int64_t count)
{
    if (strcmp(dtype, "F32") == 0) {
        memcpy(to, from, (size_t)count * sizeof *to);
    } else if (strcmp(dtype, "F64") == 0) {
        for (int64_t i = 0; i < count; i++)
            to[i] = (float)((const double *)from)[i];
    } else if (strcmp(dtype, "F16") == 0) {
        for (int64_t i = 0; i < count; i++)
            to[i] = from_half(((const uint16_t *)from)[i]);
    } else {
        for (int64_t i = 0; i < count; i++) {
            uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
            memcpy(&to[i], &bits, sizeof to[i]);
        }
    }
}

ddp_error *ddp_safetensors_read_floats(const ddp_safetensors *file, const ddp_stored_tensor *tensor,
                                       float *to)
{
    const char *dtype = tensor->dtype;
    double slice[SLICE_ELEMENTS]; /* room for the widest */
    if (*dtype != 'F' && strcmp(dtype, "BF16") != 0)
        return ddp_error_make(DDP_ERR_INPUT, "%s: tensor %s is %s; weights are F32, F16, BF16 or F64",
                              file->path, tensor->name, dtype);
    if (strncmp(dtype, "F8", 2) == 0)
        return ddp_error_make(DDP_ERR_INPUT, "%s: tensor %s is %s, which is not read", file->path,
                              tensor->name, dtype);
    int64_t size = bytes_of(dtype);
    for (int64_t done = 0; done < tensor->count; done += SLICE_ELEMENTS) {
        int64_t left = tensor->count - done, count = left < SLICE_ELEMENTS ? left : SLICE_ELEMENTS;
        DDP_TRY(ddp_safetensors_read(file, tensor->begin + done * size, slice, (size_t)(count * size)));
        convert(dtype, slice, to + done, count);
    }
    return NULL;
}

bool ddp_stored_tensor_fits(const ddp_stored_tensor *tensor, const ddp_param *param)
{
    if (tensor->dims != param->dims)
        return false;
    for (int d = 0; d < param->dims; d++)
        if (tensor->shape[d] != param->shape[d])
            return false;
    return true;
}

static void add_tensor(ddp_json *json, const ddp_param *param, const char *prefix, int64_t *offset)
{
    char name[sizeof param->name + 64];
    snprintf(name, sizeof name, "%s%s", prefix, param->name);
    ddp_json_open_object(json, name);
    ddp_json_text(json, "dtype", "F32");
    ddp_json_open_array(json, "shape");
    for (int d = 0; d < param->dims; d++)
        ddp_json_int(json, NULL, param->shape[d]);
    ddp_json_close_array(json);
    ddp_json_open_array(json, "data_offsets");
    ddp_json_int(json, NULL, *offset);
    *offset += param->count * (int64_t)sizeof(float);
    ddp_json_int(json, NULL, *offset);
    ddp_json_close_array(json);
    ddp_json_close_object(json);
}

void ddp_safetensors_write_header(const ddp_params *params, const char *const *prefixes, int count,
                                  ddp_text *text)
{
    ddp_json json = {.text = text};
    int64_t offset = 0;
    ddp_text_add_bytes(text, "\0\0\0\0\0\0\0\0", LENGTH_BYTES);
    ddp_json_open_object(&json, NULL);
    ddp_json_open_object(&json, "__metadata__");
    ddp_json_text(&json, "format", "pt"); /* what readers of the Hugging Face family look for */
    ddp_json_close_object(&json);
    for (int prefix = 0; prefix < count; prefix++)
        for (int i = 0; i < params->count; i++)
            add_tensor(&json, &params->at[i], prefixes[prefix], &offset);
    ddp_json_close_object(&json);
    while (text->length % 8 != 0)
        ddp_text_add(text, " ");
    for (int i = 0; i < LENGTH_BYTES && !text->failed; i++)
        text->at[i] = (char)((uint64_t)(text->length - LENGTH_BYTES) >> (8 * i));
}

static ddp_error *write_all(int fd, const char *path, const ddp_params *params, const float *arena)
{
    static const char *const plain[] = {""};
    ddp_text header = {0};
    ddp_safetensors_write_header(params, plain, 1, &header);
    ddp_error *error = header.failed ? ddp_error_make(DDP_ERR_MEMORY, "out of memory") : NULL;
    if (error == NULL)
        error = ddp_file_write(fd, path, ddp_text_get(&header), header.length);
    for (int i = 0; error == NULL && i < params->count; i++)
        error = ddp_file_write(fd, path, arena + params->at[i].offset,
                               (size_t)params->at[i].count * sizeof(float));
    ddp_text_free(&header);
    return error;
}

ddp_error *ddp_safetensors_save(const char *path, const ddp_params *params, const float *arena)
{
    ddp_draft draft;
    DDP_TRY(ddp_draft_open(path, &draft));
    ddp_error *error = write_all(draft.fd, path, params, arena);
    if (error == NULL)
        return ddp_draft_commit(&draft);
    ddp_draft_discard(&draft);
    return error;
}
