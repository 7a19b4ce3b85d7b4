/* Once the loader runs, nothing of ours allocates. The C library's malloc is wrapped and counts the
 * calls that come from this program's own text, in which all of ccstream is linked; the codecs and
 * SentencePiece are shared libraries, and what they allocate inside a call is theirs. */
#include <stdatomic.h>
#include <stdlib.h>

#include "loader/loader.h"
#include "tests/support/picture_dataset.h"
#include "tests/support/test.h"

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

#ifndef SANITIZED

/* Symbols of the linker: where this program's text begins and ends. */
extern const char __executable_start;
extern const char etext;

/* Relaxed: counts that are read when the threads have nothing to do. */
static atomic_bool counting;
static atomic_uint_fast64_t ours;
static atomic_uint_fast64_t all;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static void count_call(const void *caller) {
    if (atomic_load_explicit(&counting, memory_order_relaxed)) {
        uintptr_t at = (uintptr_t)caller;
        bool is_ours = at >= (uintptr_t)&__executable_start && at < (uintptr_t)&etext;
        atomic_fetch_add_explicit(&ours, is_ours, memory_order_relaxed);
        atomic_fetch_add_explicit(&all, 1, memory_order_relaxed);
    }
}

__attribute__((visibility("default"), noinline)) void *malloc(size_t size) {
    count_call(__builtin_return_address(0));
    return __libc_malloc(size);
}

__attribute__((visibility("default"), noinline)) void *calloc(size_t count, size_t size) {
    count_call(__builtin_return_address(0));
    return __libc_calloc(count, size);
}

__attribute__((visibility("default"), noinline)) void *realloc(void *old, size_t size) {
    count_call(__builtin_return_address(0));
    return __libc_realloc(old, size);
}

__attribute__((visibility("default"), noinline)) void *aligned_alloc(size_t alignment,
                                                                     size_t size) {
    count_call(__builtin_return_address(0));
    return __libc_memalign(alignment, size);
}

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
    atomic_store(&ours, 0);
    atomic_store(&all, 0);
    atomic_store(&counting, true);
    take_epochs(l, 6);
    atomic_store(&counting, false);
    assert_int_equal(atomic_load(&ours), 0);
    assert_true(atomic_load(&all) > 0); /* SentencePiece's */
    atomic_store(&counting, true);
    void *(*volatile allocate)(size_t) = malloc; /* a call that the compiler cannot see through */
    void *piece = allocate(10);
    atomic_store(&counting, false);
    free(piece);
    assert_true(atomic_load(&ours) > 0);
    loader_close(l);
}

static void check_engine(enum loader_engine engine) {
    struct picture_dataset how;
    struct error err = {0};
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

#else

static void check_engine(enum loader_engine engine) {
    (void)engine;
    test_skip("a sanitizer has malloc for itself");
}

#endif

TEST(a_running_loader_allocates_nothing_with_uring) {
    check_engine(LOADER_ENGINE_URING);
}

TEST(a_running_loader_allocates_nothing_with_pread) {
    check_engine(LOADER_ENGINE_PREAD);
}
