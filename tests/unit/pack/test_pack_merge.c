/*
 * Parts and their merge: the ids and the fingerprint of one run, whatever N is and whoever dies.
 */
#include "pack/merge/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/pack_case.h"
#include "tests/support/test.h"

enum { MAX_PARTS = 12 };

static const char *tars[3];
static char part_names[MAX_PARTS][16];
static const char *parts[MAX_PARTS];

static void make_tars(void) {
    tars[0] = pack_case_tar("a.tar", &(struct pack_case_tar){.rows = 11, .bad_step = 4});
    tars[1] = pack_case_tar("b.tar", &(struct pack_case_tar){.rows = 1, .first = 50});
    tars[2] =
        pack_case_tar("c.tar", &(struct pack_case_tar){.rows = 14, .first = 100, .bad_step = 5});
    for (int i = 0; i < MAX_PARTS; i++) {
        snprintf(part_names[i], sizeof(part_names[i]), "part-%d", i);
        parts[i] = part_names[i];
    }
}

static struct file_system *memory(void) {
    struct error err = {0};
    struct file_system *fs = NULL;
    assert_ok(file_memory_create(&fs, &err), err);
    return fs;
}

static void pack_part(const struct file_system *fs, uint32_t number, uint32_t count) {
    struct pack_options o = pack_case_options(fs, parts[number - 1], tars, 3);
    struct pack_summary sum;
    struct error err = {0};
    o.part = (struct pack_part){number, count};
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_true(sum.is_dataset);
}

static void pack_parts(const struct file_system *fs, uint32_t count) {
    for (uint32_t i = 1; i <= count; i++) {
        pack_part(fs, i, count);
    }
}

static enum status merge(const struct file_system *fs,
                         const char *const *what,
                         size_t count,
                         bool overwrite,
                         struct pack_summary *sum,
                         struct error *err) {
    struct pack_merge_options o;
    pack_merge_options_default(&o);
    o.fs = fs;
    o.directory = "whole";
    o.parts = what;
    o.part_count = count;
    o.overwrite = overwrite;
    memset(err, 0, sizeof(*err));
    return pack_merge(&o, sum, err);
}

static struct file_system *one_run(struct pack_summary *sum) {
    struct error err = {0};
    struct file_system *fs = memory();
    struct pack_options o = pack_case_options(fs, "whole", tars, 3);
    assert_ok(pack_run(&o, sum, &err), err);
    return fs;
}

static void same_rejects(const struct file_system *a, const struct file_system *b) {
    struct error err = {0};
    struct byte_buffer x, y;
    assert_ok(file_read_all(a, &x, "whole/" PACK_REJECTS_NAME, 1 << 20, &err), err);
    assert_ok(file_read_all(b, &y, "whole/" PACK_REJECTS_NAME, 1 << 20, &err), err);
    assert_int_equal(x.size_bytes, y.size_bytes);
    assert_memory_equal(x.data, y.data, x.size_bytes);
    byte_buffer_fini(&x);
    byte_buffer_fini(&y);
}

/* Everything but the shards' boundaries is as in one run. */
static void same_dataset(const struct file_system *a, const struct file_system *b) {
    struct error err = {0};
    struct dataset *x = NULL;
    struct dataset *y = NULL;
    assert_ok(dataset_open(&x, "whole", a, &err), err);
    assert_ok(dataset_open(&y, "whole", b, &err), err);
    const struct manifest *m = dataset_manifest(x);
    const struct manifest *n = dataset_manifest(y);
    assert_true(m->fingerprint == n->fingerprint && m->id_space == n->id_space);
    assert_true(m->samples == n->samples && m->texts == n->texts);
    assert_int_equal(m->source_count, n->source_count);
    for (size_t i = 0; i < m->source_count; i++) {
        assert_string_equal(m->sources[i].name, n->sources[i].name);
        assert_int_equal(m->sources[i].rows, n->sources[i].rows);
    }
    assert_int_equal(m->option_count, n->option_count);
    for (size_t i = 0; i < m->option_count; i++) {
        assert_string_equal(m->options[i].name, n->options[i].name);
        assert_string_equal(m->options[i].value, n->options[i].value);
    }
    assert_int_equal(m->generation_count, 1);
    dataset_close(x);
    dataset_close(y);
    same_rejects(a, b);
}

