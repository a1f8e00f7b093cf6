/* The trainer's checkpoints: when one is due, what goes into it, what becomes of its errors. */
#ifndef DDP_RUNTIME_SAVES_H
#define DDP_RUNTIME_SAVES_H

#include "runtime/trainer_parts.h"

/* Collective: loads what the run goes on from, if anything: weights, slots, and the trainer's counters. */
DDP_USE_RESULT ddp_error *trainer_resume(ddp_trainer *trainer);

/* Makes ready to save, where checkpoint.every asks for it. */
DDP_USE_RESULT ddp_error *trainer_open_saves(ddp_trainer *trainer);
void trainer_close_saves(ddp_trainer *trainer);

/* Whether a checkpoint is due after this step. */
bool trainer_save_due(const ddp_trainer *trainer, int64_t step);

/* Collective: begins one, after the last one has ended. */
DDP_USE_RESULT ddp_error *trainer_save(ddp_trainer *trainer, int64_t step);

/* Reports a save that has ended; with `wait`, waits for it. A failed one is a warning or, with
 * checkpoint.on_error fail, an error. */
DDP_USE_RESULT ddp_error *trainer_end_save(ddp_trainer *trainer, bool wait);

#endif
