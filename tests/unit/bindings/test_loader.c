/* The loader of libccstream against the loader inside it, and what only it has: waits of any
 * length, batches that outlive it and are released anywhere, structs of other versions, forks. */
#include <locale.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bindings/c/ccstream.h"
#include "formats/base/hash.h"
#include "loader/loader.h"
#include "tests/support/batches.h"
#include "tests/support/image_dataset.h"
#include "tests/support/library.h"
#include "tests/support/test.h"

enum { SAMPLES = 100, STEP = 3, BATCH = 16, WAIT_MS = 60000 };

static const char *make_at(const char *name, bool tokenizer) {
    struct image_dataset how;
    image_dataset_default(&how);
    how.tokenizer = tokenizer;
    const char *dir = test_temp_path("%s", name);
    image_dataset_make(dir, &how);
    return dir;
}

/* Those of batches_options. */
static struct ccs_loader_options options(void) {
    struct ccs_loader_options opt;
    ccs_loader_options_init(&opt, sizeof(opt));
    opt.batch_size = BATCH;
    opt.image_size_px = BATCHES_SIDE;
    opt.max_tokens = BATCHES_TOKENS;
    opt.seed = test_seed();
    opt.threads = 2;
    return opt;
}

static struct ccs_loader *open_made(const char *dir, const struct ccs_loader_options *opt) {
    struct ccs_loader *l = NULL;
    struct ccs_error err;
    if (ccs_loader_open(&l, dir, opt, &err) != CCS_OK) {
        fail_msg("%s", err.text);
    }
    return l;
}

static const struct ccs_batch *take(struct ccs_loader *l) {
    const struct ccs_batch *b = NULL;
    struct ccs_error err;
    if (ccs_loader_next(l, &b, WAIT_MS, &err) != CCS_OK) {
        fail_msg("%s", err.text);
    }
    return b;
}

/* As batches_hash has it. */
static uint64_t
hash_of(const struct ccs_batch *b, const struct loader_options *opt, uint64_t steps) {
    static const int32_t none[BATCHES_TOKENS * BATCH];
    const struct loader_batch view = {
        .images = b->images,
        .images2 = b->images2,
        .tokens = b->tokens != NULL ? b->tokens : none,
        .lengths = b->lengths != NULL ? b->lengths : none,
        .sample_ids = b->ids,
        .text_ids = b->caption_ids,
        .labels = b->labels,
        .count = b->count,
        .global_step = b->epoch * steps + b->step,
    };
    return batches_hash(&view, opt);
}

static uint64_t next_hash(struct ccs_loader *l, const struct loader_options *opt, uint64_t steps) {
    const struct ccs_batch *b = take(l);
    uint64_t h = hash_of(b, opt, steps);
    ccs_batch_release(b);
    return h;
}

static void check_same(bool tokenizer, struct ccs_loader_options opt, struct loader_options own) {
    enum { STEPS = 13 };
    const char *dir = make_at("d", tokenizer);
    uint64_t expected[STEPS];
    batches_of(expected, STEPS, &(struct loader_source){.directory = dir}, 1, &own);
    struct ccs_loader_info info = {.struct_size = sizeof(info)};
    struct ccs_loader *l = open_made(dir, &opt);
    assert_int_equal(ccs_loader_get_info(l, &info, NULL), CCS_OK);
    assert_int_equal(info.samples, SAMPLES);
    assert_int_equal(info.steps, SAMPLES / BATCH);
    assert_int_equal(info.max_count, BATCH);
    assert_int_equal(info.sources, 1);
    assert_true((info.vocabulary > 0) == tokenizer);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(next_hash(l, &own, info.steps), expected[i]);
    }
    ccs_loader_close(l);
}

TEST(batches_are_those_of_the_loader_inside) {
    struct ccs_loader_options opt = options();
    check_same(true, opt, batches_options(BATCH));
}

TEST(options_reach_the_loader_inside) {
    struct ccs_loader_options opt = options();
    struct loader_options own = batches_options(BATCH);
    opt.augment = "simclr";
    opt.views = 2;
    opt.order = "block:8:2";
    opt.captions = false;
    own.augment = AUGMENT_SIMCLR;
    own.views = 2;
    own.order = LOADER_ORDER_BLOCK;
    own.block_count = 8;
    own.block_window = 2;
    own.captions = LOADER_CAPTIONS_NONE;
    check_same(false, opt, own);
}

