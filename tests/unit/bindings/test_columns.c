/* Columns through libccstream: written, listed, read by id, replaced and removed; and what is
 * refused. */
#include <string.h>

#include "bindings/c/ccstream.h"
#include "tests/support/image_dataset.h"
#include "tests/support/library.h"
#include "tests/support/test.h"

enum { SAMPLES = 100, STEP = 3, VALUES = 4 };

static const char *make(void) {
    struct image_dataset how;
    image_dataset_default(&how);
    how.tokenizer = false;
    const char *dir = test_temp_path("d");
    image_dataset_make(dir, &how);
    return dir;
}

static struct ccs_attached_info numbers(void) {
    return (struct ccs_attached_info){.struct_size = sizeof(struct ccs_attached_info),
                                      .kind = "f32",
                                      .values = VALUES,
                                      .vectors = 2};
}

/* Every second sample has a row of its id and three more numbers. */
static int32_t write_numbers(const char *dir, float plus, bool replace, struct ccs_error *err) {
    struct ccs_attached_writer *w = NULL;
    const struct ccs_attached_info info = numbers();
    int32_t s = ccs_attached_writer_open(&w, dir, "teacher", &info, replace, err);
    for (uint64_t i = 0; s == CCS_OK && i < SAMPLES; i += 2) {
        const uint64_t id = i * STEP;
        const float row[VALUES] = {(float)id + plus, 1, 2, 3};
        s = ccs_attached_writer_add(w, &id, 1, row, NULL, err);
    }
    s = s == CCS_OK ? ccs_attached_writer_finish(w, err) : s;
    ccs_attached_writer_close(w);
    return s;
}

TEST(a_column_is_written_listed_read_and_removed) {
    const char *dir = make();
    struct ccs_error err;
    struct ccs_dataset *d = NULL;
    struct ccs_attached *c = NULL;
    struct ccs_attached_info info = {.struct_size = sizeof(info)};
    struct ccs_text row;
    uint64_t ids[SAMPLES / 2];
    assert_int_equal(write_numbers(dir, 0, false, &err), CCS_OK);
    assert_int_equal(write_numbers(dir, 0, false, &err), CCS_ERROR_EXISTS);
    assert_non_null(strstr(err.text, "a column 'teacher' exists"));
    assert_int_equal(ccs_dataset_open(&d, dir, &err), CCS_OK);
    assert_string_equal(ccs_dataset_column(d, 0), "teacher");
    assert_null(ccs_dataset_column(d, 1));
    assert_int_equal(ccs_attached_open(&c, d, "teacher", &err), CCS_OK);
    assert_int_equal(ccs_attached_get_info(c, &info, &err), CCS_OK);
    assert_int_equal(info.rows, SAMPLES / 2);
    assert_int_equal(info.values, VALUES);
    assert_int_equal(info.vectors, 2);
    assert_string_equal(info.kind, "f32");
    assert_int_equal(ccs_attached_ids(c, ids, 0, SAMPLES / 2, &err), CCS_OK);
    assert_int_equal(ids[7], 14 * STEP);
    assert_int_equal(ccs_attached_ids(c, ids, 1, SAMPLES / 2, &err), CCS_ERROR_NOTFOUND);

    /* A column that is replaced stays readable as it was opened. */
    assert_int_equal(write_numbers(dir, 0.5F, true, &err), CCS_OK);
    for (uint64_t i = 0; i < SAMPLES; i += 2) {
        float number;
        assert_int_equal(ccs_attached_get(c, i * STEP, &row, &err), CCS_OK);
        assert_int_equal(row.size, VALUES * sizeof(float));
        memcpy(&number, row.data, sizeof(number));
        assert_true(number == (float)(i * STEP));
    }
    assert_int_equal(ccs_attached_get(c, STEP, &row, &err), CCS_ERROR_NOTFOUND);
    assert_non_null(strstr(err.text, "sample 3 has no value in column 'teacher'"));
    ccs_attached_close(c);
    assert_int_equal(ccs_attached_remove(dir, "teacher", &err), CCS_OK);
    assert_int_equal(ccs_attached_remove(dir, "teacher", &err), CCS_ERROR_NOTFOUND);
    assert_null(ccs_dataset_column(d, 0));
    ccs_dataset_close(d);
}

