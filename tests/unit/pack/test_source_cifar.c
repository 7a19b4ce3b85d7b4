/*
 * CIFAR's binaries: labels, names, pixels, and files that are none.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/image/image_codec.h"
#include "pack/source/source.h"
#include "tests/support/source_rows.h"
#include "tests/support/test.h"

enum { PIXELS = 32 * 32 };

/* The value of a colour in image i: every plane its own pattern. */
static uint8_t pixel(int img, int plane, int at) {
    return (uint8_t)(img * 17 + plane * 101 + at / 3);
}

/* `count` records of label_count labels each; the class of record i is (first + i) % classes. */
static void write_records(const char *path, int count, int label_count, int first) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < count; i++) {
        if (label_count == 2) {
            fputc(i % 20, f);
        }
        fputc((first + i) % (label_count == 2 ? 100 : 10), f);
        for (int plane = 0; plane < 3; plane++) {
            for (int at = 0; at < PIXELS; at++) {
                fputc(pixel(i, plane, at), f);
            }
        }
    }
    assert_int_equal(fclose(f), 0);
}

static void
expect_image(struct source_row *row, int img, int side, uint8_t (*value)(int, int, int)) {
    struct image_decoder *decoder = NULL;
    struct image_view view;
    struct image_box box;
    struct image_decode_options how = {.min_width_px = side, .min_height_px = side};
    struct error err = {0};
    assert_ok(source_row_load(row, &err), err);
    assert_int_equal(image_format_of(row->image.data, row->image.size_bytes), IMAGE_FORMAT_PNG);
    assert_ok(image_decoder_create(&decoder, NULL, &err), err);
    assert_ok(
        image_decode(decoder, &view, &box, row->image.data, row->image.size_bytes, &how, &err),
        err);
    assert_int_equal(view.width_px, side);
    assert_int_equal(view.height_px, side);
    for (int at = 0; at < side * side; at++) {
        const uint8_t *p =
            view.data + (size_t)(at / side) * view.stride_bytes + (size_t)(at % side) * 3;
        for (int plane = 0; plane < 3; plane++) {
            assert_int_equal(p[plane], value(img, plane, at));
        }
    }
    image_decoder_destroy(decoder);
}

static void expect_pixels(struct source_row *row, int img) {
    expect_image(row, img, 32, pixel);
}

TEST(cifar10_records_are_rows) {
    struct source_reading r;
    const char *path = test_temp_path("test_batch.bin");
    write_records(path, 12, 1, 3);
    source_reading_open(&r, path, NULL);
    assert_int_equal(source_class_count(r.source), 10);
    assert_string_equal(source_class_name(r.source, 9), "truck");
    for (int i = 0; i < 12; i++) {
        assert_non_null(source_reading_next(&r));
        assert_int_equal(r.row.reason, REASON_NONE);
        assert_int_equal(r.row.class_index, (3 + i) % 10);
        assert_true(r.row.has_number && r.row.number == (uint64_t)i);
        expect_pixels(&r.row, i);
    }
    assert_string_equal(r.row.key, "00011");
    static const char json[] = "{\"class\":\"deer\"}";
    assert_int_equal(r.row.json.size_bytes, strlen(json));
    assert_memory_equal(r.row.json.data, json, strlen(json));
    assert_null(source_reading_next(&r));
    uint64_t at, size;
    source_position(r.source, &at, &size);
    assert_true(at == size && size == 12 * 3073);
    source_reading_close(&r);
}

TEST(cifar100_has_two_labels) {
    struct source_reading r;
    const char *path = test_temp_path("train.bin");
    write_records(path, 30, 2, 90);
    source_reading_open(&r, path, NULL);
    assert_int_equal(source_class_count(r.source), 100);
    assert_non_null(source_reading_next(&r));
    assert_int_equal(r.row.class_index, 90);
    static const char json[] = "{\"class\":\"train\",\"coarse_label\":0}";
    assert_int_equal(r.row.json.size_bytes, strlen(json));
    assert_memory_equal(r.row.json.data, json, strlen(json));
    expect_pixels(&r.row, 0);
    source_reading_close(&r);
}

