/* Evaluation: every item of the validation set once, whatever the number of ranks. */
#include "core/fault.h"
#include "runtime/data/sampler.h"
#include "runtime/trainer_parts.h"

/* This rank's slice, in batches; the last one may be shorter, and there may be none at all. */
static ddp_error *add_slice(ddp_trainer *trainer)
{
    const ddp_setup *setup = trainer->env.setup;
    ddp_dataset *dataset = setup->validation;
    int64_t begin, end;
    ddp_sampler_slice(dataset->count, trainer->env.comm->rank, trainer->env.comm->world, &begin, &end);
    for (int64_t at = begin; at < end; at += setup->eval_batch) {
        int64_t count = end - at < setup->eval_batch ? end - at : setup->eval_batch;
        for (int64_t i = 0; i < count; i++)
            trainer->eval.ids[i] = at + i;
        DDP_TRY_AS(
            dataset->ops->read(dataset, trainer->eval.ids, count, trainer->eval.input, trainer->eval.target),
            "reading the validation set");
        for (int64_t first = 0; first < count; first += setup->tile) {
            ddp_batch batch = trainer_batch(trainer, trainer->eval.input, trainer->eval.target, first,
                                            count - first < setup->tile ? count - first : setup->tile);
            DDP_TRY(trainer->model->ops->forward(trainer->model, &batch, 0, &trainer->totals->loss));
        }
        DDP_TRY(ddp_stream_wait(trainer->compute)); /* the host buffers are filled again */
    }
    return NULL;
}

ddp_error *trainer_evaluate(ddp_trainer *trainer, ddp_loss *totals)
{
    trainer_phase(trainer, "eval");
    ddp_stream_zero(trainer->compute, trainer->totals, sizeof *trainer->totals);
    DDP_TRY_AS(add_slice(trainer), "evaluating");
    DDP_TRY(ddp_stream_wait(trainer->compute));
    trainer->env.comm->tag = DDP_TAG_EVAL;
    DDP_TRY_AS(ddp_comm_all_reduce(trainer->env.comm, trainer->comm_stream, trainer->totals,
                                   sizeof *totals / sizeof(double), DDP_F64, DDP_SUM),
               "adding up the evaluation of all ranks");
    DDP_TRY(ddp_stream_wait(trainer->comm_stream));
    ddp_stream_copy(trainer->compute, totals, trainer->totals, sizeof *totals);
    return ddp_stream_wait(trainer->compute);
}
