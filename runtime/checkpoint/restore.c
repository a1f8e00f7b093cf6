/* Reading parts, verifying them, putting them where they belong. */
#include "runtime/checkpoint/restore.h"

#include <ddp/log.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/files.h"
#include "core/hash.h"
#include "core/memory.h"
#include "runtime/agree.h"
#include "runtime/checkpoint/shelf.h"
#include "runtime/safetensors.h"

#define PATH_BYTES 4096
#define MOST_PART_BYTES (1 << 30)

/* One file being read, part by part. */
typedef struct reading {
    const ddp_restore_config *config; /* NULL = only verified */
    const char *path;
    ddp_safetensors *file;
    const ddp_record_file *record;
    char *buffer; /* of the largest part */
    int tensor;   /* the first that does not end before the part being read */
    bool *filled; /* arenas x params: which were found */
} reading;

static ddp_error *damaged(const reading *in, const ddp_record_part *part, uint64_t found)
{
    char wanted[DDP_HASH_DIGITS + 1], got[DDP_HASH_DIGITS + 1];
    return ddp_error_make(
        DDP_ERR_INPUT, "%s is damaged in bytes %" PRId64 " to %" PRId64 ": their checksum is %s, not %s",
        in->path, part->begin, part->end - 1, ddp_hash_write(found, got), ddp_hash_write(part->hash, wanted));
}

static ddp_error *read_part(const reading *in, const ddp_record_part *part)
{
    size_t bytes = (size_t)(part->end - part->begin);
    DDP_TRY(ddp_safetensors_read(in->file, part->begin, in->buffer, bytes));
    uint64_t found = ddp_hash(in->buffer, bytes);
    return found == part->hash ? NULL : damaged(in, part, found);
}

/* Which parameter and arena a tensor's name means; false = none of this job's. */
static bool find_home(const ddp_restore_config *config, const char *name, int *arena, int *param)
{
    const ddp_params *params = &config->setup->params;
    const ddp_optim_ops *optim = config->setup->job->optimizer.ops;
    for (*arena = 0; *arena <= optim->slots; ++*arena) {
        const char *rest = name;
        if (*arena > 0) {
            const char *slot = optim->slot_names[*arena - 1];
            size_t length = strlen(slot);
            if (strncmp(name, slot, length) != 0 || name[length] != '.')
                continue;
            rest = name + length + 1;
        }
        for (*param = 0; *param < params->count; ++*param)
            if (strcmp(params->at[*param].name, rest) == 0)
                return true;
    }
    return false;
}

/* The bytes that a part and a tensor share go to the tensor's place. */
static ddp_error *place_tensor(const reading *in, const ddp_record_part *part,
                               const ddp_stored_tensor *tensor)
{
    const ddp_restore_config *config = in->config;
    const ddp_params *params = &config->setup->params;
    int arena, param;
    int64_t begin = part->begin > tensor->begin ? part->begin : tensor->begin;
    int64_t end = part->end < tensor->end ? part->end : tensor->end, size = (int64_t)sizeof(float);
    if (begin >= end || !find_home(config, tensor->name, &arena, &param) ||
        strcmp(tensor->dtype, "F32") != 0 || !ddp_stored_tensor_fits(tensor, &params->at[param]))
        return NULL; /* what is missing in the end is said in the end */
    if ((begin - tensor->begin) % size != 0 || (end - begin) % size != 0)
        return ddp_error_make(DDP_ERR_INPUT, "%s: a part ends inside an element of tensor %s", in->path,
                              tensor->name);
    float *to = config->arenas[arena] + params->at[param].offset + (begin - tensor->begin) / size;
    ddp_stream_copy(config->compute, to, in->buffer + (begin - part->begin), (size_t)(end - begin));
    in->filled[arena * params->count + param] = true;
    return ddp_stream_wait(config->compute); /* the buffer is read into again */
}

static ddp_error *place_part(reading *in, const ddp_record_part *part)
{
    int count = ddp_safetensors_count(in->file);
    while (in->tensor < count && ddp_safetensors_at(in->file, in->tensor)->end <= part->begin)
        in->tensor++;
    for (int i = in->tensor; i < count && ddp_safetensors_at(in->file, i)->begin < part->end; i++)
        DDP_TRY(place_tensor(in, part, ddp_safetensors_at(in->file, i)));
    return NULL;
}

