/* The directory of a run's checkpoints: which are complete, which is the newest, which may go.
 *
 *   checkpoints/step-00000500/   a checkpoint; complete when its checkpoint.json and the files named there
 * are checkpoints/latest           symbolic link to the newest one, for people: nothing here relies on it
 *   checkpoints/.NAME.part       being written, or left by a run that died while saving
 *   checkpoints/.NAME.old        being deleted, likewise
 * Newer means committed later (the record's sequence number): neither names nor file times are looked at.
 * What is not a complete checkpoint is never chosen, deleted or renamed. */
#ifndef DDP_RUNTIME_CHECKPOINT_SHELF_H
#define DDP_RUNTIME_CHECKPOINT_SHELF_H

#include "runtime/checkpoint/record.h"

typedef struct ddp_shelf_entry {
    char *name, *path;
    ddp_checkpoint_state state;
    int64_t bytes;
} ddp_shelf_entry;

typedef struct ddp_shelf {
    ddp_shelf_entry *at; /* complete checkpoints, newest first */
    int count;
    ddp_error *strangers; /* why each other entry named step-* is none; NULL = there are no others */
} ddp_shelf;

/* "step-00000500"; `name` of at least 32 bytes, returned. */
const char *ddp_shelf_name(int64_t step, char *name);

/* What does not exist, or is no directory, is an empty shelf. IO, MEMORY. */
DDP_USE_RESULT ddp_error *ddp_shelf_list(const char *directory, ddp_shelf *shelf);
/* A shelf of one: the checkpoint at `path`. Not complete: an empty one, with its reason among the strangers.
 */
DDP_USE_RESULT ddp_error *ddp_shelf_open_one(const char *path, ddp_shelf *shelf);
void ddp_shelf_free(ddp_shelf *shelf); /* a zeroed one is fine */

/* Removes what died runs left half written or half deleted. */
DDP_USE_RESULT ddp_error *ddp_shelf_clean(const char *directory);

/* DIRECTORY/.NAME.part becomes DIRECTORY/NAME in one step, on disk when this returns; an older NAME goes.
 * Then `latest` points to it. IO. */
DDP_USE_RESULT ddp_error *ddp_shelf_commit(const char *directory, const char *name);

/* Deletes all but the `keep` newest and, with `keep_best`, the one with the lowest validation loss. At least
 * one stays. IO: the first thing that could not be deleted; the rest is gone all the same. */
DDP_USE_RESULT ddp_error *ddp_shelf_trim(const char *directory, int64_t keep, bool keep_best);

/* Renames a damaged checkpoint to NAME.damaged, so that nothing chooses it again; *renamed is its new path,
 * freed with free(). */
DDP_USE_RESULT ddp_error *ddp_shelf_retire(const char *path, char **renamed);

#endif
