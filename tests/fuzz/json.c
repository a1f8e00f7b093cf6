/* A JSON document of any bytes is read or refused; what was read can be written, read again, and is the same.
 */
#include <string.h>

#include "core/json.h"
#include "fuzz.h"

static void write_value(ddp_json *json, const char *key, const ddp_json_value *value)
{
    switch (value->kind) {
    case DDP_JSON_NULL:
        ddp_json_null(json, key);
        break;
    case DDP_JSON_BOOL:
        ddp_json_bool(json, key, value->integer != 0);
        break;
    case DDP_JSON_INT:
        ddp_json_int(json, key, value->integer);
        break;
    case DDP_JSON_FLOAT:
        ddp_json_float(json, key, value->number);
        break;
    case DDP_JSON_TEXT:
        ddp_json_text(json, key, value->text);
        break;
    case DDP_JSON_ARRAY:
    case DDP_JSON_OBJECT:
        value->kind == DDP_JSON_ARRAY ? ddp_json_open_array(json, key) : ddp_json_open_object(json, key);
        for (const ddp_json_value *member = value->first; member != NULL; member = member->next)
            write_value(json, member->key, member);
        value->kind == DDP_JSON_ARRAY ? ddp_json_close_array(json) : ddp_json_close_object(json);
        break;
    }
}

/* Keys are found, and found to be repeated or not. */
static void look_up(const ddp_json_value *value)
{
    const char *repeated;
    if (value->kind == DDP_JSON_OBJECT) {
        fuzz_drop(ddp_json_find_repeated(value, &repeated));
        for (const ddp_json_value *member = value->first; member != NULL; member = member->next)
            ddp_assert(repeated != NULL || ddp_json_get(value, member->key) == member);
    }
    for (const ddp_json_value *member = value->first; member != NULL; member = member->next)
        look_up(member);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ddp_json_document document = {0}, again = {0};
    ddp_text written = {0}, written_again = {0};
    ddp_error *error = ddp_json_read("input", (const char *)data, bytes, &document);
    if (error == NULL) {
        look_up(document.root);
        write_value(&(ddp_json){.text = &written}, NULL, document.root);
        error = ddp_json_read("written", ddp_text_get(&written), written.length, &again);
        if (error != NULL)
            ddp_error_print(error, "error", stderr);
        ddp_assert(error == NULL);
        write_value(&(ddp_json){.text = &written_again}, NULL, again.root);
        ddp_assert(strcmp(ddp_text_get(&written), ddp_text_get(&written_again)) == 0);
    }
    fuzz_drop(error);
    ddp_json_free(&document);
    ddp_json_free(&again);
    ddp_text_free(&written);
    ddp_text_free(&written_again);
    return 0;
}
