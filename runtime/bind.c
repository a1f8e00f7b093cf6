/* A rank's share of this host's cores. It decides nothing about GPUs or network cards, and it never leaves
 * the cores that the caller was given (cpuset, taskset, or mpirun's own binding).
 *
 * The share is cut from the allowed physical cores in hwloc's logical order, which goes through NUMA nodes
 * one after another, so that a share crosses a node only where the numbers force it. */
#include "runtime/bind.h"

#include <hwloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

typedef struct cores {
    hwloc_topology_t topology;
    hwloc_bitmap_t allowed; /* logical processors this process may use */
    int count;              /* physical cores that have at least one of them */
} cores;

static void close_cores(cores *cores)
{
    if (cores->allowed != NULL)
        hwloc_bitmap_free(cores->allowed);
    if (cores->topology != NULL)
        hwloc_topology_destroy(cores->topology);
}

/* Only cores, processors and NUMA nodes: reading devices and caches would cost more than all the rest. */
static bool load_topology(hwloc_topology_t *topology)
{
    if (hwloc_topology_init(topology) != 0) {
        *topology = NULL;
        return false;
    }
    return hwloc_topology_set_all_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_NONE) == 0 &&
           hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
           hwloc_topology_load(*topology) == 0;
}

/* The next core (or, where the system tells of no cores, processor) that may be used. */
static hwloc_obj_t next_core(const cores *cores, hwloc_obj_t core)
{
    hwloc_obj_type_t type =
        hwloc_get_nbobjs_by_type(cores->topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    do
        core = hwloc_get_next_obj_by_type(cores->topology, type, core);
    while (core != NULL && !hwloc_bitmap_intersects(core->cpuset, cores->allowed));
    return core;
}

static ddp_error *open_cores(cores *cores)
{
    if (!load_topology(&cores->topology) || (cores->allowed = hwloc_bitmap_alloc()) == NULL)
        return ddp_error_make(DDP_ERR_MACHINE, "hwloc cannot read this machine's cores");
    /* A system that does not say where we may run lets us run everywhere. */
    if (hwloc_get_cpubind(cores->topology, cores->allowed, HWLOC_CPUBIND_PROCESS) != 0)
        hwloc_bitmap_copy(cores->allowed, hwloc_topology_get_topology_cpuset(cores->topology));
    hwloc_bitmap_and(cores->allowed, cores->allowed, hwloc_topology_get_topology_cpuset(cores->topology));
    for (hwloc_obj_t core = next_core(cores, NULL); core != NULL; core = next_core(cores, core))
        cores->count++;
    if (cores->count == 0)
        return ddp_error_make(DDP_ERR_MACHINE, "hwloc finds no core that this process may use");
    return NULL;
}

/* The NUMA node that holds all of `set`, or -1. */
static int find_node(hwloc_topology_t topology, hwloc_const_bitmap_t set)
{
    for (hwloc_obj_t node = NULL;
         (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL;)
        if (hwloc_bitmap_isincluded(set, node->cpuset))
            return (int)node->os_index;
    return -1;
}

static void describe_share(const cores *cores, hwloc_const_bitmap_t set, int count, ddp_bind_share *share)
{
    *share =
        (ddp_bind_share){.count = count, .allowed = cores->count, .numa = find_node(cores->topology, set)};
    hwloc_bitmap_to_ulongs(set, DDP_BIND_WORDS, share->set);
    if (hwloc_bitmap_list_snprintf(share->cores, sizeof share->cores, set) >= (int)sizeof share->cores)
        memcpy(share->cores + sizeof share->cores - 4, "...", 4);
}

/* Cores [first, first + count) of the allowed ones; all of them for count 0. */
static ddp_error *cut_share(const cores *cores, int first, int count, ddp_bind_share *share)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    int index = 0;
    if (set == NULL)
        return ddp_error_make(DDP_ERR_MEMORY, "out of memory");
    for (hwloc_obj_t core = next_core(cores, NULL); core != NULL; core = next_core(cores, core), index++)
        if (count == 0 || (index >= first && index < first + count))
            hwloc_bitmap_or(set, set, core->cpuset);
    hwloc_bitmap_and(set, set, cores->allowed);
    describe_share(cores, set, count, share);
    hwloc_bitmap_free(set);
    return NULL;
}

/* mpirun's --bind-to gave this rank cores of its own already: it keeps them. */
static bool bound_by_mpirun(void)
{
    const char *bound = getenv("OMPI_MCA_orte_bound_at_launch");
    return bound != NULL && strcmp(bound, "1") == 0;
}

static ddp_error *plan_share(const cores *cores, int local_rank, int local_world, ddp_bind_share *share)
{
    if (local_world > 1 && bound_by_mpirun())
        return cut_share(cores, 0, cores->count, share);
    int each = cores->count / local_world;
    return cut_share(cores, local_rank * each, each, share);
}

ddp_error *ddp_bind_plan(int local_rank, int local_world, ddp_bind_share *share)
{
    cores cores = {0};
    ddp_error *error = open_cores(&cores);
    if (error == NULL)
        error = plan_share(&cores, local_rank, local_world, share);
    close_cores(&cores);
    return error;
}

ddp_error *ddp_bind_plan_all(int local_world, ddp_bind_share *shares)
{
    cores cores = {0};
    ddp_error *error = open_cores(&cores);
    for (int rank = 0; rank < local_world && error == NULL; rank++)
        error = plan_share(&cores, rank, local_world, &shares[rank]);
    close_cores(&cores);
    return error;
}

ddp_error *ddp_bind_apply(const ddp_bind_share *share, bool *bound)
{
    cpu_set_t mask[sizeof share->set / (sizeof(cpu_set_t))];
    _Static_assert(sizeof mask == sizeof share->set, "a cpu_set_t is an array of unsigned long");
    memcpy(mask, share->set, sizeof mask);
    *bound = sched_setaffinity(0, sizeof mask, mask) == 0;
    return NULL;
}