TEST(any_number_of_parts_equals_one_run) {
    struct pack_summary want, sum;
    struct error err = {0};
    make_tars();
    struct file_system *whole = one_run(&want);
    static const uint32_t counts[] = {1, 2, 3, 7, 12};
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        struct file_system *fs = memory();
        pack_parts(fs, counts[k]);
        const char *turned[MAX_PARTS]; /* any order will do */
        for (uint32_t i = 0; i < counts[k]; i++) {
            turned[i] = parts[(i * 5 + 3) % counts[k]];
        }
        assert_ok(merge(fs, turned, counts[k], false, &sum, &err), err);
        assert_true(sum.fingerprint == want.fingerprint && sum.rows == want.rows);
        assert_true(sum.samples == want.samples && sum.rejected == want.rejected);
        assert_true(pack_case_verify(fs, "whole") == want.fingerprint);
        same_dataset(whole, fs);
        assert_false(pack_case_exists(fs, "whole", PACK_JOURNAL_NAME));
        file_memory_destroy(fs);
    }
    file_memory_destroy(whole);
}

TEST(more_parts_than_rows_leave_some_empty) {
    struct pack_summary sum;
    struct error err = {0};
    struct file_system *fs = memory();
    make_tars();
    tars[0] = tars[1];
    tars[2] = tars[1];
    pack_parts(fs, 8); /* three rows */
    struct dataset *d = NULL;
    assert_ok(dataset_open(&d, parts[0], fs, &err), err);
    assert_int_equal(dataset_sample_count(d), 0);
    dataset_close(d);
    assert_ok(merge(fs, parts, 8, false, &sum, &err), err);
    assert_int_equal(sum.samples, 3);
    assert_ok(dataset_open(&d, "whole", fs, &err), err);
    assert_int_equal(dataset_id_space(d), 3);
    dataset_close(d);
    file_memory_destroy(fs);
}

/* A part that dies at any call and is resumed has the bytes of one that nothing disturbs. */
TEST(a_part_resumes_to_the_same_bytes) {
    struct error err = {0};
    struct pack_summary sum;
    make_tars();
    struct file_system *good = memory();
    pack_part(good, 2, 3);
    uint64_t calls = UINT64_MAX;
    for (uint64_t nth = 0; nth < calls; nth++) {
        struct file_system *fs = memory();
        struct file_system *faulty = NULL;
        struct pack_options o = pack_case_options(NULL, parts[1], tars, 3);
        o.part = (struct pack_part){2, 3};
        assert_ok(file_fault_create(&faulty, fs, nth, FILE_FAULT_DEAD, &err), err);
        o.fs = faulty;
        (void)pack_run(&o, &sum, NULL);
        calls = nth >= file_fault_count(faulty) ? nth : calls;
        file_memory_crash(fs);
        o.fs = fs;
        o.resume = true;
        memset(&err, 0, sizeof(err));
        assert_ok(pack_run(&o, &sum, &err), err);
        assert_true(pack_case_equal(good, parts[1], fs, parts[1]));
        file_fault_destroy(faulty);
        file_memory_destroy(fs);
    }
    file_memory_destroy(good);
}

static enum status no_link(void *context, const char *old, const char *path, struct error *err) {
    (void)context;
    return error_set(err, STATUS_UNSUPPORTED, "%s: no second name for %s here", path, old);
}

