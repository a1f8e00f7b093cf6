/* Reading JSON: recursive descent over a copy of the document, texts unescaped in place. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/memory.h"

#define BLOCK_VALUES 512
#define NUMBER_BYTES 512 /* longer ones are refused: no double needs them */

struct ddp_json_block {
    struct ddp_json_block *next;
    size_t used;
    ddp_json_value values[BLOCK_VALUES];
};

typedef struct reader {
    const char *name;
    const char *source; /* as given: the copy changes under its escapes */
    char *start, *at;   /* the copy; ends with a NUL */
    const char *end;
    ddp_json_document *document;
    int depth;
} reader;

static ddp_error *read_value(reader *in, ddp_json_value *value);

static ddp_error *refuse(const reader *in, const char *at, const char *what)
{
    int line = 1;
    const char *begin = in->source;
    at = in->source + (at - in->start);
    for (const char *p = in->source; p < at; p++)
        if (*p == '\n') {
            line++;
            begin = p + 1;
        }
    ddp_place place = {.file = in->name, .line = line, .column = (int)(at - begin) + 1};
    return ddp_error_at(DDP_ERR_INPUT, place, "not JSON: %s", what);
}

static ddp_error *make_value(reader *in, ddp_json_value **value)
{
    struct ddp_json_block *block = in->document->blocks;
    if (block == NULL || block->used == BLOCK_VALUES) {
        struct ddp_json_block *made;
        DDP_TRY(DDP_NEW(&made));
        made->next = block;
        in->document->blocks = block = made;
    }
    *value = &block->values[block->used++];
    return NULL;
}

static void skip_space(reader *in)
{
    in->at += strspn(in->at, " \t\r\n");
}

