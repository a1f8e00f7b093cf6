/* Who is to blame for a job that does not go on. See diagnose.h for the rules; the words are in
 * diagnose_text.c.
 *
 * Note [Who waits]
 * A rank that has issued a collective which has not ended is not therefore waiting: buckets are reduced while
 * backward goes on. It waits when its phase has nothing else to do. So in load, forward, backward and step a
 * rank is busy, whatever is under way; in every other phase an unfinished collective is what it waits for. */
#include "launcher/diagnose.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "core/memory.h"
#include "launcher/diagnose_parts.h"

static bool is_one_of(const char *phase, const char *const *words)
{
    while (*words != NULL && strcmp(*words, phase) != 0)
        words++;
    return *words != NULL;
}

/* Its code is that of a rank that only noticed another's failure. */
static bool is_echo(const ddp_witness *witness)
{
    return witness->ended && WIFEXITED(witness->status) && WEXITSTATUS(witness->status) == 1;
}

static ddp_rank_view look_at(const ddp_witness *witness)
{
    static const char *const busy[] = {"load", "forward", "backward", "step", NULL};
    static const char *const last[] = {"end", "stopped", NULL};
    ddp_rank_view view = {.witness = witness, .page = witness->page};
    view.stopped = witness->state == 'T' || witness->state == 't';
    view.gone = witness->ended || witness->state == 'X' || witness->state == 'Z';
    if (view.page == NULL) {
        view.failed = view.gone;
        return view;
    }
    const ddp_flight_snapshot *page = view.page;
    view.pending = ddp_flight_pending(page);
    view.issued = page->issued;
    view.through = is_one_of(page->phase, last) && view.pending == NULL;
    view.victim = view.pending != NULL && is_echo(witness);
    view.blocked =
        view.victim || (view.pending != NULL && !view.stopped && !view.gone && !is_one_of(page->phase, busy));
    bool clean = !witness->ended || (WIFEXITED(witness->status) && WEXITSTATUS(witness->status) == 0);
    view.failed = view.gone && (!clean || !is_one_of(page->phase, last));
    if (view.pending != NULL)
        view.since = view.pending->issued > page->phase_since ? view.pending->issued : page->phase_since;
    return view;
}

void ddp_diagnose_blame(ddp_case *the, int rank)
{
    the->out->roles[rank] = DDP_ROLE_CULPRIT;
    the->culprits++;
    if (the->out->rank < 0 || rank < the->out->rank)
        the->out->rank = rank;
}

/* What the others wait in: the oldest collective that somebody waits for. */
static void find_waiting(ddp_case *the)
{
    for (int i = 0; i < the->world; i++) {
        const ddp_rank_view *view = &the->views[i];
        if (!view->blocked)
            continue;
        the->blocked++;
        the->out->roles[i] = DDP_ROLE_WAITING;
        if (the->waited == NULL || view->pending->sequence < the->waited->sequence)
            the->waited = view->pending;
        if (the->question->now - view->since > the->out->waited_s)
            the->out->waited_s = the->question->now - view->since;
    }
}

/* -- crash -- */

/* Victims count only where nobody else has failed. */
static int first_failed(const ddp_case *the, bool victims)
{
    int found = the->question->first;
    if (found >= 0 && found < the->world && (victims || !the->views[found].victim))
        return found;
    found = -1;
    for (int i = 0; i < the->world; i++) {
        const ddp_rank_view *view = &the->views[i], *best = found >= 0 ? &the->views[found] : NULL;
        if (!view->failed || (view->victim && !victims))
            continue;
        bool likelier = best != NULL && is_echo(best->witness) && !is_echo(view->witness);
        bool earlier = best != NULL && view->page != NULL && best->page != NULL &&
                       is_echo(best->witness) == is_echo(view->witness) &&
                       view->page->latest < best->page->latest;
        if (best == NULL || likelier || earlier)
            found = i;
    }
    return found;
}

static bool find_crash(ddp_case *the, bool victims)
{
    int rank = first_failed(the, victims);
    if (rank < 0)
        return false;
    the->out->kind = the->views[rank].witness->oom ? DDP_DIAGNOSIS_OOM : DDP_DIAGNOSIS_CRASH;
    ddp_diagnose_blame(the, rank);
    return true;
}