/* At every call, with links and with copies: nothing half-written, and the next merge ends it. */
static void sweep(enum file_fault fault, bool links, bool power_cut) {
    struct error err = {0};
    struct pack_summary want, sum;
    make_tars();
    struct file_system *base = memory();
    pack_parts(base, 3);
    struct file_system *good = memory();
    for (int i = 0; i < 3; i++) {
        pack_case_copy(base, parts[i], good, parts[i]);
    }
    assert_ok(merge(good, parts, 3, false, &want, &err), err);
    uint64_t calls = UINT64_MAX;
    for (uint64_t nth = 0; nth < calls; nth++) {
        struct file_system *fs = memory();
        struct file_system *faulty = NULL;
        for (int i = 0; i < 3; i++) {
            pack_case_copy(base, parts[i], fs, parts[i]);
        }
        struct file_system inner = *fs;
        inner.hard_link = links ? inner.hard_link : no_link;
        assert_ok(file_fault_create(&faulty, &inner, nth, fault, &err), err);
        enum status s = merge(faulty, parts, 3, false, &sum, &err);
        if (nth >= file_fault_count(faulty)) {
            calls = nth;
            assert_int_equal(s, STATUS_OK);
        } else if (s == STATUS_OK && fault != FILE_FAULT_READ) { /* an index is read elsewhere */
            fail_msg("the fault at call %d was not reported", (int)nth);
        }
        if (power_cut) {
            file_memory_crash(fs);
        }
        uint64_t print = pack_case_verify(fs, "whole");
        assert_true(print == 0 || print == want.fingerprint);
        s = merge(&inner, parts, 3, false, &sum, &err);
        if (s == STATUS_EXISTS && !pack_case_exists(fs, "whole", PACK_JOURNAL_NAME)) {
            assert_true(print == want.fingerprint); /* it was done but for the last fsync */
        } else {
            assert_status(s, STATUS_OK, err);
        }
        assert_true(pack_case_equal(good, "whole", fs, "whole"));
        for (int i = 0; i < 3; i++) {
            assert_true(pack_case_equal(base, parts[i], fs, parts[i]));
        }
        file_fault_destroy(faulty);
        file_memory_destroy(fs);
    }
    file_memory_destroy(good);
    file_memory_destroy(base);
}

TEST(a_merge_killed_anywhere_is_resumed) {
    sweep(FILE_FAULT_DEAD, true, false);
    sweep(FILE_FAULT_DEAD, true, true);
}

TEST(a_copying_merge_killed_anywhere_is_resumed) {
    sweep(FILE_FAULT_DEAD, false, false);
    sweep(FILE_FAULT_DEAD, false, true);
}

TEST(a_merge_reports_every_failure) {
    sweep(FILE_FAULT_ERROR, true, false);
    sweep(FILE_FAULT_SHORT_WRITE, false, true);
}

TEST(a_merge_reports_every_failing_read) {
    sweep(FILE_FAULT_READ, true, false);
}

static void refused(const struct file_system *fs,
                    const char *const *what,
                    size_t count,
                    enum status want,
                    const char *word,
                    const char *word2) {
    struct pack_summary sum;
    struct error err = {0};
    assert_status(merge(fs, what, count, false, &sum, &err), want, err);
    if (!strstr(err.text, word) || !strstr(err.text, word2)) {
        fail_msg("'%s' and '%s' are not both in: %s", word, word2, err.text);
    }
    assert_false(pack_case_exists(fs, "whole", MANIFEST_NAME));
}

