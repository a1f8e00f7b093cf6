/* The reference of all keys: as a table for a person, as a JSON schema for an editor. */
#include <string.h>

#include "runtime/job_parts.h"

enum { COLUMNS = 5 };

/* A table grows row by row; its columns are as wide as their widest cell, up to a limit. */
typedef struct table {
    ddp_text out;
    size_t width[COLUMNS - 1];
    bool measuring; /* first pass: nothing is written */
    size_t rows;
} table;

static const size_t most_width[COLUMNS - 1] = {20, 16, 14, 36};

static void add_row(table *table, const char *const cells[COLUMNS])
{
    table->rows++;
    if (!table->measuring)
        ddp_text_add(&table->out, " ");
    for (size_t i = 0; i < COLUMNS - 1; i++) {
        size_t length = strlen(cells[i]);
        if (table->measuring && length > table->width[i])
            table->width[i] = length < most_width[i] ? length : most_width[i];
        if (!table->measuring)
            ddp_text_add(&table->out, " %-*s ", (int)table->width[i], cells[i]);
    }
    if (!table->measuring)
        ddp_text_add(&table->out, " %s\n", cells[COLUMNS - 1]);
}

static void add_field(table *table, const ddp_field *field)
{
    ddp_text range = {0};
    ddp_field_write_range(field, &range);
    const char *fallback = field->fallback ? field->fallback : field->optional ? "-" : "required";
    add_row(table, (const char *const[]){field->key, ddp_field_type_name(field), fallback,
                                         ddp_text_get(&range), field->help});
    ddp_text_free(&range);
}

static void add_heading(table *table, const char *name, const char *kind, const char *help)
{
    static const char *const titles[] = {"key", "type", "default", "allowed, unit", "meaning"};
    if (table->measuring)
        return;
    if (table->out.length == 0)
        add_row(table, titles);
    ddp_text_add(&table->out, "\n%s%s%s: %s\n", *name ? name : "(top)", *kind ? "." : "", kind, help);
}

/* What was asked for; NULL parts match everything. */
typedef struct query {
    const char *section, *kind, *key;
} query;

static bool matches(const char *asked, const char *name)
{
    return asked == NULL || strcmp(asked, name) == 0;
}

static bool has_match(const ddp_field *fields, const query *query)
{
    return query->key == NULL || job_field_find(fields, query->key) != NULL;
}

static void add_fields(table *table, const ddp_field *fields, const query *query)
{
    for (; fields != NULL && fields->key != NULL; fields++)
        if (matches(query->key, fields->key))
            add_field(table, fields);
}

static void add_kinds(table *table, const job_section *section, const query *query)
{
    job_kind kind;
    for (size_t i = 0; section->kind_at != NULL && section->kind_at(i, &kind); i++) {
        if (!matches(query->kind, kind.name) || !has_match(kind.fields, query))
            continue;
        add_heading(table, section->name, kind.name, kind.help);
        table->rows++;
        add_fields(table, kind.fields, query);
    }
}

static void add_section(table *table, const job_section *section, const query *query)
{
    bool is_kind_key = section->kind_key != NULL && matches(query->key, section->kind_key);
    if (query->kind == NULL && (is_kind_key || has_match(section->fields, query))) {
        add_heading(table, section->name, "", section->help);
        if (is_kind_key) {
            ddp_text known = {0};
            job_kinds_write(section, " | ", " | ", &known);
            add_row(table, (const char *const[]){section->kind_key, "word",
                                                 section->kind_fallback ? section->kind_fallback : "required",
                                                 ddp_text_get(&known), section->kind_help});
            ddp_text_free(&known);
        }
        add_fields(table, section->fields, query);
    }
    add_kinds(table, section, query);
}

static void add_all(table *table, const query *query)
{
    for (const job_section *section = job_sections; section < job_sections + JOB_SECTIONS; section++)
        if (matches(query->section, section->name))
            add_section(table, section, query);
}

