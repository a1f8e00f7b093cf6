/* The words of a diagnosis: cause, what else is seen, and what to do. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "launcher/diagnose_parts.h"
#include "launcher/show.h"

static double age(const ddp_case *the, double since)
{
    double seconds = the->question->now - since;
    return seconds > 0 ? seconds : 0;
}

static void add_age(ddp_text *text, double seconds)
{
    char number[32];
    ddp_text_add(text, "%s", ddp_text_from_seconds(seconds, number, sizeof number));
}

/* "rank 2 (pid 4711 on node1)" */
static void add_name(const ddp_case *the, int rank, ddp_text *text)
{
    const ddp_rank_view *view = &the->views[rank];
    int pid = view->witness->pid != 0 ? view->witness->pid : view->page != NULL ? view->page->pid : 0;
    const char *host = view->witness->host != NULL ? view->witness->host
                       : view->page != NULL        ? view->page->host
                                                   : "";
    ddp_text_add(text, "rank %d", rank);
    if (pid != 0)
        ddp_text_add(text, " (pid %d%s%s)", pid, *host ? " on " : "", host);
    else if (*host)
        ddp_text_add(text, " (on %s)", host);
}

/* "in phase load of step 5" */
static void add_phase(const ddp_rank_view *view, ddp_text *text)
{
    const ddp_flight_snapshot *page = view->page;
    if (page == NULL || page->phase[0] == '\0')
        ddp_text_add(text, "before its first phase");
    else if (page->step > 0)
        ddp_text_add(text, "in phase %s of step %lld", page->phase, (long long)page->step);
    else
        ddp_text_add(text, "in phase %s", page->phase);
}

static void add_set(const ddp_case *the, ddp_role role, ddp_text *text)
{
    unsigned char set[4096] = {0};
    int count = 0, world = the->world < (int)sizeof set ? the->world : (int)sizeof set;
    for (int i = 0; i < world; i++) {
        set[i] = the->out->roles[i] == role;
        count += set[i];
    }
    ddp_text_add(text, "rank%s ", count == 1 ? "" : "s");
    ddp_show_add_ranks(text, set, world);
}

static const char *op_text(const ddp_flight_record *record, char *buffer, size_t bytes)
{
    return record != NULL ? ddp_flight_text(&record->call, buffer, bytes) : "nothing";
}

/* -- hang -- */

static void add_state(const ddp_case *the, int rank, ddp_text *text)
{
    const ddp_rank_view *view = &the->views[rank];
    add_name(the, rank, text);
    if (view->page == NULL) {
        ddp_text_add(text, " has not come so far that it could tell where it is");
        return;
    }
    ddp_text_add(text, view->stopped                 ? " is stopped "
                       : view->witness->state == 'D' ? " waits inside the kernel (for a disk, a network file "
                                                       "system or a device) "
                                                     : " is ");
    add_phase(view, text);
    ddp_text_add(text, ", for ");
    add_age(text, age(the, view->page->phase_since));
}

/* What the culprit did last: how far it is from where the others wait. */
static void add_last(const ddp_case *the, int rank)
{
    char op[128];
    ddp_text *text = &the->out->details;
    const ddp_rank_view *view = &the->views[rank];
    if (view->page == NULL)
        return;
    const ddp_flight_record *last = ddp_diagnose_record(the, rank, view->issued);
    ddp_text_add(text, "    rank %d ", rank);
    if (the->waited != NULL && view->issued < the->waited->sequence)
        ddp_text_add(text, "has not come to it; its last was ");
    else if (the->waited != NULL)
        ddp_text_add(text, "has come to it but not done its part; its last was ");
    else
        ddp_text_add(text, "issued last ");
    if (last == NULL)
        ddp_text_add(text, view->issued == 0 ? "none at all" : "#%llu", (unsigned long long)view->issued);
    else
        ddp_text_add(text, "#%llu, %s", (unsigned long long)last->sequence, op_text(last, op, sizeof op));
    if (last != NULL && last->done > 0) {
        ddp_text_add(text, ", done ");
        add_age(text, age(the, last->done));
        ddp_text_add(text, " ago");
    }
    ddp_text_add(text, "\n");
}

static void add_waiting(const ddp_case *the)
{
    ddp_text *text = &the->out->details;
    int waiting = 0;
    for (int i = 0; i < the->world; i++)
        waiting += the->out->roles[i] == DDP_ROLE_WAITING;
    if (waiting == 0)
        return;
    ddp_text_add(text, "    ");
    add_set(the, DDP_ROLE_WAITING, text);
    ddp_text_add(text, " wait%s in collective #%llu, %s, for ", waiting == 1 ? "s" : "",
                 (unsigned long long)the->out->sequence, the->out->op);
    add_age(text, the->out->waited_s);
    ddp_text_add(text, "\n");
}

