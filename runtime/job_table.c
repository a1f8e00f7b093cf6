/* Every key of a job file that is not a model's, a format's or an optimizer's own. */
#include <math.h>
#include <string.h>

#include "runtime/builtins.h"
#include "runtime/job_parts.h"

#define MEMBER(path) offsetof(ddp_job, path)
#define MOST_SAMPLES 2147483647.0

static const char *const precisions[] = {"fp32", "bf16", "fp16", NULL};
static const char *const schedules[] = {"constant", "linear", "cosine", NULL};
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const comm_threads[] = {"auto", "true", "false", NULL};
static const char *const vias[] = {"auto", "local", "mpirun", "srun", NULL};
static const char *const traces[] = {"samples", "checksum", NULL};

static const char *const tails[] = {"drop", "pad-weighted", NULL};
static const char *const on_errors[] = {"warn", "fail", NULL};

static const ddp_field top_fields[] = {
    {.key = "name",
     .type = DDP_FIELD_TEXT,
     .offset = MEMBER(name),
     .optional = true,
     .help = "name of the job; default: the file's name without its ending"},
    {.key = "output",
     .type = DDP_FIELD_TEXT,
     .offset = MEMBER(output),
     .optional = true,
     .help = "run directory; default: runs/NAME"},
    DDP_FIELD_END,
};

static const ddp_field no_fields[] = {DDP_FIELD_END};

static const ddp_field data_fields[] = {
    {.key = "train",
     .type = DDP_FIELD_TEXT,
     .offset = MEMBER(data.train),
     .optional = true,
     .help = "file to train on; relative paths start from where ddprun is called"},
    {.key = "validation",
     .type = DDP_FIELD_TEXT,
     .offset = MEMBER(data.validation),
     .optional = true,
     .help = "file to evaluate on; without one there is no evaluation"},
    {.key = "shuffle",
     .type = DDP_FIELD_BOOL,
     .offset = MEMBER(data.shuffle),
     .fallback = "true",
     .help = "a new order each epoch, from seed and epoch alone"},
    {.key = "tail",
     .type = DDP_FIELD_CHOICE,
     .offset = MEMBER(data.tail),
     .fallback = "drop",
     .choices = tails,
     .help =
         "samples that do not fill an epoch's last batch: left to another epoch's order, or trained on in "
         "a shorter batch, each sample of it weighing as much as in a full one"},
    {.key = "prefetch",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(data.prefetch),
     .fallback = "2",
     .min = 1,
     .max = 1024,
     .unit = "batches",
     .help = "batches a rank reads ahead"},
    DDP_FIELD_END,
};

static const ddp_field train_fields[] = {
    {.key = "steps",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(train.steps),
     .optional = true,
     .min = 1,
     .max = 1e12,
     .unit = "steps",
     .help = "optimizer steps of the whole run; either this or epochs"},
    {.key = "epochs",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(train.epochs),
     .optional = true,
     .min = 1,
     .max = 1e9,
     .unit = "epochs",
     .help = "passes over the training set; either this or steps"},
    {.key = "global_batch",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(train.global_batch),
     .min = 1,
     .max = MOST_SAMPLES,
     .unit = "samples",
     .help = "samples of one optimizer step, over all ranks: micro_batch x accumulation x ranks"},
    {.key = "micro_batch",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(train.micro_batch),
     .fallback = "auto",
     .automatic = true,
     .min = 1,
     .max = MOST_SAMPLES,
     .unit = "samples",
     .help = "samples of one forward on one rank; auto: global_batch / ranks"},
    {.key = "precision",
     .type = DDP_FIELD_CHOICE,
     .offset = MEMBER(train.precision),
     .fallback = "fp32",
     .choices = precisions,
     .help = "type of weights and activations in forward and backward"},
    {.key = "seed",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(train.seed),
     .fallback = "1",
     .min = 0,
     .max = 9007199254740992.0,
     .help = "of start weights and sample order"},
    {.key = "clip_norm",
     .type = DDP_FIELD_FLOAT,
     .offset = MEMBER(train.clip_norm),
     .fallback = "0",
     .min = 0,
     .max = HUGE_VAL,
     .help = "longest gradient, after averaging over all ranks; 0: no clipping"},
    {.key = "eval_every",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(train.eval_every),
     .fallback = "0",
     .min = 0,
     .max = 1e12,
     .unit = "steps",
     .help = "steps between evaluations; 0: only at the end"},
    {.key = "eval_batch",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(train.eval_batch),
     .fallback = "auto",
     .automatic = true,
     .min = 1,
     .max = MOST_SAMPLES,
     .unit = "samples",
     .help = "samples of one forward of evaluation; auto: micro_batch"},
    DDP_FIELD_END,
};

