/* Settings as members of a struct: lists, maps, defaults, and which type is read how. Single values are
 * scalar.c's. */
#include "core/config/field.h"

#include <stdlib.h>
#include <string.h>

#include "core/config/field_parts.h"
#include "core/memory.h"

static void *member(const ddp_field *field, void *base)
{
    return (char *)base + field->offset;
}

/* Errors speak of one element, so its row is made up here. */
static void read_element(field_reading *list, const ddp_yaml_node *node, void *at)
{
    ddp_field row = *list->field;
    row.type = row.type == DDP_FIELD_INTS     ? DDP_FIELD_INT
               : row.type == DDP_FIELD_FLOATS ? DDP_FIELD_FLOAT
                                              : DDP_FIELD_TEXT;
    int choice;
    field_reading one = {.field = &row, .key = list->key, .problems = list->problems};
    if (row.type == DDP_FIELD_TEXT && row.choices != NULL) {
        row.type = DDP_FIELD_CHOICE;
        if (field_read_choice(&one, node, &choice))
            field_read_text(&one, node, at);
    } else if (row.type == DDP_FIELD_TEXT) {
        field_read_text(&one, node, at);
    } else if (row.type == DDP_FIELD_INT) {
        field_read_int(&one, node, at);
    } else {
        field_read_float(&one, node, at);
    }
    list->failed |= one.failed;
}

/* All list members begin alike: a pointer and a count. */
static size_t element_bytes(const ddp_field *field)
{
    return field->type == DDP_FIELD_INTS     ? sizeof(int64_t)
           : field->type == DDP_FIELD_FLOATS ? sizeof(double)
           : field->type == DDP_FIELD_TEXTS  ? sizeof(char *)
                                             : sizeof(ddp_pair);
}

static void free_value(const ddp_field *field, void *at)
{
    if (field->type == DDP_FIELD_TEXT) {
        free(*(char **)at);
        *(char **)at = NULL;
    } else if (field->type >= DDP_FIELD_INTS) {
        ddp_texts *list = at;
        ddp_pairs *pairs = at;
        for (size_t i = 0; field->type == DDP_FIELD_TEXTS && i < list->count; i++)
            free(list->at[i]);
        for (size_t i = 0; field->type == DDP_FIELD_PAIRS && i < pairs->count; i++) {
            free(pairs->at[i].name);
            free(pairs->at[i].value);
        }
        free(list->at);
        *list = (ddp_texts){0};
    }
}

static void read_list(field_reading *reading, const ddp_yaml_node *node, void *at)
{
    const ddp_field *field = reading->field;
    bool is_single =
        node->kind == DDP_YAML_SCALAR && field->type == DDP_FIELD_TEXTS && !ddp_yaml_is_null(node);
    size_t count = is_single ? 1 : node->count;
    void *memory = NULL;
    if (node->kind != DDP_YAML_LIST && !is_single) {
        ddp_error *error = field_not_allowed(reading, node);
        if (node->kind == DDP_YAML_SCALAR)
            error = ddp_error_help(error, "lists are written in brackets: [%s]", node->text);
        field_fail(reading, node, error);
        return;
    }
    ddp_error *error = ddp_memory_make(count, element_bytes(field), &memory);
    if (error != NULL) {
        field_fail(reading, node, error);
        return;
    }
    ddp_texts list = {.at = memory, .count = count};
    for (size_t i = 0; i < count; i++)
        read_element(reading, is_single ? node : node->items[i], (char *)memory + i * element_bytes(field));
    if (reading->failed)
        free_value(field, &list);
    else
        *(ddp_texts *)at = list;
}

static bool is_identifier(const char *text)
{
    size_t length = strlen(text);
    return length > 0 && length < 256 && !(*text >= '0' && *text <= '9') &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == length;
}

static void check_name(field_reading *reading, const ddp_yaml_node *node, const char *name)
{
    char typed[80];
    ddp_yaml_node shown = {.kind = DDP_YAML_SCALAR, .text = (char *)name};
    if (!is_identifier(name))
        field_fail(reading, node,
                   ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "%s: %s is not a name", reading->key,
                                                 ddp_yaml_describe(&shown, typed, sizeof typed)),
                                  "names are letters, digits and _, and begin with no digit"));
}

static void read_pairs(field_reading *reading, const ddp_yaml_node *node, ddp_pairs *at)
{
    size_t count = node->count / 2;
    void *memory = NULL;
    if (node->kind != DDP_YAML_MAP) {
        field_fail(reading, node, field_not_allowed(reading, node));
        return;
    }
    ddp_error *error = ddp_memory_make(count, sizeof(ddp_pair), &memory);
    if (error != NULL) {
        field_fail(reading, node, error);
        return;
    }
    ddp_pairs pairs = {.at = memory, .count = count};
    for (size_t i = 0; i < count; i++) {
        check_name(reading, node->items[2 * i], node->items[2 * i]->text);
        field_read_text(reading, node->items[2 * i], &pairs.at[i].name);
        field_read_text(reading, node->items[2 * i + 1], &pairs.at[i].value);
    }
    if (reading->failed)
        free_value(reading->field, &pairs);
    else
        *at = pairs;
}

