/* Writing JSON, one value after another, into a ddp_text; and reading small documents. */
#ifndef DDP_CORE_JSON_H
#define DDP_CORE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "core/text.h"

/* A writer keeps track of commas. Zero it, set `text`. */
typedef struct ddp_json {
    ddp_text *text;
    bool comma;
} ddp_json;

/* key NULL inside arrays and at the top. Names and texts are escaped; invalid UTF-8 becomes U+FFFD. */
void ddp_json_open_object(ddp_json *json, const char *key);
void ddp_json_close_object(ddp_json *json);
void ddp_json_open_array(ddp_json *json, const char *key);
void ddp_json_close_array(ddp_json *json);
void ddp_json_text(ddp_json *json, const char *key, const char *value); /* NULL value = null */
void ddp_json_int(ddp_json *json, const char *key, int64_t value);
void ddp_json_float(ddp_json *json, const char *key, double value); /* not finite = null */
void ddp_json_bool(ddp_json *json, const char *key, bool value);
void ddp_json_null(ddp_json *json, const char *key);

#endif
