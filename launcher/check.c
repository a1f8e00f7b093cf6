/* The verbs check (is this machine, and this job on it, ready?) and topo (the machine as ddprun sees it). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/nvml.h"
#include "launcher/machine/machine.h"
#include "launcher/mpirun.h"
#include "launcher/plan.h"
#include "launcher/rundir.h"
#include "launcher/spawn.h"
#include "launcher/verbs.h"
#include "runtime/builtins.h"

#define MAX_FINDINGS 16

typedef enum finding_state { FINE, ABSENT, BAD } finding_state;

/* One thing looked at. ABSENT is not needed by what was asked; BAD keeps the job, or every job, from running.
 */
typedef struct finding {
    const char *name;
    finding_state state;
    ddp_text text;
} finding;

typedef struct findings {
    finding at[MAX_FINDINGS];
    size_t count;
    ddp_error *error; /* of a job that is not ready */
    int code;
} findings;

static ddp_text *add_finding(findings *findings, const char *name, finding_state state)
{
    ddp_assert(findings->count < MAX_FINDINGS);
    finding *made = &findings->at[findings->count++];
    made->name = name;
    made->state = state;
    return &made->text;
}

static ddp_error *check_machine(findings *findings)
{
    char a[32], b[32];
    ddp_machine machine;
    DDP_TRY(ddp_machine_read(&machine));
    ddp_text_add(add_finding(findings, "cores", FINE), "%d of %d physical cores may be used%s%s",
                 machine.usable_cores, machine.cores, machine.model[0] ? ", " : "", machine.model);
    ddp_text_add(add_finding(findings, "memory", FINE), "%s of %s available",
                 ddp_text_from_bytes((double)machine.available_bytes, a, sizeof a),
                 ddp_text_from_bytes((double)machine.bytes, b, sizeof b));
    return NULL;
}

static bool has_device(const char *name)
{
    for (const ddp_device_ops *const *ops = ddp_builtin_devices(); *ops != NULL; ops++)
        if (strcmp((*ops)->name, name) == 0)
            return true;
    return false;
}

static void check_gpus(findings *findings)
{
    ddp_gpus gpus;
    if (!has_device("cuda")) {
        ddp_text_add(add_finding(findings, "cuda", ABSENT), "not in this build");
        return;
    }
    ddp_gpus_read(&gpus);
    ddp_text *text = add_finding(findings, "cuda", gpus.count > 0 ? FINE : ABSENT);
    if (gpus.count > 0)
        ddp_text_add(text, "%d GPU%s: %s, driver %s", gpus.count, gpus.count == 1 ? "" : "s", gpus.at[0].name,
                     gpus.driver);
    else
        ddp_text_add(text, "no GPU: %s; %s", gpus.why, gpus.help);
}

static void check_devices(findings *findings)
{
    ddp_text_add(add_finding(findings, "cpu", FINE), "in this build");
    check_gpus(findings);
}

static void check_mpirun(findings *findings)
{
    char *path = NULL;
    const ddp_job root = {.launch.allow_root = true};
    ddp_error *error = ddp_mpirun_find(&root, &path);
    if (error == NULL)
        ddp_text_add(add_finding(findings, "mpirun", FINE), "Open MPI's, %s", path);
    else
        ddp_text_add(add_finding(findings, "mpirun", ABSENT), "%s; only jobs on several hosts need it",
                     ddp_error_message(error));
    ddp_error_free(error);
    free(path);
}

static ddp_error *plan_job(const ddp_arguments *arguments, ddp_job **job, ddp_plan *plan)
{
    char *path = NULL;
    DDP_TRY(ddp_verb_load_job(arguments, NULL, job));
    DDP_TRY(ddp_plan_make(*job, 0, 0, plan));
    DDP_TRY(ddp_rundir_check(*job));
    ddp_error *error = plan->mpirun ? ddp_mpirun_find(*job, &path) : NULL;
    free(path);
    return error;
}

static void check_job(const ddp_arguments *arguments, findings *findings)
{
    char bytes[32];
    ddp_job *job = NULL;
    ddp_plan plan = {0};
    findings->error = plan_job(arguments, &job, &plan);
    findings->code = ddp_error_exit_code(findings->error);
    if (findings->error == NULL)
        ddp_text_add(add_finding(findings, "job", FINE), "%s is ready: %d rank%s of %s each", job->name,
                     plan.setup.world, plan.setup.world == 1 ? "" : "s",
                     ddp_text_from_bytes((double)plan.bytes.total, bytes, sizeof bytes));
    else
        ddp_text_add(add_finding(findings, "job", BAD), "%s", ddp_error_message(findings->error));
    ddp_plan_free(&plan);
    ddp_job_free(job);
}

static void print_findings(const findings *findings)
{
    static const char *const words[] = {[FINE] = "ok", [ABSENT] = "-", [BAD] = "FAIL"};
    for (size_t i = 0; i < findings->count; i++)
        printf("%-4s  %-8s %s\n", words[findings->at[i].state], findings->at[i].name,
               ddp_text_get(&findings->at[i].text));
}

