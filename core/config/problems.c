/* A bounded collection of errors, given out in the order of the text they stand in. */
#include "core/config/problems.h"

#include <stdlib.h>

bool ddp_problems_full(const ddp_problems *problems)
{
    return problems->count >= DDP_MAX_PROBLEMS;
}

void ddp_problems_add(ddp_problems *problems, ddp_error *error, size_t order, size_t offset)
{
    if (error == NULL)
        return;
    size_t number = problems->count++;
    if (number >= DDP_MAX_PROBLEMS) {
        ddp_error_free(error);
        return;
    }
    problems->at[number].error = error;
    problems->at[number].order = order;
    problems->at[number].offset = offset;
    problems->at[number].number = number;
}

static bool is_before(const ddp_problems *problems, size_t a, size_t b)
{
    if (problems->at[a].order != problems->at[b].order)
        return problems->at[a].order < problems->at[b].order;
    if (problems->at[a].offset != problems->at[b].offset)
        return problems->at[a].offset < problems->at[b].offset;
    return problems->at[a].number < problems->at[b].number;
}

ddp_error *ddp_problems_take(ddp_problems *problems)
{
    ddp_error *all = NULL;
    size_t kept = problems->count < DDP_MAX_PROBLEMS ? problems->count : DDP_MAX_PROBLEMS;
    for (size_t taken = 0; taken < kept; taken++) {
        size_t first = kept;
        for (size_t i = 0; i < kept; i++)
            if (problems->at[i].error != NULL && (first == kept || is_before(problems, i, first)))
                first = i;
        all = ddp_error_join(all, problems->at[first].error);
        problems->at[first].error = NULL;
    }
    if (problems->count > kept)
        all = ddp_error_join(
            all, ddp_error_make(DDP_ERR_INPUT, "%zu more errors are not shown", problems->count - kept));
    problems->count = 0;
    return all;
}
