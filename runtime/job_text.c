/* A job written back: as YAML that reads to the same job, and as one number. */
#include <stdlib.h>
#include <string.h>

#include "core/files.h"
#include "core/memory.h"
#include "core/rng.h"
#include "runtime/job_parts.h"

#define ORIGIN_COLUMN 44

/* "# default", "# job.yaml:12", "# command line". */
static void add_origin(const ddp_job *job, const void *member, size_t line_start, ddp_text *out)
{
    ddp_place place = ddp_job_where(job, member);
    size_t width = out->length - line_start;
    ddp_text_add(out, "%*s", width < ORIGIN_COLUMN ? (int)(ORIGIN_COLUMN - width) : 2, "");
    if (place.file == NULL)
        ddp_text_add(out, "# default");
    else if (place.line > 0)
        ddp_text_add(out, "# %s:%d", ddp_path_name(place.file), place.line);
    else
        ddp_text_add(out, "# %s", place.file);
}

static void write_field(const ddp_job *job, const ddp_field *field, const void *base, bool indent,
                        bool origins, ddp_text *out)
{
    size_t start = out->length;
    if (ddp_field_is_absent(field, base))
        return;
    ddp_text_add(out, "%s%s: ", indent ? "  " : "", field->key);
    ddp_field_write(field, base, out);
    if (origins)
        add_origin(job, (const char *)base + field->offset, start, out);
    ddp_text_add(out, "\n");
}

static void write_section(const ddp_job *job, const job_section *section, bool origins, ddp_text *out)
{
    size_t index = (size_t)(section - job_sections);
    const job_kind *kind = &job->text->kinds[index];
    bool indent = *section->name != '\0';
    if (indent)
        ddp_text_add(out, "%s:\n", section->name);
    if (section->kind_at != NULL) {
        size_t start = out->length;
        ddp_text_add(out, "  %s: ", section->kind_key);
        ddp_yaml_write_text(out, kind->name);
        if (origins)
            add_origin(job, (const char *)job + section->ops, start, out);
        ddp_text_add(out, "\n");
    }
    for (const ddp_field *field = section->fields; field->key != NULL; field++)
        write_field(job, field, job, indent, origins, out);
    for (const ddp_field *field = kind->fields; field != NULL && field->key != NULL; field++)
        write_field(job, field, job->text->settings[index], indent, origins, out);
}

void ddp_job_write(const ddp_job *job, bool origins, FILE *out)
{
    ddp_text text = {0};
    for (size_t i = 0; i < JOB_SECTIONS; i++)
        write_section(job, &job_sections[i], origins, &text);
    fwrite(ddp_text_get(&text), 1, text.length, out);
    ddp_text_free(&text);
}

uint64_t ddp_job_digest(const ddp_job *job)
{
    ddp_text text = {0};
    for (size_t i = 0; i < JOB_SECTIONS; i++)
        if (job_sections[i].is_numeric)
            write_section(job, &job_sections[i], false, &text);
    uint64_t digest = ddp_rng_hash(0, ddp_text_get(&text), text.length);
    ddp_text_free(&text);
    return digest;
}

static ddp_error *add_setting(ddp_pairs *settings, size_t *capacity, const job_section *section,
                              const char *key, const char *value)
{
    ddp_text name = {0};
    void *at = settings->at;
    ddp_error *error = ddp_memory_grow(&at, capacity, settings->count + 1, sizeof *settings->at);
    settings->at = at;
    if (error != NULL)
        return error;
    job_key_write(section, key, &name);
    ddp_pair *pair = &settings->at[settings->count];
    error = ddp_memory_text(ddp_text_get(&name), &pair->name);
    ddp_text_free(&name);
    if (error != NULL)
        return error;
    settings->count++;
    return ddp_memory_text(value, &pair->value);
}

static ddp_error *add_settings(ddp_pairs *settings, size_t *capacity, const job_section *section,
                               const ddp_field *fields, const void *base)
{
    ddp_error *error = NULL;
    for (; fields != NULL && fields->key != NULL && error == NULL; fields++) {
        ddp_text value = {0};
        ddp_field_write(fields, base, &value); /* "null" where it is absent */
        error = add_setting(settings, capacity, section, fields->key, ddp_text_get(&value));
        ddp_text_free(&value);
    }
    return error;
}

ddp_error *ddp_job_settings(const ddp_job *job, ddp_pairs *settings)
{
    ddp_pairs made = {0};
    size_t capacity = 0;
    ddp_error *error = NULL;
    for (size_t i = 0; i < JOB_SECTIONS && error == NULL; i++) {
        const job_section *section = &job_sections[i];
        const job_kind *kind = &job->text->kinds[i];
        if (!section->is_numeric)
            continue;
        if (section->kind_at != NULL)
            error = add_setting(&made, &capacity, section, section->kind_key, kind->name);
        if (error == NULL)
            error = add_settings(&made, &capacity, section, section->fields, job);
        if (error == NULL)
            error = add_settings(&made, &capacity, section, kind->fields, job->text->settings[i]);
    }
    if (error != NULL) {
        ddp_pairs_free(&made);
        return error;
    }
    *settings = made;
    return NULL;
}

void ddp_pairs_free(ddp_pairs *pairs)
{
    for (size_t i = 0; i < pairs->count; i++) {
        free(pairs->at[i].name);
        free(pairs->at[i].value);
    }
    free(pairs->at);
    *pairs = (ddp_pairs){0};
}
