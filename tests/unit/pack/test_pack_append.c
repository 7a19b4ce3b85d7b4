/*
 * --append: a dataset grows, and until the last instant it is what it was.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/dataset/dataset.h"
#include "formats/dataset/dataset_tokenizer.h"
#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/pack_case.h"
#include "tests/support/test.h"

static const char *tars[3];

static void make_tars(void) {
    tars[0] = pack_case_tar("a.tar", &(struct pack_case_tar){.rows = 13, .bad_step = 5});
    tars[1] =
        pack_case_tar("b.tar", &(struct pack_case_tar){.rows = 17, .first = 100, .bad_step = 6});
    tars[2] = pack_case_tar("c.tar", &(struct pack_case_tar){.rows = 9, .first = 200});
}

static struct file_system *memory(void) {
    struct error err = {0};
    struct file_system *fs = NULL;
    assert_ok(file_memory_create(&fs, &err), err);
    return fs;
}

static enum status append(const struct file_system *fs,
                          const char *const *sources,
                          size_t count,
                          bool resume,
                          struct pack_summary *sum,
                          struct error *err) {
    struct pack_options o = pack_case_options(fs, "out", sources, count);
    o.append = true;
    o.resume = resume;
    memset(err, 0, sizeof(*err));
    return pack_run(&o, sum, err);
}

/* A dataset of the first tar, with a tokenizer beside it. */
static struct file_system *first_generation(struct pack_summary *sum) {
    struct error err = {0};
    struct file_system *fs = memory();
    struct pack_options o = pack_case_options(fs, "out", tars, 1);
    assert_ok(pack_run(&o, sum, &err), err);
    assert_ok(file_write_atomic(fs, "out/" DATASET_TOKENIZER_NAME, "words", 5, &err), err);
    return fs;
}

TEST(rows_are_numbered_on_and_old_fingerprints_stay) {
    struct pack_summary first, second, third, whole;
    struct error err = {0};
    make_tars();
    struct file_system *fs = first_generation(&first);
    assert_ok(append(fs, tars + 1, 1, false, &second, &err), err);
    assert_true(second.rows == 17 && second.rejected == 2);
    assert_ok(append(fs, tars + 2, 1, false, &third, &err), err);
    assert_true(pack_case_verify(fs, "out") == third.fingerprint);
    assert_true(pack_case_exists(fs, "out", DATASET_TOKENIZER_NAME));

    struct dataset *d = NULL;
    assert_ok(dataset_open(&d, "out", fs, &err), err);
    const struct manifest *m = dataset_manifest(d);
    assert_int_equal(m->generation_count, 3);
    assert_true(m->generations[0].fingerprint == first.fingerprint);
    assert_true(m->generations[1].fingerprint == second.fingerprint);
    assert_int_equal(m->generations[0].samples, first.samples);
    assert_int_equal(m->source_count, 3);
    assert_int_equal(m->sources[1].rows, 17);
    assert_int_equal(m->id_space, 13 + 17 + 9);
    bool of_second = false;
    bool of_third = false;
    for (uint64_t i = 0; i < dataset_sample_count(d); i++) {
        struct dataset_sample s;
        assert_ok(dataset_sample_at(d, i, &s, &err), err);
        of_second = of_second || s.sample_id == 13;
        of_third = of_third || s.sample_id == 13 + 17;
    }
    assert_true(of_second && of_third);
    dataset_close(d);

    struct file_system *one = memory(); /* what one run over everything has */
    struct pack_options o = pack_case_options(one, "out", tars, 3);
    assert_ok(pack_run(&o, &whole, &err), err);
    assert_true(whole.fingerprint == third.fingerprint);
    struct byte_buffer x, y;
    assert_ok(file_read_all(fs, &x, "out/" PACK_REJECTS_NAME, 1 << 20, &err), err);
    assert_ok(file_read_all(one, &y, "out/" PACK_REJECTS_NAME, 1 << 20, &err), err);
    assert_true(x.size_bytes == y.size_bytes && memcmp(x.data, y.data, x.size_bytes) == 0);
    byte_buffer_fini(&x);
    byte_buffer_fini(&y);
    file_memory_destroy(one);
    file_memory_destroy(fs);
}

/* At every call: before and after a power cut there is a dataset, the old or the new one, and
 * --resume ends in the new one's bytes. */
