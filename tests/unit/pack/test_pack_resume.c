/*
 * Whatever ends a run, --resume ends in the bytes of a run that nothing disturbed: the shards, the
 * indexes, the list of rejects and dataset.json.
 */
#include <stdio.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "pack/journal/journal_internal.h"
#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/pack_case.h"
#include "tests/support/test.h"

enum { STEP = FILE_FAULT_STEP };

static const char *tars[2];

static void make_tars(void) {
    tars[0] = pack_case_tar("a.tar", &(struct pack_case_tar){.rows = 37, .bad_step = 6});
    tars[1] =
        pack_case_tar("b.tar", &(struct pack_case_tar){.rows = 31, .first = 100, .bad_step = 5});
}

static struct file_system *memory(void) {
    struct error err = {0};
    struct file_system *fs = NULL;
    assert_ok(file_memory_create(&fs, &err), err);
    return fs;
}

static enum status
run(const struct file_system *fs, bool resume, struct pack_summary *sum, struct error *err) {
    struct pack_options o = pack_case_options(fs, "out", tars, 2);
    o.resume = resume;
    memset(err, 0, sizeof(*err));
    return pack_run(&o, sum, err);
}

/* The bytes of a run that nothing disturbs, made once. */
static struct file_system *undisturbed(struct pack_summary *sum) {
    struct error err = {0};
    struct file_system *fs = memory();
    assert_ok(run(fs, false, sum, &err), err);
    assert_true(pack_case_verify(fs, "out") == sum->fingerprint);
    assert_false(pack_case_exists(fs, "out", PACK_JOURNAL_NAME));
    return fs;
}

static uint64_t sweep(enum file_fault fault, bool power_cut) {
    struct pack_summary want, sum;
    struct error err = {0};
    make_tars();
    struct file_system *good = undisturbed(&want);
    uint64_t calls = UINT64_MAX;
    uint64_t resumed = 0;
    for (uint64_t nth = 0; nth < calls; nth += STEP) {
        struct file_system *fs = memory();
        struct file_system *faulty = NULL;
        assert_ok(file_fault_create(&faulty, fs, nth, fault, &err), err);
        enum status s = run(faulty, false, &sum, &err);
        if (nth >= file_fault_count(faulty)) {
            calls = nth;
            assert_int_equal(s, STATUS_OK);
        } else {
            assert_true(s != STATUS_OK && err.text[0] != '\0');
        }
        if (power_cut) {
            file_memory_crash(fs);
        }
        (void)pack_case_verify(fs, "out");
        assert_ok(run(fs, true, &sum, &err), err);
        assert_true(sum.samples == want.samples && sum.rejected == want.rejected);
        assert_true(sum.was_finished ||
                    memcmp(sum.rejected_by, want.rejected_by, sizeof(sum.rejected_by)) == 0);
        assert_true(sum.texts == want.texts && sum.bytes == want.bytes && sum.rows == want.rows);
        resumed += sum.resumed > 0;
        assert_true(pack_case_equal(good, "out", fs, "out"));
        file_fault_destroy(faulty);
        file_memory_destroy(fs);
    }
    assert_true(resumed > calls / STEP / 2);
    file_memory_destroy(good);
    return calls;
}

TEST(a_kill_at_any_call_and_resuming_gives_the_same_bytes) {
    assert_true(sweep(FILE_FAULT_DEAD, false) >= 200);
}

TEST(a_power_failure_at_any_call_and_resuming_gives_the_same_bytes) {
    sweep(FILE_FAULT_DEAD, true);
}

TEST(a_failure_of_any_call_and_resuming_gives_the_same_bytes) {
    sweep(FILE_FAULT_ERROR, false);
}

TEST(half_a_write_at_any_call_and_resuming_gives_the_same_bytes) {
    sweep(FILE_FAULT_SHORT_WRITE, true);
}

