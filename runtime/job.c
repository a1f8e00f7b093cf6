/* A job file made into a job.
 *
 * First everything that was given becomes a list of entries, overrides over the file; then each row of the
 * table looks for its entry or takes its default. What no row took is unknown. All problems are collected on
 * the way and come back as one error. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/files.h"
#include "core/memory.h"
#include "runtime/job_parts.h"

static void *job_member(const job_draft *draft, size_t offset)
{
    return (char *)draft->job + offset;
}

static ddp_error *note_origin(job_draft *draft, const void *member, const ddp_yaml_node *node)
{
    struct ddp_job_text *text = draft->job->text;
    void *origins = text->origins;
    ddp_error *error =
        ddp_memory_grow(&origins, &text->origin_capacity, text->origin_count + 1, sizeof *text->origins);
    text->origins = origins;
    if (error == NULL)
        text->origins[text->origin_count++] = (struct job_origin){member, node};
    return error;
}

/* At the section in the file, or the file as a whole. */
static void report_missing(job_draft *draft, const job_section *section, const char *key, const char *help)
{
    const ddp_yaml_node *at = draft->section_at[section - job_sections];
    ddp_text name = {0};
    job_key_write(section, key, &name);
    ddp_error *error =
        ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "%s is missing", ddp_text_get(&name)), "%s", help);
    ddp_text_free(&name);
    if (at != NULL)
        ddp_yaml_problem(&draft->problems, at, error);
    else
        ddp_problems_add(&draft->problems, ddp_error_locate(error, (ddp_place){.file = draft->job->path}), 0,
                         0);
}

static void report_missing_field(job_draft *draft, const job_section *section, const ddp_field *field)
{
    ddp_text help = {0};
    ddp_field_write_allowed(field, &help);
    ddp_text_add(&help, ": %s", field->help);
    report_missing(draft, section, field->key, ddp_text_get(&help));
    ddp_text_free(&help);
}

/* launch.env.A=x, ... on top of what env itself is. */
static void read_pair_overrides(job_draft *draft, const job_section *section, const ddp_field *field,
                                const char *key, void *base)
{
    for (size_t i = 0; i < draft->entry_count; i++) {
        job_entry *entry = &draft->entries[i];
        if (entry->section != section || entry->replaced || entry->name == NULL ||
            strcmp(entry->key, field->key) != 0)
            continue;
        entry->used = true;
        ddp_field_set_pair(field, key, entry->name, entry->node, base, &draft->problems);
    }
}

static ddp_error *read_field(job_draft *draft, const job_section *section, const ddp_field *field, void *base)
{
    job_entry *entry = job_entries_find(draft, section, field->key);
    ddp_error *error = NULL;
    ddp_text key = {0};
    job_key_write(section, field->key, &key);
    if (entry != NULL) {
        entry->used = true;
        ddp_field_read(field, ddp_text_get(&key), entry->node, base, &draft->problems);
        error = note_origin(draft, (char *)base + field->offset, entry->node);
    } else {
        error = ddp_field_set_default(field, base);
        if (error == NULL && field->fallback == NULL && !field->optional)
            report_missing_field(draft, section, field);
    }
    if (error == NULL && field->type == DDP_FIELD_PAIRS)
        read_pair_overrides(draft, section, field, ddp_text_get(&key), base);
    ddp_text_free(&key);
    return error;
}

static void report_kind(job_draft *draft, const job_section *section, const ddp_yaml_node *node)
{
    const char *names[64];
    char typed[80];
    size_t count = 0;
    job_kind kind;
    ddp_text known = {0};
    while (count < 64 && section->kind_at(count, &kind))
        names[count++] = kind.name;
    job_kinds_write(section, ", ", " or ", &known);
    ddp_error *error = ddp_error_make(DDP_ERR_INPUT, "%s.%s: %s is not %s", section->name, section->kind_key,
                                      ddp_yaml_describe(node, typed, sizeof typed), ddp_text_get(&known));
    const char *nearest = node->kind == DDP_YAML_SCALAR ? ddp_text_nearest(node->text, names, count) : NULL;
    if (nearest != NULL)
        error = ddp_error_help(error, "did you mean \"%s\"?", nearest);
    ddp_yaml_problem(&draft->problems, node, error);
    ddp_text_free(&known);
}

