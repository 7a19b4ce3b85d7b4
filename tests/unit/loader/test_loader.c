/* The whole loader on small datasets of real images: the same batches whatever the threads,
 * engines, ranks and restarts, and what happens when disks and files misbehave. */
#include "loader/loader.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/json_writer.h"
#include "formats/base/rng.h"
#include "formats/dataset/dataset.h"
#include "formats/tokenizer/tokenizer.h"
#include "tests/support/batches.h"
#include "tests/support/image_dataset.h"
#include "tests/support/test.h"

enum { TOKENS = BATCHES_TOKENS, SAMPLES = 100, STEP = 3 };

static const char *make_dataset_at(const char *name, bool tokenizer) {
    struct image_dataset how;
    image_dataset_default(&how);
    how.tokenizer = tokenizer;
    const char *dir = test_temp_path("%s", name);
    image_dataset_make(dir, &how);
    return dir;
}

static void hash_steps(uint64_t *out, uint32_t steps, const char *dir, struct loader_options opt) {
    batches_of(out, steps, &(struct loader_source){.directory = dir}, 1, &opt);
}

static void check_engine(enum loader_engine engine) {
    enum { STEPS = 12 };
    const char *dir = make_dataset_at("d", true);
    uint64_t expected[STEPS];
    uint64_t got[STEPS];
    struct loader_options opt = batches_options(16);
    opt.engine = LOADER_ENGINE_PREAD;
    opt.threads = 1;
    hash_steps(expected, STEPS, dir, opt);
    opt.engine = engine;
    for (uint32_t threads = test_step(4); threads <= 4; threads += 3) {
        for (uint32_t depth = 1; depth <= 64; depth *= 8) {
            opt.threads = threads;
            opt.read_depth = depth;
            opt.prefetch_batches = 1 + depth % 3;
            hash_steps(got, STEPS, dir, opt);
            assert_memory_equal(got, expected, sizeof(got));
        }
    }
    opt.seed++;
    hash_steps(got, STEPS, dir, opt);
    assert_memory_not_equal(got, expected, sizeof(got));
}

/* Plain tars have their images at other places, and in one piece. */
TEST(containers_give_the_same_batches) {
    enum { STEPS = 12 };
    uint64_t got[2][STEPS];
    for (int i = 0; i < 2; i++) {
        struct image_dataset how;
        image_dataset_default(&how);
        how.container = i == 0 ? SHARD_CONTAINER_TAR_ZSTD : SHARD_CONTAINER_TAR;
        const char *dir = test_temp_path("d%d", i);
        image_dataset_make(dir, &how);
        hash_steps(got[i], STEPS, dir, batches_options(16));
    }
    assert_memory_equal(got[0], got[1], sizeof(got[0]));
}

TEST(batches_do_not_depend_on_threads_with_pread) {
    check_engine(LOADER_ENGINE_PREAD);
}

TEST(batches_do_not_depend_on_threads_with_uring) {
    check_engine(LOADER_ENGINE_URING);
}

/* by_id[id / STEP] gets the hash of that sample in `epoch`; returns the samples met. */
static uint32_t
collect_epoch(uint64_t *by_id, const char *dir, struct loader_options opt, uint64_t epoch) {
    uint32_t met = 0;
    struct loader_batch b;
    struct error err = {0};
    struct loader *l = batches_open(dir, &opt);
    enum status s;
    while ((s = loader_acquire(l, &b, &err)) == STATUS_OK) {
        for (uint32_t i = 0; i < b.count && b.epoch == epoch; i++) {
            uint64_t at = b.sample_ids[i] / STEP;
            assert_true(at < SAMPLES && b.sample_ids[i] % STEP == 0);
            assert_int_equal(by_id[at], 0);
            by_id[at] = batches_hash_sample(&b, &opt, i);
            met++;
        }
        loader_release(l, &b);
    }
    assert_int_equal(s, STATUS_END);
    assert_int_equal(loader_acquire(l, &b, &err), STATUS_END);
    loader_close(l);
    return met;
}

