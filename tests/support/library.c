#include "tests/support/library.h"

#include <string.h>

#include "tests/support/test.h"

void library_check_error(int32_t got,
                         int32_t expected,
                         const struct ccs_error *err,
                         const char *text) {
    assert_int_equal(got, expected);
    assert_int_equal(err->status, expected);
    if (strstr(err->text, text) == NULL) {
        fail_msg("'%s' is not in: %s", text, err->text);
    }
}