TEST(a_failing_read_at_any_call_and_resuming_gives_the_same_bytes) {
    struct pack_summary want, sum;
    struct error err = {0};
    make_tars();
    struct file_system *good = undisturbed(&want);
    uint64_t calls = UINT64_MAX;
    for (uint64_t nth = 0; nth < calls; nth += STEP) {
        struct file_system *fs = memory();
        struct file_system *faulty = NULL;
        assert_ok(file_fault_create(&faulty, fs, nth, FILE_FAULT_READ, &err), err);
        enum status s = run(faulty, false, &sum, &err);
        assert_true(s != STATUS_OK || nth >= file_fault_count(faulty) || sum.is_dataset);
        calls = nth >= file_fault_count(faulty) ? nth : calls;
        assert_ok(run(fs, true, &sum, &err), err);
        assert_true(pack_case_equal(good, "out", fs, "out"));
        file_fault_destroy(faulty);
        file_memory_destroy(fs);
    }
    file_memory_destroy(good);
}

/* The run that resumes dies as well, at every call, and the next one ends it. */
TEST(a_kill_while_resuming_gives_the_same_bytes) {
    struct pack_summary want, sum;
    struct error err = {0};
    make_tars();
    struct file_system *good = undisturbed(&want);
    struct file_system *counting = NULL;
    struct file_system *base = memory();
    assert_ok(file_fault_create(&counting, base, UINT64_MAX, FILE_FAULT_DEAD, &err), err);
    assert_ok(run(counting, false, &sum, &err), err);
    uint64_t calls = file_fault_count(counting);
    file_fault_destroy(counting);
    file_memory_destroy(base);
    for (uint64_t first = 2; first < calls; first += calls / 3) {
        uint64_t second_calls = UINT64_MAX;
        for (uint64_t second = 0; second < second_calls; second += STEP) {
            struct file_system *fs = memory();
            struct file_system *faulty = NULL;
            assert_ok(file_fault_create(&faulty, fs, first, FILE_FAULT_DEAD, &err), err);
            assert_true(run(faulty, false, &sum, &err) != STATUS_OK);
            file_fault_destroy(faulty);
            assert_ok(file_fault_create(&faulty, fs, second, FILE_FAULT_DEAD, &err), err);
            (void)run(faulty, true, &sum, &err);
            second_calls = second >= file_fault_count(faulty) ? second : second_calls;
            file_memory_crash(fs);
            assert_ok(run(fs, true, &sum, &err), err);
            assert_true(pack_case_equal(good, "out", fs, "out"));
            file_fault_destroy(faulty);
            file_memory_destroy(fs);
        }
    }
    file_memory_destroy(good);
}

/* Any call of the run that resumes fails, of those that write and those that look. */
TEST(a_failure_while_resuming_is_reported_and_gives_the_same_bytes) {
    static const enum file_fault faults[] = {FILE_FAULT_ERROR, FILE_FAULT_READ};
    struct pack_summary want, sum;
    struct error err = {0};
    make_tars();
    struct file_system *good = undisturbed(&want);
    for (int kind = 0; kind < 2; kind++) {
        uint64_t calls = UINT64_MAX;
        for (uint64_t nth = 0; nth < calls; nth += STEP) {
            struct file_system *fs = memory();
            struct file_system *faulty = NULL;
            assert_ok(file_fault_create(&faulty, fs, 150, FILE_FAULT_DEAD, &err), err);
            assert_true(run(faulty, false, &sum, &err) != STATUS_OK);
            file_fault_destroy(faulty);
            assert_ok(file_fault_create(&faulty, fs, nth, faults[kind], &err), err);
            enum status s = run(faulty, true, &sum, &err);
            calls = nth >= file_fault_count(faulty) ? nth : calls;
            assert_true(s == STATUS_OK ? kind == 1 || nth == calls : err.text[0] != '\0');
            (void)pack_case_verify(fs, "out");
            assert_ok(run(fs, true, &sum, &err), err);
            assert_true(pack_case_equal(good, "out", fs, "out"));
            file_fault_destroy(faulty);
            file_memory_destroy(fs);
        }
        assert_true(calls > 20);
    }
    file_memory_destroy(good);
}

struct stopper {
    uint64_t after;
    uint64_t seen;
};

static void count_rows(void *cookie, const struct pack_progress *p) {
    struct stopper *s = cookie;
    __atomic_store_n(&s->seen, p->rows, __ATOMIC_RELAXED);
}

static bool enough(void *cookie) {
    struct stopper *s = cookie;
    return __atomic_load_n(&s->seen, __ATOMIC_RELAXED) >= s->after;
}

