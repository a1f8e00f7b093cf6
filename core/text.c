/* Growing text, and numbers as people write them. */
#include "core/text.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(ddp_text *text, size_t more)
{
    if (text->failed)
        return false;
    if (text->length + more + 1 <= text->capacity)
        return true;
    size_t capacity = text->capacity ? text->capacity * 2 : 128;
    while (capacity < text->length + more + 1)
        capacity *= 2;
    char *at = realloc(text->at, capacity);
    if (at == NULL) {
        text->failed = true;
        return false;
    }
    text->at = at;
    text->capacity = capacity;
    return true;
}

void ddp_text_add(ddp_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int need = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (need < 0 || !reserve(text, (size_t)need))
        return;
    va_start(arguments, format);
    vsnprintf(text->at + text->length, (size_t)need + 1, format, arguments);
    va_end(arguments);
    text->length += (size_t)need;
}

void ddp_text_add_bytes(ddp_text *text, const char *bytes, size_t count)
{
    if (!reserve(text, count))
        return;
    memcpy(text->at + text->length, bytes, count);
    text->length += count;
    text->at[text->length] = '\0';
}

const char *ddp_text_get(const ddp_text *text)
{
    return text->at ? text->at : "";
}

void ddp_text_free(ddp_text *text)
{
    free(text->at);
    *text = (ddp_text){0};
}

int ddp_text_utf8_length(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    int length = at[0] < 0x80                    ? 1
                 : at[0] >= 0xC2 && at[0] < 0xE0 ? 2
                 : at[0] >= 0xE0 && at[0] < 0xF0 ? 3
                 : at[0] >= 0xF0 && at[0] < 0xF5 ? 4
                                                 : 0;
    for (int i = 1; i < length; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    bool bad = (at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F) ||
               (at[0] == 0xF0 && at[1] < 0x90) || (at[0] == 0xF4 && at[1] > 0x8F);
    return length > 1 && bad ? 0 : length;
}

bool ddp_text_to_int(const char *text, int64_t *value)
{
    const char *at = text;
    if (*at == '+' || *at == '-')
        at++;
    if (*at == '\0' || strspn(at, "0123456789") != strlen(at))
        return false;
    errno = 0;
    intmax_t got = strtoimax(text, NULL, 10);
    if (errno != 0)
        return false;
    *value = got;
    return true;
}

/* strtod and printf follow the process's locale; numbers in files do not. */
static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;
static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

bool ddp_text_to_float(const char *text, double *value)
{
    if (*text == '\0' || strspn(text, "0123456789+-.eE") != strlen(text))
        return false;
    pthread_once(&c_locale_once, make_c_locale);
    char *end;
    double got = strtod_l(text, &end, c_locale);
    if (*end != '\0' || !isfinite(got))
        return false;
    *value = got;
    return true;
}

const char *ddp_text_from_float(double value, char *buffer, size_t bytes)
{
    pthread_once(&c_locale_once, make_c_locale);
    locale_t before = uselocale(c_locale);
    int digits = 1;
    for (; digits <= 17; digits++) {
        snprintf(buffer, bytes, "%.*g", digits, value);
        if (strtod_l(buffer, NULL, c_locale) == value)
            break;
    }
    if (strchr(buffer, 'e') != NULL && fabs(value) >= 1 && fabs(value) < 1e15) {
        int after = digits - 1 - (int)floor(log10(fabs(value))); /* "60", not "6e+01" */
        snprintf(buffer, bytes, "%.*f", after > 0 ? after : 0, value);
    }
    uselocale(before);
    return buffer;
}

const char *ddp_text_from_bytes(double bytes, char *buffer, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (bytes >= 1024 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    snprintf(buffer, size, unit == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return buffer;
}

const char *ddp_text_from_count(int64_t count, char *buffer, size_t size)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRId64, count);
    size_t out = 0;
    for (int i = 0; i < length && out + 2 < size; i++) {
        buffer[out++] = digits[i];
        int left = length - 1 - i;
        if (left > 0 && left % 3 == 0 && digits[i] != '-')
            buffer[out++] = ',';
    }
    buffer[out] = '\0';
    return buffer;
}

const char *ddp_text_from_rate(double value, char *buffer, size_t size)
{
    static const char *const units[] = {"", " k", " M", " G"};
    int unit = 0;
    while (value >= 9999.5 && unit < 3) {
        value /= 1000;
        unit++;
    }
    snprintf(buffer, size, value < 99.95 ? "%.1f%s" : "%.0f%s", value, units[unit]);
    return buffer;
}

const char *ddp_text_from_seconds(double seconds, char *buffer, size_t size)
{
    int64_t whole = (int64_t)(seconds + 0.5);
    if (seconds < 1)
        snprintf(buffer, size, "%.0f ms", seconds * 1e3);
    else if (seconds < 59.95)
        snprintf(buffer, size, "%.1f s", seconds);
    else if (whole < 3600)
        snprintf(buffer, size, "%d min %02d s", (int)(whole / 60), (int)(whole % 60));
    else
        snprintf(buffer, size, "%d h %02d min", (int)(whole / 3600), (int)(whole % 3600 / 60));
    return buffer;
}

static char fold(char c)
{
    return c == '-' ? '_' : (c >= 'A' && c <= 'Z') ? (char)(c + 32) : c;
}

size_t ddp_text_distance(const char *a, const char *b)
{
    enum { LIMIT = 64 };
    size_t rows[3][LIMIT + 1];
    size_t la = strlen(a), lb = strlen(b);
    if (la > LIMIT || lb > LIMIT)
        return LIMIT;
    size_t *two = rows[0], *one = rows[1], *now = rows[2];
    for (size_t j = 0; j <= lb; j++)
        one[j] = j;
    for (size_t i = 1; i <= la; i++) {
        now[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t best = one[j - 1] + (fold(a[i - 1]) != fold(b[j - 1]));
            if (one[j] + 1 < best)
                best = one[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) && fold(a[i - 2]) == fold(b[j - 1]) &&
                two[j - 2] + 1 < best)
                best = two[j - 2] + 1;
            now[j] = best;
        }
        size_t *spare = two;
        two = one;
        one = now;
        now = spare;
    }
    return one[lb];
}

const char *ddp_text_nearest(const char *word, const char *const *words, size_t count)
{
    const char *best = NULL;
    size_t best_distance = strlen(word) / 3 + 1; /* one slip in short words, more in long ones */
    for (size_t i = 0; i < count; i++) {
        size_t distance = ddp_text_distance(word, words[i]);
        if (distance > best_distance || (best != NULL && distance == best_distance))
            continue;
        best = words[i];
        best_distance = distance;
    }
    return best;
}

bool ddp_text_starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool ddp_text_ends(const char *text, const char *suffix)
{
    size_t length = strlen(text), tail = strlen(suffix);
    return length >= tail && strcmp(text + length - tail, suffix) == 0;
}