TEST(ranks_together_deliver_every_sample_once) {
    const char *dir = make_dataset_at("d", true);
    uint64_t expected[SAMPLES] = {0};
    struct loader_options opt = batches_options(24);
    opt.drop_last = false;
    opt.epochs = 2;
    assert_int_equal(collect_epoch(expected, dir, opt, 1), SAMPLES);
    for (uint32_t world = 2; world <= 8; world += test_step(3)) {
        uint64_t got[SAMPLES] = {0};
        uint32_t met = 0;
        for (uint32_t rank = 0; rank < world; rank++) {
            opt.world = world;
            opt.rank = rank;
            met += collect_epoch(got, dir, opt, 1);
        }
        assert_int_equal(met, SAMPLES);
        assert_memory_equal(got, expected, sizeof(got));
    }
}

TEST(resume_equals_the_tail_of_an_unbroken_run) {
    enum { STEPS = 14 };
    const char *dir = make_dataset_at("d", true);
    struct loader_options opt = batches_options(16);
    struct loader_state states[STEPS];
    uint64_t expected[STEPS];
    struct loader *l = batches_open(dir, &opt);
    for (uint32_t i = 0; i < STEPS; i++) {
        states[i] = loader_state(l);
        expected[i] = batches_next(l, &opt);
    }
    struct rng r;
    struct error err = {0};
    rng_init(&r, test_seed(), RNG_INIT, 0, 0);
    for (uint32_t round = 0; round < 12; round += test_step(3)) {
        uint32_t from = rng_below(&r, STEPS);
        assert_ok(loader_seek(l, &states[from], &err), err);
        opt.start = &states[from];
        struct loader *fresh = batches_open(dir, &opt);
        for (uint32_t i = from; i < STEPS && i < from + 4; i++) {
            assert_int_equal(batches_next(fresh, &opt), expected[i]);
            assert_int_equal(batches_next(l, &opt), expected[i]);
        }
        loader_close(fresh);
    }
    loader_close(l);
}

TEST(positions_of_other_datasets_are_refused) {
    const char *dir = make_dataset_at("d", false);
    struct loader_options opt = batches_options(16);
    struct loader *l = batches_open(dir, &opt);
    struct loader *other = NULL;
    struct error err = {0};
    struct loader_state good = loader_state(l);
    struct loader_state bad = good;
    bad.fingerprint ^= 1;
    assert_status(loader_seek(l, &bad, &err), STATUS_MISMATCH, err);
    assert_non_null(strstr(err.text, "fingerprint"));
    bad = good;
    bad.seed++;
    assert_status(loader_seek(l, &bad, &err), STATUS_MISMATCH, err);
    opt.start = &bad;
    assert_status(loader_open(&other, dir, &opt, &err), STATUS_MISMATCH, err);
    assert_null(other);
    bad = good;
    bad.step = 1000;
    assert_status(loader_seek(l, &bad, &err), STATUS_MISMATCH, err);
    loader_close(l);
}

TEST(close_works_at_any_moment) {
    const char *dir = make_dataset_at("d", true);
    struct rng r;
    rng_init(&r, test_seed(), RNG_INIT, 1, 0);
    for (uint32_t round = 0; round < 40; round += test_step(3)) {
        struct loader_options opt = batches_options(1 + rng_below(&r, 40));
        opt.threads = 1 + rng_below(&r, 4);
        opt.read_depth = 1 + rng_below(&r, 32);
        opt.engine = round % 2 == 0 ? LOADER_ENGINE_AUTO : LOADER_ENGINE_PREAD;
        struct loader *l = batches_open(dir, &opt);
        struct error err = {0};
        struct loader_batch b;
        uint32_t steps = rng_below(&r, 4);
        for (uint32_t i = 0; i < steps; i++) {
            assert_ok(loader_acquire(l, &b, &err), err);
            if (i + 1 < steps || rng_below(&r, 2) == 0) { /* else it is still held at close */
                loader_release(l, &b);
            }
        }
        nanosleep(&(struct timespec){.tv_nsec = (long)rng_below(&r, 3000000)}, NULL);
        loader_close(l);
    }
    loader_close(NULL);
}

TEST(held_batches_are_counted) {
    const char *dir = make_dataset_at("d", false);
    struct loader_options opt = batches_options(10);
    opt.prefetch_batches = 2;
    struct loader *l = batches_open(dir, &opt);
    struct error err = {0};
    struct loader_batch held[4];
    for (int i = 0; i < 3; i++) {
        assert_ok(loader_acquire(l, &held[i], &err), err);
    }
    assert_status(loader_acquire(l, &held[3], &err), STATUS_INVALID, err);
    struct loader_state place = loader_state(l);
    assert_status(loader_seek(l, &place, &err), STATUS_INVALID, err);
    uint64_t first = batches_hash(&held[0], &opt);
    loader_release(l, &held[1]);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    assert_int_equal(batches_hash(&held[0], &opt), first);
    loader_release(l, &held[0]);
    loader_release(l, &held[0]); /* twice does no harm */
    loader_release(l, &held[2]);
    assert_ok(loader_acquire(l, &held[3], &err), err);
    assert_int_equal(held[3].step, 3);
    loader_close(l);
}

