/*
 * openmp_wait: one environment variable and one exec.
 */
#include "tools/cli/openmp_wait.h"

#include <stdlib.h>
#include <unistd.h>

void openmp_wait_briefly(char **argv) {
    static const char variable[] = "GOMP_SPINCOUNT";
    if (getenv(variable) != NULL || getenv("OMP_WAIT_POLICY") != NULL) {
        return;
    }
    if (setenv(variable, "1000", 1) == 0) {
        (void)execv("/proc/self/exe", argv);
    }
}