static void sweep(enum file_fault fault, bool power_cut) {
    struct pack_summary first, want, sum;
    struct error err = {0};
    make_tars();
    struct file_system *base = first_generation(&first);
    struct file_system *good = memory();
    pack_case_copy(base, "out", good, "out");
    assert_ok(append(good, tars + 1, 2, false, &want, &err), err);
    uint64_t calls = UINT64_MAX;
    for (uint64_t nth = 0; nth < calls; nth += FILE_FAULT_STEP) {
        struct file_system *fs = memory();
        struct file_system *faulty = NULL;
        pack_case_copy(base, "out", fs, "out");
        assert_ok(file_fault_create(&faulty, fs, nth, fault, &err), err);
        enum status s = append(faulty, tars + 1, 2, false, &sum, &err);
        if (nth >= file_fault_count(faulty)) {
            calls = nth;
            assert_int_equal(s, STATUS_OK);
        } else {
            /* An index that cannot be read beside its shard is read in it. */
            assert_true(s != STATUS_OK ? err.text[0] != '\0' : fault == FILE_FAULT_READ);
        }
        if (power_cut) {
            file_memory_crash(fs);
        }
        uint64_t print = pack_case_verify(fs, "out");
        assert_true(print == first.fingerprint || print == want.fingerprint);
        assert_ok(append(fs, tars + 1, 2, true, &sum, &err), err);
        assert_true(sum.fingerprint == want.fingerprint);
        assert_true(pack_case_equal(good, "out", fs, "out"));
        file_fault_destroy(faulty);
        file_memory_destroy(fs);
    }
    assert_true(calls > 30);
    file_memory_destroy(good);
    file_memory_destroy(base);
}

TEST(dying_anywhere_leaves_the_old_dataset_and_resumes) {
    sweep(FILE_FAULT_DEAD, false);
}

TEST(a_power_failure_anywhere_leaves_a_dataset_and_resumes) {
    sweep(FILE_FAULT_DEAD, true);
}

TEST(a_failure_anywhere_leaves_the_old_dataset_and_resumes) {
    sweep(FILE_FAULT_ERROR, false);
    sweep(FILE_FAULT_SHORT_WRITE, false);
}

TEST(a_failing_read_anywhere_leaves_a_dataset_and_resumes) {
    sweep(FILE_FAULT_READ, false);
}

/* Without --resume an append that did not end is begun again. */
TEST(appending_again_begins_again) {
    struct pack_summary first, want, sum;
    struct error err = {0};
    make_tars();
    struct file_system *base = first_generation(&first);
    struct file_system *good = memory();
    pack_case_copy(base, "out", good, "out");
    assert_ok(append(good, tars + 2, 1, false, &want, &err), err);
    struct file_system *faulty = NULL;
    assert_ok(file_fault_create(&faulty, base, 60, FILE_FAULT_DEAD, &err), err);
    assert_true(append(faulty, tars + 1, 1, false, &sum, &err) != STATUS_OK);
    assert_true(pack_case_exists(base, "out", PACK_JOURNAL_NAME));
    assert_status(append(base, tars + 2, 1, true, &sum, &err), STATUS_MISMATCH, err);
    assert_ok(append(base, tars + 2, 1, false, &sum, &err), err);
    assert_int_equal(sum.resumed, 0);
    assert_true(pack_case_equal(good, "out", base, "out"));
    file_fault_destroy(faulty);
    file_memory_destroy(base);
    file_memory_destroy(good);
}

TEST(resuming_an_append_that_is_in_does_nothing) {
    struct pack_summary first, want, sum;
    struct error err = {0};
    make_tars();
    struct file_system *fs = first_generation(&first);
    assert_ok(append(fs, tars + 1, 1, true, &want, &err), err);
    assert_false(want.was_finished);
    assert_ok(append(fs, tars + 1, 1, true, &sum, &err), err);
    assert_true(sum.was_finished && sum.fingerprint == want.fingerprint);
    file_memory_destroy(fs);
}

