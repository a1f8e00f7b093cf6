/* Pages and process states, gathered from outside. */
#include "launcher/evidence.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "core/memory.h"
#include "launcher/oom.h"

ddp_error *ddp_evidence_make(int world, ddp_evidence *evidence)
{
    ddp_evidence made = {.world = world, .oom_count = ddp_oom_count()};
    void *memory;
    size_t count = (size_t)world;
    ddp_error *error = NULL;
    DDP_GO(ddp_memory_make(count, sizeof *made.ranks, &memory));
    made.ranks = memory;
    DDP_GO(ddp_memory_make(count, sizeof *made.pages, &memory));
    made.pages = memory;
    DDP_GO(ddp_memory_make(count, sizeof *made.reasons, &memory));
    made.reasons = memory;
out:
    if (error != NULL)
        ddp_evidence_free(&made);
    else
        *evidence = made;
    return error;
}

void ddp_evidence_free(ddp_evidence *evidence)
{
    for (int i = 0; evidence->reasons != NULL && i < evidence->world; i++)
        ddp_error_free(evidence->reasons[i]);
    free(evidence->ranks);
    free(evidence->pages);
    free(evidence->reasons);
    *evidence = (ddp_evidence){0};
}

/* X where the process is another one by now. */
static char state_of(int pid, uint64_t started)
{
    uint64_t found;
    char state = ddp_flight_look(pid, &found);
    return started != 0 && found != started ? 'X' : state;
}

static void look_at(ddp_evidence *evidence, const char *run_dir, int rank)
{
    char path[4096];
    ddp_witness *witness = &evidence->ranks[rank];
    ddp_flight_snapshot *page = &evidence->pages[rank];
    ddp_error_free(evidence->reasons[rank]);
    evidence->reasons[rank] = ddp_flight_read(ddp_flight_path(run_dir, rank, path, sizeof path), page);
    witness->page = NULL;
    if (evidence->reasons[rank] != NULL)
        return;
    if (page->rank != rank || (witness->pid != 0 && page->pid != witness->pid)) {
        evidence->reasons[rank] = ddp_error_make(DDP_ERR_INPUT, "%s: of another process, rank %d with pid %d",
                                                 path, page->rank, page->pid);
        return;
    }
    witness->page = page;
}

/* Its log where that can be read; else that somebody of the cgroup was ended for memory since we began. */
static bool ran_out(const ddp_evidence *evidence, const ddp_witness *witness)
{
    if (!witness->ended || !WIFSIGNALED(witness->status) || WTERMSIG(witness->status) != SIGKILL)
        return false;
    int pid = witness->pid != 0 ? witness->pid : witness->page != NULL ? witness->page->pid : 0;
    if (pid != 0 && ddp_oom_logged(pid, witness->page != NULL ? witness->page->opened : 0))
        return true;
    int64_t count = ddp_oom_count();
    return evidence->oom_count >= 0 && count > evidence->oom_count;
}

void ddp_evidence_collect(ddp_evidence *evidence, const char *run_dir)
{
    for (int rank = 0; rank < evidence->world; rank++) {
        ddp_witness *witness = &evidence->ranks[rank];
        look_at(evidence, run_dir, rank);
        const ddp_flight_snapshot *page = witness->page;
        witness->oom = witness->oom || ran_out(evidence, witness);
        bool here = page != NULL && page->here;
        witness->state = 0;
        if (here)
            witness->state = state_of(page->pid, page->pid_started);
        else if (page == NULL && witness->pid != 0 && witness->host == NULL)
            witness->state = state_of(witness->pid, 0);
    }
}
