/* OpenBLAS, loaded when a device is opened and not before.
 *
 * Linked in the ordinary way it would start a thread a core in every process, launcher included, and each of
 * them spins for about 0.1 s before it first sleeps (0.3.21: measured 0.1 s of processor time a thread).
 * Loaded late, it makes just the threads that the rank was given, after the rank was bound to its cores. */
#ifndef DDP_CORE_DEVICE_CPU_BLAS_H
#define DDP_CORE_DEVICE_CPU_BLAS_H

#include <cblas.h>

#include <ddp/error.h>

typedef struct ddp_blas {
    void *library;
    __typeof__(cblas_sgemm) *sgemm;
    __typeof__(openblas_set_num_threads) *set_num_threads; /* of the whole process */
} ddp_blas;

/* Loads it and sets its threads. MACHINE: not installed, or not an OpenBLAS. */
DDP_USE_RESULT ddp_error *ddp_blas_open(int threads, ddp_blas *blas);
void ddp_blas_close(ddp_blas *blas); /* it stays in the process: its threads cannot be unloaded */

#endif
