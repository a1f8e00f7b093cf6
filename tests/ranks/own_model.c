/* A program with a model of its own, as a user would write one: `chatty` is `linear` that says things.
 * It tells its environment variables A to H when it is opened, bytes as hexadecimal, and with NOISE=1 it
 * writes lines of 10, 5,000 and 100,000 bytes in each forward, to stderr and (but for rank 0) to stdout. With
 * HELPER=1 it starts a process that keeps its standard streams open for a minute. */
#include <ddp/ddp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/models.h"

static void tell_variable(const char *name)
{
    const char *value = getenv(name);
    fprintf(stderr, "variable %s %s:", name, value ? "is" : "is not set");
    for (const char *at = value; at != NULL && *at != '\0'; at++)
        fprintf(stderr, " %02x", (unsigned char)*at);
    fprintf(stderr, "\n");
}

static ddp_model_ops chatty; /* linear's, with a few changed */

static const char *own_rank(void)
{
    const char *rank = getenv("DDP_RANK");
    return rank != NULL ? rank : getenv("OMPI_COMM_WORLD_RANK");
}

static ddp_error *open_chatty(const ddp_model_env *env, ddp_model **model)
{
    for (char name[] = "A"; name[0] <= 'H'; name[0]++)
        tell_variable(name);
    if (getenv("HELPER") != NULL && system("sleep 60 &") != 0)
        return ddp_error_make(DDP_ERR_IO, "no helper could be started");
    DDP_TRY(ddp_model_linear_ops.open(env, model));
    (*model)->ops = &chatty;
    return NULL;
}

/* One write a line, the rank's digit all along. */
static void write_line(int fd, size_t length)
{
    const char *rank = own_rank();
    char *line = malloc(length);
    if (line == NULL)
        return;
    memset(line, rank != NULL ? rank[0] : '?', length);
    line[length - 1] = '\n';
    for (size_t done = 0; done < length;) {
        ssize_t wrote = write(fd, line + done, length - done);
        if (wrote <= 0)
            break;
        done += (size_t)wrote;
    }
    free(line);
}

static ddp_error *forward_chatty(ddp_model *model, const ddp_batch *batch, float scale, ddp_loss *total)
{
    static const size_t lengths[] = {10, 5000, 100000};
    for (int i = 0; getenv("NOISE") != NULL && i < 3; i++) {
        write_line(STDERR_FILENO, lengths[i]);
        if (strcmp(own_rank(), "0") != 0) /* there, the metrics' thread writes at the same time */
            write_line(STDOUT_FILENO, lengths[i]);
    }
    return ddp_model_linear_ops.forward(model, batch, scale, total);
}

int main(int argc, char **argv)
{
    chatty = ddp_model_linear_ops;
    chatty.name = "chatty";
    chatty.help = "linear that says things";
    chatty.open = open_chatty;
    chatty.forward = forward_chatty;
    ddp_model_add(&chatty);
    return ddp_main(argc, argv);
}
