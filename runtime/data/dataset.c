/* What all dataset formats share. */
#include <inttypes.h>

#include "runtime/data/shape.h"

void ddp_dataset_close(ddp_dataset *dataset)
{
    if (dataset != NULL)
        dataset->ops->close(dataset);
}

bool ddp_shape_is_tokens(const ddp_sample *want)
{
    return want->input == DDP_I32 && want->target == DDP_I32 && want->target_count == want->input_count;
}

ddp_error *ddp_shape_refuse(const char *format, const char *makes, const ddp_sample *want)
{
    const char *input = want->input == DDP_I32 ? "tokens" : "features";
    const char *target = want->target == DDP_F32   ? "values"
                         : want->target_count == 1 ? "class"
                                                   : "next tokens";
    return ddp_error_make(DDP_ERR_INPUT,
                          "data.format: %s makes %s; the model takes %" PRId64 " %s %s and %" PRId64 " %s %s",
                          format, makes, want->input_count, ddp_dtype_name(want->input), input,
                          want->target_count, ddp_dtype_name(want->target), target);
}
