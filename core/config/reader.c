/* From libyaml's events to the tree.
 *
 * Note [What keeps hostile documents cheap]: libyaml has no bounds of its own, and its cost for nested
 * brackets grows with the square of the depth (52 s for 200 kB of `[`). It works only when asked for the next
 * event, though, and looks ahead at most 1,024 bytes to find out whether something is a key. So it is asked
 * for nothing more once a bound is passed, and no document costs more than DDP_YAML_MAX_NODES events. Two
 * things happen inside one event and are looked at before: size, and directives (each %TAG is compared with
 * all before it). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "core/config/yaml_parts.h"
#include "core/memory.h"

#define STANDARD_TAG "tag:yaml.org,2002:"

typedef struct anchor {
    char *name;
    ddp_yaml_node *target; /* NULL while it is still being read */
} anchor;

typedef struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    ddp_yaml *yaml;
    ddp_problems *problems;
    anchor anchors[DDP_YAML_MAX_ANCHORS];
    size_t anchor_count;
    size_t weight;                   /* values so far, aliases expanded */
    size_t cursor_char, cursor_byte; /* libyaml counts characters, we count bytes */
} reader;

static size_t shown_at(reader *reader, yaml_mark_t mark)
{
    const ddp_yaml *yaml = reader->yaml;
    if (mark.index < reader->cursor_char)
        reader->cursor_char = reader->cursor_byte = 0;
    while (reader->cursor_char < mark.index && reader->cursor_byte < yaml->count) {
        reader->cursor_byte++;
        while (((unsigned char)yaml->bytes[reader->cursor_byte] & 0xC0) == 0x80)
            reader->cursor_byte++;
        reader->cursor_char++;
    }
    ptrdiff_t shown = (ptrdiff_t)reader->cursor_byte + yaml->shift;
    return shown > 0 ? (size_t)shown : 0;
}

static ddp_error *refuse(reader *reader, const char *what, const char *help)
{
    size_t from = shown_at(reader, reader->event.start_mark), to = shown_at(reader, reader->event.end_mark);
    ddp_error *error = ddp_error_at(DDP_ERR_INPUT, yaml_place(reader->yaml, from, to - from), "%s", what);
    return help ? ddp_error_help(error, "%s", help) : error;
}

/* What libyaml has to say, at the place it says. */
static ddp_error *syntax_error(reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    if (parser->error == YAML_MEMORY_ERROR)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    const char *problem = parser->problem ? parser->problem : "cannot be read";
    int begun =
        parser->context ? yaml_place(reader->yaml, shown_at(reader, parser->context_mark), 0).line : 0;
    size_t offset = shown_at(reader, parser->problem_mark);
    ddp_place place = yaml_place(reader->yaml, offset, 1);
    ddp_error *error = begun > 0 && begun != place.line
                           ? ddp_error_at(DDP_ERR_INPUT, place, "not YAML: %s, %s that begins on line %d",
                                          problem, parser->context, begun)
                           : ddp_error_at(DDP_ERR_INPUT, place, "not YAML: %s", problem);
    if (reader->yaml->shown[offset] == '\t')
        return ddp_error_help(error, "this is a tab: YAML is indented with spaces");
    if (reader->yaml->lines == NULL)
        return ddp_error_help(error, "values are YAML: quote one that has special characters");
    return error;
}

static ddp_error *next_event(reader *reader)
{
    yaml_event_delete(&reader->event);
    if (!yaml_parser_parse(&reader->parser, &reader->event))
        return syntax_error(reader);
    return NULL;
}

static ddp_error *count_weight(reader *reader, size_t weight)
{
    reader->weight += weight;
    if (reader->weight <= DDP_YAML_MAX_NODES)
        return NULL;
    return refuse(reader, "more than 20000 values, those that aliases repeat included", NULL);
}

static ddp_error *check_tag(reader *reader, const yaml_char_t *tag)
{
    if (tag == NULL || ddp_text_starts((const char *)tag, STANDARD_TAG))
        return NULL;
    return refuse(reader, "tags are not read", "leave the tag out: types come from the key");
}

/* *slot is where the finished node is to be noted, -1 = it has no anchor. */
static ddp_error *add_anchor(reader *reader, const yaml_char_t *name, int *slot)
{
    *slot = -1;
    if (name == NULL)
        return NULL;
    if (reader->anchor_count == DDP_YAML_MAX_ANCHORS)
        return refuse(reader, "more than 100 anchors", NULL);
    DDP_TRY(ddp_memory_text((const char *)name, &reader->anchors[reader->anchor_count].name));
    *slot = (int)reader->anchor_count++;
    return NULL;
}

