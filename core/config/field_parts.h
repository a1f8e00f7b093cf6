/* One value being read, shared by scalar.c (single values) and field.c (lists, maps, members). */
#ifndef DDP_CORE_FIELD_PARTS_H
#define DDP_CORE_FIELD_PARTS_H

#include "core/config/field.h"

/* Everything an error needs. */
typedef struct field_reading {
    const ddp_field *field;
    const char *key;
    ddp_problems *problems;
    bool failed;
} field_reading;

/* Adds an error at the node (NULL: none more) and marks the reading as failed. */
void field_fail(field_reading *reading, const ddp_yaml_node *node, ddp_error *error);

/* KEY: "TEXT" is not ALLOWED. */
DDP_USE_RESULT ddp_error *field_not_allowed(const field_reading *reading, const ddp_yaml_node *node);

/* Each sets *value and returns true, or fails the reading. */
bool field_read_int(field_reading *reading, const ddp_yaml_node *node, int64_t *value);
bool field_read_float(field_reading *reading, const ddp_yaml_node *node, double *value);
bool field_read_bool(field_reading *reading, const ddp_yaml_node *node, bool *value);
bool field_read_choice(field_reading *reading, const ddp_yaml_node *node, int *value);
bool field_read_text(field_reading *reading, const ddp_yaml_node *node, char **value);

#endif
