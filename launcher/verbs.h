/* The verbs of the command line: what each takes, and the words it was given.
 *
 * A verb is one ddp_verb table, listed in verbs.c; `ddprun --help`, `ddprun VERB --help`, option checks and
 * "did you mean" read the same tables. Words of the form key=value are overrides of the job, everything else
 * that does not begin with `--` is an operand; `--` alone ends the options. */
#ifndef DDP_LAUNCHER_VERBS_H
#define DDP_LAUNCHER_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include <ddp/error.h>
#include <ddp/job.h>

#define DDP_MAX_OPTIONS 16

typedef struct ddp_option {
    const char *name;  /* "--ranks"; NULL ends the list */
    const char *value; /* what stands behind it, "N"; NULL = a switch */
    const char *help;
} ddp_option;

/* All pointers are borrowed from argv. */
typedef struct ddp_arguments {
    const char *const *operands;
    size_t operand_count;
    const char *const *overrides;
    size_t override_count;
    const char *
        options[DDP_MAX_OPTIONS]; /* by index in the verb's list: its value, "" for a switch, NULL = absent */
    double started;               /* ddp_clock_now() of the first line of ddp_main */
} ddp_arguments;

typedef struct ddp_verb {
    const char *name;
    const char *usage;         /* what stands behind the verb: "JOB.yaml [key=value ...]" */
    const char *help;          /* one line */
    const char *more;          /* further lines of `ddprun VERB --help`, NULL = none */
    const ddp_option *options; /* NULL = none */
    size_t min_operands, max_operands;
    bool overrides; /* key=value words are allowed */
    bool hidden;    /* not listed: for ddprun itself */
    /* *code is what ddprun returns when there is no error (0 at first). Results go to stdout. */
    ddp_error *(*run)(const ddp_arguments *arguments, int *code);
} ddp_verb;

extern const ddp_verb ddp_verb_run, ddp_verb_rank;                                  /* run.c, rank.c */
extern const ddp_verb ddp_verb_plan, ddp_verb_show, ddp_verb_keys, ddp_verb_schema; /* explain.c */
extern const ddp_verb ddp_verb_check, ddp_verb_topo;                                /* check.c */
extern const ddp_verb ddp_verb_bench;                                               /* bench.c */
extern const ddp_verb ddp_verb_ckpt;                                                /* ckpt.c */
extern const ddp_verb ddp_verb_data;                                                /* data.c */
extern const ddp_verb ddp_verb_postmortem;                                          /* postmortem.c */

/* The job file and overrides of a verb, loaded. A file that is not there: INPUT with the nearest name in its
 * directory. `extra` is one more override that counts last, or NULL. */
DDP_USE_RESULT ddp_error *ddp_verb_load_job(const ddp_arguments *arguments, const char *extra, ddp_job **job);

/* The same with several more: `extras` ends with NULL. */
DDP_USE_RESULT ddp_error *ddp_verb_load_job_with(const ddp_arguments *arguments, const char *const *extras,
                                                 ddp_job **job);

/* An option's value as a whole number in [min, max]; absent keeps *value. INPUT: names the option. */
DDP_USE_RESULT ddp_error *ddp_verb_read_int(const char *option, const char *text, int64_t min, int64_t max,
                                            int64_t *value);

#endif