TEST(folders_of_batches_are_one_source) {
    struct source_reading r;
    const char *folder = test_temp_path("cifar-10-batches-bin");
    assert_int_equal(mkdir(folder, 0700), 0);
    write_records(test_temp_path("cifar-10-batches-bin/data_batch_1.bin"), 3, 1, 0);
    write_records(test_temp_path("cifar-10-batches-bin/data_batch_2.bin"), 2, 1, 5);
    write_records(test_temp_path("cifar-10-batches-bin/test_batch.bin"), 9, 1, 0);
    const char *names = "zero\none\r\ntwo\n3\n4\n5\n6\n7\n8\nnine\n\n";
    test_write_file(test_temp_path("cifar-10-batches-bin/batches.meta.txt"), names, strlen(names));
    source_reading_open(&r, folder, NULL);
    assert_string_equal(source_class_name(r.source, 1), "one");
    assert_string_equal(source_class_name(r.source, 9), "nine");
    static const int classes[] = {0, 1, 2, 5, 6};
    for (int i = 0; i < 5; i++) {
        assert_non_null(source_reading_next(&r));
        assert_int_equal(r.row.class_index, classes[i]);
        assert_true(r.row.number == (uint64_t)i);
    }
    assert_null(source_reading_next(&r));
    source_reading_close(&r);
}

static void expect_refused(const char *path, enum source_kind kind, const char *message) {
    struct source_options how = {.kind = kind};
    struct source *s = NULL;
    struct error err = {0};
    assert_status(source_open(&s, path, &how, &err), STATUS_CORRUPT, err);
    if (!strstr(err.text, message) || !strstr(err.text, path)) {
        fail_msg("no '%s' in: %s", message, err.text);
    }
    assert_null(s);
}

TEST(files_that_are_not_cifar_are_refused) {
    size_t size = 0;
    const char *path = test_temp_path("a.bin");
    write_records(path, 2, 1, 0);
    uint8_t *data = test_read_file(path, &size);
    test_write_file(path, data, size - 1);
    expect_refused(path, SOURCE_CIFAR, "6145 bytes are not records");
    data[3073] = 10;
    test_write_file(path, data, size);
    expect_refused(path, SOURCE_CIFAR, "not records");
    expect_refused(path, SOURCE_AUTO, "neither a tar");
    free(data);
    write_records(path, 2, 1, 0);
    const char *names = "one\ntwo\n";
    test_write_file(test_temp_path("batches.meta.txt"), names, strlen(names));
    struct source_options how = {0};
    struct source *s = NULL;
    struct error err = {0};
    assert_status(source_open(&s, path, &how, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "10 names of classes"));
    const char *folder = test_temp_path("mixed");
    assert_int_equal(mkdir(folder, 0700), 0);
    write_records(test_temp_path("mixed/data_batch_1.bin"), 1, 1, 0);
    write_records(test_temp_path("mixed/data_batch_2.bin"), 1, 2, 0);
    assert_ok(source_open(&s, folder, &how, &err), err);
    uint64_t rows = 0;
    assert_status(source_skip(s, 5, &rows, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "of the same kind"));
    assert_int_equal(rows, 1);
    source_close(s);
}

/* A label that none of the first records has is one bad row. */
TEST(labels_out_of_range_are_bad_rows) {
    struct source_reading r;
    size_t size = 0;
    const char *path = test_temp_path("a.bin");
    write_records(path, 102, 1, 0);
    uint8_t *data = test_read_file(path, &size);
    data[101 * 3073] = 10;
    test_write_file(path, data, size);
    free(data);
    source_reading_open(&r, path, NULL);
    for (int i = 0; i < 102; i++) {
        assert_non_null(source_reading_next(&r));
        assert_int_equal(r.row.reason, i == 101 ? REASON_ROW_BAD : REASON_NONE);
        assert_int_equal(r.row.class_index, i == 101 ? -1 : i % 10);
    }
    source_reading_close(&r);
}

/* ---- STL-10 ---- */

enum { STL_SIDE = 96 };

