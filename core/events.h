/* RUN_DIR/events.jsonl: one JSON object a line, appended in one write, by rank 0, by traced ranks and by the
 * launcher. */
#ifndef DDP_CORE_EVENTS_H
#define DDP_CORE_EVENTS_H

#include "core/json.h"

#define DDP_EVENTS_NAME "events.jsonl"

/* Begins an object in `text` (emptied first): {"event": EVENT, "t": TIME. Add fields with ddp_json_*. */
ddp_json ddp_events_begin(ddp_text *text, const char *event, double time);

/* Ends the object and appends it with its newline. IO: names the file. */
DDP_USE_RESULT ddp_error *ddp_events_append(const char *run_dir, ddp_json *json);

#endif
