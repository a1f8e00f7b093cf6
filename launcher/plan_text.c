/* A plan as JSON and as a table. */
#include <inttypes.h>
#include <string.h>

#include "core/json.h"
#include "launcher/plan.h"

/* The share of a rank, NULL where it is not known from here. */
static const ddp_bind_share *find_share(const ddp_plan *plan, const ddp_plan_host *host, int local_rank)
{
    return host->here && plan->shares != NULL ? &plan->shares[local_rank] : NULL;
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

static void add_why(ddp_text *out, const ddp_plan *plan, const ddp_plan_host *host, int local_rank)
{
    const ddp_bind_share *share = find_share(plan, host, local_rank);
    if (share == NULL)
        ddp_text_add(out, "an equal share of the cores found there; %d rank%s on this host", host->ranks,
                     plural(host->ranks));
    else if (share->count == 0)
        ddp_text_add(out, "%d ranks share %d core%s (launch.oversubscribe)", host->ranks, share->allowed,
                     plural(share->allowed));
    else
        ddp_text_add(out, "%d of %d core%s: an equal share%s", share->count, share->allowed,
                     plural(share->allowed), share->numa >= 0 ? ", on one NUMA node" : ", across NUMA nodes");
}

/* The GPU of a rank, NULL where it has none or it is not known from here. */
static const ddp_gpu *find_gpu(const ddp_plan *plan, const ddp_plan_host *host, int local_rank)
{
    int gpus = plan->setup.gpus;
    return host->here && gpus > 0 ? &plan->setup.gpu[local_rank % gpus] : NULL;
}

static void write_gpu(const ddp_gpu *gpu, ddp_json *json)
{
    if (gpu != NULL)
        ddp_json_int(json, "gpu", gpu->index);
    else
        ddp_json_null(json, "gpu");
    ddp_json_text(json, "bus_id", gpu != NULL ? gpu->bus_id : NULL);
    ddp_json_text(json, "uuid", gpu != NULL ? gpu->uuid : NULL);
}

static void write_rank(const ddp_plan *plan, int rank, ddp_json *json)
{
    int local_rank;
    ddp_text why = {0};
    const ddp_plan_host *host = ddp_plan_find(plan, rank, &local_rank);
    const ddp_bind_share *share = find_share(plan, host, local_rank);
    add_why(&why, plan, host, local_rank);
    ddp_json_open_object(json, NULL);
    ddp_json_int(json, "rank", rank);
    ddp_json_text(json, "host", host->name);
    write_gpu(find_gpu(plan, host, local_rank), json);
    if (share != NULL && share->numa >= 0)
        ddp_json_int(json, "numa", share->numa);
    else
        ddp_json_null(json, "numa");
    ddp_json_text(json, "cores", share != NULL ? share->cores : NULL);
    ddp_json_null(json, "nic");
    ddp_json_text(json, "why", ddp_text_get(&why));
    ddp_json_close_object(json);
    ddp_text_free(&why);
}

static void write_bytes(const ddp_setup_bytes *bytes, ddp_json *json)
{
    ddp_json_open_object(json, "bytes_per_rank");
    ddp_json_int(json, "weights", bytes->weights);
    ddp_json_int(json, "gradients", bytes->gradients);
    ddp_json_int(json, "optimizer", bytes->optimizer);
    ddp_json_int(json, "activations", bytes->activations);
    ddp_json_int(json, "data", bytes->data);
    ddp_json_int(json, "checkpoint", bytes->checkpoint);
    ddp_json_int(json, "total", bytes->total);
    ddp_json_close_object(json);
}

void ddp_plan_write_json(const ddp_plan *plan, ddp_text *out)
{
    ddp_json json = {.text = out};
    ddp_json_open_object(&json, NULL);
    ddp_json_open_array(&json, "ranks");
    for (int rank = 0; rank < plan->setup.world; rank++)
        write_rank(plan, rank, &json);
    ddp_json_close_array(&json);
    ddp_json_int(&json, "world", plan->setup.world);
    ddp_json_int(&json, "global_batch", plan->setup.global_batch);
    ddp_json_int(&json, "micro_batch", plan->setup.micro_batch);
    ddp_json_int(&json, "accumulation", plan->setup.accumulation);
    ddp_json_int(&json, "steps", plan->setup.steps);
    ddp_json_int(&json, "steps_per_epoch", plan->setup.steps_per_epoch);
    ddp_json_text(&json, "device", plan->setup.device->name);
    ddp_json_text(&json, "via", plan->mpirun ? "mpirun" : "local");
    ddp_json_int(&json, "parameters", plan->setup.params.total_count);
    ddp_json_int(&json, "buckets", plan->bucket_count);
    write_bytes(&plan->bytes, &json);
    ddp_json_close_object(&json);
    ddp_text_add(out, "\n");
}

static void write_ranks(const ddp_plan *plan, ddp_text *out)
{
    int width = 4, local_rank;
    for (int i = 0; i < plan->host_count; i++)
        if ((int)strlen(plan->hosts[i].name) > width)
            width = (int)strlen(plan->hosts[i].name);
    ddp_text_add(out, "  rank  %-*s  gpu  cores     numa  why\n", width, "host");
    for (int rank = 0; rank < plan->setup.world; rank++) {
        char numa[16] = "-", gpu[16] = "-";
        const ddp_plan_host *host = ddp_plan_find(plan, rank, &local_rank);
        const ddp_bind_share *share = find_share(plan, host, local_rank);
        if (share != NULL && share->numa >= 0)
            snprintf(numa, sizeof numa, "%d", share->numa);
        if (find_gpu(plan, host, local_rank) != NULL)
            snprintf(gpu, sizeof gpu, "%d", find_gpu(plan, host, local_rank)->index);
        ddp_text_add(out, "  %4d  %-*s  %3s  %-8s  %4s  ", rank, width, host->name, gpu,
                     share ? share->cores : "-", numa);
        add_why(out, plan, host, local_rank);
        ddp_text_add(out, "\n");
    }
}

static void write_batch(const ddp_setup *setup, ddp_text *out)
{
    char a[32], b[32], c[32];
    ddp_text_add(out,
                 "\n  batch       %s samples = %" PRId64 " micro x %" PRId64 " accumulation x %d rank%s\n",
                 ddp_text_from_count(setup->global_batch, a, sizeof a), setup->micro_batch,
                 setup->accumulation, setup->world, plural(setup->world));
    ddp_text_add(out, "  steps       %s, an epoch is %s", ddp_text_from_count(setup->steps, a, sizeof a),
                 ddp_text_from_count(setup->steps_per_epoch, b, sizeof b));
    if (setup->dropped > 0)
        ddp_text_add(out, " (%s samples of it do not fill a batch)",
                     ddp_text_from_count(setup->dropped, c, sizeof c));
    ddp_text_add(out, "\n  train       %s\n", setup->train->description);
    if (setup->validation != NULL)
        ddp_text_add(out, "  validation  %s\n", setup->validation->description);
}

static void write_memory(const ddp_plan *plan, ddp_text *out)
{
    const struct {
        const char *name;
        int64_t bytes;
    } parts[] = {{"weights", plan->bytes.weights},     {"gradients", plan->bytes.gradients},
                 {"optimizer", plan->bytes.optimizer}, {"activations", plan->bytes.activations},
                 {"data", plan->bytes.data},           {"checkpoint", plan->bytes.checkpoint}};
    char text[32];
    ddp_text_add(
        out, "  memory      %s a rank:", ddp_text_from_bytes((double)plan->bytes.total, text, sizeof text));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && parts[i].bytes > 0; i++)
        ddp_text_add(out, "%s %s %s", i > 0 ? "," : "", parts[i].name,
                     ddp_text_from_bytes((double)parts[i].bytes, text, sizeof text));
    ddp_text_add(out, "\n");
}

