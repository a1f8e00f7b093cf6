/* How fast the loader turns a file of token ids into batches, in bytes of that file a second:
 *
 *     bench_loader make FILE WIDTH MIB       a file of that size with llm.c's header; WIDTH 2 or 4
 *     bench_loader FILE WINDOW SAMPLES THREADS ORDER
 *                                            batches of SAMPLES windows, ORDER shuffled or file; prints GB/s,
 *                                            the best of several epochs
 *
 * The batches are taken and given back, not looked at: what is measured is the loader itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/device/devices.h"
#include "core/files.h"
#include "runtime/data/datasets.h"
#include "runtime/data/loader.h"
#include "runtime/data/token_file.h"

enum { ROUNDS = 5, BLOCK = 1 << 18 };

static ddp_error *make(const char *path, int width, int64_t mib)
{
    static int32_t ids[BLOCK];
    static unsigned char bytes[BLOCK * 4];
    int64_t blocks = (mib << 20) / width / BLOCK;
    ddp_draft draft;
    for (int i = 0; i < BLOCK; i++)
        ids[i] = (int32_t)((uint32_t)i * 2654435761u % 50257);
    DDP_TRY(ddp_draft_open(path, &draft));
    ddp_token_file_make_header(width, blocks * BLOCK, bytes);
    ddp_error *error = ddp_file_write(draft.fd, path, bytes, DDP_TOKEN_HEADER_BYTES);
    ddp_token_file_pack(width, ids, BLOCK, bytes);
    for (int64_t i = 0; i < blocks && error == NULL; i++)
        error = ddp_file_write(draft.fd, path, bytes, (size_t)(BLOCK * width));
    if (error == NULL)
        return ddp_draft_commit(&draft);
    ddp_draft_discard(&draft);
    return error;
}

typedef struct options {
    int64_t window, samples;
    int threads;
    bool shuffle;
} options;

/* One epoch. */
static ddp_error *measure(ddp_dataset *dataset, ddp_device *device, const options *options, double *seconds)
{
    ddp_loader *loader;
    ddp_loader_batch batch;
    int64_t samples = options->samples, steps = dataset->count / samples;
    ddp_loader_config config = {
        .dataset = dataset,
        .device = device,
        .sampler = {.count = dataset->count, .seed = 1, .shuffle = options->shuffle, .global_batch = samples},
        .world = 1,
        .micro_batch = samples,
        .accumulation = 1,
        .first_step = 1,
        .steps = steps,
        .prefetch = 3,
        .threads = options->threads,
    };
    DDP_TRY(ddp_loader_open(&config, &loader));
    double begin = ddp_clock_now();
    ddp_error *error = NULL;
    for (int64_t step = 0; step < steps && error == NULL; step++) {
        error = ddp_loader_next(loader, &batch);
        if (error == NULL)
            ddp_loader_release(loader);
    }
    *seconds = ddp_clock_now() - begin;
    ddp_loader_close(loader);
    return error;
}

static ddp_error *run(const char *path, const options *options)
{
    int dtype = 0; /* the one setting of the format: the header says it */
    ddp_device *device = NULL;
    ddp_dataset *dataset = NULL;
    ddp_token_file file = {0};
    int64_t window = options->window, samples = options->samples;
    double best = 1e9, seconds;
    ddp_error *error = NULL;
    ddp_device_config cpu = {.threads = 1, .compute = DDP_F32};
    ddp_dataset_config config = {
        .settings = &dtype, .path = path, .want = {DDP_I32, window, DDP_I32, window, 50257, window}};
    DDP_GO(ddp_device_cpu_ops.open(&cpu, &device));
    DDP_GO(ddp_token_file_open(path, 0, "", &file));
    DDP_GO(ddp_dataset_tokens_ops.open(&config, &dataset));
    for (int round = 0; round < ROUNDS; round++) {
        DDP_GO(measure(dataset, device, options, &seconds));
        best = seconds < best ? seconds : best;
    }
    printf("%.2f\n", (double)(dataset->count / samples * samples * window * file.width) / best * 1e-9);
out:
    ddp_token_file_close(&file);
    ddp_dataset_close(dataset);
    ddp_device_close(device);
    return error;
}

int main(int argc, char **argv)
{
    ddp_error *error = NULL;
    if (argc == 5 && strcmp(argv[1], "make") == 0)
        error = make(argv[2], atoi(argv[3]), atoll(argv[4]));
    else if (argc == 6)
        error = run(argv[1], &(options){.window = atoll(argv[2]),
                                        .samples = atoll(argv[3]),
                                        .threads = atoi(argv[4]),
                                        .shuffle = strcmp(argv[5], "file") != 0});
    else
        error =
            ddp_error_make(DDP_ERR_INPUT, "usage: bench_loader FILE WINDOW SAMPLES THREADS shuffled|file, or "
                                          "make FILE WIDTH MIB");
    int code = ddp_error_exit_code(error);
    if (error != NULL)
        ddp_error_print(error, "error", stderr);
    ddp_error_free(error);
    return code;
}
