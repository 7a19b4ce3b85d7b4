/* Arrays as .npy files: what npy_write wrote, and what npy_read refuses. */
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "tests/support/test.h"
#include "tools/cli/npy.h"

TEST(an_array_of_another_type_or_a_torn_one_is_refused) {
    struct error err = {0};
    void *data;
    uint64_t rows;
    uint64_t columns;
    const float values[6] = {1, 2, 3, 4, 5, 6};
    const char *path = test_temp_path("a.npy");
    assert_ok(npy_write(path, "<f4", values, 4, 3, 2, &err), err);
    assert_int_equal(npy_read(path, "<i4", &data, &rows, &columns, &err), STATUS_CORRUPT);
    assert_ok(npy_read(path, "<f4", &data, &rows, &columns, &err), err);
    assert_int_equal(rows, 3);
    assert_int_equal(columns, 2);
    assert_memory_equal(data, values, sizeof values);
    free(data);
    assert_ok(file_posix()->truncate(file_posix()->context, path, 64 + 23, &err), err);
    assert_int_equal(npy_read(path, "<f4", &data, &rows, &columns, &err), STATUS_CORRUPT);
    assert_ok(file_posix()->truncate(file_posix()->context, path, 9, &err), err);
    assert_int_equal(npy_read(path, "<f4", &data, &rows, &columns, &err), STATUS_CORRUPT);
}
