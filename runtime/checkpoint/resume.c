/* Finding checkpoints, comparing jobs. */
#include "runtime/checkpoint/resume.h"

#include <ddp/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files.h"
#include "core/memory.h"
#include "core/rng.h"
#include "runtime/checkpoint/shelf.h"

#define SAMPLED 64 /* samples whose bytes are in a digest */

void ddp_resume_free(ddp_resume *resume)
{
    for (int i = 0; i < resume->count; i++)
        free(resume->paths[i]);
    free(resume->paths);
    *resume = (ddp_resume){.paths = NULL};
}

/* All complete ones of a directory of checkpoints. */
static ddp_error *take_shelf(const char *directory, bool warn, ddp_resume *resume)
{
    ddp_shelf shelf;
    DDP_TRY(ddp_shelf_list(directory, &shelf));
    ddp_error *error =
        ddp_memory_make((size_t)shelf.count + 1, sizeof *resume->paths, (void **)&resume->paths);
    for (int i = 0; i < shelf.count && error == NULL; i++) {
        resume->paths[resume->count++] = shelf.at[i].path;
        shelf.at[i].path = NULL;
    }
    if (shelf.strangers != NULL && warn)
        ddp_error_print(ddp_error_while(shelf.strangers,
                                        "looking for checkpoints in %s; this one is left aside", directory),
                        "warning", stderr);
    ddp_shelf_free(&shelf);
    return error;
}

static bool holds_record(const char *path)
{
    char *record = NULL;
    ddp_error *error = ddp_path_join(path, DDP_CHECKPOINT_RECORD, &record);
    bool holds = error == NULL && access(record, F_OK) == 0;
    ddp_error_free(error);
    free(record);
    return holds;
}

static bool same_directory(const char *a, const char *b)
{
    struct stat one, two;
    return stat(a, &one) == 0 && stat(b, &two) == 0 && one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

/* A checkpoint itself, a directory of them, or a run directory. */
static ddp_error *take_path(const ddp_job *job, const char *own, ddp_resume *resume)
{
    const char *path = job->checkpoint.resume;
    char *inside = NULL, *parent = NULL;
    ddp_error *error = NULL;
    struct stat info;
    if (stat(path, &info) != 0)
        return ddp_error_make(DDP_ERR_INPUT, "checkpoint.resume: %s: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "checkpoint.resume: %s is no directory", path),
                              "give the directory with the " DDP_CHECKPOINT_RECORD
                              " in it, or a run directory");
    if (holds_record(path)) {
        DDP_TRY(ddp_memory_make(1, sizeof *resume->paths, (void **)&resume->paths));
        DDP_TRY(ddp_memory_text(path, &resume->paths[0]));
        resume->count = 1;
        DDP_TRY(ddp_path_join(path, "..", &parent));
        resume->own = same_directory(parent, own);
        free(parent);
        return NULL;
    }
    DDP_TRY(ddp_path_join(path, DDP_CHECKPOINTS, &inside));
    const char *shelf = stat(inside, &info) == 0 ? inside : path;
    error = take_shelf(shelf, true, resume);
    resume->own = error == NULL && same_directory(shelf, own);
    free(inside);
    if (error == NULL && resume->count == 0)
        error = ddp_error_help(
            ddp_error_make(DDP_ERR_INPUT, "checkpoint.resume: %s holds no complete checkpoint", path),
            "give a directory with a " DDP_CHECKPOINT_RECORD " in it, or a run directory");
    return error;
}

ddp_error *ddp_resume_find(const ddp_job *job, const char *run_dir, bool warn, ddp_resume *resume)
{
    ddp_resume found = {.paths = NULL};
    char *own;
    ddp_error *error = NULL;
    *resume = found;
    if (strcmp(job->checkpoint.resume, "none") == 0)
        return NULL;
    DDP_TRY(ddp_path_join(run_dir, DDP_CHECKPOINTS, &own));
    if (strcmp(job->checkpoint.resume, "auto") != 0)
        error = ddp_error_locate(take_path(job, own, &found), ddp_job_where(job, &job->checkpoint.resume));
    else if (job->checkpoint.every > 0) {
        error = take_shelf(own, warn, &found);
        found.own = true;
    }
    free(own);
    if (error != NULL) {
        ddp_resume_free(&found);
        return error;
    }
    *resume = found;
    return NULL;
}

ddp_error *ddp_resume_digest_data(const ddp_setup *setup, uint64_t *digest)
{
    ddp_dataset *data = setup->train;
    const ddp_sample *sample = &data->sample;
    size_t input_bytes = (size_t)sample->input_count * ddp_dtype_bytes(sample->input);
    size_t target_bytes = (size_t)sample->target_count * ddp_dtype_bytes(sample->target);
    int64_t shape[] = {data->count, sample->input_count, sample->target_count, sample->input, sample->target};
    uint64_t made = ddp_rng_hash(0, shape, sizeof shape);
    char *input, *target;
    DDP_TRY(ddp_memory_make(input_bytes + target_bytes, 1, (void **)&input));
    target = input + input_bytes;
    int64_t count = data->count < SAMPLED ? data->count : SAMPLED;
    ddp_error *error = NULL;
    for (int64_t i = 0; i < count && error == NULL; i++) {
        int64_t id = count > 1 ? (int64_t)((double)i / (double)(count - 1) * (double)(data->count - 1)) : 0;
        error = data->ops->read(data, &id, 1, input, target);
        if (error == NULL)
            made = ddp_rng_hash(made, input, input_bytes + target_bytes);
    }
    free(input);
    if (error == NULL)
        *digest = made;
    return error;
}

static const char *find_setting(const ddp_pairs *settings, const char *name)
{
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->at[i].name, name) == 0)
            return settings->at[i].value;
    return NULL;
}

