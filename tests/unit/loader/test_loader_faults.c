/* A disk that misbehaves: an engine between the loader and pread that fails, shortens, delays or
 * never answers. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "loader/pipeline_internal.h"
#include "tests/support/picture_dataset.h"
#include "tests/support/test.h"

enum { SIDE = 16, STEPS = 6 };

/* What the engine does; set before the loader is opened. */
static int fail_errno;     /* 0: none */
static uint32_t fail_each; /* every so many-th request, counted over all threads; 0: none */
static uint32_t fail_from; /* all requests from this one on; 0: none */
static size_t most_bytes = SIZE_MAX;
/* Relaxed: a count, nothing else is told by it. */
static atomic_uint requests;
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate = PTHREAD_COND_INITIALIZER;
static bool gate_closed; /* guarded by gate_lock */

static enum status odd_create(struct read_engine **out, uint32_t depth, struct error *err) {
    return read_engine_pread()->create(out, depth, err);
}

static bool odd_destroy(struct read_engine *e, int64_t timeout_ms) {
    return read_engine_pread()->destroy(e, timeout_ms);
}

/* Parts must stay until the completion, so the shortened ones need a place: any thread's request
 * has its own, for as long as there are not more of them. */
static struct iovec cut_parts[4096];
static atomic_uint next_cut;

static void odd_submit(struct read_engine *e, const struct read_request *r) {
    struct read_request cut = *r;
    uint32_t at = atomic_fetch_add_explicit(&next_cut, 1, memory_order_relaxed) % 4096;
    if (r->parts[0].iov_len > most_bytes) {
        cut_parts[at] = (struct iovec){r->parts[0].iov_base, most_bytes};
        cut.parts = &cut_parts[at];
        cut.part_count = 1;
    }
    read_engine_pread()->submit(e, &cut);
}

static uint32_t odd_reap(struct read_engine *e, struct read_completion *out, uint32_t max) {
    pthread_mutex_lock(&gate_lock);
    while (gate_closed) {
        pthread_cond_wait(&gate, &gate_lock);
    }
    pthread_mutex_unlock(&gate_lock);
    uint32_t n = read_engine_pread()->reap(e, out, max);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t number = atomic_fetch_add_explicit(&requests, 1, memory_order_relaxed) + 1;
        bool fails =
            (fail_each != 0 && number % fail_each == 0) || (fail_from != 0 && number >= fail_from);
        if (fails) {
            out[i].result = -fail_errno;
        }
    }
    return n;
}

static const struct read_engine_ops odd_engine = {
    .name = "odd",
    .max_threads = 2,
    .max_depth = 4,
    .create = odd_create,
    .destroy = odd_destroy,
    .submit = odd_submit,
    .reap = odd_reap,
};

static const char *make_dir(void) {
    struct picture_dataset how;
    picture_dataset_default(&how);
    how.tokenizer = false;
    const char *dir = test_temp_path("d");
    picture_dataset_make(dir, &how);
    return dir;
}

static struct loader_options options(void) {
    struct loader_options opt;
    loader_options_default(&opt);
    opt.batch_count = 16;
    opt.image_size_px = SIDE;
    opt.threads = 2;
    opt.seed = test_seed();
    return opt;
}

static struct loader *
open_with(const char *dir, const struct loader_options *opt, const struct read_engine_ops *engine) {
    struct loader *l = NULL;
    struct error err = {0};
    assert_ok(loader_open_with_engine(&l, &(struct loader_source){.directory = dir}, 1, opt, engine,
                                      &err),
              err);
    return l;
}

static uint64_t hash_steps(struct loader *l) {
    uint64_t h = 0;
    for (int i = 0; i < STEPS; i++) {
        struct loader_batch b;
        struct error err = {0};
        assert_ok(loader_acquire(l, &b, &err), err);
        uint64_t pair[] = {h, hash64(b.images, (size_t)b.count * SIDE * SIDE * 3)};
        h = hash64(pair, sizeof(pair));
        loader_release(l, &b);
    }
    return h;
}

