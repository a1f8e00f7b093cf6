/* The inside of a job: its sections (job_table.c), loading (job.c, job_entries.c, job_unknown.c), and writing
 * (job_text.c, job_reference.c). */
#ifndef DDP_RUNTIME_JOB_PARTS_H
#define DDP_RUNTIME_JOB_PARTS_H

#include <ddp/job.h>

#include "core/config/field.h"

/* A model, a dataset format, an optimizer: what brings further keys into a section. */
typedef struct job_kind {
    const char *name, *help;
    const ddp_field *fields;
    size_t bytes; /* of its settings */
    const void *ops;
} job_kind;

typedef struct job_section {
    const char *name; /* "" = the top of the file */
    const char *help;
    const ddp_field *fields;   /* members of ddp_job */
    const char *kind_key;      /* key that chooses the kind, NULL = the section has no kinds */
    const char *kind_fallback; /* NULL = must be given */
    const char *kind_help;
    bool (*kind_at)(size_t index, job_kind *kind); /* false behind the last one */
    size_t ops, settings;                          /* offsets in ddp_job */
    bool is_numeric;                               /* part of the digest: decides the numbers of a run */
} job_section;

#define JOB_SECTIONS 12
extern const job_section job_sections[JOB_SECTIONS]; /* the top of the file first */

const job_section *job_section_find(const char *name);
bool job_kind_find(const job_section *section, const char *name, job_kind *kind);
const ddp_field *job_field_find(const ddp_field *fields, const char *key);

/* "train.steps", "name". */
void job_key_write(const job_section *section, const char *key, ddp_text *out);

/* "linear, mlp or gpt". */
void job_kinds_write(const job_section *section, const char *between, const char *before_last, ddp_text *out);

/* Kept by a loaded job. */
struct ddp_job_text {
    ddp_yaml **yamls; /* the file, then the overrides */
    size_t yaml_count;
    struct job_origin {
        const void *member;
        const ddp_yaml_node *node;
    } * origins;
    size_t origin_count, origin_capacity;
    job_kind kinds[JOB_SECTIONS]; /* chosen; name NULL where there is none */
    void *settings[JOB_SECTIONS];
};

/* One key that somebody gave, in the file or on the command line. */
typedef struct job_entry {
    const job_section *section; /* NULL: no such section or top-level key */
    const char *key;            /* within the section */
    const char *name;           /* of a pair, in an override of one ("A" of launch.env.A); otherwise NULL */
    const ddp_yaml_node *key_node, *node;
    char *owned;         /* what key and name point into, for overrides */
    bool used, replaced; /* read into the job; overridden */
} job_entry;

/* A job being loaded. */
typedef struct job_draft {
    ddp_job *job;
    ddp_problems problems;
    job_entry *entries;
    size_t entry_count, entry_capacity;
    const ddp_yaml_node *section_at[JOB_SECTIONS]; /* where the file names each section, NULL = nowhere */
    bool kind_wrong[JOB_SECTIONS]; /* the kind given does not exist: which keys fit is not known */
} job_draft;

/* What the file gives, key by key. */
DDP_USE_RESULT ddp_error *job_entries_add_file(job_draft *draft, const ddp_yaml *yaml);
/* What an override gives: a key, a whole section, or one pair; it replaces what came before. */
DDP_USE_RESULT ddp_error *job_entries_add_override(job_draft *draft, const ddp_yaml *yaml);
job_entry *job_entries_find(const job_draft *draft, const job_section *section, const char *key);
void job_entries_free(job_draft *draft);

/* Adds the error for a key that exists nowhere, or not here, with the best advice there is. */
void job_report_unknown(job_draft *draft, const job_entry *entry);

#endif
