/* Folding, prefixes, cleaning, and the live line. */
#include "launcher/show.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/memory.h"

#define HELD 64 /* different lines that wait for their like */

typedef struct held_line {
    ddp_text text;        /* cleaned, without time and rank of a log line */
    size_t key;           /* bytes of `text` that come before what is compared: the time */
    unsigned char *ranks; /* one byte a rank */
    int count, first;     /* ranks in it; the one that came first */
    double born;
} held_line;

struct ddp_show {
    ddp_show_config config;
    held_line held[HELD]; /* a ring: [head, head + count) */
    uint64_t head, count; /* numbers of lines, they only grow */
    uint64_t *last;       /* by rank: number + 1 of its newest held line */
    ddp_text status;      /* what the live line says now */
};

/* Bytes of the terminal escape sequence at `at` (ECMA-48: CSI, OSC, or ESC and one more). */
static size_t escape_length(const char *at, size_t left)
{
    size_t length = 2;
    if (left < 2)
        return left;
    if (at[1] == '[')
        while (length < left && ((unsigned char)at[length - 1] < 0x40 || length == 2))
            length++;
    else if (at[1] == ']')
        while (length < left && at[length - 1] != '\a' &&
               !(at[length - 1] == '\\' && at[length - 2] == '\x1b'))
            length++;
    return length;
}

/* What a terminal would show of the line, as plain text. */
static void add_clean(ddp_text *out, const char *line, size_t count)
{
    while (count > 0 && line[count - 1] == '\r')
        count--;
    const char *from = count > 0 ? memrchr(line, '\r', count) : NULL;
    const char *end = line + count, *at = from != NULL ? from + 1 : line;
    while (at < end) {
        const char *plain = at;
        while (at < end && ((unsigned char)*at >= 0x20 || *at == '\t') && *at != 0x7F)
            at++;
        if (at > plain)
            ddp_text_add_bytes(out, plain, (size_t)(at - plain));
        if (at < end)
            at += *at == '\x1b' ? escape_length(at, (size_t)(end - at)) : 1;
    }
}

/* "12:03:44.120 r3 " at the start of a log line: gives the length of the time and that of the rank. */
static bool is_log_line(const ddp_text *text, size_t *time, size_t *rank)
{
    static const char form[] = "dd:dd:dd.ddd r";
    const char *at = ddp_text_get(text);
    for (size_t i = 0; i + 1 < sizeof form; i++)
        if (form[i] == 'd' ? !isdigit((unsigned char)at[i]) : at[i] != form[i])
            return false;
    size_t digits = strspn(at + sizeof form - 1, "0123456789");
    if (digits == 0 || at[sizeof form - 1 + digits] != ' ')
        return false;
    *time = sizeof form - 2;
    *rank = digits + 2;
    return true;
}

void ddp_show_add_ranks(ddp_text *out, const unsigned char *set, int world)
{
    const char *comma = "";
    for (int first = 0, last; first < world; first = last + 1) {
        last = first;
        if (!set[first])
            continue;
        while (last + 1 < world && set[last + 1])
            last++;
        if (last == first)
            ddp_text_add(out, "%s%d", comma, first);
        else
            ddp_text_add(out, "%s%d%c%d", comma, first, last == first + 1 ? ',' : '-', last);
        comma = ",";
    }
}

/* Puts whole lines on one of the streams, above the live line. */
static void put(ddp_show *show, int stream, const ddp_text *lines)
{
    ddp_output *output = stream == 1 ? show->config.out : show->config.err;
    if (show->status.length == 0 || output != show->config.out) {
        ddp_output_add(output, ddp_text_get(lines), lines->length);
        return;
    }
    ddp_text all = {0};
    ddp_text_add(&all, "\r\033[K%s%s", ddp_text_get(lines), ddp_text_get(&show->status));
    ddp_output_add(output, ddp_text_get(&all), all.length);
    ddp_text_free(&all);
}

static void put_held(ddp_show *show, const held_line *line)
{
    ddp_text out = {0};
    if (line->count > 1) {
        ddp_text_add(&out, "ranks ");
        ddp_show_add_ranks(&out, line->ranks, show->config.world);
    } else {
        if (show->config.hosts != NULL)
            ddp_text_add(&out, "%s ", show->config.hosts[line->first]);
        ddp_text_add(&out, "r%d", line->first);
    }
    ddp_text_add(&out, " | ");
    ddp_text_add_bytes(&out, ddp_text_get(&line->text), line->text.length);
    ddp_text_add(&out, "\n");
    put(show, 2, &out);
    ddp_text_free(&out);
}

