/* What the flight recorder costs: a record, a phase, and all of a step, beside one look at the clock (which a
 * record needs anyway: issued, done). Usage: bench_flight [COLLECTIVES_A_STEP] */
#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/files.h"
#include "core/flight.h"

enum { ROUNDS = 20, COUNT = 20000 };

typedef struct bench {
    ddp_flight *flight;
    int collectives;
} bench;

static void look(bench *b)
{
    ddp_clock_now();
}

static void record(bench *b)
{
    static const ddp_flight_call call = {.op = DDP_FLIGHT_ALL_REDUCE, .count = 1000, .bytes = 4000};
    ddp_flight_done(b->flight, ddp_flight_issue(b->flight, &call));
}

static void phase(bench *b)
{
    ddp_flight_phase(b->flight, "load");
    ddp_flight_phase(b->flight, "forward");
}

static void step(bench *b)
{
    static const char *const phases[] = {"load", "forward", "backward", "comm", "step"};
    ddp_flight_step(b->flight, 1);
    for (int i = 0; i < 5; i++)
        ddp_flight_phase(b->flight, phases[i]);
    for (int i = 0; i < b->collectives; i++)
        record(b);
}

/* The best round, in ns a call: what others do on this machine only adds. */
static double measure(bench *b, void (*what)(bench *), int divide)
{
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double begun = ddp_clock_now();
        for (int i = 0; i < COUNT / divide; i++)
            what(b);
        double took = (ddp_clock_now() - begun) / (COUNT / divide) * 1e9;
        best = took < best ? took : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    char directory[] = "/tmp/ddp-bench-XXXXXX";
    bench b = {.collectives = argc > 1 ? atoi(argv[1]) : 12};
    if (mkdtemp(directory) == NULL)
        return 1;
    ddp_error *error = ddp_flight_open(directory, 0, 1, &b.flight);
    if (error == NULL) {
        double clock = measure(&b, look, 1), pair = measure(&b, record, 1), two = measure(&b, phase, 1);
        double whole = measure(&b, step, 10);
        printf("%-34s %8.1f ns\n", "a look at the clock", clock);
        printf("%-34s %8.1f ns  (%.1f x the clock)\n", "one record: issued or done", pair / 2,
               pair / 2 / clock);
        printf("%-34s %8.1f ns\n", "a phase begins", two / 2);
        printf("a step of %2d collectives %10s %8.1f ns  (%.3f %% of a step of 1 ms)\n", b.collectives, "",
               whole, whole / 1e6 * 100);
        ddp_flight_close(b.flight);
        error = ddp_tree_remove(directory);
    }
    if (error != NULL)
        ddp_error_print(error, "error", stderr);
    int code = ddp_error_exit_code(error);
    ddp_error_free(error);
    return code;
}