/* A rank whose process can be seen is not lost, whatever became of its connection. */
static bool find_lost(ddp_case *the)
{
    for (int i = 0; i < the->world; i++) {
        const ddp_rank_view *view = &the->views[i];
        if (view->witness->lost && view->witness->state == 0 && !view->gone && !view->through)
            ddp_diagnose_blame(the, i);
    }
    if (the->culprits > 0)
        the->out->kind = DDP_DIAGNOSIS_LOST_HOST;
    return the->culprits > 0;
}

/* -- mismatch -- */

static const ddp_flight_record *record_of(const ddp_rank_view *view, uint64_t sequence)
{
    const ddp_flight_snapshot *page = view->page;
    if (page == NULL || page->count == 0 || sequence > page->issued)
        return NULL;
    /* Where nothing was torn the numbers are dense. */
    uint64_t back = page->issued - sequence;
    if (back < (uint64_t)page->count && page->records[page->count - 1 - (int)back].sequence == sequence)
        return &page->records[page->count - 1 - (int)back];
    return ddp_flight_find(page, sequence);
}

const ddp_flight_record *ddp_diagnose_record(const ddp_case *the, int rank, uint64_t sequence)
{
    return record_of(&the->views[rank], sequence);
}

static bool differs(const ddp_case *the, uint64_t sequence)
{
    const ddp_flight_record *reference = NULL;
    for (int i = 0; i < the->world; i++) {
        const ddp_flight_record *record = record_of(&the->views[i], sequence);
        if (record != NULL && reference != NULL && record->digest != reference->digest)
            return true;
        if (reference == NULL)
            reference = record;
    }
    return false;
}

/* How many ranks mean the same by this number as rank `rank`. */
static int count_like(const ddp_case *the, int rank, uint64_t sequence)
{
    const ddp_flight_record *mine = record_of(&the->views[rank], sequence);
    int count = 0;
    for (int i = 0; mine != NULL && i < the->world; i++) {
        const ddp_flight_record *record = record_of(&the->views[i], sequence);
        count += record != NULL && record->digest == mine->digest;
    }
    return count;
}

/* The few are to blame; where no meaning has the most ranks, nobody in particular. */
static void blame_the_few(ddp_case *the, uint64_t sequence)
{
    int most = 0, usual = -1;
    bool tie = false;
    for (int i = 0; i < the->world; i++) {
        int count = count_like(the, i, sequence);
        if (count > most) {
            most = count;
            usual = i;
        }
    }
    const ddp_flight_record *meant = record_of(&the->views[usual], sequence);
    for (int i = 0; i < the->world; i++) {
        const ddp_flight_record *record = record_of(&the->views[i], sequence);
        if (record == NULL || record->digest == meant->digest)
            continue;
        ddp_diagnose_blame(the, i);
        tie = tie || count_like(the, i, sequence) == most;
    }
    the->usual = usual;
    the->out->sequence = sequence;
    ddp_flight_text(&meant->call, the->out->op, sizeof the->out->op);
    if (tie) {
        for (int i = 0; i < the->world; i++)
            if (record_of(&the->views[i], sequence) != NULL)
                the->out->roles[i] = DDP_ROLE_CULPRIT;
        the->out->rank = -1;
    }
}

static bool find_mismatch(ddp_case *the)
{
    uint64_t low = UINT64_MAX, high = 0;
    for (int i = 0; i < the->world; i++) {
        const ddp_flight_snapshot *page = the->views[i].page;
        if (page == NULL || page->count == 0)
            continue;
        low = page->records[0].sequence < low ? page->records[0].sequence : low;
        high = page->issued > high ? page->issued : high;
    }
    for (uint64_t sequence = low; sequence <= high; sequence++) {
        if (!differs(the, sequence))
            continue;
        the->out->kind = DDP_DIAGNOSIS_MISMATCH;
        blame_the_few(the, sequence);
        return true;
    }
    return false;
}

/* Some wait, all others are through: what they wait for will never be issued. */
static bool find_surplus(ddp_case *the)
{
    int through = 0;
    for (int i = 0; i < the->world; i++)
        through +=
            the->views[i].through && the->waited != NULL && the->views[i].issued < the->waited->sequence;
    if (the->waited == NULL || through == 0 || through + the->blocked < the->world)
        return false;
    the->out->kind = DDP_DIAGNOSIS_MISMATCH;
    the->surplus = true;
    for (int i = 0; i < the->world; i++)
        if (the->views[i].through != (through >= the->blocked))
            ddp_diagnose_blame(the, i);
    return true;
}

