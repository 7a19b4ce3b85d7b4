/*
 * The variables that net/location.h and net/aws_profile.h name, by their prefixes.
 */
#include "tests/support/clean_environment.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "tests/support/test.h"

void clean_environment(void) {
    for (char **e = environ; *e != NULL;) {
        char name[64];
        const size_t n = strcspn(*e, "=");
        if (n < sizeof(name) && (strncmp(*e, "AWS_", 4) == 0 || strncmp(*e, "HF_", 3) == 0 ||
                                 strncmp(*e, "XDG_CACHE_HOME", n) == 0 ||
                                 (n >= 6 && strncasecmp(*e + n - 6, "_proxy", 6) == 0))) {
            memcpy(name, *e, n);
            name[n] = '\0';
            assert_int_equal(unsetenv(name), 0); /* moves the later ones up */
        } else {
            e++;
        }
    }
    assert_int_equal(setenv("HOME", test_temp_dir(), 1), 0);
}
