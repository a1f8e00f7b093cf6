/* Who is to blame: every case the documents know, from made-up pages; no process is needed. */
#include "launcher/diagnose.h"
#include "support/test.h"

#include <ddp/comm.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD = 4, NOW = 1000 };

/* A job in the middle of step 5: all have done collectives #1 to #50 in the same way. */
typedef struct scene {
    ddp_flight_snapshot *pages;
    ddp_witness ranks[WORLD];
    ddp_question question;
    ddp_diagnosis diagnosis;
    char text[4096];
} scene;

static ddp_flight_call bucket(int number, int64_t count)
{
    return (ddp_flight_call){DDP_FLIGHT_ALL_REDUCE,  DDP_F32, DDP_SUM,  0,
                             DDP_TAG_BUCKET(number), count,   4 * count};
}

static void add(scene *s, int rank, ddp_flight_call call, double issued_ago, double done_ago)
{
    ddp_flight_snapshot *page = &s->pages[rank];
    page->records[page->count++] = (ddp_flight_record){
        .sequence = ++page->issued,
        .call = call,
        .digest = ddp_flight_digest(&call),
        .issued = NOW - issued_ago,
        .done = done_ago >= 0 ? NOW - done_ago : 0,
    };
    page->latest = NOW - (done_ago >= 0 ? done_ago : issued_ago);
}

static void be(scene *s, int rank, const char *phase, double for_s)
{
    snprintf(s->pages[rank].phase, sizeof s->pages[rank].phase, "%s", phase);
    s->pages[rank].phase_since = NOW - for_s;
}

static scene *begin(void)
{
    scene *s = calloc(1, sizeof *s);
    s->pages = calloc(WORLD, sizeof *s->pages);
    s->question = (ddp_question){.ranks = s->ranks, .world = WORLD, .now = NOW, .first = -1, .limit_s = 5};
    for (int rank = 0; rank < WORLD; rank++) {
        ddp_flight_snapshot *page = &s->pages[rank];
        *page = (ddp_flight_snapshot){
            .rank = rank, .world = WORLD, .pid = 4700 + rank, .here = true, .opened = NOW - 100, .step = 5};
        strcpy(page->host, "node1");
        s->ranks[rank] = (ddp_witness){.page = page, .state = 'S'};
        for (int i = 0; i < 50; i++)
            add(s, rank, bucket(i % 3, 100), 20, 20);
        be(s, rank, "load", 5.2);
    }
    return s;
}

/* Has issued the rest of the step and waits for the first of it. */
static void wait_at(scene *s, int rank, double for_s)
{
    be(s, rank, "comm", for_s);
    for (int i = 0; i < 3; i++)
        add(s, rank, bucket((2 + i) % 3, 100), for_s, -1);
}

static void ask(scene *s)
{
    ddp_text text = {0};
    memset(&s->diagnosis, 0xcd, sizeof s->diagnosis);
    check_ok(ddp_diagnose(&s->question, &s->diagnosis));
    ddp_diagnosis_write(&s->diagnosis, &text);
    snprintf(s->text, sizeof s->text, "%s", ddp_text_get(&text));
    ddp_text_free(&text);
}

static void end(scene *s)
{
    ddp_diagnosis_free(&s->diagnosis);
    free(s->pages);
    free(s);
}

/* roles: a letter a rank: C culprit, w waiting, - other. */
static void judge(scene *s, ddp_diagnosis_kind kind, int rank, const char *roles)
{
    ask(s);
    cr_assert_eq(s->diagnosis.kind, kind, "%s", s->text);
    cr_assert_eq(s->diagnosis.rank, rank, "rank %d: %s", s->diagnosis.rank, s->text);
    for (int i = 0; i < WORLD; i++)
        cr_assert_eq("-Cw"[s->diagnosis.roles[i]], roles[i], "rank %d: %s", i, s->text);
}

static void says(scene *s, const char *words)
{
    cr_assert_not_null(strstr(s->text, words), "\"%s\" is not in:\n%s", words, s->text);
}