static const ddp_field optimizer_fields[] = {
    {.key = "lr",
     .type = DDP_FIELD_FLOAT,
     .offset = MEMBER(optimizer.lr),
     .min = 0,
     .max = HUGE_VAL,
     .help = "learning rate, at its highest; 1e-4, 0.0001 and .0001 are the same"},
    DDP_FIELD_END,
};

static const ddp_field schedule_fields[] = {
    {.key = "kind",
     .type = DDP_FIELD_CHOICE,
     .offset = MEMBER(schedule.kind),
     .fallback = "constant",
     .choices = schedules,
     .help = "how the learning rate goes from lr to lr x final"},
    {.key = "warmup_steps",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(schedule.warmup_steps),
     .fallback = "0",
     .min = 0,
     .max = 1e12,
     .unit = "steps",
     .help = "steps of linear rise to lr"},
    {.key = "final",
     .type = DDP_FIELD_FLOAT,
     .offset = MEMBER(schedule.final),
     .fallback = "0",
     .min = 0,
     .max = 1,
     .help = "learning rate at the last step, as a fraction of lr (linear, cosine)"},
    DDP_FIELD_END,
};

static const ddp_field parallel_fields[] = {
    {.key = "ranks",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(parallel.ranks),
     .fallback = "auto",
     .automatic = true,
     .min = 1,
     .max = 65536,
     .unit = "ranks",
     .help = "processes that train together; auto: one a core or GPU, as far as global_batch divides"},
    {.key = "device",
     .type = DDP_FIELD_CHOICE,
     .offset = MEMBER(parallel.device),
     .fallback = "auto",
     .choices = devices,
     .help = "what computes; auto: GPUs where there are some"},
    {.key = "bucket_mb",
     .type = DDP_FIELD_FLOAT,
     .offset = MEMBER(parallel.bucket_mb),
     .fallback = "auto",
     .automatic = true,
     .exclusive_min = true,
     .min = 0,
     .max = 1e6,
     .unit = "MiB",
     .help = "gradients that are all-reduced together"},
    {.key = "first_bucket_mb",
     .type = DDP_FIELD_FLOAT,
     .offset = MEMBER(parallel.first_bucket_mb),
     .fallback = "1",
     .exclusive_min = true,
     .min = 0,
     .max = 1e6,
     .unit = "MiB",
     .help = "the first bucket, smaller so that communication starts early"},
    {.key = "overlap",
     .type = DDP_FIELD_BOOL,
     .offset = MEMBER(parallel.overlap),
     .fallback = "true",
     .help = "all-reduce while backward goes on; the result is the same either way"},
    {.key = "threads",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(parallel.threads),
     .fallback = "auto",
     .automatic = true,
     .min = 1,
     .max = 4096,
     .unit = "threads",
     .help = "of matrix products on one rank; auto: the rank's cores"},
    {.key = "comm_thread",
     .type = DDP_FIELD_CHOICE,
     .offset = MEMBER(parallel.comm_thread),
     .fallback = "auto",
     .choices = comm_threads,
     .help = "communication on a thread of its own; auto: where a rank has a core to spare"},
    DDP_FIELD_END,
};