TEST(sequential_order_delivers_every_sample_once) {
    const char *dir = make_dataset_at("d", true);
    struct loader_options opt = batches_options(32);
    opt.order = LOADER_ORDER_SEQUENTIAL;
    opt.augment = AUGMENT_EVAL_SQUASH;
    opt.captions = LOADER_CAPTIONS_NONE;
    opt.drop_last = false;
    opt.epochs = 1;
    struct loader *l = batches_open(dir, &opt);
    struct loader_batch b;
    struct error err = {0};
    uint64_t next = 0;
    while (loader_acquire(l, &b, &err) == STATUS_OK) {
        for (uint32_t i = 0; i < b.count; i++, next++) {
            assert_int_equal(b.sample_ids[i], next * STEP);
            assert_true(b.text_ids[i] == LOADER_NO_TEXT);
            assert_int_equal(b.lengths[i], 0);
        }
        loader_release(l, &b);
    }
    assert_int_equal(next, SAMPLES);
    loader_close(l);
}

/* Of two ranks, and of a loader that begins at a later epoch, as a resumed run does. */
TEST(fixed_views_are_the_same_in_every_epoch) {
    const char *dir = make_dataset_at("d", true);
    struct loader_options opt = batches_options(20);
    uint64_t expected[SAMPLES] = {0};
    uint64_t drawn[SAMPLES] = {0};
    opt.views = 2;
    opt.captions = LOADER_CAPTIONS_NONE;
    opt.epochs = 3;
    assert_int_equal(collect_epoch(expected, dir, opt, 0), SAMPLES);
    opt.fixed_views = true;
    for (uint64_t epoch = 0; epoch < opt.epochs; epoch++) {
        uint64_t got[SAMPLES] = {0};
        for (opt.rank = 0, opt.world = 2; opt.rank < opt.world; opt.rank++) {
            (void)collect_epoch(got, dir, opt, epoch);
        }
        assert_memory_equal(got, expected, sizeof got);
    }
    struct loader_batch b;
    struct error err = {0};
    const size_t image_bytes = (size_t)BATCHES_SIDE * BATCHES_SIDE * 3;
    opt.rank = 0;
    opt.world = 1;
    struct loader *l = batches_open(dir, &opt);
    struct loader_state last = loader_state(l);
    last.epoch = 2;
    assert_ok(loader_seek(l, &last, &err), err);
    assert_ok(loader_acquire(l, &b, &err), err);
    uint32_t same = 0;
    for (uint32_t i = 0; i < b.count; i++) {
        assert_int_equal(batches_hash_sample(&b, &opt, i), expected[b.sample_ids[i] / STEP]);
        same += memcmp(b.images + i * image_bytes, b.images2 + i * image_bytes, image_bytes) == 0;
    }
    assert_true(same < b.count / 4); /* narrow images are shown whole */
    loader_release(l, &b);
    loader_close(l);
    opt.fixed_views = false;
    (void)collect_epoch(drawn, dir, opt, 1);
    assert_true(memcmp(drawn, expected, sizeof drawn) != 0);
}

/* Of samples with 0 to 3 captions, the second of two rows has the second one, if there is one, and
 * the first row one of the others. */