static void says_not(scene *s, const char *words)
{
    cr_assert_null(strstr(s->text, words), "\"%s\" is in:\n%s", words, s->text);
}

/* -- C24: the rank that did not come -- */

Test(diagnose, the_one_that_has_not_come_is_to_blame, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        if (rank != 2)
            wait_at(s, rank, 5);
    judge(s, DDP_DIAGNOSIS_HANG, 2, "wwCw");
    cr_assert_str_eq(
        s->text,
        "hang: rank 2 (pid 4702 on node1) is in phase load of step 5, for 5.2 s\n"
        "    ranks 0,1,3 wait in collective #51, all_reduce (sum) of 100 f32 (gradient bucket 2), for 5.0 s\n"
        "    rank 2 has not come to it; its last was #50, all_reduce (sum) of 100 f32 (gradient bucket 1), "
        "done 20.0 s ago\n"
        "    help: look at its data: a slow disk, a network file system that does not answer, a pipe that "
        "nobody writes into\n");
    cr_assert_eq(s->diagnosis.pid, 4702);
    cr_assert_str_eq(s->diagnosis.host, "node1");
    cr_assert_str_eq(s->diagnosis.phase, "load");
    cr_assert_eq(s->diagnosis.step, 5);
    cr_assert_eq(s->diagnosis.sequence, 51u);
    cr_assert_float_eq(s->diagnosis.waited_s, 5, 1e-9);
    end(s);
}

Test(diagnose, a_stopped_rank_is_called_stopped, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        if (rank != 2)
            wait_at(s, rank, 5);
    s->ranks[2].state = 'T';
    judge(s, DDP_DIAGNOSIS_HANG, 2, "wwCw");
    says(s, "rank 2 (pid 4702 on node1) is stopped in phase load of step 5");
    says(s, "kill -CONT 4702");
    end(s);
}

/* Stopped in the middle of a collective that it has come to: it looks like one that waits. */
Test(diagnose, a_rank_stopped_inside_a_collective_does_not_wait, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        wait_at(s, rank, 5);
    s->ranks[0].state = 't';
    judge(s, DDP_DIAGNOSIS_HANG, 0, "Cwww");
    says(s, "is stopped in phase comm");
    says(s, "has come to it but not done its part");
    end(s);
}

Test(diagnose, two_stopped_ranks_are_both_named, .timeout = 10)
{
    scene *s = begin();
    wait_at(s, 1, 5);
    wait_at(s, 2, 5);
    s->ranks[0].state = s->ranks[3].state = 'T';
    judge(s, DDP_DIAGNOSIS_HANG, 0, "CwwC");
    says(s, "rank 0 (pid 4700 on node1) is stopped");
    says(s, "; rank 3 (pid 4703 on node1) is stopped");
    end(s);
}

Test(diagnose, all_are_stopped, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        s->ranks[rank].state = 'T';
    judge(s, DDP_DIAGNOSIS_HANG, 0, "CCCC");
    says(s, "; and 1 more");
    end(s);
}

Test(diagnose, the_waiting_majority_is_never_the_culprit, .timeout = 10)
{
    scene *s = begin();
    wait_at(s, 3, 5);
    judge(s, DDP_DIAGNOSIS_HANG, 0, "CCCw");
    s->ranks[1].state = 'D';
    ddp_diagnosis_free(&s->diagnosis);
    judge(s, DDP_DIAGNOSIS_HANG, 0, "CCCw");
    says(s, "rank 1 (pid 4701 on node1) waits inside the kernel (for a disk, a network file system or a "
            "device) in "
            "phase load");
    says(s, "rank 3 waits in collective #51");
    end(s);
}

/* With overlap a rank is in backward and has a bucket under way: it is busy, not waiting. */
Test(diagnose, stuck_in_backward_with_buckets_under_way, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        if (rank != 1)
            wait_at(s, rank, 6);
    be(s, 1, "backward", 7);
    add(s, 1, bucket(2, 100), 7, -1);
    judge(s, DDP_DIAGNOSIS_HANG, 1, "wCww");
    says(s, "is in phase backward of step 5, for 7.0 s");
    says(s, "gdb -p 4701");
    end(s);
}