static const char *advise_phase(const char *phase)
{
    static const struct {
        const char *phase, *advice;
    } known[] = {
        {"init",
         "its log, logs/rank-N.log, shows how far it came; watchdog.startup_s is how long it may take"},
        {"load", "look at its data: a slow disk, a network file system that does not answer, a pipe that "
                 "nobody writes into"},
        {"save", "look at the disk that checkpoints go to; watchdog.save_s is how long a save may take"},
        {"eval", "watchdog.eval_s is how long an evaluation may take"},
        {"comm", "look at the network between the hosts; firewalls, too"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].phase, phase) == 0)
            return known[i].advice;
    return NULL;
}

static void advise_hang(const ddp_case *the)
{
    ddp_diagnosis *out = the->out;
    const ddp_rank_view *view = out->rank >= 0 ? &the->views[out->rank] : NULL;
    const char *advice = advise_phase(out->phase);
    if (view == NULL)
        snprintf(out->advice, sizeof out->advice, "%s",
                 the->waited != NULL ? "look at the network between the hosts; firewalls, too"
                                     : "look at what they share: the data, the disk, the file system");
    else if (view->stopped)
        snprintf(out->advice, sizeof out->advice,
                 "somebody sent it SIGSTOP, or a debugger holds it; kill -CONT %d in time lets it go on",
                 out->pid);
    else if (advice != NULL)
        snprintf(out->advice, sizeof out->advice, "%s", advice);
    else
        snprintf(out->advice, sizeof out->advice,
                 "gdb -p %d -batch -ex 'thread apply all bt' shows where it is while it lives", out->pid);
}

static void word_hang(ddp_case *the, ddp_text *cause)
{
    enum { SHOWN = 3 };
    int shown = 0;
    if (the->culprits == 0) {
        ddp_text_add(cause, "all ranks have come to collective #%llu, %s, and it does not end",
                     (unsigned long long)the->out->sequence, the->out->op);
    } else if (the->out->rank < 0) {
        ddp_text_add(cause, "no rank waits for another; all are busy: ");
        add_state(the, 0, cause);
    }
    for (int i = 0; the->out->rank >= 0 && i < the->world; i++) {
        if (the->out->roles[i] != DDP_ROLE_CULPRIT)
            continue;
        if (shown++ >= SHOWN)
            continue;
        ddp_text_add(cause, shown == 1 ? "" : "; ");
        add_state(the, i, cause);
    }
    if (shown > SHOWN)
        ddp_text_add(cause, "; and %d more", shown - SHOWN);
    add_waiting(the);
    shown = 0;
    for (int i = 0; i < the->world && shown < SHOWN; i++)
        if (the->out->roles[i] == DDP_ROLE_CULPRIT) {
            add_last(the, i);
            shown++;
        }
    advise_hang(the);
}

/* -- mismatch -- */

/* "ranks 0,2-3 issued all_reduce (sum) of 100 f32" for each meaning; the many come first. */
static void add_meanings(ddp_case *the, ddp_text *cause)
{
    enum { SHOWN = 3 };
    unsigned char told[4096] = {0};
    int world = the->world < (int)sizeof told ? the->world : (int)sizeof told, shown = 0;
    for (int at = -1; at < world; at++) {
        int rank = at < 0 ? the->usual : at;
        const ddp_flight_record *mine = ddp_diagnose_record(the, rank, the->out->sequence);
        unsigned char set[4096] = {0};
        int count = 0;
        char op[128];
        if (mine == NULL || told[rank])
            continue;
        for (int i = 0; i < world; i++) {
            const ddp_flight_record *record = ddp_diagnose_record(the, i, the->out->sequence);
            set[i] = record != NULL && record->digest == mine->digest;
            told[i] = told[i] || set[i];
            count += set[i];
        }
        if (shown++ >= SHOWN)
            continue;
        ddp_text_add(cause, "%srank%s ", shown == 1 ? "" : "; ", count == 1 ? "" : "s");
        ddp_show_add_ranks(cause, set, world);
        ddp_text_add(cause, " issued %s", op_text(mine, op, sizeof op));
    }
    if (shown > SHOWN)
        ddp_text_add(cause, "; and %d more meanings", shown - SHOWN);
}

static bool same(const ddp_flight_record *a, const ddp_flight_record *b)
{
    return a != NULL && b != NULL && a->digest == b->digest;
}

