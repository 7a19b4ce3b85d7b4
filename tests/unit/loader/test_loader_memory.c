/* Once the loader runs, nothing of ours allocates. The C library's malloc is wrapped and counts the
 * calls that come from this program's own text, in which all of ccstream is linked; the codecs and
 * SentencePiece are shared libraries, and what they allocate inside a call is theirs. */
#include "loader/loader.h"
#include "tests/support/count_malloc.h"
#include "tests/support/picture_dataset.h"
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

static void
check_kind(struct loader_options opt, const struct loader_source *sources, uint32_t source_count) {
    struct loader *l = NULL;
    struct error err = {0};
    enum status s = loader_open_mix(&l, sources, source_count, &opt, &err);
    if (s == STATUS_UNSUPPORTED) {
        test_skip("%s", err.text);
    }
    assert_ok(s, err);
    take_epochs(l, 12);
    count_malloc_start();
    take_epochs(l, 6);
    count_malloc_stop();
    assert_int_equal(count_malloc_ours(), 0);
    assert_true(count_malloc_all() > 0); /* SentencePiece's */
    count_malloc_check();
    loader_close(l);
}

static void check_engine(enum loader_engine engine) {
    struct picture_dataset how;
    struct error err = {0};
    if (!count_malloc_works()) {
        test_skip("a sanitizer has malloc for itself");
    }
    struct loader_source sources[2] = {{.directory = test_temp_path("d")},
                                       {.directory = test_temp_path("e")}};
    picture_dataset_default(&how);
    how.samples = 60;
    picture_dataset_make(sources[0].directory, &how);
    how.samples = 24;
    picture_dataset_make(sources[1].directory, &how);
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
        check_kind(opt, sources, kinds[i].sources);
    }
}

TEST(a_running_loader_allocates_nothing_with_uring) {
    check_engine(LOADER_ENGINE_URING);
}

TEST(a_running_loader_allocates_nothing_with_pread) {
    check_engine(LOADER_ENGINE_PREAD);
}
