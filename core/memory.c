/* Host memory with errors instead of NULL. */
#include "core/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ddp_error *ddp_memory_make(size_t count, size_t bytes, void **memory)
{
    void *got = calloc(count ? count : 1, bytes ? bytes : 1);
    if (got == NULL)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory: %zu x %zu bytes were asked for", count, bytes);
    *memory = got;
    return NULL;
}

ddp_error *ddp_memory_grow(void **memory, size_t *capacity, size_t need, size_t bytes)
{
    if (need <= *capacity)
        return NULL;
    size_t wanted = *capacity ? *capacity * 2 : 16;
    if (wanted < need)
        wanted = need;
    void *got = reallocarray(*memory, wanted, bytes);
    if (got == NULL)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory: %zu x %zu bytes were asked for", wanted, bytes);
    memset((char *)got + *capacity * bytes, 0, (wanted - *capacity) * bytes);
    *memory = got;
    *capacity = wanted;
    return NULL;
}

ddp_error *ddp_memory_text(const char *text, char **copy)
{
    char *got = text ? strdup(text) : NULL;
    if (text != NULL && got == NULL)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory: %zu bytes were asked for", strlen(text) + 1);
    *copy = got;
    return NULL;
}

int64_t ddp_memory_info(const char *line)
{
    char text[128];
    int64_t bytes = 0;
    size_t length = strlen(line);
    FILE *file = fopen("/proc/meminfo", "re");
    if (file == NULL)
        return 0;
    while (bytes == 0 && fgets(text, sizeof text, file) != NULL)
        if (strncmp(text, line, length) == 0 && text[length] == ':')
            bytes = strtoll(text + length + 1, NULL, 10) * 1024; /* in kB */
    fclose(file);
    return bytes;
}
