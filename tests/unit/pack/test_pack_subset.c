/*
 * Some samples of a dataset as a dataset of their own: the same ids, bytes and captions, and after
 * any kill the same files.
 */
#include "pack/subset/subset.h"

#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset_reader.h"
#include "pack/remove/remove.h"
#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/pack_case.h"
#include "tests/support/test.h"

static struct file_system *memory(void) {
    struct error err = {0};
    struct file_system *fs = NULL;
    assert_ok(file_memory_create(&fs, &err), err);
    return fs;
}

/* "all": 26 rows of two sources in shards of four, of which rows 3, 7, 11, ... have no sample. */
static struct file_system *all(void) {
    const char *tars[2] = {
        pack_case_tar("a.tar", &(struct pack_case_tar){.rows = 11}),
        pack_case_tar("b.tar", &(struct pack_case_tar){.rows = 15, .first = 100, .bad_step = 4})};
    struct error err = {0};
    struct pack_summary sum;
    struct file_system *fs = memory();
    struct pack_options o = pack_case_options(fs, "all", tars, 2);
    assert_ok(pack_run(&o, &sum, &err), err);
    return fs;
}

static const uint64_t some[] = {1, 2, 3, 5, 8, 12, 13, 17, 20};
enum { SOME = sizeof(some) / sizeof(some[0]) };

static struct pack_subset_options options(const struct file_system *fs) {
    struct pack_subset_options o;
    pack_subset_options_default(&o);
    o.fs = fs;
    o.source = "all";
    o.directory = "some";
    o.ids = some;
    o.id_count = SOME;
    o.shard_samples = 4;
    return o;
}

static struct dataset *open_dataset(const struct file_system *fs, const char *directory) {
    struct error err = {0};
    struct dataset *d = NULL;
    assert_ok(dataset_open(&d, directory, fs, &err), err);
    return d;
}

static void same_sample(const struct dataset *a, const struct dataset *b, uint64_t id) {
    struct error err = {0};
    struct dataset_sample x, y;
    struct dataset_reader *r = NULL;
    struct dataset_reader *q = NULL;
    struct sample_view v, w;
    assert_ok(dataset_find(a, id, &x, &err), err);
    assert_ok(dataset_find(b, id, &y, &err), err);
    assert_true(x.image_hash == y.image_hash && x.caption_hash == y.caption_hash);
    assert_true(x.width_px == y.width_px && x.label == y.label && x.flags == y.flags);
    assert_ok(dataset_reader_create(&r, a, &err), err);
    assert_ok(dataset_reader_create(&q, b, &err), err);
    assert_ok(dataset_reader_get(r, &x, &v, &err), err);
    assert_ok(dataset_reader_get(q, &y, &w, &err), err);
    assert_string_equal(v.key, w.key);
    assert_int_equal(v.image_bytes, w.image_bytes);
    assert_memory_equal(v.image, w.image, v.image_bytes);
    assert_int_equal(v.json.size_bytes, w.json.size_bytes);
    dataset_reader_destroy(r);
    dataset_reader_destroy(q);
}

TEST(a_subset_has_the_chosen_samples_under_their_ids) {
    struct error err = {0};
    struct pack_summary sum;
    struct file_system *fs = all();
    struct pack_subset_options o = options(fs);
    assert_ok(pack_subset(&o, &sum, &err), err);
    assert_int_equal(sum.samples, SOME);
    assert_int_equal(sum.shards, 3);
    assert_true(pack_case_verify(fs, "some") == sum.fingerprint);
    assert_false(pack_case_exists(fs, "some", PACK_JOURNAL_NAME));
    struct dataset *whole = open_dataset(fs, "all");
    struct dataset *d = open_dataset(fs, "some");
    const struct manifest *m = dataset_manifest(d);
    for (size_t i = 0; i < SOME; i++) {
        struct dataset_sample sample;
        assert_ok(dataset_sample_at(d, i, &sample, &err), err);
        assert_true(sample.sample_id == some[i]);
        same_sample(whole, d, some[i]);
    }
    /* Ids of the others are not used again, and a run on the old dataset knows the new one. */
    assert_true(dataset_id_space(d) == dataset_id_space(whole));
    assert_true(manifest_has_been(m, dataset_fingerprint(whole)));
    assert_int_equal(m->source_count, 2);
    assert_string_equal(m->sources[1].name, "b.tar");
    dataset_close(whole);
    dataset_close(d);
    /* Once more: nothing to do. */
    assert_ok(pack_subset(&o, &sum, &err), err);
    assert_true(sum.was_finished);
    file_memory_destroy(fs);
}

