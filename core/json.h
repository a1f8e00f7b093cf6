/* Writing JSON, one value after another, into a ddp_text; and reading small documents. */
#ifndef DDP_CORE_JSON_H
#define DDP_CORE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include <ddp/error.h>

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

/* Reading (RFC 8259, strict): a document is a tree of values that lives as long as the document. */
typedef enum ddp_json_kind {
    DDP_JSON_NULL,
    DDP_JSON_BOOL,
    DDP_JSON_INT, /* a number without fraction and exponent that fits int64_t */
    DDP_JSON_FLOAT,
    DDP_JSON_TEXT,
    DDP_JSON_ARRAY,
    DDP_JSON_OBJECT
} ddp_json_kind;

typedef struct ddp_json_value {
    ddp_json_kind kind;
    const char *key;                           /* of an object's member, NUL-terminated; otherwise NULL */
    const char *text;                          /* TEXT: UTF-8, escapes resolved, NUL-terminated */
    int64_t integer;                           /* INT; BOOL: 0 or 1; ARRAY and OBJECT: how many members */
    double number;                             /* INT and FLOAT */
    const struct ddp_json_value *first, *next; /* first member; next in the same array or object */
} ddp_json_value;

typedef struct ddp_json_document {
    ddp_json_value *root;
    struct ddp_json_block *blocks; /* memory of the values */
    char *bytes;
} ddp_json_document;

#define DDP_JSON_DEPTH 64

/* Reads one document of `bytes` bytes; `name` is the file's, for errors. The bytes are copied. Errors (INPUT,
 * at name:line:column): not JSON, deeper than DDP_JSON_DEPTH, a NUL inside a text, invalid UTF-8, anything
 * behind the document. MEMORY. Keys that occur twice are not looked for: see ddp_json_find_repeated. */
DDP_USE_RESULT ddp_error *ddp_json_read(const char *name, const char *data, size_t bytes,
                                        ddp_json_document *document);
void ddp_json_free(ddp_json_document *document); /* a zeroed one is fine */

/* The member of an object, NULL when there is none or `object` is no object (NULL is fine). The first one
 * where the key occurs twice. */
const ddp_json_value *ddp_json_get(const ddp_json_value *object, const char *key);

/* A key that an object has twice, in NULL when there is none. MEMORY. */
DDP_USE_RESULT ddp_error *ddp_json_find_repeated(const ddp_json_value *object, const char **key);

#endif
