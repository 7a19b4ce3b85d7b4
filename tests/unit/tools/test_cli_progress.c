/* Progress where stderr is a file: a line a minute, without what only a terminal understands. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/test.h"
#include "tools/cli/cli.h"

static const int64_t MINUTE_NS = 60 * 1000 * 1000 * 1000LL;

/* Reports 250 of 1,000 as if the last line were `ago_ns` ago; what stderr gets is in `out`. */
static void report(char out[256], bool quiet, int64_t ago_ns) {
    struct cli_progress p;
    char path[1024];
    snprintf(path, sizeof path, "%s", test_temp_path("stderr.txt"));
    fflush(stderr);
    const int saved = dup(STDERR_FILENO);
    const int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(saved >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    cli_progress_init(&p, "samples", quiet);
    p.started_ns -= 2 * MINUTE_NS;
    p.drawn_ns -= ago_ns;
    cli_progress_update(&p, 250, 1000, 0, "3 rejected");
    cli_progress_update(&p, 251, 1000, 0, "3 rejected");
    cli_progress_clear(&p);
    fflush(stderr);
    (void)dup2(saved, STDERR_FILENO);
    close(saved);
    const ssize_t n = pread(file, out, 255, 0);
    close(file);
    assert_true(n >= 0);
    out[n] = '\0';
}

TEST(a_file_gets_one_line_after_a_minute) {
    char out[256];
    report(out, false, MINUTE_NS);
    assert_true(strncmp(out, "25 %  250/1,000 samples  2.1/s  ", 32) == 0);
    assert_true(strstr(out, "left  3 rejected\n") != NULL);
    assert_true(strchr(out, '\r') == NULL);
    assert_true(strchr(out, '\n') == out + strlen(out) - 1); /* one line */
}

TEST(a_file_gets_nothing_within_the_first_minute) {
    char out[256];
    report(out, false, 0);
    assert_true(out[0] == '\0');
}

TEST(quiet_programs_write_nothing) {
    char out[256];
    report(out, true, MINUTE_NS);
    assert_true(out[0] == '\0');
}