/* At a place that is counted row by row. */
static uint8_t stl_pixel(int img, int plane, int at) {
    return (uint8_t)(img * 31 + plane * 80 + 2 * (at / STL_SIDE) + at % STL_SIDE / 7);
}

/* `count` images, column by column. */
static void write_images(const char *path, int count) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < count; i++) {
        for (int plane = 0; plane < 3; plane++) {
            for (int x = 0; x < STL_SIDE; x++) {
                for (int y = 0; y < STL_SIDE; y++) {
                    fputc(stl_pixel(i, plane, y * STL_SIDE + x), f);
                }
            }
        }
    }
    assert_int_equal(fclose(f), 0);
}

TEST(stl10_has_labels_from_1_in_another_file) {
    struct source_reading r;
    const char *folder = test_temp_path("stl10_binary");
    assert_int_equal(mkdir(folder, 0700), 0);
    const char *train = test_temp_path("stl10_binary/train_X.bin");
    write_images(train, 4);
    static const uint8_t labels[] = {10, 1, 11, 4};
    test_write_file(test_temp_path("stl10_binary/train_y.bin"), labels, 4);
    for (int i = 0; i < 2; i++) { /* the file, and the folder */
        source_reading_open(&r, i == 0 ? train : folder, NULL);
        assert_int_equal(source_class_count(r.source), 10);
        assert_string_equal(source_class_name(r.source, 7), "monkey");
        static const int32_t classes[] = {9, 0, -1, 3};
        for (int k = 0; k < 4; k++) {
            assert_non_null(source_reading_next(&r));
            assert_int_equal(r.row.reason, k == 2 ? REASON_ROW_BAD : REASON_NONE);
            assert_int_equal(r.row.class_index, classes[k]);
            if (k != 2) {
                expect_image(&r.row, k, STL_SIDE, stl_pixel);
            } else {
                assert_string_equal(r.row.detail, "label 11: there are 10 classes");
            }
        }
        assert_string_equal(r.row.key, "00003");
        static const char json[] = "{\"class\":\"cat\"}";
        assert_int_equal(r.row.json.size_bytes, strlen(json));
        assert_memory_equal(r.row.json.data, json, strlen(json));
        assert_null(source_reading_next(&r));
        source_reading_close(&r);
    }
    const char *names = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n";
    test_write_file(test_temp_path("stl10_binary/class_names.txt"), names, strlen(names));
    source_reading_open(&r, train, NULL);
    assert_string_equal(source_class_name(r.source, 9), "j");
    source_reading_close(&r);
}

TEST(unlabelled_images_of_stl10_have_no_class) {
    struct source_reading r;
    const char *path = test_temp_path("unlabeled_X.bin");
    write_images(path, 2);
    source_reading_open(&r, path, NULL);
    assert_int_equal(source_class_count(r.source), 0);
    for (int i = 0; i < 2; i++) {
        assert_non_null(source_reading_next(&r));
        assert_int_equal(r.row.reason, REASON_NONE);
        assert_int_equal(r.row.class_index, -1);
        assert_int_equal(r.row.json.size_bytes, 0);
        expect_image(&r.row, i, STL_SIDE, stl_pixel);
    }
    assert_null(source_reading_next(&r));
    source_reading_close(&r);
}

TEST(stl10_files_that_are_damaged_are_refused) {
    size_t size = 0;
    const char *path = test_temp_path("test_X.bin");
    write_images(path, 2);
    struct source_options how = {0};
    struct source *s = NULL;
    struct error err = {0};
    assert_status(source_open(&s, path, &how, &err), STATUS_NOTFOUND, err);
    assert_non_null(strstr(err.text, "test_y.bin"));
    test_write_file(test_temp_path("test_y.bin"), "\1\2\3", 3);
    expect_refused(path, SOURCE_AUTO, "3 labels for the 2 images");
    uint8_t *data = test_read_file(path, &size);
    test_write_file(path, data, size - 1);
    expect_refused(path, SOURCE_CIFAR, "named *_X.bin, of 27648");
    free(data);
}
