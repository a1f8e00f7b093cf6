/* The verbs that explain and start nothing: plan, show, keys, schema. */
#include <stdio.h>

#include "launcher/plan.h"
#include "launcher/rundir.h"
#include "launcher/verbs.h"

static ddp_error *plan_verb(const ddp_arguments *arguments, int *code)
{
    enum { JSON, RANKS };
    char extra[64];
    int64_t ranks = 0;
    ddp_job *job = NULL;
    ddp_plan plan = {0};
    ddp_text text = {0};
    ddp_error *error = NULL;
    DDP_GO(ddp_verb_read_int("--ranks", arguments->options[RANKS], 1, 1 << 20, &ranks));
    snprintf(extra, sizeof extra, "parallel.ranks=%lld", (long long)ranks);
    DDP_GO(ddp_verb_load_job(arguments, ranks > 0 ? extra : NULL, &job));
    DDP_GO(ddp_plan_make(job, 0, 0, &plan));
    DDP_GO(ddp_rundir_check(job));
    if (arguments->options[JSON] != NULL)
        ddp_plan_write_json(&plan, &text);
    else
        ddp_plan_write_table(&plan, &text);
    fwrite(ddp_text_get(&text), 1, text.length, stdout);
out:
    ddp_text_free(&text);
    ddp_plan_free(&plan);
    ddp_job_free(job);
    return error;
}

static ddp_error *show_verb(const ddp_arguments *arguments, int *code)
{
    ddp_job *job;
    DDP_TRY(ddp_verb_load_job(arguments, NULL, &job));
    ddp_job_write(job, true, stdout);
    ddp_job_free(job);
    return NULL;
}

static ddp_error *keys_verb(const ddp_arguments *arguments, int *code)
{
    return ddp_job_print_keys(arguments->operand_count > 0 ? arguments->operands[0] : NULL, stdout);
}

static ddp_error *schema_verb(const ddp_arguments *arguments, int *code)
{
    ddp_job_print_schema(stdout);
    return NULL;
}

static const ddp_option plan_options[] = {
    {.name = "--json", .help = "as one JSON object, the same as RUN_DIR/plan.json"},
    {.name = "--ranks", .value = "N", .help = "as if parallel.ranks were N"},
    {.name = NULL},
};

const ddp_verb ddp_verb_plan = {
    .name = "plan",
    .usage = "JOB.yaml [key=value ...] [--json] [--ranks N]",
    .help = "say which rank would run where, and why; batch arithmetic; memory",
    .more = "\nReads the job, its data and this machine, and does all the checks of a run; starts nothing, "
            "writes nothing.",
    .options = plan_options,
    .min_operands = 1,
    .max_operands = 1,
    .overrides = true,
    .run = plan_verb,
};

const ddp_verb ddp_verb_show = {
    .name = "show",
    .usage = "JOB.yaml [key=value ...]",
    .help = "print the whole job, every value with where it comes from",
    .min_operands = 1,
    .max_operands = 1,
    .overrides = true,
    .run = show_verb,
};

const ddp_verb ddp_verb_keys = {
    .name = "keys",
    .usage = "[KEY]",
    .help = "explain every key of a job file, or one, or a section",
    .more = "\nKEY is a section (train), a key (train.steps), or a key of one kind (model.gpt.layers).",
    .max_operands = 1,
    .run = keys_verb,
};

const ddp_verb ddp_verb_schema = {
    .name = "schema",
    .usage = "",
    .help = "print a JSON schema of job files, for editors",
    .run = schema_verb,
};
