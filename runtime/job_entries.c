/* What was given, key by key: from the file and, over it, from the command line. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "runtime/job_parts.h"

static ddp_error *add(job_draft *draft, job_entry entry)
{
    void *entries = draft->entries;
    ddp_error *error =
        ddp_memory_grow(&entries, &draft->entry_capacity, draft->entry_count + 1, sizeof *draft->entries);
    draft->entries = entries;
    if (error != NULL) {
        free(entry.owned);
        return error;
    }
    draft->entries[draft->entry_count++] = entry;
    return NULL;
}

static ddp_error *refuse_section(job_draft *draft, const job_section *section, const ddp_yaml_node *node)
{
    char typed[80];
    ddp_error *error = ddp_error_make(DDP_ERR_INPUT, "%s: a section with keys of its own is needed, not %s",
                                      section->name, ddp_yaml_describe(node, typed, sizeof typed));
    ddp_yaml_problem(&draft->problems, node,
                     ddp_error_help(error, "ddprun keys %s lists them", section->name));
    return NULL;
}

/* All keys of a section's node; an empty section is fine. */
static ddp_error *add_section(job_draft *draft, const job_section *section, const ddp_yaml_node *node)
{
    if (ddp_yaml_is_null(node))
        return NULL;
    if (node->kind != DDP_YAML_MAP)
        return refuse_section(draft, section, node);
    for (size_t i = 0; i < node->count; i += 2)
        DDP_TRY(add(draft, (job_entry){.section = section,
                                       .key = node->items[i]->text,
                                       .key_node = node->items[i],
                                       .node = node->items[i + 1]}));
    return NULL;
}

ddp_error *job_entries_add_file(job_draft *draft, const ddp_yaml *yaml)
{
    const ddp_yaml_node *root = ddp_yaml_root(yaml);
    for (size_t i = 0; i < root->count; i += 2) {
        const ddp_yaml_node *key = root->items[i], *node = root->items[i + 1];
        const job_section *section = *key->text != '\0' ? job_section_find(key->text) : NULL;
        bool is_top = job_field_find(job_sections[0].fields, key->text) != NULL;
        if (section != NULL) {
            draft->section_at[section - job_sections] = key;
            DDP_TRY(add_section(draft, section, node));
        } else {
            DDP_TRY(add(draft, (job_entry){.section = is_top ? &job_sections[0] : NULL,
                                           .key = key->text,
                                           .key_node = key,
                                           .node = node}));
        }
    }
    return NULL;
}

/* Of two keys that exclude each other, the other one. */
static const char *rival_of(const job_section *section, const char *key)
{
    if (strcmp(section->name, "train") != 0)
        return NULL;
    return strcmp(key, "steps") == 0 ? "epochs" : strcmp(key, "epochs") == 0 ? "steps" : NULL;
}

/* Marks what an override takes the place of; key NULL = the whole section. */
static void replace(job_draft *draft, const job_section *section, const char *key, const char *name)
{
    const char *rival = key ? rival_of(section, key) : NULL;
    for (size_t i = 0; i < draft->entry_count; i++) {
        job_entry *entry = &draft->entries[i];
        if (entry->section != section || (key != NULL && strcmp(entry->key, key) != 0 &&
                                          (rival == NULL || strcmp(entry->key, rival) != 0)))
            continue;
        if (name == NULL || (entry->name != NULL && strcmp(entry->name, name) == 0))
            entry->replaced = true;
    }
}

/* "launch.env.A" -> "env" and "A", where env is a map of names. Splits `key` in place. */
static const char *split_pair(const job_section *section, char *key)
{
    char *dot = strchr(key, '.');
    if (dot == NULL)
        return NULL;
    *dot = '\0';
    const ddp_field *field = job_field_find(section->fields, key);
    if (field != NULL && field->type == DDP_FIELD_PAIRS)
        return dot + 1;
    *dot = '.';
    return NULL;
}

ddp_error *job_entries_add_override(job_draft *draft, const ddp_yaml *yaml)
{
    const ddp_yaml_node *key = ddp_yaml_key(yaml);
    job_entry entry = {.key_node = key, .node = ddp_yaml_root(yaml)};
    const job_section *whole = job_section_find(key->text);
    if (whole != NULL) {
        replace(draft, whole, NULL, NULL);
        return add_section(draft, whole, entry.node);
    }
    DDP_TRY(ddp_memory_text(key->text, &entry.owned));
    char *dot = strchr(entry.owned, '.');
    entry.key = entry.owned;
    if (dot != NULL) {
        *dot = '\0';
        entry.section = *entry.owned != '\0' ? job_section_find(entry.owned) : NULL;
        entry.key = entry.section ? dot + 1 : key->text;
        entry.name = entry.section ? split_pair(entry.section, dot + 1) : NULL;
    } else if (job_field_find(job_sections[0].fields, entry.key) != NULL) {
        entry.section = &job_sections[0];
    }
    if (entry.section != NULL)
        replace(draft, entry.section, entry.key, entry.name);
    return add(draft, entry);
}

job_entry *job_entries_find(const job_draft *draft, const job_section *section, const char *key)
{
    for (size_t i = 0; i < draft->entry_count; i++) {
        job_entry *entry = &draft->entries[i];
        if (entry->section == section && !entry->replaced && entry->name == NULL &&
            strcmp(entry->key, key) == 0)
            return entry;
    }
    return NULL;
}

void job_entries_free(job_draft *draft)
{
    for (size_t i = 0; i < draft->entry_count; i++)
        free(draft->entries[i].owned);
    free(draft->entries);
}