TEST(a_dataset_without_tokenizer_has_no_tokens) {
    const struct ccs_loader_options opt = options();
    struct ccs_loader *l = open_made(make_at("d", false), &opt);
    const struct ccs_batch *b = take(l);
    assert_int_equal(b->struct_size, sizeof(*b));
    assert_null(b->tokens);
    assert_null(b->lengths);
    assert_null(b->images2);
    assert_int_equal(b->side_px, BATCHES_SIDE);
    assert_int_equal(b->max_tokens, BATCHES_TOKENS);
    ccs_batch_release(b);
    ccs_loader_close(l);
}

/* Ranks, a last batch that is kept, and the end. */
TEST(ranks_deliver_parts_until_the_end) {
    const char *dir = make_at("d", true);
    bool met[SAMPLES] = {false};
    struct ccs_loader_options opt = options();
    opt.world = 3;
    opt.drop_last = false;
    opt.epochs = 1;
    for (opt.rank = 0; opt.rank < opt.world; opt.rank++) {
        struct ccs_loader *l = open_made(dir, &opt);
        const struct ccs_batch *b = NULL;
        struct ccs_error err;
        int32_t s;
        while ((s = ccs_loader_next(l, &b, WAIT_MS, &err)) == CCS_OK) {
            for (uint32_t i = 0; i < b->count; i++) {
                assert_false(met[b->ids[i] / STEP]);
                met[b->ids[i] / STEP] = true;
            }
            ccs_batch_release(b);
        }
        assert_int_equal(s, CCS_END);
        assert_null(b);
        assert_string_equal(err.text, "");
        assert_int_equal(ccs_loader_next(l, &b, 0, &err), CCS_END);
        ccs_loader_close(l);
    }
    for (int i = 0; i < SAMPLES; i++) {
        assert_true(met[i]);
    }
}

TEST(mixes_are_those_of_the_loader_inside) {
    enum { STEPS = 8 };
    char texts[2][256];
    const char *dirs[] = {make_at("a", true), make_at("b", false)};
    uint64_t expected[STEPS];
    const struct loader_options own = batches_options(BATCH);
    const struct loader_source sources[] = {{dirs[0], 3}, {dirs[1], 1}};
    batches_of(expected, STEPS, sources, 2, &own);
    snprintf(texts[0], sizeof(texts[0]), "%s:3", dirs[0]);
    snprintf(texts[1], sizeof(texts[1]), "%s:1", dirs[1]);
    struct ccs_loader *l = NULL;
    struct ccs_error err;
    const struct ccs_loader_options opt = options();
    const char *both[] = {texts[0], texts[1]};
    assert_int_equal(ccs_loader_open_mix(&l, both, 2, &opt, &err), CCS_OK);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(next_hash(l, &own, 2 * SAMPLES / BATCH), expected[i]);
    }
    ccs_loader_close(l);
    both[1] = dirs[1];
    library_check_error(ccs_loader_open_mix(&l, both, 2, &opt, &err), CCS_ERROR_USAGE, &err,
                        "weight");
    assert_null(l);
}

/* Saved after 4 batches, continued on other numbers of threads and ranks, and once more. */
TEST(a_saved_position_continues_on_other_threads) {
    enum { STEPS = 12, STEPS_PER_EPOCH = SAMPLES / BATCH };
    const char *dir = make_at("d", true);
    const struct loader_options own = batches_options(BATCH);
    struct ccs_loader_options opt = options();
    struct ccs_loader_state saved = {.struct_size = sizeof(saved)};
    uint64_t expected[STEPS];
    batches_of(expected, STEPS, &(struct loader_source){.directory = dir}, 1, &own);
    for (int i = 0, begin = 0; i < 3; i++, begin += 4) {
        opt.threads = 1 + (uint32_t)i * 2;
        struct ccs_loader *l = open_made(dir, &opt);
        if (i > 0) {
            (void)next_hash(l, &own, STEPS_PER_EPOCH); /* seek discards what was read ahead */
            assert_int_equal(ccs_loader_seek(l, &saved, NULL), CCS_OK);
        }
        for (int k = 0; k < 4; k++) {
            assert_int_equal(next_hash(l, &own, STEPS_PER_EPOCH), expected[begin + k]);
        }
        assert_int_equal(ccs_loader_get_state(l, &saved, NULL), CCS_OK);
        assert_int_equal(saved.epoch * STEPS_PER_EPOCH + saved.step, begin + 4);
        assert_int_equal(saved.batch_size, BATCH);
        assert_int_equal(saved.sources, 1);
        assert_int_equal(saved.source_fingerprints[0], saved.fingerprint);
        ccs_loader_close(l);
    }
}

