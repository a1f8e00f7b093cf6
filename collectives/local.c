/* Ranks as threads of one process. Every rank can reach every address, so no operation is ever staged. */
#include "collectives/local.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/comms.h"
#include "collectives/group.h"
#include "core/memory.h"

struct ddp_local_group {
    ddp_control *control;
    int ranks[DDP_MAX_LOCAL_RANKS];
};

ddp_error *ddp_local_group_make(int world, ddp_local_group **group)
{
    if (world < 1 || world > DDP_MAX_LOCAL_RANKS)
        return ddp_error_make(DDP_ERR_INPUT, "%d ranks as threads: 1 to %d are possible", world,
                              DDP_MAX_LOCAL_RANKS);
    ddp_local_group *made = NULL;
    DDP_TRY(DDP_NEW(&made));
    size_t bytes = ddp_control_bytes(world);
    made->control = aligned_alloc(4096, bytes);
    if (made->control == NULL) {
        free(made);
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory for a group of %d ranks", world);
    }
    memset(made->control, 0, bytes);
    ddp_control_init(made->control, world);
    for (int i = 0; i < world; i++)
        made->ranks[i] = i;
    *group = made;
    return NULL;
}

void ddp_local_group_free(ddp_local_group *group)
{
    if (group == NULL)
        return;
    free(group->control);
    free(group);
}

static void *reach(ddp_group *group, int seat, const ddp_call *call)
{
    return call->data;
}

static void close_local(ddp_comm *comm)
{
    ddp_group_close((ddp_group *)comm);
    free(comm);
}

static ddp_error *open_local(const ddp_comm_config *config, ddp_comm **comm)
{
    ddp_local_group *shared = config->group;
    if (shared == NULL || config->world != shared->control->world || config->rank < 0 ||
        config->rank >= config->world)
        return ddp_error_make(DDP_ERR_INTERNAL, "rank %d of %d does not belong to this group of threads",
                              config->rank, config->world);
    if (!config->device->ops->host_memory)
        return ddp_error_make(DDP_ERR_INTERNAL, "the local communicator works on host memory only");
    ddp_group *made = NULL;
    DDP_TRY(DDP_NEW(&made));
    made->base = (ddp_comm){.ops = &ddp_comm_local_ops,
                            .device = config->device,
                            .rank = config->rank,
                            .world = config->world,
                            .local_rank = config->rank,
                            .local_world = config->world,
                            .timeout_s = config->timeout_s};
    made->meet = (ddp_meet){
        .control = shared->control, .me = config->rank, .count = config->world, .ranks = shared->ranks};
    made->reach = reach;
    made->work = ddp_group_work;
    ddp_error *error = ddp_group_open(made);
    if (error != NULL)
        close_local(&made->base);
    else
        *comm = &made->base;
    return error;
}

static ddp_error *alloc(ddp_comm *comm, size_t bytes, void **memory)
{
    ddp_arena arena = {.bytes = bytes};
    DDP_TRY(ddp_group_may_alloc((ddp_group *)comm));
    DDP_TRY(ddp_device_alloc(comm->device, bytes, memory));
    arena.mine = *memory;
    return ddp_group_add_arena((ddp_group *)comm, &arena);
}

static void free_memory(ddp_comm *comm, void *memory)
{
    ddp_arena *arena = ddp_group_find_arena((ddp_group *)comm, memory);
    ddp_assert(arena != NULL);
    ddp_device_free(comm->device, memory);
    arena->mine = NULL;
}

const ddp_comm_ops ddp_comm_local_ops = {
    .name = "local",
    .open = open_local,
    .close = close_local,
    .alloc = alloc,
    .free = free_memory,
    .all_reduce = ddp_group_all_reduce,
    .reduce_scatter = ddp_group_reduce_scatter,
    .all_gather = ddp_group_all_gather,
    .broadcast = ddp_group_broadcast,
    .barrier = ddp_group_barrier,
    .health = ddp_group_health,
    .abort = ddp_group_abort,
};
