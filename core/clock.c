/* Time. */
#include "core/clock.h"

#include <time.h>

static double read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double ddp_clock_now(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double ddp_clock_unix(void)
{
    return read_clock(CLOCK_REALTIME);
}

void ddp_clock_sleep(double seconds)
{
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) != 0) {
    }
}
