/* The shared block: layout and the words ranks leave in it. Who waits for whom is in meet.c. */
#include "collectives/control.h"

#include <string.h>
#include <unistd.h>

enum { PAGE = 4096 };
static const uint64_t magic = 0x3174736576646472; /* also a version: change it with the layout */

static size_t seats_offset(void)
{
    return (sizeof(ddp_control) + alignof(ddp_seat) - 1) / alignof(ddp_seat) * alignof(ddp_seat);
}

size_t ddp_control_bytes(int world)
{
    size_t bytes = seats_offset() + (size_t)world * sizeof(ddp_seat);
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

void ddp_control_init(void *memory, int world)
{
    ddp_control *control = memory;
    control->world = world;
    control->culprit = -1;
    control->magic = magic;
}

bool ddp_control_valid(const ddp_control *control)
{
    return control->magic == magic && control->world >= 1 && control->world <= DDP_MAX_LOCAL_RANKS;
}

ddp_seat *ddp_control_seat(const ddp_control *control, int seat)
{
    return (ddp_seat *)((char *)control + seats_offset()) + seat;
}

void ddp_control_tell(ddp_control *control, int seat, const char *phase, int64_t step)
{
    ddp_told *told = &control->told[seat];
    if (atomic_load_explicit(&told->pid, memory_order_relaxed) == 0)
        atomic_store_explicit(&told->pid, (int32_t)getpid(), memory_order_relaxed);
    if (step >= 0)
        atomic_store_explicit(&told->step, step, memory_order_relaxed);
    if (phase != NULL) {
        uint64_t words[2] = {0, 0};
        memcpy(words, phase, strnlen(phase, sizeof words - 1));
        atomic_store_explicit(&told->phase[0], words[0], memory_order_relaxed);
        atomic_store_explicit(&told->phase[1], words[1], memory_order_relaxed);
    }
}

ddp_rendezvous_status ddp_control_ask(const ddp_control *control, int seat)
{
    const ddp_told *told = &control->told[seat];
    ddp_rendezvous_status status = {
        .pid = atomic_load_explicit(&told->pid, memory_order_relaxed),
        .step = atomic_load_explicit(&told->step, memory_order_relaxed),
    };
    uint64_t words[2] = {
        atomic_load_explicit(&told->phase[0], memory_order_relaxed),
        atomic_load_explicit(&told->phase[1], memory_order_relaxed),
    };
    memcpy(status.phase, words, sizeof status.phase);
    status.phase[sizeof status.phase - 1] = '\0';
    return status;
}

void ddp_control_abort(ddp_control *control, int culprit, const char *why)
{
    int32_t expected = 0;
    if (!atomic_compare_exchange_strong(&control->aborted, &expected, 1))
        return;
    control->culprit = culprit;
    size_t length = strnlen(why, sizeof control->why - 1);
    memcpy(control->why, why, length);
    control->why[length] = '\0';
    atomic_store_explicit(&control->aborted, 2, memory_order_release);
}

bool ddp_control_aborted(const ddp_control *control, int *culprit, const char **why)
{
    if (atomic_load_explicit(&control->aborted, memory_order_acquire) != 2)
        return false;
    if (culprit != NULL)
        *culprit = control->culprit;
    if (why != NULL)
        *why = control->why;
    return true;
}