/* Known by the file, by its rows where the file is another one, and whatever its name is. */
TEST(a_source_that_is_in_is_appended_only_on_request) {
    struct pack_summary first, sum;
    struct error err = {0};
    make_tars();
    const char *copy[] = {
        pack_case_tar("copy.tar", &(struct pack_case_tar){.rows = 13, .bad_step = 5})};
    const char *padded[] = {
        pack_case_tar("padded.tar", &(struct pack_case_tar){.rows = 13, .bad_step = 5})};
    FILE *f = fopen(padded[0], "ab");
    assert_non_null(f);
    assert_int_equal(fwrite((char[1024]){0}, 1, 1024, f), 1024);
    assert_int_equal(fclose(f), 0);
    const char *const *const same[] = {tars, copy, padded};
    struct file_system *fs = first_generation(&first);
    struct file_system *before = memory();
    pack_case_copy(fs, "out", before, "out");
    for (size_t i = 0; i < 3; i++) {
        assert_status(append(fs, same[i], 1, false, &sum, &err), STATUS_MISMATCH, err);
        assert_non_null(strstr(err.text, "from 'a.tar'; --allow-duplicates"));
        assert_true(sum.keeps_dataset && sum.has_journal == (i == 2));
        assert_true(i == 2 || pack_case_equal(fs, "out", before, "out"));
        assert_true(pack_case_verify(fs, "out") == first.fingerprint);
    }
    struct pack_options o = pack_case_options(fs, "out", padded, 1);
    o.append = true;
    o.resume = true;
    o.allow_repeat = true;
    memset(&err, 0, sizeof(err));
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_true(sum.resumed == 11 && sum.samples == 11);
    o.resume = false;
    o.sources = copy;
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_true(pack_case_verify(fs, "out") == sum.fingerprint);
    file_memory_destroy(before);
    file_memory_destroy(fs);
}

/* By another name, or in another file. Another file of the same rows is known when it was read. */
TEST(a_source_that_is_named_twice_is_packed_only_on_request) {
    struct pack_summary sum;
    struct error err = {0};
    make_tars();
    const char *copy =
        pack_case_tar("copy.tar", &(struct pack_case_tar){.rows = 13, .bad_step = 5});
    const char *padded =
        pack_case_tar("padded.tar", &(struct pack_case_tar){.rows = 13, .bad_step = 5});
    FILE *f = fopen(padded, "ab");
    assert_non_null(f);
    assert_int_equal(fwrite((char[1024]){0}, 1, 1024, f), 1024);
    assert_int_equal(fclose(f), 0);
    const char *link = test_temp_path("link.tar");
    assert_int_equal(symlink(tars[0], link), 0);
    const char *const others[] = {tars[0], link, copy, padded};
    for (size_t i = 0; i < 4; i++) {
        struct file_system *fs = memory();
        const char *sources[] = {tars[0], tars[1], others[i]};
        struct pack_options o = pack_case_options(fs, "out", sources, 3);
        memset(&err, 0, sizeof(err));
        assert_status(pack_run(&o, &sum, &err), STATUS_MISMATCH, err);
        assert_non_null(strstr(err.text, "--allow-duplicates"));
        assert_true(sum.unchanged == (i < 2));
        o.allow_repeat = true;
        o.resume = i >= 2;
        memset(&err, 0, sizeof(err));
        assert_ok(pack_run(&o, &sum, &err), err);
        assert_true(sum.rows > 2 * 13);
        file_memory_destroy(fs);
    }
}

static bool at_once(void *cookie) {
    (void)cookie;
    return true;
}

TEST(a_stopped_append_leaves_the_dataset_as_it_was) {
    struct pack_summary first, sum;
    struct error err = {0};
    make_tars();
    struct file_system *fs = first_generation(&first);
    struct file_system *before = memory();
    pack_case_copy(fs, "out", before, "out");
    struct pack_options o = pack_case_options(fs, "out", tars + 1, 1);
    o.append = true;
    o.interrupted = at_once;
    assert_status(pack_run(&o, &sum, &err), STATUS_INTERRUPTED, err);
    assert_true(sum.keeps_dataset && !sum.has_journal);
    assert_true(pack_case_equal(fs, "out", before, "out"));
    o.interrupted = NULL;
    o.on_bad = PACK_ON_BAD_FAIL; /* the sixth row */
    memset(&err, 0, sizeof(err));
    assert_status(pack_run(&o, &sum, &err), STATUS_CORRUPT, err);
    assert_true(sum.keeps_dataset && sum.has_journal);
    assert_true(pack_case_verify(fs, "out") == first.fingerprint);
    file_memory_destroy(before);
    file_memory_destroy(fs);
}

static void refused(const struct pack_options *o, enum status want, const char *word) {
    struct pack_summary sum;
    struct error err = {0};
    assert_status(pack_run(o, &sum, &err), want, err);
    if (!strstr(err.text, word)) {
        fail_msg("'%s' is not in: %s", word, err.text);
    }
}

