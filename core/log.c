/* The log: one line, one write, to stderr. */
#include <ddp/log.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/text.h"

#define MAX_RULES 16

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

/* The one filter of the process: written at start (and by ddp_log_set_filter), read by every line. */
static struct {
    ddp_log_level level;
    int count, rank;
    struct {
        char subsystem[16];
        ddp_log_level level;
    } rules[MAX_RULES];
} filter = {.level = DDP_INFO, .rank = -1};

static bool find_level(const char *word, ddp_log_level *level)
{
    for (int i = 0; i < 5; i++) {
        if (strcmp(word, level_names[i]) != 0)
            continue;
        *level = (ddp_log_level)i;
        return true;
    }
    return false;
}

static ddp_error *add_rule(char *word)
{
    char *equals = strchr(word, '=');
    ddp_log_level level;
    if (!find_level(equals ? equals + 1 : word, &level))
        return ddp_error_help(
            ddp_error_make(DDP_ERR_INPUT, "log filter: \"%s\" is no level", word),
            "levels are error, warn, info, debug, trace; \"warn,comm=debug\" sets one subsystem");
    if (equals == NULL) {
        filter.level = level;
    } else if (filter.count < MAX_RULES) {
        *equals = '\0';
        snprintf(filter.rules[filter.count].subsystem, sizeof filter.rules[0].subsystem, "%s", word);
        filter.rules[filter.count++].level = level;
    }
    return NULL;
}

ddp_error *ddp_log_set_filter(const char *text)
{
    char *copy = strdup(text), *rest = copy;
    ddp_error *error = NULL;
    filter.count = 0;
    for (char *word; copy != NULL && error == NULL && (word = strsep(&rest, ",")) != NULL;)
        if (*word != '\0')
            error = add_rule(word);
    free(copy);
    return error;
}

static void read_environment(void)
{
    const char *text = getenv("DDP_LOG");
    ddp_error *error = text ? ddp_log_set_filter(text) : NULL;
    if (error != NULL)
        ddp_error_print(ddp_error_while(error, "reading the environment variable DDP_LOG"), "warning",
                        stderr);
    ddp_error_free(error);
}

bool ddp_log_enabled(ddp_log_level level, const char *subsystem)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    for (int i = 0; i < filter.count; i++)
        if (strcmp(filter.rules[i].subsystem, subsystem) == 0)
            return level <= filter.rules[i].level;
    return level <= filter.level;
}

void ddp_log_set_rank(int rank)
{
    filter.rank = rank;
}

void ddp_log(ddp_log_level level, const char *subsystem, const char *format, ...)
{
    if (!ddp_log_enabled(level, subsystem))
        return;
    struct timespec now;
    struct tm parts;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &parts);
    char rank[16] = "--";
    if (filter.rank >= 0)
        snprintf(rank, sizeof rank, "r%d", filter.rank);
    ddp_text line = {0};
    ddp_text_add(&line, "%02d:%02d:%02d.%03d %s %s  ", parts.tm_hour, parts.tm_min, parts.tm_sec,
                 (int)(now.tv_nsec / 1000000), rank, subsystem);
    if (level <= DDP_WARN)
        ddp_text_add(&line, "%s: ", level == DDP_WARN ? "warning" : "error");
    va_list arguments;
    va_start(arguments, format);
    char *message = NULL;
    if (vasprintf(&message, format, arguments) >= 0)
        ddp_text_add(&line, "%s\n", message);
    va_end(arguments);
    free(message);
    ssize_t written = write(STDERR_FILENO, ddp_text_get(&line), line.length);
    (void)written; /* a log that cannot be written has nobody to tell */
    ddp_text_free(&line);
}
