/* The inside of a tree, shared by yaml.c (its life), reader.c (libyaml) and source.c (bytes and places). */
#ifndef DDP_CORE_YAML_PARTS_H
#define DDP_CORE_YAML_PARTS_H

#include "core/config/yaml.h"

struct ddp_yaml {
    char *name; /* path, or "command line" */
    size_t order;
    char *bytes; /* what libyaml reads, NUL behind it; freed afterwards */
    size_t count;
    char *shown;     /* what a person sees: the file with each line end a NUL; the whole "KEY=VALUE" */
    ptrdiff_t shift; /* byte p of `bytes` is shown byte p + shift */
    size_t *lines;   /* file: offset of the first byte of each line; NULL for an override */
    size_t line_count;
    ddp_yaml_node *nodes; /* all, newest first */
    ddp_yaml_node *root, *key;
};

/* Refuses what is not text: UTF-16, NUL, control characters, bad UTF-8; with line, column and byte offset.
 * bytes: of what is shown. */
DDP_USE_RESULT ddp_error *yaml_check_bytes(const ddp_yaml *yaml, const char *bytes, size_t count);

/* Fills `lines` from `bytes`. */
DDP_USE_RESULT ddp_error *yaml_find_lines(ddp_yaml *yaml);

/* Fills `root` from `bytes` by libyaml. */
DDP_USE_RESULT ddp_error *yaml_read(ddp_yaml *yaml, ddp_problems *problems);

/* A node of weight 1, owned by the tree. */
DDP_USE_RESULT ddp_error *yaml_add_node(ddp_yaml *yaml, ddp_yaml_kind kind, size_t offset, size_t length,
                                        ddp_yaml_node **node);

/* A span of shown bytes as a place. */
ddp_place yaml_place(const ddp_yaml *yaml, size_t offset, size_t length);

/* Length of the valid UTF-8 sequence at `at` (bytes up to `end`) and its code point; 0 = not valid. */
size_t yaml_decode(const char *at, const char *end, unsigned *code);

/* Whether YAML allows this character in a text. */
bool yaml_is_printable(unsigned code);

#endif