Test(diagnose, slow_to_save, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 1; rank < WORLD; rank++) {
        be(s, rank, "save", 30);
        add(s, rank, (ddp_flight_call){.op = DDP_FLIGHT_BARRIER}, 30, -1);
    }
    be(s, 0, "save", 31);
    judge(s, DDP_DIAGNOSIS_HANG, 0, "Cwww");
    says(s, "wait in collective #51, barrier, for 30.0 s");
    says(s, "the disk that checkpoints go to");
    end(s);
}

Test(diagnose, one_is_a_step_behind, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        if (rank != 3) {
            s->pages[rank].step = 6;
            wait_at(s, rank, 9);
        }
    be(s, 3, "step", 9.5);
    judge(s, DDP_DIAGNOSIS_HANG, 3, "wwwC");
    says(s, "in phase step of step 5");
    end(s);
}

/* Through other hosts a rank may have passed a collective that another still waits in. */
Test(diagnose, who_is_behind_among_those_who_wait, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++) {
        be(s, rank, "comm", 8);
        add(s, rank, bucket(2, 100), 9, rank == 2 ? -1 : 8.5);
        if (rank != 2)
            add(s, rank, bucket(0, 100), 8, -1);
    }
    judge(s, DDP_DIAGNOSIS_HANG, 2, "wwCw");
    end(s);
}

/* C27: all have come and nothing moves: the link is gone. */
Test(diagnose, all_have_come_and_it_does_not_end, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        wait_at(s, rank, 60);
    judge(s, DDP_DIAGNOSIS_HANG, -1, "wwww");
    says(s, "all ranks have come to collective #51, all_reduce (sum) of 100 f32 (gradient bucket 2), and it "
            "does not end");
    says(s, "network");
    cr_assert_eq(s->diagnosis.pid, 0);
    end(s);
}

Test(diagnose, nobody_waits_and_all_are_stuck, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        be(s, rank, "load", 61);
    s->question.limit_s = 60;
    judge(s, DDP_DIAGNOSIS_HANG, -1, "CCCC");
    says(s, "no rank waits for another; all are busy");
    says(s, "in phase load of step 5, for 1 min 01 s");
    end(s);
}

Test(diagnose, one_rank_alone, .timeout = 10)
{
    scene *s = begin();
    s->question.world = 1;
    be(s, 0, "load", 61);
    ask(s);
    cr_assert_eq(s->diagnosis.kind, DDP_DIAGNOSIS_HANG);
    cr_assert_eq(s->diagnosis.rank, 0);
    says(s, "rank 0 (pid 4700 on node1) is in phase load");
    end(s);
}

Test(diagnose, all_is_well, .timeout = 10)
{
    scene *s = begin();
    s->question.limit_s = 0;
    judge(s, DDP_DIAGNOSIS_NOTHING, -1, "----");
    cr_assert_str_eq(s->text, "nothing is wrong, as far as can be seen\n");
    for (int rank = 0; rank < WORLD; rank++)
        be(s, rank, "end", 1);
    ddp_diagnosis_free(&s->diagnosis);
    judge(s, DDP_DIAGNOSIS_NOTHING, -1, "----");
    end(s);
}

/* -- start-up -- */

Test(diagnose, a_rank_that_never_came, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++) {
        s->pages[rank].count = 0;
        s->pages[rank].issued = 0;
        s->pages[rank].step = 0;
        be(s, rank, "init", 300);
        add(s, rank, (ddp_flight_call){.op = DDP_FLIGHT_OPEN, .count = WORLD}, 300, -1);
    }
    s->ranks[1] = (ddp_witness){.host = "node2", .pid = 77};
    judge(s, DDP_DIAGNOSIS_HANG, 1, "wCww");
    says(s, "rank 1 (pid 77 on node2) has not come so far that it could tell where it is");
    says(s, "wait in collective #1, the meeting of the ranks, for 5 min 00 s");
    cr_assert_eq(s->diagnosis.pid, 77);
    cr_assert_eq(s->diagnosis.step, -1);
    end(s);
}

