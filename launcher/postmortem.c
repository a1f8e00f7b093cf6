/* The verb postmortem: what every rank was doing when a run ended, from the pages that its recorders left,
 * beside the verdict in events.jsonl. Works on a run that is still going as well. */
#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/events.h"
#include "core/files.h"
#include "core/memory.h"
#include "launcher/evidence.h"
#include "launcher/verbs.h"

#define TAIL_BYTES (4 << 20) /* of the events: the end of a run is in there */
#define SHORT_WAIT_S 1.0     /* nobody calls that a hang */

/* What events.jsonl says about the end of the last attempt. */
typedef struct ending {
    bool known; /* there is an `end` behind the last start */
    char outcome[16];
    int64_t steps;
    int code;
    double time;   /* Unix seconds of verdict or end, 0 = neither is there */
    char kind[16]; /* of the verdict, "" = there is none */
    int rank;
    char phase[16], cause[512], advice[320];
    int64_t step;
} ending;

static void take_text(const ddp_json_value *event, const char *key, char *to, size_t bytes)
{
    const ddp_json_value *value = ddp_json_get(event, key);
    snprintf(to, bytes, "%s", value != NULL && value->kind == DDP_JSON_TEXT ? value->text : "");
}

static int64_t take_int(const ddp_json_value *event, const char *key, int64_t fallback)
{
    const ddp_json_value *value = ddp_json_get(event, key);
    return value != NULL && value->kind == DDP_JSON_INT ? value->integer : fallback;
}

static void take_event(const ddp_json_value *event, ending *ending)
{
    char name[16];
    const ddp_json_value *time = ddp_json_get(event, "t");
    double at =
        time != NULL && (time->kind == DDP_JSON_FLOAT || time->kind == DDP_JSON_INT) ? time->number : 0;
    take_text(event, "event", name, sizeof name);
    if (strcmp(name, "start") == 0) {
        memset(ending, 0, sizeof *ending);
    } else if (strcmp(name, "verdict") == 0) {
        ending->time = at;
        ending->rank = (int)take_int(event, "rank", -1);
        ending->step = take_int(event, "step", -1);
        take_text(event, "kind", ending->kind, sizeof ending->kind);
        take_text(event, "phase", ending->phase, sizeof ending->phase);
        take_text(event, "cause", ending->cause, sizeof ending->cause);
        take_text(event, "advice", ending->advice, sizeof ending->advice);
    } else if (strcmp(name, "end") == 0) {
        ending->known = true;
        ending->time = ending->time > 0 ? ending->time : at;
        ending->steps = take_int(event, "steps", 0);
        ending->code = (int)take_int(event, "exit", 0);
        take_text(event, "outcome", ending->outcome, sizeof ending->outcome);
    }
}

/* A line that is no JSON (one that was being written when its writer died) says nothing. */
static void take_lines(const char *path, char *text, ending *ending)
{
    for (char *line; (line = strsep(&text, "\n")) != NULL;) {
        ddp_json_document document = {0};
        if (*line != '{' || strstr(line, "\"event\": \"step\"") != NULL)
            continue;
        ddp_error *error = ddp_json_read(path, line, strlen(line), &document);
        if (error == NULL)
            take_event(document.root, ending);
        ddp_json_free(&document);
        ddp_error_free(error);
    }
}

static ddp_error *read_ending(const char *run_dir, ending *ending)
{
    char *path = NULL;
    void *text = NULL;
    int fd = -1;
    int64_t bytes;
    ddp_error *error = NULL;
    DDP_GO(ddp_path_join(run_dir, DDP_EVENTS_NAME, &path));
    if (access(path, F_OK) != 0)
        goto out;
    DDP_GO(ddp_file_open(path, &fd, &bytes));
    int64_t from = bytes > TAIL_BYTES ? bytes - TAIL_BYTES : 0;
    DDP_GO(ddp_memory_make((size_t)(bytes - from) + 1, 1, &text));
    DDP_GO(ddp_file_read(fd, path, from, text, (size_t)(bytes - from)));
    take_lines(path, text, ending);
out:
    if (fd >= 0)
        close(fd);
    free(text);
    free(path);
    return error;
}

static ddp_error *refuse(const char *run_dir)
{
    struct stat info;
    if (stat(run_dir, &info) != 0)
        return ddp_error_make(DDP_ERR_INPUT, "%s is not there", run_dir);
    return ddp_error_help(
        ddp_error_make(DDP_ERR_INPUT, "%s holds no page of a flight recorder", run_dir),
        "it is no run directory, or none of its ranks came so far as to make one: see logs/ in it");
}