TEST(parts_that_do_not_belong_together_are_named) {
    struct error err = {0};
    struct pack_summary sum;
    struct file_system *fs = memory();
    make_tars();
    pack_parts(fs, 3);
    refused(fs, parts, 2, STATUS_MISMATCH, "part 3/3 is missing", "2 of 3");
    refused(fs, parts + 1, 2, STATUS_MISMATCH, "part 1/3 is missing", "2 of 3");
    const char *twice[] = {parts[0], parts[1], parts[1]};
    refused(fs, twice, 3, STATUS_MISMATCH, "part-1 and part-1 are both part 2/3", "");
    refused(fs, (const char *const[]){parts[0], "nowhere"}, 2, STATUS_NOTFOUND, "nowhere", "");
    struct pack_options o = pack_case_options(fs, "other", tars, 3);
    assert_ok(pack_run(&o, &sum, &err), err);
    refused(fs, (const char *const[]){"other"}, 1, STATUS_MISMATCH, "other: is no part", "");
    o.directory = "third";
    o.part = (struct pack_part){3, 3};
    o.shard_samples = 5;
    assert_ok(pack_run(&o, &sum, &err), err);
    refused(fs, (const char *const[]){parts[0], parts[1], "third"}, 3, STATUS_MISMATCH,
            "shard-samples is 4 and 5", "part-0 and third");
    o.overwrite = true;
    o.shard_samples = 4;
    o.source_count = 2;
    assert_ok(pack_run(&o, &sum, &err), err);
    refused(fs, (const char *const[]){parts[0], parts[1], "third"}, 3, STATUS_MISMATCH,
            "a source is c.tar and not given", "third");
    o.source_count = 3;
    o.part = (struct pack_part){3, 4};
    assert_ok(pack_run(&o, &sum, &err), err);
    refused(fs, (const char *const[]){parts[0], parts[1], "third"}, 3, STATUS_MISMATCH,
            "of different runs", "third part 3/4");
    o.part = (struct pack_part){3, 3};
    o.on_bad = PACK_ON_BAD_FAIL;
    memset(&err, 0, sizeof(err));
    assert_status(pack_run(&o, &sum, &err), STATUS_CORRUPT, err);
    refused(fs, (const char *const[]){parts[0], parts[1], "third"}, 3, STATUS_CORRUPT,
            "third: part 3/3 is partial", "--resume");
    assert_ok(file_write_atomic(fs, "part-0/shard-000000.tar.zst", "short", 5, &err), err);
    refused(fs, parts, 3, STATUS_CORRUPT, "part-0/shard-000000.tar.zst: has 5 bytes", "");
    file_memory_destroy(fs);
}

/* Sources of one name and size, but with other rows. */
TEST(parts_of_other_content_are_refused) {
    struct error err = {0};
    struct pack_summary sum;
    struct file_system *fs = memory();
    make_tars();
    pack_part(fs, 1, 2);
    struct pack_case_tar other = {.rows = 11, .first = 50, .bad_step = 4};
    pack_case_tar("a.tar", &other);
    pack_part(fs, 2, 2);
    assert_status(merge(fs, parts, 2, false, &sum, &err), STATUS_MISMATCH, err);
    assert_non_null(strstr(err.text, "source 'a.tar' had other rows"));
    file_memory_destroy(fs);
}

TEST(a_copied_shard_is_checked_against_its_hash) {
    struct error err = {0};
    struct pack_summary sum;
    struct file_system *fs = memory();
    make_tars();
    pack_parts(fs, 2);
    struct byte_buffer shard;
    assert_ok(file_read_all(fs, &shard, "part-1/shard-000000.tar.zst", 1 << 20, &err), err);
    shard.data[shard.size_bytes / 2] ^= 1;
    assert_ok(
        file_write_atomic(fs, "part-1/shard-000000.tar.zst", shard.data, shard.size_bytes, &err),
        err);
    struct file_system copying = *fs;
    copying.hard_link = no_link;
    assert_status(merge(&copying, parts, 2, false, &sum, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "part-1/shard-000000.tar.zst"));
    assert_false(pack_case_exists(fs, "whole", MANIFEST_NAME));
    byte_buffer_fini(&shard);
    file_memory_destroy(fs);
}

