/* checkpoint.json of any bytes. Its checksum would refuse nearly all of them, so the right one is put behind
 * them: an input is the file up to there. What was loaded can be written, loaded again, and is the same. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/hash.h"
#include "core/text.h"
#include "fuzz.h"
#include "runtime/checkpoint/record.h"

static char folder[] = "/tmp/ddprun-fuzz-XXXXXX", file[64];

static void remove_folder(void)
{
    unlink(file);
    rmdir(folder);
}

/* A directory whose checkpoint.json is the file in memory. */
static void make_folder(const char *target)
{
    if (file[0] != '\0')
        return;
    ddp_assert(mkdtemp(folder) != NULL);
    snprintf(file, sizeof file, "%s/%s", folder, DDP_CHECKPOINT_RECORD);
    ddp_assert(symlink(target, file) == 0);
    atexit(remove_folder);
}

static ddp_error *load(const char *text, size_t bytes, ddp_checkpoint_record *record)
{
    make_folder(fuzz_file((const uint8_t *)text, bytes));
    return ddp_checkpoint_record_load(folder, record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ddp_text text = {0}, written = {0}, written_again = {0};
    ddp_checkpoint_record record = {.files = NULL}, again = {.files = NULL};
    char digits[DDP_HASH_DIGITS + 1];
    ddp_text_add_bytes(&text, (const char *)data, bytes);
    ddp_text_add(&text, ", \"checksum\": \"%s\"}\n",
                 ddp_hash_write(ddp_hash(ddp_text_get(&text), bytes), digits));
    ddp_error *error = load(ddp_text_get(&text), text.length, &record);
    if (error == NULL) {
        ddp_checkpoint_record_write(&record, &written);
        error = load(ddp_text_get(&written), written.length, &again);
        if (error != NULL)
            ddp_error_print(error, "error", stderr);
        ddp_assert(error == NULL);
        ddp_checkpoint_record_write(&again, &written_again);
        ddp_assert(strcmp(ddp_text_get(&written), ddp_text_get(&written_again)) == 0);
    }
    fuzz_drop(error);
    ddp_checkpoint_record_free(&record);
    ddp_checkpoint_record_free(&again);
    ddp_text_free(&text);
    ddp_text_free(&written);
    ddp_text_free(&written_again);
    return 0;
}
