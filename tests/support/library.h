/*
 * library: what tests of libccstream share.
 *
 * Threading : as the assertions.
 */
#ifndef TESTS_SUPPORT_LIBRARY_H
#define TESTS_SUPPORT_LIBRARY_H

#include "bindings/c/ccstream.h"

/* Fails the case unless a call returned this status and a message that has the text. */
void library_check_error(int32_t got,
                         int32_t expected,
                         const struct ccs_error *err,
                         const char *text);

/* From here on this process writes 0,5 for a half, as programs with a German user interface do. The
 * locale is made in test_temp_dir(); skips the case where localedef is missing. */
void library_use_decimal_comma(void);

#endif