/* Which model, format or optimizer. None (after a report) leaves the kind's name NULL. */
static ddp_error *choose_kind(job_draft *draft, const job_section *section)
{
    size_t index = (size_t)(section - job_sections);
    job_entry *entry = job_entries_find(draft, section, section->kind_key);
    const char *wanted = section->kind_fallback;
    job_kind *kind = &draft->job->text->kinds[index], found;
    if (entry != NULL) {
        entry->used = true;
        wanted = entry->node->kind == DDP_YAML_SCALAR ? entry->node->text : "";
        DDP_TRY(note_origin(draft, job_member(draft, section->ops), entry->node));
    }
    if (wanted == NULL) {
        ddp_text known = {0};
        ddp_text_add(&known, "%s: ", section->kind_help);
        job_kinds_write(section, ", ", " or ", &known);
        report_missing(draft, section, section->kind_key, ddp_text_get(&known));
        ddp_text_free(&known);
    } else if (job_kind_find(section, wanted, &found)) {
        *kind = found;
    } else if (entry != NULL) {
        report_kind(draft, section, entry->node);
    } else {
        return ddp_error_make(DDP_ERR_MACHINE, "the %s \"%s\" is not in this build", section->name, wanted);
    }
    draft->kind_wrong[index] = kind->name == NULL;
    return NULL;
}

static ddp_error *read_kind(job_draft *draft, const job_section *section)
{
    size_t index = (size_t)(section - job_sections);
    struct ddp_job_text *text = draft->job->text;
    DDP_TRY(choose_kind(draft, section));
    const job_kind *kind = &text->kinds[index];
    if (kind->name == NULL)
        return NULL;
    DDP_TRY(ddp_memory_make(1, kind->bytes, &text->settings[index]));
    memcpy(job_member(draft, section->ops), &kind->ops, sizeof kind->ops);
    memcpy(job_member(draft, section->settings), &text->settings[index], sizeof(void *));
    for (const ddp_field *field = kind->fields; field != NULL && field->key != NULL; field++)
        DDP_TRY(read_field(draft, section, field, text->settings[index]));
    return NULL;
}

static ddp_error *read_sections(job_draft *draft)
{
    for (const job_section *section = job_sections; section < job_sections + JOB_SECTIONS; section++) {
        for (const ddp_field *field = section->fields; field->key != NULL; field++)
            DDP_TRY(read_field(draft, section, field, draft->job));
        if (section->kind_at != NULL)
            DDP_TRY(read_kind(draft, section));
    }
    for (size_t i = 0; i < draft->entry_count; i++)
        if (!draft->entries[i].used && !draft->entries[i].replaced)
            job_report_unknown(draft, &draft->entries[i]);
    return NULL;
}

static bool is_given(const job_entry *entry)
{
    return entry != NULL && !ddp_yaml_is_null(entry->node);
}

static void check_length(job_draft *draft)
{
    const job_section *train = job_section_find("train");
    job_entry *steps = job_entries_find(draft, train, "steps"),
              *epochs = job_entries_find(draft, train, "epochs");
    if (!is_given(steps) && !is_given(epochs)) {
        report_missing(draft, train, "steps", "a whole number of at least 1; train.epochs may stand for it");
    } else if (is_given(steps) && is_given(epochs)) {
        bool epochs_last = epochs->key_node->offset > steps->key_node->offset;
        const job_entry *last = epochs_last ? epochs : steps, *first = epochs_last ? steps : epochs;
        int line = ddp_yaml_place(first->key_node).line;
        ddp_error *error =
            ddp_error_make(DDP_ERR_INPUT, "train.%s and train.%s exclude each other", first->key, last->key);
        if (line > 0)
            error = ddp_error_while(error, "train.%s is on line %d", first->key, line);
        ddp_yaml_problem(&draft->problems, last->key_node, ddp_error_help(error, "leave one of them out"));
    }
}

/* A name is part of a path and of many lines of text. */
static void check_names(job_draft *draft)
{
    const job_section *top = &job_sections[0];
    job_entry *name = job_entries_find(draft, top, "name"), *output = job_entries_find(draft, top, "output");
    const char *text = draft->job->name;
    bool is_odd =
        text != NULL && (*text == '\0' || *text == '.' || strlen(text) > 200 || strchr(text, '/') != NULL);
    for (const char *at = text; at != NULL && *at != '\0'; at++)
        is_odd |= (unsigned char)*at < ' ' || *at == 0x7F;
    if (is_given(name) && is_odd)
        ddp_yaml_problem(&draft->problems, name->node,
                         ddp_error_help(ddp_error_make(DDP_ERR_INPUT,
                                                       "name: a name is up to 200 characters, without \"/\", "
                                                       "line ends or a dot in front"),
                                        "output: says where the run directory is"));
    if (is_given(output) && draft->job->output != NULL && *draft->job->output == '\0')
        ddp_yaml_problem(&draft->problems, output->node,
                         ddp_error_make(DDP_ERR_INPUT, "output: a directory is needed"));
}

