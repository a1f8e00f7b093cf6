/* Growing text, and numbers as people write them. */
#ifndef DDP_CORE_TEXT_H
#define DDP_CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ddp/error.h>

/* A buffer that grows; zeroed = empty. Out of memory is kept in `failed` and shows up as a truncated text,
 * so that building a message needs no checks. */
typedef struct ddp_text {
    char *at; /* NUL-terminated once anything was added; NULL before */
    size_t length, capacity;
    bool failed;
} ddp_text;

void ddp_text_add(ddp_text *text, const char *format, ...) DDP_PRINTF(2, 3);
void ddp_text_add_bytes(ddp_text *text, const char *bytes, size_t count);
const char *ddp_text_get(const ddp_text *text); /* "" when empty */
void ddp_text_free(ddp_text *text);

/* Numbers, locale-independent; the whole text must be used. Decimal only: "010" is 10, no 0x, no base 60,
 * no underscores. Return false and leave *value alone on anything else, overflow included. */
bool ddp_text_to_int(const char *text, int64_t *value);
bool ddp_text_to_float(const char *text, double *value); /* finite only; "1e-4", ".5", "+1E3" */

/* Writes the shortest text that reads back to the same double. buffer of at least 32 bytes. */
const char *ddp_text_from_float(double value, char *buffer, size_t bytes);

/* 24.8 MiB; 1,437; 12.3 k. buffer of at least 32 bytes, returned. */
const char *ddp_text_from_bytes(double bytes, char *buffer, size_t size);
const char *ddp_text_from_count(int64_t count, char *buffer, size_t size);
const char *ddp_text_from_rate(double value, char *buffer, size_t size);
const char *ddp_text_from_seconds(double seconds, char *buffer,
                                  size_t size); /* 3.2 s, 4 min 10 s, 2 h 03 min */

/* Edit distance (transpositions count once), for "did you mean". */
size_t ddp_text_distance(const char *a, const char *b);
/* The nearest of `count` words, or NULL when none is near enough to be meant. `-` and `_` are equal. */
const char *ddp_text_nearest(const char *word, const char *const *words, size_t count);

/* Length of the valid UTF-8 sequence at `text`, 0 if there is none (overlong forms and surrogates too). */
int ddp_text_utf8_length(const char *text);

bool ddp_text_starts(const char *text, const char *prefix);
bool ddp_text_ends(const char *text, const char *suffix);

#endif