TEST(captions_have_weights_and_sources) {
    static const char row[] = "\x02\xC0\0\0\x80\x3F\0\0\0\x40\0\x01"
                              "one\0two";
    const char *dir = make();
    struct ccs_error err;
    struct ccs_dataset *d = NULL;
    struct ccs_attached *c = NULL;
    struct ccs_attached_writer *w = NULL;
    struct ccs_text out;
    const struct ccs_attached_info info = {.struct_size = sizeof(info), .kind = "captions"};
    const uint64_t id = STEP;
    const uint64_t size = sizeof(row);
    const uint64_t short_size = size - 1;
    assert_int_equal(ccs_attached_writer_open(&w, dir, "long", &info, false, &err), CCS_OK);
    assert_int_equal(ccs_attached_writer_add(w, &id, 1, row, &short_size, &err), CCS_ERROR_USAGE);
    assert_int_equal(ccs_attached_writer_add(w, &id, 1, row, NULL, &err), CCS_ERROR_INVALID);
    ccs_attached_writer_close(w);
    assert_int_equal(ccs_attached_writer_open(&w, dir, "long", &info, false, &err), CCS_OK);
    assert_int_equal(ccs_attached_writer_add(w, &id, 1, row, &size, &err), CCS_OK);
    assert_int_equal(ccs_attached_writer_finish(w, &err), CCS_OK);
    ccs_attached_writer_close(w);
    assert_int_equal(ccs_dataset_open(&d, dir, &err), CCS_OK);
    assert_int_equal(ccs_attached_open(&c, d, "long", &err), CCS_OK);
    assert_int_equal(ccs_attached_get(c, id, &out, &err), CCS_OK);
    assert_int_equal(out.size, size);
    assert_memory_equal(out.data, row, size);
    ccs_attached_close(c);
    ccs_dataset_close(d);
}

TEST(what_is_refused_changes_nothing) {
    const char *dir = make();
    struct ccs_error err;
    struct ccs_dataset *d = NULL;
    struct ccs_attached_writer *w = NULL;
    struct ccs_attached_writer *second = NULL;
    struct ccs_attached_info info = numbers();
    const float row[VALUES] = {0};
    uint64_t id = 2 * STEP;
    assert_int_equal(ccs_attached_writer_open(&w, dir, "x", &info, false, &err), CCS_OK);
    assert_int_equal(ccs_attached_writer_open(&second, dir, "y", &info, false, &err),
                     CCS_ERROR_EXISTS);
    assert_int_equal(ccs_attached_writer_add(w, &id, 1, row, NULL, &err), CCS_OK);
    assert_int_equal(ccs_attached_writer_add(w, &id, 1, row, NULL, &err), CCS_ERROR_USAGE);
    id++;
    assert_int_equal(ccs_attached_writer_add(w, &id, 1, row, NULL, &err), CCS_ERROR_NOTFOUND);
    ccs_attached_writer_close(w); /* without finish */
    assert_int_equal(ccs_attached_writer_open(&w, dir, "No", &info, false, &err), CCS_ERROR_USAGE);
    info.kind = "f99";
    assert_int_equal(ccs_attached_writer_open(&w, dir, "x", &info, false, &err), CCS_ERROR_USAGE);
    info = numbers();
    info.vectors = 3;
    assert_int_equal(ccs_attached_writer_open(&w, dir, "x", &info, false, &err), CCS_ERROR_LIMIT);
    info = numbers();
    assert_int_equal(ccs_attached_writer_open(&w, "http://127.0.0.1:9/d", "x", &info, false, &err),
                     CCS_ERROR_USAGE);
    assert_non_null(strstr(err.text, "a remote dataset is read-only"));
    assert_int_equal(ccs_attached_writer_open(&w, test_temp_path("none"), "x", &info, false, &err),
                     CCS_ERROR_NOTFOUND);
    assert_int_equal(ccs_dataset_open(&d, dir, &err), CCS_OK);
    assert_null(ccs_dataset_column(d, 0));
    ccs_dataset_close(d);
}
