/* The one suite that every communicator must pass, run by each rank on its own communicator: as a thread
 * (test_local), a forked process (comm_ranks shm) or an MPI rank (comm_ranks mpi). It uses no test library:
 * asserting in threads and in processes of mpirun is what those cannot do. */
#ifndef DDP_TESTS_COMM_CASES_H
#define DDP_TESTS_COMM_CASES_H

#include <ddp/comm.h>

/* Every operation, type, size, inside and outside of shared memory, single and in a row. False: said on
 * stderr. */
bool comm_cases_run(ddp_comm *comm);

/* Sums of numbers that do not add up exactly: one call against many, bit for bit. *digest is one of the
 * result's bits, to be compared between backends. */
bool comm_cases_bits(ddp_comm *comm, uint64_t *digest);

#endif