/* -- hang -- */

/* Has not come to what the others wait in; or has, and is busy with something else and does not do its part.
 */
static bool is_absent(const ddp_case *the, const ddp_rank_view *view)
{
    if (view->blocked || view->through || view->gone)
        return false;
    if (view->page == NULL || view->stopped || view->issued < the->waited->sequence)
        return true;
    return view->pending != NULL && view->pending->sequence <= the->waited->sequence;
}

/* All who could be missing wait themselves: those that are behind, if any, hold up the rest. */
static void blame_behind(ddp_case *the)
{
    uint64_t sequence = the->waited->sequence;
    bool ahead = false;
    for (int i = 0; i < the->world; i++) {
        const ddp_rank_view *view = &the->views[i];
        ahead = ahead || (view->pending == NULL && view->issued >= sequence) ||
                (view->pending != NULL && view->pending->sequence > sequence);
    }
    for (int i = 0; ahead && i < the->world; i++)
        if (the->views[i].blocked && the->views[i].pending->sequence == sequence)
            ddp_diagnose_blame(the, i);
}

static void blame_stopped(ddp_case *the)
{
    for (int i = 0; i < the->world; i++)
        if (the->views[i].stopped && !the->views[i].gone)
            ddp_diagnose_blame(the, i);
}

/* Nobody waits: blame whoever has been at the same thing for longer than is allowed. */
static void blame_busy(ddp_case *the)
{
    for (int i = 0; i < the->world; i++) {
        const ddp_rank_view *view = &the->views[i];
        if (view->page == NULL || view->gone || view->through)
            continue;
        double since = view->page->phase_since;
        if (the->question->now - since >= the->question->limit_s / 2)
            ddp_diagnose_blame(the, i);
    }
    if (the->culprits == the->world && the->world > 1)
        the->out->rank = -1;
}

static bool find_hang(ddp_case *the)
{
    if (the->waited != NULL) {
        for (int i = 0; i < the->world; i++)
            if (is_absent(the, &the->views[i]))
                ddp_diagnose_blame(the, i);
        if (the->culprits == 0)
            blame_behind(the);
        if (the->culprits == 0 && first_failed(the, true) >= 0)
            return false;
    } else {
        blame_stopped(the);
        if (the->culprits == 0 && the->question->limit_s > 0)
            blame_busy(the);
        if (the->culprits == 0)
            return false;
    }
    the->out->kind = DDP_DIAGNOSIS_HANG;
    return true;
}

/* -- all of it -- */

static void fill_culprit(ddp_case *the)
{
    ddp_diagnosis *out = the->out;
    if (the->waited != NULL && out->sequence == 0) {
        out->sequence = the->waited->sequence;
        ddp_flight_text(&the->waited->call, out->op, sizeof out->op);
    }
    if (out->rank < 0)
        return;
    const ddp_rank_view *view = &the->views[out->rank];
    const ddp_witness *witness = view->witness;
    out->pid = witness->pid != 0 ? witness->pid : view->page != NULL ? view->page->pid : 0;
    const char *host = witness->host != NULL ? witness->host : view->page != NULL ? view->page->host : "";
    memcpy(out->host, host, strnlen(host, sizeof out->host - 1));
    if (view->page != NULL) {
        memcpy(out->phase, view->page->phase, sizeof out->phase);
        out->step = view->page->step;
    }
}

ddp_error *ddp_diagnose(const ddp_question *question, ddp_diagnosis *diagnosis)
{
    void *views = NULL, *roles = NULL;
    size_t count = (size_t)question->world;
    DDP_TRY(ddp_memory_make(count, sizeof(ddp_rank_view), &views));
    ddp_error *error = ddp_memory_make(count, 1, &roles);
    if (error == NULL) {
        *diagnosis = (ddp_diagnosis){.world = question->world, .roles = roles, .rank = -1, .step = -1};
        ddp_case the = {
            .question = question, .world = question->world, .views = views, .out = diagnosis, .usual = -1};
        for (int i = 0; i < question->world; i++)
            the.views[i] = look_at(&question->ranks[i]);
        find_waiting(&the);
        bool found = find_crash(&the, false) || find_lost(&the) || find_mismatch(&the) ||
                     find_surplus(&the) || find_hang(&the) || find_crash(&the, true);
        if (found) {
            fill_culprit(&the);
            ddp_diagnose_word(&the);
        }
    }
    free(views);
    return error;
}
