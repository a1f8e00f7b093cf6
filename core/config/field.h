/* What can be done with a row of a settings table: read a value into its member, write it back, say in words
 * what is allowed, put it into a JSON schema. Which rows there are is the owner's business. */
#ifndef DDP_CORE_FIELD_H
#define DDP_CORE_FIELD_H

#include <ddp/error.h>
#include <ddp/field.h>

#include "core/config/problems.h"
#include "core/config/yaml.h"
#include "core/json.h"
#include "core/text.h"

/* Reads a node into the member of `base`. What is wrong is added to `problems`, with the node's place and
 * `key`, the whole dotted name; the member then stays as it was. */
void ddp_field_read(const ddp_field *field, const char *key, const ddp_yaml_node *node, void *base,
                    ddp_problems *problems);

/* Sets the member to its written default (nothing for a required one). INTERNAL: the row's default is wrong.
 */
DDP_USE_RESULT ddp_error *ddp_field_set_default(const ddp_field *field, void *base);

/* PAIRS: sets one name, replacing its value if it is there. */
void ddp_field_set_pair(const ddp_field *field, const char *key, const char *name, const ddp_yaml_node *node,
                        void *base, ddp_problems *problems);

/* Frees what the members of a whole table own. */
void ddp_field_free(const ddp_field *fields, void *base);

/* Whether an optional member holds nothing, so that there is nothing to write. */
bool ddp_field_is_absent(const ddp_field *field, const void *base);

/* The value as YAML on one line; reads back to the same value. */
void ddp_field_write(const ddp_field *field, const void *base, ddp_text *out);

/* "a whole number from 1 to 65536, or auto"; "fp32, bf16 or fp16"; for messages. */
void ddp_field_write_allowed(const ddp_field *field, ddp_text *out);

/* "whole number", "list of numbers"; and "1 to 65536, auto" or "fp32 | bf16"; for tables. */
const char *ddp_field_type_name(const ddp_field *field);
void ddp_field_write_range(const ddp_field *field, ddp_text *out);

/* The row as a property of a JSON schema, with description and default. */
void ddp_field_write_schema(const ddp_field *field, ddp_json *json);

#endif
