/* Tables of settings. One row says a key's name, type, default, range, unit and help, and where its value
 * lives in the owner's struct; parsing, checking, `ddprun show`, `keys`, `schema`, overrides and "did you
 * mean" all read the same rows. Models, datasets, optimizers and sinks bring rows of their own. */
#ifndef DDP_FIELD_H
#define DDP_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ddp_field_type {
    DDP_FIELD_INT,    /* int64_t */
    DDP_FIELD_FLOAT,  /* double */
    DDP_FIELD_BOOL,   /* bool */
    DDP_FIELD_TEXT,   /* char *, NULL where the default is NULL and nothing was given */
    DDP_FIELD_CHOICE, /* int: index into `choices` */
    DDP_FIELD_INTS,   /* ddp_ints */
    DDP_FIELD_FLOATS, /* ddp_floats */
    DDP_FIELD_TEXTS,  /* ddp_texts; a single scalar is a list of one */
    DDP_FIELD_PAIRS,  /* ddp_pairs: a map of identifiers to texts (launch.env) */
} ddp_field_type;

/* Lists in a settings struct: owned by the job, freed with it. */
typedef struct ddp_ints {
    int64_t *at;
    size_t count;
} ddp_ints;
typedef struct ddp_floats {
    double *at;
    size_t count;
} ddp_floats;
typedef struct ddp_texts {
    char **at;
    size_t count;
} ddp_texts;
typedef struct ddp_pair {
    char *name, *value;
} ddp_pair;
typedef struct ddp_pairs {
    ddp_pair *at;
    size_t count;
} ddp_pairs;

/* The value of an INT field that was written `auto`; only where the row's `automatic` is true. */
#define DDP_AUTO INT64_MIN

typedef struct ddp_field {
    const char *key; /* within its section, "global_batch" */
    ddp_field_type type;
    size_t offset;              /* of the member, offsetof(struct owner, member) */
    const char *fallback;       /* default, written as YAML ("1.0", "auto", "[0.9, 0.95]"); NULL = required,
                                 * but with `optional` see there */
    bool optional;              /* may be absent or `null`: TEXT (then NULL) and INT (then 0) */
    bool automatic;             /* `auto` is allowed: INT (gives DDP_AUTO) and FLOAT (gives 0) */
    double min, max;            /* inclusive range of INT, FLOAT and list elements; both 0 = none; max may be
                                 * HUGE_VAL */
    bool exclusive_min;         /* value > min, not >= */
    const char *const *choices; /* CHOICE, and elements of TEXTS: allowed words, NULL at the end */
    const char *unit;           /* "s", "MiB", "samples"; NULL = none */
    const char *help;           /* one sentence for a person, no full stop */
} ddp_field;

/* A table ends with a row whose key is NULL. */
#define DDP_FIELD_END \
    {                 \
        .key = NULL   \
    }

#endif