/* The file's name without its ending, fit to be a name. */
static ddp_error *default_name(ddp_job *job)
{
    DDP_TRY(ddp_memory_text(ddp_path_name(job->path), &job->name));
    char *dot = strrchr(job->name, '.');
    if (dot != NULL && dot > job->name)
        *dot = '\0';
    while (*job->name == '.')
        *job->name = '_';
    for (char *at = job->name; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7F)
            *at = '_';
    return NULL;
}

static ddp_error *fill_names(ddp_job *job)
{
    if (job->name == NULL)
        DDP_TRY(default_name(job));
    if (job->output == NULL && asprintf(&job->output, "runs/%s", job->name) < 0) {
        job->output = NULL;
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    }
    return NULL;
}

/* Texts that cannot be read at all end the loading (the file) or are one more problem (an override). */
static ddp_error *read_texts(job_draft *draft, const char *const *overrides, size_t count)
{
    struct ddp_job_text *text = draft->job->text;
    void *yamls = NULL;
    DDP_TRY(ddp_memory_make(count + 1, sizeof *text->yamls, &yamls));
    text->yamls = yamls;
    DDP_TRY(ddp_yaml_load(draft->job->path, 0, &draft->problems, &text->yamls[0]));
    text->yaml_count = 1;
    DDP_TRY(job_entries_add_file(draft, text->yamls[0]));
    for (size_t i = 0; i < count; i++) {
        ddp_yaml *yaml = NULL;
        ddp_error *error = ddp_yaml_parse_override(overrides[i], i + 1, &draft->problems, &yaml);
        if (error != NULL) {
            ddp_problems_add(&draft->problems, error, i + 1, 0);
            continue;
        }
        text->yamls[text->yaml_count++] = yaml;
        DDP_TRY(job_entries_add_override(draft, yaml));
    }
    return NULL;
}

static ddp_error *fill(job_draft *draft, const char *const *overrides, size_t count)
{
    DDP_TRY(read_texts(draft, overrides, count));
    DDP_TRY(read_sections(draft));
    check_length(draft);
    check_names(draft);
    return fill_names(draft->job);
}

ddp_error *ddp_job_load(const char *path, const char *const *overrides, size_t count, ddp_job **job)
{
    ddp_job *made = NULL;
    job_draft *draft = NULL;
    ddp_error *error = NULL;
    if (strcmp(path, "-") == 0)
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "a job is not read from standard input"),
                              "give a file: every rank reads it");
    DDP_GO(DDP_NEW(&draft));
    DDP_GO(DDP_NEW(&made));
    DDP_GO(DDP_NEW(&made->text));
    DDP_GO(ddp_memory_text(path, &made->path));
    draft->job = made;
    error = fill(draft, overrides, count);
    error = ddp_error_join(ddp_problems_take(&draft->problems), error);
    job_entries_free(draft);
out:
    free(draft);
    if (error != NULL)
        ddp_job_free(made);
    else
        *job = made;
    return error;
}

static void free_text(struct ddp_job_text *text)
{
    if (text == NULL)
        return;
    for (size_t i = 0; i < JOB_SECTIONS; i++) {
        ddp_field_free(text->kinds[i].fields, text->settings[i]);
        free(text->settings[i]);
    }
    for (size_t i = 0; i < text->yaml_count; i++)
        ddp_yaml_free(text->yamls[i]);
    free(text->yamls);
    free(text->origins);
    free(text);
}

void ddp_job_free(ddp_job *job)
{
    if (job == NULL)
        return;
    for (size_t i = 0; i < JOB_SECTIONS; i++)
        ddp_field_free(job_sections[i].fields, job);
    free_text(job->text);
    free(job->path);
    free(job);
}

ddp_place ddp_job_where(const ddp_job *job, const void *member)
{
    for (size_t i = 0; i < job->text->origin_count; i++)
        if (job->text->origins[i].member == member)
            return ddp_yaml_place(job->text->origins[i].node);
    return (ddp_place){.file = NULL};
}
