/* Asking the kernel about memory that ran out. */
#include "launcher/oom.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The directory of the memory controller for this process: version 1 where it has one, version 2 otherwise.
 */
static bool find_cgroup(char *v1, char *v2, size_t bytes)
{
    char line[4096];
    bool found = false;
    FILE *file = fopen("/proc/self/cgroup", "re");
    *v1 = *v2 = '\0';
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (controllers[1] == '\0')
            snprintf(v2, bytes, "%s", path);
        else if (strstr(controllers, ":memory") != NULL || strstr(controllers, ",memory") != NULL)
            snprintf(v1, bytes, "%s", path);
        found = true;
    }
    if (file != NULL)
        fclose(file);
    return found;
}

/* The number behind the word oom_kill; -1 = no such file or word. */
static int64_t read_count(const char *root, const char *path, const char *name)
{
    char file_name[8192], word[64];
    long long value, count = -1;
    snprintf(file_name, sizeof file_name, "%s%s/%s", root, path, name);
    FILE *file = fopen(file_name, "re");
    while (file != NULL && fscanf(file, "%63s %lld", word, &value) == 2)
        if (strcmp(word, "oom_kill") == 0)
            count = value;
    if (file != NULL)
        fclose(file);
    return count;
}

int64_t ddp_oom_count(void)
{
    /* In a container the path may be that of the host, and the mount show only what is ours. */
    char v1[4096], v2[4096];
    int64_t count = -1;
    if (!find_cgroup(v1, v2, sizeof v1))
        return -1;
    const char *const paths[] = {*v1 ? v1 : v2, ""};
    for (int i = 0; i < 2 && count < 0; i++)
        count = *v1 ? read_count("/sys/fs/cgroup/memory", paths[i], "memory.oom_control")
                    : read_count("/sys/fs/cgroup", paths[i], "memory.events");
    return count;
}

bool ddp_oom_names(const char *record, int pid, double since)
{
    long long time_us;
    int named;
    const char *killed = strstr(record, "Killed process ");
    if (killed == NULL || sscanf(killed, "Killed process %d", &named) != 1 || named != pid)
        return false;
    /* priority,number,microseconds since boot,...: the clock stands still in a suspended machine, as ours
     * does */
    return sscanf(record, "%*[^,],%*[^,],%lld", &time_us) == 1 && (double)time_us * 1e-6 >= since;
}

bool ddp_oom_logged(int pid, double since)
{
    char record[8192];
    bool found = false;
    int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    while (fd >= 0 && !found) {
        ssize_t got = read(fd, record, sizeof record - 1);
        if (got <= 0 && errno == EPIPE) /* overwritten while we read: the next is newer */
            continue;
        if (got <= 0)
            break;
        record[got] = '\0';
        found = ddp_oom_names(record, pid, since);
    }
    if (fd >= 0)
        close(fd);
    return found;
}
