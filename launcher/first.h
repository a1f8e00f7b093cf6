/* Which rank failed first, among ranks that no launcher of ours watches: those of a person's own mpirun. They
 * may be on several hosts and share nothing but the run directory, so that is where it is decided: rank 0
 * marks logs/ as this job's, and whoever creates logs/first-failure was first. Both files carry mpirun's name
 * of the job: what an earlier one left never counts. Where the run directory is not shared, nobody is first.
 */
#ifndef DDP_LAUNCHER_FIRST_H
#define DDP_LAUNCHER_FIRST_H

#include <stdbool.h>

#include <ddp/error.h>

/* Rank 0, once it has made the run directory; and at the end, when nobody needs the mark any more. IO. */
DDP_USE_RESULT ddp_error *ddp_first_announce(const char *run_dir);
void ddp_first_forget(const char *run_dir);

/* Whether logs/ is there and this job's. */
bool ddp_first_ready(const char *run_dir);

/* Whether this is the job's first failure; `code` is what the job is to return. */
bool ddp_first_take(const char *run_dir, int rank, int code);

/* The first failure, if there was one. */
bool ddp_first_ask(const char *run_dir, int *rank, int *code);

#endif
