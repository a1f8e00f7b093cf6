/* Time: monotonic for intervals, Unix for people, and sleeping. */
#ifndef DDP_CORE_CLOCK_H
#define DDP_CORE_CLOCK_H

double ddp_clock_now(void);  /* monotonic seconds; the same clock in every process of a host */
double ddp_clock_unix(void); /* seconds since 1970 */
void ddp_clock_sleep(double seconds);

#endif
