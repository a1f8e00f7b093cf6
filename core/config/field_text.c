/* Rows of settings in words, as YAML and as JSON schema. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/config/field.h"

static const void *member(const ddp_field *field, const void *base)
{
    return (const char *)base + field->offset;
}

bool ddp_field_is_absent(const ddp_field *field, const void *base)
{
    if (!field->optional)
        return false;
    return field->type == DDP_FIELD_TEXT ? *(char *const *)member(field, base) == NULL
                                         : *(const int64_t *)member(field, base) == 0;
}

static void write_float(ddp_text *out, double value)
{
    char buffer[32];
    if (value == floor(value) && fabs(value) < 1e9)
        ddp_text_add(out, "%" PRId64, (int64_t)value); /* 60, not 6e+01 */
    else
        ddp_text_add(out, "%s", ddp_text_from_float(value, buffer, sizeof buffer));
}

/* Bounds as people write them: 2147483647, not 2.147483647e+09; 1e12, not 1000000000000. */
static void write_bound(ddp_text *out, double value)
{
    double exponent = floor(log10(fabs(value) + 0.5) + 1e-9);
    if (value >= 1e9 && value == pow(10, exponent))
        ddp_text_add(out, "1e%d", (int)exponent);
    else if (value == floor(value) && fabs(value) < 1e16)
        ddp_text_add(out, "%" PRId64, (int64_t)value);
    else
        write_float(out, value);
}

static void write_list(const ddp_field *field, const void *at, ddp_text *out)
{
    const ddp_ints *list = at; /* all lists begin alike */
    bool is_map = field->type == DDP_FIELD_PAIRS;
    ddp_text_add(out, is_map ? "{" : "[");
    for (size_t i = 0; i < list->count; i++) {
        ddp_text_add(out, i > 0 ? ", " : "");
        if (field->type == DDP_FIELD_INTS)
            ddp_text_add(out, "%" PRId64, list->at[i]);
        else if (field->type == DDP_FIELD_FLOATS)
            write_float(out, ((const ddp_floats *)at)->at[i]);
        else if (field->type == DDP_FIELD_TEXTS)
            ddp_yaml_write_text(out, ((const ddp_texts *)at)->at[i]);
        else {
            ddp_yaml_write_text(out, ((const ddp_pairs *)at)->at[i].name);
            ddp_text_add(out, ": ");
            ddp_yaml_write_text(out, ((const ddp_pairs *)at)->at[i].value);
        }
    }
    ddp_text_add(out, is_map ? "}" : "]");
}

void ddp_field_write(const ddp_field *field, const void *base, ddp_text *out)
{
    const void *at = member(field, base);
    bool is_auto = field->automatic && (field->type == DDP_FIELD_INT ? *(const int64_t *)at == DDP_AUTO
                                                                     : *(const double *)at == 0);
    if (ddp_field_is_absent(field, base)) {
        ddp_text_add(out, "null");
        return;
    }
    switch (field->type) {
    case DDP_FIELD_INT:
        if (is_auto)
            ddp_text_add(out, "auto");
        else
            ddp_text_add(out, "%" PRId64, *(const int64_t *)at);
        break;
    case DDP_FIELD_FLOAT:
        if (is_auto)
            ddp_text_add(out, "auto");
        else
            write_float(out, *(const double *)at);
        break;
    case DDP_FIELD_BOOL:
        ddp_text_add(out, *(const bool *)at ? "true" : "false");
        break;
    case DDP_FIELD_TEXT:
        ddp_yaml_write_text(out, *(char *const *)at);
        break;
    case DDP_FIELD_CHOICE:
        ddp_text_add(out, "%s", field->choices[*(const int *)at]);
        break;
    default:
        write_list(field, at, out);
    }
}

static bool has_range(const ddp_field *field)
{
    return field->min != 0 || field->max != 0;
}

/* " from 1 to 9", " above 0", " of at least 0", " above 0 and at most 1". */
static void write_range_in_words(const ddp_field *field, ddp_text *out)
{
    bool has_max = field->max < HUGE_VAL;
    if (!has_range(field))
        return;
    ddp_text_add(out, field->exclusive_min ? " above " : has_max ? " from " : " of at least ");
    write_bound(out, field->min);
    if (has_max) {
        ddp_text_add(out, field->exclusive_min ? " and at most " : " to ");
        write_bound(out, field->max);
    }
}