TEST(rows_of_a_sample_have_crops_and_captions_of_their_own) {
    const char *dir = make_dataset_at("d", true);
    struct loader_options opt = batches_options(2 * SAMPLES);
    const size_t image_bytes = (size_t)BATCHES_SIDE * BATCHES_SIDE * 3;
    uint64_t second[SAMPLES];
    uint64_t first[SAMPLES];
    uint32_t varied = 0;
    opt.order = LOADER_ORDER_SEQUENTIAL;
    struct loader_options single = opt;
    single.batch_count = SAMPLES;
    opt.positives = 2;
    struct loader *l = batches_open(dir, &opt);
    struct loader *one = batches_open(dir, &single);
    for (int epoch = 0; epoch < 3; epoch++) {
        struct loader_batch b;
        struct loader_batch plain;
        struct error err = {0};
        uint32_t same = 0;
        assert_ok(loader_acquire(l, &b, &err), err);
        assert_ok(loader_acquire(one, &plain, &err), err);
        assert_int_equal(b.epoch, epoch);
        for (uint32_t i = 0; i < SAMPLES; i++) {
            const uint64_t *texts = &b.text_ids[2 * i];
            const uint8_t *images = b.images + 2 * i * image_bytes;
            assert_true(b.sample_ids[2 * i] == i * STEP && b.sample_ids[2 * i + 1] == i * STEP);
            assert_memory_equal(images, plain.images + i * image_bytes, image_bytes);
            same += memcmp(images, images + image_bytes, image_bytes) == 0;
            const uint64_t apart = texts[1] - texts[0];
            assert_true(apart == 0 || apart == 1 || apart == UINT64_MAX);
            assert_true(epoch == 0 || texts[1] == second[i]);
            varied += epoch > 0 && texts[0] != first[i];
            second[i] = texts[1];
            first[i] = texts[0];
        }
        assert_true(same < SAMPLES / 4); /* narrow images are shown whole */
        loader_release(l, &b);
        loader_release(one, &plain);
    }
    assert_true(varied > 0);
    struct error err = {0};
    const struct loader_state place = loader_state(one);
    assert_status(loader_seek(l, &place, &err), STATUS_MISMATCH, err);
    assert_non_null(strstr(err.text, "the loader has the sequential order with 2 rows a sample"));
    loader_close(one);
    loader_close(l);
}

/* Whose caption each sample has in one epoch; LOADER_NO_SAMPLE where it has none. */
static void find_owners(uint64_t owners[SAMPLES], struct loader *l) {
    struct loader_batch b;
    struct error err = {0};
    assert_ok(loader_acquire(l, &b, &err), err);
    assert_int_equal(b.count, SAMPLES);
    for (uint32_t i = 0; i < b.count; i++) {
        uint64_t *owner = &owners[b.sample_ids[i] / STEP];
        *owner = LOADER_NO_SAMPLE;
        for (uint64_t k = 0; k < SAMPLES && b.text_ids[i] != LOADER_NO_TEXT; k++) {
            struct dataset_sample s;
            assert_ok(dataset_sample_at(loader_dataset(l, 0), k, &s, &err), err);
            if (b.text_ids[i] >= s.first_text_id &&
                b.text_ids[i] - s.first_text_id < s.text_count) {
                *owner = s.sample_id;
            }
        }
    }
    loader_release(l, &b);
}

TEST(noisy_pairs_are_the_same_in_every_epoch_on_any_ranks_and_threads) {
    const char *dir = make_dataset_at("d", true);
    uint64_t clean[SAMPLES];
    uint64_t before[SAMPLES];
    uint32_t noisy_count = 0;
    uint32_t fifths = 0;
    for (int fifth = 0; fifth <= 5; fifth += (int)test_step(5)) {
        fifths += (uint32_t)fifth;
        struct loader_options opt = batches_options(SAMPLES);
        uint64_t whole[SAMPLES] = {0};
        uint64_t divided[SAMPLES] = {0};
        uint64_t owners[SAMPLES];
        uint64_t again[SAMPLES];
        opt.pair_noise = fifth / 5.0;
        opt.epochs = 2;
        struct loader *l = batches_open(dir, &opt);
        find_owners(owners, l);
        find_owners(again, l);
        loader_close(l);
        assert_memory_equal(again, owners, sizeof owners);
        for (uint64_t i = 0; i < SAMPLES; i++) {
            assert_true(fifth > 0 || owners[i] == i * STEP || owners[i] == LOADER_NO_SAMPLE);
            assert_true(fifth < 5 || owners[i] != i * STEP);
            clean[i] = fifth == 0 ? owners[i] : clean[i];
            /* A higher rate keeps what a lower one has changed. */
            assert_true(fifth == 0 || before[i] == clean[i] || owners[i] == before[i]);
            noisy_count += owners[i] != clean[i];
        }
        memcpy(before, owners, sizeof before);
        assert_int_equal(collect_epoch(whole, dir, opt, 1), SAMPLES);
        opt.world = 3;
        opt.threads = 1;
        for (opt.rank = 0; opt.rank < 3; opt.rank++) {
            (void)collect_epoch(divided, dir, opt, 1);
        }
        assert_memory_equal(divided, whole, sizeof whole);
    }
    /* Expected: fifths / 5 SAMPLES, less those that have no captions before and after. */
    assert_true(15 * noisy_count > 2 * SAMPLES * fifths && 15 * noisy_count < 4 * SAMPLES * fifths);
}

