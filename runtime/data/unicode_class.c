/* The class of a character: a table for ASCII, a binary search for the rest. */
#include "runtime/data/unicode_class.h"

#include <stdbool.h>

static const unsigned char ascii[128] = {
    ['\t'] = DDP_UNICODE_SPACE,         ['\n'] = DDP_UNICODE_SPACE,
    ['\v'] = DDP_UNICODE_SPACE,         ['\f'] = DDP_UNICODE_SPACE,
    ['\r'] = DDP_UNICODE_SPACE,         [' '] = DDP_UNICODE_SPACE,
    ['0' ... '9'] = DDP_UNICODE_NUMBER, ['A' ... 'Z'] = DDP_UNICODE_LETTER,
    ['a' ... 'z'] = DDP_UNICODE_LETTER,
};

ddp_unicode_class ddp_unicode_classify(uint32_t code)
{
    size_t low = 0, high = ddp_unicode_step_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (ddp_unicode_steps[middle] >> 2 <= code)
            low = middle;
        else
            high = middle;
    }
    return (ddp_unicode_class)(ddp_unicode_steps[low] & 3);
}

/* Bytes of a character by its first byte; 0 = none begins like this. */
static size_t length_of(unsigned char first)
{
    return first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
}

ddp_unicode_class ddp_unicode_read(const unsigned char *at, size_t left, size_t *bytes)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    *bytes = 1;
    if (at[0] < 0x80)
        return (ddp_unicode_class)ascii[at[0]];
    size_t length = length_of(at[0]);
    if (length == 0 || length > left)
        return DDP_UNICODE_OTHER;
    uint32_t code = at[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xC0) != 0x80)
            return DDP_UNICODE_OTHER;
        code = code << 6 | (at[i] & 0x3F);
    }
    bool surrogate = code >= 0xD800 && code < 0xE000;
    if (code < smallest[length] || surrogate || code > 0x10FFFF)
        return DDP_UNICODE_OTHER;
    *bytes = length;
    return ddp_unicode_classify(code);
}
