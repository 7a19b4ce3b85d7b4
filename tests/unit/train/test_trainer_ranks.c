/*
 * A run of several ranks, a thread each, is the run of one: the same reports and the same bytes, in
 * any number of ranks that is a power of two; and what it refuses.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/comm_threads.h"
#include "tests/support/image_dataset.h"
#include "tests/support/test.h"
#include "train/run/trainer_internal.h"

enum { SAMPLES = 16, BATCH = 8, MICRO_BATCH = 2, EPOCHS = 2, STEPS = SAMPLES / BATCH * EPOCHS };

enum { WORLD_MAX = 4 };

struct seen {
    struct step_report steps[STEPS];
    uint64_t count;
    bool stop; /* asked of the rank that has this */
    struct retrieval_result result;
    double running; /* sum of the running statistics at the end */
    struct error error;
    enum status status;
    bool together;
};

struct run {
    const char *directory;
    const char *loss;
    enum trainer_task task;
    uint32_t batch;
    uint64_t max_steps;
    int32_t stops; /* the rank that is asked to stop after its first step; -1: none */
    bool diverges, whole, sync_bn; /* whole: one micro-batch on each rank */
    bool go_on;                    /* where a checkpoint cannot be written */
    const char *data, *val;
    struct seen seen[WORLD_MAX];
};

static void on_step(void *cookie, const struct step_report *r, uint64_t total_steps) {
    struct seen *s = cookie;
    if (total_steps <= STEPS && s->count < STEPS) {
        s->steps[s->count++] = *r;
    }
}

static bool should_stop(void *cookie) {
    const struct seen *s = cookie;
    return s->stop && s->count > 0;
}

static double sum_of_running(struct params *p) {
    double sum = 0.0;
    for (int32_t i = 0; i < params_count(p); i++) {
        const struct tensor t = params_tensor(p, i); /* in the host's memory */
        for (int64_t e = 0; params_info(p, i).kind == PARAM_BUFFER && e < tensor_count(&t); e++) {
            sum += (double)((const float *)t.data)[e];
        }
    }
    return sum;
}

static enum status body(struct comm *c, void *cookie, struct error *err) {
    struct run *run = cookie;
    const int32_t rank = comm_rank(c);
    struct seen *seen = &run->seen[rank];
    const struct loader_source source = {.directory = run->data};
    struct trainer_options o;
    struct trainer *t = NULL;
    *seen = (struct seen){.stop = run->stops == rank};
    trainer_options_default(&o);
    o.comm = c;
    o.sources = &source;
    o.source_count = 1;
    o.run = run->directory;
    o.task = run->task;
    o.val = run->val;
    o.loss.name = run->loss;
    o.loss.tau = 0.1;
    o.image_tower = "tiny";
    o.text_tower = "tiny";
    o.small_stem = true;
    o.image_size_px = 8;
    o.max_tokens = 8;
    o.batch_count = run->batch > 0 ? run->batch : BATCH;
    o.micro_batch_count = run->whole ? 0 : MICRO_BATCH;
    o.sync_bn = run->sync_bn;
    o.epochs = EPOCHS;
    o.max_steps = run->max_steps;
    o.go_on_unsaved = run->go_on;
    o.lr = 1e-3;
    o.dropout = 0.1;
    o.optimizer.eps = run->diverges ? 0.0 : 1e-8;
    o.threads = 1;
    o.loader_threads = 1;
    o.on_step = on_step;
    o.should_stop = should_stop;
    o.cookie = seen;
    enum status s = trainer_create(&t, &o, err);
    if (s == STATUS_OK) {
        s = trainer_run(t, &seen->result, err);
        seen->together = trainer_failed_together(t);
        seen->running = sum_of_running(trainer_params(t));
    }
    trainer_destroy(t);
    seen->status = s;
    seen->error = *err;
    return STATUS_OK;
}

static void train(struct run *run, int32_t world, const char *name) {
    struct error err = {0};
    run->directory = test_temp_path("%s", name);
    run->data = test_temp_path("d");
    (void)mkdir(run->directory, 0777);
    assert_ok(comm_threads_run_large(world, body, run, &err), err);
}

static void make_data(void) {
    struct image_dataset how;
    image_dataset_default(&how);
    how.samples = SAMPLES;
    image_dataset_make(test_temp_path("d"), &how);
}

/* All that the two reported but for the times. */
static void same_reports(const struct seen *a, const struct seen *b) {
    assert_int_equal(a->count, b->count);
    for (uint64_t i = 0; i < a->count; i++) {
        const struct step_report *x = &a->steps[i];
        const struct step_report *y = &b->steps[i];
        assert_true(x->step == y->step && x->epoch == y->epoch && x->loss == y->loss &&
                    memcmp(&x->global_loss, &y->global_loss, sizeof x->global_loss) == 0 &&
                    x->tau == y->tau && x->lr == y->lr && x->zeta_lr == y->zeta_lr &&
                    x->replaced_count == y->replaced_count);
        assert_memory_equal(&x->batch, &y->batch, sizeof x->batch); /* NaN too */
        assert_true(isfinite(x->grad_norm) && x->grad_norm == y->grad_norm);
    }
}

