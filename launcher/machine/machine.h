/* This machine as ddprun sees it: processors, memory, what may be used. CPU side only. */
#ifndef DDP_LAUNCHER_MACHINE_H
#define DDP_LAUNCHER_MACHINE_H

#include <stdint.h>

#include <ddp/error.h>

#define DDP_MAX_NODES 64

typedef struct ddp_machine_node {
    int os_index;         /* NUMA node */
    int cores;            /* physical, that may be used */
    char processors[256]; /* logical processors that may be used, "0-3,8-11" */
    int64_t bytes;        /* memory, 0 = not said */
} ddp_machine_node;

typedef struct ddp_machine {
    char host[256], model[128];          /* model "" = not said */
    int packages, cores, processors;     /* that the machine has */
    int usable_cores, usable_processors; /* that this process may use */
    int64_t bytes, available_bytes;      /* memory: all of it; what new work may take now */
    ddp_machine_node nodes[DDP_MAX_NODES];
    int node_count;
} ddp_machine;

/* MACHINE: hwloc failed. */
DDP_USE_RESULT ddp_error *ddp_machine_read(ddp_machine *machine);

#endif
