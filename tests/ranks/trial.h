/* Small trainings inside one process: N ranks as threads over the `local` communicator, a model whose loss
 * is w . x, and samples given by the test. For what must be true whatever the layout. */
#ifndef DDP_TESTS_TRIAL_H
#define DDP_TESTS_TRIAL_H

#include <stdint.h>

#include <ddp/ddp.h>

#define TRIAL_MAX 64

/* Sample i is x = at[i], counted unless masked. The model finds it right when x[0] > 0. */
typedef struct trial_sample {
    float x[2];
    int masked;
} trial_sample;

typedef struct trial {
    const trial_sample *samples;
    int count;
    const char *overrides[16]; /* of the job, NULL at the end */
    int world;
    /* what came out */
    float weights[2];  /* of rank 0; all ranks were compared */
    double loss, norm; /* of the last step */
    int64_t steps, skipped;
    double accuracy;
    int64_t eval_items;
    int64_t ids[TRIAL_MAX][TRIAL_MAX]; /* global batch of each step, rank after rank */
} trial;

/* Runs it; the error of the first rank that had one. */
DDP_USE_RESULT ddp_error *trial_run(trial *trial);

#endif
