/*
 * test: how a test file of this tree looks.
 *
 *     #include "formats/base/bytes.h"
 *     #include "tests/support/test.h"
 *
 *     TEST(reads_past_end_are_refused)
 *     {
 *         ...
 *         assert_int_equal(s, STATUS_CORRUPT);
 *     }
 *
 * A file holds TEST cases and nothing else: no main, no list. CMake reads the lines that begin
 * with `TEST(` and registers each case by itself, so that every case has its own process, its own
 * time limit and its own line in the summary. By hand: `test_x` runs all cases, `test_x --case
 * NAME` one, `test_x --list` names them.
 *
 * Assertions are cmocka's (assert_true, assert_int_equal, assert_memory_equal, ...), with
 * assert_ok and assert_status for functions that fill a struct error.
 *
 * Threading : assertions, test_skip and the helpers only on the thread that runs the case.
 * Ownership : paths belong to the harness and live until the case ends, except where said.
 */
#ifndef TESTS_SUPPORT_TEST_H
#define TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "formats/base/status.h"

struct test_case {
    const char *name;
    void (*run)(void **state);
    const char *file;
    int line;
    struct test_case *next; /* filled by test_register */
};

/* Adds a case to this program's list; called before main by TEST. */
void test_register(struct test_case *c);

/* Opens one test case. The name must be unique in its file. */
#define TEST(case_name)                                                                            \
    static void test_run_##case_name(void **state);                                                \
    static struct test_case test_case_##case_name = {#case_name, test_run_##case_name, __FILE__,   \
                                                     __LINE__, NULL};                              \
    __attribute__((constructor)) static void test_add_##case_name(void) {                          \
        test_register(&test_case_##case_name);                                                     \
    }                                                                                              \
    static void test_run_##case_name(void **state __attribute__((unused)))

/* Ends the case as skipped and prints the reason, which says what was missing. */
void test_skip(const char *reason, ...) __attribute__((format(printf, 1, 2), noreturn));

/* A fresh folder for this case alone, made at the first call, removed with all in it at the end. */
const char *test_temp_dir(void);

/* printf-style path inside test_temp_dir(). */
const char *test_temp_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The file or folder `rel` of the test data named by the environment variable
 * CCSTREAM_TEST_DATA; skips the case when the variable is not set or the file is not there. */
const char *test_data_path(const char *rel);

/* A file of this source tree, e.g. test_source_path("tests/golden/..."). */
const char *test_source_path(const char *rel);

/* Seed for tests that draw: 1, or the value of CCSTREAM_TEST_SEED. Printed when a case fails. */
uint64_t test_seed(void);

/* Sanitizers this build runs under ("" = none): for cases whose cost must shrink there. */
const char *test_sanitizer(void);

/* `step` under sanitizers, else 1: from one to the next of cases that execute the same code with
 * other values, such as flips and kills. Without sanitizers all run, and their results are
 * compared. */
uint32_t test_step(uint32_t step);

/* Reads a whole file into fresh memory with one zero byte after it; free() is the caller's.
 * Fails the case when the file cannot be read. */
uint8_t *test_read_file(const char *path, size_t *size_bytes);

/* Fails the case if the files differ, or one cannot be read. */
void test_same_file(const char *a, const char *b);

/* Writes a whole file, making it or replacing it. Fails the case on error. */
void test_write_file(const char *path, const void *data, size_t size_bytes);

/* Starts a process that does nothing but wait for signals. */
pid_t test_child(void);

/* Removes a file or a folder with everything in it. */
void test_remove_tree(const char *path);

/* "OK", "NOTFOUND", ...; "UNKNOWN" */
const char *status_name(enum status s);

/* Runs `expr` and demands the given status; prints the error's text otherwise. `err` is a
 * struct error the expression fills. */
#define assert_status(expr, expected, err)                                                         \
    test_check_status((expr), (expected), &(err), #expr, __FILE__, __LINE__)
#define assert_ok(expr, err) assert_status(expr, STATUS_OK, err)

void test_check_status(enum status got,
                       enum status expected,
                       const struct error *err,
                       const char *expr,
                       const char *file,
                       int line);

#endif
