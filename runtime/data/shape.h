/* What a model wants against what a file has, in words. */
#ifndef DDP_RUNTIME_DATA_SHAPE_H
#define DDP_RUNTIME_DATA_SHAPE_H

#include <ddp/dataset.h>

/* INPUT: "format F makes MAKES; the model takes 64 f32 features and 1 class below 10". For a format that
 * cannot give this kind of sample at all. */
DDP_USE_RESULT ddp_error *ddp_shape_refuse(const char *format, const char *makes, const ddp_sample *want);

/* Whether the model takes windows of tokens and their successors. */
bool ddp_shape_is_tokens(const ddp_sample *want);

#endif
