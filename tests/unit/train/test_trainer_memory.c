/*
 * A training step that has met its shapes allocates nothing: loader, model, loss, state, optimiser
 * and metrics, whole and in micro-batches.
 *
 * test-timeout: 240
 */
#include <sys/stat.h>

#include "tests/support/count_malloc.h"
#include "tests/support/picture_dataset.h"
#include "tests/support/test.h"
#include "train/run/trainer.h"

enum { EPOCHS = 3 };

struct watch {
    uint64_t steps_per_epoch;
    uint64_t counted; /* steps */
};

/* Counts from the end of the last epoch's first step to the end of its last but one: a checkpoint
 * comes after the last. */
static void on_step(void *cookie, const struct step_report *r, uint64_t total_steps) {
    struct watch *w = cookie;
    const uint64_t first = total_steps - w->steps_per_epoch + 1;
    if (r->step == first) {
        count_malloc_start();
    } else if (r->step == total_steps - 1) {
        count_malloc_stop();
        w->counted = r->step - first;
    }
}

static void check_run(const char *run, const char *loss, uint32_t micro_batch) {
    struct error err = {0};
    struct loader_source source = {.directory = test_temp_path("d")};
    struct trainer_options o;
    struct trainer *t = NULL;
    struct retrieval_result result;
    struct watch w = {0};
    const char *directory = test_temp_path("%s", run);
    assert_int_equal(mkdir(directory, 0777), 0);
    trainer_options_default(&o);
    o.sources = &source;
    o.source_count = 1;
    o.run = directory;
    o.loss.name = loss;
    o.loss.tau = 0.1;
    o.image_tower = "resnet10t";
    o.text_tower = "tiny";
    o.small_stem = true;
    o.image_size_px = 16;
    o.max_tokens = 8;
    o.batch_count = 4;
    o.micro_batch_count = micro_batch;
    o.epochs = EPOCHS;
    o.threads = 1;
    o.loader_threads = 1;
    o.on_step = on_step;
    o.cookie = &w;
    assert_ok(trainer_create(&t, &o, &err), err);
    w.steps_per_epoch = trainer_summary(t).steps_per_epoch;
    assert_true(w.steps_per_epoch >= 4);
    assert_ok(trainer_run(t, &result, &err), err);
    assert_true(w.counted >= 2);
    assert_int_equal(count_malloc_ours(), 0);
    trainer_destroy(t);
}

TEST(a_training_step_allocates_nothing) {
    struct picture_dataset how;
    if (!count_malloc_works()) {
        test_skip("a sanitizer has malloc for itself");
    }
    count_malloc_check();
    picture_dataset_default(&how);
    how.samples = 16;
    picture_dataset_make(test_temp_path("d"), &how);
    check_run("whole", "nuclr", 0);
    check_run("parts", "cyclip", 3);
}