/* Rows 0 to 3 of both tars have the same keys; a shard of "all" has four samples, that of the
 * subset has all. */
TEST(samples_of_one_key_in_several_shards_get_keys_with_their_ids) {
    const char *tars[2] = {pack_case_tar("a.tar", &(struct pack_case_tar){.rows = 4}),
                           pack_case_tar("b.tar", &(struct pack_case_tar){.rows = 5})};
    const uint64_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    struct error err = {0};
    struct pack_summary sum;
    struct file_system *fs = memory();
    struct pack_options pack = pack_case_options(fs, "all", tars, 2);
    assert_ok(pack_run(&pack, &sum, &err), err);
    struct pack_subset_options o = options(fs);
    o.ids = ids;
    o.id_count = 9;
    o.shard_samples = 9;
    assert_ok(pack_subset(&o, &sum, &err), err);
    assert_true(pack_case_verify(fs, "some") == sum.fingerprint);
    struct dataset *d = open_dataset(fs, "some");
    struct dataset_reader *r = NULL;
    assert_ok(dataset_reader_create(&r, d, &err), err);
    for (uint64_t id = 0; id < 9; id++) {
        struct dataset_sample sample;
        struct sample_view v;
        assert_ok(dataset_find(d, id, &sample, &err), err);
        assert_ok(dataset_reader_get(r, &sample, &v, &err), err);
        const char *end = strrchr(v.key, '-');
        assert_true(id < 4 || id == 8 ? end == NULL : end != NULL && end[1] == '0' + (char)id);
    }
    dataset_reader_destroy(r);
    dataset_close(d);
    file_memory_destroy(fs);
}

TEST(all_samples_have_the_fingerprint_of_the_whole) {
    struct error err = {0};
    struct pack_summary sum;
    struct file_system *fs = all();
    struct dataset *whole = open_dataset(fs, "all");
    uint64_t ids[64];
    const uint64_t count = dataset_sample_count(whole);
    for (uint64_t i = 0; i < count; i++) {
        struct dataset_sample sample;
        assert_ok(dataset_sample_at(whole, i, &sample, &err), err);
        ids[i] = sample.sample_id;
    }
    struct pack_subset_options o = options(fs);
    o.ids = ids;
    o.id_count = count;
    assert_ok(pack_subset(&o, &sum, &err), err);
    assert_true(sum.fingerprint == dataset_fingerprint(whole));
    assert_true(pack_case_verify(fs, "some") == sum.fingerprint);
    dataset_close(whole);
    file_memory_destroy(fs);
}

TEST(shards_end_at_the_size_that_was_asked_for) {
    struct error err = {0};
    struct pack_summary sum;
    struct file_system *fs = all();
    struct pack_subset_options o = options(fs);
    o.shard_samples = 1000;
    o.shard_size_bytes = 1; /* less than any image: one in each */
    assert_ok(pack_subset(&o, &sum, &err), err);
    assert_int_equal(sum.shards, SOME);
    assert_true(pack_case_verify(fs, "some") == sum.fingerprint);
    file_memory_destroy(fs);
}

TEST(a_subset_of_a_subset_names_its_own_choice) {
    struct error err = {0};
    struct pack_summary sum;
    struct file_system *fs = all();
    struct pack_subset_options o = options(fs);
    assert_ok(pack_subset(&o, &sum, &err), err);
    o.source = "some";
    o.directory = "few";
    o.ids = some + 4;
    o.id_count = 2;
    assert_ok(pack_subset(&o, &sum, &err), err);
    assert_int_equal(sum.samples, 2);
    struct dataset *d = open_dataset(fs, "few");
    const struct manifest *m = dataset_manifest(d);
    int named = 0;
    for (size_t i = 0; i < m->option_count; i++) {
        named += strcmp(m->options[i].name, "subset") == 0;
    }
    assert_int_equal(named, 1);
    dataset_close(d);
    assert_ok(pack_subset(&o, &sum, &err), err);
    assert_true(sum.was_finished);
    file_memory_destroy(fs);
}