static const ddp_field checkpoint_fields[] = {
    {.key = "every",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(checkpoint.every),
     .fallback = "0",
     .min = 0,
     .max = 1e12,
     .unit = "steps",
     .help = "steps between checkpoints, one more at the end; 0: no checkpoints"},
    {.key = "keep",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(checkpoint.keep),
     .fallback = "3",
     .min = 1,
     .max = 1e9,
     .help = "newest checkpoints that stay; older ones are deleted once a newer one is complete"},
    {.key = "keep_best",
     .type = DDP_FIELD_BOOL,
     .offset = MEMBER(checkpoint.keep_best),
     .fallback = "false",
     .help = "the checkpoint with the lowest validation loss stays, too; each save is evaluated first"},
    {.key = "resume",
     .type = DDP_FIELD_TEXT,
     .offset = MEMBER(checkpoint.resume),
     .fallback = "auto",
     .help =
         "auto: from the newest complete checkpoint of the run directory, if there is one; none: from the "
         "start; or the path of a checkpoint or of another run directory"},
    {.key = "force",
     .type = DDP_FIELD_BOOL,
     .offset = MEMBER(checkpoint.force),
     .fallback = "false",
     .help =
         "resume although the model, the data or the order of samples is another; what does not fit starts "
         "anew"},
    {.key = "on_error",
     .type = DDP_FIELD_CHOICE,
     .offset = MEMBER(checkpoint.on_error),
     .fallback = "warn",
     .choices = on_errors,
     .help = "when a checkpoint cannot be saved: a loud warning, or the end of the job"},
    DDP_FIELD_END,
};

static const ddp_field watchdog_fields[] = {
    {.key = "timeout_s",
     .type = DDP_FIELD_FLOAT,
     .offset = MEMBER(watchdog.timeout_s),
     .fallback = "60",
     .min = 0,
     .max = 1e7,
     .unit = "s",
     .help = "longest wait for another rank; 0: for ever"},
    {.key = "startup_s",
     .type = DDP_FIELD_FLOAT,
     .offset = MEMBER(watchdog.startup_s),
     .fallback = "300",
     .min = 0,
     .max = 1e7,
     .unit = "s",
     .help = "the same before the first step; 0: for ever"},
    {.key = "save_s",
     .type = DDP_FIELD_FLOAT,
     .offset = MEMBER(watchdog.save_s),
     .fallback = "600",
     .min = 0,
     .max = 1e7,
     .unit = "s",
     .help = "the same while weights are saved; 0: for ever"},
    {.key = "eval_s",
     .type = DDP_FIELD_FLOAT,
     .offset = MEMBER(watchdog.eval_s),
     .fallback = "600",
     .min = 0,
     .max = 1e7,
     .unit = "s",
     .help = "the same while evaluating; 0: for ever"},
    DDP_FIELD_END,
};

static const ddp_field restart_fields[] = {
    {.key = "max",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(restart.max),
     .fallback = "0",
     .min = 0,
     .max = 1e6,
     .help = "attempts after a crash, a hang or a lost rank, each from the newest complete checkpoint; needs "
             "checkpoint.every"},
    {.key = "min_ranks",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(restart.min_ranks),
     .fallback = "1",
     .min = 1,
     .max = 65536,
     .unit = "ranks",
     .help = "fewest ranks to go on with, when the job fails twice before it has done a step"},
    DDP_FIELD_END,
};

static const ddp_field launch_fields[] = {
    {.key = "via",
     .type = DDP_FIELD_CHOICE,
     .offset = MEMBER(launch.via),
     .fallback = "auto",
     .choices = vias,
     .help = "who starts the ranks; auto: ddprun itself on one host, mpirun on several"},
    {.key = "hosts",
     .type = DDP_FIELD_TEXTS,
     .offset = MEMBER(launch.hosts),
     .fallback = "[]",
     .help = "host or host:ranks, each; none: this host"},
    {.key = "grace_s",
     .type = DDP_FIELD_FLOAT,
     .offset = MEMBER(launch.grace_s),
     .fallback = "20",
     .min = 0,
     .max = 1e6,
     .unit = "s",
     .help = "time that ranks have to end by themselves after a signal"},
    {.key = "oversubscribe",
     .type = DDP_FIELD_BOOL,
     .offset = MEMBER(launch.oversubscribe),
     .fallback = "false",
     .help = "more ranks than cores are allowed; they share"},
    {.key = "allow_root",
     .type = DDP_FIELD_BOOL,
     .offset = MEMBER(launch.allow_root),
     .fallback = "true",
     .help = "root may start mpirun, as it usually does in a container; false: refuse"},
    {.key = "env",
     .type = DDP_FIELD_PAIRS,
     .offset = MEMBER(launch.env),
     .fallback = "{}",
     .help = "environment variables of every rank, byte for byte as they read here; each rank sets them "
             "itself, so too late for LD_*"},
    DDP_FIELD_END,
};