/* What the odd one did to its order of collectives, where the next ones show it. */
static void add_how(const ddp_case *the, int rank)
{
    uint64_t at = the->out->sequence;
    const ddp_flight_record *mine = ddp_diagnose_record(the, rank, at);
    const ddp_flight_record *next = ddp_diagnose_record(the, rank, at + 1);
    const ddp_flight_record *usual = ddp_diagnose_record(the, the->usual, at);
    const ddp_flight_record *usual_next = ddp_diagnose_record(the, the->usual, at + 1);
    const ddp_flight_record *usual_third = ddp_diagnose_record(the, the->usual, at + 2);
    ddp_text *text = &the->out->details;
    if (same(mine, usual_next) && same(next, usual))
        ddp_text_add(text, "    rank %d has this one and the next the other way round\n", rank);
    else if (same(mine, usual_next) && (same(next, usual_third)))
        ddp_text_add(text, "    rank %d has left this one out\n", rank);
    else if (same(mine, usual_next))
        ddp_text_add(text, "    rank %d issued here what the others issued as #%llu\n", rank,
                     (unsigned long long)at + 1);
    else if (same(next, usual))
        ddp_text_add(text, "    rank %d has issued one that the others have not\n", rank);
}

static void word_surplus(ddp_case *the, ddp_text *cause)
{
    unsigned char set[4096] = {0};
    int count = 0, world = the->world < (int)sizeof set ? the->world : (int)sizeof set;
    for (int i = 0; i < world; i++) {
        set[i] = the->views[i].blocked;
        count += set[i];
    }
    ddp_text_add(cause, "rank%s ", count == 1 ? "" : "s");
    ddp_show_add_ranks(cause, set, world);
    ddp_text_add(cause, " wait%s in collective #%llu, %s, but the others have done all their work",
                 count == 1 ? "s" : "", (unsigned long long)the->out->sequence, the->out->op);
}

static void word_mismatch(ddp_case *the, ddp_text *cause)
{
    if (the->surplus) {
        word_surplus(the, cause);
    } else {
        ddp_text_add(cause,
                     "collective #%llu differs between ranks: ", (unsigned long long)the->out->sequence);
        add_meanings(the, cause);
        for (int i = 0; i < the->world; i++)
            if (the->out->roles[i] == DDP_ROLE_CULPRIT && i != the->usual)
                add_how(the, i);
    }
    snprintf(
        the->out->advice, sizeof the->out->advice,
        "every rank must issue the same collectives in the same order: look for a branch that depends on "
        "the rank or on its own data");
}

/* -- crash, lost -- */

static void add_end(const ddp_case *the, int rank, ddp_text *text)
{
    const ddp_witness *witness = the->views[rank].witness;
    int status = witness->status;
    if (witness->oom)
        ddp_text_add(text, " was ended by the kernel because memory had run out,");
    else if (!witness->ended)
        ddp_text_add(text, " is gone; it was");
    else if (WIFSIGNALED(status))
        ddp_text_add(text, " was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) == 0)
        ddp_text_add(text, " left with exit code 0 before its work was done,");
    else
        ddp_text_add(text, " left with exit code %d", WEXITSTATUS(status));
}

static void word_crash(ddp_case *the, ddp_text *cause)
{
    int rank = the->out->rank, status = the->views[rank].witness->status;
    bool ended = the->views[rank].witness->ended;
    add_name(the, rank, cause);
    add_end(the, rank, cause);
    ddp_text_add(cause, " ");
    add_phase(&the->views[rank], cause);
    add_waiting(the);
    if (the->out->kind == DDP_DIAGNOSIS_OOM)
        snprintf(the->out->advice, sizeof the->out->advice,
                 "a smaller train.micro_batch, fewer ranks on the host, or a higher memory limit");
    else if (ended && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        snprintf(the->out->advice, sizeof the->out->advice,
                 "ddprun did not send it; where memory ran out, the kernel did: see dmesg");
    else
        snprintf(the->out->advice, sizeof the->out->advice, "its last words%s are in logs/rank-%d.log",
                 ended && WIFSIGNALED(status) ? ", and where it was," : "", rank);
}

static void word_lost(ddp_case *the, ddp_text *cause)
{
    const char *host = the->out->host;
    ddp_text_add(cause, "nothing is heard of ");
    add_set(the, DDP_ROLE_CULPRIT, cause);
    ddp_text_add(cause, "%s%s any more; last seen ", *host ? " on " : "", host);
    add_phase(&the->views[the->out->rank], cause);
    add_waiting(the);
    snprintf(the->out->advice, sizeof the->out->advice,
             "see whether the host is up and can be reached: ping %s", *host ? host : "it");
}

/* -- */

void ddp_diagnose_word(ddp_case *the)
{
    ddp_text cause = {0};
    switch (the->out->kind) {
    case DDP_DIAGNOSIS_NOTHING:
        break;
    case DDP_DIAGNOSIS_HANG:
        word_hang(the, &cause);
        break;
    case DDP_DIAGNOSIS_MISMATCH:
        word_mismatch(the, &cause);
        break;
    case DDP_DIAGNOSIS_CRASH:
    case DDP_DIAGNOSIS_OOM:
        word_crash(the, &cause);
        break;
    case DDP_DIAGNOSIS_LOST_HOST:
        word_lost(the, &cause);
        break;
    }
    snprintf(the->out->cause, sizeof the->out->cause, "%s", ddp_text_get(&cause));
    ddp_text_free(&cause);
}