TEST(stopping_anywhere_and_resuming_gives_the_same_bytes) {
    struct pack_summary want, sum;
    struct error err = {0};
    make_tars();
    struct file_system *good = undisturbed(&want);
    for (uint64_t after = 0; after < want.rows; after += test_step(7)) {
        struct file_system *fs = memory();
        struct stopper stopper = {.after = after};
        struct pack_options o = pack_case_options(fs, "out", tars, 2);
        o.interrupted = enough;
        o.progress = count_rows;
        o.cookie = &stopper;
        memset(&err, 0, sizeof(err));
        assert_status(pack_run(&o, &sum, &err), STATUS_INTERRUPTED, err);
        assert_int_equal(sum.is_dataset, after > 0);
        assert_int_equal(sum.has_journal, sum.is_dataset);
        if (sum.is_dataset) {
            assert_true(pack_case_verify(fs, "out") == sum.fingerprint);
        }
        assert_ok(run(fs, true, &sum, &err), err);
        assert_true(memcmp(&sum.ignored, &want.ignored, sizeof(sum.ignored)) == 0 &&
                    sum.rows == want.rows);
        assert_true(pack_case_equal(good, "out", fs, "out"));
        file_memory_destroy(fs);
    }
    file_memory_destroy(good);
}

TEST(resuming_where_nothing_is_begins_and_where_all_is_does_nothing) {
    struct pack_summary want, sum;
    struct error err = {0};
    make_tars();
    struct file_system *good = undisturbed(&want);
    struct file_system *fs = memory();
    assert_ok(run(fs, true, &sum, &err), err);
    assert_true(!sum.was_finished && pack_case_equal(good, "out", fs, "out"));
    assert_ok(run(fs, true, &sum, &err), err);
    assert_true(sum.was_finished && sum.samples == want.samples && sum.texts == want.texts &&
                sum.rejected == want.rejected && sum.fingerprint == want.fingerprint);
    assert_true(pack_case_equal(good, "out", fs, "out"));
    assert_status(run(fs, false, &sum, &err), STATUS_EXISTS, err);
    file_memory_destroy(fs);
    file_memory_destroy(good);
}

/* A run that ended because of too many bad rows is resumed where more are allowed. */
TEST(too_many_bad_rows_can_be_allowed_afterwards) {
    struct pack_summary want, sum;
    struct error err = {0};
    make_tars();
    struct file_system *good = undisturbed(&want);
    for (int how = 0; how < 2; how++) {
        struct file_system *fs = memory();
        struct pack_options o = pack_case_options(fs, "out", tars, 2);
        o.max_bad = (struct pack_max_bad){.rows = 5, .percent = -1};
        o.on_bad = how == 0 ? PACK_ON_BAD_SKIP : PACK_ON_BAD_FAIL;
        memset(&err, 0, sizeof(err));
        assert_status(pack_run(&o, &sum, &err), STATUS_CORRUPT, err);
        assert_int_equal(sum.rejected, how == 0 ? 6 : 1);
        assert_true(sum.is_dataset && sum.has_journal);
        o.resume = true;
        memset(&err, 0, sizeof(err));
        assert_status(pack_run(&o, &sum, &err), STATUS_CORRUPT, err);
        assert_int_equal(sum.rejected, how == 0 ? 6 : 1);
        assert_ok(run(fs, true, &sum, &err), err);
        assert_true(pack_case_equal(good, "out", fs, "out"));
        file_memory_destroy(fs);
    }
    file_memory_destroy(good);
}

static struct file_system *died_half_way(void) {
    struct error err = {0};
    struct pack_summary sum;
    struct file_system *fs = memory();
    struct file_system *faulty = NULL;
    assert_ok(file_fault_create(&faulty, fs, 100, FILE_FAULT_DEAD, &err), err);
    assert_true(run(faulty, false, &sum, &err) != STATUS_OK);
    file_fault_destroy(faulty);
    return fs;
}

static void
refused(const struct pack_options *o, enum status want, const char *word, const char *word2) {
    struct pack_summary sum;
    struct error err = {0};
    assert_status(pack_run(o, &sum, &err), want, err);
    if (!strstr(err.text, word) || !strstr(err.text, word2)) {
        fail_msg("'%s' and '%s' are not both in: %s", word, word2, err.text);
    }
}