TEST(positions_of_other_runs_are_refused) {
    const char *dir = make_at("d", true);
    struct ccs_loader_options opt = options();
    struct ccs_loader_state saved = {.struct_size = sizeof(saved)};
    struct ccs_loader_state other;
    struct ccs_error err;
    struct ccs_loader *l = open_made(dir, &opt);
    assert_int_equal(ccs_loader_get_state(l, &saved, NULL), CCS_OK);
    other = saved;
    other.seed++;
    library_check_error(ccs_loader_seek(l, &other, &err), CCS_ERROR_MISMATCH, &err, "seed");
    other = saved;
    other.batch_size = BATCH / 2;
    library_check_error(ccs_loader_seek(l, &other, &err), CCS_ERROR_MISMATCH, &err, "batches of 8");
    other = saved;
    other.fingerprint++;
    other.source_fingerprints[0]++;
    library_check_error(ccs_loader_seek(l, &other, &err), CCS_ERROR_MISMATCH, &err, "fingerprint");
    other = saved;
    other.sources = CCS_MAX_SOURCES + 1;
    library_check_error(ccs_loader_seek(l, &other, &err), CCS_ERROR_INVALID, &err, "16 sources");
    other.struct_size = 0;
    library_check_error(ccs_loader_seek(l, &other, &err), CCS_ERROR_INVALID, &err, "struct_size");
    const struct ccs_batch *b = take(l);
    library_check_error(ccs_loader_seek(l, &saved, &err), CCS_ERROR_INVALID, &err,
                        "1 batches are held");
    ccs_batch_release(b);
    assert_int_equal(ccs_loader_seek(l, &saved, &err), CCS_OK);
    ccs_loader_close(l);
}

/* ---- waiting ------------------------------------------------------------------------------ */

/* Takes batches faster than two threads can make them: sooner or later none is ready. */
TEST(next_without_waiting_times_out_and_may_be_repeated) {
    enum { LATE = 3, MOST_STEPS = 10000 };
    const struct ccs_loader_options opt = options();
    const char *dir = make_at("d", true);
    struct ccs_loader *l = open_made(dir, &opt);
    const struct ccs_batch *b = NULL;
    struct ccs_error err;
    uint64_t step = 0;
    uint32_t late = 0;
    for (; late < LATE && step < MOST_STEPS; step++) {
        int32_t s;
        bool waited = false;
        while ((s = ccs_loader_next(l, &b, 0, &err)) == CCS_ERROR_TIMEOUT) {
            assert_null(b);
            assert_true(strlen(err.text) > 0);
            waited = true;
        }
        assert_int_equal(s, CCS_OK);
        assert_int_equal(b->epoch * (SAMPLES / BATCH) + b->step, step);
        ccs_batch_release(b);
        b = NULL;
        late += waited;
    }
    assert_int_equal(late, LATE);
    assert_int_equal(ccs_loader_next(l, &b, INT64_MAX, &err), CCS_OK);
    assert_int_equal(b->epoch * (SAMPLES / BATCH) + b->step, step);
    ccs_batch_release(b);
    ccs_loader_close(l);
}

TEST(too_many_held_batches_are_refused) {
    struct ccs_loader_options opt = options();
    opt.prefetch = 2;
    struct ccs_loader *l = open_made(make_at("d", true), &opt);
    const struct ccs_batch *held[3];
    const struct ccs_batch *b = NULL;
    struct ccs_error err;
    for (int i = 0; i < 3; i++) {
        held[i] = take(l);
    }
    library_check_error(ccs_loader_next(l, &b, WAIT_MS, &err), CCS_ERROR_INVALID, &err,
                        "epoch 0, step 0 still holds its buffer");
    assert_null(b);
    ccs_batch_release(held[0]);
    ccs_batch_release(held[0]); /* does nothing */
    held[0] = take(l);
    assert_int_equal(held[0]->step, 3);
    for (int i = 0; i < 3; i++) {
        ccs_batch_release(held[i]);
    }
    ccs_batch_release(NULL);
    ccs_loader_close(l);
}

