/* GPT-2's rule for cutting text into pieces, by hand: no regular expression library, and it says when it
 * needs to see more. */
#include "runtime/data/bpe.h"
#include "runtime/data/unicode_class.h"

#include <string.h>

/* 's 't 're 've 'm 'll 'd; `left` counts from the apostrophe on. */
static size_t contraction(const unsigned char *at, size_t left)
{
    if (left >= 2 && memchr("stmd", at[1], 4) != NULL)
        return 2;
    if (left < 3)
        return 0;
    bool two =
        (at[1] == 'r' && at[2] == 'e') || (at[1] == 'v' && at[2] == 'e') || (at[1] == 'l' && at[2] == 'l');
    return two ? 3 : 0;
}

/* Where the run of characters of this class ends; *before is where its last character begins. */
static size_t end_of_run(const unsigned char *at, size_t from, size_t limit, size_t left,
                         ddp_unicode_class class, size_t *before)
{
    size_t bytes;
    while (from < limit && ddp_unicode_read(at + from, left - from, &bytes) == class) {
        *before = from;
        from += bytes;
    }
    return from;
}

size_t ddp_bpe_split(const unsigned char *at, size_t left, bool last)
{
    size_t bytes, before = 0;
    /* The last three bytes may belong to a character that is not all there. */
    size_t limit = last ? left : left > 3 ? left - 3 : 0;
    if (limit == 0)
        return 0;
    if (at[0] == '\'' && (bytes = contraction(at, left)) > 0)
        return bytes;
    size_t skip = at[0] == ' ';
    if (skip >= left)
        return 1;
    ddp_unicode_class class = ddp_unicode_read(at + skip, left - skip, &bytes);
    if (class == DDP_UNICODE_SPACE)
        skip = 0;
    size_t end = end_of_run(at, skip, limit, left, class, &before);
    if (end >= limit && !last)
        return 0;
    /* White space leaves its last character to what follows, where there is more than that one. */
    return class == DDP_UNICODE_SPACE && end < left && before > 0 ? before : end;
}