static void write_choices(const ddp_field *field, const char *between, const char *before_last, ddp_text *out)
{
    const char *const *choices = field->choices;
    for (size_t i = 0; choices[i] != NULL; i++)
        ddp_text_add(out, "%s%s", i == 0 ? "" : choices[i + 1] ? between : before_last, choices[i]);
}

void ddp_field_write_allowed(const ddp_field *field, ddp_text *out)
{
    switch (field->type) {
    case DDP_FIELD_INT:
    case DDP_FIELD_INTS:
        ddp_text_add(out, field->type == DDP_FIELD_INT ? "a whole number" : "a list of whole numbers");
        write_range_in_words(field, out);
        break;
    case DDP_FIELD_FLOAT:
    case DDP_FIELD_FLOATS:
        ddp_text_add(out, field->type == DDP_FIELD_FLOAT ? "a number" : "a list of numbers");
        write_range_in_words(field, out);
        break;
    case DDP_FIELD_BOOL:
        ddp_text_add(out, "true or false");
        break;
    case DDP_FIELD_TEXT:
        ddp_text_add(out, "a text");
        break;
    case DDP_FIELD_TEXTS:
        ddp_text_add(out, "a list of ");
        if (field->choices == NULL)
            ddp_text_add(out, "texts");
        else
            write_choices(field, ", ", " and ", out);
        break;
    case DDP_FIELD_CHOICE:
        write_choices(field, ", ", " or ", out);
        break;
    case DDP_FIELD_PAIRS:
        ddp_text_add(out, "a map of names to texts");
        break;
    }
    if (field->automatic)
        ddp_text_add(out, ", or auto");
}

const char *ddp_field_type_name(const ddp_field *field)
{
    static const char *const names[] = {
        [DDP_FIELD_INT] = "whole number", [DDP_FIELD_FLOAT] = "number", [DDP_FIELD_BOOL] = "true, false",
        [DDP_FIELD_TEXT] = "text",        [DDP_FIELD_CHOICE] = "word",  [DDP_FIELD_INTS] = "whole numbers",
        [DDP_FIELD_FLOATS] = "numbers",   [DDP_FIELD_TEXTS] = "texts",  [DDP_FIELD_PAIRS] = "name: text",
    };
    return names[field->type];
}

void ddp_field_write_range(const ddp_field *field, ddp_text *out)
{
    if (field->choices != NULL)
        write_choices(field, " | ", " | ", out);
    if (has_range(field)) {
        bool has_max = field->max < HUGE_VAL;
        ddp_text_add(out, field->exclusive_min ? "> " : has_max ? "" : ">= ");
        write_bound(out, field->min);
        if (has_max) {
            ddp_text_add(out, field->exclusive_min ? ", <= " : " to ");
            write_bound(out, field->max);
        }
    }
    if (field->unit != NULL)
        ddp_text_add(out, "%s%s", out->length > 0 ? " " : "", field->unit);
    if (field->automatic)
        ddp_text_add(out, out->length > 0 ? " | auto" : "auto");
}

static void write_number_schema(const ddp_field *field, ddp_json *json)
{
    bool is_int = field->type == DDP_FIELD_INT || field->type == DDP_FIELD_INTS;
    ddp_json_text(json, "type", is_int ? "integer" : "number");
    if (!has_range(field))
        return;
    ddp_json_float(json, field->exclusive_min ? "exclusiveMinimum" : "minimum", field->min);
    if (field->max < HUGE_VAL)
        ddp_json_float(json, "maximum", field->max);
}

static void write_choices_schema(const ddp_field *field, ddp_json *json)
{
    ddp_json_open_array(json, "enum");
    for (size_t i = 0; field->choices[i] != NULL; i++)
        ddp_json_text(json, NULL, field->choices[i]);
    /* YAML readers of editors take these words for booleans. */
    for (size_t i = 0; field->choices[i] != NULL; i++)
        if (strcmp(field->choices[i], "true") == 0 || strcmp(field->choices[i], "false") == 0)
            ddp_json_bool(json, NULL, *field->choices[i] == 't');
    ddp_json_close_array(json);
}

