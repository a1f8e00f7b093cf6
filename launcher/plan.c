/* Making a plan. How it is written: plan_text.c. */
#include "launcher/plan.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "runtime/buckets.h"

#define MIB (1024.0 * 1024.0)
#define MAX_HOSTS 4096

static ddp_place where_hosts(const ddp_job *job)
{
    return ddp_job_where(job, &job->launch.hosts);
}

static bool is_this_host(const char *name, const char *own)
{
    size_t length = strcspn(own, ".");
    return strcmp(name, "localhost") == 0 || strcmp(name, own) == 0 ||
           (strncmp(name, own, length) == 0 && name[length] == '\0');
}

/* "name" or "name:slots". What is not a name would reach mpirun as something else. */
static ddp_error *read_host(const ddp_job *job, const char *text, const char *own, ddp_plan_host *host)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    int64_t slots = 0;
    size_t length = strspn(text, allowed);
    bool fine = length > 0 && length < sizeof host->name && text[0] != '-' && text[0] != '.';
    if (fine && text[length] == ':')
        fine = ddp_text_to_int(text + length + 1, &slots) && slots >= 1 && slots <= 1 << 20;
    else
        fine = fine && text[length] == '\0';
    if (!fine)
        return ddp_error_help(
            ddp_error_at(DDP_ERR_INPUT, where_hosts(job), "launch.hosts: \"%s\" is no host", text),
            "a host is a name or an IPv4 address, with how many ranks it takes: node1 or node1:8");
    memcpy(host->name, text, length);
    host->name[length] = '\0';
    host->slots = (int)slots;
    host->here = is_this_host(host->name, own);
    return NULL;
}

static ddp_error *check_twice(const ddp_job *job, const ddp_plan *plan)
{
    for (int i = 0; i < plan->host_count; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(plan->hosts[i].name, plan->hosts[k].name) == 0)
                return ddp_error_at(DDP_ERR_INPUT, where_hosts(job), "launch.hosts: %s is there twice",
                                    plan->hosts[i].name);
    return NULL;
}

static ddp_error *read_hosts(const ddp_job *job, bool alone, ddp_plan *plan)
{
    char own[256] = "localhost";
    size_t count = alone ? 0 : job->launch.hosts.count;
    void *hosts;
    gethostname(own, sizeof own - 1);
    if (count > MAX_HOSTS)
        return ddp_error_at(DDP_ERR_INPUT, where_hosts(job),
                            "launch.hosts: %zu hosts, at most %d are possible", count, MAX_HOSTS);
    DDP_TRY(ddp_memory_make(count > 0 ? count : 1, sizeof *plan->hosts, &hosts));
    plan->hosts = hosts;
    plan->host_count = count > 0 ? (int)count : 1;
    snprintf(plan->hosts[0].name, sizeof plan->hosts[0].name, "%s", own);
    plan->hosts[0].here = true;
    for (size_t i = 0; i < count; i++)
        DDP_TRY(read_host(job, job->launch.hosts.at[i], own, &plan->hosts[i]));
    return check_twice(job, plan);
}

/* ddprun starts the ranks itself on this host; mpirun everywhere else and where asked for. */
static ddp_error *choose_via(const ddp_job *job, ddp_plan *plan)
{
    bool elsewhere = plan->host_count > 1 || !plan->hosts[0].here;
    ddp_place place = ddp_job_where(job, &job->launch.via);
    plan->mpirun = job->launch.via == DDP_VIA_MPIRUN || (job->launch.via == DDP_VIA_AUTO && elsewhere);
    if (job->launch.via == DDP_VIA_SRUN)
        return ddp_error_help(
            ddp_error_at(DDP_ERR_INPUT, place, "launch.via: srun is not in this build"),
            "launch.via=mpirun works inside a Slurm allocation: Open MPI asks Slurm by itself");
    if (job->launch.via == DDP_VIA_LOCAL && elsewhere)
        return ddp_error_help(ddp_error_at(DDP_ERR_INPUT, place,
                                           "launch.via: local reaches this host only, but launch.hosts "
                                           "names %s",
                                           plan->hosts[plan->hosts[0].here ? 1 : 0].name),
                              "launch.via=mpirun, or no launch.hosts");
    return NULL;
}

/* How many ranks may run, as cores times hosts. */
static ddp_error *count_places(const ddp_plan *plan, int *cores, int *hosts)
{
    ddp_bind_share all;
    int slots = 0;
    bool every = true;
    for (int i = 0; i < plan->host_count; i++) {
        slots += plan->hosts[i].slots;
        every = every && plan->hosts[i].slots > 0;
    }
    *cores = slots;
    *hosts = 1;
    if (every)
        return NULL;
    DDP_TRY(ddp_bind_plan(0, 1, &all));
    *cores = all.allowed;
    *hosts = plan->host_count;
    return NULL;
}