/* ---- release ------------------------------------------------------------------------------ */

struct handover {
    _Atomic(const struct ccs_batch *) batch; /* NULL: the other thread has released it */
    atomic_bool done;
};

static void *release_thread(void *arg) {
    struct handover *h = arg;
    while (!atomic_load(&h->done)) {
        const struct ccs_batch *b = atomic_exchange(&h->batch, NULL);
        if (b != NULL) {
            memset(b->images, 1, 3); /* the caller may write */
            ccs_batch_release(b);
        }
        sched_yield();
    }
    return NULL;
}

TEST(another_thread_releases_while_this_one_takes) {
    enum { STEPS = 60 };
    const struct ccs_loader_options opt = options();
    struct ccs_loader *l = open_made(make_at("d", true), &opt);
    struct handover h = {NULL, false};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, release_thread, &h), 0);
    for (int i = 0; i < STEPS; i++) {
        const struct ccs_batch *b = take(l);
        assert_int_equal(b->epoch * (SAMPLES / BATCH) + b->step, i);
        while (atomic_load(&h.batch) != NULL) {
            sched_yield();
        }
        atomic_store(&h.batch, b);
    }
    ccs_loader_close(l); /* the last batch may still be held */
    while (atomic_load(&h.batch) != NULL) {
        sched_yield();
    }
    atomic_store(&h.done, true);
    pthread_join(thread, NULL);
}

static atomic_int blocks;

static void *counted_alloc(void *cookie, size_t size) {
    void *data = size > 0 ? aligned_alloc(64, (size + 63) / 64 * 64) : NULL;
    assert_ptr_equal(cookie, &blocks);
    atomic_fetch_add(&blocks, data != NULL);
    return data;
}

static void counted_release(void *cookie, void *data) {
    assert_ptr_equal(cookie, &blocks);
    atomic_fetch_sub(&blocks, 1);
    free(data);
}

TEST(held_batches_outlive_the_loader) {
    const char *dir = make_at("d", true);
    const struct loader_options own = batches_options(BATCH);
    uint64_t expected[3];
    batches_of(expected, 3, &(struct loader_source){.directory = dir}, 1, &own);
    struct ccs_loader_options opt = options();
    opt.allocator = (struct ccs_allocator){counted_alloc, counted_release, &blocks};
    struct ccs_loader *l = open_made(dir, &opt);
    const struct ccs_batch *held[3];
    for (int i = 0; i < 3; i++) {
        held[i] = take(l);
    }
    assert_int_equal(blocks, 4);
    ccs_batch_release(held[1]);
    ccs_loader_close(l);
    assert_int_equal(blocks, 2);
    assert_int_equal(hash_of(held[0], &own, SAMPLES / BATCH), expected[0]);
    ccs_batch_release(held[0]);
    assert_int_equal(blocks, 1);
    assert_int_equal(hash_of(held[2], &own, SAMPLES / BATCH), expected[2]);
    ccs_batch_release(held[2]);
    assert_int_equal(blocks, 0);
}

static void *release_one(void *arg) {
    ccs_batch_release(arg);
    return NULL;
}

/* Whichever comes last frees the loader. */
TEST(close_and_release_may_meet) {
    enum { ROUNDS = 20 };
    const char *dir = make_at("d", false);
    struct ccs_loader_options opt = options();
    opt.image_size_px = 8;
    opt.allocator = (struct ccs_allocator){counted_alloc, counted_release, &blocks};
    for (int i = 0; i < ROUNDS; i++) {
        struct ccs_loader *l = open_made(dir, &opt);
        pthread_t threads[2];
        for (int k = 0; k < 2; k++) {
            void *b = (void *)(uintptr_t)take(l);
            assert_int_equal(pthread_create(&threads[k], NULL, release_one, b), 0);
        }
        ccs_loader_close(l);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        assert_int_equal(blocks, 0);
    }
}

static void *no_memory(void *cookie, size_t size) {
    (void)cookie;
    (void)size;
    return NULL;
}