static ddp_error *read_alias(reader *reader, int depth, ddp_yaml_node **node)
{
    const char *name = (const char *)reader->event.data.alias.anchor;
    char what[256];
    for (size_t i = reader->anchor_count; i-- > 0;) {
        ddp_yaml_node *target = reader->anchors[i].target;
        if (strcmp(reader->anchors[i].name, name) != 0)
            continue;
        if (target == NULL) {
            snprintf(what, sizeof what, "alias *%.64s stands inside what it repeats", name);
            return refuse(reader, what, NULL);
        }
        if (depth + target->height > DDP_YAML_MAX_DEPTH)
            return refuse(reader, "more than 32 levels deep", NULL);
        *node = target;
        return count_weight(reader, target->weight);
    }
    snprintf(what, sizeof what, "alias *%.64s: there is no anchor &%.64s before it", name, name);
    return refuse(reader, what, NULL);
}

static ddp_error *read_scalar(reader *reader, ddp_yaml_node **node)
{
    const yaml_event_t *event = &reader->event;
    size_t from = shown_at(reader, event->start_mark), to = shown_at(reader, event->end_mark);
    const char *value = (const char *)event->data.scalar.value;
    int slot;
    if (strlen(value) != event->data.scalar.length)
        return refuse(reader, "a text cannot hold a NUL character (\"\\0\")", NULL);
    DDP_TRY(check_tag(reader, event->data.scalar.tag));
    DDP_TRY(add_anchor(reader, event->data.scalar.anchor, &slot));
    DDP_TRY(count_weight(reader, 1));
    DDP_TRY(yaml_add_node(reader->yaml, DDP_YAML_SCALAR, from, to - from, node));
    (*node)->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (slot >= 0)
        reader->anchors[slot].target = *node;
    return ddp_memory_text(value, &(*node)->text);
}

static ddp_error *read_node(reader *reader, int depth, ddp_yaml_node **node);

static ddp_error *add_item(ddp_yaml_node *parent, size_t *capacity, ddp_yaml_node *item)
{
    void *items = parent->items;
    ddp_error *error = ddp_memory_grow(&items, capacity, parent->count + 1, sizeof(ddp_yaml_node *));
    parent->items = items;
    if (error != NULL)
        return error;
    parent->items[parent->count++] = item;
    parent->weight += item->weight;
    if (item->height >= parent->height)
        parent->height = item->height + 1;
    return NULL;
}

static ddp_error *check_key(reader *reader)
{
    const yaml_event_t *event = &reader->event;
    if (event->type != YAML_SCALAR_EVENT)
        return refuse(reader, "a key must be one word", NULL);
    if (event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
        strcmp((char *)event->data.scalar.value, "<<") == 0)
        return refuse(reader, "merge keys (<<) are not read", "write the keys out where they belong");
    return NULL;
}

static int compare_keys(const void *a, const void *b)
{
    const ddp_yaml_node *const *x = a, *const *y = b;
    int order = strcmp((*x)->text, (*y)->text);
    return order != 0 ? order : (*x)->offset < (*y)->offset ? -1 : (*x)->offset > (*y)->offset;
}

static void report_duplicate(reader *reader, const ddp_yaml_node *first, const ddp_yaml_node *key)
{
    char what[80];
    int line = ddp_yaml_place(first).line;
    ddp_yaml_describe(key, what, sizeof what);
    ddp_error *error = ddp_error_make(DDP_ERR_INPUT, "duplicate key %s", what);
    if (line > 0) {
        ddp_error_free(error);
        error = ddp_error_make(DDP_ERR_INPUT, "duplicate key %s: it is on line %d already", what, line);
    }
    ddp_yaml_problem(reader->problems, key, error);
}

/* Reports the second and later ones of equal keys and leaves them out. */
static ddp_error *drop_duplicates(reader *reader, ddp_yaml_node *map)
{
    size_t pairs = map->count / 2, kept = 0;
    void *memory = NULL;
    DDP_TRY(ddp_memory_make(pairs, sizeof(ddp_yaml_node *), &memory));
    ddp_yaml_node **keys = memory;
    for (size_t i = 0; i < pairs; i++)
        keys[i] = map->items[2 * i];
    qsort(keys, pairs, sizeof *keys, compare_keys);
    for (size_t i = 1, first = 0; i < pairs; i++) {
        if (strcmp(keys[i]->text, keys[first]->text) != 0) {
            first = i;
            continue;
        }
        report_duplicate(reader, keys[first], keys[i]);
        for (size_t j = 0; j < map->count; j += 2)
            if (map->items[j] == keys[i])
                map->items[j] = NULL;
    }
    for (size_t i = 0; i < map->count; i += 2) {
        if (map->items[i] == NULL)
            continue;
        map->items[kept] = map->items[i];
        map->items[kept + 1] = map->items[i + 1];
        kept += 2;
    }
    map->count = kept;
    free(keys);
    return NULL;
}