static const ddp_field metrics_fields[] = {
    {.key = "every",
     .type = DDP_FIELD_INT,
     .offset = MEMBER(metrics.every),
     .fallback = "10",
     .min = 1,
     .max = 1e12,
     .unit = "steps",
     .help = "steps between two lines on the console; events.jsonl has every step"},
    {.key = "trace",
     .type = DDP_FIELD_TEXTS,
     .offset = MEMBER(metrics.trace),
     .fallback = "[]",
     .choices = traces,
     .help = "written to events.jsonl by every rank, every step: ids of samples, checksum of weights"},
    DDP_FIELD_END,
};

#define KIND_AT(noun, list)                                                                 \
    static bool noun##_at(size_t index, job_kind *kind)                                     \
    {                                                                                       \
        for (size_t i = 0; i <= index; i++)                                                 \
            if (list()[i] == NULL)                                                          \
                return false;                                                               \
        *kind = (job_kind){list()[index]->name, list()[index]->help, list()[index]->fields, \
                           list()[index]->config_bytes, list()[index]};                     \
        return true;                                                                        \
    }
KIND_AT(model, ddp_builtin_models)
KIND_AT(dataset, ddp_builtin_datasets)
KIND_AT(optim, ddp_builtin_optims)

const job_section *job_section_find(const char *name)
{
    for (size_t i = 0; i < JOB_SECTIONS; i++)
        if (strcmp(job_sections[i].name, name) == 0)
            return &job_sections[i];
    return NULL;
}

bool job_kind_find(const job_section *section, const char *name, job_kind *kind)
{
    if (section->kind_at == NULL)
        return false;
    for (size_t i = 0; section->kind_at(i, kind); i++)
        if (strcmp(kind->name, name) == 0)
            return true;
    return false;
}

const ddp_field *job_field_find(const ddp_field *fields, const char *key)
{
    for (; fields != NULL && fields->key != NULL; fields++)
        if (strcmp(fields->key, key) == 0)
            return fields;
    return NULL;
}

void job_key_write(const job_section *section, const char *key, ddp_text *out)
{
    if (section != NULL && *section->name != '\0')
        ddp_text_add(out, "%s.", section->name);
    ddp_text_add(out, "%s", key);
}

void job_kinds_write(const job_section *section, const char *between, const char *before_last, ddp_text *out)
{
    job_kind kind, after;
    for (size_t i = 0; section->kind_at(i, &kind); i++)
        ddp_text_add(out, "%s%s",
                     i == 0                            ? ""
                     : section->kind_at(i + 1, &after) ? between
                                                       : before_last,
                     kind.name);
}

const job_section job_sections[JOB_SECTIONS] = {
    {.name = "", .help = "at the top of the file", .fields = top_fields},
    {.name = "model",
     .help = "what is trained",
     .fields = no_fields,
     .kind_key = "kind",
     .kind_help = "which model",
     .kind_at = model_at,
     .ops = MEMBER(model.ops),
     .settings = MEMBER(model.settings),
     .is_numeric = true},
    {.name = "data",
     .help = "what it is trained on",
     .fields = data_fields,
     .kind_key = "format",
     .kind_help = "how the files are to be read",
     .kind_at = dataset_at,
     .ops = MEMBER(data.ops),
     .settings = MEMBER(data.settings),
     .is_numeric = true},
    {.name = "train", .help = "how long, in which batches", .fields = train_fields, .is_numeric = true},
    {.name = "optimizer",
     .help = "how weights follow gradients",
     .fields = optimizer_fields,
     .kind_key = "kind",
     .kind_fallback = "adamw",
     .kind_help = "which optimizer",
     .kind_at = optim_at,
     .ops = MEMBER(optimizer.ops),
     .settings = MEMBER(optimizer.settings),
     .is_numeric = true},
    {.name = "schedule",
     .help = "the learning rate over time",
     .fields = schedule_fields,
     .is_numeric = true},
    {.name = "parallel",
     .help = "who computes, and how ranks agree",
     .fields = parallel_fields,
     .is_numeric = true},
    {.name = "checkpoint", .help = "what is saved, and where a run goes on", .fields = checkpoint_fields},
    {.name = "watchdog", .help = "when a silent rank counts as lost", .fields = watchdog_fields},
    {.name = "restart", .help = "what happens after a failure", .fields = restart_fields},
    {.name = "launch", .help = "how ranks are started", .fields = launch_fields},
    {.name = "metrics", .help = "what is reported", .fields = metrics_fields},
};
