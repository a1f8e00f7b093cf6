/* The life of a tree of YAML nodes: where its bytes come from, its places, and writing texts back. */
#include "core/config/yaml.h"

#include <stdlib.h>
#include <string.h>

#include "core/config/yaml_parts.h"
#include "core/files.h"
#include "core/memory.h"

ddp_error *yaml_add_node(ddp_yaml *yaml, ddp_yaml_kind kind, size_t offset, size_t length,
                         ddp_yaml_node **node)
{
    ddp_yaml_node *made = NULL;
    DDP_TRY(DDP_NEW(&made));
    *made = (ddp_yaml_node){
        .kind = kind, .yaml = yaml, .offset = offset, .length = length, .weight = 1, .next = yaml->nodes};
    yaml->nodes = made;
    *node = made;
    return NULL;
}

void ddp_yaml_free(ddp_yaml *yaml)
{
    if (yaml == NULL)
        return;
    while (yaml->nodes != NULL) {
        ddp_yaml_node *node = yaml->nodes;
        yaml->nodes = node->next;
        free(node->text);
        free(node->items);
        free(node);
    }
    free(yaml->name);
    free(yaml->bytes);
    free(yaml->shown);
    free(yaml->lines);
    free(yaml);
}

static ddp_error *make_yaml(const char *name, size_t order, ddp_yaml **yaml)
{
    ddp_yaml *made = NULL;
    DDP_TRY(DDP_NEW(&made));
    made->order = order;
    ddp_error *error = ddp_memory_text(name, &made->name);
    if (error != NULL)
        ddp_yaml_free(made);
    else
        *yaml = made;
    return error;
}

/* Reads `bytes`, which are not needed any more afterwards. */
static ddp_error *finish(ddp_yaml *yaml, ddp_problems *problems)
{
    DDP_TRY(yaml_read(yaml, problems));
    free(yaml->bytes);
    yaml->bytes = NULL;
    return NULL;
}

/* The file's bytes without byte order mark, and a copy whose lines are C strings. */
static ddp_error *load_bytes(ddp_yaml *yaml)
{
    static const char mark[] = "\xEF\xBB\xBF";
    void *shown = NULL;
    DDP_TRY(ddp_file_load(yaml->name, DDP_YAML_MAX_BYTES, &yaml->bytes, &yaml->count));
    if (yaml->count >= 3 && memcmp(yaml->bytes, mark, 3) == 0) {
        yaml->count -= 3;
        memmove(yaml->bytes, yaml->bytes + 3, yaml->count + 1);
    }
    DDP_TRY(ddp_memory_make(yaml->count + 1, 1, &shown));
    yaml->shown = shown;
    memcpy(yaml->shown, yaml->bytes, yaml->count);
    for (size_t i = 0; i < yaml->count; i++)
        if (yaml->shown[i] == '\n' || yaml->shown[i] == '\r')
            yaml->shown[i] = '\0';
    return yaml_find_lines(yaml);
}

ddp_error *ddp_yaml_load(const char *path, size_t order, ddp_problems *problems, ddp_yaml **yaml)
{
    ddp_yaml *made = NULL;
    ddp_error *error = NULL;
    DDP_TRY(make_yaml(path, order, &made));
    DDP_GO(load_bytes(made));
    DDP_GO(yaml_check_bytes(made, made->bytes, made->count));
    DDP_GO(finish(made, problems));
    if (made->root->kind != DDP_YAML_MAP)
        DDP_GO(ddp_error_help(ddp_error_at(DDP_ERR_INPUT, ddp_yaml_place(made->root),
                                           "a job file is a map of sections (\"train:\"), not %s",
                                           made->root->kind == DDP_YAML_LIST ? "a list" : "a single value"),
                              "ddprun keys lists them"));
    *yaml = made;
    return NULL;
out:
    ddp_yaml_free(made);
    return error;
}

/* "--- VALUE": so that no value can look like a directive or a document end, which stand at a line's start.
 */
static ddp_error *fill_override(ddp_yaml *yaml, const char *text, size_t key_length)
{
    static const char start[] = "--- ";
    ddp_text bytes = {0};
    ddp_text_add(&bytes, "%s%s", start, text + key_length + 1);
    yaml->bytes = bytes.at;
    yaml->count = bytes.length;
    yaml->shift = (ptrdiff_t)key_length + 1 - (ptrdiff_t)strlen(start);
    DDP_TRY(ddp_memory_text(text, &yaml->shown));
    for (char *at = yaml->shown; *at != '\0'; at++)
        if (*at == '\n' || *at == '\r')
            *at = ' ';
    DDP_TRY(yaml_add_node(yaml, DDP_YAML_SCALAR, 0, key_length, &yaml->key));
    yaml->key->plain = true;
    yaml->key->text = strndup(text, key_length);
    return yaml->key->text && !bytes.failed ? NULL : ddp_error_make(DDP_ERR_MEMORY, "out of memory");
}

