/* Writing safetensors. */
#include "runtime/safetensors.h"

#include "core/files.h"
#include "core/json.h"

static void add_header(const ddp_params *params, ddp_text *text)
{
    ddp_json json = {.text = text};
    int64_t offset = 0;
    ddp_json_open_object(&json, NULL);
    ddp_json_open_object(&json, "__metadata__");
    ddp_json_text(&json, "format", "pt"); /* what readers of the Hugging Face family look for */
    ddp_json_close_object(&json);
    for (int i = 0; i < params->count; i++) {
        const ddp_param *param = &params->at[i];
        ddp_json_open_object(&json, param->name);
        ddp_json_text(&json, "dtype", "F32");
        ddp_json_open_array(&json, "shape");
        for (int d = 0; d < param->dims; d++)
            ddp_json_int(&json, NULL, param->shape[d]);
        ddp_json_close_array(&json);
        ddp_json_open_array(&json, "data_offsets");
        ddp_json_int(&json, NULL, offset);
        offset += param->count * (int64_t)sizeof(float);
        ddp_json_int(&json, NULL, offset);
        ddp_json_close_array(&json);
        ddp_json_close_object(&json);
    }
    ddp_json_close_object(&json);
    while (text->length % 8 != 0)
        ddp_text_add(text, " ");
}

static ddp_error *write_all(int fd, const char *path, const ddp_params *params, const float *arena)
{
    ddp_text header = {0};
    add_header(params, &header);
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)header.length >> (8 * i));
    ddp_error *error = header.failed ? ddp_error_make(DDP_ERR_MEMORY, "out of memory") : NULL;
    if (error == NULL)
        error = ddp_file_write(fd, path, length, sizeof length);
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
