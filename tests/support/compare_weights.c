/* compare_weights A B LIMIT: the largest difference of any weight of two safetensors files of the same model;
 * exit 0 if it is at most LIMIT. For tests. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char *load(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(*bytes + 1);
    size_t got = fread(data, 1, *bytes, file);
    fclose(file);
    return got == *bytes ? data : NULL;
}

int main(int argc, char **argv)
{
    size_t bytes[2] = {0};
    unsigned char *data[2];
    if (argc != 4) {
        fprintf(stderr, "usage: compare_weights A B LIMIT\n");
        return 2;
    }
    for (int i = 0; i < 2; i++)
        if ((data[i] = load(argv[1 + i], &bytes[i])) == NULL) {
            fprintf(stderr, "cannot read %s\n", argv[1 + i]);
            return 2;
        }
    uint64_t header;
    memcpy(&header, data[0], sizeof header);
    if (bytes[0] != bytes[1] || bytes[0] < 8 + header || memcmp(data[0], data[1], 8 + (size_t)header) != 0) {
        fprintf(stderr, "the files are not of the same model\n");
        return 1;
    }
    double largest = 0;
    for (size_t at = 8 + (size_t)header; at < bytes[0]; at += sizeof(float)) {
        float a, b;
        memcpy(&a, data[0] + at, sizeof a);
        memcpy(&b, data[1] + at, sizeof b);
        if (!isfinite(a) || !isfinite(b))
            largest = INFINITY;
        if (fabs((double)a - b) > largest)
            largest = fabs((double)a - b);
    }
    printf("largest difference %g\n", largest);
    free(data[0]);
    free(data[1]);
    return largest <= atof(argv[3]) ? 0 : 1;
}
