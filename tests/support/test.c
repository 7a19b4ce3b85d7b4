/*
 * The harness: a list of cases, and helpers that nearly every test file uses.
 *
 * Cases register themselves before main, in the order of the file. Each runs as a cmocka group of
 * one, so that teardown (removing the temporary folder) also happens after a failed or skipped
 * case. cmocka leaves a case by longjmp, therefore everything to clean up lies in `current`.
 */
#include "tests/support/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_SLOT_COUNT = 64, /* paths a case may hold at once; older ones are reused in turn */
    PATH_SIZE_BYTES = 1024,
    EXIT_SKIPPED = 77
};

static struct {
    char temp_dir[PATH_SIZE_BYTES];
    bool skipped;
} current;

static char paths[PATH_SLOT_COUNT][PATH_SIZE_BYTES];
static size_t next_slot;

static struct test_case *first_case;
static struct test_case *last_case;

void test_register(struct test_case *c) {
    if (last_case != NULL) {
        last_case->next = c;
    } else {
        first_case = c;
    }
    last_case = c;
}

static char *next_path(void) {
    return paths[next_slot++ % PATH_SLOT_COUNT];
}

static const char *join_path(const char *dir, const char *rel) {
    char *path = next_path();
    int n = snprintf(path, PATH_SIZE_BYTES, "%s/%s", dir, rel);
    if (n < 0 || n >= PATH_SIZE_BYTES) {
        fail_msg("path too long: %s/%s", dir, rel);
    }
    return path;
}

void test_skip(const char *reason, ...) {
    va_list args;
    va_start(args, reason);
    printf("skipped: ");
    vprintf(reason, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
    current.skipped = true;
    skip();
    abort(); /* skip() leaves by longjmp, which its declaration does not say */
}

const char *test_temp_dir(void) {
    if (current.temp_dir[0] == '\0') {
        const char *base = getenv("TMPDIR");
        int n = snprintf(current.temp_dir, sizeof(current.temp_dir), "%s/ccstream-test.XXXXXX",
                         base != NULL && base[0] != '\0' ? base : "/tmp");
        if (n < 0 || (size_t)n >= sizeof(current.temp_dir) || mkdtemp(current.temp_dir) == NULL) {
            int err = errno;
            current.temp_dir[0] = '\0';
            fail_msg("cannot make a temporary folder: %s", strerror(err));
        }
    }
    return current.temp_dir;
}

const char *test_temp_path(const char *fmt, ...) {
    char rel[PATH_SIZE_BYTES];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(rel, sizeof(rel), fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(rel)) {
        fail_msg("path too long");
    }
    return join_path(test_temp_dir(), rel);
}

const char *test_data_path(const char *rel) {
    const char *data = getenv("CCSTREAM_TEST_DATA");
    if (data == NULL || data[0] == '\0') {
        test_skip("CCSTREAM_TEST_DATA is not set, and the case reads %s from it", rel);
    }
    const char *path = join_path(data, rel);
    if (access(path, R_OK) != 0) {
        test_skip("test data %s is not there", rel);
    }
    return path;
}

const char *test_source_path(const char *rel) {
    const char *root = getenv("SRC");
    return join_path(root != NULL && root[0] != '\0' ? root : ".", rel);
}

uint64_t test_seed(void) {
    const char *text = getenv("CCSTREAM_TEST_SEED");
    return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 0) : 1;
}

const char *test_sanitizer(void) {
    const char *text = getenv("CCS_SANITIZE");
    return text != NULL ? text : "";
}

uint32_t test_step(uint32_t step) {
    return test_sanitizer()[0] != '\0' ? step : 1;
}

uint8_t *test_read_file(const char *path, size_t *size_bytes) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        fail_msg("cannot open %s: %s", path, strerror(errno));
        return NULL;
    }
    size_t capacity = 4096;
    size_t used = 0;
    uint8_t *data = NULL;
    for (;;) {
        uint8_t *grown = realloc(data, capacity);
        if (grown == NULL) {
            break;
        }
        data = grown;
        used += fread(data + used, 1, capacity - 1 - used, f);
        if (used < capacity - 1) {
            break;
        }
        capacity *= 2;
    }
    bool bad = ferror(f) != 0 || data == NULL || used == capacity - 1;
    fclose(f);
    if (bad) {
        free(data);
        fail_msg("cannot read %s", path);
        return NULL;
    }
    data[used] = 0;
    *size_bytes = used;
    return data;
}

