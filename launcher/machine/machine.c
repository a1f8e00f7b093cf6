/* Reading the machine through hwloc and /proc. */
#include "launcher/machine/machine.h"
#include "core/memory.h"

#include <hwloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool open_topology(hwloc_topology_t *topology)
{
    if (hwloc_topology_init(topology) != 0)
        return false;
    if (hwloc_topology_set_all_types_filter(*topology, HWLOC_TYPE_FILTER_KEEP_NONE) == 0 &&
        hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
        hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
        hwloc_topology_load(*topology) == 0)
        return true;
    hwloc_topology_destroy(*topology);
    return false;
}

static int count_usable(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_bitmap_t within)
{
    int count = 0;
    for (hwloc_obj_t obj = NULL; (obj = hwloc_get_next_obj_by_type(topology, type, obj)) != NULL;)
        count += hwloc_bitmap_intersects(obj->cpuset, within);
    return count;
}

/* Some virtual machines tell of no cores: then each processor counts as one. */
static hwloc_obj_type_t core_type(hwloc_topology_t topology)
{
    return hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
}

static void read_node(hwloc_topology_t topology, hwloc_obj_t node, hwloc_const_bitmap_t usable,
                      ddp_machine *machine)
{
    hwloc_bitmap_t within = hwloc_bitmap_alloc();
    if (machine->node_count == DDP_MAX_NODES || within == NULL) {
        hwloc_bitmap_free(within);
        return;
    }
    ddp_machine_node *made = &machine->nodes[machine->node_count++];
    hwloc_bitmap_and(within, node->cpuset, usable);
    made->os_index = (int)node->os_index;
    made->cores = count_usable(topology, core_type(topology), within);
    made->bytes = (int64_t)node->attr->numanode.local_memory;
    hwloc_bitmap_list_snprintf(made->processors, sizeof made->processors, within);
    hwloc_bitmap_free(within);
}

static void read_model(hwloc_topology_t topology, ddp_machine *machine)
{
    hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    const char *name = package != NULL ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    snprintf(machine->model, sizeof machine->model, "%s", name != NULL ? name : "");
}

ddp_error *ddp_machine_read(ddp_machine *machine)
{
    hwloc_topology_t topology;
    ddp_machine read = {0};
    if (!open_topology(&topology))
        return ddp_error_make(DDP_ERR_MACHINE, "hwloc cannot read this machine");
    hwloc_bitmap_t usable = hwloc_bitmap_alloc();
    if (hwloc_get_cpubind(topology, usable, HWLOC_CPUBIND_PROCESS) != 0)
        hwloc_bitmap_copy(usable, hwloc_topology_get_topology_cpuset(topology));
    hwloc_bitmap_and(usable, usable, hwloc_topology_get_topology_cpuset(topology));
    gethostname(read.host, sizeof read.host - 1);
    read_model(topology, &read);
    read.packages = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE);
    read.cores = hwloc_get_nbobjs_by_type(topology, core_type(topology));
    read.processors = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
    read.usable_cores = count_usable(topology, core_type(topology), usable);
    read.usable_processors = count_usable(topology, HWLOC_OBJ_PU, usable);
    for (hwloc_obj_t node = NULL;
         (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL;)
        read_node(topology, node, usable, &read);
    read.bytes = ddp_memory_info("MemTotal");
    read.available_bytes = ddp_memory_info("MemAvailable");
    hwloc_bitmap_free(usable);
    hwloc_topology_destroy(topology);
    *machine = read;
    return NULL;
}
