/* Everything that is wrong with a job, collected so that a person sees all of it at once. */
#ifndef DDP_CORE_PROBLEMS_H
#define DDP_CORE_PROBLEMS_H

#include <stdbool.h>
#include <stddef.h>

#include <ddp/error.h>

#define DDP_MAX_PROBLEMS 50

/* Zeroed = empty. */
typedef struct ddp_problems {
    struct {
        ddp_error *error;
        size_t order, offset, number; /* text it stands in, byte in it, how many came before */
    } at[DDP_MAX_PROBLEMS];
    size_t count; /* found; those above DDP_MAX_PROBLEMS are counted only */
} ddp_problems;

/* Whether one more would only be counted: then its advice need not be worked out. */
bool ddp_problems_full(const ddp_problems *problems);

/* Takes over `error` (NULL is fine). `order` and `offset` say where it is shown among the others. */
void ddp_problems_add(ddp_problems *problems, ddp_error *error, size_t order, size_t offset);

/* All of them as one error, in the order of the text, NULL when there are none; empties the collection. */
DDP_USE_RESULT ddp_error *ddp_problems_take(ddp_problems *problems);

#endif
