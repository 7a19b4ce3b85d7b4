/*
 * Steps that overlap with the work of the host (trainer_overlap), on a CPU device with a stream
 * that does everything as late as allowed: the same bytes as one step after the other, whole,
 * stopped and resumed; and steps with numbers that are not finite.
 */
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/image_dataset.h"
#include "tests/support/lazy_stream.h"
#include "tests/support/test.h"
#include "train/run/trainer.h"

enum { SAMPLES = 12, BATCH = 4, EPOCHS = 2, STEPS = SAMPLES / BATCH * EPOCHS };

struct seen {
    struct step_report steps[STEPS];
    uint64_t count;
    uint64_t stop_after; /* steps; 0: never */
};

static void on_step(void *cookie, const struct step_report *r, uint64_t total_steps) {
    struct seen *s = cookie;
    assert_true(total_steps <= STEPS && s->count < STEPS);
    s->steps[s->count++] = *r;
}

static bool should_stop(void *cookie) {
    const struct seen *s = cookie;
    return s->stop_after > 0 && s->count >= s->stop_after;
}

struct how {
    const char *loss;
    enum trainer_task task;
    uint32_t batch, micro_batch; /* 0: BATCH; 0: the batch */
    uint64_t positives;          /* 0: one */
    uint64_t max_steps, stop_after, checkpoint_steps;
    double adam_eps;
    bool lazy;
};

static enum status run(const char *name, const struct how *how, struct seen *seen) {
    struct error err = {0};
    struct loader_source source = {.directory = test_temp_path("d")};
    struct trainer_options o;
    struct trainer *t = NULL;
    struct retrieval_result result;
    const char *directory = test_temp_path("%s", name);
    (void)mkdir(directory, 0777);
    *seen = (struct seen){.stop_after = how->stop_after};
    trainer_options_default(&o);
    o.sources = &source;
    o.source_count = 1;
    o.run = directory;
    o.task = how->task;
    o.loss.name = how->loss;
    o.loss.tau = 0.1;
    o.loss.positives = how->positives > 0 ? how->positives : 1;
    o.image_tower = "tiny";
    o.text_tower = "tiny";
    o.small_stem = true;
    o.image_size_px = 8;
    o.max_tokens = 8;
    o.batch_count = how->batch > 0 ? how->batch : BATCH;
    o.micro_batch_count = how->micro_batch;
    o.epochs = EPOCHS;
    o.max_steps = how->max_steps;
    o.checkpoint_steps = how->checkpoint_steps;
    o.optimizer.eps = how->adam_eps;
    o.optimizer.clip_norm = 1.0;
    o.threads = 1;
    o.loader_threads = 1;
    o.on_step = on_step;
    o.should_stop = should_stop;
    o.cookie = seen;
    lazy_stream_on = how->lazy;
    assert_ok(trainer_create(&t, &o, &err), err);
    const enum status s = trainer_run(t, &result, &err);
    trainer_destroy(t);
    assert_int_equal(lazy_counts.allocations, 0);
    return s;
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
        assert_int_equal(x->step, i + 1);
        assert_int_equal(y->step, i + 1);
        assert_true(x->epoch == y->epoch && x->loss == y->loss &&
                    memcmp(&x->global_loss, &y->global_loss, sizeof x->global_loss) == 0 &&
                    x->tau == y->tau && x->lr == y->lr && x->zeta_lr == y->zeta_lr);
        assert_memory_equal(&x->grad_norm, &y->grad_norm, sizeof x->grad_norm); /* NaN too */
        assert_true(isfinite(y->pairs_per_s) && y->pairs_per_s > 0.0);
        assert_true(y->stall_fraction >= 0.0 && y->stall_fraction <= 1.0);
    }
}

TEST(overlapping_steps_give_the_same_bytes) {
    static struct seen one, two;
    make_data();
    struct how how = {.loss = "sogclr", .adam_eps = 1e-8};
    assert_int_equal(run("single", &how, &one), STATUS_OK);
    how.lazy = true;
    lazy_counts = (struct lazy_counts){0};
    assert_int_equal(run("overlap", &how, &two), STATUS_OK);
    test_same_file(test_temp_path("single/last"), test_temp_path("overlap/last"));
    same_reports(&one, &two);
    assert_int_equal(two.count, STEPS);
    assert_int_equal(lazy_counts.copies_out, STEPS);
    assert_int_equal(lazy_counts.copies_in, 5 * STEPS);
    assert_true(lazy_counts.late_in > 0);
    assert_int_equal(lazy_counts.records_begun, 2); /* refused, and asked for once a shape */
}

