/* Arrays as .npy files: what npy_write wrote, and what npy_read refuses. */
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "tests/support/test.h"
#include "tools/cli/npy.h"

TEST(numbers_of_all_types_are_read) {
    static const struct {
        const char *dtype;
        const uint8_t bytes[8];
        double want;
    } cases[] = {{"<f4", {0, 0, 0xC0, 0xBF}, -1.5},
                 {"<f8", {0x9A, 0x99, 0x99, 0x99, 0x99, 0x99, 0xB9, 0x3F}, 0.1},
                 {"<i8", {0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, -2},
                 {"<u8", {1, 0, 0, 0, 1}, 4294967297.0},
                 {"<i4", {0xFE, 0xFF, 0xFF, 0xFF}, -2},
                 {"<u4", {0xFE, 0xFF, 0xFF, 0xFF}, 4294967294.0},
                 {"<i2", {0, 0x80}, -32768},
                 {"<u2", {0, 0x80}, 32768},
                 {"|i1", {0x80}, -128},
                 {"|u1", {0x80}, 128},
                 {"|b1", {1}, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error err = {0};
        double *data;
        uint64_t rows, columns;
        const char *path = test_temp_path("a.npy");
        const size_t size = (size_t)(cases[i].dtype[2] - '0');
        assert_ok(npy_write(path, cases[i].dtype, cases[i].bytes, size, 1, 0, &err), err);
        assert_ok(npy_read(path, &data, &rows, &columns, &err), err);
        assert_true(rows == 1 && columns == 0 && data[0] == cases[i].want);
        free(data);
    }
}

TEST(an_array_of_another_type_or_a_torn_one_is_refused) {
    struct error err = {0};
    double *data;
    uint64_t rows;
    uint64_t columns;
    const float values[6] = {1, 2, 3, 4, 5, 6};
    const char *path = test_temp_path("a.npy");
    assert_ok(npy_write(path, ">f4", values, 4, 3, 2, &err), err);
    assert_int_equal(npy_read(path, &data, &rows, &columns, &err), STATUS_CORRUPT);
    assert_non_null(strstr(err.text, "numpy.save"));
    assert_ok(npy_write(path, "<f4", values, 4, 3, 2, &err), err);
    assert_ok(npy_read(path, &data, &rows, &columns, &err), err);
    assert_int_equal(rows, 3);
    assert_int_equal(columns, 2);
    assert_true(data[0] == 1 && data[5] == 6);
    free(data);
    assert_ok(file_posix()->truncate(file_posix()->context, path, 64 + 23, &err), err);
    assert_int_equal(npy_read(path, &data, &rows, &columns, &err), STATUS_CORRUPT);
    assert_ok(file_posix()->truncate(file_posix()->context, path, 9, &err), err);
    assert_int_equal(npy_read(path, &data, &rows, &columns, &err), STATUS_CORRUPT);
}