/* Hash of the batches through the odd engine; `stats` at the end. */
static uint64_t odd_hash(const char *dir, struct loader_stats *stats) {
    struct loader_options opt = options();
    struct loader *l = open_with(dir, &opt, &odd_engine);
    uint64_t h = hash_steps(l);
    loader_stats(l, stats);
    loader_close(l);
    return h;
}

static uint64_t true_hash(const char *dir) {
    struct loader_options opt = options();
    struct loader *l = open_with(dir, &opt, read_engine_pread());
    uint64_t h = hash_steps(l);
    loader_close(l);
    return h;
}

/* Runs to the failure that every run must end with. */
static enum status run_to_failure(const char *dir, struct error *err) {
    struct loader_options opt = options();
    struct loader *l = open_with(dir, &opt, &odd_engine);
    struct loader_batch b;
    enum status s;
    while ((s = loader_acquire(l, &b, err)) == STATUS_OK) {
        loader_release(l, &b);
    }
    struct error again = {0};
    assert_int_equal(loader_acquire(l, &b, &again), s);
    assert_string_equal(again.text, err->text);
    loader_close(l);
    return s;
}

TEST(short_reads_are_continued) {
    const char *dir = make_dir();
    struct loader_stats stats;
    most_bytes = 777;
    assert_int_equal(odd_hash(dir, &stats), true_hash(dir));
    assert_int_equal(stats.retried_reads_count, 0);
}

TEST(failed_reads_are_tried_again) {
    const char *dir = make_dir();
    struct loader_stats stats;
    fail_errno = EIO;
    fail_each = 40;
    assert_int_equal(odd_hash(dir, &stats), true_hash(dir));
    assert_true(stats.retried_reads_count >= 2);
    fail_errno = EAGAIN;
    fail_each = 3;
    assert_int_equal(odd_hash(dir, &stats), true_hash(dir));
    assert_int_equal(stats.retried_reads_count, 0);
}

TEST(a_dead_disk_ends_the_run_with_shard_and_offset) {
    const char *dir = make_dir();
    struct error err = {0};
    fail_errno = EIO;
    fail_from = 50;
    assert_status(run_to_failure(dir, &err), STATUS_IO, err);
    assert_int_equal(err.os_errno, EIO);
    assert_non_null(strstr(err.text, "/pictures-00000"));
    assert_non_null(strstr(err.text, "at offset "));
    assert_non_null(strstr(err.text, "4 tries"));
}

TEST(a_shard_cut_while_it_is_read_is_told) {
    const char *dir = make_dir();
    struct error err = {0};
    fail_errno = 0; /* a result of 0: the end of the file */
    fail_from = 50;
    assert_status(run_to_failure(dir, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "/pictures-00000"));
    assert_non_null(strstr(err.text, "the file ends at offset"));
}

TEST(a_hanging_disk_is_named_and_waited_for_in_bounds) {
    const char *dir = make_dir();
    struct loader_options opt = options();
    struct error err = {0};
    struct loader_batch b;
    opt.wait_timeout_ms = 50;
    gate_closed = true;
    struct loader *l = open_with(dir, &opt, &odd_engine);
    int64_t begin_ns = clock_now_ns();
    assert_status(loader_acquire(l, &b, &err), STATUS_TIMEOUT, err);
    assert_true(clock_now_ns() - begin_ns >= 50000000);
    assert_non_null(strstr(err.text, "stuck in read, "));
    assert_non_null(strstr(err.text, "/pictures-00000"));
    pthread_mutex_lock(&gate_lock);
    gate_closed = false;
    pthread_cond_broadcast(&gate);
    pthread_mutex_unlock(&gate_lock);
    enum status s;
    do { /* it may be tried again */
        s = loader_acquire(l, &b, &err);
    } while (s == STATUS_TIMEOUT);
    assert_ok(s, err);
    assert_int_equal(b.step, 0);
    loader_close(l);
}

TEST(a_consumer_that_holds_everything_does_not_block_close) {
    const char *dir = make_dir();
    struct loader_options opt = options();
    struct error err = {0};
    struct loader_batch b;
    struct loader *l = open_with(dir, &opt, &odd_engine);
    for (uint32_t i = 0; i <= opt.prefetch_batches; i++) {
        assert_ok(loader_acquire(l, &b, &err), err);
    }
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    loader_close(l);
}
