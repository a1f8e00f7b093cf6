/* Errors as objects: message, place, "while" lines, help, and the errors found beside it. */
#include <ddp/error.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/text.h"

struct ddp_error {
    ddp_error_kind kind;
    char *message;
    ddp_place place; /* file and text are owned */
    ddp_text whiles; /* lines, each with its newline */
    char *help;
    ddp_error *next;
};

/* Given out when there is no memory to describe a failure; never written to. */
static ddp_error out_of_memory = {.kind = DDP_ERR_MEMORY, .message = (char *)"out of memory"};

static char *format_text(const char *format, va_list arguments)
{
    char *text = NULL;
    return vasprintf(&text, format, arguments) < 0 ? NULL : text;
}

static ddp_error *make(ddp_error_kind kind, char *message)
{
    ddp_error *error = message ? calloc(1, sizeof *error) : NULL;
    if (error == NULL) {
        free(message);
        return &out_of_memory;
    }
    error->kind = kind;
    error->message = message;
    return error;
}

ddp_error *ddp_error_make(ddp_error_kind kind, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *message = format_text(format, arguments);
    va_end(arguments);
    return make(kind, message);
}

ddp_error *ddp_error_at(ddp_error_kind kind, ddp_place place, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *message = format_text(format, arguments);
    va_end(arguments);
    return ddp_error_locate(make(kind, message), place);
}

ddp_error *ddp_error_locate(ddp_error *error, ddp_place place)
{
    if (error == NULL || error == &out_of_memory || error->place.file != NULL || place.file == NULL)
        return error;
    error->place = place;
    error->place.file = strdup(place.file);
    error->place.text = place.text ? strdup(place.text) : NULL;
    return error;
}

ddp_error *ddp_error_errno(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *message = format_text(format, arguments);
    va_end(arguments);
    char reason[128];
    const char *text = strerror_r(code, reason, sizeof reason);
    ddp_error *error = ddp_error_make(DDP_ERR_IO, "%s: %s", message ? message : "", text);
    free(message);
    return error;
}

ddp_error *ddp_error_while(ddp_error *error, const char *format, ...)
{
    if (error == NULL || error == &out_of_memory)
        return error;
    va_list arguments;
    va_start(arguments, format);
    char *line = format_text(format, arguments);
    va_end(arguments);
    ddp_text_add(&error->whiles, "    while %s\n", line ? line : "");
    free(line);
    return error;
}

ddp_error *ddp_error_help(ddp_error *error, const char *format, ...)
{
    if (error == NULL || error == &out_of_memory)
        return error;
    va_list arguments;
    va_start(arguments, format);
    free(error->help);
    error->help = format_text(format, arguments);
    va_end(arguments);
    return error;
}

ddp_error *ddp_error_join(ddp_error *first, ddp_error *next)
{
    if (first == NULL)
        return next;
    if (next == NULL || first == &out_of_memory) {
        ddp_error_free(next);
        return first;
    }
    ddp_error *last = first;
    while (last->next != NULL)
        last = last->next;
    if (last != &out_of_memory)
        last->next = next;
    return first;
}

ddp_error *ddp_error_copy(const ddp_error *error)
{
    ddp_error *copy = NULL;
    for (; error != NULL; error = error->next) {
        ddp_error *one = ddp_error_at(error->kind, error->place, "%s", error->message);
        if (one != &out_of_memory) {
            ddp_text_add(&one->whiles, "%s", ddp_text_get(&error->whiles));
            one->help = error->help ? strdup(error->help) : NULL;
        }
        copy = ddp_error_join(copy, one);
    }
    return copy;
}

ddp_error_kind ddp_error_get_kind(const ddp_error *error)
{
    return error->kind;
}

const char *ddp_error_message(const ddp_error *error)
{
    return error->message;
}

size_t ddp_error_count(const ddp_error *error)
{
    size_t count = 0;
    for (; error != NULL; error = error->next)
        count++;
    return count;
}

int ddp_error_exit_code(const ddp_error *error)
{
    if (error == NULL)
        return 0;
    switch (error->kind) {
    case DDP_ERR_INPUT:
        return 2;
    case DDP_ERR_MACHINE:
        return 3;
    default:
        return 1;
    }
}

/* The source line with its mark. Tabs are kept in the mark line so that it stays under its text; a long
 * line is cut around the marked place. */
static void add_source(ddp_text *out, const ddp_place *place)
{
    enum { WIDTH = 100 };
    const char *text = place->text;
    int column = place->column > 0 ? place->column - 1 : 0;
    int length = (int)strlen(text);
    if (column > length)
        column = length;
    int from = column > WIDTH / 2 ? column - WIDTH / 2 : 0;
    int shown = length - from > WIDTH ? WIDTH : length - from;
    if (place->line > 0)
        ddp_text_add(out, "%6d", place->line);
    else
        ddp_text_add(out, "      ");
    ddp_text_add(out, " | %s%.*s%s\n       | %s", from > 0 ? "..." : "", shown, text + from,
                 from + shown < length ? "..." : "", from > 0 ? "   " : "");
    for (int i = from; i < column; i++)
        if (((unsigned char)text[i] & 0xC0) != 0x80) /* one mark column a UTF-8 character */
            ddp_text_add(out, "%c", text[i] == '\t' ? '\t' : ' ');
    ddp_text_add(out, "^");
    for (int i = column + 1; i < column + place->length && i < from + shown; i++)
        if (((unsigned char)text[i] & 0xC0) != 0x80)
            ddp_text_add(out, "~");
    ddp_text_add(out, "\n");
}

static void add_block(ddp_text *out, const ddp_error *error, const char *severity)
{
    const ddp_place *place = &error->place;
    if (place->file == NULL)
        ddp_text_add(out, "ddprun: %s: %s\n", severity, error->message);
    else if (place->line <= 0)
        ddp_text_add(out, "%s: %s: %s\n", place->file, severity, error->message);
    else
        ddp_text_add(out, "%s:%d:%d: %s: %s\n", place->file, place->line, place->column, severity,
                     error->message);
    if (place->file != NULL && place->text != NULL)
        add_source(out, place);
    ddp_text_add(out, "%s", ddp_text_get(&error->whiles));
    if (error->help != NULL)
        ddp_text_add(out, "    help: %s\n", error->help);
}

void ddp_error_print(const ddp_error *error, const char *severity, FILE *out)
{
    ddp_text text = {0};
    for (; error != NULL; error = error->next)
        add_block(&text, error, severity);
    fflush(out);
    fwrite(ddp_text_get(&text), 1, text.length, out);
    fflush(out);
    ddp_text_free(&text);
}

void ddp_error_free(ddp_error *error)
{
    while (error != NULL && error != &out_of_memory) {
        ddp_error *next = error->next;
        free(error->message);
        free((char *)error->place.file);
        free((char *)error->place.text);
        ddp_text_free(&error->whiles);
        free(error->help);
        free(error);
        error = next;
    }
}

void ddp_assert_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: internal error: %s does not hold; please report this\n", file, line, condition);
    abort();
}