/* Both passes. Returns whether anything matched. */
static bool print_query(const query *query, FILE *out)
{
    table table = {.measuring = true, .width = {8, 4, 8, 13}};
    add_all(&table, query);
    if (table.rows == 0)
        return false;
    table.measuring = false;
    add_all(&table, query);
    if (query->section == NULL)
        ddp_text_add(&table.out,
                     "\nNumbers are decimal (1e-4, 0.0001, .0001; 010 is ten); a quoted value is read like a "
                     "plain one.\nOn the command line: ddprun JOB.yaml train.steps=20 'optimizer.betas=[0.9, "
                     "0.95]' launch.env.NAME=value\n");
    fwrite(ddp_text_get(&table.out), 1, table.out.length, out);
    ddp_text_free(&table.out);
    return true;
}

/* The nearest of everything that could have been asked for. */
static ddp_error *no_such_key(const char *asked)
{
    const char *best = NULL;
    size_t best_distance = 2 * (strlen(asked) / 3 + 2);
    ddp_text names = {0};
    job_kind kind;
    for (const job_section *section = job_sections; section < job_sections + JOB_SECTIONS; section++) {
        const char *dot = *section->name ? "." : "";
        ddp_text_add(&names, "%s\n", section->name);
        if (section->kind_at != NULL)
            ddp_text_add(&names, "%s.%s\n", section->name, section->kind_key);
        for (const ddp_field *field = section->fields; field->key != NULL; field++)
            ddp_text_add(&names, "%s%s%s\n", section->name, dot, field->key);
        for (size_t i = 0; section->kind_at != NULL && section->kind_at(i, &kind); i++) {
            ddp_text_add(&names, "%s.%s\n", section->name, kind.name);
            for (const ddp_field *field = kind.fields; field != NULL && field->key != NULL; field++)
                ddp_text_add(&names, "%s.%s\n", section->name, field->key);
        }
    }
    for (char *at = names.at, *rest; at != NULL && *at != '\0'; at = rest) {
        char *end = strchr(at, '\n'), *last;
        *end = '\0';
        rest = end + 1;
        last = strrchr(at, '.');
        size_t distance = 2 * ddp_text_distance(asked, at); /* a whole name beats the end of one */
        if (last != NULL && strchr(asked, '.') == NULL && 2 * ddp_text_distance(asked, last + 1) < distance)
            distance = 2 * ddp_text_distance(asked, last + 1) + 1;
        if (*at == '\0' || distance >= best_distance)
            continue;
        best = at;
        best_distance = distance;
    }
    ddp_error *error = ddp_error_make(DDP_ERR_INPUT, "there is no key \"%s\"", asked);
    error = best ? ddp_error_help(error, "did you mean \"%s\"?", best)
                 : ddp_error_help(error, "ddprun keys lists all");
    ddp_text_free(&names);
    return error;
}

ddp_error *ddp_job_print_keys(const char *key, FILE *out)
{
    enum { LONGEST = 200 };
    char parts[LONGEST + 1];
    if (key == NULL || *key == '\0') {
        print_query(&(query){0}, out);
        return NULL;
    }
    if (strlen(key) > LONGEST)
        return no_such_key("");
    strcpy(parts, key);
    char *second = strchr(parts, '.');
    if (second != NULL)
        *second++ = '\0';
    char *third = second ? strchr(second, '.') : NULL;
    if (third != NULL)
        *third++ = '\0';
    const query asked[] = {
        {parts, third ? second : NULL, third ? third : second}, /* section, section.key, section.kind.key */
        {parts, second, third},                                 /* section.kind */
        {"", NULL, parts},                                      /* a key of the top */
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++)
        if ((i < 2 || second == NULL) && print_query(&asked[i], out))
            return NULL;
    return no_such_key(key);
}