TEST(other_options_are_refused_and_named) {
    make_tars();
    struct file_system *fs = died_half_way();
    struct file_system *before = memory();
    pack_case_copy(fs, "out", before, "out");
    const struct pack_options good = pack_case_options(fs, "out", tars, 2);
    struct pack_options o = good;
    o.resume = true;
    o.shard_samples = 5;
    refused(&o, STATUS_MISMATCH, "--shard-samples was 4, is 5", "");
    o = good;
    o.resume = true;
    o.resize = (struct pack_resize){PACK_RESIZE_SHORT, 16, 0};
    refused(&o, STATUS_MISMATCH, "--resize was none, is short:16", "");
    o = good;
    o.resume = true;
    o.container = SHARD_CONTAINER_TAR;
    refused(&o, STATUS_MISMATCH, "--container was tar.zst, is tar", "");
    o = good;
    o.resume = true;
    o.filter.min_side_px = 3;
    refused(&o, STATUS_MISMATCH, "--min-side was not given, is 3", "");
    o = good;
    o.resume = true;
    o.created_by = "ccpack 9";
    refused(&o, STATUS_MISMATCH, "the program was ccpack", "is ccpack 9");
    const char *turned[] = {tars[1], tars[0]};
    o = pack_case_options(fs, "out", turned, 2);
    o.resume = true;
    refused(&o, STATUS_MISMATCH, "source 1 was ", "a.tar, is ");
    o = pack_case_options(fs, "out", tars, 1);
    o.resume = true;
    refused(&o, STATUS_MISMATCH, "source 2 was ", "b.tar, is not given");
    o = good;
    o.resume = true;
    o.append = true;
    refused(&o, STATUS_NOTFOUND, "no dataset to append to", "--resume alone");
    o = good;
    refused(&o, STATUS_EXISTS, "an unfinished run", "--resume");
    pack_case_tar("b.tar", &(struct pack_case_tar){.rows = 32, .first = 100, .bad_step = 5});
    o = good;
    o.resume = true;
    refused(&o, STATUS_MISMATCH, "b.tar was of ", " bytes, is of ");
    assert_true(pack_case_equal(fs, "out", before, "out"));
    file_memory_destroy(fs);
    file_memory_destroy(before);
}

TEST(a_finished_dataset_of_other_options_is_refused) {
    struct pack_summary sum;
    make_tars();
    struct file_system *fs = undisturbed(&sum);
    struct pack_options o = pack_case_options(fs, "out", tars, 2);
    o.resume = true;
    o.level = 4;
    refused(&o, STATUS_MISMATCH, "--zstd-level was 3, is 4", "out");
    o.level = 3;
    o.dedup = PACK_DEDUP_EXACT;
    refused(&o, STATUS_MISMATCH, "--dedup was not given, is exact", "out");
    o = pack_case_options(fs, "out", tars + 1, 1);
    o.resume = true;
    refused(&o, STATUS_MISMATCH, "from 2 sources, not from these 1", "b.tar");
    file_memory_destroy(fs);
}

/* Stops after `rows` rows of `sources`, with a finished shard. */
static struct file_system *stopped(const char *const *sources, size_t count, uint64_t rows) {
    struct error err = {0};
    struct pack_summary sum;
    struct stopper stopper = {.after = rows};
    struct file_system *fs = memory();
    struct pack_options o = pack_case_options(fs, "out", sources, count);
    o.interrupted = enough;
    o.progress = count_rows;
    o.cookie = &stopper;
    assert_status(pack_run(&o, &sum, &err), STATUS_INTERRUPTED, err);
    assert_true(sum.has_journal);
    return fs;
}

/* Resuming with other content under the same name and size is refused and changes nothing. */
static void refuses_another(const struct file_system *fs,
                            const char *const *sources,
                            size_t count,
                            const char *word) {
    struct file_system *before = memory();
    pack_case_copy(fs, "out", before, "out");
    struct pack_options o = pack_case_options(fs, "out", sources, count);
    o.resume = true;
    refused(&o, STATUS_MISMATCH, word, "is not the source that was packed");
    assert_true(pack_case_equal(fs, "out", before, "out"));
    file_memory_destroy(before);
}

