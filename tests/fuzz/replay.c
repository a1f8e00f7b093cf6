/* replay FOLDER...: runs the fuzz target on every file of these folders. Its exit code and last line say how
 * many. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/files.h"
#include "fuzz.h"

#define INPUT_BYTES (1u << 20)

static int run_file(const char *folder, const char *name)
{
    char *path = NULL, *data = NULL;
    size_t bytes;
    ddp_error *error = ddp_path_join(folder, name, &path);
    if (error == NULL)
        error = ddp_file_load(path, INPUT_BYTES, &data, &bytes);
    if (error == NULL) {
        fprintf(stderr, "%s\n", path);
        LLVMFuzzerTestOneInput((const uint8_t *)data, bytes);
    } else {
        ddp_error_print(error, "error", stderr);
    }
    int failed = error != NULL;
    ddp_error_free(error);
    free(data);
    free(path);
    return failed;
}

int main(int argc, char **argv)
{
    int count = 0, failed = 0;
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
            if (entry->d_name[0] == '.')
                continue;
            failed += run_file(argv[i], entry->d_name);
            count++;
        }
        if (folder != NULL)
            closedir(folder);
    }
    printf("%d inputs, %d could not be read\n", count, failed);
    return count == 0 || failed > 0;
}