/* A library that cannot be captured returns a device error; the device stays usable. */
TEST(a_capture_that_fails_does_not_end_the_run) {
    static struct seen one, two;
    make_data();
    struct how how = {.loss = "clip", .adam_eps = 1e-8, .max_steps = 4};
    assert_int_equal(run("single", &how, &one), STATUS_OK);
    how.lazy = true;
    lazy_counts = (struct lazy_counts){0};
    lazy_refusal = STATUS_DEVICE;
    assert_int_equal(run("overlap", &how, &two), STATUS_OK);
    same_reports(&one, &two);
    assert_int_equal(lazy_counts.records_begun, 2); /* one of each shape */
}

/* Parts of 2, 2 and 1: with an odd number of them both devices add gradients in the same order. */
TEST(overlapping_micro_batches_give_the_same_bytes) {
    static struct seen one, two;
    make_data();
    struct how how = {.loss = "clip", .adam_eps = 1e-8, .batch = 5, .micro_batch = 2};
    assert_int_equal(run("single", &how, &one), STATUS_OK);
    how.lazy = true;
    assert_int_equal(run("overlap", &how, &two), STATUS_OK);
    test_same_file(test_temp_path("single/last"), test_temp_path("overlap/last"));
    same_reports(&one, &two);
}

/* Rows have keys of dropout that are not their ids. */
TEST(overlapping_pairs_of_a_sample_give_the_same_bytes) {
    static struct seen one, two;
    make_data();
    struct how how = {
        .loss = "nuclr", .adam_eps = 1e-8, .batch = 2 * BATCH, .micro_batch = 3, .positives = 2};
    assert_int_equal(run("single", &how, &one), STATUS_OK);
    how.lazy = true;
    lazy_counts = (struct lazy_counts){0};
    assert_int_equal(run("overlap", &how, &two), STATUS_OK);
    test_same_file(test_temp_path("single/last"), test_temp_path("overlap/last"));
    same_reports(&one, &two);
    assert_int_equal(two.count, STEPS);
    assert_true(lazy_counts.late_in > 0);
}

/* Both views of every image; and resumed. */
TEST(overlapping_views_give_the_same_bytes) {
    static struct seen one, two;
    make_data();
    struct how how = {.loss = "sogclr", .task = TRAINER_VIEWS, .adam_eps = 1e-8};
    assert_int_equal(run("single", &how, &one), STATUS_OK);
    how.lazy = true;
    lazy_counts = (struct lazy_counts){0};
    assert_int_equal(run("overlap", &how, &two), STATUS_OK);
    test_same_file(test_temp_path("single/last"), test_temp_path("overlap/last"));
    same_reports(&one, &two);
    assert_int_equal(lazy_counts.copies_out, STEPS);
    assert_int_equal(lazy_counts.copies_in, 2 * STEPS);
    assert_true(lazy_counts.late_in > 0);
    how.max_steps = 2;
    assert_int_equal(run("parts", &how, &two), STATUS_OK);
    how.max_steps = 0;
    assert_int_equal(run("parts", &how, &two), STATUS_OK);
    test_same_file(test_temp_path("single/last"), test_temp_path("parts/last"));
}

TEST(overlapping_views_in_micro_batches_give_the_same_bytes) {
    static struct seen one, two;
    make_data();
    struct how how = {
        .loss = "simclr", .task = TRAINER_VIEWS, .adam_eps = 1e-8, .batch = 5, .micro_batch = 2};
    assert_int_equal(run("single", &how, &one), STATUS_OK);
    how.lazy = true;
    assert_int_equal(run("overlap", &how, &two), STATUS_OK);
    test_same_file(test_temp_path("single/last"), test_temp_path("overlap/last"));
    same_reports(&one, &two);
}

/* A checkpoint is of the steps before it, though the next batch is on its way already. */
TEST(runs_that_overlap_resume_where_they_were) {
    static struct seen one, two;
    make_data();
    struct how how = {.loss = "nuclr", .adam_eps = 1e-8};
    assert_int_equal(run("single", &how, &one), STATUS_OK);
    how.lazy = true;
    how.max_steps = 2; /* within an epoch */
    assert_int_equal(run("parts", &how, &two), STATUS_OK);
    how.max_steps = 0;
    how.stop_after = 2;
    how.checkpoint_steps = 2;
    assert_int_equal(run("parts", &how, &two), STATUS_INTERRUPTED);
    how.stop_after = 0;
    assert_int_equal(run("parts", &how, &two), STATUS_OK);
    test_same_file(test_temp_path("single/last"), test_temp_path("parts/last"));
}

/* Adam without epsilon divides 0 by 0: the first step makes parameters that are no numbers. */
TEST(a_non_finite_step_ends_the_run_with_a_message) {
    static struct seen one, two;
    make_data();
    struct how how = {.loss = "clip", .adam_eps = 0.0};
    assert_int_equal(run("single", &how, &one), STATUS_CORRUPT);
    how.lazy = true;
    assert_int_equal(run("overlap", &how, &two), STATUS_CORRUPT);
    same_reports(&one, &two);
    test_same_file(test_temp_path("single/nonfinite.json"),
                   test_temp_path("overlap/nonfinite.json"));
}