TEST(a_merge_replaces_only_with_overwrite) {
    struct error err = {0};
    struct pack_summary sum;
    struct file_system *fs = memory();
    make_tars();
    pack_parts(fs, 2);
    assert_ok(merge(fs, parts, 2, false, &sum, &err), err);
    assert_status(merge(fs, parts, 2, false, &sum, &err), STATUS_EXISTS, err);
    assert_ok(merge(fs, parts, 2, true, &sum, &err), err);
    assert_true(pack_case_verify(fs, "whole") == sum.fingerprint);
    struct pack_merge_options o;
    pack_merge_options_default(&o);
    o.fs = fs;
    o.directory = parts[0];
    o.parts = parts;
    o.part_count = 2;
    o.overwrite = true;
    memset(&err, 0, sizeof(err));
    assert_status(pack_merge(&o, &sum, &err), STATUS_USAGE, err);
    file_memory_destroy(fs);
}

static bool after_some(void *cookie) {
    int *left = cookie;
    return (*left)-- <= 0;
}

TEST(a_merge_that_is_stopped_is_gone_on_with) {
    struct error err = {0};
    struct pack_summary sum, want;
    make_tars();
    struct file_system *whole = one_run(&want);
    for (int asked = 0; asked < 10; asked++) {
        struct file_system *fs = memory();
        struct pack_merge_options o;
        int left = asked;
        pack_parts(fs, 3);
        pack_merge_options_default(&o);
        o.fs = fs;
        o.directory = "whole";
        o.parts = parts;
        o.part_count = 3;
        o.interrupted = after_some;
        o.cookie = &left;
        memset(&err, 0, sizeof(err));
        if (pack_merge(&o, &sum, &err) != STATUS_OK) {
            assert_int_equal(err.status, STATUS_INTERRUPTED);
            assert_true(pack_case_verify(fs, "whole") == 0);
            assert_ok(merge(fs, parts, 3, false, &sum, &err), err);
        } else {
            assert_true(asked > 6);
        }
        same_dataset(whole, fs);
        file_memory_destroy(fs);
    }
    file_memory_destroy(whole);
}

TEST(parts_are_not_appended_to_and_a_merge_is) {
    struct error err = {0};
    struct pack_summary sum;
    struct file_system *fs = memory();
    make_tars();
    pack_parts(fs, 2);
    struct pack_options o = pack_case_options(fs, parts[0], tars, 3);
    o.append = true;
    assert_status(pack_run(&o, &sum, &err), STATUS_MISMATCH, err);
    assert_non_null(strstr(err.text, "ccpack merge"));
    assert_ok(merge(fs, parts, 2, false, &sum, &err), err);
    o.directory = "whole";
    o.allow_repeat = true;
    memset(&err, 0, sizeof(err));
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_true(pack_case_verify(fs, "whole") == sum.fingerprint);
    struct dataset *d = NULL;
    assert_ok(dataset_open(&d, "whole", fs, &err), err);
    assert_int_equal(dataset_id_space(d), 52);
    dataset_close(d);
    file_memory_destroy(fs);
}

TEST(options_that_parts_cannot_have_are_refused) {
    struct error err = {0};
    struct pack_summary sum;
    struct pack_part part;
    make_tars();
    struct pack_options o = pack_case_options(NULL, test_temp_path("out"), tars, 3);
    o.part = (struct pack_part){1, 2};
    o.dedup = PACK_DEDUP_EXACT;
    assert_status(pack_run(&o, &sum, &err), STATUS_USAGE, err);
    o.dedup = PACK_DEDUP_NONE;
    o.append = true;
    assert_status(pack_run(&o, &sum, &err), STATUS_USAGE, err);
    o.append = false;
    const char *pipe[] = {"-"};
    o.sources = pipe;
    o.source_count = 1;
    assert_status(pack_run(&o, &sum, &err), STATUS_USAGE, err);
    static const char *const wrong[] = {"",     "1",    "0/2",  "3/2",       "1/0",
                                        "1/2x", "-1/2", "1/ 2", "1/1000000", "/"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(pack_parse_part(&part, wrong[i], NULL), STATUS_USAGE);
    }
    assert_int_equal(pack_parse_part(&part, "12/100000", NULL), STATUS_OK);
    assert_true(part.number == 12 && part.count == 100000);
}