ddp_error *ddp_yaml_parse_override(const char *text, size_t order, ddp_problems *problems, ddp_yaml **yaml)
{
    ddp_yaml *made = NULL;
    ddp_error *error = NULL;
    const char *equals = strchr(text, '=');
    size_t key_length = equals ? (size_t)(equals - text) : 0, length = strlen(text);
    DDP_TRY(make_yaml("command line", order, &made));
    DDP_GO(yaml_check_bytes(made, text, length));
    if (key_length == 0)
        DDP_GO(ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "\"%.64s\" is no override", text),
                              "overrides look like train.steps=20"));
    if (length > DDP_YAML_MAX_BYTES)
        DDP_GO(ddp_error_make(DDP_ERR_INPUT, "\"%.32s...\" has %zu bytes; at most %u are read", text, length,
                              DDP_YAML_MAX_BYTES));
    DDP_GO(fill_override(made, text, key_length));
    DDP_GO(finish(made, problems));
    *yaml = made;
    return NULL;
out:
    ddp_yaml_free(made);
    return error;
}

const ddp_yaml_node *ddp_yaml_root(const ddp_yaml *yaml)
{
    return yaml->root;
}

const ddp_yaml_node *ddp_yaml_key(const ddp_yaml *yaml)
{
    return yaml->key;
}

ddp_place ddp_yaml_place(const ddp_yaml_node *node)
{
    return yaml_place(node->yaml, node->offset, node->length);
}

void ddp_yaml_problem(ddp_problems *problems, const ddp_yaml_node *node, ddp_error *error)
{
    ddp_problems_add(problems, ddp_error_locate(error, ddp_yaml_place(node)), node->yaml->order,
                     node->offset);
}

bool ddp_yaml_is_null(const ddp_yaml_node *node)
{
    return node->kind == DDP_YAML_SCALAR && node->plain &&
           (*node->text == '\0' || strcmp(node->text, "~") == 0 || strcmp(node->text, "null") == 0);
}

const char *ddp_yaml_describe(const ddp_yaml_node *node, char *buffer, size_t bytes)
{
    enum { SHOWN = 48 };
    if (node->kind != DDP_YAML_SCALAR) {
        snprintf(buffer, bytes, node->kind == DDP_YAML_LIST ? "a list" : "a map");
        return buffer;
    }
    size_t length = 0, total = strlen(node->text);
    unsigned code;
    while (length < total) {
        size_t step = yaml_decode(node->text + length, node->text + total, &code);
        if (step == 0 || length + step > SHOWN || code < ' ')
            break;
        length += step;
    }
    snprintf(buffer, bytes, "\"%.*s%s\"", (int)length, node->text, length < total ? "..." : "");
    return buffer;
}

/* Safe without quotes for every YAML reader, and no word or number in any YAML version. */
static bool is_plain(const char *text)
{
    static const char *const words[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/.-+ ";
    size_t length = strlen(text);
    bool is_path = ddp_text_starts(text, "./") || ddp_text_starts(text, "../");
    if (length == 0 || strspn(text, safe) != length || text[length - 1] == ' ')
        return false;
    if (!is_path && strchr("0123456789.-+ ", *text) != NULL)
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasecmp(text, words[i]) == 0)
            return false;
    return true;
}

void ddp_yaml_write_text(ddp_text *out, const char *text)
{
    const char *end = text + strlen(text);
    if (is_plain(text)) {
        ddp_text_add_bytes(out, text, (size_t)(end - text));
        return;
    }
    ddp_text_add_bytes(out, "\"", 1);
    while (text < end) {
        unsigned code = 0;
        size_t length = yaml_decode(text, end, &code);
        bool is_break = code == 0x85 || code == 0x2028 || code == 0x2029;
        if (length == 0)
            ddp_text_add(out, "\xEF\xBF\xBD");
        else if (code == '"' || code == '\\')
            ddp_text_add(out, "\\%c", (char)code);
        else if (code == '\n' || code == '\t')
            ddp_text_add(out, code == '\n' ? "\\n" : "\\t");
        else if (code < ' ' || !yaml_is_printable(code) || is_break)
            ddp_text_add(out, code < 0x100 ? "\\x%02X" : "\\u%04X", code);
        else
            ddp_text_add_bytes(out, text, length);
        text += length ? length : 1;
    }
    ddp_text_add_bytes(out, "\"", 1);
}
