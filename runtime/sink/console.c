/* What a person reads: a start block, progress, evaluations, an end block; on rank 0's stdout.
 *
 * With a terminal behind the launcher (width > 0) progress is one live line, sent as a status line (see
 * runtime/rank.h) and redrawn in place; elsewhere it is one plain line every metrics.every steps. */
#include <ddp/ddp.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/files.h"
#include "core/memory.h"
#include "core/text.h"
#include "runtime/sink/sinks.h"

#define STATUS_INTERVAL_S 0.1 /* a person reads no faster */

typedef struct console_sink {
    ddp_sink base;
    int width;
    int64_t every, steps;
    double last_status; /* monotonic time of the last live line */
    double first_time;  /* Unix time and number of the first step seen: the base of ETA */
    int64_t first_step;
} console_sink;

static ddp_error *put(const ddp_text *text)
{
    return ddp_file_write(STDOUT_FILENO, "standard output", ddp_text_get(text), text->length);
}

static void add_batch(ddp_text *out, const ddp_record *record)
{
    char count[32];
    ddp_text_add(out, "  batch   %s samples = %" PRId64 " micro x %" PRId64 " accumulation x %d rank%s\n",
                 ddp_text_from_count(record->start.global_batch, count, sizeof count),
                 record->start.micro_batch, record->start.accumulation, record->start.world,
                 record->start.world == 1 ? "" : "s");
}

static void add_start(ddp_text *out, const ddp_record *record)
{
    char a[32], b[32];
    ddp_text_add(out, "ddprun %s  %s\n", DDP_VERSION, record->start.job);
    ddp_text_add(out, "  model   %s, %s parameters\n", record->start.model,
                 ddp_text_from_count(record->start.parameters, a, sizeof a));
    ddp_text_add(out, "  data    %s\n", record->start.train);
    if (record->start.validation != NULL)
        ddp_text_add(out, "          %s (validation)\n", record->start.validation);
    ddp_text_add(out, "  ranks   %d on %s, %s%s\n", record->start.world, record->start.ranks[0].host,
                 record->start.world > 1 ? "each " : "", record->start.device);
    add_batch(out, record);
    ddp_text_add(out, "  steps   %s, an epoch is %s", ddp_text_from_count(record->start.steps, a, sizeof a),
                 ddp_text_from_count(record->start.steps_per_epoch, b, sizeof b));
    if (record->start.dropped > 0)
        ddp_text_add(out, " (%s of its samples do not fill a batch and are left to another epoch's order)",
                     ddp_text_from_count(record->start.dropped, a, sizeof a));
    ddp_text_add(out, "\n");
    ddp_text_add(out, "  comm    %s, %" PRId64 " bucket%s, %s a step\n", record->start.comm,
                 record->start.buckets, record->start.buckets == 1 ? "" : "s",
                 ddp_text_from_bytes(record->start.bucket_bytes, a, sizeof a));
    if (record->start.resumed_from != NULL)
        ddp_text_add(out, "  resumed %s, %s step%s done\n", record->start.resumed_from,
                     ddp_text_from_count(record->start.resumed_step, a, sizeof a),
                     record->start.resumed_step == 1 ? "" : "s");
    ddp_text_add(out, "  files   %s, ready after %s\n", record->start.run_dir,
                 ddp_text_from_seconds(record->start.startup_s, a, sizeof a));
}

static double eta(const console_sink *console, const ddp_record *record)
{
    int64_t done = record->step - console->first_step;
    if (done <= 0)
        return NAN;
    return (record->time - console->first_time) / (double)done * (double)(console->steps - record->step);
}

static void add_step(console_sink *console, ddp_text *out, const ddp_record *record)
{
    char rate[32], left[32];
    double seconds = eta(console, record);
    char loss[32] = "-", norm[32] = "-"; /* a skipped step may have neither */
    if (isfinite(record->measured.loss))
        snprintf(loss, sizeof loss, "%.4f", record->measured.loss);
    if (isfinite(record->measured.grad_norm))
        snprintf(norm, sizeof norm, "%.3g", record->measured.grad_norm);
    ddp_text_add(out, "step %*" PRId64 "/%" PRId64 "  loss %s  lr %.2e  norm %s  %s items/s  %.4g ms",
                 snprintf(NULL, 0, "%" PRId64, console->steps), record->step, console->steps, loss,
                 record->measured.lr, norm,
                 ddp_text_from_rate(record->measured.items_per_s, rate, sizeof rate),
                 record->measured.step_ms);
    if (isfinite(seconds) && record->step < console->steps)
        ddp_text_add(out, "  eta %s", ddp_text_from_seconds(seconds, left, sizeof left));
}

/* A bar of the share done, then the step line, cut to the terminal's width. */
static void add_status(console_sink *console, ddp_text *out, const ddp_record *record)
{
    enum { BAR = 20, ROOM = 90 }; /* narrower: the numbers matter more than the bar */
    ddp_text line = {0};
    int filled = (int)(record->step * BAR / (console->steps > 0 ? console->steps : 1));
    if (console->width >= ROOM)
        ddp_text_add(&line, "[%.*s%.*s] ", filled, "####################", BAR - filled,
                     "....................");
    add_step(console, &line, record);
    ddp_text_add(out, "\x1e%.*s\n", console->width - 1, ddp_text_get(&line));
    ddp_text_free(&line);
}