static void check_equal(const char *loss, enum trainer_task task, int32_t most) {
    static struct run one, many;
    one = (struct run){.loss = loss, .task = task, .stops = -1};
    if (task == TRAINER_PAIRS) {
        one.val = test_temp_path("d");
    }
    char names[WORLD_MAX + 1][64];
    for (int32_t world = 1; world <= most; world *= most) {
        struct run *run = world == 1 ? &one : &many;
        (void)snprintf(names[world], sizeof names[world], "%s-%d-%d", loss, (int)task, (int)world);
        many = one;
        train(run, world, names[world]);
        for (int32_t r = 0; r < world; r++) {
            assert_string_equal(run->seen[r].error.text, "");
        }
        if (world > 1) {
            same_reports(&one.seen[0], &many.seen[0]);
            test_same_file(test_temp_path("%s/last", names[1]),
                           test_temp_path("%s/last", names[world]));
            assert_memory_equal(&one.seen[0].result, &many.seen[0].result,
                                sizeof one.seen[0].result);
        }
    }
    assert_int_equal(one.seen[0].count, STEPS);
}

TEST(ranks_give_the_bytes_of_one_process) {
    make_data();
    check_equal("nuclr", TRAINER_PAIRS, WORLD_MAX);
    check_equal("sogclr", TRAINER_VIEWS, WORLD_MAX);
}

/* Of two views emc2 encodes half as many: on two ranks those of a micro-batch. */
TEST(ranks_that_encode_further_samples_give_the_bytes_of_one_process) {
    make_data();
    check_equal("emc2", TRAINER_PAIRS, WORLD_MAX);
    check_equal("emc2", TRAINER_VIEWS, 2);
}

TEST(ranks_that_draw_from_cached_features_give_the_bytes_of_one_process) {
    make_data();
    check_equal("negcache", TRAINER_VIEWS, 2);
}

TEST(a_stop_of_one_rank_stops_all_and_other_ranks_resume) {
    static struct run run;
    make_data();
    run = (struct run){.loss = "nuclr", .stops = -1};
    train(&run, 1, "whole");
    run.stops = 2;
    train(&run, 4, "parts");
    for (int32_t r = 0; r < 4; r++) {
        assert_int_equal(run.seen[r].status, STATUS_INTERRUPTED);
        assert_true(run.seen[r].count == run.seen[0].count && run.seen[r].count < STEPS);
    }
    run.stops = -1;
    train(&run, 2, "parts");
    assert_string_equal(run.seen[0].error.text, "");
    test_same_file(test_temp_path("whole/last"), test_temp_path("parts/last"));
}

TEST(ranks_continue_where_a_checkpoint_cannot_be_written) {
    static struct run run;
    struct stat st;
    make_data();
    run = (struct run){.loss = "nuclr", .stops = -1, .go_on = true};
    (void)mkdir(test_temp_path("full"), 0777);
    (void)mkdir(test_temp_path("full/checkpoints"), 0777);
    (void)mkdir(test_temp_path("full/checkpoints/step-2.safetensors"), 0777); /* in the way */
    train(&run, 2, "full");
    assert_string_equal(run.seen[0].error.text, "");
    assert_int_equal(run.seen[1].count, STEPS);
    assert_int_equal(rmdir(test_temp_path("full/checkpoints/step-2.safetensors")), 0);
    assert_int_equal(stat(test_temp_path("full/checkpoints/step-4.safetensors"), &st), 0);
}

TEST(what_all_ranks_find_wrong_is_one_failure) {
    static struct run run;
    make_data();
    run = (struct run){.loss = "nuclr", .batch = 9, .stops = -1};
    train(&run, 4, "divided");
    for (int32_t r = 0; r < 4; r++) {
        assert_int_equal(run.seen[r].status, STATUS_USAGE);
        assert_string_equal(run.seen[r].error.text,
                            "--batch-size 9 is the global batch, and 4 ranks do not divide it; the "
                            "nearest that they divide are 8 and 12");
    }
    run = (struct run){.loss = "nuclr", .diverges = true, .stops = -1};
    train(&run, 2, "diverged");
    for (int32_t r = 0; r < 2; r++) {
        assert_int_equal(run.seen[r].status, STATUS_CORRUPT);
        assert_true(run.seen[r].together);
    }
    struct stat st;
    assert_int_equal(stat(test_temp_path("diverged/nonfinite.json"), &st), 0);
}

/* Whether so many ranks, each with its part of a batch in one piece, have the losses and the
 * running statistics of one process. */
static bool follows(const struct run *one, int32_t world, bool sync_bn, const char *name) {
    static struct run many;
    bool same = true;
    many = *one;
    many.sync_bn = sync_bn;
    train(&many, world, name);
    assert_string_equal(many.seen[0].error.text, "");
    for (int32_t r = 1; r < world; r++) {
        assert_true(many.seen[r].running == many.seen[0].running || !sync_bn);
    }
    for (uint64_t i = 0; i < one->max_steps; i++) {
        const double loss = one->seen[0].steps[i].loss;
        same = same && fabs(many.seen[0].steps[i].loss - loss) <= 1e-4 * fmax(fabs(loss), 0.1);
    }
    return same && fabs(many.seen[0].running / one->seen[0].running - 1.0) <= 1e-4;
}

TEST(sync_bn_normalises_by_the_batch_of_all_ranks) {
    static struct run one;
    make_data();
    one = (struct run){.loss = "nuclr", .stops = -1, .whole = true, .max_steps = 2};
    train(&one, 1, "one");
    assert_int_equal(one.seen[0].count, one.max_steps);
    assert_true(follows(&one, WORLD_MAX, true, "synchronised"));
    assert_false(follows(&one, 2, false, "apart"));
}