/* Of so many ranks that this one gets no row. */
TEST(a_batch_without_rows_is_a_batch) {
    struct ccs_loader_options opt = options();
    opt.batch_size = 2;
    opt.world = 3;
    opt.allocator = (struct ccs_allocator){counted_alloc, counted_release, &blocks};
    struct ccs_loader *l = open_made(make_at("d", false), &opt);
    const struct ccs_batch *held[] = {take(l), take(l)};
    assert_int_equal(held[0]->count, 0);
    assert_int_equal(held[1]->step, 1);
    assert_ptr_not_equal(held[0]->images, held[1]->images);
    ccs_loader_close(l);
    assert_int_equal(blocks, 2);
    ccs_batch_release(held[0]);
    ccs_batch_release(held[1]);
    assert_int_equal(blocks, 0);
}

/* ---- errors ------------------------------------------------------------------------------- */

static void
refuse(const char *dir, struct ccs_loader_options opt, int32_t expected, const char *has) {
    struct ccs_error err;
    struct ccs_loader *l = (void *)&err;
    library_check_error(ccs_loader_open(&l, dir, &opt, &err), expected, &err, has);
    assert_null(l);
}

#define REFUSE(field, value, has)                                                                  \
    do {                                                                                           \
        struct ccs_loader_options o_ = options();                                                  \
        o_.field = value;                                                                          \
        refuse(dir, o_, CCS_ERROR_USAGE, has);                                                     \
    } while (0)

TEST(filters_and_weights_have_a_point_in_any_locale) {
    const char *dir = make_at("d", true);
    make_at("e", true);
    const char *mix[] = {test_temp_path("d:0.5"), test_temp_path("e:1.5")};
    struct ccs_loader_options opt = options();
    struct ccs_loader *l = NULL;
    struct ccs_error err;
    library_use_decimal_comma();
    opt.filter = "max-aspect=2.5";
    ccs_loader_close(open_made(dir, &opt));
    opt.filter = NULL;
    if (ccs_loader_open_mix(&l, mix, 2, &opt, &err) != CCS_OK) {
        fail_msg("%s", err.text);
    }
    ccs_loader_close(l);
    assert_string_equal(localeconv()->decimal_point, ",");
}

TEST(wrong_options_are_refused) {
    const char *dir = make_at("d", true);
    REFUSE(batch_size, 0, "batch_size is 0, expected 1 to");
    REFUSE(batch_size, SAMPLES + 1, "101");
    REFUSE(world, 0, "world is 0");
    REFUSE(rank, 1, "rank is 1, expected 0 to 0");
    REFUSE(image_size_px, 7, "image_size_px is 7");
    REFUSE(augment, "flop", "augment is 'flop', expected one of: crop, eval-squash");
    REFUSE(augment, NULL, "augment is 'NULL'");
    REFUSE(views, 3, "views is 3");
    REFUSE(positives, 3, "multiple of positives");
    REFUSE(positives, 9, "positives is 9");
    REFUSE(order, "shuffled", "order 'shuffled'");
    REFUSE(order, NULL, "order ''");
    REFUSE(filter, "min-size=3", "min-size");
    REFUSE(max_tokens, 1, "max_tokens is 1");
    REFUSE(threads, 1025, "threads is 1025");
    REFUSE(prefetch, 0, "prefetch is 0");
    REFUSE(prefetch, 65, "prefetch is 65");
    REFUSE(max_corrupt, 4097, "max_corrupt is 4097");
    REFUSE(tokenizer_size, 1, "tokenizer_size");
    REFUSE(allocator.alloc, no_memory, "allocator");
    struct ccs_loader_options opt = options();
    opt.positives = 2;
    opt.views = 2;
    refuse(dir, opt, CCS_ERROR_USAGE, "two views");
    opt = options();
    opt.tokenizer = "not a model";
    opt.tokenizer_size = 11;
    refuse(dir, opt, CCS_ERROR_CORRUPT, "");
    opt = options();
    opt.allocator = (struct ccs_allocator){no_memory, counted_release, NULL};
    refuse(dir, opt, CCS_ERROR_NOMEM, "out of memory");
    opt = options();
    opt.struct_size = 0;
    refuse(dir, opt, CCS_ERROR_INVALID, "struct_size is 0");
    memset(&opt, 0xaa, sizeof(opt)); /* without ccs_loader_options_init */
    refuse(dir, opt, CCS_ERROR_INVALID, "struct_size is 12297829382473034410");
    refuse(test_temp_path("none"), options(), CCS_ERROR_NOTFOUND, "none");
}

