/* Single values of settings.
 *
 * A value is parsed by its row's type, never by its look, so that `2e-5` is a number and `010` is ten.
 * Every refusal shows the text as typed and says what is allowed. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/config/field_parts.h"
#include "core/memory.h"

static bool has_range(const ddp_field *field)
{
    return field->min != 0 || field->max != 0;
}

void field_fail(field_reading *reading, const ddp_yaml_node *node, ddp_error *error)
{
    reading->failed = true;
    if (error != NULL)
        ddp_yaml_problem(reading->problems, node, error);
}

ddp_error *field_not_allowed(const field_reading *reading, const ddp_yaml_node *node)
{
    char typed[80];
    ddp_text allowed = {0};
    ddp_field_write_allowed(reading->field, &allowed);
    ddp_error *error =
        ddp_yaml_is_null(node)
            ? ddp_error_make(DDP_ERR_INPUT, "%s: no value is given; it is %s", reading->key,
                             ddp_text_get(&allowed))
            : ddp_error_make(DDP_ERR_INPUT, "%s: %s is not %s", reading->key,
                             ddp_yaml_describe(node, typed, sizeof typed), ddp_text_get(&allowed));
    ddp_text_free(&allowed);
    return error;
}

static bool in_range(const ddp_field *field, double value)
{
    if (!has_range(field))
        return true;
    return (field->exclusive_min ? value > field->min : value >= field->min) && value <= field->max;
}

/* What somebody who wrote this whole number in another notation may have meant; 0 = no idea. */
static int64_t guess_int(const char *text)
{
    char digits[32];
    size_t length = 0;
    double real;
    int64_t value = 0;
    if (strlen(text) >= sizeof digits)
        return 0;
    if (ddp_text_starts(text, "0x") || ddp_text_starts(text, "0o")) {
        char *end;
        long long got = strtoll(text + 2, &end, text[1] == 'x' ? 16 : 8);
        return *end == '\0' && end > text + 2 && got > 0 ? got : 0;
    }
    if (ddp_text_to_float(text, &real) && real == floor(real) && fabs(real) < 1e15)
        return (int64_t)real;
    for (; *text != '\0'; text++)
        if (*text != '_' && *text != ',')
            digits[length++] = *text;
    digits[length] = '\0';
    return ddp_text_to_int(digits, &value) ? value : 0;
}

bool field_read_int(field_reading *reading, const ddp_yaml_node *node, int64_t *value)
{
    int64_t got;
    if (node->kind == DDP_YAML_SCALAR && ddp_text_to_int(node->text, &got) && got != DDP_AUTO &&
        in_range(reading->field, (double)got)) {
        *value = got;
        return true;
    }
    ddp_error *error = field_not_allowed(reading, node);
    int64_t guess =
        node->kind == DDP_YAML_SCALAR && !ddp_text_to_int(node->text, &got) ? guess_int(node->text) : 0;
    if (guess != 0 && in_range(reading->field, (double)guess))
        error = ddp_error_help(error, "whole numbers are written in decimal digits only: %" PRId64, guess);
    field_fail(reading, node, error);
    return false;
}

bool field_read_float(field_reading *reading, const ddp_yaml_node *node, double *value)
{
    double got;
    if (node->kind == DDP_YAML_SCALAR && ddp_text_to_float(node->text, &got) &&
        in_range(reading->field, got)) {
        *value = got;
        return true;
    }
    ddp_error *error = field_not_allowed(reading, node);
    if (node->kind == DDP_YAML_SCALAR && *node->text != '\0' &&
        strspn(node->text, "0123456789,.") == strlen(node->text) && strchr(node->text, ',') != NULL)
        error = ddp_error_help(error, "the decimal mark is a dot");
    field_fail(reading, node, error);
    return false;
}

bool field_read_bool(field_reading *reading, const ddp_yaml_node *node, bool *value)
{
    static const char *const yes[] = {"yes", "on", "y", "true", "1"}, *const no[] = {"no", "off", "n",
                                                                                     "false", "0"};
    const char *text = node->kind == DDP_YAML_SCALAR ? node->text : "";
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        *value = *text == 't';
        return true;
    }
    ddp_error *error = field_not_allowed(reading, node);
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0)
            error = ddp_error_help(error, "write %s", strcasecmp(text, yes[i]) == 0 ? "true" : "false");
    field_fail(reading, node, error);
    return false;
}

bool field_read_choice(field_reading *reading, const ddp_yaml_node *node, int *value)
{
    const char *const *choices = reading->field->choices;
    size_t count = 0;
    for (; choices[count] != NULL; count++) {
        if (node->kind != DDP_YAML_SCALAR || strcmp(node->text, choices[count]) != 0)
            continue;
        *value = (int)count;
        return true;
    }
    ddp_error *error = field_not_allowed(reading, node);
    const char *nearest = node->kind == DDP_YAML_SCALAR ? ddp_text_nearest(node->text, choices, count) : NULL;
    if (nearest != NULL)
        error = ddp_error_help(error, "did you mean \"%s\"?", nearest);
    field_fail(reading, node, error);
    return false;
}

bool field_read_text(field_reading *reading, const ddp_yaml_node *node, char **value)
{
    ddp_error *error = node->kind == DDP_YAML_SCALAR ? NULL : field_not_allowed(reading, node);
    if (error == NULL)
        error = ddp_memory_text(node->text, value);
    if (error != NULL)
        field_fail(reading, node, error);
    return error == NULL;
}