static held_line *get_held(ddp_show *show, uint64_t number)
{
    return &show->held[number % HELD];
}

static void show_oldest(ddp_show *show)
{
    held_line *line = get_held(show, show->head++);
    put_held(show, line);
    line->text.length = 0;
    memset(line->ranks, 0, (size_t)show->config.world);
    show->count--;
}

double ddp_show_flush(ddp_show *show)
{
    while (show->count > 0) {
        held_line *oldest = get_held(show, show->head);
        double left = oldest->born + DDP_SHOW_FOLD_S - ddp_clock_now();
        if (left > 0 && oldest->count < show->config.world)
            return left;
        show_oldest(show);
    }
    return -1;
}

/* A held line that says the same and that `rank` may join: behind everything the rank wrote before, so that
 * its lines keep their order. */
static held_line *find_like(ddp_show *show, int rank, const ddp_text *text, size_t key, uint64_t *number)
{
    uint64_t from = show->last[rank] > show->head ? show->last[rank] : show->head;
    for (uint64_t at = from; at < show->head + show->count; at++) {
        held_line *line = get_held(show, at);
        if (line->key != key || line->text.length != text->length ||
            memcmp(ddp_text_get(&line->text) + key, ddp_text_get(text) + key, text->length - key) != 0)
            continue;
        *number = at;
        return line;
    }
    return NULL;
}

static held_line *hold_new(ddp_show *show, int rank, ddp_text *text, size_t key, uint64_t *number)
{
    if (show->count == HELD)
        show_oldest(show);
    *number = show->head + show->count++;
    held_line *line = get_held(show, *number);
    ddp_text_free(&line->text);
    line->text = *text;
    *text = (ddp_text){0};
    line->key = key;
    line->first = rank;
    line->count = 0;
    line->born = ddp_clock_now();
    return line;
}

static void hold(ddp_show *show, int rank, ddp_text *text)
{
    size_t time = 0, mark;
    uint64_t number;
    if (is_log_line(text, &time, &mark)) {
        memmove(text->at + time, text->at + time + mark, text->length - time - mark + 1);
        text->length -= mark;
    }
    held_line *line = find_like(show, rank, text, time, &number);
    if (line == NULL)
        line = hold_new(show, rank, text, time, &number);
    line->ranks[rank] = 1;
    line->count++;
    show->last[rank] = number + 1;
    ddp_show_flush(show);
}

void ddp_show_line(ddp_show *show, int rank, int stream, const char *line, size_t count, const char *note)
{
    ddp_text text = {0};
    add_clean(&text, line, count);
    if (note != NULL)
        ddp_text_add(&text, " %s", note);
    if (rank == 0 && stream == 1) {
        ddp_text_add(&text, "\n");
        put(show, 1, &text);
    } else {
        hold(show, rank, &text);
    }
    ddp_text_free(&text);
}

void ddp_show_status(ddp_show *show, const char *line, size_t count)
{
    if (!show->config.terminal)
        return;
    ddp_text all = {0};
    show->status.length = 0;
    add_clean(&show->status, line, count);
    ddp_text_add(&all, "\r\033[K%s", ddp_text_get(&show->status));
    ddp_output_add(show->config.out, ddp_text_get(&all), all.length);
    ddp_text_free(&all);
}

ddp_error *ddp_show_open(const ddp_show_config *config, ddp_show **show)
{
    ddp_show *made;
    void *memory = NULL;
    ddp_error *error = DDP_NEW(&made);
    if (error != NULL)
        return error;
    made->config = *config;
    DDP_GO(ddp_memory_make((size_t)config->world, sizeof *made->last, &memory));
    made->last = memory;
    for (int i = 0; i < HELD; i++) {
        DDP_GO(ddp_memory_make((size_t)config->world, 1, &memory));
        made->held[i].ranks = memory;
    }
    *show = made;
    return NULL;
out:
    ddp_show_close(made);
    return error;
}

void ddp_show_close(ddp_show *show)
{
    if (show == NULL)
        return;
    while (show->count > 0)
        show_oldest(show);
    if (show->status.length > 0)
        ddp_output_add(show->config.out, "\r\033[K", 4);
    ddp_text_free(&show->status);
    for (int i = 0; i < HELD; i++) {
        ddp_text_free(&show->held[i].text);
        free(show->held[i].ranks);
    }
    free(show->last);
    free(show);
}
