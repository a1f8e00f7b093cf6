/* The sinks of this folder. */
#ifndef DDP_RUNTIME_SINKS_H
#define DDP_RUNTIME_SINKS_H

#include <ddp/sink.h>

extern const ddp_sink_ops ddp_sink_console_ops;
extern const ddp_sink_ops ddp_sink_jsonl_ops;

#endif
