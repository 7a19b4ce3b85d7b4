/*
 * A training step that has met its shapes allocates nothing: loader, model, loss, state, optimiser
 * and metrics, at a batch of 512 (where the C library's qsort, for one, would take memory) and in
 * micro-batches. Every call of malloc in the process counts, but for these libraries:
 *
 *   libjpeg           an image's tables and rows, freed with the image
 *   libstdc++         SentencePiece's strings and vectors, and oneDNN's, which call it for C++
 *   libdnnl, libgomp  oneDNN's argument lists at each execution, and OpenMP's teams
 */
#include <sys/stat.h>

#include "tests/support/count_malloc.h"
#include "tests/support/image_dataset.h"
#include "tests/support/test.h"
#include "train/run/trainer.h"

enum { STEPS_PER_EPOCH = 3, EPOCHS = 2 };

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

static void check_run(const char *loss, uint32_t batch, uint32_t micro_batch) {
    struct error err = {0};
    struct image_dataset how;
    struct loader_source source = {.directory = test_temp_path("data-%s", loss)};
    struct trainer_options o;
    struct trainer *t = NULL;
    struct retrieval_result result;
    struct watch w = {0};
    const char *directory = test_temp_path("run-%s", loss);
    image_dataset_default(&how);
    how.samples = STEPS_PER_EPOCH * (uint64_t)batch;
    how.samples_per_shard = batch;
    image_dataset_make(source.directory, &how);
    assert_int_equal(mkdir(directory, 0777), 0);
    trainer_options_default(&o);
    o.sources = &source;
    o.source_count = 1;
    o.run = directory;
    o.loss.name = loss;
    o.loss.tau = 0.1;
    o.image_tower = "tiny";
    o.text_tower = "tiny";
    o.small_stem = true;
    o.image_size_px = 8;
    o.max_tokens = 4;
    o.batch_count = batch;
    o.micro_batch_count = micro_batch;
    o.epochs = EPOCHS;
    o.threads = 1;
    o.loader_threads = 1;
    o.on_step = on_step;
    o.cookie = &w;
    assert_ok(trainer_create(&t, &o, &err), err);
    w.steps_per_epoch = trainer_summary(t).steps_per_epoch;
    assert_int_equal(w.steps_per_epoch, STEPS_PER_EPOCH);
    assert_ok(trainer_run(t, &result, &err), err);
    assert_true(w.counted >= 1);
    static const char *const libraries[] = {"libjpeg.so", "libstdc++.so", "libdnnl.so",
                                            "libgomp.so", NULL};
    count_malloc_assert_only(libraries);
    trainer_destroy(t);
}

TEST(a_training_step_allocates_nothing) {
    if (!count_malloc_works()) {
        test_skip("a sanitizer replaces malloc");
    }
    check_run("nuclr", 512, 0);
    check_run("cyclip", 8, 5);
}
