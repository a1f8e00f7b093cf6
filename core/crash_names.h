/* Names for addresses of this program's own code, read from the symbol table of its file: static functions
 * too, which the dynamic linker does not know. May be called in a signal handler: it allocates nothing but
 * one mapping. */
#ifndef DDP_CORE_CRASH_NAMES_H
#define DDP_CORE_CRASH_NAMES_H

#include <stddef.h>
#include <stdint.h>

typedef struct ddp_crash_names {
    const unsigned char *file; /* mapped, NULL = cannot be read */
    size_t bytes;
    uintptr_t base; /* where the program was loaded */
} ddp_crash_names;

ddp_crash_names ddp_crash_names_open(void);
void ddp_crash_names_close(ddp_crash_names *names);

/* The function that `address` lies in, and how far in; NULL = none of this program, or no table (stripped).
 */
const char *ddp_crash_names_find(const ddp_crash_names *names, uintptr_t address, uintptr_t *offset);

#endif