/* The current event begins the list or map; afterwards it is the one that ends it. */
static ddp_error *read_items(reader *reader, int depth, yaml_event_type_t end, ddp_yaml_node *parent)
{
    size_t capacity = 0;
    for (;;) {
        ddp_yaml_node *item = NULL;
        bool is_key = parent->kind == DDP_YAML_MAP && parent->count % 2 == 0;
        DDP_TRY(next_event(reader));
        if (reader->event.type == end)
            break;
        if (is_key)
            DDP_TRY(check_key(reader));
        DDP_TRY(read_node(reader, depth + 1, &item));
        DDP_TRY(add_item(parent, &capacity, item));
    }
    return parent->kind == DDP_YAML_MAP && parent->count > 2 ? drop_duplicates(reader, parent) : NULL;
}

static ddp_error *read_container(reader *reader, int depth, ddp_yaml_node **node)
{
    bool is_map = reader->event.type == YAML_MAPPING_START_EVENT;
    const yaml_event_t *event = &reader->event;
    int slot;
    if (depth >= DDP_YAML_MAX_DEPTH)
        return refuse(reader, "more than 32 levels deep", NULL);
    DDP_TRY(check_tag(reader, is_map ? event->data.mapping_start.tag : event->data.sequence_start.tag));
    DDP_TRY(add_anchor(reader, is_map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor,
                       &slot));
    DDP_TRY(count_weight(reader, 1));
    size_t from = shown_at(reader, event->start_mark);
    DDP_TRY(yaml_add_node(reader->yaml, is_map ? DDP_YAML_MAP : DDP_YAML_LIST, from, 1, node));
    DDP_TRY(read_items(reader, depth, is_map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT, *node));
    size_t to = shown_at(reader, reader->event.end_mark);
    if (reader->event.end_mark.index > reader->event.start_mark.index) /* in brackets, not by indentation */
        (*node)->length = to - from;
    if (slot >= 0)
        reader->anchors[slot].target = *node;
    return NULL;
}

static ddp_error *read_node(reader *reader, int depth, ddp_yaml_node **node)
{
    switch (reader->event.type) {
    case YAML_ALIAS_EVENT:
        return read_alias(reader, depth, node);
    case YAML_SCALAR_EVENT:
        return read_scalar(reader, node);
    default:
        return read_container(reader, depth, node);
    }
}

static ddp_error *read_document(reader *reader)
{
    DDP_TRY(next_event(reader)); /* stream start */
    DDP_TRY(next_event(reader));
    if (reader->event.type == YAML_STREAM_END_EVENT)
        return ddp_error_at(DDP_ERR_INPUT, (ddp_place){.file = reader->yaml->name}, "there is nothing in it");
    DDP_TRY(next_event(reader));
    DDP_TRY(read_node(reader, 0, &reader->yaml->root));
    DDP_TRY(next_event(reader)); /* document end */
    DDP_TRY(next_event(reader));
    if (reader->event.type != YAML_STREAM_END_EVENT)
        return refuse(reader, "a second document begins here; a job file holds one", NULL);
    return NULL;
}

static ddp_error *check_directives(const ddp_yaml *yaml)
{
    for (size_t i = 0; i < yaml->line_count; i++) {
        const char *line = yaml->shown + yaml->lines[i];
        if (*line != '%' && *line != '#' && *line != '\0')
            return NULL;
        if (*line == '%' && !ddp_text_starts(line, "%YAML "))
            return ddp_error_at(DDP_ERR_INPUT, yaml_place(yaml, yaml->lines[i], strlen(line)),
                                "directives are not read");
    }
    return NULL;
}

ddp_error *yaml_read(ddp_yaml *yaml, ddp_problems *problems)
{
    reader *reader = NULL;
    DDP_TRY(check_directives(yaml));
    DDP_TRY(DDP_NEW(&reader));
    reader->yaml = yaml;
    reader->problems = problems;
    ddp_error *error = NULL;
    if (!yaml_parser_initialize(&reader->parser)) {
        error = ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    } else {
        yaml_parser_set_encoding(&reader->parser, YAML_UTF8_ENCODING);
        yaml_parser_set_input_string(&reader->parser, (const unsigned char *)yaml->bytes, yaml->count);
        error = read_document(reader);
        yaml_event_delete(&reader->event);
        yaml_parser_delete(&reader->parser);
    }
    for (size_t i = 0; i < reader->anchor_count; i++)
        free(reader->anchors[i].name);
    free(reader);
    return error;
}
