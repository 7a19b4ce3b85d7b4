/* A disk that misbehaves: an engine between the loader and pread that fails, shortens, delays or
 * never answers. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "loader/loader_internal.h"
#include "tests/support/image_dataset.h"
#include "tests/support/test.h"

enum { SIDE = 16, STEPS = 6 };

/* What the engine does; set before the loader is opened. */
static int fail_errno;     /* 0: none */
static uint32_t fail_each; /* every so many-th request, counted over all threads; 0: none */
static uint32_t fail_from; /* all requests from this one on; 0: none */
static size_t most_bytes = SIZE_MAX;
static int64_t delay_ns; /* of each request */
/* Relaxed: a count that orders no other memory. */
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
    if (delay_ns > 0) {
        nanosleep(&(struct timespec){.tv_nsec = (long)delay_ns}, NULL);
    }
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

static void open_gate(void) {
    pthread_mutex_lock(&gate_lock);
    gate_closed = false;
    pthread_cond_broadcast(&gate);
    pthread_mutex_unlock(&gate_lock);
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
    struct image_dataset how;
    image_dataset_default(&how);
    how.tokenizer = false;
    const char *dir = test_temp_path("d");
    image_dataset_make(dir, &how);
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

TEST(failing_disk_ends_the_run_with_shard_and_offset) {
    const char *dir = make_dir();
    struct error err = {0};
    fail_errno = EIO;
    fail_from = 50;
    assert_status(run_to_failure(dir, &err), STATUS_IO, err);
    assert_non_null(strstr(err.text, strerror(EIO)));
    assert_non_null(strstr(err.text, "/images-00000"));
    assert_non_null(strstr(err.text, "at offset "));
    assert_non_null(strstr(err.text, "4 tries"));
}

TEST(read_past_the_end_of_a_shard_is_reported) {
    const char *dir = make_dir();
    struct error err = {0};
    fail_errno = 0; /* a result of 0: the end of the file */
    fail_from = 50;
    assert_status(run_to_failure(dir, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "/images-00000"));
    assert_non_null(strstr(err.text, "the file ends at offset"));
}

TEST(hanging_disk_is_reported_within_the_timeout) {
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
    assert_non_null(strstr(err.text, "/images-00000"));
    open_gate();
    enum status s;
    do { /* it may be tried again */
        s = loader_acquire(l, &b, &err);
    } while (s == STATUS_TIMEOUT);
    assert_ok(s, err);
    assert_int_equal(b.step, 0);
    loader_close(l);
}

TEST(slow_disk_changes_only_the_time) {
    const char *dir = make_dir();
    struct loader_stats stats;
    delay_ns = 3000000;
    assert_int_equal(odd_hash(dir, &stats), true_hash(dir));
    assert_true(stats.consumer_stall_ns > 0);
}

TEST(interrupted_reads_are_continued) {
    const char *dir = make_dir();
    struct loader_stats stats;
    fail_errno = EINTR;
    fail_each = 2;
    assert_int_equal(odd_hash(dir, &stats), true_hash(dir));
    assert_int_equal(stats.retried_reads_count, 0);
}

/* --- a disk that never answers --- */

struct memory_count {
    /* Relaxed: read when the loader is closed. */
    atomic_int blocks;
    atomic_int lines;
};

static void *counted_alloc(void *cookie, size_t size) {
    struct memory_count *c = cookie;
    atomic_fetch_add_explicit(&c->blocks, 1, memory_order_relaxed);
    return host_memory_default().alloc(NULL, size);
}

static void counted_release(void *cookie, void *data) {
    struct memory_count *c = cookie;
    atomic_fetch_sub_explicit(&c->blocks, data != NULL, memory_order_relaxed);
    host_memory_default().release(NULL, data);
}

static void count_line(void *cookie, enum log_level level, const char *text) {
    struct memory_count *c = cookie;
    if (level == LOG_LEVEL_WARN &&
        strstr(text, "hang in reads or writes that do not finish") != NULL) {
        atomic_fetch_add_explicit(&c->lines, 1, memory_order_relaxed);
    }
}

/* The threads of this process. */
static int count_threads(void) {
    int count = 0;
    DIR *d = opendir("/proc/self/task");
    assert_non_null(d);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        count += e->d_name[0] != '.';
    }
    closedir(d);
    return count;
}

/* Abandoned threads free what they have before they end; a leak checker must not run before. A
 * sanitizer may have started a thread of its own, so the wait has a limit. */
