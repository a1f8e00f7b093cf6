/* What becomes of a diagnosis: one screen for a person, fields of an event. */
#include <stdlib.h>

#include "launcher/diagnose.h"

const char *ddp_diagnosis_name(ddp_diagnosis_kind kind)
{
    static const char *const names[] = {
        [DDP_DIAGNOSIS_NOTHING] = "nothing",   [DDP_DIAGNOSIS_HANG] = "hang",
        [DDP_DIAGNOSIS_MISMATCH] = "mismatch", [DDP_DIAGNOSIS_CRASH] = "crash",
        [DDP_DIAGNOSIS_OOM] = "oom",           [DDP_DIAGNOSIS_LOST_HOST] = "lost_host",
    };
    return names[kind];
}

void ddp_diagnosis_write(const ddp_diagnosis *diagnosis, ddp_text *out)
{
    if (diagnosis->kind == DDP_DIAGNOSIS_NOTHING) {
        ddp_text_add(out, "nothing is wrong, as far as can be seen\n");
        return;
    }
    ddp_text_add(out, "%s: %s\n%s", ddp_diagnosis_name(diagnosis->kind), diagnosis->cause,
                 ddp_text_get(&diagnosis->details));
    if (diagnosis->advice[0] != '\0')
        ddp_text_add(out, "    help: %s\n", diagnosis->advice);
}

static void add_number(ddp_json *json, const char *key, bool known, int64_t value)
{
    if (known)
        ddp_json_int(json, key, value);
    else
        ddp_json_null(json, key);
}

static void add_word(ddp_json *json, const char *key, const char *word)
{
    ddp_json_text(json, key, *word != '\0' ? word : NULL);
}

static void add_ranks(ddp_json *json, const char *key, const ddp_diagnosis *diagnosis, ddp_role role)
{
    ddp_json_open_array(json, key);
    for (int i = 0; i < diagnosis->world; i++)
        if (diagnosis->roles[i] == role)
            ddp_json_int(json, NULL, i);
    ddp_json_close_array(json);
}

void ddp_diagnosis_add_fields(const ddp_diagnosis *diagnosis, ddp_json *json)
{
    ddp_json_text(json, "kind", ddp_diagnosis_name(diagnosis->kind));
    add_number(json, "rank", diagnosis->rank >= 0, diagnosis->rank);
    add_word(json, "host", diagnosis->host);
    add_number(json, "pid", diagnosis->pid > 0, diagnosis->pid);
    add_word(json, "phase", diagnosis->phase);
    add_number(json, "step", diagnosis->step >= 0, diagnosis->step);
    add_number(json, "seq", diagnosis->sequence > 0, (int64_t)diagnosis->sequence);
    add_word(json, "op", diagnosis->op);
    add_ranks(json, "waiting", diagnosis, DDP_ROLE_WAITING);
    add_ranks(json, "culprits", diagnosis, DDP_ROLE_CULPRIT);
    ddp_json_float(json, "waited_s", diagnosis->waited_s);
    add_word(json, "cause", diagnosis->cause);
    add_word(json, "advice", diagnosis->advice);
}

void ddp_diagnosis_free(ddp_diagnosis *diagnosis)
{
    free(diagnosis->roles);
    ddp_text_free(&diagnosis->details);
    *diagnosis = (ddp_diagnosis){0};
}
