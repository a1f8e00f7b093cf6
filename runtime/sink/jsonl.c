/* events.jsonl: every record as one JSON line, for programs. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "core/events.h"
#include "core/memory.h"
#include "runtime/sink/sinks.h"

typedef struct jsonl_sink {
    ddp_sink base;
    char *run_dir;
    int rank;
    ddp_text line; /* kept, so that a step allocates nothing */
} jsonl_sink;

static ddp_error *open_sink(const ddp_sink_config *config, ddp_sink **sink)
{
    jsonl_sink *made;
    DDP_TRY(DDP_NEW(&made));
    made->base.ops = &ddp_sink_jsonl_ops;
    made->rank = config->rank;
    ddp_error *error = ddp_memory_text(config->run_dir, &made->run_dir);
    if (error != NULL) {
        free(made);
        return error;
    }
    *sink = &made->base;
    return NULL;
}

static void add_ranks(ddp_json *json, const ddp_record *record)
{
    ddp_json_open_array(json, "ranks");
    for (int i = 0; i < record->start.world; i++) {
        const ddp_rank_info *rank = &record->start.ranks[i];
        ddp_json_open_object(json, NULL);
        ddp_json_int(json, "rank", rank->rank);
        ddp_json_text(json, "host", rank->host);
        ddp_json_int(json, "pid", rank->pid);
        if (rank->gpu >= 0)
            ddp_json_int(json, "gpu", rank->gpu);
        else
            ddp_json_null(json, "gpu");
        ddp_json_text(json, "cores", rank->cores);
        ddp_json_close_object(json);
    }
    ddp_json_close_array(json);
}

static void add_start(ddp_json *json, const ddp_record *record)
{
    ddp_json_text(json, "version", DDP_VERSION);
    ddp_json_int(json, "world", record->start.world);
    ddp_json_text(json, "device", record->start.device_name);
    add_ranks(json, record);
    ddp_json_text(json, "model", record->start.model);
    ddp_json_int(json, "parameters", record->start.parameters);
    ddp_json_int(json, "global_batch", record->start.global_batch);
    ddp_json_int(json, "micro_batch", record->start.micro_batch);
    ddp_json_int(json, "accumulation", record->start.accumulation);
    ddp_json_int(json, "steps", record->start.steps);
    ddp_json_int(json, "steps_per_epoch", record->start.steps_per_epoch);
    ddp_json_int(json, "samples", record->start.samples);
    ddp_json_int(json, "dropped", record->start.dropped);
    ddp_json_text(json, "comm", record->start.comm);
    ddp_json_int(json, "buckets", record->start.buckets);
    ddp_json_text(json, "resumed_from", record->start.resumed_from);
    ddp_json_int(json, "resumed_step", record->start.resumed_step);
    ddp_json_float(json, "startup_s", record->start.startup_s);
}

static void add_step(ddp_json *json, const ddp_record *record)
{
    ddp_json_int(json, "step", record->step);
    ddp_json_int(json, "epoch", record->measured.epoch);
    ddp_json_float(json, "loss", record->measured.loss);
    ddp_json_float(json, "lr", record->measured.lr);
    ddp_json_float(json, "grad_norm", record->measured.grad_norm);
    ddp_json_int(json, "items", record->measured.items);
    ddp_json_float(json, "items_per_s", record->measured.items_per_s);
    ddp_json_float(json, "step_ms", record->measured.step_ms);
    ddp_json_open_object(json, "split_ms");
    ddp_json_float(json, "data", record->measured.data_ms);
    ddp_json_float(json, "forward", record->measured.forward_ms);
    ddp_json_float(json, "backward", record->measured.backward_ms);
    ddp_json_float(json, "comm_exposed", record->measured.comm_exposed_ms);
    ddp_json_float(json, "optimizer", record->measured.optimizer_ms);
    ddp_json_float(json, "other", record->measured.other_ms);
    ddp_json_close_object(json);
}

