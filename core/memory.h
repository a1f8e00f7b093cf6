/* Host memory with errors instead of NULL. */
#ifndef DDP_CORE_MEMORY_H
#define DDP_CORE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include <ddp/error.h>

/* Zeroed memory for count elements; freed with free(). MEMORY: also when count * bytes overflows. */
DDP_USE_RESULT ddp_error *ddp_memory_make(size_t count, size_t bytes, void **memory);

/* Grows *memory (count elements used of *capacity) to hold at least `need`; new elements are zeroed. */
DDP_USE_RESULT ddp_error *ddp_memory_grow(void **memory, size_t *capacity, size_t need, size_t bytes);

/* A copy of `text` (NULL gives NULL); freed with free(). */
DDP_USE_RESULT ddp_error *ddp_memory_text(const char *text, char **copy);

/* Bytes of one line of /proc/meminfo ("MemAvailable", "MemTotal"); 0 = not known. */
int64_t ddp_memory_info(const char *line);

/* A zeroed object of the pointer's type: DDP_NEW(&thing). */
#define DDP_NEW(pointer) ddp_memory_make(1, sizeof(**(pointer)), (void **)(pointer))

#endif