TEST(wrong_arguments_are_refused) {
    const char *dir = make_at("d", true);
    const struct ccs_loader_options opt = options();
    struct ccs_error err;
    struct ccs_loader *none = NULL;
    const struct ccs_batch *b = NULL;
    struct ccs_loader_info info = {0};
    struct ccs_loader_stats stats = {0};
    struct ccs_loader_state saved = {0};
    const char *list[] = {dir, NULL};
    library_check_error(ccs_loader_open(NULL, dir, &opt, &err), CCS_ERROR_INVALID, &err, "out");
    library_check_error(ccs_loader_open(&none, NULL, &opt, &err), CCS_ERROR_INVALID, &err,
                        "dataset");
    library_check_error(ccs_loader_open_mix(&none, NULL, 1, &opt, &err), CCS_ERROR_INVALID, &err,
                        "NULL");
    library_check_error(ccs_loader_open_mix(&none, list, 0, &opt, &err), CCS_ERROR_INVALID, &err,
                        "16");
    library_check_error(ccs_loader_open_mix(&none, list, 17, &opt, &err), CCS_ERROR_INVALID, &err,
                        "16");
    library_check_error(ccs_loader_open_mix(&none, list, 2, &opt, &err), CCS_ERROR_INVALID, &err,
                        "dataset 1 is NULL");
    library_check_error(ccs_loader_next(NULL, &b, 0, &err), CCS_ERROR_INVALID, &err,
                        "loader is NULL");
    struct ccs_loader *l = open_made(dir, &opt);
    library_check_error(ccs_loader_next(l, NULL, 0, &err), CCS_ERROR_INVALID, &err, "out is NULL");
    library_check_error(ccs_loader_next(l, &b, -1, &err), CCS_ERROR_INVALID, &err, "negative");
    library_check_error(ccs_loader_get_info(l, &info, &err), CCS_ERROR_INVALID, &err,
                        "struct_size");
    library_check_error(ccs_loader_get_info(l, NULL, &err), CCS_ERROR_INVALID, &err, "NULL");
    library_check_error(ccs_loader_get_stats(l, &stats, &err), CCS_ERROR_INVALID, &err,
                        "struct_size");
    library_check_error(ccs_loader_get_stats(l, NULL, &err), CCS_ERROR_INVALID, &err, "NULL");
    library_check_error(ccs_loader_get_state(l, &saved, &err), CCS_ERROR_INVALID, &err,
                        "struct_size");
    library_check_error(ccs_loader_get_state(l, NULL, &err), CCS_ERROR_INVALID, &err, "NULL");
    library_check_error(ccs_loader_seek(l, NULL, &err), CCS_ERROR_INVALID, &err, "NULL");
    ccs_loader_close(l);
    ccs_loader_close(NULL);
}

static atomic_int log_lines;

static void count_line(void *cookie, const char *line) {
    assert_ptr_equal(cookie, &log_lines);
    assert_true(strlen(line) > 0);
    atomic_fetch_add(&log_lines, 1);
}

TEST(damaged_samples_are_replaced_counted_and_logged) {
    const char *dir = make_at("d", true);
    struct ccs_loader_stats stats = {.struct_size = sizeof(stats)};
    struct ccs_loader_options opt = options();
    struct ccs_error err;
    const struct ccs_batch *b = NULL;
    opt.log = count_line;
    opt.log_cookie = &log_lines;
    opt.drop_last = false;
    opt.epochs = 1;
    image_dataset_damage(dir, 5 * STEP);
    image_dataset_damage(dir, 50 * STEP);
    struct ccs_loader *l = open_made(dir, &opt);
    uint32_t replaced = 0;
    while (ccs_loader_next(l, &b, WAIT_MS, NULL) == CCS_OK) {
        replaced += b->replaced;
        ccs_batch_release(b);
    }
    assert_int_equal(replaced, 2);
    assert_int_equal(ccs_loader_get_stats(l, &stats, NULL), CCS_OK);
    assert_int_equal(stats.samples, SAMPLES);
    assert_int_equal(stats.batches, SAMPLES / BATCH + 1);
    assert_int_equal(stats.replaced, 2);
    assert_int_equal(stats.corrupt, 2);
    assert_true(stats.read_bytes > 0 && stats.read_requests > 0 && stats.elapsed_ns > 0 &&
                stats.first_batch_ns > 0);
    assert_true(log_lines >= 2);
    ccs_loader_close(l);
    opt.max_corrupt = 1;
    l = open_made(dir, &opt);
    int32_t s;
    while ((s = ccs_loader_next(l, &b, WAIT_MS, &err)) == CCS_OK) {
        ccs_batch_release(b);
    }
    library_check_error(s, CCS_ERROR_CORRUPT, &err, "1 are allowed");
    library_check_error(ccs_loader_next(l, &b, 0, &err), CCS_ERROR_CORRUPT, &err, "1 are allowed");
    ccs_loader_close(l);
}