/* With another value of one of these, samples would be repeated or left out without a word, or the numbers of
 * the checkpoint would mean something else. */
static bool is_dangerous(const char *name)
{
    static const char *const names[] = {"train.global_batch", "train.seed", "data.shuffle", "data.tail",
                                        "optimizer.kind"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return ddp_text_starts(name, "model.");
}

static ddp_error *refuse(const ddp_job *job, const char *what)
{
    ddp_place place = ddp_job_where(job, &job->checkpoint.resume);
    if (place.file == NULL)
        place = (ddp_place){.file = job->path};
    return ddp_error_help(ddp_error_at(DDP_ERR_INPUT, place, "%s", what),
                          "checkpoint.force=true goes on all the same; checkpoint.resume=none starts anew");
}

static void add_change(ddp_text *changes, const char *name, const char *before, const char *now)
{
    ddp_text_add(changes, "  %s: %s -> %s\n", name, before != NULL ? before : "(none)",
                 now != NULL ? now : "(none)");
}

/* Settings of one side, against the other's; `found` collects the dangerous ones. */
static void compare_settings(const ddp_pairs *before, const ddp_pairs *now, bool only_model,
                             ddp_text *changes, ddp_text *dangers)
{
    for (size_t i = 0; i < now->count; i++) {
        const char *name = now->at[i].name, *was = find_setting(before, name);
        if ((was != NULL && strcmp(was, now->at[i].value) == 0) ||
            (only_model && !ddp_text_starts(name, "model.")))
            continue;
        add_change(changes, name, was, now->at[i].value);
        if (is_dangerous(name))
            add_change(dangers, name, was, now->at[i].value);
    }
    for (size_t i = 0; i < before->count; i++)
        if (find_setting(now, before->at[i].name) == NULL) {
            add_change(changes, before->at[i].name, before->at[i].value, NULL);
            if (is_dangerous(before->at[i].name))
                add_change(dangers, before->at[i].name, before->at[i].value, NULL);
        }
}

ddp_error *ddp_resume_compare(const ddp_setup *setup, const ddp_checkpoint_record *record, ddp_text *changes)
{
    const ddp_job *job = setup->job;
    ddp_pairs settings;
    ddp_text dangers = {0};
    uint64_t data = 0;
    bool imported = record->state.step == 0; /* weights and nothing else: any data will do */
    if (!imported)
        DDP_TRY(ddp_resume_digest_data(setup, &data));
    DDP_TRY(ddp_job_settings(job, &settings));
    compare_settings(&record->job, &settings, imported, changes, &dangers);
    ddp_pairs_free(&settings);
    ddp_error *error = NULL;
    if (dangers.length > 0) {
        ddp_text text = {0};
        ddp_text_add(&text,
                     "the checkpoint was made with other settings that it does not fit any more:\n%.*s",
                     (int)dangers.length - 1, ddp_text_get(&dangers));
        error = refuse(job, ddp_text_get(&text));
        ddp_text_free(&text);
    }
    ddp_text_free(&dangers);
    if (data != record->state.data) {
        ddp_text_add(changes, "  the training set is another one\n");
        error = ddp_error_join(error,
                               refuse(job, "the checkpoint was made with another training set: its samples, "
                                           "or how many there are, differ"));
    }
    if (error != NULL && job->checkpoint.force) {
        ddp_error_free(error);
        error = NULL;
    }
    return error;
}
