/* Ranks that mpirun or srun started. Inside a host they meet in shared memory exactly as ranks of ddprun's
 * own do (shm.c), so on one host no byte of a step travels through MPI and the numbers are those of shm, bit
 * for bit; MPI introduces them to each other and connects hosts (mpi_hosts.c).
 *
 * MPI is initialised when this communicator is opened and not before, and ended when it is closed in good
 * health. After a failure it is not: MPI_Finalize would wait for ranks that are gone. The process then just
 * ends with its exit code, on which mpirun removes the others; MPI_Abort is never called here, as the exit
 * code would be lost. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "collectives/comms.h"
#include "collectives/mpi_parts.h"
#include "core/memory.h"

ddp_error *mpi_check(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (code == MPI_SUCCESS)
        return NULL;
    MPI_Error_string(code, text, &length);
    return ddp_error_make(DDP_ERR_IO, "MPI, %s: %s", what, text);
}

static ddp_error *start_mpi(void)
{
    int there, level;
    MPI_Initialized(&there);
    if (there)
        MPI_Query_thread(&level);
    else
        DDP_TRY(mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level), "MPI_Init_thread"));
    if (level < MPI_THREAD_SERIALIZED)
        return ddp_error_make(DDP_ERR_MACHINE, "this MPI library cannot be used from more than one thread");
    return mpi_check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "setting the error handler");
}

/* world: a duplicate, so that nobody else's messages meet ours. host: at most config->local_world ranks that
 * share memory (fewer than there are is how tests make several hosts of one). */
static ddp_error *make_comms(mpi_comm *comm, const ddp_comm_config *config)
{
    MPI_Comm shared;
    int rank, size, local;
    DDP_TRY(mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &comm->world), "MPI_Comm_dup"));
    MPI_Comm_rank(comm->world, &rank);
    MPI_Comm_size(comm->world, &size);
    if (rank != config->rank || size != config->world)
        return ddp_error_help(
            ddp_error_make(DDP_ERR_INPUT, "rank %d of %d was expected, MPI says rank %d of %d", config->rank,
                           config->world, rank, size),
            "was it started by the mpirun of the same Open MPI that ddprun was built with?");
    DDP_TRY(mpi_check(MPI_Comm_split_type(comm->world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &shared),
                      "MPI_Comm_split_type"));
    MPI_Comm_rank(shared, &local);
    int most = config->local_world > 0 ? config->local_world : size;
    int code = MPI_Comm_split(shared, local / most, local, &comm->host);
    MPI_Comm_free(&shared);
    return mpi_check(code, "MPI_Comm_split");
}

/* The memory file of this host: its first rank makes it, the others open it through /proc. */
static ddp_error *meet_on_host(mpi_comm *comm, ddp_rendezvous **made, int *fd)
{
    ddp_error *error = NULL;
    int local, size, there[3] = {0, -1, 0}; /* pid, fd, errno */
    MPI_Comm_rank(comm->host, &local);
    MPI_Comm_size(comm->host, &size);
    if (local == 0) {
        error = ddp_rendezvous_make(size, made);
        there[0] = getpid();
        there[1] = error == NULL ? ddp_rendezvous_fd(*made) : -1;
    }
    int code = MPI_Bcast(there, 2, MPI_INT, 0, comm->host);
    if (error != NULL)
        return error;
    DDP_TRY(mpi_check(code, "MPI_Bcast"));
    if (there[1] < 0)
        return ddp_error_make(DDP_ERR_PEER, "the first rank of this host could not make the memory file");
    if (local == 0) {
        *fd = there[1];
        return NULL;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", there[0], there[1]);
    *fd = open(path, O_RDWR | O_CLOEXEC);
    if (*fd >= 0)
        return NULL;
    return ddp_error_help(
        ddp_error_errno(errno, "%s, the memory file that this host's first rank made", path),
        "all ranks of a host must run as one user, in one PID namespace, with /proc mounted");
}

/* Everyone hears whether everyone is well; without that, one rank's error would be a hang of the others. */
static ddp_error *agree(mpi_comm *comm, ddp_error *error)
{
    int rank, size, mine, first = 0;
    MPI_Comm_rank(comm->world, &rank);
    MPI_Comm_size(comm->world, &size);
    mine = error != NULL ? rank : size;
    ddp_error *spoken =
        mpi_check(MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm->world), "MPI_Allreduce");
    if (error != NULL) {
        ddp_error_free(spoken);
        return error;
    }
    if (spoken == NULL && first < size)
        return ddp_error_make(DDP_ERR_PEER, "rank %d could not join; its own message says why", first);
    return spoken;
}