static const char *write_table(const char *name, int rows, int swapped) {
    char text[8192];
    size_t at = 0;
    for (int i = 0; i < rows; i++) {
        int k = i == swapped ? swapped + 1 : i == swapped + 1 ? swapped : i;
        at += (size_t)snprintf(text + at, sizeof(text) - at, "caption %03d\t%03d.jpg\n", k, k);
    }
    const char *path = test_temp_path("%s", name);
    test_write_file(path, text, at);
    return path;
}

TEST(a_reordered_table_of_equal_size_is_refused) {
    enum { ROWS = 30 };
    for (int i = 0; i < ROWS; i++) {
        struct byte_buffer jpeg = {0};
        pack_case_jpeg(&jpeg, i, 16, 16);
        test_write_file(test_temp_path("%03d.jpg", i), jpeg.data, jpeg.size_bytes);
        byte_buffer_fini(&jpeg);
    }
    const char *table[] = {write_table("t.tsv", ROWS, -2)};
    struct file_system *good = memory();
    struct pack_summary sum;
    struct error err = {0};
    struct pack_options o = pack_case_options(good, "out", table, 1);
    assert_ok(pack_run(&o, &sum, &err), err);
    struct file_system *fs = stopped(table, 1, 12);
    write_table("t.tsv", ROWS, 2);
    refuses_another(fs, table, 1, "rows, up to byte ");
    write_table("t.tsv", ROWS, -2);
    o = pack_case_options(fs, "out", table, 1);
    o.resume = true;
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_true(pack_case_equal(good, "out", fs, "out"));
    file_memory_destroy(fs);
    file_memory_destroy(good);
}

/* Of the same size and under the same name: in the source at hand, and in one that is not read
 * again. A finished dataset is not one of other sources either. */
TEST(another_tar_of_equal_size_is_refused) {
    struct pack_summary sum;
    make_tars();
    struct file_system *whole = undisturbed(&sum);
    struct file_system *in_first = stopped(tars, 2, 20);
    struct file_system *in_second = stopped(tars, 2, 50);
    pack_case_tar("b.tar", &(struct pack_case_tar){.rows = 31, .first = 200, .bad_step = 5});
    refuses_another(in_second, tars, 2, "b.tar");
    make_tars();
    pack_case_tar("a.tar", &(struct pack_case_tar){.rows = 37, .first = 1, .bad_step = 6});
    refuses_another(in_first, tars, 2, "a.tar");
    refuses_another(in_second, tars, 2, "a.tar");
    struct pack_options o = pack_case_options(whole, "out", tars, 2);
    o.resume = true;
    refused(&o, STATUS_MISMATCH, "the dataset is complete, and was not made from", "a.tar");
    file_memory_destroy(in_first);
    file_memory_destroy(in_second);
    file_memory_destroy(whole);
}

TEST(a_damaged_journal_is_refused) {
    struct error err = {0};
    make_tars();
    struct file_system *fs = died_half_way();
    struct byte_buffer text;
    assert_ok(file_read_all(fs, &text, "out/" PACK_JOURNAL_NAME, 1 << 20, &err), err);
    struct pack_options o = pack_case_options(fs, "out", tars, 2);
    o.resume = true;
    size_t line = 0;
    size_t lines = 0;
    for (size_t i = 0; i < text.size_bytes; i++) {
        lines += text.data[i] == '\n';
    }
    assert_true(lines > 4);
    for (size_t i = 0; line + 2 < lines; i += 7) { /* not the last two: that would be a torn end */
        for (size_t k = i < 7 ? 0 : i - 7; k < i; k++) {
            line += text.data[k] == '\n';
        }
        text.data[i] ^= 4;
        assert_ok(file_write_atomic(fs, "out/" PACK_JOURNAL_NAME, text.data, text.size_bytes, &err),
                  err);
        text.data[i] ^= 4;
        struct pack_summary sum;
        memset(&err, 0, sizeof(err));
        assert_status(pack_run(&o, &sum, &err), STATUS_CORRUPT, err);
    }
    byte_buffer_fini(&text);
    file_memory_destroy(fs);
}