TEST(removed_samples_are_in_no_subset) {
    struct error err = {0};
    struct pack_summary sum;
    struct pack_remove_summary removed;
    struct file_system *fs = all();
    const uint64_t gone[] = {2, 25};
    const struct pack_remove_options r = {
        .fs = fs, .directory = "all", .ids = gone, .id_count = 2, .created_by = "test"};
    assert_ok(pack_remove_samples(&r, &removed, &err), err);
    struct pack_subset_options o = options(fs);
    assert_status(pack_subset(&o, &sum, &err), STATUS_NOTFOUND, err);
    assert_non_null(strstr(err.text, "2"));
    assert_false(pack_case_exists(fs, "some", PACK_JOURNAL_NAME));
    memset(&err, 0, sizeof(err));
    o.ids = some + 2;
    o.id_count = SOME - 2;
    assert_ok(pack_subset(&o, &sum, &err), err);
    struct dataset *d = open_dataset(fs, "some");
    assert_int_equal(dataset_manifest(d)->removed.count, 2); /* their ids are not used again */
    assert_int_equal(dataset_manifest(d)->removed.samples, 0);
    assert_int_equal(dataset_id_space(d), 26);
    dataset_close(d);
    file_memory_destroy(fs);
}

TEST(a_directory_with_something_else_is_refused) {
    struct error err = {0};
    struct pack_summary sum;
    struct file_system *fs = all();
    struct pack_subset_options o = options(fs);
    o.directory = "all";
    o.overwrite = true;
    assert_status(pack_subset(&o, &sum, &err), STATUS_USAGE, err);
    o.overwrite = false;
    o.directory = "some";
    assert_ok(pack_subset(&o, &sum, &err), err);
    memset(&err, 0, sizeof(err));
    o.id_count = 3;
    assert_status(pack_subset(&o, &sum, &err), STATUS_EXISTS, err);
    assert_non_null(strstr(err.text, "--overwrite"));
    memset(&err, 0, sizeof(err));
    o.overwrite = true;
    assert_ok(pack_subset(&o, &sum, &err), err);
    assert_int_equal(sum.samples, 3);
    assert_true(pack_case_verify(fs, "some") == sum.fingerprint);
    file_memory_destroy(fs);
}

/* At every call: nothing half-written, the source untouched, and the next call ends it. */
static void sweep(enum file_fault fault, bool power_cut) {
    struct error err = {0};
    struct pack_summary want, sum;
    struct file_system *base = all();
    struct file_system *good = memory();
    pack_case_copy(base, "all", good, "all");
    struct pack_subset_options o = options(good);
    assert_ok(pack_subset(&o, &want, &err), err);
    uint64_t calls = UINT64_MAX;
    for (uint64_t nth = 0; nth < calls; nth += FILE_FAULT_STEP) {
        struct file_system *fs = memory();
        struct file_system *faulty = NULL;
        pack_case_copy(base, "all", fs, "all");
        assert_ok(file_fault_create(&faulty, fs, nth, fault, &err), err);
        o.fs = faulty;
        enum status s = pack_subset(&o, &sum, NULL);
        if (nth >= file_fault_count(faulty)) {
            calls = nth;
            assert_int_equal(s, STATUS_OK);
        } else if (s == STATUS_OK && fault != FILE_FAULT_READ) { /* an index is read elsewhere */
            fail_msg("the fault at call %d was not reported", (int)nth);
        }
        if (power_cut) {
            file_memory_crash(fs);
        }
        uint64_t print = pack_case_verify(fs, "some");
        assert_true(print == 0 || print == want.fingerprint);
        o.fs = fs;
        memset(&err, 0, sizeof(err));
        assert_ok(pack_subset(&o, &sum, &err), err);
        assert_true(pack_case_equal(good, "some", fs, "some"));
        assert_true(pack_case_equal(base, "all", fs, "all"));
        file_fault_destroy(faulty);
        file_memory_destroy(fs);
    }
    file_memory_destroy(good);
    file_memory_destroy(base);
}

TEST(a_subset_killed_anywhere_is_resumed) {
    sweep(FILE_FAULT_DEAD, false);
    sweep(FILE_FAULT_DEAD, true);
}

TEST(every_failure_is_reported) {
    sweep(FILE_FAULT_ERROR, false);
    sweep(FILE_FAULT_SHORT_WRITE, true);
    sweep(FILE_FAULT_READ, false);
}
