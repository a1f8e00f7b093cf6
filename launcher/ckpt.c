/* The verb ckpt: lists checkpoints, verifies them, and turns weights into a Hugging Face folder and back. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/files.h"
#include "core/memory.h"
#include "core/text.h"
#include "launcher/verbs.h"
#include "runtime/checkpoint/hub.h"
#include "runtime/checkpoint/restore.h"
#include "runtime/checkpoint/shelf.h"

enum { OUT };

typedef ddp_error *action_function(const ddp_arguments *arguments, const ddp_shelf *shelf, int *code);

/* A checkpoint, a directory of them, or a run directory, as a shelf. INPUT: nothing complete there. */
static ddp_error *open_shelf(const char *path, ddp_shelf *shelf)
{
    char *copy = NULL, *inside = NULL;
    struct stat info;
    ddp_error *error = NULL;
    if (stat(path, &info) != 0)
        return ddp_error_make(DDP_ERR_INPUT, "%s is not there", path);
    if (!S_ISDIR(info.st_mode))
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "%s is no directory", path),
                              "give a run directory or a checkpoint");
    DDP_GO(ddp_path_join(path, DDP_CHECKPOINT_RECORD, &copy));
    if (access(copy, F_OK) == 0) {
        error = ddp_shelf_open_one(path, shelf);
        goto out;
    }
    DDP_GO(ddp_path_join(path, DDP_CHECKPOINTS, &inside));
    error = ddp_shelf_list(stat(inside, &info) == 0 ? inside : path, shelf);
out:
    free(copy);
    free(inside);
    return error;
}

static ddp_error *require_one(const char *path, ddp_shelf *shelf)
{
    if (shelf->count > 0)
        return NULL;
    ddp_error *error = ddp_error_make(DDP_ERR_INPUT, "%s holds no complete checkpoint", path);
    error = ddp_error_join(error, shelf->strangers);
    shelf->strangers = NULL;
    return error;
}

static int find_best(const ddp_shelf *shelf)
{
    int best = -1;
    for (int i = 0; i < shelf->count; i++)
        if (shelf->at[i].state.has_eval &&
            (best < 0 || shelf->at[i].state.eval_loss < shelf->at[best].state.eval_loss))
            best = i;
    return best;
}

static ddp_error *list(const ddp_arguments *arguments, const ddp_shelf *shelf, int *code)
{
    int best = find_best(shelf);
    printf("%12s %14s %10s %6s %10s  %-16s  %s\n", "step", "samples", "size", "ranks", "val. loss", "saved",
           "checkpoint");
    for (int i = 0; i < shelf->count; i++) {
        const ddp_shelf_entry *entry = &shelf->at[i];
        char bytes[32], loss[32] = "-", when[32];
        time_t seconds = (time_t)entry->state.time;
        struct tm local;
        if (entry->state.has_eval)
            snprintf(loss, sizeof loss, "%.4f", entry->state.eval_loss);
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", localtime_r(&seconds, &local));
        printf("%12" PRId64 " %14" PRId64 " %10s %6d %10s  %-16s  %s%s%s\n", entry->state.step,
               entry->state.samples, ddp_text_from_bytes((double)entry->bytes, bytes, sizeof bytes),
               entry->state.world, loss, when, entry->path, i == 0 ? "  (newest)" : "",
               i == best ? "  (best)" : "");
    }
    return NULL;
}

static ddp_error *verify(const ddp_arguments *arguments, const ddp_shelf *shelf, int *code)
{
    for (int i = 0; i < shelf->count; i++) {
        const ddp_shelf_entry *entry = &shelf->at[i];
        ddp_checkpoint_record record;
        DDP_TRY(ddp_checkpoint_record_load(entry->path, &record));
        ddp_error *error = ddp_restore_verify(entry->path, &record);
        char bytes[32];
        printf("%-8s %s, %s\n", error == NULL ? "ok" : "DAMAGED", entry->path,
               ddp_text_from_bytes((double)entry->bytes, bytes, sizeof bytes));
        fflush(stdout);
        if (error != NULL) {
            ddp_error_print(error, "error", stderr);
            *code = 1;
        }
        ddp_error_free(error);
        ddp_checkpoint_record_free(&record);
    }
    return NULL;
}

static ddp_error *require_out(const ddp_arguments *arguments, const char *what)
{
    if (arguments->options[OUT] != NULL)
        return NULL;
    return ddp_error_help(
        ddp_error_make(DDP_ERR_INPUT, "ddprun ckpt %s needs --out DIRECTORY", arguments->operands[0]),
        "it is %s", what);
}