/* How many ranks the last attempt had: the newest page says. */
static ddp_error *find_world(const char *run_dir, int *world)
{
    char *path = NULL;
    ddp_flight_snapshot *page = NULL;
    double newest = -INFINITY;
    ddp_error *error = NULL;
    DDP_TRY(ddp_path_join(run_dir, DDP_FLIGHT_DIRECTORY, &path));
    DIR *directory = opendir(path);
    DDP_GO(DDP_NEW(&page));
    *world = 0;
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        int rank, end = 0;
        char file[4096];
        if (sscanf(entry->d_name, "rank-%d.page%n", &rank, &end) != 1 || entry->d_name[end] != '\0')
            continue;
        ddp_error *unreadable = ddp_flight_read(ddp_flight_path(run_dir, rank, file, sizeof file), page);
        if (unreadable == NULL && page->opened > newest) {
            newest = page->opened;
            *world = page->world;
        }
        ddp_error_free(unreadable);
    }
    if (*world == 0)
        error = refuse(run_dir);
out:
    if (directory != NULL)
        closedir(directory);
    free(page);
    free(path);
    return error;
}

/* -- the table -- */

static const char *name_state(char state)
{
    switch (state) {
    case 0:
        return "?";
    case 'T':
    case 't':
        return "stopped";
    case 'D':
        return "blocked";
    case 'X':
    case 'Z':
        return "ended";
    default:
        return "alive";
    }
}

static const char *age_text(double seconds, char *buffer, size_t bytes)
{
    return ddp_text_from_seconds(seconds > 0 ? seconds : 0, buffer, bytes);
}

static uint64_t last_done(const ddp_flight_snapshot *page)
{
    for (int i = page->count - 1; i >= 0; i--)
        if (page->records[i].done > 0)
            return page->records[i].sequence;
    return 0;
}

static void print_last(const ddp_flight_snapshot *page, double now)
{
    char op[128], age[32];
    const ddp_flight_record *record = ddp_flight_pending(page);
    if (record == NULL && page->count > 0)
        record = &page->records[page->count - 1];
    if (record == NULL) {
        printf("none");
        return;
    }
    double since = record->done > 0 ? record->done : record->issued;
    printf("#%llu %s, %s %s%s", (unsigned long long)record->sequence,
           ddp_flight_text(&record->call, op, sizeof op), record->done > 0 ? "done" : "not done for",
           age_text(now - since, age, sizeof age), record->done > 0 ? " before" : "");
}

static void print_rank(const ddp_evidence *evidence, int rank, int host_width, double now)
{
    const ddp_witness *witness = &evidence->ranks[rank];
    const ddp_flight_snapshot *page = witness->page;
    char age[32];
    if (page == NULL) {
        printf("%4d  no page: %s\n", rank, ddp_error_message(evidence->reasons[rank]));
        return;
    }
    printf("%4d  %-*s %8d  %-7s %8lld  %-8s %10s  %7llu %7llu  ", rank, host_width, page->host, page->pid,
           name_state(witness->state), (long long)page->step, page->phase[0] ? page->phase : "-",
           age_text(now - page->phase_since, age, sizeof age), (unsigned long long)page->issued,
           (unsigned long long)last_done(page));
    print_last(page, now);
    printf("\n");
}

static void print_table(const ddp_evidence *evidence, double now)
{
    int host_width = 4;
    for (int rank = 0; rank < evidence->world; rank++)
        if (evidence->ranks[rank].page != NULL && (int)strlen(evidence->ranks[rank].page->host) > host_width)
            host_width = (int)strlen(evidence->ranks[rank].page->host);
    printf("%4s  %-*s %8s  %-7s %8s  %-8s %10s  %7s %7s  %s\n", "rank", host_width, "host", "pid", "process",
           "step", "phase", "for", "issued", "done", "last collective");
    for (int rank = 0; rank < evidence->world; rank++)
        print_rank(evidence, rank, host_width, now);
}

/* -- what it means -- */

static bool any_alive(const ddp_evidence *evidence)
{
    for (int rank = 0; rank < evidence->world; rank++) {
        char state = evidence->ranks[rank].state;
        if (state != 0 && state != 'X' && state != 'Z')
            return true;
    }
    return false;
}

/* The moment that ages are counted from, on our clock: now, or when the run ended. */
static double reference(const ddp_evidence *evidence, const ending *ending, bool alive)
{
    double now = ddp_clock_now(), latest = -INFINITY;
    for (int rank = 0; rank < evidence->world; rank++)
        if (evidence->ranks[rank].page != NULL)
            latest = fmax(latest, fmax(evidence->ranks[rank].page->latest, evidence->ranks[rank].page->beat));
    if (alive)
        return now;
    if (ending->time > 0)
        latest = fmax(latest, now - (ddp_clock_unix() - ending->time));
    return latest;
}

static void print_head(const char *run_dir, const ending *ending, bool alive)
{
    printf("run      %s: ", run_dir);
    if (alive)
        printf("still going; ages are up to now\n");
    else if (ending->known)
        printf("%s after %lld step%s, exit code %d; ages are up to %s\n", ending->outcome,
               (long long)ending->steps, ending->steps == 1 ? "" : "s", ending->code,
               ending->kind[0] ? "the verdict" : "the end");
    else
        printf("ended without a word: ddprun itself was ended; ages are up to the last sign of life\n");
}

