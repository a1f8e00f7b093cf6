/* One rank's life: who am I -> bind -> device, comm, model, data, optimizer -> agree -> train -> close.
 *
 * How the launcher tells a rank who it is: environment variables of the `ddprun rank RUN_DIR` process.
 *   DDP_RANK DDP_WORLD DDP_LOCAL_RANK DDP_LOCAL_WORLD   numbers. Absent under mpirun: then
 *                        OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE say it
 *   DDP_RENDEZVOUS_FD    fd number of the inherited rendezvous (one host, started by ddprun itself)
 *   DDP_TERMINAL         width of the terminal behind the launcher; absent or 0: plain lines
 *   DDP_CONTROL          where the launcher listens (channel.h); absent: nobody does
 *   DDP_ATTEMPT          1, and one more at each restart
 *   DDP_STARTED          ddp_clock_now() of the launcher's first line, as text
 * Everything else comes from RUN_DIR/resolved.yaml; the variables of launch.env are set from there by the
 * rank itself, so they arrive byte for byte on every host.
 *
 * What a rank writes: results for a person on stdout (rank 0 only), log on stderr. On stdout a line that
 * begins with 0x1e (record separator) is a live status line: the launcher shows it in place on a terminal
 * and drops it elsewhere; it is never stored. */
#ifndef DDP_RUNTIME_RANK_H
#define DDP_RUNTIME_RANK_H

#include <stdbool.h>

#include <ddp/job.h>

typedef struct ddp_rank_config {
    int rank, world, local_rank, local_world;
    const char *run_dir; /* exists */
    int rendezvous_fd;   /* -1 = none: meet through MPI, or alone */
    bool mpi;            /* started by mpirun */
    int width;           /* terminal, 0 = none */
    double started;      /* ddp_clock_now() when the launcher began */
} ddp_rank_config;

/* Reads the environment described above. False: this process is not a rank at all (neither DDP_RANK nor
 * OMPI_COMM_WORLD_RANK is there). INPUT: half of it is there, or it is no number. */
DDP_USE_RESULT ddp_error *ddp_rank_identify(ddp_rank_config *config, bool *is_rank);

#define DDP_EXIT_SAVED 75 /* stopped after a complete checkpoint: run again to go on */

/* Lives the rank's life. NULL = trained to the end (*code 0), or asked to stop and did (*code:
 * DDP_EXIT_SAVED, or 128 + the signal where nothing was saved). The caller prints the error and exits with
 * its code. */
DDP_USE_RESULT ddp_error *ddp_rank_run(const ddp_job *job, const ddp_rank_config *config, int *code);

#endif