/* `value`, or the word auto. */
static void write_or_auto_schema(const ddp_field *field, ddp_json *json)
{
    ddp_json_open_array(json, "anyOf");
    ddp_json_open_object(json, NULL);
    write_number_schema(field, json);
    ddp_json_close_object(json);
    ddp_json_open_object(json, NULL);
    ddp_json_text(json, "const", "auto");
    ddp_json_close_object(json);
    ddp_json_close_array(json);
}

static void write_text_schema(const ddp_field *field, ddp_json *json)
{
    if (field->choices != NULL) {
        write_choices_schema(field, json);
    } else if (field->optional) {
        ddp_json_open_array(json, "type");
        ddp_json_text(json, NULL, "string");
        ddp_json_text(json, NULL, "null");
        ddp_json_close_array(json);
    } else {
        ddp_json_text(json, "type", "string");
    }
}

static void write_list_schema(const ddp_field *field, ddp_json *json)
{
    ddp_json_text(json, "type", "array");
    ddp_json_open_object(json, "items");
    if (field->type == DDP_FIELD_TEXTS)
        write_text_schema(field, json);
    else
        write_number_schema(field, json);
    ddp_json_close_object(json);
}

/* A single text is a list of one. */
static void write_texts_schema(const ddp_field *field, ddp_json *json)
{
    ddp_json_open_array(json, "anyOf");
    ddp_json_open_object(json, NULL);
    write_text_schema(field, json);
    ddp_json_close_object(json);
    ddp_json_open_object(json, NULL);
    write_list_schema(field, json);
    ddp_json_close_object(json);
    ddp_json_close_array(json);
}

static void write_pairs_schema(ddp_json *json)
{
    ddp_json_text(json, "type", "object");
    ddp_json_open_object(json, "propertyNames");
    ddp_json_text(json, "pattern", "^[A-Za-z_][A-Za-z0-9_]*$");
    ddp_json_close_object(json);
    ddp_json_open_object(json, "additionalProperties");
    ddp_json_open_array(json, "type");
    ddp_json_text(json, NULL, "string");
    ddp_json_text(json, NULL, "number");
    ddp_json_text(json, NULL, "boolean");
    ddp_json_text(json, NULL, "null");
    ddp_json_close_array(json);
    ddp_json_close_object(json);
}

static void write_default_schema(const ddp_field *field, ddp_json *json)
{
    int64_t whole;
    double real;
    if (field->fallback == NULL || field->type >= DDP_FIELD_INTS)
        return;
    if (field->type == DDP_FIELD_INT && ddp_text_to_int(field->fallback, &whole))
        ddp_json_int(json, "default", whole);
    else if (field->type == DDP_FIELD_FLOAT && ddp_text_to_float(field->fallback, &real))
        ddp_json_float(json, "default", real);
    else if (field->type == DDP_FIELD_BOOL)
        ddp_json_bool(json, "default", *field->fallback == 't');
    else
        ddp_json_text(json, "default", field->fallback);
}

void ddp_field_write_schema(const ddp_field *field, ddp_json *json)
{
    ddp_json_open_object(json, field->key);
    ddp_json_text(json, "description", field->help);
    if (field->automatic)
        write_or_auto_schema(field, json);
    else if (field->type == DDP_FIELD_INT || field->type == DDP_FIELD_FLOAT)
        write_number_schema(field, json);
    else if (field->type == DDP_FIELD_BOOL)
        ddp_json_text(json, "type", "boolean");
    else if (field->type == DDP_FIELD_TEXT || field->type == DDP_FIELD_CHOICE)
        write_text_schema(field, json);
    else if (field->type == DDP_FIELD_TEXTS)
        write_texts_schema(field, json);
    else if (field->type == DDP_FIELD_PAIRS)
        write_pairs_schema(json);
    else
        write_list_schema(field, json);
    write_default_schema(field, json);
    ddp_json_close_object(json);
}