static void print_verdict(const ending *ending)
{
    if (ending->kind[0] == '\0')
        return;
    bool whole = strstr(ending->cause, "rank") != NULL; /* it says who and where by itself */
    printf("verdict  %s", ending->kind);
    if (!whole && ending->rank >= 0)
        printf(" of rank %d", ending->rank);
    if (!whole && ending->phase[0] != '\0')
        printf(" in phase %s", ending->phase);
    if (!whole && ending->step > 0)
        printf(" of step %lld", (long long)ending->step);
    printf(": %s\n", ending->cause);
    if (ending->advice[0] != '\0')
        printf("    help: %s\n", ending->advice);
}

/* Pages do not say how a process ended; the events do. A process of a run that is over is no sign of a crash.
 */
static void add_ends(ddp_evidence *evidence, const ending *ending, bool alive)
{
    bool crash = strcmp(ending->kind, "crash") == 0 || strcmp(ending->kind, "oom") == 0;
    for (int rank = 0; !alive && rank < evidence->world; rank++)
        evidence->ranks[rank].state = 0;
    if (!crash || ending->rank < 0 || ending->rank >= evidence->world)
        return;
    ddp_witness *witness = &evidence->ranks[ending->rank];
    witness->oom = strcmp(ending->kind, "oom") == 0;
    if (ending->code == 1 && (witness->page == NULL || ddp_flight_pending(witness->page) == NULL)) {
        witness->state = 'X'; /* 1 is also what stands for "left too early with 0" */
        return;
    }
    witness->ended = true;
    witness->status = ending->code > 128 ? ending->code - 128 : ending->code << 8;
}

/* At any moment of a healthy job somebody waits for somebody: that alone is no hang. */
static bool goes_on(const ddp_evidence *evidence, const ddp_diagnosis *diagnosis)
{
    if (diagnosis->kind == DDP_DIAGNOSIS_NOTHING)
        return true;
    char state = diagnosis->rank >= 0 ? evidence->ranks[diagnosis->rank].state : 0;
    return diagnosis->kind == DDP_DIAGNOSIS_HANG && diagnosis->waited_s < SHORT_WAIT_S && state != 'T' &&
           state != 't';
}

static ddp_error *print_diagnosis(const ddp_evidence *evidence, const ending *ending, bool alive, double now)
{
    ddp_question question = {.ranks = evidence->ranks, .world = evidence->world, .now = now, .first = -1};
    ddp_diagnosis diagnosis;
    ddp_text text = {0};
    if (strcmp(ending->kind, "hang") == 0)
        question.limit_s = SHORT_WAIT_S;
    if (strcmp(ending->outcome, "done") == 0)
        return NULL;
    DDP_TRY(ddp_diagnose(&question, &diagnosis));
    if (ending->advice[0] != '\0') /* it was given by one who saw more: the processes */
        diagnosis.advice[0] = '\0';
    if (ending->kind[0] == '\0' && goes_on(evidence, &diagnosis))
        ddp_text_add(&text, "nobody %s for longer than a second; all %s on with their work\n",
                     alive ? "waits" : "had waited", alive ? "go" : "went");
    else
        ddp_diagnosis_write(&diagnosis, &text);
    printf("pages    %s", ddp_text_get(&text));
    ddp_text_free(&text);
    ddp_diagnosis_free(&diagnosis);
    return NULL;
}

static ddp_error *postmortem_verb(const ddp_arguments *arguments, int *code)
{
    const char *run_dir = arguments->operands[0];
    ending ending = {.rank = -1};
    ddp_evidence evidence = {0};
    int world = 0;
    ddp_error *error = NULL;
    DDP_GO(find_world(run_dir, &world));
    DDP_GO(read_ending(run_dir, &ending));
    DDP_GO(ddp_evidence_make(world, &evidence));
    ddp_evidence_collect(&evidence, run_dir);
    bool alive = any_alive(&evidence);
    double now = reference(&evidence, &ending, alive);
    print_head(run_dir, &ending, alive);
    print_table(&evidence, now);
    print_verdict(&ending);
    add_ends(&evidence, &ending, alive);
    DDP_GO(print_diagnosis(&evidence, &ending, alive, now));
out:
    ddp_evidence_free(&evidence);
    return error;
}

const ddp_verb ddp_verb_postmortem = {
    .name = "postmortem",
    .usage = "RUN_DIR",
    .help = "what every rank of a run was doing when it ended, and who was to blame",
    .more = "\nEach rank leaves a page in RUN_DIR/flight, whatever becomes of it: phase, step, and its last "
            "1,024\n"
            "collectives. The columns issued and done are numbers of collectives: ranks that wait for each "
            "other\n"
            "have the same number issued, the one that they wait for a lower one. Of a run that is still "
            "going it\n"
            "says what the ranks do now.",
    .min_operands = 1,
    .max_operands = 1,
    .run = postmortem_verb,
};
