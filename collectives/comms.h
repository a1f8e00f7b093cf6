/* The communicators of this folder; mpi only where DDP_WITH_MPI is 1. */
#ifndef DDP_COLLECTIVES_COMMS_H
#define DDP_COLLECTIVES_COMMS_H

#include <ddp/comm.h>

extern const ddp_comm_ops ddp_comm_self_ops;
extern const ddp_comm_ops ddp_comm_local_ops;
extern const ddp_comm_ops ddp_comm_shm_ops;
extern const ddp_comm_ops ddp_comm_mpi_ops;

#endif
