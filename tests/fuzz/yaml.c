/* A job file of any bytes is loaded or refused; what was loaded can be written, loaded again, and is the same
 * job. */
#include <ddp/job.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"

static char *write_job(const ddp_job *job, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    ddp_assert(out != NULL);
    ddp_job_write(job, false, out);
    fclose(out);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ddp_job *job = NULL, *again = NULL;
    ddp_error *error = ddp_job_load(fuzz_file(data, bytes), NULL, 0, &job);
    if (error == NULL) {
        size_t written_bytes, again_bytes;
        char *written = write_job(job, &written_bytes);
        error = ddp_job_load(fuzz_file((const uint8_t *)written, written_bytes), NULL, 0, &again);
        if (error != NULL)
            ddp_error_print(error, "error", stderr);
        ddp_assert(error == NULL);
        char *written_again = write_job(again, &again_bytes);
        if (strcmp(written, written_again) != 0)
            fprintf(stderr, "written:\n%s\nwritten again:\n%s\n", written, written_again);
        ddp_assert(strcmp(written, written_again) == 0);
        ddp_assert(ddp_job_digest(job) == ddp_job_digest(again));
        free(written);
        free(written_again);
    }
    fuzz_drop(error);
    ddp_job_free(job);
    ddp_job_free(again);
    return 0;
}
