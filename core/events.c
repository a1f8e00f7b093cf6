/* Appending to events.jsonl. O_APPEND and one write keep lines of several writers whole. */
#include "core/events.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/files.h"

ddp_json ddp_events_begin(ddp_text *text, const char *event, double time)
{
    ddp_json json = {.text = text};
    text->length = 0;
    ddp_json_open_object(&json, NULL);
    ddp_json_text(&json, "event", event);
    ddp_json_float(&json, "t", time);
    return json;
}

ddp_error *ddp_events_append(const char *run_dir, ddp_json *json)
{
    char *path;
    DDP_TRY(ddp_path_join(run_dir, DDP_EVENTS_NAME, &path));
    ddp_json_close_object(json);
    ddp_text_add(json->text, "\n");
    ddp_error *error = NULL;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) {
        error = ddp_error_errno(errno, "opening %s", path);
    } else {
        error = ddp_file_write(fd, path, ddp_text_get(json->text), json->text->length);
        close(fd);
    }
    free(path);
    return error;
}
