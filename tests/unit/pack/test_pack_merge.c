/*
 * Parts and their merge: the ids and the fingerprint of one run, for any N and after any kill.
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
    o.overwrite = true;
    o.allow_repeat = true;
    o.part = (struct pack_part){number, count};
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_true(sum.is_dataset);
}

static void pack_parts(const struct file_system *fs, uint32_t count) {
    for (uint32_t i = 1; i <= count; i++) {
        pack_part(fs, i, count);
    }
}

/* What the last merge reported, one "fault first-last directory: text" a line. */
static char reported[4000];

static void note_problem(void *cookie, const struct pack_merge_problem *p) {
    static const char *const names[] = {"no part", "missing", "unfinished", "repeated", "foreign"};
    (void)cookie;
    const size_t at = strlen(reported);
    int n = snprintf(reported + at, sizeof(reported) - at, "%s %d-%d of %d %s: %s\n",
                     names[p->fault], (int)p->first, (int)p->last, (int)p->count,
                     p->directory ? p->directory : "", p->text);
    assert_in_range(n, 1, sizeof(reported) - at - 1);
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
    o.problem = note_problem;
    reported[0] = '\0';
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

/* A part that is killed at any call and resumed has the bytes of an undisturbed one. */
TEST(a_part_resumes_to_the_same_bytes) {
    struct error err = {0};
    struct pack_summary sum;
    make_tars();
    struct file_system *good = memory();
    pack_part(good, 2, 3);
    uint64_t calls = UINT64_MAX;
    for (uint64_t nth = 0; nth < calls; nth += FILE_FAULT_STEP) {
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
    for (uint64_t nth = 0; nth < calls; nth += FILE_FAULT_STEP) {
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
        assert_status(s, STATUS_OK, err);
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

/* `words` are separated by semicolons and are all in the message or in what was reported. */
static void refused(const struct file_system *fs,
                    const char *const *what,
                    size_t count,
                    enum status want,
                    const char *words) {
    struct pack_summary sum;
    struct error err = {0};
    char copy[512];
    assert_status(merge(fs, what, count, false, &sum, &err), want, err);
    snprintf(copy, sizeof(copy), "%s", words);
    for (char *word = strtok(copy, ";"); word; word = strtok(NULL, ";")) {
        if (!strstr(err.text, word) && !strstr(reported, word)) {
            fail_msg("'%s' is not in: %s\n%s", word, err.text, reported);
        }
    }
    assert_false(pack_case_exists(fs, "whole", MANIFEST_NAME));
    assert_false(pack_case_exists(fs, "whole", PACK_JOURNAL_NAME));
}

/* Packs a part with other options or sources than pack_part. */
static void pack_other(const struct pack_options *o, enum status want) {
    struct pack_summary sum;
    struct error err = {0};
    assert_status(pack_run(o, &sum, &err), want, err);
}

TEST(parts_that_do_not_belong_together_are_named) {
    struct error err = {0};
    struct file_system *fs = memory();
    make_tars();
    pack_parts(fs, 3);
    const char *third[] = {parts[0], parts[1], "third"};
    refused(fs, third, 3, STATUS_MISMATCH,
            "no part 0-0 of 0 third: third: no such;"
            "missing 3-3 of 3;1 not a part, 1 missing");
    struct pack_options o = pack_case_options(fs, "third", tars, 3);
    pack_other(&o, STATUS_OK);
    refused(fs, third + 2, 1, STATUS_MISMATCH, "third: is not a part;cannot merge the parts");
    o.overwrite = true;
    o.part = (struct pack_part){3, 3};
    o.shard_samples = 5;
    pack_other(&o, STATUS_OK);
    refused(fs, third, 3, STATUS_MISMATCH,
            "foreign 3-3 of 3 third: part-0 and third;shard-samples is 4 and 5;1 of another run");
    o.shard_samples = 4;
    o.source_count = 2;
    pack_other(&o, STATUS_OK);
    refused(fs, third, 3, STATUS_MISMATCH, "a source is c.tar and not given;part-0 and third");
    const char *turned[] = {tars[1], tars[0], tars[2]};
    o.sources = turned;
    o.source_count = 3;
    pack_other(&o, STATUS_OK);
    refused(fs, third, 3, STATUS_MISMATCH, "a source is a.tar and b.tar;part-0 and third");
    o.sources = tars;
    o.part = (struct pack_part){3, 4};
    pack_other(&o, STATUS_OK);
    refused(fs, third, 3, STATUS_MISMATCH, "from different runs;part-0 is part 1/3;third part 3/4");
    assert_ok(file_write_atomic(fs, "part-0/shard-000000.tar.zst", "short", 5, &err), err);
    struct pack_summary sum;
    assert_status(merge(fs, parts, 3, false, &sum, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "part-0/shard-000000.tar.zst: has 5 bytes"));
    file_memory_destroy(fs);
}

static enum status
is_locked(void *context, struct file **lock, const char *path, struct error *err) {
    (void)context;
    *lock = NULL;
    return error_set(err, STATUS_EXISTS, "%s: at work", path);
}

TEST(every_part_that_prevents_a_merge_is_reported) {
    struct error err = {0};
    struct file_system *fs = memory();
    make_tars();
    pack_parts(fs, 12);
    pack_case_copy(fs, parts[2], fs, "copy");
    refused(fs, parts, 2, STATUS_MISMATCH, "missing 3-12 of 12;the 12 parts;10 missing");
    refused(fs, parts + 11, 1, STATUS_MISMATCH, "missing 1-11 of 12");
    /* Parts 4 and 8 ended early, of 8 no dataset.json is there; 7 is of another run. */
    struct pack_options o = pack_case_options(fs, parts[3], tars, 3);
    o.overwrite = true;
    o.on_bad = PACK_ON_BAD_FAIL;
    o.part = (struct pack_part){4, 12};
    pack_other(&o, STATUS_CORRUPT);
    o.directory = parts[7];
    o.part.number = 8;
    pack_other(&o, STATUS_CORRUPT);
    assert_ok(fs->remove(fs->context, "part-7/" MANIFEST_NAME, &err), err);
    o.directory = parts[6];
    o.part.number = 7;
    o.level = 9;
    pack_other(&o, STATUS_OK);
    const char *what[] = {"copy",   parts[7], parts[6],  parts[3], parts[2],
                          parts[1], parts[4], parts[11], "nowhere"};
    refused(fs, what, 9, STATUS_MISMATCH,
            "the 12 parts;missing 1-1 of 12;missing 6-6 of 12;missing 9-11 of 12;"
            "unfinished 4-4 of 12 part-3: part-3: its run ended early;"
            "unfinished 8-8 of 12 part-7: part-7: its run ended early;"
            "repeated 3-3 of 12 part-2: copy and part-2 are both part 3/12;"
            "foreign 7-7 of 12 part-6;zstd-level is 3 and 9;no part 0-0 of 0 nowhere;"
            "1 not a part, 5 missing, 2 unfinished, 1 repeated, 1 of another run");
    struct file_system busy = *fs;
    busy.lock_directory = is_locked;
    refused(&busy, what, 9, STATUS_MISMATCH,
            "unfinished 8-8 of 12 part-7: part-7: at work;"
            "unfinished 4-4 of 12 part-3: part-3: at work");
    file_memory_destroy(fs);
}

/* Sources of one name and size, but with other rows, or with other images. */
TEST(parts_of_other_content_are_refused) {
    struct file_system *fs = memory();
    make_tars();
    pack_part(fs, 1, 2);
    struct pack_case_tar other = {.rows = 11, .first = 50, .bad_step = 4};
    pack_case_tar("a.tar", &other);
    pack_part(fs, 2, 2);
    refused(fs, parts, 2, STATUS_MISMATCH,
            "foreign 2-2 of 2 part-1;source 'a.tar' differs or has changed");
    file_memory_destroy(fs);
}

TEST(parts_of_a_source_that_changed_in_between_are_refused) {
    struct file_system *fs = memory();
    make_tars();
    pack_part(fs, 1, 2);
    size_t size_bytes = 0;
    uint8_t *tar = test_read_file(tars[0], &size_bytes);
    const size_t jpeg_bytes = strtoul((const char *)tar + 124, NULL, 8);
    tar[512 + jpeg_bytes - 10] ^= 1; /* the rows are the same, and one image is not */
    test_write_file(tars[0], tar, size_bytes);
    free(tar);
    struct pack_options o = pack_case_options(fs, parts[1], tars, 3);
    o.part = (struct pack_part){2, 2};
    pack_other(&o, STATUS_OK);
    refused(fs, parts, 2, STATUS_MISMATCH, "source 'a.tar' differs or has changed");
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

TEST(a_complete_merge_is_not_repeated) {
    struct error err = {0};
    struct pack_summary sum, again;
    struct file_system *fs = memory();
    struct file_system *counting = NULL;
    make_tars();
    pack_parts(fs, 2);
    assert_ok(merge(fs, parts, 2, false, &sum, &err), err);
    assert_false(sum.was_finished);
    assert_ok(file_fault_create(&counting, fs, 0, FILE_FAULT_ERROR, &err), err);
    assert_ok(merge(counting, parts, 2, false, &again, &err), err); /* writes nothing */
    assert_true(again.was_finished && again.fingerprint == sum.fingerprint);
    assert_true(again.rows == sum.rows && again.shards == sum.shards);
    file_fault_destroy(counting);
    /* Other parts, other options, and a dataset that has grown since, are not that merge. */
    pack_parts(fs, 3);
    assert_status(merge(fs, parts, 3, false, &again, &err), STATUS_EXISTS, err);
    struct pack_options o = pack_case_options(fs, "whole", tars, 1);
    o.append = true;
    o.allow_repeat = true;
    assert_ok(pack_run(&o, &again, &err), err);
    pack_parts(fs, 2);
    assert_status(merge(fs, parts, 2, false, &again, &err), STATUS_EXISTS, err);
    file_memory_destroy(fs);
}

TEST(a_merge_replaces_only_with_overwrite) {
    struct error err = {0};
    struct pack_summary sum;
    struct file_system *fs = memory();
    make_tars();
    pack_parts(fs, 2);
    struct pack_options whole = pack_case_options(fs, "whole", tars, 3);
    assert_ok(pack_run(&whole, &sum, &err), err);
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

TEST(an_interrupted_merge_is_resumed) {
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