TEST(a_journal_of_an_earlier_version_is_refused) {
    static const char head[] = "{\"journal\":\"pack\",\"version\":1,\"container\":\"tar.zst\"}";
    struct error err = {0};
    struct pack_summary sum;
    struct byte_buffer text = {0};
    make_tars();
    struct file_system *fs = died_half_way();
    assert_ok(pack_journal_wrap(&text, (const uint8_t *)head, sizeof(head) - 1, &err), err);
    assert_ok(file_write_atomic(fs, "out/" PACK_JOURNAL_NAME, text.data, text.size_bytes, &err),
              err);
    struct pack_options o = pack_case_options(fs, "out", tars, 2);
    o.resume = true;
    refused(&o, STATUS_VERSION, "version 1", "use --overwrite to restart it");
    o.resume = false;
    o.overwrite = true;
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_true(pack_case_verify(fs, "out") == sum.fingerprint);
    byte_buffer_fini(&text);
    file_memory_destroy(fs);
}

TEST(a_missing_shard_is_named) {
    struct error err = {0};
    make_tars();
    struct file_system *fs = died_half_way();
    struct pack_options o = pack_case_options(fs, "out", tars, 2);
    o.resume = true;
    assert_ok(file_write_atomic(fs, "out/shard-000001.tar.zst", "short", 5, &err), err);
    refused(&o, STATUS_CORRUPT, "shard-000001.tar.zst: has 5 bytes", "cannot be resumed");
    assert_ok(fs->remove(fs->context, "out/shard-000001.tar.zst", &err), err);
    refused(&o, STATUS_NOTFOUND, "shard-000001.tar.zst", "");
    file_memory_destroy(fs);
}

/* Nothing that is not the packer's goes, and a tar of a shard's name is not taken for one. */
TEST(tars_of_other_programs_are_kept) {
    struct error err = {0};
    struct pack_summary sum;
    make_tars();
    struct file_system *fs = memory();
    struct pack_options o = pack_case_options(fs, "out", tars, 2);
    assert_ok(fs->make_directory(fs->context, "out", &err), err);
    assert_ok(file_write_atomic(fs, "out/shard-000001.tar", "mine", 4, &err), err);
    o.overwrite = true;
    o.container = SHARD_CONTAINER_TAR;
    refused(&o, STATUS_EXISTS, "shard-000001.tar", "no dataset made by ccpack");
    o.container = SHARD_CONTAINER_TAR_ZSTD;
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_true(pack_case_exists(fs, "out", "shard-000001.tar"));
    assert_ok(fs->remove(fs->context, "out/shard-000001.tar", &err), err);
    o.container = SHARD_CONTAINER_TAR;
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_true(pack_case_exists(fs, "out", "shard-000001.tar"));
    assert_false(pack_case_exists(fs, "out", "shard-000001.tar.zst"));
    o.container = SHARD_CONTAINER_TAR_ZSTD; /* now it is the packer's, and goes */
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_false(pack_case_exists(fs, "out", "shard-000001.tar"));
    file_memory_destroy(fs);
}

/* The other container, dying now and then. */
TEST(plain_tars_resume_to_the_same_bytes) {
    struct pack_summary sum;
    struct error err = {0};
    make_tars();
    struct file_system *good = memory();
    struct pack_options o = pack_case_options(good, "out", tars, 2);
    o.container = SHARD_CONTAINER_TAR;
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_true(pack_case_verify(good, "out") == sum.fingerprint);
    uint64_t calls = UINT64_MAX;
    for (uint64_t nth = 0; nth < calls; nth += 7) {
        struct file_system *fs = memory();
        struct file_system *faulty = NULL;
        assert_ok(file_fault_create(&faulty, fs, nth, FILE_FAULT_DEAD, &err), err);
        o.fs = faulty;
        o.resume = false;
        (void)pack_run(&o, &sum, NULL);
        calls = nth >= file_fault_count(faulty) ? nth : calls;
        file_memory_crash(fs);
        o.fs = fs;
        o.resume = true;
        assert_ok(pack_run(&o, &sum, &err), err);
        assert_true(pack_case_equal(good, "out", fs, "out"));
        file_fault_destroy(faulty);
        file_memory_destroy(fs);
    }
    file_memory_destroy(good);
}
