/* YAML as a tree that remembers where everything was written.
 *
 * What is read: one document in UTF-8 (one byte order mark is skipped, CRLF is fine), with anchors and
 * aliases resolved, standard tags (!!int) ignored: types come from the key, not from the look of a value.
 * What is refused, each with its place: more than 1 MiB, more than 32 levels, more than 20,000 values (those
 * that aliases repeat included), duplicate keys, merge keys (<<), tags of one's own, a second document.
 *
 * Threads: a tree belongs to one thread while it is made; afterwards nobody changes it. */
#ifndef DDP_CORE_YAML_H
#define DDP_CORE_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include <ddp/error.h>

#include "core/config/problems.h"
#include "core/text.h"

#define DDP_YAML_MAX_BYTES (1u << 20)
#define DDP_YAML_MAX_DEPTH 32
#define DDP_YAML_MAX_NODES 20000
#define DDP_YAML_MAX_ANCHORS 100

typedef struct ddp_yaml ddp_yaml;
typedef struct ddp_yaml_node ddp_yaml_node;

typedef enum ddp_yaml_kind { DDP_YAML_SCALAR, DDP_YAML_LIST, DDP_YAML_MAP } ddp_yaml_kind;

struct ddp_yaml_node {
    ddp_yaml_kind kind;
    bool plain;            /* scalar without quotes */
    char *text;            /* of a scalar, as it reads ("" when empty) */
    ddp_yaml_node **items; /* LIST: values; MAP: key, value, key, value, ... (duplicate keys left out) */
    size_t count;          /* of items */
    const ddp_yaml *yaml;  /* the text it stands in */
    size_t offset, length; /* bytes of that text */
    size_t weight;         /* values in it, itself included, aliases expanded */
    int height;            /* levels below it */
    ddp_yaml_node *next;   /* of the tree's nodes, for freeing */
};

/* Reads a file. `order` sorts its problems among those of other texts. Duplicate keys are added to
 * `problems` (the first one counts); everything else ends the reading.
 * Errors (INPUT): unreadable, not a regular file, too large, not UTF-8 text (with byte offset), not YAML, a
 * bound passed, not a map at the top, empty. */
DDP_USE_RESULT ddp_error *ddp_yaml_load(const char *path, size_t order, ddp_problems *problems,
                                        ddp_yaml **yaml);

/* Reads an override "KEY=VALUE": VALUE is YAML, any kind of node. Errors as above, and no `=` or no key. */
DDP_USE_RESULT ddp_error *ddp_yaml_parse_override(const char *text, size_t order, ddp_problems *problems,
                                                  ddp_yaml **yaml);

void ddp_yaml_free(ddp_yaml *yaml); /* NULL is fine */

const ddp_yaml_node *ddp_yaml_root(const ddp_yaml *yaml);
const ddp_yaml_node *ddp_yaml_key(const ddp_yaml *yaml); /* KEY of an override; NULL for a file */

/* Where a node was written; strings are borrowed from the tree. */
ddp_place ddp_yaml_place(const ddp_yaml_node *node);

/* Adds an error at a node: ddp_yaml_problem(problems, node, ddp_error_make(...)). */
void ddp_yaml_problem(ddp_problems *problems, const ddp_yaml_node *node, ddp_error *error);

/* Whether a node says "nothing": plain and empty, `~` or `null`. */
bool ddp_yaml_is_null(const ddp_yaml_node *node);

/* "a list", "a map", "\"text\"" (shortened), for messages. buffer of at least 80 bytes, returned. */
const char *ddp_yaml_describe(const ddp_yaml_node *node, char *buffer, size_t bytes);

/* Writes a text as a YAML scalar on one line, quoted where any reader would take the plain form for
 * something else. Valid UTF-8 reads back exactly. */
void ddp_yaml_write_text(ddp_text *out, const char *text);

#endif
