/* The loader: threads of a rank that read training batches ahead of time into host buffers, in the sampler's
 * order. It is not the place where order is decided (sampler.h) and it knows no file format.
 *
 * One thread reads as fast as one core copies small parts out of the page cache; a rank that has cores to
 * spare takes more of them. All buffers are allocated by `open`; a batch costs no allocation. A failure of
 * the data set ends the threads; `next` first gives out the batches before it, then the failure, again and
 * again. Threads: open, next, release and close belong to one thread. */
#ifndef DDP_RUNTIME_DATA_LOADER_H
#define DDP_RUNTIME_DATA_LOADER_H

#include <ddp/dataset.h>
#include <ddp/device.h>

#include "runtime/data/sampler.h"

#define DDP_LOADER_THREADS 4 /* at most */

typedef struct ddp_loader ddp_loader;

/* Pointers are borrowed and outlive the loader. */
typedef struct ddp_loader_config {
    ddp_dataset *dataset;
    ddp_device *device; /* whose host memory the buffers are */
    ddp_sampler sampler;
    int rank, world;
    int64_t micro_batch, accumulation;
    int64_t first_step; /* from 1 */
    int64_t steps;      /* the last step, counted from 1 too */
    int64_t prefetch;   /* batches read ahead of the one in use */
    int threads;        /* that read; 0 = as many as the rank has cores to spare, at least 1 */
} ddp_loader_config;

/* One micro-batch of this rank, in host memory; valid until it is released. */
typedef struct ddp_loader_batch {
    const int64_t *ids;  /* (count) */
    const void *input;   /* (count, input_count) */
    const void *target;  /* (count, target_count) */
    int64_t count;       /* = micro_batch */
    int64_t step, micro; /* from 1; from 0 */
} ddp_loader_batch;

/* Allocates the buffers and starts the threads. MEMORY, IO (no thread). */
DDP_USE_RESULT ddp_error *ddp_loader_open(const ddp_loader_config *config, ddp_loader **loader);

/* Waits for the next batch. At most one is out at a time. Errors: whatever the data set's read says, with
 * the step it was for; FAULT or IO where DDP_FAULT asks for loader_error or short_read; INTERNAL behind the
 * last step. */
DDP_USE_RESULT ddp_error *ddp_loader_next(ddp_loader *loader, ddp_loader_batch *batch);

/* Gives the batch of the last `next` back to be filled again: the device must have read it by then. */
void ddp_loader_release(ddp_loader *loader);

/* Seconds that `next` has spent waiting so far: 0 while the loader keeps up. */
double ddp_loader_waited_s(const ddp_loader *loader);

/* Ends the threads (after the batches they may be reading) and frees everything. NULL is fine. */
void ddp_loader_close(ddp_loader *loader);

#endif