void ddp_plan_write_table(const ddp_plan *plan, ddp_text *out)
{
    char a[32], b[32];
    const ddp_setup *setup = &plan->setup;
    ddp_text_add(out, "%s: %d rank%s on %d host%s, device %s, started by %s\n\n", plan->job->name,
                 setup->world, plural(setup->world), plan->host_count, plural(plan->host_count),
                 setup->device->name, plan->mpirun ? "mpirun" : "ddprun itself");
    write_ranks(plan, out);
    write_batch(setup, out);
    ddp_text_add(out, "  model       %s, %s parameters\n", plan->job->model.ops->name,
                 ddp_text_from_count(setup->params.total_count, a, sizeof a));
    write_memory(plan, out);
    if (plan->bucket_count == 1)
        ddp_text_add(out, "  buckets     1, of %s\n",
                     ddp_text_from_bytes((double)plan->bytes.gradients, a, sizeof a));
    else
        ddp_text_add(out, "  buckets     %d, the first at least %s, the others %s\n", plan->bucket_count,
                     ddp_text_from_bytes(plan->first_bucket_bytes, a, sizeof a),
                     ddp_text_from_bytes(plan->bucket_bytes, b, sizeof b));
    ddp_text_add(out, "  files       %s\n", plan->job->output);
}