static void add_eval(ddp_json *json, const ddp_record *record)
{
    ddp_json_int(json, "step", record->step);
    ddp_json_float(json, "loss", record->eval.loss);
    ddp_json_int(json, "items", record->eval.items);
    if (isfinite(record->eval.accuracy))
        ddp_json_float(json, "accuracy", record->eval.accuracy);
}

static void add_trace(ddp_json *json, const ddp_record *record)
{
    char digest[24];
    ddp_json_int(json, "step", record->step);
    ddp_json_int(json, "rank", record->trace.rank);
    if (record->trace.samples != NULL) {
        ddp_json_open_array(json, "samples");
        for (int64_t i = 0; i < record->trace.count; i++)
            ddp_json_int(json, NULL, record->trace.samples[i]);
        ddp_json_close_array(json);
    }
    if (record->trace.has_checksum) {
        snprintf(digest, sizeof digest, "%016" PRIx64, record->trace.checksum);
        ddp_json_text(json, "checksum", digest);
    }
}

static void add_end(ddp_json *json, const ddp_record *record)
{
    ddp_json_text(json, "outcome", record->end.outcome);
    ddp_json_int(json, "steps", record->end.steps);
    ddp_json_int(json, "skipped", record->end.skipped);
    ddp_json_float(json, "seconds", record->end.seconds);
    ddp_json_int(json, "exit", record->end.exit);
    ddp_json_float(json, "loss", record->end.loss);
    ddp_json_float(json, "eval_loss", record->end.eval_loss);
    ddp_json_float(json, "accuracy", record->end.accuracy);
    ddp_json_text(json, "weights", record->end.weights);
}

static void add_checkpoint(ddp_json *json, const ddp_record *record)
{
    char path[64];
    snprintf(path, sizeof path, "checkpoints/%s", record->checkpoint.name);
    ddp_json_int(json, "step", record->step);
    ddp_json_text(json, "path", path);
    ddp_json_int(json, "bytes", record->checkpoint.bytes);
    ddp_json_float(json, "seconds", record->checkpoint.seconds);
    ddp_json_float(json, "blocked_s", record->checkpoint.blocked_s);
    ddp_json_bool(json, "committed", true);
}

static void add_skip(ddp_json *json, const ddp_record *record)
{
    ddp_json_int(json, "step", record->step);
    ddp_json_text(json, "reason", record->skip.reason);
    if (record->skip.rank >= 0)
        ddp_json_int(json, "rank", record->skip.rank);
    else
        ddp_json_null(json, "rank");
}

static const struct {
    const char *name;
    void (*add)(ddp_json *json, const ddp_record *record);
} kinds[] = {
    [DDP_RECORD_CHECKPOINT] = {"checkpoint", add_checkpoint},
    [DDP_RECORD_START] = {"start", add_start},
    [DDP_RECORD_STEP] = {"step", add_step},
    [DDP_RECORD_EVAL] = {"eval", add_eval},
    [DDP_RECORD_SKIP] = {"skip", add_skip},
    [DDP_RECORD_TRACE] = {"trace", add_trace},
    [DDP_RECORD_END] = {"end", add_end},
};

static ddp_error *write_sink(ddp_sink *sink, const ddp_record *record)
{
    jsonl_sink *jsonl = (jsonl_sink *)sink;
    if (jsonl->rank != 0 && record->kind != DDP_RECORD_TRACE)
        return NULL;
    ddp_json json = ddp_events_begin(&jsonl->line, kinds[record->kind].name, record->time);
    kinds[record->kind].add(&json, record);
    return ddp_events_append(jsonl->run_dir, &json);
}

static void close_sink(ddp_sink *sink)
{
    jsonl_sink *jsonl = (jsonl_sink *)sink;
    ddp_text_free(&jsonl->line);
    free(jsonl->run_dir);
    free(jsonl);
}

const ddp_sink_ops ddp_sink_jsonl_ops = {
    .name = "jsonl",
    .open = open_sink,
    .write = write_sink,
    .close = close_sink,
};