TEST(positions_of_other_noise_are_refused) {
    const char *dir = make_dataset_at("d", true);
    struct loader_options opt = batches_options(16);
    struct error err = {0};
    opt.pair_noise = 0.4;
    struct loader *noisy = batches_open(dir, &opt);
    const struct loader_state place = loader_state(noisy);
    loader_close(noisy);
    opt.pair_noise = 0.0;
    struct loader *l = batches_open(dir, &opt);
    assert_status(loader_seek(l, &place, &err), STATUS_MISMATCH, err);
    assert_non_null(strstr(err.text, "pairs with noise 0.4, the loader has 0"));
    loader_close(l);
}

TEST(without_a_tokenizer_tokens_are_zero) {
    const char *dir = make_dataset_at("d", false);
    struct loader_options opt = batches_options(50);
    struct loader *l = batches_open(dir, &opt);
    struct loader_info info;
    loader_info(l, &info);
    assert_int_equal(info.vocab_count, 0);
    assert_null(loader_tokenizer(l));
    struct loader_batch b;
    struct error err = {0};
    assert_ok(loader_acquire(l, &b, &err), err);
    uint32_t with_text = 0;
    for (uint32_t i = 0; i < b.count; i++) {
        assert_int_equal(b.lengths[i], 0);
        with_text += b.text_ids[i] != LOADER_NO_TEXT;
    }
    for (uint32_t i = 0; i < b.count * TOKENS; i++) {
        assert_int_equal(b.tokens[i], 0);
    }
    assert_true(with_text > 20 && with_text < 50);
    loader_close(l);
}

TEST(tokenizer_of_the_caller_is_used) {
    const char *dir = make_dataset_at("with", true);
    uint64_t expected;
    uint64_t got;
    struct loader_options opt = batches_options(20);
    hash_steps(&expected, 1, dir, opt);
    size_t size = 0;
    uint8_t *model = test_read_file(test_temp_path("with/tokenizer.model"), &size);
    const char *bare = make_dataset_at("bare", false);
    opt.tokenizer_model = model;
    opt.tokenizer_model_size_bytes = size;
    hash_steps(&got, 1, bare, opt);
    assert_int_equal(got, expected);
    free(model);
}

/* --- damage --- */

static void count_ids(uint32_t *seen,
                      const char *dir,
                      const struct loader_options *opt,
                      uint64_t *replaced,
                      struct loader **keep) {
    struct loader *l = batches_open(dir, opt);
    struct loader_batch b;
    struct error err = {0};
    while (loader_acquire(l, &b, &err) == STATUS_OK) {
        for (uint32_t i = 0; i < b.count; i++) {
            seen[b.sample_ids[i] / STEP]++;
        }
        *replaced += b.replaced_count;
        loader_release(l, &b);
    }
    *keep = l;
}

TEST(damaged_samples_are_replaced_counted_and_listed) {
    const uint64_t damaged[] = {2 * STEP, 4 * STEP, 77 * STEP};
    const char *dir = make_dataset_at("d", true);
    for (size_t i = 0; i < 3; i++) {
        image_dataset_damage(dir, damaged[i]);
    }
    uint64_t hashes[2][10];
    struct loader_options opt = batches_options(20);
    opt.threads = 1;
    hash_steps(hashes[0], 10, dir, opt);
    opt.threads = 4;
    opt.engine = LOADER_ENGINE_PREAD;
    hash_steps(hashes[1], 10, dir, opt);
    assert_memory_equal(hashes[0], hashes[1], sizeof(hashes[0]));

    uint32_t seen[SAMPLES] = {0};
    uint64_t replaced = 0;
    struct loader *l = NULL;
    opt.epochs = 2;
    count_ids(seen, dir, &opt, &replaced, &l);
    assert_int_equal(seen[2] + seen[4] + seen[77], 0);
    assert_int_equal(replaced, 6);
    struct loader_stats stats;
    loader_stats(l, &stats);
    assert_int_equal(stats.corrupt_count, 3);
    assert_int_equal(stats.replaced_count, 6);
    assert_int_equal(stats.samples_count, 2 * SAMPLES);
    struct loader_corrupt row;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(loader_corrupt_at(l, i, &row), STATUS_OK);
        assert_non_null(strstr(row.reason, "hash"));
        sum += row.sample_id;
    }
    assert_int_equal(sum, 83 * STEP);
    assert_int_equal(loader_corrupt_at(l, 3, &row), STATUS_END);
    loader_close(l);
}

