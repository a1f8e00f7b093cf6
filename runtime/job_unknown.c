/* Keys that nobody asked for: what may have been meant. */
#include <string.h>

#include "runtime/job_parts.h"

#define MAX_WORDS 512

/* Every key there is, for comparison. */
typedef struct word {
    const char *key;
    const job_section *section; /* NULL: `key` is the name of a section */
    const char *kind;           /* it belongs to this kind only; NULL = to the section */
} word;

typedef struct words {
    word at[MAX_WORDS];
    size_t count;
} words;

/* What other programs call things. */
static const struct foreign {
    const char *word, *advice;
} foreign_words[] = {
    {"accumulate",
     "did you mean to accumulate? that follows: train.global_batch / (train.micro_batch x parallel.ranks)"},
    {"accumulation", "accumulation follows: train.global_batch / (train.micro_batch x parallel.ranks)"},
    {"accumulation_steps", "accumulation follows: train.global_batch / (train.micro_batch x parallel.ranks)"},
    {"gradient_accumulation_steps",
     "accumulation follows: train.global_batch / (train.micro_batch x parallel.ranks)"},
    {"batch", "train.global_batch counts samples over all ranks, train.micro_batch those of one forward"},
    {"batch_size",
     "train.global_batch counts samples over all ranks, train.micro_batch those of one forward"},
    {"learning_rate", "did you mean optimizer.lr?"},
    {"max_steps", "did you mean train.steps?"},
    {"num_epochs", "did you mean train.epochs?"},
    {"dtype", "did you mean train.precision?"},
    {"max_grad_norm", "did you mean train.clip_norm?"},
    {"gradient_clipping", "did you mean train.clip_norm?"},
    {"scheduler", "did you mean schedule.kind?"},
    {"lr_scheduler", "did you mean schedule.kind?"},
    {"warmup", "did you mean schedule.warmup_steps?"},
    {"num_workers", "one thread reads ahead, data.prefetch batches"},
    {"dataset", "did you mean data.format, or the section data?"},
    {"world_size", "did you mean parallel.ranks?"},
    {"nproc", "did you mean parallel.ranks?"},
    {"nproc_per_node", "did you mean parallel.ranks?"},
    {"nodes", "did you mean launch.hosts?"},
    {"environment", "did you mean launch.env?"},
    {"log_every", "did you mean metrics.every?"},
    {"output_dir", "did you mean output?"},
    {"timeout", "did you mean watchdog.timeout_s?"},
};
#define FOREIGN_WORDS (sizeof foreign_words / sizeof foreign_words[0])

static void add_word(words *words, const char *key, const job_section *section, const char *kind)
{
    if (words->count < MAX_WORDS)
        words->at[words->count++] = (word){key, section, kind};
}

static void collect(words *words)
{
    job_kind kind;
    for (const job_section *section = job_sections; section < job_sections + JOB_SECTIONS; section++) {
        if (*section->name != '\0')
            add_word(words, section->name, NULL, NULL);
        for (const ddp_field *field = section->fields; field->key != NULL; field++)
            add_word(words, field->key, section, NULL);
        if (section->kind_at == NULL)
            continue;
        add_word(words, section->kind_key, section, NULL);
        for (size_t i = 0; section->kind_at(i, &kind); i++)
            for (const ddp_field *field = kind.fields; field != NULL && field->key != NULL; field++)
                add_word(words, field->key, section, kind.name);
    }
}

/* Whether the word may stand where the entry stands. */
static bool fits_here(const job_draft *draft, const job_entry *entry, const word *word)
{
    const job_section *here = entry->section ? entry->section : &job_sections[0];
    if (word->section == NULL)
        return here == &job_sections[0];
    const char *chosen = draft->job->text->kinds[here - job_sections].name;
    return word->section == here &&
           (word->kind == NULL || (chosen != NULL && strcmp(word->kind, chosen) == 0));
}

/* The nearest of the words that fit here (or do not), at most `limit` slips away. */
static const word *nearest(const job_draft *draft, const job_entry *entry, const words *words, bool here,
                           size_t limit)
{
    const word *best = NULL;
    size_t best_distance = limit + 1;
    for (size_t i = 0; i < words->count; i++) {
        const word *candidate = &words->at[i];
        size_t distance = ddp_text_distance(entry->key, candidate->key);
        if (distance >= best_distance || fits_here(draft, entry, candidate) != here)
            continue;
        best = candidate;
        best_distance = distance;
    }
    return best;
}

/* `key: ...` of another kind of this very section, exactly. */
static const word *of_other_kind(const job_draft *draft, const job_entry *entry, const words *words)
{
    for (size_t i = 0; i < words->count; i++)
        if (words->at[i].kind != NULL && words->at[i].section == entry->section &&
            strcmp(words->at[i].key, entry->key) == 0 && !fits_here(draft, entry, &words->at[i]))
            return &words->at[i];
    return NULL;
}

static const char *foreign_advice(const char *key, size_t limit)
{
    const char *advice = NULL;
    size_t best_distance = limit + 1;
    for (size_t i = 0; i < FOREIGN_WORDS; i++) {
        size_t distance = ddp_text_distance(key, foreign_words[i].word);
        if (distance >= best_distance)
            continue;
        advice = foreign_words[i].advice;
        best_distance = distance;
    }
    return advice;
}

