/* Open MPI's mpirun, which starts ranks on other hosts: whether it is there, how it is called, and what it
 * says when a rank fails. Its own words go to RUN_DIR/logs/mpirun.log and never to the person. */
#ifndef DDP_LAUNCHER_MPIRUN_H
#define DDP_LAUNCHER_MPIRUN_H

#include <sys/types.h>

#include "launcher/plan.h"

/* Finds mpirun in $PATH and asks its version. *path is freed with free(). Errors: MACHINE (none there, one
 * that is not Open MPI's, a build without MPI), INPUT (uid 0 and launch.allow_root false). */
DDP_USE_RESULT ddp_error *ddp_mpirun_find(const ddp_job *job, char **path);

/* The command line that starts `ddprun rank RUN_DIR` as planned; freed with ddp_mpirun_free_arguments. */
/* `session` is a directory of this host for mpirun's own files. */
DDP_USE_RESULT ddp_error *ddp_mpirun_arguments(const ddp_plan *plan, const char *mpirun, const char *program,
                                               const char *session, char ***arguments);
void ddp_mpirun_free_arguments(char **arguments); /* NULL is fine */

/* Which rank failed first, as mpirun's words tell it. */
typedef struct ddp_mpirun_failure {
    int rank;         /* -1 = it does not say */
    int signal, code; /* one of them, 0 otherwise */
    int pid;          /* 0 = it does not say */
} ddp_mpirun_failure;
ddp_mpirun_failure ddp_mpirun_diagnose(const char *log);

#endif