TEST(too_much_damage_ends_the_run) {
    const char *dir = make_dataset_at("d", true);
    image_dataset_damage(dir, 10 * STEP);
    image_dataset_damage(dir, 20 * STEP);
    struct loader_options opt = batches_options(20);
    opt.max_corrupt_count = 1;
    struct loader *l = batches_open(dir, &opt);
    struct loader_batch b;
    struct error err = {0};
    enum status s;
    while ((s = loader_acquire(l, &b, &err)) == STATUS_OK) {
        loader_release(l, &b);
    }
    assert_status(s, STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "2 damaged samples, 1 are allowed"));
    assert_int_equal(loader_acquire(l, &b, &err), STATUS_CORRUPT);
    loader_close(l);
}

TEST(lost_shards_are_named) {
    const char *dir = make_dataset_at("d", true);
    const char *shard = test_temp_path("d/images-000001.tar.zst");
    struct loader_options opt = batches_options(20);
    struct loader *l = NULL;
    struct error err = {0};
    assert_int_equal(truncate(shard, 1000), 0);
    assert_true(loader_open(&l, dir, &opt, &err) < STATUS_OK);
    assert_non_null(strstr(err.text, "images-000001"));
    assert_int_equal(unlink(shard), 0);
    assert_status(loader_open(&l, dir, &opt, &err), STATUS_NOTFOUND, err);
    assert_non_null(strstr(err.text, "images-000001"));
    assert_null(l);
}

/* --- engines --- */

struct lines {
    uint32_t count;
    char last[200];
};

static void keep_line(void *cookie, enum log_level level, const char *text) {
    struct lines *lines = cookie;
    (void)level;
    lines->count++;
    snprintf(lines->last, sizeof(lines->last), "%.199s", text);
}

/* From here on the kernel says that it has no io_uring. */
static void forbid_uring(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        test_skip("no seccomp filters here: %s", strerror(errno));
    }
}

TEST(only_auto_falls_back_to_pread_and_logs_it) {
    const char *dir = make_dataset_at("d", false);
    struct lines lines = {0};
    struct log_sink sink = {keep_line, &lines, LOG_LEVEL_INFO};
    struct loader_options opt = batches_options(20);
    opt.log = &sink;
    forbid_uring();
    struct loader *l = batches_open(dir, &opt);
    struct loader_info info;
    loader_info(l, &info);
    assert_string_equal(info.engine, "pread");
    assert_int_equal(lines.count, 1);
    assert_non_null(strstr(lines.last, "io_uring"));
    loader_close(l);
    struct error err = {0};
    opt.engine = LOADER_ENGINE_URING;
    assert_status(loader_open(&l, dir, &opt, &err), STATUS_UNSUPPORTED, err);
    assert_null(l);
    assert_int_equal(lines.count, 1);
}

TEST(stats_are_written_as_line_and_json) {
    const char *dir = make_dataset_at("d", true);
    struct loader_options opt = batches_options(20);
    struct loader *l = batches_open(dir, &opt);
    for (int i = 0; i < 3; i++) {
        batches_next(l, &opt);
    }
    struct loader_stats stats;
    loader_stats(l, &stats);
    assert_int_equal(stats.samples_count, 60);
    assert_int_equal(stats.deliver.items_count, 3);
    assert_true(stats.read.items_count >= 60 && stats.decode.items_count >= 60);
    assert_true(stats.first_batch_ns > 0 && stats.elapsed_ns >= stats.first_batch_ns);
    struct json_writer w;
    struct error err = {0};
    json_writer_init(&w, 0);
    loader_stages_json(&w, NULL, &stats);
    assert_ok(json_writer_status(&w, &err), err);
    assert_true(w.out.size_bytes > 200);
    json_writer_fini(&w);
    loader_close(l);
}