Test(diagnose, stuck_before_the_meeting, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++) {
        s->pages[rank].count = 0;
        s->pages[rank].issued = 0;
        s->pages[rank].step = 0;
        be(s, rank, "init", 300);
        if (rank != 0)
            add(s, rank, (ddp_flight_call){.op = DDP_FLIGHT_OPEN, .count = WORLD}, 300, -1);
    }
    judge(s, DDP_DIAGNOSIS_HANG, 0, "Cwww");
    says(s, "is in phase init, for 5 min 00 s");
    says(s, "its last was none at all");
    end(s);
}

/* -- C25: different collectives -- */

static void all_but_one(scene *s, int odd, ddp_flight_call mine, ddp_flight_call usual)
{
    for (int rank = 0; rank < WORLD; rank++) {
        be(s, rank, "comm", 5);
        add(s, rank, rank == odd ? mine : usual, 5, -1);
    }
}

Test(diagnose, different_sizes, .timeout = 10)
{
    scene *s = begin();
    all_but_one(s, 1, bucket(2, 99), bucket(2, 100));
    judge(s, DDP_DIAGNOSIS_MISMATCH, 1, "wCww");
    says(s, "mismatch: collective #51 differs between ranks: ranks 0,2,3 issued all_reduce (sum) of 100 f32 "
            "(gradient "
            "bucket 2); rank 1 issued all_reduce (sum) of 99 f32 (gradient bucket 2)");
    cr_assert_eq(s->diagnosis.sequence, 51u);
    end(s);
}

Test(diagnose, different_types_of_equal_size, .timeout = 10)
{
    scene *s = begin();
    ddp_flight_call mine = bucket(2, 100);
    mine.dtype = DDP_I32;
    all_but_one(s, 3, mine, bucket(2, 100));
    judge(s, DDP_DIAGNOSIS_MISMATCH, 3, "wwwC");
    says(s, "rank 3 issued all_reduce (sum) of 100 i32");
    end(s);
}

Test(diagnose, different_operations_and_roots, .timeout = 10)
{
    scene *s = begin();
    all_but_one(s, 0, (ddp_flight_call){.op = DDP_FLIGHT_BARRIER}, bucket(2, 100));
    judge(s, DDP_DIAGNOSIS_MISMATCH, 0, "Cwww");
    says(s, "rank 0 issued barrier");
    end(s);
    s = begin();
    all_but_one(s, 2, (ddp_flight_call){.op = DDP_FLIGHT_BROADCAST, .root = 2, .count = 8},
                (ddp_flight_call){.op = DDP_FLIGHT_BROADCAST, .root = 0, .count = 8});
    judge(s, DDP_DIAGNOSIS_MISMATCH, 2, "wwCw");
    says(s, "from rank 2");
    end(s);
}

/* Plain MPI would add up the wrong numbers and say nothing: only what they are for differs. */
Test(diagnose, two_of_the_same_size_swapped, .timeout = 10)
{
    scene *s = begin();
    all_but_one(s, 1, bucket(0, 100), bucket(2, 100));
    for (int rank = 0; rank < WORLD; rank++)
        add(s, rank, rank == 1 ? bucket(2, 100) : bucket(0, 100), 5, -1);
    judge(s, DDP_DIAGNOSIS_MISMATCH, 1, "wCww");
    says(s, "gradient bucket 2); rank 1 issued all_reduce (sum) of 100 f32 (gradient bucket 0)");
    says(s, "rank 1 has this one and the next the other way round");
    end(s);
}

/* Found also where the wrong sum has been computed and all go on. */
Test(diagnose, a_swap_that_nobody_noticed, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++) {
        add(s, rank, bucket(rank == 1 ? 0 : 2, 100), 5, 4);
        add(s, rank, bucket(rank == 1 ? 2 : 0, 100), 5, 4);
        be(s, rank, "load", 1);
    }
    s->question.limit_s = 0;
    judge(s, DDP_DIAGNOSIS_MISMATCH, 1, "-C--");
    end(s);
}

