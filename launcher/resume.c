/* Deciding whether to go on. */
#include "launcher/resume.h"

#include <ddp/log.h>
#include <stdio.h>
#include <string.h>

#include "runtime/checkpoint/resume.h"

static void say_changes(const char *changes)
{
    while (*changes != '\0') {
        size_t length = strcspn(changes, "\n");
        ddp_log(DDP_INFO, "resume", "changed since: %.*s", (int)length - 2, changes + 2);
        changes += length + (changes[length] == '\n');
    }
}

static void say(const ddp_setup *setup, const char *path, const ddp_checkpoint_state *state,
                const char *changes, ddp_continuation how)
{
    if (how == DDP_IS_FINISHED) {
        printf("ddprun: nothing to do: %s is the last of %lld steps\n"
               "help: train.steps=N with a larger N goes on from there; checkpoint.resume=none starts anew\n",
               path, (long long)setup->steps);
        return;
    }
    ddp_log(DDP_INFO, "resume", "from %s: %lld of %lld steps done, %lld samples seen", path,
            (long long)state->step, (long long)setup->steps, (long long)state->samples);
    say_changes(changes);
}

ddp_error *ddp_resume_decide(const ddp_setup *setup, bool speak, ddp_continuation *how)
{
    ddp_resume resume;
    ddp_checkpoint_record record = {.files = NULL};
    ddp_text changes = {0};
    *how = DDP_STARTS_ANEW;
    DDP_TRY(ddp_resume_find(setup->job, setup->job->output, false, &resume));
    ddp_error *error = resume.count > 0 ? ddp_checkpoint_record_load(resume.paths[0], &record) : NULL;
    if (error == NULL && resume.count > 0)
        error = ddp_error_while(ddp_resume_compare(setup, &record, &changes), "resuming from %s",
                                resume.paths[0]);
    if (error == NULL && resume.count > 0) {
        if (resume.own)
            *how = record.state.step >= setup->steps ? DDP_IS_FINISHED : DDP_GOES_ON;
        if (speak)
            say(setup, resume.paths[0], &record.state, ddp_text_get(&changes), *how);
    }
    ddp_text_free(&changes);
    ddp_checkpoint_record_free(&record);
    ddp_resume_free(&resume);
    return error;
}