pid_t test_child(void) {
    const pid_t pid = fork();
    if (pid == 0) {
        for (;;) {
            pause();
        }
    }
    assert_true(pid > 0);
    return pid;
}

void test_same_file(const char *a, const char *b) {
    size_t sizes[2] = {0};
    uint8_t *data[2] = {test_read_file(a, &sizes[0]), test_read_file(b, &sizes[1])};
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(data[0], data[1], sizes[0]);
    free(data[0]);
    free(data[1]);
}

void test_write_file(const char *path, const void *data, size_t size_bytes) {
    FILE *f = fopen(path, "wb");
    if (f == NULL) {
        fail_msg("cannot create %s: %s", path, strerror(errno));
        return;
    }
    size_t written = size_bytes > 0 ? fwrite(data, 1, size_bytes, f) : 0;
    if (fclose(f) != 0 || written != size_bytes) {
        fail_msg("cannot write %s", path);
    }
}

/* Works on directory descriptors: a folder the test made unreadable is opened up first. */
static void remove_at(int dir_fd, const char *name) {
    if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT) {
        return;
    }
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && fchmodat(dir_fd, name, 0700, 0) == 0) {
        fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (fd < 0) {
        return;
    }
    (void)fchmod(fd, 0700);
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        close(fd);
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            remove_at(fd, entry->d_name);
        }
    }
    closedir(dir);
    (void)unlinkat(dir_fd, name, AT_REMOVEDIR);
}

void test_remove_tree(const char *path) {
    remove_at(AT_FDCWD, path);
}

const char *status_name(enum status s) {
    switch (s) {
#define X(name, value, text)                                                                       \
    case STATUS_##name:                                                                            \
        return #name;
        STATUS_LIST(X)
#undef X
    }
    return "UNKNOWN";
}

void test_check_status(enum status got,
                       enum status expected,
                       const struct error *err,
                       const char *expr,
                       const char *file,
                       int line) {
    if (got != expected) {
        print_error("%s:%d: %s\n  expected %s, got %s%s%s\n", file, line, expr,
                    status_name(expected), status_name(got),
                    got < STATUS_OK && err->text[0] != '\0' ? ": " : "",
                    got < STATUS_OK ? err->text : "");
        _fail(file, line);
    }
}

static int case_teardown(void **state) {
    (void)state;
    if (current.temp_dir[0] != '\0') {
        test_remove_tree(current.temp_dir);
    }
    current.temp_dir[0] = '\0';
    return 0;
}

static int run_case(const struct test_case *c) {
    current.skipped = false;
    const struct CMUnitTest test[] = {{c->name, c->run, NULL, case_teardown, NULL}};
    if (cmocka_run_group_tests_name(c->name, test, NULL, NULL) != 0) {
        printf("%s:%d: case %s failed (seed %llu)\n", c->file, c->line, c->name,
               (unsigned long long)test_seed());
        return EXIT_FAILURE;
    }
    return current.skipped ? EXIT_SKIPPED : EXIT_SUCCESS;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (const struct test_case *c = first_case; c != NULL; c = c->next) {
            printf("%s\n", c->name);
        }
        return EXIT_SUCCESS;
    }
    const char *wanted = argc == 3 && strcmp(argv[1], "--case") == 0 ? argv[2] : NULL;
    if (argc != 1 && wanted == NULL) {
        fprintf(stderr, "usage: %s [--list | --case NAME]\n", argv[0]);
        return 64;
    }
    int worst = EXIT_SUCCESS;
    bool found = false;
    for (const struct test_case *c = first_case; c != NULL; c = c->next) {
        if (wanted != NULL && strcmp(wanted, c->name) != 0) {
            continue;
        }
        found = true;
        int result = run_case(c);
        if (wanted != NULL) {
            return result;
        }
        worst = result == EXIT_FAILURE ? EXIT_FAILURE : worst;
    }
    if (!found) {
        fprintf(stderr, "no such case: %s\n", wanted != NULL ? wanted : "(none in this program)");
        return 64;
    }
    return worst;
}