Test(diagnose, one_left_out, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++) {
        be(s, rank, "comm", 5);
        for (int i = rank == 2; i < 4; i++)
            add(s, rank, bucket(i, 100 + i), 5, -1);
    }
    judge(s, DDP_DIAGNOSIS_MISMATCH, 2, "wwCw");
    says(s, "rank 2 has left this one out");
    end(s);
}

Test(diagnose, one_too_many, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++) {
        be(s, rank, "comm", 5);
        if (rank == 2)
            add(s, rank, (ddp_flight_call){.op = DDP_FLIGHT_BARRIER}, 5, -1);
        for (int i = 0; i < 3; i++)
            add(s, rank, bucket(i, 100 + i), 5, -1);
    }
    judge(s, DDP_DIAGNOSIS_MISMATCH, 2, "wwCw");
    says(s, "rank 2 has issued one that the others have not");
    end(s);
}

Test(diagnose, half_and_half_blames_nobody_in_particular, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++) {
        be(s, rank, "comm", 5);
        add(s, rank, bucket(rank % 2, 100), 5, -1);
    }
    judge(s, DDP_DIAGNOSIS_MISMATCH, -1, "CCCC");
    says(s, "ranks 0,2 issued");
    says(s, "ranks 1,3 issued");
    end(s);
}

Test(diagnose, everyone_does_something_else, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        add(s, rank, bucket(rank, 100), 5, -1);
    judge(s, DDP_DIAGNOSIS_MISMATCH, -1, "CCCC");
    says(s, "; and 1 more meanings");
    end(s);
}

/* The first difference counts, not its echoes. */
Test(diagnose, the_first_difference_is_named, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        for (int i = 0; i < 5; i++)
            add(s, rank, bucket(i, i >= 2 && rank == 3 ? 7 : 100), 5, i < 4 ? 4 : -1);
    judge(s, DDP_DIAGNOSIS_MISMATCH, 3, "---C");
    cr_assert_eq(s->diagnosis.sequence, 53u);
    end(s);
}

Test(diagnose, one_extra_collective_at_the_end, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        be(s, rank, "end", 6);
    be(s, 1, "save", 6);
    add(s, 1, (ddp_flight_call){.op = DDP_FLIGHT_BARRIER}, 6, -1);
    judge(s, DDP_DIAGNOSIS_MISMATCH, 1, "-C--");
    says(s, "rank 1 waits in collective #51, barrier, but the others have done all their work");
    end(s);
    s = begin(); /* and the other way: one has ended too early */
    for (int rank = 0; rank < WORLD; rank++) {
        be(s, rank, "save", 6);
        if (rank != 1)
            add(s, rank, (ddp_flight_call){.op = DDP_FLIGHT_BARRIER}, 6, -1);
    }
    be(s, 1, "end", 6);
    judge(s, DDP_DIAGNOSIS_MISMATCH, 1, "wCww");
    end(s);
}

/* A number that a reader caught half-written is left out of a page; the rest is compared all the same. */
Test(diagnose, a_gap_in_a_page_is_no_difference, .timeout = 10)
{
    scene *s = begin();
    memmove(&s->pages[1].records[20], &s->pages[1].records[21], 29 * sizeof(ddp_flight_record));
    s->pages[1].count--;
    s->question.limit_s = 0;
    judge(s, DDP_DIAGNOSIS_NOTHING, -1, "----");
    all_but_one(s, 1, bucket(2, 99), bucket(2, 100));
    ddp_diagnosis_free(&s->diagnosis);
    judge(s, DDP_DIAGNOSIS_MISMATCH, 1, "wCww");
    end(s);
}

/* -- C10, S1: one fails, the others are victims -- */

static void leave(scene *s, int rank, int code)
{
    s->ranks[rank].ended = true;
    s->ranks[rank].status = code << 8;
    s->ranks[rank].state = 'X';
}

