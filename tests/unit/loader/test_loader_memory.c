/*
 * A running loader allocates nothing. Every call of malloc in the process counts, but for these
 * libraries:
 *
 *   libjpeg    an image's tables and rows, freed with the image
 *   libstdc++  SentencePiece's strings and vectors
 */
#include "loader/loader.h"
#include "tests/support/count_malloc.h"
#include "tests/support/image_dataset.h"
#include "tests/support/test.h"

static void take_epochs(struct loader *l, uint64_t epochs) {
    struct loader_info info;
    loader_info(l, &info);
    for (uint64_t i = 0; i < epochs * info.steps_per_epoch; i++) {
        struct loader_batch b;
        struct error err = {0};
        assert_ok(loader_acquire(l, &b, &err), err);
        loader_release(l, &b);
    }
}

/* What a run can consist of beside the plain one. */
static const struct {
    const char *order;
    const char *filter;
    enum augment_kind augment;
    uint32_t views;
    bool direct;
    uint32_t sources;
} kinds[] = {
    {"global", NULL, AUGMENT_TRAIN, 1, false, 1},
    {"block:8:2", "min-side=31", AUGMENT_PAPER, 1, true, 2},
    {"sequential", "captions=1..", AUGMENT_SIMCLR, 2, false, 2},
};

static const char *const libraries[] = {"libjpeg.so", "libstdc++.so", NULL};

static void check_kind(struct loader_options opt,
                       const struct loader_source *sources,
                       uint32_t source_count,
                       uint64_t epochs) {
    struct loader *l = NULL;
    struct error err = {0};
    enum status s = loader_open_mix(&l, sources, source_count, &opt, &err);
    if (s == STATUS_UNSUPPORTED) {
        test_skip("%s", err.text);
    }
    assert_ok(s, err);
    take_epochs(l, 2 * epochs); /* buffers grow to the largest image */
    count_malloc_start();
    take_epochs(l, epochs);
    count_malloc_stop();
    count_malloc_assert_only(libraries);
    loader_close(l);
}

static void check_engine(enum loader_engine engine) {
    struct image_dataset how;
    struct error err = {0};
    if (!count_malloc_works()) {
        test_skip("a sanitizer replaces malloc");
    }
    struct loader_source sources[2] = {{.directory = test_temp_path("d")},
                                       {.directory = test_temp_path("e")}};
    image_dataset_default(&how);
    how.samples = 60;
    image_dataset_make(sources[0].directory, &how);
    how.samples = 24;
    image_dataset_make(sources[1].directory, &how);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct loader_options opt;
        loader_options_default(&opt);
        opt.batch_count = 12;
        opt.image_size_px = 32;
        opt.engine = engine;
        opt.threads = 1; /* so that its buffers grow in the same epochs each time */
        opt.augment = kinds[i].augment;
        opt.views = kinds[i].views;
        opt.direct = kinds[i].direct;
        assert_ok(loader_order_parse(&opt, kinds[i].order, &err), err);
        if (kinds[i].filter != NULL) {
            assert_ok(loader_filter_parse(&opt.filter, kinds[i].filter, &err), err);
        }
        check_kind(opt, sources, kinds[i].sources, 6);
    }
}

TEST(running_loader_allocates_nothing_with_uring) {
    check_engine(LOADER_ENGINE_URING);
}

TEST(running_loader_allocates_nothing_with_pread) {
    check_engine(LOADER_ENGINE_PREAD);
}

/* In the order of the disk, which sorts every batch. */
TEST(running_loader_of_large_batches_allocates_nothing) {
    struct image_dataset how;
    struct loader_options opt;
    struct error err = {0};
    const struct loader_source source = {.directory = test_temp_path("d")};
    if (!count_malloc_works()) {
        test_skip("a sanitizer replaces malloc");
    }
    image_dataset_default(&how);
    how.samples = 3 * 512;
    image_dataset_make(source.directory, &how);
    loader_options_default(&opt);
    opt.batch_count = 512;
    opt.image_size_px = 8;
    opt.engine = LOADER_ENGINE_PREAD;
    opt.threads = 1;
    assert_ok(loader_order_parse(&opt, "block:64:4", &err), err);
    check_kind(opt, &source, 1, 1);
}
