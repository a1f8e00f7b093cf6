/* Loading OpenBLAS; why so late, see blas.h. */
#include "core/device/cpu/blas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const names[] = {"libopenblas.so.0", "libopenblas.so", "libopenblasp.so.0"};

static void *load_library(void)
{
    void *library = NULL;
    for (size_t i = 0; library == NULL && i < sizeof names / sizeof *names; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return library;
}

ddp_error *ddp_blas_open(int threads, ddp_blas *blas)
{
    char count[16];
    snprintf(count, sizeof count, "%d", threads);
    setenv("OPENBLAS_NUM_THREADS", count, 1); /* read while it is being loaded */
    ddp_blas got = {.library = load_library()};
    if (got.library == NULL)
        return ddp_error_help(
            ddp_error_make(DDP_ERR_MACHINE, "the cpu needs OpenBLAS, which cannot be loaded: %s", dlerror()),
            "install it: Debian and Ubuntu libopenblas0, Fedora openblas");
    got.sgemm = (__typeof__(got.sgemm))dlsym(got.library, "cblas_sgemm");
    got.set_num_threads = (__typeof__(got.set_num_threads))dlsym(got.library, "openblas_set_num_threads");
    if (got.sgemm == NULL || got.set_num_threads == NULL) {
        dlclose(got.library);
        return ddp_error_make(DDP_ERR_MACHINE, "the OpenBLAS of this machine lacks %s",
                              got.sgemm == NULL ? "cblas_sgemm" : "openblas_set_num_threads");
    }
    got.set_num_threads(threads);
    *blas = got;
    return NULL;
}

void ddp_blas_close(ddp_blas *blas)
{
    if (blas->library != NULL)
        dlclose(blas->library);
    *blas = (ddp_blas){0};
}