Test(diagnose, a_crash_is_named_before_all_else, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        if (rank != 1)
            wait_at(s, rank, 0.1);
    leave(s, 1, 3);
    judge(s, DDP_DIAGNOSIS_CRASH, 1, "wCww");
    says(s, "crash: rank 1 (pid 4701 on node1) left with exit code 3 in phase load of step 5");
    says(s, "ranks 0,2,3 wait in collective #51");
    says(s, "logs/rank-1.log");
    end(s);
}

Test(diagnose, killed_by_a_signal, .timeout = 10)
{
    scene *s = begin();
    leave(s, 2, 0);
    s->ranks[2].status = SIGSEGV;
    judge(s, DDP_DIAGNOSIS_CRASH, 2, "--C-");
    says(s, "was killed by signal 11 (Segmentation fault)");
    s->ranks[2].status = SIGKILL;
    ddp_diagnosis_free(&s->diagnosis);
    judge(s, DDP_DIAGNOSIS_CRASH, 2, "--C-");
    says(s, "dmesg");
    s->ranks[2].oom = true;
    ddp_diagnosis_free(&s->diagnosis);
    judge(s, DDP_DIAGNOSIS_OOM, 2, "--C-");
    says(s,
         "oom: rank 2 (pid 4702 on node1) was ended by the kernel because memory had run out, in phase load");
    says(s, "train.micro_batch");
    end(s);
}

/* Two fail together and the others follow with code 1: the first cause is no victim. */
Test(diagnose, victims_leave_with_one, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        if (rank != 3)
            wait_at(s, rank, 0.1);
    for (int rank = 0; rank < WORLD; rank++)
        leave(s, rank, rank == 3 ? 7 : 1);
    judge(s, DDP_DIAGNOSIS_CRASH, 3, "wwwC");
    s->question.first = 0; /* even if a victim was seen to end first */
    ddp_diagnosis_free(&s->diagnosis);
    judge(s, DDP_DIAGNOSIS_CRASH, 3, "wwwC");
    end(s);
}

/* All leave with code 1, as after an error of their own: the one that did not come had the error. */
Test(diagnose, an_error_with_the_code_of_victims, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        if (rank != 2)
            wait_at(s, rank, 0.1);
    for (int rank = 0; rank < WORLD; rank++)
        leave(s, rank, 1);
    judge(s, DDP_DIAGNOSIS_CRASH, 2, "wwCw");
    end(s);
}

/* The ranks found the mismatch themselves and left with 1, one after the other. */
Test(diagnose, a_mismatch_that_ended_the_ranks, .timeout = 10)
{
    scene *s = begin();
    all_but_one(s, 1, bucket(2, 99), bucket(2, 100));
    for (int rank = 0; rank < WORLD; rank++)
        leave(s, rank, 1);
    s->question.first = 0;
    judge(s, DDP_DIAGNOSIS_MISMATCH, 1, "wCww");
    end(s);
}

/* The others lost patience and left with 1; the one that is still there, stopped, was the reason. */
Test(diagnose, those_who_left_because_of_a_stopped_one, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        if (rank != 2) {
            wait_at(s, rank, 5);
            leave(s, rank, 1);
        }
    s->ranks[2].state = 'T';
    s->question.first = 0;
    judge(s, DDP_DIAGNOSIS_HANG, 2, "wwCw");
    says(s, "is stopped");
    end(s);
}

Test(diagnose, only_victims_are_left, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++) {
        wait_at(s, rank, 0.5);
        leave(s, rank, 1);
    }
    s->question.first = 2;
    judge(s, DDP_DIAGNOSIS_CRASH, 2, "wwCw");
    end(s);
}

Test(diagnose, leaving_with_zero_is_a_failure_before_the_end, .timeout = 10)
{
    scene *s = begin();
    leave(s, 0, 0);
    judge(s, DDP_DIAGNOSIS_CRASH, 0, "C---");
    says(s, "left with exit code 0 before its work was done");
    end(s);
    s = begin();
    for (int rank = 0; rank < WORLD; rank++) {
        be(s, rank, rank % 2 ? "end" : "stopped", 1);
        leave(s, rank, 0);
    }
    judge(s, DDP_DIAGNOSIS_NOTHING, -1, "----");
    end(s);
}