static void write_step(console_sink *console, ddp_text *out, const ddp_record *record)
{
    double now = ddp_clock_now();
    if (console->first_time == 0) {
        console->first_time = record->time;
        console->first_step = record->step;
    }
    if (console->width > 0) {
        if (now - console->last_status < STATUS_INTERVAL_S && record->step != console->steps)
            return;
        console->last_status = now;
        add_status(console, out, record);
    } else if (record->step % console->every == 0 || record->step == console->first_step ||
               record->step == console->steps) {
        add_step(console, out, record);
        ddp_text_add(out, "\n");
    }
}

static void add_eval(const console_sink *console, ddp_text *out, const ddp_record *record)
{
    char count[32];
    ddp_text_add(out, "eval %*" PRId64 "/%" PRId64 "  loss ", snprintf(NULL, 0, "%" PRId64, console->steps),
                 record->step, console->steps);
    ddp_text_add(out, isfinite(record->eval.loss) ? "%.4f" : "not finite", record->eval.loss);
    if (isfinite(record->eval.accuracy))
        ddp_text_add(out, "  accuracy %.2f %%", record->eval.accuracy * 100);
    ddp_text_add(out, "  (%s items)\n", ddp_text_from_count(record->eval.items, count, sizeof count));
}

static void add_checkpoint(const console_sink *console, ddp_text *out, const ddp_record *record)
{
    char bytes[32], took[32], blocked[32];
    ddp_text_add(out, "save %*" PRId64 "/%" PRId64 "  checkpoints/%s, %s in %s, training waited %s\n",
                 snprintf(NULL, 0, "%" PRId64, console->steps), record->step, console->steps,
                 record->checkpoint.name,
                 ddp_text_from_bytes((double)record->checkpoint.bytes, bytes, sizeof bytes),
                 ddp_text_from_seconds(record->checkpoint.seconds, took, sizeof took),
                 ddp_text_from_seconds(record->checkpoint.blocked_s, blocked, sizeof blocked));
}

static void add_end(ddp_text *out, const ddp_record *record)
{
    char a[32], b[32];
    ddp_text_add(out, "%s    %s steps in %s", record->end.outcome,
                 ddp_text_from_count(record->end.steps, a, sizeof a),
                 ddp_text_from_seconds(record->end.seconds, b, sizeof b));
    if (isfinite(record->end.items_per_s))
        ddp_text_add(out, " (training: %s, %s items/s)",
                     ddp_text_from_seconds(record->end.training_s, a, sizeof a),
                     ddp_text_from_rate(record->end.items_per_s, b, sizeof b));
    if (record->end.skipped > 0)
        ddp_text_add(out, ", %s skipped", ddp_text_from_count(record->end.skipped, a, sizeof a));
    if (isfinite(record->end.loss))
        ddp_text_add(out, ", loss %.4f", record->end.loss);
    if (isfinite(record->end.eval_loss))
        ddp_text_add(out, ", validation loss %.4f", record->end.eval_loss);
    if (isfinite(record->end.accuracy))
        ddp_text_add(out, ", accuracy %.2f %%", record->end.accuracy * 100);
    ddp_text_add(out, "\n");
    if (record->end.weights != NULL)
        ddp_text_add(out, "weights %s\n", record->end.weights);
}

static ddp_error *open_sink(const ddp_sink_config *config, ddp_sink **sink)
{
    console_sink *made;
    DDP_TRY(DDP_NEW(&made));
    made->base.ops = &ddp_sink_console_ops;
    made->width = config->width;
    made->every = config->every;
    *sink = &made->base;
    return NULL;
}

static ddp_error *write_sink(ddp_sink *sink, const ddp_record *record)
{
    console_sink *console = (console_sink *)sink;
    ddp_text out = {0};
    switch (record->kind) {
    case DDP_RECORD_START:
        console->steps = record->start.steps;
        add_start(&out, record);
        break;
    case DDP_RECORD_STEP:
        write_step(console, &out, record);
        break;
    case DDP_RECORD_EVAL:
        add_eval(console, &out, record);
        break;
    case DDP_RECORD_CHECKPOINT:
        add_checkpoint(console, &out, record);
        break;
    case DDP_RECORD_SKIP:
        ddp_text_add(&out, "skip %" PRId64 "/%" PRId64 "  %s\n", record->step, console->steps,
                     record->skip.reason);
        break;
    case DDP_RECORD_TRACE:
        break;
    case DDP_RECORD_END:
        add_end(&out, record);
        break;
    }
    ddp_error *error = out.length > 0 ? put(&out) : NULL;
    ddp_text_free(&out);
    return error;
}

static void close_sink(ddp_sink *sink)
{
    free(sink);
}

const ddp_sink_ops ddp_sink_console_ops = {
    .name = "console",
    .open = open_sink,
    .write = write_sink,
    .close = close_sink,
};
