/*
 * A step of negcache in the trainer. Without batch norm and dropout an embedding does not depend on
 * the batch that it is in, so what was drawn has the same features in the cache and encoded again.
 */
#include <math.h>
#include <sys/stat.h>

#include "tests/support/image_dataset.h"
#include "tests/support/test.h"
#include "train/run/trainer_internal.h"

enum { SAMPLES = 12, BATCH = 4, ID_STEP = 3 };

static struct trainer *open_trainer(enum trainer_task task) {
    const struct loader_source source = {.directory = test_temp_path("d")};
    struct image_dataset how;
    struct trainer_options o;
    struct trainer *t = NULL;
    struct error err = {0};
    image_dataset_default(&how);
    how.samples = SAMPLES;
    how.id_step = ID_STEP; /* most ids have no sample */
    image_dataset_make(source.directory, &how);
    (void)mkdir(test_temp_path("run"), 0777);
    trainer_options_default(&o);
    o.sources = &source;
    o.source_count = 1;
    o.run = test_temp_path("run");
    o.task = task;
    o.loss.name = "negcache";
    o.loss.tau = 0.1;
    o.loss.cache_refresh = 0.25;
    o.image_tower = "tiny";
    o.text_tower = "tiny";
    o.norm_layers = RESNET_NORM_NONE;
    o.small_stem = true;
    o.image_size_px = 8;
    o.max_tokens = 8;
    o.batch_count = BATCH;
    o.epochs = 2;
    o.lr = 0.0;
    o.dropout = 0.0;
    o.threads = 1;
    o.loader_threads = 1;
    assert_ok(trainer_create(&t, &o, &err), err);
    return t;
}

/* Of one side: the anchors' negatives, each with the feature that the cache has of it. */
static void check_side(const struct trainer *t, int side, int64_t anchors) {
    const struct offbatch_side *c = &t->offbatch.sides[side];
    const int64_t e = t->options.embed_dim;
    assert_true(feature_cache_filled(c->cache));
    for (int64_t i = side * BATCH; i < side * BATCH + anchors; i++) {
        const uint64_t id = t->offbatch.ids[i];
        const int64_t row = t->offbatch.columns[i];
        assert_true(id % ID_STEP == 0 && id < ID_STEP * SAMPLES);
        assert_true(row >= 0 && row < c->count && c->samples[row].id == id);
        const float *kept = feature_cache_rows(c->cache) + (int64_t)id * e;
        const float *again = (const float *)c->x.data + row * e;
        double length = 0.0;
        for (int64_t d = 0; d < e; d++) {
            assert_true(fabs((double)kept[d] - (double)again[d]) < 1e-5);
            length += (double)kept[d] * (double)kept[d];
        }
        assert_true(fabs(length - 1.0) < 1e-4);
        assert_true(t->offbatch.gradient[i] > 0.0f);
    }
}

static void check(enum trainer_task task) {
    struct trainer *t = open_trainer(task);
    struct error err = {0};
    for (int step = 0; step < 2; step++) {
        bool ended;
        assert_ok(trainer_one_step(t, &ended, &err), err);
        check_side(t, 0, task == TRAINER_VIEWS ? 2 * BATCH : BATCH);
        if (task == TRAINER_PAIRS) {
            check_side(t, 1, BATCH);
            assert_null(t->offbatch.sides[0].batch.images); /* images have texts as contrasts */
            assert_non_null(t->offbatch.sides[1].batch.images);
        }
    }
    trainer_destroy(t);
}

TEST(pairs_draw_from_features_that_are_encoded_again) {
    check(TRAINER_PAIRS);
}

TEST(two_views_draw_from_features_that_are_encoded_again) {
    check(TRAINER_VIEWS);
}
