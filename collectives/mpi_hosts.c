/* The other hosts: which ranks are on which, the communicators between them, and the news that a host gives
 * up. How data goes between them is in mpi_exchange.c. Only the first rank of a host sends and receives such
 * news; inside its host everyone reads it in the control block. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/mpi_parts.h"
#include "core/clock.h"
#include "core/memory.h"

enum { TAG_ABORT = 3 };

/* -- opening -- */

static ddp_error *number_hosts(mpi_comm *comm, mpi_hosts *h)
{
    int world = comm->shm.group.base.world, leader = comm->shm.ranks[0];
    char name[HOSTS_NAME_BYTES] = "", (*all)[HOSTS_NAME_BYTES] = NULL;
    gethostname(name, sizeof name - 1);
    DDP_TRY(ddp_memory_make((size_t)world, sizeof *all, (void **)&all));
    h->names = all;
    DDP_TRY(ddp_memory_make((size_t)world, sizeof *h->host_of, (void **)&h->host_of));
    DDP_TRY(ddp_memory_make((size_t)world, sizeof *h->leader_of, (void **)&h->leader_of));
    DDP_TRY(
        mpi_check(MPI_Allgather(&leader, 1, MPI_INT, h->host_of, 1, MPI_INT, comm->world), "MPI_Allgather"));
    DDP_TRY(mpi_check(
        MPI_Allgather(name, HOSTS_NAME_BYTES, MPI_CHAR, all, HOSTS_NAME_BYTES, MPI_CHAR, comm->world),
        "MPI_Allgather"));
    for (int rank = 0; rank < world; rank++)
        if (h->host_of[rank] == rank) {
            memmove(h->names[h->count], all[rank], HOSTS_NAME_BYTES);
            h->leader_of[h->count++] = rank;
        }
    for (int rank = 0; rank < world; rank++) {
        int host = 0;
        while (h->leader_of[host] != h->host_of[rank])
            host++;
        h->host_of[rank] = host;
    }
    h->me = h->host_of[comm->shm.group.base.rank];
    return NULL;
}

static ddp_error *make_peers(mpi_comm *comm, mpi_hosts *h)
{
    int local = comm->shm.group.meet.me, size = comm->shm.group.meet.count;
    DDP_TRY(mpi_check(MPI_Allreduce(&size, &h->shares, 1, MPI_INT, MPI_MIN, comm->world), "MPI_Allreduce"));
    int color = local < h->shares ? local : MPI_UNDEFINED;
    DDP_TRY(mpi_check(MPI_Comm_split(comm->world, color, h->me, &h->peers), "MPI_Comm_split"));
    return mpi_check(MPI_Comm_split(comm->world, local == 0 ? 0 : MPI_UNDEFINED, h->me, &h->notes),
                     "MPI_Comm_split");
}

static ddp_error *make_buffers(mpi_comm *comm, mpi_hosts *h)
{
    /* At most, in an all-gather: a first rank sends each of its host's parts to every other host and receives
     * one part of every rank elsewhere. */
    h->capacity = comm->shm.group.base.world * h->count + 2 * h->count;
    DDP_TRY(ddp_memory_make((size_t)h->capacity, sizeof *h->requests, (void **)&h->requests));
    DDP_TRY(ddp_memory_make((size_t)h->capacity, sizeof *h->sources, (void **)&h->sources));
    DDP_TRY(ddp_memory_make((size_t)h->count, sizeof *h->calls, (void **)&h->calls));
    DDP_TRY(ddp_memory_make((size_t)h->count, sizeof *h->call_list, (void **)&h->call_list));
    for (int i = 0; i < h->count; i++)
        h->call_list[i] = &h->calls[i];
    return ddp_memory_make(HOSTS_CHUNK_BYTES + (size_t)h->count * 64, 1, (void **)&h->incoming);
}

static ddp_error *listen_for_aborts(mpi_comm *comm, mpi_hosts *h)
{
    if (comm->shm.group.meet.me != 0)
        return NULL;
    DDP_TRY(mpi_check(MPI_Irecv(&h->note_in, sizeof h->note_in, MPI_BYTE, MPI_ANY_SOURCE, TAG_ABORT, h->notes,
                                &h->note_request),
                      "MPI_Irecv"));
    h->listening = true;
    return NULL;
}

ddp_error *mpi_hosts_open(mpi_comm *comm, mpi_hosts **hosts)
{
    mpi_hosts *h = NULL;
    DDP_TRY(DDP_NEW(&h));
    h->peers = h->notes = MPI_COMM_NULL;
    *hosts = h; /* half-built is fine for closing */
    DDP_TRY(number_hosts(comm, h));
    DDP_TRY(make_peers(comm, h));
    DDP_TRY(make_buffers(comm, h));
    return listen_for_aborts(comm, h);
}

/* -- aborts -- */

static void send_note(mpi_comm *comm, const char *why, int culprit)
{
    mpi_hosts *h = comm->hosts;
    h->relayed = true;
    h->note_out.culprit = culprit;
    snprintf(h->note_out.why, sizeof h->note_out.why, "%s", why);
    for (int i = 0; i < h->count; i++) {
        MPI_Request request;
        if (i == h->me)
            continue;
        /* Small enough to be sent at once; nobody waits for it, as there may be nobody. */
        if (MPI_Isend(&h->note_out, sizeof h->note_out, MPI_BYTE, i, TAG_ABORT, h->notes, &request) ==
            MPI_SUCCESS)
            MPI_Request_free(&request);
    }
}

void mpi_hosts_relay_locked(mpi_comm *comm)
{
    mpi_hosts *h = comm->hosts;
    ddp_control *control = comm->shm.group.meet.control;
    const char *why;
    int arrived = 0, culprit;
    if (!h->listening)
        return;
    if (MPI_Test(&h->note_request, &arrived, MPI_STATUS_IGNORE) == MPI_SUCCESS && arrived) {
        h->listening = false;
        h->relayed = true; /* whoever sent it has told the others too */
        ddp_control_abort(control, h->note_in.culprit, h->note_in.why);
    } else if (!h->relayed && ddp_control_aborted(control, &culprit, &why)) {
        send_note(comm, why, culprit);
    }
}

void mpi_hosts_relay(mpi_comm *comm)
{
    if (comm->hosts == NULL)
        return;
    pthread_mutex_lock(&comm->lock);
    mpi_hosts_relay_locked(comm);
    pthread_mutex_unlock(&comm->lock);
}

void mpi_hosts_close(mpi_comm *comm)
{
    enum { MOMENTS = 20 };
    mpi_hosts *h = comm->hosts;
    if (h == NULL)
        return;
    if (comm->has_lock)
        mpi_hosts_relay(comm);
    for (int i = 0; h->relayed && i < MOMENTS; i++) { /* gives the note a chance to leave */
        int flag;
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_ABORT, h->notes != MPI_COMM_NULL ? h->notes : comm->world, &flag,
                   MPI_STATUS_IGNORE);
        ddp_clock_sleep(0.005);
    }
    if (h->listening) {
        MPI_Cancel(&h->note_request);
        MPI_Request_free(&h->note_request);
    }
    free(h->host_of);
    free(h->leader_of);
    free(h->names);
    free(h->requests);
    free(h->sources);
    free(h->incoming);
    free(h->calls);
    free(h->call_list);
    free(h);
    comm->hosts = NULL;
}
