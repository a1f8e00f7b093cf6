/* Unicode characters as GPT-2's splitting rule sees them: letters, numbers, white space, and the rest. The
 * table (unicode_table.c) is generated and names its Unicode version; the C library's iswalpha follows the
 * locale and other definitions, and would give other tokens. */
#ifndef DDP_RUNTIME_DATA_UNICODE_CLASS_H
#define DDP_RUNTIME_DATA_UNICODE_CLASS_H

#include <stddef.h>
#include <stdint.h>

typedef enum ddp_unicode_class {
    DDP_UNICODE_OTHER,
    DDP_UNICODE_LETTER, /* general categories L* */
    DDP_UNICODE_NUMBER, /* N* */
    DDP_UNICODE_SPACE,  /* property White_Space */
} ddp_unicode_class;

/* Code points from U+0000 to U+10FFFF. */
ddp_unicode_class ddp_unicode_classify(uint32_t code);

/* The class and the length in bytes of the character that begins at `at`, of which `left` (at least 1) bytes
 * are there. A byte that begins no valid UTF-8 character (RFC 3629) is one of class OTHER; so is one whose
 * character is cut short by `left`. */
ddp_unicode_class ddp_unicode_read(const unsigned char *at, size_t left, size_t *bytes);

/* The table, for unicode_class.c: code << 2 | class, ascending; each class holds until the next entry. */
extern const char ddp_unicode_version[];
extern const size_t ddp_unicode_step_count;
extern const uint32_t ddp_unicode_steps[];

#endif