static void add_properties(ddp_json *json, const ddp_field *fields)
{
    for (; fields != NULL && fields->key != NULL; fields++)
        ddp_field_write_schema(fields, json);
}

static void add_required(ddp_json *json, const ddp_field *fields)
{
    for (; fields != NULL && fields->key != NULL; fields++)
        if (fields->fallback == NULL && !fields->optional)
            ddp_json_text(json, NULL, fields->key);
}

/* One complete object a kind: that is how additionalProperties can be false. */
static void add_kind_schema(ddp_json *json, const job_section *section, const job_kind *kind)
{
    bool is_default = section->kind_fallback != NULL && strcmp(section->kind_fallback, kind->name) == 0;
    ddp_json_open_object(json, NULL);
    ddp_json_text(json, "description", kind->help);
    ddp_json_open_object(json, "properties");
    ddp_json_open_object(json, section->kind_key);
    ddp_json_text(json, "description", section->kind_help);
    ddp_json_text(json, "const", kind->name);
    ddp_json_close_object(json);
    add_properties(json, section->fields);
    add_properties(json, kind->fields);
    ddp_json_close_object(json);
    ddp_json_open_array(json, "required");
    if (!is_default)
        ddp_json_text(json, NULL, section->kind_key);
    add_required(json, section->fields);
    add_required(json, kind->fields);
    ddp_json_close_array(json);
    ddp_json_bool(json, "additionalProperties", false);
    ddp_json_close_object(json);
}

static void add_plain_schema(ddp_json *json, const job_section *section)
{
    ddp_json_open_object(json, "properties");
    add_properties(json, section->fields);
    ddp_json_close_object(json);
    ddp_json_open_array(json, "required");
    add_required(json, section->fields);
    ddp_json_close_array(json);
    if (strcmp(section->name, "train") == 0) {
        ddp_json_open_array(json, "oneOf");
        for (int i = 0; i < 2; i++) {
            ddp_json_open_object(json, NULL);
            ddp_json_open_array(json, "required");
            ddp_json_text(json, NULL, i == 0 ? "steps" : "epochs");
            ddp_json_close_array(json);
            ddp_json_close_object(json);
        }
        ddp_json_close_array(json);
    }
    ddp_json_bool(json, "additionalProperties", false);
}

static void add_section_schema(ddp_json *json, const job_section *section)
{
    job_kind kind;
    ddp_json_open_object(json, section->name);
    ddp_json_text(json, "type", "object");
    ddp_json_text(json, "description", section->help);
    if (section->kind_at == NULL) {
        add_plain_schema(json, section);
    } else {
        ddp_json_open_array(json, "oneOf");
        for (size_t i = 0; section->kind_at(i, &kind); i++)
            add_kind_schema(json, section, &kind);
        ddp_json_close_array(json);
    }
    ddp_json_close_object(json);
}

void ddp_job_print_schema(FILE *out)
{
    ddp_text text = {0};
    ddp_json json = {.text = &text};
    ddp_json_open_object(&json, NULL);
    ddp_json_text(&json, "$schema", "https://json-schema.org/draft/2020-12/schema");
    ddp_json_text(&json, "title", "ddprun job");
    ddp_json_text(&json, "type", "object");
    ddp_json_open_object(&json, "properties");
    add_properties(&json, job_sections[0].fields);
    for (size_t i = 1; i < JOB_SECTIONS; i++)
        add_section_schema(&json, &job_sections[i]);
    ddp_json_close_object(&json);
    ddp_json_open_array(&json, "required");
    ddp_json_text(&json, NULL, "model");
    ddp_json_text(&json, NULL, "data");
    ddp_json_text(&json, NULL, "train");
    ddp_json_text(&json, NULL, "optimizer");
    ddp_json_close_array(&json);
    ddp_json_bool(&json, "additionalProperties", false);
    ddp_json_close_object(&json);
    fprintf(out, "%s\n", ddp_text_get(&text));
    ddp_text_free(&text);
}
