#include "tests/support/library.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
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

void library_use_decimal_comma(void) {
    const char *source = test_temp_path("comma.src");
    char command[1024];
    FILE *f = fopen(source, "w");
    assert_non_null(f);
    fputs("LC_CTYPE\ncopy \"POSIX\"\nEND LC_CTYPE\n"
          "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n",
          f);
    assert_int_equal(fclose(f), 0);
    snprintf(command, sizeof(command), "localedef -c -i '%s' '%s' >'%s' 2>&1", source,
             test_temp_path("comma"), test_temp_path("localedef.log"));
    const int code = system(command); /* 1: it warns of the categories that are not there */
    if (setenv("LOCPATH", test_temp_dir(), 1) != 0 || setlocale(LC_NUMERIC, "comma") == NULL) {
        test_skip("localedef made no locale: exit status %d", code);
    }
    assert_string_equal(localeconv()->decimal_point, ",");
}