static void print_result(const ddp_hub_result *result, const char *path)
{
    char count[32];
    printf("%s: %d tensors, %s numbers\n", path, result->tensors,
           ddp_text_from_count(result->elements, count, sizeof count));
}

static ddp_error *export_one(const ddp_arguments *arguments, const ddp_shelf *shelf, int *code)
{
    const char *out = arguments->options[OUT];
    ddp_hub_result result;
    DDP_TRY(require_out(arguments, "the folder to be made"));
    DDP_TRY_AS(ddp_hub_export(shelf->at[0].path, out, &result), "exporting %s", shelf->at[0].path);
    print_result(&result, out);
    return NULL;
}

static ddp_error *import_one(const ddp_arguments *arguments)
{
    const char *from = arguments->operands[1], *out = arguments->options[OUT];
    ddp_hub_result result;
    DDP_TRY(require_out(arguments, "the checkpoint to be made"));
    DDP_TRY_AS(ddp_hub_import(from, out, &result), "importing %s", from);
    print_result(&result, out);
    printf("checkpoint.resume=%s starts a run from it\n", out);
    return NULL;
}

static const struct {
    const char *name;
    action_function *run; /* NULL: import, which reads no checkpoint */
    bool out;
} actions[] = {
    {"ls", list, false}, {"verify", verify, false}, {"export", export_one, true}, {"import", NULL, true}};
#define ACTIONS (sizeof actions / sizeof actions[0])

static ddp_error *unknown_action(const char *word)
{
    const char *names[ACTIONS];
    for (size_t i = 0; i < ACTIONS; i++)
        names[i] = actions[i].name;
    const char *near = ddp_text_nearest(word, names, ACTIONS);
    ddp_error *error = ddp_error_make(DDP_ERR_INPUT, "ddprun ckpt does not know \"%s\"", word);
    if (near != NULL)
        return ddp_error_help(error, "did you mean ddprun ckpt %s?", near);
    return ddp_error_help(error, "usage: ddprun ckpt ls|verify|export|import PATH");
}

static ddp_error *ckpt_verb(const ddp_arguments *arguments, int *code)
{
    const char *word = arguments->operands[0];
    size_t action = 0;
    ddp_shelf shelf = {.at = NULL};
    while (action < ACTIONS && strcmp(actions[action].name, word) != 0)
        action++;
    if (action == ACTIONS)
        return unknown_action(word);
    if (arguments->operand_count < 2)
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "ddprun ckpt %s needs a path", word),
                              "usage: ddprun ckpt %s PATH%s", word,
                              actions[action].out ? " --out DIRECTORY" : "");
    if (arguments->options[OUT] != NULL && !actions[action].out)
        return ddp_error_make(DDP_ERR_INPUT, "ddprun ckpt %s takes no --out", word);
    if (actions[action].run == NULL)
        return import_one(arguments);
    DDP_TRY(open_shelf(arguments->operands[1], &shelf));
    ddp_error *error = require_one(arguments->operands[1], &shelf);
    if (error == NULL && shelf.strangers != NULL)
        ddp_error_print(shelf.strangers, "warning", stderr);
    if (error == NULL)
        error = actions[action].run(arguments, &shelf, code);
    ddp_shelf_free(&shelf);
    return error;
}

static const ddp_option options[] = {
    [OUT] = {.name = "--out",
             .value = "DIRECTORY",
             .help = "export: folder to be made; import: checkpoint to be made"},
    {.name = NULL},
};

const ddp_verb ddp_verb_ckpt = {
    .name = "ckpt",
    .usage = "ls|verify|export|import PATH [--out DIRECTORY]",
    .help = "list and verify checkpoints; weights to a Hugging Face folder and back",
    .more =
        "\nPATH is a run directory, a directory of checkpoints, or one checkpoint.\n"
        "  ls      the complete checkpoints, newest first\n"
        "  verify  compares every byte with the checksums; exit 1 if something is damaged\n"
        "  export  weights of the newest as config.json and model.safetensors; a gpt as transformers' GPT-2\n"
        "  import  PATH is such a folder of a GPT-2; checkpoint.resume=DIRECTORY then starts a run from it",
    .options = options,
    .min_operands = 1,
    .max_operands = 2,
    .run = ckpt_verb,
};