static void wait_for_threads(int count) {
    for (int tries = 0; tries < 1000 && count_threads() > count; tries++) {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

TEST(close_abandons_reads_that_never_end) {
    const char *dir = make_dir();
    struct loader_options opt = options();
    struct memory_count count = {0};
    struct log_sink log = {count_line, &count, LOG_LEVEL_WARN};
    struct error err = {0};
    opt.host_memory = (struct host_memory){counted_alloc, counted_release, &count};
    opt.log = &log;
    opt.wait_timeout_ms = 10;
    gate_closed = true;
    int threads = count_threads();
    struct loader *l = open_with(dir, &opt, &odd_engine);
    struct loader_state place = loader_state(l);
    struct loader_batch b;
    do { /* until the readers sit in the engine */
        assert_status(loader_acquire(l, &b, &err), STATUS_TIMEOUT, err);
    } while (strstr(err.text, "(8 reads in flight)") == NULL);
    int64_t begin_ns = clock_now_ns();
    assert_status(loader_seek(l, &place, &err), STATUS_TIMEOUT, err);
    struct error again = {0};
    assert_status(loader_acquire(l, &b, &again), STATUS_TIMEOUT, again);
    loader_close(l);
    assert_true(clock_now_ns() - begin_ns >= 3000000000); /* two waits of two seconds, rounded */
    assert_int_equal(atomic_load(&count.lines), 1);
    assert_int_equal(atomic_load(&count.blocks), 0); /* no decoder was stuck */
    open_gate();
    wait_for_threads(threads);
}

/* --- files that change while they are read --- */

static enum status run_through(struct loader *l, struct error *err) {
    struct loader_batch b;
    enum status s;
    while ((s = loader_acquire(l, &b, err)) == STATUS_OK) {
        loader_release(l, &b);
    }
    return s;
}

/* Opens, takes one batch, lets `change` happen to the first shard, and runs on. */
static void check_change(void (*change)(const char *path), enum status expected, const char *why) {
    const char *dir = make_dir();
    struct loader_options opt = options();
    struct loader_batch b;
    struct error err = {0};
    char path[4200];
    snprintf(path, sizeof(path), "%s/images-000000.tar.zst", dir);
    opt.prefetch_batches = 1;
    struct loader *l = open_with(dir, &opt, read_engine_pread());
    assert_ok(loader_acquire(l, &b, &err), err);
    change(path);
    loader_release(l, &b);
    assert_status(run_through(l, &err), expected, err);
    if (strstr(err.text, why) == NULL || strstr(err.text, path) == NULL) {
        fail_msg("'%s' does not say '%s' and '%s'", err.text, why, path);
    }
    loader_close(l);
}

static void cut(const char *path) {
    assert_int_equal(truncate(path, 5000), 0);
}

static void scribble(const char *path) {
    size_t size = 0;
    uint8_t *bytes = test_read_file(path, &size);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    for (size_t i = 0; i < size; i += 100) {
        bytes[i] ^= 0x55;
    }
    assert_int_equal(pwrite(fd, bytes, size, 0), (ssize_t)size);
    close(fd);
    free(bytes);
}

/* The index then comes from the shard itself. */
TEST(truncated_shard_without_sidecar_is_reported) {
    const char *dir = make_dir();
    struct loader_options opt = options();
    struct loader_batch b;
    struct error err = {0};
    char path[4200];
    snprintf(path, sizeof(path), "%s/images-000000.cci", dir);
    assert_int_equal(remove(path), 0);
    snprintf(path, sizeof(path), "%s/images-000000.tar.zst", dir);
    opt.prefetch_batches = 1;
    struct loader *l = open_with(dir, &opt, NULL);
    assert_ok(loader_acquire(l, &b, &err), err);
    cut(path);
    loader_release(l, &b);
    assert_status(run_through(l, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "the file ends at offset"));
    loader_close(l);
}

TEST(shard_truncated_while_loading_is_named) {
    check_change(cut, STATUS_CORRUPT, "the file ends at offset");
}

TEST(shard_overwritten_while_loading_is_named) {
    check_change(scribble, STATUS_CORRUPT, "was replaced or written to after loading began");
}

/* A shard that is not there when it is wanted: looked for again for a fifth of a second. */
static struct loader *open_before_last_shard(char path[4200], const char *dir) {
    struct loader_options opt = options();
    opt.order = LOADER_ORDER_SEQUENTIAL;
    opt.batch_count = 10;
    opt.prefetch_batches = 1;
    opt.read_depth = 1;
    snprintf(path, 4200, "%s/images-000002.tar.zst", dir);
    return open_with(dir, &opt, read_engine_pread());
}

TEST(lost_shard_ends_the_run_with_its_name) {
    const char *dir = make_dir();
    char path[4200];
    struct error err = {0};
    struct loader *l = open_before_last_shard(path, dir);
    assert_int_equal(remove(path), 0);
    assert_status(run_through(l, &err), STATUS_NOTFOUND, err);
    assert_non_null(strstr(err.text, path));
    loader_close(l);
}

/* The loader's pauses come here. With `missing` set, the first pause brings the shard back, so the
 * test does not depend on how fast anything runs. */
static pthread_mutex_t missing_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *missing, *missing_at; /* guarded by missing_lock */

int nanosleep(const struct timespec *time, struct timespec *rest) {
    pthread_mutex_lock(&missing_lock);
    if (missing != NULL) {
        assert_int_equal(rename(missing_at, missing), 0);
        missing = NULL;
    }
    pthread_mutex_unlock(&missing_lock);
    return clock_nanosleep(CLOCK_MONOTONIC, 0, time, rest);
}

TEST(shard_that_reappears_is_read) {
    const char *dir = make_dir();
    char path[4200];
    char away[4300];
    struct error err = {0};
    struct loader_batch b;
    struct loader *l = open_before_last_shard(path, dir);
    snprintf(away, sizeof(away), "%s.away", path);
    assert_int_equal(rename(path, away), 0);
    pthread_mutex_lock(&missing_lock);
    missing = path;
    missing_at = away;
    pthread_mutex_unlock(&missing_lock);
    for (uint64_t i = 0; i < 9; i++) { /* the last one has samples of the last shard */
        assert_ok(loader_acquire(l, &b, &err), err);
        assert_int_equal(b.step, i);
        loader_release(l, &b);
    }
    pthread_mutex_lock(&missing_lock);
    assert_null(missing); /* the loader did find it missing */
    pthread_mutex_unlock(&missing_lock);
    loader_close(l);
}

/* --- damage --- */

static uint64_t count_lines(const char *path, const char *containing) {
    size_t size = 0;
    uint64_t lines = 0;
    char *text = (char *)test_read_file(path, &size);
    for (char *at = text; (at = strstr(at, containing)) != NULL; at++) {
        lines++;
    }
    free(text);
    return lines;
}

TEST(five_percent_of_damage_is_replaced_and_listed) {
    enum { SAMPLES = 200, DAMAGED = 10, EPOCHS = 3 };
    struct image_dataset how;
    image_dataset_default(&how);
    how.samples = SAMPLES;
    const char *dir = test_temp_path("d");
    image_dataset_make(dir, &how);
    for (uint64_t i = 0; i < DAMAGED; i++) {
        image_dataset_damage(dir, (i * 19 + 3) * how.id_step);
    }
    uint64_t hashes[2] = {0};
    for (uint32_t round = 0; round < 2; round++) {
        struct loader_options opt = options();
        struct loader_batch b;
        struct error err = {0};
        uint64_t replaced = 0;
        uint64_t delivered = 0;
        opt.epochs = EPOCHS;
        opt.drop_last = false;
        opt.threads = 1 + 3 * round;
        opt.quarantine_path = test_temp_path("quarantine-%u", round);
        struct loader *l = open_with(dir, &opt, round == 0 ? read_engine_pread() : NULL);
        while (loader_acquire(l, &b, &err) == STATUS_OK) {
            for (uint32_t i = 0; i < b.count; i++) {
                uint64_t number = b.sample_ids[i] / how.id_step;
                assert_true(number < 3 || number > 3 + 9 * 19 || (number - 3) % 19 != 0);
            }
            replaced += b.replaced_count;
            delivered += b.count;
            uint64_t pair[] = {hashes[round], hash64(b.images, (size_t)b.count * SIDE * SIDE * 3)};
            hashes[round] = hash64(pair, sizeof(pair));
            loader_release(l, &b);
        }
        loader_close(l);
        assert_int_equal(delivered, EPOCHS * SAMPLES);
        assert_int_equal(replaced, EPOCHS * DAMAGED);
        assert_int_equal(count_lines(test_temp_path("quarantine-%u", round), "\n"), DAMAGED);
        assert_int_equal(count_lines(test_temp_path("quarantine-%u", round), "\"reason\":"),
                         DAMAGED);
    }
    assert_int_equal(hashes[0], hashes[1]);
}

TEST(damaged_index_records_are_replaced_like_damaged_images) {
    const char *dir = make_dir();
    image_dataset_damage_record(dir, 5);
    image_dataset_damage_record(dir, 50);
    uint64_t hashes[2] = {0};
    for (uint32_t round = 0; round < 2; round++) {
        struct loader_options opt = options();
        struct loader_batch b;
        struct error err = {0};
        uint64_t replaced = 0;
        opt.epochs = 2;
        opt.drop_last = false;
        opt.threads = 1 + 3 * round;
        opt.quarantine_path = test_temp_path("quarantine-%u", round);
        struct loader *l = open_with(dir, &opt, round == 0 ? read_engine_pread() : NULL);
        while (loader_acquire(l, &b, &err) == STATUS_OK) {
            for (uint32_t i = 0; i < b.count; i++) {
                assert_true(b.sample_ids[i] != 15 && b.sample_ids[i] != 150);
            }
            replaced += b.replaced_count;
            uint64_t pair[] = {hashes[round], hash64(b.images, (size_t)b.count * SIDE * SIDE * 3)};
            hashes[round] = hash64(pair, sizeof(pair));
            loader_release(l, &b);
        }
        assert_int_equal(replaced, 4);
        struct loader_corrupt row;
        uint64_t positions = 0;
        for (uint64_t i = 0; i < 2; i++) {
            assert_int_equal(loader_corrupt_at(l, i, &row), STATUS_OK);
            assert_true(row.sample_id == LOADER_NO_SAMPLE);
            assert_non_null(strstr(row.reason, "index record"));
            positions += row.position;
        }
        assert_int_equal(positions, 55);
        loader_close(l);
        const char *list = test_temp_path("quarantine-%u", round);
        assert_int_equal(count_lines(list, "\"id\":null"), 2);
        assert_int_equal(count_lines(list, "\"position\":50,"), 1);
    }
    assert_int_equal(hashes[0], hashes[1]);
}

TEST(failing_quarantine_file_ends_the_run) {
    const char *dir = make_dir();
    struct loader_options opt = options();
    struct loader *l = NULL;
    struct error err = {0};
    struct loader_source source = {.directory = dir};
    opt.quarantine_path = test_temp_path("no/such/folder");
    assert_status(loader_open_with_engine(&l, &source, 1, &opt, NULL, &err), STATUS_NOTFOUND, err);
    image_dataset_damage(dir, 30);
    opt.quarantine_path = "/dev/full";
    l = open_with(dir, &opt, NULL);
    assert_status(run_through(l, &err), STATUS_IO, err);
    loader_close(l);
}

/* --- a quarantine file on a disk that hangs --- */

/* A full pipe stands in for the file: writing to it blocks until the test reads. */
struct full_pipe {
    int fd;
    char path[PATH_MAX_BYTES];
    char text[1 << 18]; /* what was read, NUL-terminated */
    size_t text_bytes;
};

static struct full_pipe *make_full_pipe(void) {
    struct full_pipe *f = calloc(1, sizeof(*f));
    static const char filler[4096];
    assert_non_null(f);
    snprintf(f->path, sizeof(f->path), "%s", test_temp_path("quarantine"));
    assert_int_equal(mkfifo(f->path, 0600), 0);
    f->fd = open(f->path, O_RDONLY | O_NONBLOCK);
    int fd = open(f->path, O_WRONLY | O_NONBLOCK);
    assert_true(f->fd >= 0 && fd >= 0);
    while (write(fd, filler, sizeof(filler)) > 0) {
    }
    assert_int_equal(errno, EAGAIN);
    close(fd);
    return f;
}

/* Reads what there is. Returns how many records came so far. */
static uint32_t drain(struct full_pipe *f) {
    uint32_t records = 0;
    ssize_t got;
    while ((got = read(f->fd, f->text + f->text_bytes, sizeof(f->text) - 1 - f->text_bytes)) > 0) {
        f->text_bytes += (size_t)got;
    }
    for (size_t i = 0; i < f->text_bytes; i++) {
        records += f->text[i] == '\n';
    }
    return records;
}

static void close_pipe(struct full_pipe *f) {
    close(f->fd);
    free(f);
}

TEST(blocked_quarantine_write_stalls_no_stage) {
    enum { DAMAGED = 5, EPOCHS = 2, STEPS_PER_EPOCH = 6 };
    const char *dir = make_dir();
    for (uint64_t i = 0; i < DAMAGED; i++) {
        image_dataset_damage(dir, i * 30);
    }
    struct full_pipe *pipe = make_full_pipe();
    struct loader_options opt = options();
    struct loader_batch b;
    struct loader_stats stats;
    struct error err = {0};
    uint64_t batches = 0;
    enum status s;
    opt.threads = 1;
    opt.epochs = EPOCHS;
    opt.wait_timeout_ms = 200;
    opt.quarantine_path = pipe->path;
    struct loader *l = open_with(dir, &opt, NULL);
    /* Busy machines may need more than one try for a batch. */
    while ((s = loader_acquire(l, &b, &err)) == STATUS_OK ||
           (s == STATUS_TIMEOUT && batches < EPOCHS * STEPS_PER_EPOCH)) {
        if (s == STATUS_OK) {
            batches++;
            loader_release(l, &b);
        }
    }
    loader_stats(l, &stats);
    assert_int_equal(batches, EPOCHS * STEPS_PER_EPOCH);
    assert_int_equal(stats.corrupt_count, DAMAGED);
    /* The end waits for the file, and says so. */
    assert_status(s, STATUS_TIMEOUT, err);
    assert_non_null(strstr(err.text, "5 of 5 records are not in the quarantine file"));
    do {
        (void)drain(pipe);
        s = loader_acquire(l, &b, &err);
    } while (s == STATUS_TIMEOUT);
    assert_int_equal(s, STATUS_END);
    assert_int_equal(drain(pipe), DAMAGED);
    loader_close(l);
    assert_int_equal(drain(pipe), DAMAGED);
    close_pipe(pipe);
}

TEST(close_writes_the_pending_records) {
    const char *dir = make_dir();
    struct loader_options opt = options();
    struct loader_batch b;
    struct error err = {0};
    image_dataset_damage(dir, 0);
    opt.order = LOADER_ORDER_SEQUENTIAL;
    opt.quarantine_path = test_temp_path("quarantine");
    struct loader *l = open_with(dir, &opt, NULL);
    assert_ok(loader_acquire(l, &b, &err), err);
    loader_close(l);
    assert_int_equal(count_lines(opt.quarantine_path, "\"id\":0,"), 1);
}

TEST(close_abandons_a_quarantine_write_that_never_ends) {
    const char *dir = make_dir();
    struct full_pipe *pipe = make_full_pipe();
    struct loader_options opt = options();
    struct memory_count count = {0};
    struct log_sink log = {count_line, &count, LOG_LEVEL_WARN};
    struct loader_batch b;
    struct error err = {0};
    image_dataset_damage(dir, 0);
    opt.order = LOADER_ORDER_SEQUENTIAL;
    opt.host_memory = (struct host_memory){counted_alloc, counted_release, &count};
    opt.log = &log;
    opt.quarantine_path = pipe->path;
    int threads = count_threads();
    struct loader *l = open_with(dir, &opt, NULL);
    assert_ok(loader_acquire(l, &b, &err), err); /* replaces the damaged sample */
    l->p.opt.wait_timeout_ms = 10;
    int64_t begin_ns = clock_now_ns();
    loader_close(l);
    assert_true(clock_now_ns() - begin_ns >= 1500000000); /* one wait of two seconds, rounded */
    assert_int_equal(atomic_load(&count.lines), 1);
    assert_int_equal(atomic_load(&count.blocks), 0);
    while (drain(pipe) == 0) { /* a hang ends with the test's timeout */
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    assert_int_equal(drain(pipe), 1);
    wait_for_threads(threads);
    close_pipe(pipe);
}

/* --- time --- */

TEST(batches_of_later_epochs_are_made_ahead) {
    const char *dir = make_dir();
    struct loader_options opt = options();
    struct loader_stats stats;
    opt.batch_count = 100; /* one batch an epoch */
    opt.prefetch_batches = 3;
    struct loader *l = open_with(dir, &opt, NULL);
    do { /* a hang ends with the test's timeout */
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        loader_stats(l, &stats);
    } while (stats.deliver.queue_depth != 4);
    loader_close(l);
}

TEST(held_batches_do_not_block_close) {
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