TEST(options_that_differ_from_the_dataset_are_named) {
    struct pack_summary first;
    make_tars();
    struct file_system *fs = first_generation(&first);
    struct pack_options good = pack_case_options(fs, "out", tars + 1, 1);
    good.append = true;
    struct pack_options o = good;
    o.ids = PACK_IDS_KEY;
    refused(&o, STATUS_MISMATCH, "--ids was row, is key");
    o = good;
    o.resize = (struct pack_resize){PACK_RESIZE_LONG, 16, 0};
    refused(&o, STATUS_MISMATCH, "--resize was none, is long:16");
    o = good;
    o.filter.min_side_px = 4;
    refused(&o, STATUS_MISMATCH, "--min-side was not given, is 4; omit it");
    o = good;
    o.dedup = PACK_DEDUP_EXACT;
    refused(&o, STATUS_MISMATCH, "--dedup was not given, is exact; omit it");
    o = good;
    o.container = SHARD_CONTAINER_TAR;
    refused(&o, STATUS_MISMATCH, "--container was tar.zst, is tar");
    o = good;
    o.directory = "nowhere";
    refused(&o, STATUS_NOTFOUND, "no dataset to append to");
    o = good;
    o.overwrite = true;
    refused(&o, STATUS_USAGE, "--overwrite and --append");
    file_memory_destroy(fs);
}

/* What may differ is told apart by generation. */
TEST(other_options_of_an_append_are_recorded) {
    struct pack_summary sum;
    struct error err = {0};
    make_tars();
    struct file_system *fs = first_generation(&sum);
    struct pack_options o = pack_case_options(fs, "out", tars + 1, 1);
    o.append = true;
    o.filter.min_side_px = 4;
    o.shard_samples = 7;
    o.new_settings = true;
    assert_ok(pack_run(&o, &sum, &err), err);
    o.sources = tars + 2;
    o.filter.min_side_px = 0;
    o.new_settings = false;
    refused(&o, STATUS_MISMATCH, "--min-side was 4, is not given");
    o.new_settings = true;
    assert_ok(pack_run(&o, &sum, &err), err);
    const char *again[] = {tars[0]};
    o.sources = again;
    o.new_settings = false;
    o.allow_repeat = true;
    assert_ok(pack_run(&o, &sum, &err), err);
    struct dataset *d = NULL;
    assert_ok(dataset_open(&d, "out", fs, &err), err);
    const struct manifest *m = dataset_manifest(d);
    static const char *const want[][2] = {{"shard-samples", "4"},
                                          {"shard-samples@2", "7"},
                                          {"min-side@2", "4"},
                                          {"min-side@3", "not given"}};
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        const char *value = NULL;
        for (size_t k = 0; k < m->option_count; k++) {
            if (strcmp(m->options[k].name, want[i][0]) == 0) {
                value = m->options[k].value;
            }
        }
        assert_non_null(value);
        assert_string_equal(value, want[i][1]);
    }
    assert_string_equal(pack_manifest_in_force(m, "shard-samples"), "7");
    assert_null(pack_manifest_in_force(m, "min-side"));
    dataset_close(d);
    file_memory_destroy(fs);
}

/* Ids that are keys: new ones go in, one that is there ends the run before anything is lost. */
TEST(keys_that_are_ids_must_be_new) {
    struct pack_summary first, sum;
    struct error err = {0};
    make_tars();
    struct file_system *fs = memory();
    struct pack_options o = pack_case_options(fs, "out", tars, 1);
    o.ids = PACK_IDS_KEY;
    assert_ok(pack_run(&o, &first, &err), err);
    o.append = true;
    o.sources = tars + 1;
    assert_ok(pack_run(&o, &sum, &err), err);
    assert_true(pack_case_verify(fs, "out") == sum.fingerprint);
    uint64_t print = sum.fingerprint;
    const char *again[] = {pack_case_tar("d.tar", &(struct pack_case_tar){.rows = 9, .first = 97})};
    o.sources = again;
    assert_status(pack_run(&o, &sum, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "d.tar: row 3: the id 100 of key '000100' is repeated"));
    assert_true(pack_case_verify(fs, "out") == print);
    file_memory_destroy(fs);
}

TEST(a_repeated_id_names_both_rows) {
    struct pack_summary sum;
    struct error err = {0};
    make_tars();
    struct file_system *fs = memory();
    const char *sources[] = {
        tars[0], pack_case_tar("e.tar", &(struct pack_case_tar){.rows = 30, .first = 7})};
    struct pack_options o = pack_case_options(fs, "out", sources, 2);
    o.ids = PACK_IDS_KEY;
    assert_status(pack_run(&o, &sum, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "e.tar: row 0: the id 7 of key '000007' is repeated"));
    assert_non_null(strstr(err.text, "a.tar: row 7 has it"));
    assert_true(sum.is_dataset && sum.rows == 14);
    file_memory_destroy(fs);
}
