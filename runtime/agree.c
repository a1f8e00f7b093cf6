/* Do all ranks mean the same thing? */
#include "runtime/agree.h"

#include <inttypes.h>

#define MAX_CLAIMS 16

/* Minimum of v and of ~v in one reduction: ~min(~v) is the maximum. */
static ddp_error *reduce(ddp_comm *comm, ddp_stream *stream, int64_t *values, int count)
{
    void *device;
    size_t bytes = (size_t)count * sizeof *values;
    DDP_TRY(ddp_device_alloc(comm->device, bytes, &device));
    ddp_stream_copy(stream, device, values, bytes);
    comm->tag = DDP_TAG_AGREE;
    ddp_error *error = ddp_comm_all_reduce(comm, stream, device, count, DDP_I64, DDP_MIN);
    if (error == NULL)
        error = ddp_stream_wait(stream);
    if (error == NULL) {
        ddp_stream_copy(stream, values, device, bytes);
        error = ddp_stream_wait(stream);
    }
    ddp_device_free(comm->device, device);
    return error;
}

ddp_error *ddp_agree(ddp_comm *comm, ddp_stream *stream, const ddp_claim *claims, int count)
{
    int64_t values[2 * MAX_CLAIMS];
    ddp_error *error = NULL;
    ddp_assert(count <= MAX_CLAIMS);
    for (int i = 0; i < count; i++) {
        values[i] = (int64_t)claims[i].value;
        values[count + i] = ~values[i];
    }
    DDP_TRY_AS(reduce(comm, stream, values, 2 * count), "comparing the ranks");
    for (int i = 0; i < count; i++) {
        uint64_t low = (uint64_t)values[i], high = (uint64_t)~values[count + i];
        if (low == high)
            continue;
        error = ddp_error_join(
            error, ddp_error_help(ddp_error_make(DDP_ERR_PEER,
                                                 "the ranks differ in %s: %016" PRIx64 " on one, %016" PRIx64
                                                 " on another, %016" PRIx64 " on rank %d",
                                                 claims[i].what, low, high, claims[i].value, comm->rank),
                                  "every rank must run the same executable on the same files"));
    }
    return error;
}

ddp_error *ddp_agree_all(ddp_comm *comm, ddp_stream *stream, bool mine, bool *all)
{
    int64_t value = mine;
    DDP_TRY_AS(reduce(comm, stream, &value, 1), "asking all ranks");
    *all = value != 0;
    return NULL;
}
