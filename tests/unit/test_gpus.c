/* Which GPUs CUDA_VISIBLE_DEVICES leaves, as the CUDA programming guide says; and asking a machine that has
 * none. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/nvml.h"
#include "support/test.h"

static const ddp_gpu four[] = {
    {.uuid = "GPU-5bfda7ef-0000-4000-8000-000000000001"},
    {.uuid = "GPU-5bfd1111-0000-4000-8000-000000000002"},
    {.uuid = "GPU-a0000000-0000-4000-8000-000000000003"},
    {.uuid = "GPU-b0000000-0000-4000-8000-000000000004"},
};

static const struct {
    const char *visible;
    const char *chosen; /* indices */
} rows[] = {
    {NULL, "0123"},
    {"", ""},
    {"-1", ""},
    {"2,0", "20"},
    {"0,2,-1,1", "02"}, /* up to the first that names none */
    {"0,0", ""},
    {" 1 , 3 ", "13"},
    {"99", ""},
    {"1,99,2", "1"},
    {"GPU-5bfda7ef", "0"},
    {"GPU-a,GPU-b", "23"},
    {"GPU-5bfd", ""}, /* two begin so */
    {"GPU-", ""},
    {"GPU-c", ""},
    {"MIG-x", ""},
    {"1;2", ""},
    {"3,", "3"},
    {"0,1,2,3,0", "0123"},
};

Test(gpus, visible_ones_are_chosen_in_order, .timeout = 10)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int chosen[4];
        char text[8] = "";
        int count = ddp_gpus_choose(rows[i].visible, four, 4, chosen);
        for (int n = 0; n < count; n++)
            text[n] = (char)('0' + chosen[n]);
        cr_assert_str_eq(text, rows[i].chosen, "\"%s\" gives \"%s\"",
                         rows[i].visible ? rows[i].visible : "unset", text);
    }
}

Test(gpus, asking_never_fails_and_leaves_signals_alone, .timeout = 30)
{
    ddp_gpus gpus;
    sigset_t before, after;
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    ddp_gpus_read(&gpus);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    cr_assert_eq(gpus.count, 0);
    cr_assert(gpus.why[0] != '\0' && gpus.help != NULL);
    cr_assert_eq(sigismember(&before, SIGCHLD), sigismember(&after, SIGCHLD));
}
