/* Writing JSON. */
#include "core/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void add_quoted(ddp_text *text, const char *value)
{
    ddp_text_add_bytes(text, "\"", 1);
    for (const unsigned char *at = (const unsigned char *)value; *at != '\0';) {
        int length = ddp_text_utf8_length((const char *)at);
        if (*at == '"' || *at == '\\')
            ddp_text_add(text, "\\%c", *at);
        else if (*at == '\n')
            ddp_text_add_bytes(text, "\\n", 2);
        else if (*at < 0x20 || *at == 0x7F)
            ddp_text_add(text, "\\u%04x", *at);
        else if (length == 0)
            ddp_text_add_bytes(text, "\xEF\xBF\xBD", 3);
        else
            ddp_text_add_bytes(text, (const char *)at, (size_t)length);
        at += length > 0 ? length : 1;
    }
    ddp_text_add_bytes(text, "\"", 1);
}

static void begin(ddp_json *json, const char *key)
{
    if (json->comma)
        ddp_text_add_bytes(json->text, ", ", 2);
    json->comma = true;
    if (key != NULL) {
        add_quoted(json->text, key);
        ddp_text_add_bytes(json->text, ": ", 2);
    }
}

void ddp_json_open_object(ddp_json *json, const char *key)
{
    begin(json, key);
    ddp_text_add_bytes(json->text, "{", 1);
    json->comma = false;
}

void ddp_json_close_object(ddp_json *json)
{
    ddp_text_add_bytes(json->text, "}", 1);
    json->comma = true;
}

void ddp_json_open_array(ddp_json *json, const char *key)
{
    begin(json, key);
    ddp_text_add_bytes(json->text, "[", 1);
    json->comma = false;
}

void ddp_json_close_array(ddp_json *json)
{
    ddp_text_add_bytes(json->text, "]", 1);
    json->comma = true;
}

void ddp_json_text(ddp_json *json, const char *key, const char *value)
{
    if (value == NULL) {
        ddp_json_null(json, key);
        return;
    }
    begin(json, key);
    add_quoted(json->text, value);
}

void ddp_json_int(ddp_json *json, const char *key, int64_t value)
{
    begin(json, key);
    ddp_text_add(json->text, "%" PRId64, value);
}

void ddp_json_float(ddp_json *json, const char *key, double value)
{
    char buffer[32];
    if (!isfinite(value)) {
        ddp_json_null(json, key);
        return;
    }
    begin(json, key);
    ddp_text_add(json->text, "%s", ddp_text_from_float(value, buffer, sizeof buffer));
}

void ddp_json_bool(ddp_json *json, const char *key, bool value)
{
    begin(json, key);
    ddp_text_add(json->text, value ? "true" : "false");
}

void ddp_json_null(ddp_json *json, const char *key)
{
    begin(json, key);
    ddp_text_add_bytes(json->text, "null", 4);
}