static ddp_error *suggest(ddp_error *error, const job_entry *entry, const word *word)
{
    ddp_text name = {0};
    bool is_here = word->section != NULL && word->section == entry->section;
    if (word->section == NULL) {
        error =
            ddp_error_help(error, "did you mean \"%s\"? it is a section at the top of the file", word->key);
    } else if (is_here) {
        error = ddp_error_help(error, "did you mean \"%s\"?", word->key);
    } else {
        job_key_write(word->section, word->key, &name);
        error =
            *word->section->name == '\0'
                ? ddp_error_help(error, "did you mean \"%s\"? it stands at the top of the file", word->key)
                : ddp_error_help(error, "did you mean %s? it belongs in section %s", ddp_text_get(&name),
                                 word->section->name);
    }
    ddp_text_free(&name);
    return error;
}

static ddp_error *list_keys(const job_draft *draft, const job_entry *entry, const words *words,
                            ddp_error *error)
{
    ddp_text list = {0};
    for (size_t i = 0; i < words->count; i++)
        if (fits_here(draft, entry, &words->at[i]))
            ddp_text_add(&list, "%s%s", list.length > 0 ? ", " : "", words->at[i].key);
    error = ddp_error_help(error, "known here: %s", ddp_text_get(&list));
    ddp_text_free(&list);
    return error;
}

/* An override "optmizer.lr": which section may have been meant. */
static ddp_error *advise_section(const job_entry *entry, const words *words, ddp_error *error)
{
    char section[64];
    size_t length = strcspn(entry->key, "."), best_distance = length / 3 + 2;
    const char *best = NULL;
    if (length >= sizeof section)
        return error;
    memcpy(section, entry->key, length);
    section[length] = '\0';
    for (size_t i = 0; i < words->count; i++) {
        size_t distance = words->at[i].section ? best_distance : ddp_text_distance(section, words->at[i].key);
        if (distance >= best_distance)
            continue;
        best = words->at[i].key;
        best_distance = distance;
    }
    return best ? ddp_error_help(error, "did you mean \"%s%s\"?", best, entry->key + length)
                : ddp_error_help(error, "ddprun keys lists all sections and keys");
}

/* The surest advice first: the same word elsewhere beats a similar one here. */
static ddp_error *advise(const job_draft *draft, const job_entry *entry, const words *words, ddp_error *error)
{
    size_t limit = strlen(entry->key) / 3 + (strlen(entry->key) > 2);
    const word *word = nearest(draft, entry, words, true, 0);
    const char *advice = NULL;
    if (entry->section == NULL && strchr(entry->key, '.') != NULL)
        return advise_section(entry, words, error);
    if (word == NULL)
        word = nearest(draft, entry, words, false, 0);
    if (word == NULL)
        advice = foreign_advice(entry->key, 0);
    if (word == NULL && advice == NULL)
        word = nearest(draft, entry, words, true, limit);
    if (word == NULL && advice == NULL)
        advice = foreign_advice(entry->key, strlen(entry->key) / 4);
    if (word == NULL && advice == NULL)
        word = nearest(draft, entry, words, false, strlen(entry->key) / 6);
    if (word != NULL)
        return suggest(error, entry, word);
    return advice ? ddp_error_help(error, "%s", advice) : list_keys(draft, entry, words, error);
}

/* Says which kind is chosen, and who chose it if that was an override. */
static ddp_error *other_kind_error(const job_draft *draft, const job_entry *entry, const char *key,
                                   const word *word)
{
    const job_section *section = entry->section;
    const char *chosen = draft->job->text->kinds[section - job_sections].name;
    job_entry *by = job_entries_find(draft, section, section->kind_key);
    ddp_error *error = ddp_error_make(DDP_ERR_INPUT, "%s is a key of %s %s, not of %s", key,
                                      section->kind_key, word->kind, chosen);
    if (by != NULL && by->key_node->yaml != entry->key_node->yaml && ddp_yaml_place(by->node).line == 0)
        error = ddp_error_help(error, "the override %s chose %s %s", ddp_yaml_place(by->node).text,
                               section->kind_key, chosen);
    return error;
}

/* While the kind of a section is not known, only what resembles one of its keys is sure to be a slip. */
static bool is_sure(const job_draft *draft, const job_entry *entry, const words *words)
{
    if (entry->section == NULL || !draft->kind_wrong[entry->section - job_sections])
        return true;
    size_t best = strlen(entry->key);
    for (size_t i = 0; i < words->count; i++) {
        if (words->at[i].section != entry->section)
            continue;
        size_t distance = ddp_text_distance(entry->key, words->at[i].key);
        best = distance < best ? distance : best;
        if (strcmp(entry->key, words->at[i].key) == 0)
            return false; /* of a kind that may have been meant */
    }
    return best <= strlen(entry->key) / 3;
}

void job_report_unknown(job_draft *draft, const job_entry *entry)
{
    words words = {.count = 0};
    ddp_text key = {0};
    ddp_error *error;
    char shown[80];
    if (ddp_problems_full(&draft->problems)) {
        ddp_problems_add(&draft->problems, ddp_error_make(DDP_ERR_INPUT, "unknown key"), 0, 0);
        return;
    }
    collect(&words);
    if (!is_sure(draft, entry, &words))
        return;
    job_key_write(entry->section, entry->key, &key);
    const word *other = entry->section ? of_other_kind(draft, entry, &words) : NULL;
    ddp_yaml_node name = {.kind = DDP_YAML_SCALAR, .text = key.at};
    ddp_yaml_describe(&name, shown, sizeof shown);
    if (other != NULL)
        error = other_kind_error(draft, entry, ddp_text_get(&key), other);
    else
        error = advise(
            draft, entry, &words,
            ddp_error_make(DDP_ERR_INPUT, "unknown %s %s",
                           entry->section == NULL && entry->node->kind == DDP_YAML_MAP ? "section" : "key",
                           shown));
    ddp_yaml_problem(&draft->problems, entry->key_node, error);
    ddp_text_free(&key);
}