/* ---- other processes and versions --------------------------------------------------------- */

static int use_in_child(struct ccs_loader *l, const struct ccs_batch *b) {
    struct ccs_error err;
    const struct ccs_batch *none = NULL;
    struct ccs_loader_state saved = {.struct_size = sizeof(saved)};
    struct ccs_loader_info info = {.struct_size = sizeof(info)};
    struct ccs_loader_stats stats = {.struct_size = sizeof(stats)};
    bool refused = ccs_loader_next(l, &none, WAIT_MS, &err) == CCS_ERROR_FORKED &&
                   strstr(err.text, "after the fork") != NULL && none == NULL &&
                   ccs_loader_get_state(l, &saved, NULL) == CCS_ERROR_FORKED &&
                   ccs_loader_seek(l, &saved, NULL) == CCS_ERROR_FORKED &&
                   ccs_loader_get_info(l, &info, NULL) == CCS_ERROR_FORKED &&
                   ccs_loader_get_stats(l, &stats, NULL) == CCS_ERROR_FORKED;
    ccs_batch_release(b);
    ccs_loader_close(l);
    return refused ? 0 : 1;
}

TEST(a_forked_child_is_refused_and_the_parent_goes_on) {
    const char *dir = make_at("d", true);
    const struct ccs_loader_options opt = options();
    const struct loader_options own = batches_options(BATCH);
    uint64_t expected[3];
    batches_of(expected, 3, &(struct loader_source){.directory = dir}, 1, &own);
    struct ccs_loader *l = open_made(dir, &opt);
    const struct ccs_batch *b = take(l);
    pid_t child = fork();
    if (child == 0) {
        _exit(use_in_child(l, b));
    }
    int left = 0;
    assert_int_equal(waitpid(child, &left, 0), child);
    assert_int_equal(left, 0);
    assert_int_equal(hash_of(b, &own, SAMPLES / BATCH), expected[0]);
    ccs_batch_release(b);
    assert_int_equal(next_hash(l, &own, SAMPLES / BATCH), expected[1]);
    ccs_loader_close(l);
}

TEST(options_of_other_versions_are_accepted_as_far_as_they_go) {
    const char *dir = make_at("d", true);
    struct {
        struct ccs_loader_options opt;
        uint64_t later;
    } wide;
    ccs_loader_options_init(&wide.opt, sizeof(wide));
    assert_int_equal(wide.opt.struct_size, sizeof(wide));
    assert_int_equal(wide.opt.max_corrupt, 1000);
    assert_int_equal(wide.later, 0);
    wide.opt.batch_size = BATCH;
    wide.opt.image_size_px = BATCHES_SIDE;
    ccs_loader_close(open_made(dir, &wide.opt));
    wide.later = 1;
    struct ccs_error err;
    struct ccs_loader *l = NULL;
    library_check_error(ccs_loader_open(&l, dir, &wide.opt, &err), CCS_ERROR_UNSUPPORTED, &err,
                        "this version, ");
    /* The fields after `rank` are those of later versions: their memory is not touched. */
    struct ccs_loader_options narrow;
    memset(&narrow, 0xaa, sizeof(narrow));
    ccs_loader_options_init(&narrow, offsetof(struct ccs_loader_options, image_size_px));
    assert_int_equal(narrow.batch_size, 512);
    assert_int_equal(narrow.image_size_px, 0xaaaaaaaa);
    narrow.batch_size = BATCH;
    l = open_made(dir, &narrow);
    const struct ccs_batch *b = take(l);
    assert_int_equal(b->side_px, 256);
    ccs_batch_release(b);
    ccs_loader_close(l);
}

TEST(defaults_are_used_without_options) {
    struct ccs_error err;
    struct ccs_loader *l = NULL;
    library_check_error(ccs_loader_open(&l, make_at("d", true), NULL, &err), CCS_ERROR_USAGE, &err,
                        "512");
}