static ddp_error *alloc_buffer(const reading *in, ddp_device *device, void **buffer)
{
    int64_t most = 1;
    for (int i = 0; i < in->record->part_count; i++) {
        int64_t bytes = in->record->parts[i].end - in->record->parts[i].begin;
        most = bytes > most ? bytes : most;
    }
    if (most > MOST_PART_BYTES)
        return ddp_error_make(DDP_ERR_INPUT, "%s has a part of %" PRId64 " bytes; at most %d are read",
                              in->path, most, MOST_PART_BYTES);
    return device != NULL ? ddp_device_alloc_host(device, (size_t)most, buffer)
                          : ddp_memory_make((size_t)most, 1, buffer);
}

/* All parts of one file. The header's is checked before anything else is believed. */
static ddp_error *read_parts(reading *in)
{
    ddp_error *error = NULL;
    for (int i = 0; i < in->record->part_count; i++) {
        ddp_error *bad = read_part(in, &in->record->parts[i]);
        if (bad == NULL && in->config != NULL)
            bad = place_part(in, &in->record->parts[i]);
        error = ddp_error_join(error, bad);
        if (error != NULL && in->config != NULL)
            return error;
    }
    return error;
}

static ddp_error *read_file(const ddp_restore_config *config, const char *directory,
                            const ddp_record_file *record, bool *filled)
{
    reading in = {.config = config, .record = record, .filled = filled};
    ddp_device *device = config != NULL ? config->device : NULL;
    char *path = NULL;
    void *buffer = NULL;
    ddp_error *error = NULL;
    DDP_GO(ddp_path_join(directory, record->name, &path));
    in.path = path;
    DDP_GO(ddp_safetensors_open(path, &in.file));
    DDP_GO(alloc_buffer(&in, device, &buffer));
    in.buffer = buffer;
    error = read_parts(&in);
out:
    if (device != NULL)
        ddp_device_free_host(device, buffer);
    else
        free(buffer);
    ddp_safetensors_close(in.file);
    free(path);
    return error;
}

ddp_error *ddp_restore_verify(const char *path, const ddp_checkpoint_record *record)
{
    ddp_error *error = NULL;
    for (int i = 0; i < record->file_count; i++)
        error = ddp_error_join(error, read_file(NULL, path, &record->files[i], NULL));
    return error;
}

/* Whatever the checkpoint did not bring is missing, or starts anew with checkpoint.force. */
static ddp_error *check_filled(const ddp_restore_config *config, const char *path, int arenas,
                               const bool *filled)
{
    const ddp_params *params = &config->setup->params;
    int missing = 0, total = params->count * arenas;
    const char *first = NULL;
    for (int i = 0; i < total; i++)
        if (!filled[i]) {
            missing++;
            first = first != NULL ? first : params->at[i % params->count].name;
        }
    if (missing == 0)
        return NULL;
    if (!config->setup->job->checkpoint.force)
        return ddp_error_help(
            ddp_error_make(DDP_ERR_INPUT,
                           "%s lacks %d of %d tensors of this job, or has them in another shape; the first "
                           "belongs to parameter %s",
                           path, missing, total, first),
            "checkpoint.force=true starts those anew");
    if (config->comm->rank == 0)
        ddp_log(DDP_WARN, "resume",
                "%d of %d tensors are not in %s and start anew; the first belongs to parameter %s", missing,
                total, path, first);
    return NULL;
}

static ddp_error *load(const ddp_restore_config *config, const char *path, ddp_checkpoint_state *state,
                       bool *filled)
{
    ddp_checkpoint_record record = {.files = NULL};
    ddp_error *error = ddp_checkpoint_record_load(path, &record);
    for (int i = 0; i < record.file_count && error == NULL; i++)
        error = read_file(config, path, &record.files[i], filled);
    *state = record.state;
    ddp_checkpoint_record_free(&record);
    return error;
}

