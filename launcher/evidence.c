/* Pages and process states, gathered from outside. */
#include "launcher/evidence.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"

ddp_error *ddp_evidence_make(int world, ddp_evidence *evidence)
{
    ddp_evidence made = {.world = world};
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

char ddp_evidence_state(int pid, uint64_t started)
{
    char path[64], stat[1024] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, stat, sizeof stat - 1) : -1;
    if (fd >= 0)
        close(fd);
    char *at = got > 0 ? strrchr(stat, ')') : NULL; /* the name before it may hold anything */
    if (at == NULL || strlen(at) < 3)
        return 'X';
    char state = at[2];
    at += 1;
    for (int field = 2; field < 22 && at != NULL; field++)
        at = strchr(at + 1, ' ');
    uint64_t begun = at != NULL ? strtoull(at, NULL, 10) : 0;
    return started != 0 && begun != started ? 'X' : state;
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

void ddp_evidence_collect(ddp_evidence *evidence, const char *run_dir)
{
    for (int rank = 0; rank < evidence->world; rank++) {
        ddp_witness *witness = &evidence->ranks[rank];
        look_at(evidence, run_dir, rank);
        const ddp_flight_snapshot *page = witness->page;
        bool here = page != NULL && page->here;
        witness->state = 0;
        if (here)
            witness->state = ddp_evidence_state(page->pid, page->pid_started);
        else if (page == NULL && witness->pid != 0 && witness->host == NULL)
            witness->state = ddp_evidence_state(witness->pid, 0);
    }
}