static void print_findings_json(const findings *findings)
{
    static const char *const words[] = {[FINE] = "ok", [ABSENT] = "absent", [BAD] = "fail"};
    ddp_text text = {0};
    ddp_json json = {.text = &text};
    ddp_json_open_object(&json, NULL);
    ddp_json_bool(&json, "ready", findings->code == 0);
    ddp_json_open_array(&json, "findings");
    for (size_t i = 0; i < findings->count; i++) {
        ddp_json_open_object(&json, NULL);
        ddp_json_text(&json, "name", findings->at[i].name);
        ddp_json_text(&json, "state", words[findings->at[i].state]);
        ddp_json_text(&json, "text", ddp_text_get(&findings->at[i].text));
        ddp_json_close_object(&json);
    }
    ddp_json_close_array(&json);
    ddp_json_close_object(&json);
    printf("%s\n", ddp_text_get(&text));
    ddp_text_free(&text);
}

static ddp_error *check_verb(const ddp_arguments *arguments, int *code)
{
    findings findings = {.count = 0};
    ddp_error *error = check_machine(&findings);
    if (error == NULL) {
        check_devices(&findings);
        check_mpirun(&findings);
        if (arguments->operand_count > 0)
            check_job(arguments, &findings);
        if (arguments->options[0] != NULL)
            print_findings_json(&findings);
        else
            print_findings(&findings);
        error = findings.error;
    }
    for (size_t i = 0; i < findings.count; i++)
        ddp_text_free(&findings.at[i].text);
    return error;
}

static void print_machine(const ddp_machine *machine)
{
    char bytes[32];
    printf("%s: %s\n", machine->host, machine->model[0] ? machine->model : "processor not named");
    printf(
        "  %d package%s, %d physical cores, %d logical processors; %d cores and %d processors may be used\n",
        machine->packages, machine->packages == 1 ? "" : "s", machine->cores, machine->processors,
        machine->usable_cores, machine->usable_processors);
    printf("  memory %s", ddp_text_from_bytes((double)machine->bytes, bytes, sizeof bytes));
    printf(", %s available\n", ddp_text_from_bytes((double)machine->available_bytes, bytes, sizeof bytes));
    for (int i = 0; i < machine->node_count; i++)
        printf("  NUMA node %d: %d core%s, processors %s, %s\n", machine->nodes[i].os_index,
               machine->nodes[i].cores, machine->nodes[i].cores == 1 ? "" : "s", machine->nodes[i].processors,
               ddp_text_from_bytes((double)machine->nodes[i].bytes, bytes, sizeof bytes));
}

static void print_machine_json(const ddp_machine *machine)
{
    ddp_text text = {0};
    ddp_json json = {.text = &text};
    ddp_json_open_object(&json, NULL);
    ddp_json_text(&json, "host", machine->host);
    ddp_json_text(&json, "model", machine->model[0] ? machine->model : NULL);
    ddp_json_int(&json, "packages", machine->packages);
    ddp_json_int(&json, "cores", machine->cores);
    ddp_json_int(&json, "processors", machine->processors);
    ddp_json_int(&json, "usable_cores", machine->usable_cores);
    ddp_json_int(&json, "usable_processors", machine->usable_processors);
    ddp_json_int(&json, "bytes", machine->bytes);
    ddp_json_int(&json, "available_bytes", machine->available_bytes);
    ddp_json_open_array(&json, "numa");
    for (int i = 0; i < machine->node_count; i++) {
        ddp_json_open_object(&json, NULL);
        ddp_json_int(&json, "node", machine->nodes[i].os_index);
        ddp_json_int(&json, "cores", machine->nodes[i].cores);
        ddp_json_text(&json, "processors", machine->nodes[i].processors);
        ddp_json_int(&json, "bytes", machine->nodes[i].bytes);
        ddp_json_close_object(&json);
    }
    ddp_json_close_array(&json);
    ddp_json_close_object(&json);
    printf("%s\n", ddp_text_get(&text));
    ddp_text_free(&text);
}

static ddp_error *topo_verb(const ddp_arguments *arguments, int *code)
{
    ddp_machine machine;
    DDP_TRY(ddp_machine_read(&machine));
    if (arguments->options[0] != NULL)
        print_machine_json(&machine);
    else
        print_machine(&machine);
    return NULL;
}

static const ddp_option json_option[] = {
    {.name = "--json", .help = "as one JSON object"},
    {.name = NULL},
};

const ddp_verb ddp_verb_check = {
    .name = "check",
    .usage = "[JOB.yaml] [key=value ...] [--json]",
    .help = "is this machine, and this job on it, ready? starts nothing",
    .more = "\nExit code 0: ready; 2 or 3: what a run of the job would refuse.",
    .options = json_option,
    .max_operands = 1,
    .overrides = true,
    .run = check_verb,
};

const ddp_verb ddp_verb_topo = {
    .name = "topo",
    .usage = "[--json]",
    .help = "the machine as ddprun sees it: cores, NUMA nodes, memory",
    .options = json_option,
    .run = topo_verb,
};
