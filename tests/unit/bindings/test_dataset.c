/* Datasets, records and samples through libccstream, against the functions inside it. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bindings/c/ccstream.h"
#include "formats/base/hash.h"
#include "formats/dataset/dataset.h"
#include "tests/support/image_dataset.h"
#include "tests/support/library.h"
#include "tests/support/test.h"

enum { SAMPLES = 100, STEP = 3 };

static const char *make(void) {
    struct image_dataset how;
    image_dataset_default(&how);
    how.tokenizer = false;
    const char *dir = test_temp_path("d");
    image_dataset_make(dir, &how);
    return dir;
}

static struct ccs_dataset *open_made(void) {
    struct ccs_dataset *d = NULL;
    struct ccs_error err;
    assert_int_equal(ccs_dataset_open(&d, make(), &err), CCS_OK);
    assert_int_equal(err.status, CCS_OK);
    assert_string_equal(err.text, "");
    return d;
}

TEST(version_and_sentences_of_statuses) {
    assert_true(strlen(ccs_version()) >= 5);
    assert_string_equal(ccs_status_text(CCS_OK), "success");
    for (int32_t s = CCS_END; s >= CCS_ERROR_FORKED; s--) {
        assert_string_not_equal(ccs_status_text(s), ccs_status_text(1000));
    }
}

TEST(info_is_that_of_the_dataset) {
    struct ccs_dataset *d = open_made();
    struct dataset *inside = NULL;
    struct error why = {0};
    assert_ok(dataset_open(&inside, test_temp_path("d"), NULL, &why), why);
    struct ccs_dataset_info info = {.struct_size = sizeof(info)};
    assert_int_equal(ccs_dataset_get_info(d, &info, NULL), CCS_OK);
    assert_int_equal(info.samples, SAMPLES);
    assert_int_equal(info.id_space, (SAMPLES - 1) * STEP + 1);
    assert_int_equal(info.captions, dataset_text_count(inside));
    assert_int_equal(info.fingerprint, dataset_fingerprint(inside));
    assert_int_equal(info.image_bytes, dataset_manifest(inside)->image_bytes);
    assert_int_equal(info.shards, 3);
    assert_int_equal(info.classes, 0);
    assert_int_equal(info.tokenizer, 0);
    assert_null(ccs_dataset_class(d, 0));
    test_write_file(test_temp_path("d/tokenizer.model"), "x", 1);
    assert_int_equal(ccs_dataset_get_info(d, &info, NULL), CCS_OK);
    assert_int_equal(info.tokenizer, 1);
    dataset_close(inside);
    ccs_dataset_close(d);
}

static void check_sample(struct ccs_dataset *d, struct ccs_reader *r, uint64_t position) {
    struct ccs_record record = {.struct_size = sizeof(record)};
    struct ccs_record found = {.struct_size = sizeof(found)};
    const struct ccs_sample *s = NULL;
    const struct ccs_text *captions = NULL;
    uint32_t count = 0;
    assert_int_equal(ccs_dataset_record(d, position, &record, NULL), CCS_OK);
    assert_int_equal(record.id, position * STEP);
    assert_int_equal(record.position, position);
    assert_int_equal(record.label, position % 7 == 3 ? -1 : (int)(position % 10));
    assert_int_equal(record.format, CCS_IMAGE_JPEG);
    assert_int_equal(record.shard, position / 40);
    assert_int_equal(ccs_dataset_find(d, record.id, &found, NULL), CCS_OK);
    assert_memory_equal(&found, &record, sizeof(record));
    assert_int_equal(ccs_reader_get(r, position, &s, NULL), CCS_OK);
    assert_int_equal(s->struct_size, sizeof(*s));
    assert_memory_equal(s->record, &record, sizeof(record));
    assert_int_equal(hash64(s->image, record.image_bytes), record.image_hash);
    assert_true(strlen(s->key) > 0);
    char *kept[8];
    for (uint32_t k = 0; k < record.captions; k++) {
        kept[k] = strndup(s->captions[k].data, s->captions[k].size);
    }
    assert_int_equal(ccs_reader_captions(r, position, &captions, &count, NULL), CCS_OK);
    assert_int_equal(count, record.captions);
    for (uint32_t k = 0; k < count; k++) {
        assert_int_equal(captions[k].size, strlen(kept[k]));
        assert_memory_equal(captions[k].data, kept[k], captions[k].size);
        free(kept[k]);
    }
}

TEST(samples_are_read_in_any_order) {
    struct ccs_dataset *d = open_made();
    struct ccs_reader *r = NULL;
    uint64_t ids[SAMPLES];
    assert_int_equal(ccs_reader_open(&r, d, NULL), CCS_OK);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        check_sample(d, r, i * 37 % SAMPLES);
    }
    assert_int_equal(ccs_dataset_ids(d, ids, 10, SAMPLES - 10, NULL), CCS_OK);
    for (uint64_t i = 0; i < SAMPLES - 10; i++) {
        assert_int_equal(ids[i], (10 + i) * STEP);
    }
    ccs_reader_close(r);
    ccs_dataset_close(d);
}

TEST(a_dataset_may_be_read_after_fork) {
    struct ccs_dataset *d = open_made();
    struct ccs_reader *r = NULL;
    const struct ccs_sample *s = NULL;
    assert_int_equal(ccs_reader_open(&r, d, NULL), CCS_OK);
    assert_int_equal(ccs_reader_get(r, 0, &s, NULL), CCS_OK);
    pid_t child = fork();
    if (child == 0) {
        int32_t got = CCS_OK;
        for (uint64_t i = 0; i < SAMPLES && got == CCS_OK; i++) {
            got = ccs_reader_get(r, i, &s, NULL);
        }
        _exit(got == CCS_OK ? 0 : 1);
    }
    int left = 0;
    assert_int_equal(waitpid(child, &left, 0), child);
    assert_int_equal(left, 0);
    ccs_reader_close(r);
    ccs_dataset_close(d);
}

TEST(wrong_arguments_are_refused) {
    struct ccs_dataset *d = open_made();
    struct ccs_reader *r = NULL;
    struct ccs_error err;
    assert_int_equal(ccs_reader_open(&r, d, NULL), CCS_OK);
    struct ccs_dataset *none = d;
    const struct ccs_sample *s = (const void *)&err;
    const struct ccs_text *texts = (const void *)&err;
    uint32_t count = 1;
    uint64_t ids[2];
    struct ccs_record record = {.struct_size = sizeof(record)};
    struct ccs_dataset_info info = {0};
    library_check_error(ccs_dataset_open(&none, test_temp_path("none"), &err), CCS_ERROR_NOTFOUND,
                        &err, test_temp_path("none"));
    assert_null(none);
    library_check_error(ccs_dataset_open(&none, NULL, &err), CCS_ERROR_INVALID, &err,
                        "path is NULL");
    library_check_error(ccs_dataset_open(NULL, "d", &err), CCS_ERROR_INVALID, &err, "out is NULL");
    library_check_error(ccs_dataset_get_info(d, &info, &err), CCS_ERROR_INVALID, &err,
                        "struct_size");
    library_check_error(ccs_dataset_get_info(NULL, &info, &err), CCS_ERROR_INVALID, &err, "NULL");
    library_check_error(ccs_dataset_record(d, SAMPLES, &record, &err), CCS_ERROR_NOTFOUND, &err,
                        "position 100 does not exist: there are 100 samples");
    library_check_error(ccs_dataset_record(d, 0, NULL, &err), CCS_ERROR_INVALID, &err, "NULL");
    library_check_error(ccs_dataset_find(d, 1, &record, &err), CCS_ERROR_NOTFOUND, &err,
                        "no sample 1");
    library_check_error(ccs_dataset_find(NULL, 1, &record, &err), CCS_ERROR_INVALID, &err, "NULL");
    library_check_error(ccs_dataset_ids(d, ids, SAMPLES - 1, 2, &err), CCS_ERROR_NOTFOUND, &err,
                        "99 to 100");
    library_check_error(ccs_dataset_ids(d, ids, UINT64_MAX, 2, &err), CCS_ERROR_NOTFOUND, &err,
                        "not among");
    library_check_error(ccs_dataset_ids(d, NULL, 0, 1, &err), CCS_ERROR_INVALID, &err, "NULL");
    library_check_error(ccs_reader_open(NULL, d, &err), CCS_ERROR_INVALID, &err, "NULL");
    library_check_error(ccs_reader_get(r, SAMPLES, &s, &err), CCS_ERROR_NOTFOUND, &err,
                        "position 100");
    assert_null(s);
    library_check_error(ccs_reader_get(NULL, 0, &s, &err), CCS_ERROR_INVALID, &err, "NULL");
    library_check_error(ccs_reader_captions(r, SAMPLES, &texts, &count, &err), CCS_ERROR_NOTFOUND,
                        &err, "position 100");
    assert_null(texts);
    assert_int_equal(count, 0);
    ccs_reader_close(r);
    ccs_reader_close(NULL);
    ccs_dataset_close(d);
    ccs_dataset_close(NULL);
}

TEST(a_damaged_sample_is_corrupt) {
    const char *dir = make();
    struct ccs_dataset *d = NULL;
    struct ccs_reader *r = NULL;
    struct ccs_error err;
    const struct ccs_sample *s = NULL;
    image_dataset_damage(dir, 5 * STEP);
    assert_int_equal(ccs_dataset_open(&d, dir, NULL), CCS_OK);
    assert_int_equal(ccs_reader_open(&r, d, NULL), CCS_OK);
    library_check_error(ccs_reader_get(r, 5, &s, &err), CCS_ERROR_CORRUPT, &err, "sample 15");
    assert_int_equal(ccs_reader_get(r, 6, &s, &err), CCS_OK);
    ccs_reader_close(r);
    ccs_dataset_close(d);
}

TEST(structs_of_other_versions_are_filled_as_far_as_they_go) {
    struct ccs_dataset *d = open_made();
    struct {
        struct ccs_record record;
        uint64_t later[2];
    } wide;
    struct ccs_record narrow;
    memset(&narrow, 0xaa, sizeof(narrow));
    narrow.struct_size = offsetof(struct ccs_record, image_hash);
    assert_int_equal(ccs_dataset_record(d, 7, &narrow, NULL), CCS_OK);
    assert_int_equal(narrow.struct_size, offsetof(struct ccs_record, image_hash));
    assert_int_equal(narrow.id, 7 * STEP);
    assert_int_equal(narrow.position, 7);
    assert_int_equal(narrow.image_hash, UINT64_C(0xaaaaaaaaaaaaaaaa));
    memset(&wide, 0xaa, sizeof(wide));
    wide.record.struct_size = sizeof(wide);
    assert_int_equal(ccs_dataset_record(d, 7, &wide.record, NULL), CCS_OK);
    assert_int_equal(wide.record.id, 7 * STEP);
    assert_int_equal(wide.later[0], 0);
    assert_int_equal(wide.later[1], 0);
    ccs_dataset_close(d);
}