static bool is_auto(const ddp_field *field, const ddp_yaml_node *node)
{
    return field->automatic && node->kind == DDP_YAML_SCALAR && strcmp(node->text, "auto") == 0;
}

static void read_value(field_reading *reading, const ddp_yaml_node *node, void *at)
{
    switch (reading->field->type) {
    case DDP_FIELD_INT:
        if (is_auto(reading->field, node))
            *(int64_t *)at = DDP_AUTO;
        else
            field_read_int(reading, node, at);
        break;
    case DDP_FIELD_FLOAT:
        if (is_auto(reading->field, node))
            *(double *)at = 0;
        else
            field_read_float(reading, node, at);
        break;
    case DDP_FIELD_BOOL:
        field_read_bool(reading, node, at);
        break;
    case DDP_FIELD_TEXT:
        field_read_text(reading, node, at);
        break;
    case DDP_FIELD_CHOICE:
        field_read_choice(reading, node, at);
        break;
    case DDP_FIELD_INTS:
    case DDP_FIELD_FLOATS:
    case DDP_FIELD_TEXTS:
        read_list(reading, node, at);
        break;
    case DDP_FIELD_PAIRS:
        read_pairs(reading, node, at);
        break;
    }
}

static void set_absent(const ddp_field *field, void *base)
{
    if (field->type == DDP_FIELD_INT)
        *(int64_t *)member(field, base) = 0;
}

void ddp_field_read(const ddp_field *field, const char *key, const ddp_yaml_node *node, void *base,
                    ddp_problems *problems)
{
    field_reading reading = {.field = field, .key = key, .problems = problems};
    if (field->optional && ddp_yaml_is_null(node)) {
        free_value(field, member(field, base));
        set_absent(field, base);
        return;
    }
    union {
        int64_t whole;
        double real;
        bool truth;
        int choice;
        char *text;
        ddp_pairs list;
    } value = {.list = {0}};
    static const size_t bytes[] = {
        [DDP_FIELD_INT] = sizeof(int64_t),     [DDP_FIELD_FLOAT] = sizeof(double),
        [DDP_FIELD_BOOL] = sizeof(bool),       [DDP_FIELD_TEXT] = sizeof(char *),
        [DDP_FIELD_CHOICE] = sizeof(int),      [DDP_FIELD_INTS] = sizeof(ddp_ints),
        [DDP_FIELD_FLOATS] = sizeof(ddp_ints), [DDP_FIELD_TEXTS] = sizeof(ddp_ints),
        [DDP_FIELD_PAIRS] = sizeof(ddp_ints)};
    read_value(&reading, node, &value);
    if (reading.failed)
        return;
    free_value(field, member(field, base));
    memcpy(member(field, base), &value, bytes[field->type]);
}

ddp_error *ddp_field_set_default(const ddp_field *field, void *base)
{
    ddp_problems problems = {0};
    ddp_yaml *yaml = NULL;
    ddp_text text = {0};
    set_absent(field, base);
    if (field->fallback == NULL)
        return NULL;
    ddp_text_add(&text, "default=%s", field->fallback);
    ddp_error *error = ddp_yaml_parse_override(ddp_text_get(&text), 0, &problems, &yaml);
    ddp_text_free(&text);
    if (error == NULL) {
        ddp_field_read(field, field->key, ddp_yaml_root(yaml), base, &problems);
        error = ddp_problems_take(&problems);
    }
    ddp_yaml_free(yaml);
    if (error == NULL || ddp_error_get_kind(error) == DDP_ERR_MEMORY)
        return error;
    ddp_error *defect =
        ddp_error_make(DDP_ERR_INTERNAL, "the default of %s is not allowed by its own row: %s", field->key,
                       ddp_error_message(error));
    ddp_error_free(error);
    return defect;
}

void ddp_field_set_pair(const ddp_field *field, const char *key, const char *name, const ddp_yaml_node *node,
                        void *base, ddp_problems *problems)
{
    field_reading reading = {.field = field, .key = key, .problems = problems};
    ddp_pairs *pairs = member(field, base);
    char *value = NULL;
    size_t i = 0, capacity = pairs->count;
    check_name(&reading, ddp_yaml_key(node->yaml), name);
    if (reading.failed || !field_read_text(&reading, node, &value))
        return;
    while (i < pairs->count && strcmp(pairs->at[i].name, name) != 0)
        i++;
    void *at = pairs->at;
    ddp_error *error = ddp_memory_grow(&at, &capacity, i + 1, sizeof *pairs->at);
    pairs->at = at;
    if (error == NULL && i == pairs->count)
        error = ddp_memory_text(name, &pairs->at[i].name);
    if (error != NULL) {
        free(value);
        field_fail(&reading, node, error);
        return;
    }
    pairs->count += i == pairs->count;
    free(pairs->at[i].value);
    pairs->at[i].value = value;
}

void ddp_field_free(const ddp_field *fields, void *base)
{
    for (; fields != NULL && fields->key != NULL && base != NULL; fields++)
        free_value(fields, member(fields, base));
}