static int hex_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Four hex digits at `at`, -1 if they are none. */
static int32_t read_unit(const char *at)
{
    int32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_of(at[i]);
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

static char *put_character(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char heads[] = {0, 0xC0, 0xE0, 0xF0};
    *to++ = (char)(heads[more] | c >> (6 * more));
    while (more-- > 0)
        *to++ = (char)(0x80 | (c >> (6 * more) & 0x3F));
    return to;
}

/* "\uXXXX", with its second half where the first is a high surrogate. `at` is behind the u. */
static ddp_error *read_escape(reader *in, char **to)
{
    int32_t unit = read_unit(in->at);
    uint32_t c = (uint32_t)unit;
    if (unit <= 0)
        return refuse(in, in->at,
                      unit == 0 ? "a NUL character in a text" : "four hex digits belong behind \\u");
    in->at += 4;
    if (unit >= 0xD800 && unit < 0xDC00) {
        int32_t low = in->at[0] == '\\' && in->at[1] == 'u' ? read_unit(in->at + 2) : -1;
        if (low < 0xDC00 || low > 0xDFFF)
            return refuse(in, in->at, "half of a surrogate pair");
        c = 0x10000 + (((uint32_t)unit - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
        in->at += 6;
    } else if (unit >= 0xDC00 && unit < 0xE000) {
        return refuse(in, in->at, "half of a surrogate pair");
    }
    *to = put_character(*to, c);
    return NULL;
}

/* A text, unescaped over itself: it never grows. `at` is on the opening quote. */
static ddp_error *read_text(reader *in, const char **text)
{
    static const char from[] = "\"\\/bfnrt", becomes[] = "\"\\/\b\f\n\r\t";
    char *to = ++in->at;
    const char *begin = in->at;
    *text = begin;
    while (*in->at != '"') {
        unsigned char c = (unsigned char)*in->at;
        if (c < 0x20)
            return refuse(in, in->at,
                          in->at == in->end ? "a text without its closing quote"
                                            : "a control character in a text");
        if (c != '\\') {
            int length = ddp_text_utf8_length(in->at);
            if (length == 0)
                return refuse(in, in->at, "bytes that are not UTF-8");
            memmove(to, in->at, (size_t)length);
            to += length;
            in->at += length;
            continue;
        }
        const char *known = in->at[1] != '\0' ? strchr(from, in->at[1]) : NULL;
        if (known != NULL) {
            *to++ = becomes[known - from];
            in->at += 2;
        } else if (in->at[1] == 'u') {
            in->at += 2;
            DDP_TRY(read_escape(in, &to));
        } else {
            return refuse(in, in->at, "an unknown escape");
        }
    }
    in->at++;
    *to = '\0';
    return NULL;
}

/* -?(0|[1-9][0-9]*)(.[0-9]+)?([eE][+-]?[0-9]+)? */
static ddp_error *read_number(reader *in, ddp_json_value *value)
{
    char copy[NUMBER_BYTES];
    const char *begin = in->at, *at = begin, *digits = "0123456789";
    bool whole = true;
    at += *at == '-';
    size_t count = strspn(at, digits);
    if (count == 0 || (count > 1 && *at == '0'))
        return refuse(in, begin, "a value was expected");
    at += count;
    if (*at == '.') {
        whole = false;
        count = strspn(++at, digits);
        if (count == 0)
            return refuse(in, at, "digits belong behind the point");
        at += count;
    }
    if (*at == 'e' || *at == 'E') {
        whole = false;
        at++;
        at += *at == '+' || *at == '-';
        count = strspn(at, digits);
        if (count == 0)
            return refuse(in, at, "digits belong behind the e");
        at += count;
    }
    size_t length = (size_t)(at - begin);
    if (length >= sizeof copy)
        return refuse(in, begin, "a number with too many digits");
    memcpy(copy, begin, length);
    copy[length] = '\0';
    whole = whole && strcmp(copy, "-0") != 0; /* which only a float can be */
    value->kind = whole && ddp_text_to_int(copy, &value->integer) ? DDP_JSON_INT : DDP_JSON_FLOAT;
    if (value->kind == DDP_JSON_INT)
        value->number = (double)value->integer;
    else if (!ddp_text_to_float(copy, &value->number))
        return refuse(in, begin, "a number too large");
    in->at += length;
    return NULL;
}

static ddp_error *read_member(reader *in, ddp_json_value *parent, ddp_json_value **last)
{
    ddp_json_value *member;
    skip_space(in);
    DDP_TRY(make_value(in, &member));
    if (parent->kind == DDP_JSON_OBJECT) {
        if (*in->at != '"')
            return refuse(in, in->at, "a key in quotes was expected");
        DDP_TRY(read_text(in, &member->key));
        skip_space(in);
        if (*in->at != ':')
            return refuse(in, in->at, "a colon was expected");
        in->at++;
    }
    DDP_TRY(read_value(in, member));
    if (*last != NULL)
        (*last)->next = member;
    else
        parent->first = member;
    *last = member;
    parent->integer++;
    return NULL;
}

static ddp_error *read_members(reader *in, ddp_json_value *value, ddp_json_kind kind, char close)
{
    ddp_json_value *last = NULL;
    value->kind = kind;
    if (++in->depth > DDP_JSON_DEPTH)
        return refuse(in, in->at, "too many brackets inside one another");
    in->at++;
    skip_space(in);
    for (bool more = *in->at != close; more;) {
        DDP_TRY(read_member(in, value, &last));
        skip_space(in);
        more = *in->at == ',';
        if (more)
            in->at++;
        else if (*in->at != close)
            return refuse(in, in->at,
                          close == '}' ? "a comma or } was expected" : "a comma or ] was expected");
    }
    in->at++;
    in->depth--;
    return NULL;
}

static bool take_word(reader *in, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(in->at, word, length) != 0)
        return false;
    in->at += length;
    return true;
}

static ddp_error *read_value(reader *in, ddp_json_value *value)
{
    skip_space(in);
    switch (*in->at) {
    case '{':
        return read_members(in, value, DDP_JSON_OBJECT, '}');
    case '[':
        return read_members(in, value, DDP_JSON_ARRAY, ']');
    case '"':
        value->kind = DDP_JSON_TEXT;
        return read_text(in, &value->text);
    default:
        break;
    }
    if (take_word(in, "null"))
        return NULL;
    value->integer = *in->at == 't';
    if (take_word(in, "true") || take_word(in, "false")) {
        value->kind = DDP_JSON_BOOL;
        return NULL;
    }
    return read_number(in, value);
}

static ddp_error *read_document(reader *in)
{
    DDP_TRY(make_value(in, &in->document->root));
    DDP_TRY(read_value(in, in->document->root));
    skip_space(in);
    if (in->at != in->end)
        return refuse(in, in->at, "the document should end here");
    return NULL;
}

ddp_error *ddp_json_read(const char *name, const char *data, size_t bytes, ddp_json_document *document)
{
    ddp_json_document made = {0};
    DDP_TRY(ddp_memory_make(bytes + 8, 1, (void **)&made.bytes)); /* NULs behind it stop every scan */
    memcpy(made.bytes, data, bytes);
    reader in = {.name = name,
                 .source = data,
                 .start = made.bytes,
                 .at = made.bytes,
                 .end = made.bytes + bytes,
                 .document = &made};
    ddp_error *error = read_document(&in);
    if (error != NULL) {
        ddp_json_free(&made);
        return error;
    }
    *document = made;
    return NULL;
}

void ddp_json_free(ddp_json_document *document)
{
    while (document->blocks != NULL) {
        struct ddp_json_block *next = document->blocks->next;
        free(document->blocks);
        document->blocks = next;
    }
    free(document->bytes);
    *document = (ddp_json_document){0};
}

const ddp_json_value *ddp_json_get(const ddp_json_value *object, const char *key)
{
    if (object == NULL || object->kind != DDP_JSON_OBJECT)
        return NULL;
    for (const ddp_json_value *member = object->first; member != NULL; member = member->next)
        if (strcmp(member->key, key) == 0)
            return member;
    return NULL;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

ddp_error *ddp_json_find_repeated(const ddp_json_value *object, const char **key)
{
    const char **keys;
    size_t count = 0;
    *key = NULL;
    DDP_TRY(ddp_memory_make((size_t)object->integer + 1, sizeof *keys, (void **)&keys));
    for (const ddp_json_value *member = object->first; member != NULL; member = member->next)
        keys[count++] = member->key;
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count && *key == NULL; i++)
        if (strcmp(keys[i - 1], keys[i]) == 0)
            *key = keys[i];
    free(keys);
    return NULL;
}