/* Ranks over hosts: those with slots take so many, the others share the rest equally, in order. */
static ddp_error *spread_ranks(const ddp_job *job, ddp_plan *plan)
{
    int left = plan->setup.world, room = 0, open = 0;
    for (int i = 0; i < plan->host_count; i++) {
        room += plan->hosts[i].slots;
        open += plan->hosts[i].slots == 0;
    }
    if (open == 0 && room < left && !job->launch.oversubscribe)
        return ddp_error_help(ddp_error_at(DDP_ERR_INPUT, where_hosts(job),
                                           "launch.hosts: room for %d ranks, but there are %d", room, left),
                              "give the hosts more slots, or launch.oversubscribe=true to share cores");
    int each = open > 0 ? (left - room + open - 1) / open : (left + plan->host_count - 1) / plan->host_count;
    for (int i = 0; i < plan->host_count; i++) {
        ddp_plan_host *host = &plan->hosts[i];
        int takes = host->slots > 0 && (open > 0 || room >= left) ? host->slots : each;
        host->ranks = takes < left ? takes : left;
        host->ranks = host->ranks > 0 ? host->ranks : 0;
        left -= host->ranks;
    }
    plan->hosts[plan->host_count - 1].ranks += left;
    return NULL;
}

static ddp_error *plan_shares(ddp_plan *plan)
{
    for (int i = 0; i < plan->host_count; i++) {
        void *shares;
        if (!plan->hosts[i].here || plan->hosts[i].ranks == 0)
            continue;
        DDP_TRY(ddp_memory_make((size_t)plan->hosts[i].ranks, sizeof *plan->shares, &shares));
        plan->shares = shares;
        return ddp_bind_plan_all(plan->hosts[i].ranks, plan->shares);
    }
    return NULL;
}

static ddp_error *count_buckets(const ddp_job *job, ddp_plan *plan)
{
    ddp_buckets buckets;
    plan->first_bucket_bytes = job->parallel.first_bucket_mb * MIB;
    plan->bucket_bytes = (job->parallel.bucket_mb > 0 ? job->parallel.bucket_mb : DDP_AUTO_BUCKET_MIB) * MIB;
    DDP_TRY(ddp_buckets_make(&plan->setup.params, plan->first_bucket_bytes, plan->bucket_bytes, &buckets));
    plan->bucket_count = buckets.count;
    ddp_buckets_free(&buckets);
    return NULL;
}

static ddp_error *make_setup(const ddp_job *job, int world, ddp_plan *plan)
{
    int cores, hosts;
    DDP_TRY(read_hosts(job, world > 0, plan));
    if (world == 0)
        DDP_TRY(choose_via(job, plan));
    DDP_TRY(count_places(plan, &cores, &hosts));
    return ddp_setup_make(job, world, cores, hosts, &plan->setup);
}

/* A rank against its GPU's memory. */
static ddp_error *check_gpu_memory(const ddp_plan *plan)
{
    char need[32], has[32];
    int64_t bytes = plan->bytes.total - plan->bytes.data - plan->bytes.checkpoint; /* those are host memory */
    if (plan->setup.gpu[0].bytes == 0 || bytes <= plan->setup.gpu[0].bytes)
        return NULL;
    return ddp_error_help(
        ddp_error_make(DDP_ERR_MACHINE, "a rank needs %s of GPU memory, the GPU has %s",
                       ddp_text_from_bytes((double)bytes, need, sizeof need),
                       ddp_text_from_bytes((double)plan->setup.gpu[0].bytes, has, sizeof has)),
        "a smaller train.micro_batch needs less for activations, a smaller model less for everything");
}

/* The ranks of the fullest host against this machine's memory; hosts are taken to be alike. */
static ddp_error *check_memory(const ddp_plan *plan)
{
    int ranks = 0;
    char need[32], has[32];
    if (plan->setup.gpus > 0)
        return check_gpu_memory(plan);
    double total = (double)ddp_memory_info("MemTotal");
    for (int i = 0; i < plan->host_count; i++)
        ranks = plan->hosts[i].ranks > ranks ? plan->hosts[i].ranks : ranks;
    double bytes = (double)plan->bytes.total * ranks;
    if (total == 0 || bytes <= total)
        return NULL;
    return ddp_error_help(
        ddp_error_make(DDP_ERR_MACHINE, "%d rank%s need %s of memory, this machine has %s", ranks,
                       ranks == 1 ? "" : "s", ddp_text_from_bytes(bytes, need, sizeof need),
                       ddp_text_from_bytes(total, has, sizeof has)),
        "a smaller train.micro_batch needs less for activations, a smaller model less for everything; "
        "`ddprun plan` shows the parts where they fit");
}

ddp_error *ddp_plan_make(const ddp_job *job, int world, int local_world, ddp_plan *plan)
{
    ddp_plan made = {.job = job};
    ddp_error *error = make_setup(job, world, &made);
    if (error == NULL && world > local_world)
        made.hosts[0] = (ddp_plan_host){.name = "as mpirun chose"};
    if (error == NULL)
        error = spread_ranks(job, &made);
    if (error == NULL)
        error = plan_shares(&made);
    if (error == NULL)
        error = count_buckets(job, &made);
    if (error == NULL) {
        made.bytes = ddp_setup_count_bytes(&made.setup);
        error = check_memory(&made);
    }
    if (error != NULL) {
        ddp_plan_free(&made);
        return error;
    }
    *plan = made;
    return NULL;
}

const ddp_plan_host *ddp_plan_find(const ddp_plan *plan, int rank, int *local_rank)
{
    int host = 0;
    while (host + 1 < plan->host_count && rank >= plan->hosts[host].ranks)
        rank -= plan->hosts[host++].ranks;
    *local_rank = rank;
    return &plan->hosts[host];
}

void ddp_plan_free(ddp_plan *plan)
{
    ddp_setup_free(&plan->setup);
    free(plan->hosts);
    free(plan->shares);
    *plan = (ddp_plan){0};
}