/* Ranks that mpirun started: nobody tells us how they ended, only that they are gone. */
Test(diagnose, a_process_that_is_gone, .timeout = 10)
{
    scene *s = begin();
    s->ranks[3].state = 'X';
    judge(s, DDP_DIAGNOSIS_CRASH, 3, "---C");
    says(s, "rank 3 (pid 4703 on node1) is gone; it was in phase load of step 5");
    end(s);
}

Test(diagnose, dead_before_it_had_a_page, .timeout = 10)
{
    scene *s = begin();
    s->ranks[1].page = NULL;
    s->ranks[1].pid = 88;
    leave(s, 1, 4);
    judge(s, DDP_DIAGNOSIS_CRASH, 1, "-C--");
    says(s, "rank 1 (pid 88) left with exit code 4 before its first phase");
    end(s);
}

/* -- lost hosts -- */

Test(diagnose, a_host_that_is_silent, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 2; rank < WORLD; rank++) {
        strcpy(s->pages[rank].host, "node2");
        s->pages[rank].here = false;
        s->ranks[rank].state = 0;
        s->ranks[rank].lost = true;
    }
    wait_at(s, 0, 5);
    wait_at(s, 1, 5);
    judge(s, DDP_DIAGNOSIS_LOST_HOST, 2, "wwCC");
    says(s, "lost_host: nothing is heard of ranks 2,3 on node2 any more; last seen in phase load of step 5");
    says(s, "ping node2");
    end(s);
}

/* Its connection broke, but its process is there to be seen: it is not the host. */
Test(diagnose, a_broken_connection_is_no_lost_host, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        if (rank != 2)
            wait_at(s, rank, 5);
    s->ranks[1].lost = s->ranks[2].lost = true;
    judge(s, DDP_DIAGNOSIS_HANG, 2, "wwCw");
    end(s);
    s = begin(); /* on another host, through with its work */
    for (int rank = 0; rank < WORLD; rank++) {
        be(s, rank, "end", 1);
        s->ranks[rank].state = 0;
        s->ranks[rank].lost = true;
    }
    judge(s, DDP_DIAGNOSIS_NOTHING, -1, "----");
    end(s);
}

/* -- the event -- */

Test(diagnose, fields_of_the_event, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        if (rank != 2)
            wait_at(s, rank, 5);
    ask(s);
    ddp_text text = {0};
    ddp_json json = {.text = &text};
    ddp_json_open_object(&json, NULL);
    ddp_diagnosis_add_fields(&s->diagnosis, &json);
    ddp_json_close_object(&json);
    snprintf(s->text, sizeof s->text, "%s", ddp_text_get(&text));
    says(s,
         "{\"kind\": \"hang\", \"rank\": 2, \"host\": \"node1\", \"pid\": 4702, \"phase\": \"load\", "
         "\"step\": 5, "
         "\"seq\": 51, \"op\": \"all_reduce (sum) of 100 f32 (gradient bucket 2)\", \"waiting\": [0, 1, 3], "
         "\"culprits\": [2], \"waited_s\": 5, \"cause\": \"rank 2 (pid 4702 on node1) is in phase load");
    ddp_text_free(&text);
    end(s);
}

Test(diagnose, what_is_not_known_is_null, .timeout = 10)
{
    scene *s = begin();
    for (int rank = 0; rank < WORLD; rank++)
        wait_at(s, rank, 60);
    ask(s);
    ddp_text text = {0};
    ddp_json json = {.text = &text};
    ddp_diagnosis_add_fields(&s->diagnosis, &json);
    snprintf(s->text, sizeof s->text, "%s", ddp_text_get(&text));
    says(s, "\"rank\": null, \"host\": null, \"pid\": null, \"phase\": null, \"step\": null, \"seq\": 51");
    says_not(s, "-1");
    ddp_text_free(&text);
    end(s);
}