static ddp_error *join_host(mpi_comm *comm, const ddp_comm_config *config)
{
    ddp_shm *shm = &comm->shm;
    ddp_rendezvous *made = NULL;
    int fd = -1, local, size, rank = config->rank;
    MPI_Comm_rank(comm->host, &local);
    MPI_Comm_size(comm->host, &size);
    ddp_error *error = agree(comm, meet_on_host(comm, &made, &fd));
    if (error == NULL)
        error =
            mpi_check(MPI_Allgather(&rank, 1, MPI_INT, shm->ranks, 1, MPI_INT, comm->host), "MPI_Allgather");
    if (error == NULL) {
        shm->group.base.local_rank = local;
        shm->group.base.local_world = size;
        shm->group.meet = (ddp_meet){.me = local, .count = size, .ranks = shm->ranks};
        shm->group.work = ddp_group_work;
        error = agree(comm, ddp_shm_begin(shm, fd));
    }
    if (made != NULL)
        ddp_rendezvous_close(made); /* everyone has it open */
    else if (fd >= 0)
        close(fd);
    return error;
}

static void close_mpi(ddp_comm *base)
{
    mpi_comm *comm = (mpi_comm *)base;
    bool well = comm->has_lock && !comm->shm.group.failed &&
                !ddp_control_aborted(comm->shm.group.meet.control, NULL, NULL);
    mpi_hosts_close(comm);
    ddp_shm_end(&comm->shm);
    int there, done;
    MPI_Initialized(&there);
    MPI_Finalized(&done);
    if (well && there && !done)
        MPI_Finalize();
    if (comm->has_lock)
        pthread_mutex_destroy(&comm->lock);
    free(comm);
}

static ddp_error *join(mpi_comm *comm, const ddp_comm_config *config)
{
    int size;
    DDP_TRY(start_mpi());
    DDP_TRY(make_comms(comm, config));
    DDP_TRY(join_host(comm, config));
    MPI_Comm_size(comm->host, &size);
    if (size < config->world) {
        DDP_TRY(agree(comm, mpi_hosts_open(comm, &comm->hosts)));
        comm->shm.group.work = mpi_hosts_work;
        comm->shm.group.no_small = true;
    }
    pthread_mutex_init(&comm->lock, NULL);
    comm->has_lock = true;
    return NULL;
}

static ddp_error *open_mpi(const ddp_comm_config *config, ddp_comm **comm)
{
    if (!config->device->ops->host_memory)
        return ddp_error_make(DDP_ERR_INTERNAL, "the mpi communicator works on host memory only");
    mpi_comm *made = NULL;
    DDP_TRY(DDP_NEW(&made));
    made->world = made->host = MPI_COMM_NULL;
    made->shm.group.base = (ddp_comm){.ops = &ddp_comm_mpi_ops,
                                      .device = config->device,
                                      .rank = config->rank,
                                      .world = config->world,
                                      .timeout_s = config->timeout_s};
    ddp_error *error = join(made, config);
    if (error != NULL)
        close_mpi(&made->shm.group.base);
    else
        *comm = &made->shm.group.base;
    return error;
}

static ddp_error *health(ddp_comm *comm)
{
    mpi_hosts_relay((mpi_comm *)comm);
    return ddp_group_health(comm);
}

static void give_up(ddp_comm *comm, const char *why)
{
    ddp_group_abort(comm, why);
    mpi_hosts_relay((mpi_comm *)comm);
}

const ddp_comm_ops ddp_comm_mpi_ops = {
    .name = "mpi",
    .open = open_mpi,
    .close = close_mpi,
    .alloc = ddp_shm_alloc,
    .free = ddp_shm_free,
    .all_reduce = ddp_group_all_reduce,
    .reduce_scatter = ddp_group_reduce_scatter,
    .all_gather = ddp_group_all_gather,
    .broadcast = ddp_group_broadcast,
    .barrier = ddp_group_barrier,
    .health = health,
    .abort = give_up,
};
