/* Did the kernel end a process because memory had run out? Asked of whoever may be asked: the kernel's log
 * names the process; the memory cgroup of this process only counts. */
#ifndef DDP_LAUNCHER_OOM_H
#define DDP_LAUNCHER_OOM_H

#include <stdbool.h>
#include <stdint.h>

/* How many processes of our cgroup the kernel has ended for memory so far; -1 = it does not say. */
int64_t ddp_oom_count(void);

/* Whether the log says it of this process, later than `since` (ddp_clock_now()). False also where the log may
 * not be read. */
bool ddp_oom_logged(int pid, double since);

/* The same of one record as /dev/kmsg gives it: "6,1234,56789,-;Memory cgroup out of memory: Killed process
 * 4711 (ddprun) total-vm:..." */
bool ddp_oom_names(const char *record, int pid, double since);

#endif