/* Rank 0's text, "" = none, on every rank. */
static ddp_error *share_text(const ddp_restore_config *config, char *text)
{
    void *shared;
    DDP_TRY(ddp_device_alloc(config->device, PATH_BYTES, &shared));
    ddp_stream_copy(config->comm_stream, shared, text, PATH_BYTES);
    config->comm->tag = DDP_TAG_SAVE;
    ddp_error *error = ddp_comm_broadcast(config->comm, config->comm_stream, shared, PATH_BYTES, DDP_U8, 0);
    if (error == NULL)
        error = ddp_stream_wait(config->comm_stream);
    ddp_stream_copy(config->comm_stream, text, shared, PATH_BYTES);
    if (error == NULL)
        error = ddp_stream_wait(config->comm_stream);
    ddp_device_free(config->device, shared);
    return error;
}

/* A checkpoint that could not be loaded everywhere: said, and out of the way if it is damaged. */
static void set_aside(const ddp_restore_config *config, const ddp_resume *resume, int index, ddp_error *error)
{
    char *renamed = NULL;
    bool is_damaged = error != NULL && ddp_error_get_kind(error) == DDP_ERR_INPUT;
    if (error != NULL)
        ddp_error_print(error, "warning", stderr);
    ddp_error_free(error);
    if (config->comm->rank != 0)
        return;
    error = is_damaged && resume->own ? ddp_shelf_retire(resume->paths[index], &renamed) : NULL;
    ddp_log(DDP_WARN, "resume", "%s is not used%s%s", resume->paths[index],
            renamed != NULL ? "; it is now " : "", renamed != NULL ? renamed : "");
    ddp_error_free(error);
    free(renamed);
}

/* One candidate after another, until all ranks have loaded the same. */
static ddp_error *try_all(const ddp_restore_config *config, const ddp_resume *resume, bool *filled,
                          ddp_checkpoint_state *state, char **path)
{
    char name[PATH_BYTES] = "";
    bool all = false;
    for (int i = 0;; i++) {
        memset(name, 0, sizeof name);
        if (i < resume->count)
            snprintf(name, sizeof name, "%s", resume->paths[i]);
        DDP_TRY(share_text(config, name));
        if (*name == '\0')
            break;
        ddp_error *error = load(config, name, state, filled);
        DDP_TRY(ddp_agree_all(config->comm, config->comm_stream, error == NULL, &all));
        if (all) {
            /* Step 0 is imported weights, which have no optimizer state. */
            int arenas = state->step == 0 ? 1 : 1 + config->setup->job->optimizer.ops->slots;
            DDP_TRY(check_filled(config, name, arenas, filled));
            return ddp_memory_text(name, path);
        }
        set_aside(config, resume, i, error);
    }
    /* All ranks come here together; only rank 0 knows whether there was one. */
    bool none = config->comm->rank != 0 || resume->count == 0;
    DDP_TRY(ddp_agree_all(config->comm, config->comm_stream, none, &none));
    if (none)
        return NULL;
    return ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "no checkpoint could be loaded to resume from"),
                          "checkpoint.resume=none starts anew; the earlier run is kept in earlier/");
}

ddp_error *ddp_restore(const ddp_restore_config *config, ddp_checkpoint_state *state, char **path)
{
    ddp_resume resume = {.paths = NULL};
    ddp_error *failure = NULL;
    bool all, *filled;
    int arenas = 1 + config->setup->job->optimizer.ops->slots;
    *path = NULL;
    DDP_TRY(
        ddp_memory_make((size_t)(arenas * config->setup->params.count), sizeof *filled, (void **)&filled));
    if (config->comm->rank == 0)
        failure = ddp_resume_find(config->setup->job, config->run_dir, true, &resume);
    ddp_error *error = ddp_agree_all(config->comm, config->comm_stream, failure == NULL, &all);
    error = ddp_error_join(failure, error);
    if (error == NULL && !all)
        error = ddp_error_make(DDP_ERR_PEER, "rank 0 could not look for checkpoints");
    if (error == NULL)
        error = try_all(config, &resume, filled, state, path);
    ddp_resume_free(&resume);
    free(filled);
    return error;
}
