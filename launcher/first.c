/* Two small files in logs/. */
#include "launcher/first.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/files.h"

#define MARK "mpirun-job"
#define FIRST "first-failure"
#define NAME_BYTES 64 /* of a job, with its end */

/* What mpirun calls the job: another one for every mpirun. */
static void name_job(char *name)
{
    const char *given = getenv("PMIX_NAMESPACE");
    if (given == NULL)
        given = getenv("OMPI_MCA_ess_base_jobid");
    snprintf(name, NAME_BYTES, "%s", given != NULL && *given != '\0' ? given : "unnamed");
    name[strcspn(name, " \n")] = '\0';
}

static ddp_error *write_new(const char *run_dir, const char *file, int flags, const char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/logs/%s", run_dir, file);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0666);
    if (fd < 0)
        return ddp_error_errno(errno, "making %s", path);
    ddp_error *error = ddp_file_write(fd, path, text, strlen(text));
    close(fd);
    return error;
}

/* Whether the file is there and of this job; its numbers, where it has two. */
static bool read_own(const char *run_dir, const char *file, int numbers[2])
{
    char path[4096], text[NAME_BYTES + 64] = "", name[NAME_BYTES], own[NAME_BYTES];
    snprintf(path, sizeof path, "%s/logs/%s", run_dir, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    name_job(own);
    int found = got > 0 ? sscanf(text, "%63s %d %d", name, &numbers[0], &numbers[1]) : 0;
    return found >= 1 && strchr(text, '\n') != NULL && strcmp(name, own) == 0;
}

ddp_error *ddp_first_announce(const char *run_dir)
{
    char name[NAME_BYTES], text[NAME_BYTES + 1], path[4096];
    name_job(name);
    snprintf(text, sizeof text, "%s\n", name);
    snprintf(path, sizeof path, "%s/logs/" FIRST, run_dir);
    unlink(path); /* of the run that this one continues */
    return write_new(run_dir, MARK, O_TRUNC, text);
}

void ddp_first_forget(const char *run_dir)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/logs/" MARK, run_dir);
    unlink(path);
}

bool ddp_first_ready(const char *run_dir)
{
    int numbers[2];
    return read_own(run_dir, MARK, numbers) || read_own(run_dir, FIRST, numbers);
}

bool ddp_first_take(const char *run_dir, int rank, int code)
{
    char name[NAME_BYTES], text[NAME_BYTES + 64];
    if (!ddp_first_ready(run_dir))
        return false;
    name_job(name);
    snprintf(text, sizeof text, "%s %d %d\n", name, rank, code);
    ddp_error *error = write_new(run_dir, FIRST, O_EXCL, text);
    ddp_error_free(error);
    return error == NULL;
}

bool ddp_first_ask(const char *run_dir, int *rank, int *code)
{
    enum { TRIES = 10 }; /* somebody may be between making the file and writing it */
    char path[4096];
    int numbers[2] = {-1, 1};
    snprintf(path, sizeof path, "%s/logs/" FIRST, run_dir);
    for (int i = 0; i < TRIES && access(path, F_OK) == 0; i++) {
        if (read_own(run_dir, FIRST, numbers)) {
            *rank = numbers[0];
            *code = numbers[1];
            return true;
        }
        ddp_clock_sleep(0.01);
    }
    return false;
}
