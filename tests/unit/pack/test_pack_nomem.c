/*
 * Every allocation of ours fails in turn, over a run, an append, a merge and an index of tars:
 * an error, nothing half-written under a final name, and then --resume ends in the bytes of an
 * undisturbed run. The C
 * library's malloc is wrapped for calls that come from this program's own text, in which all of
 * ccstream is linked.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "pack/index/index_tar.h"
#include "pack/merge/merge.h"
#include "tests/support/file_memory.h"
#include "tests/support/pack_case.h"
#include "tests/support/test.h"

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

#ifndef SANITIZED

/* Symbols of the linker: where this program's text begins and ends. */
extern const char __executable_start;
extern const char etext;

/* Relaxed: the count alone matters. fail_at 0: none fails. */
static atomic_uint_fast64_t count;
static atomic_uint_fast64_t fail_at;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t number, size_t size);
void *__libc_realloc(void *old, size_t size);

static bool fails(const void *caller) {
    uintptr_t at = (uintptr_t)caller;
    if (at < (uintptr_t)&__executable_start || at >= (uintptr_t)&etext) {
        return false;
    }
    uint64_t number = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) + 1;
    return number == atomic_load_explicit(&fail_at, memory_order_relaxed);
}

__attribute__((visibility("default"), noinline)) void *malloc(size_t size) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

__attribute__((visibility("default"), noinline)) void *calloc(size_t number, size_t size) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(number, size);
}

__attribute__((visibility("default"), noinline)) void *realloc(void *old, size_t size) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(old, size);
}

static const char *tars[2];
static const char *parts[] = {"part-1", "part-2"};

static void make_tars(void) {
    tars[0] = pack_case_tar("a.tar", &(struct pack_case_tar){.rows = 11, .bad_step = 4});
    tars[1] = pack_case_tar("b.tar", &(struct pack_case_tar){.rows = 9, .first = 50});
}

static struct file_system *memory(void) {
    struct error err = {0};
    struct file_system *fs = NULL;
    assert_ok(file_memory_create(&fs, &err), err);
    return fs;
}

enum what { PACK, APPEND, MERGE, INDEX };

static enum status
run(enum what what, const struct file_system *fs, bool resume, struct error *err) {
    struct pack_summary sum;
    memset(err, 0, sizeof(*err));
    if (what == MERGE) {
        struct pack_merge_options o;
        pack_merge_options_default(&o);
        o.fs = fs;
        o.directory = "out";
        o.parts = parts;
        o.part_count = 2;
        return pack_merge(&o, &sum, err);
    }
    if (what == INDEX) {
        struct pack_options o = pack_case_options(fs, "out", tars, 2);
        o.jobs = 1;
        o.overwrite = resume;
        return index_tar_run(&o, &sum, err);
    }
    struct pack_options o = pack_case_options(fs, "out", tars + (what == APPEND), 1);
    o.jobs = 1;
    o.ids = PACK_IDS_KEY;
    o.dedup = PACK_DEDUP_EXACT;
    o.append = what == APPEND;
    o.resume = resume;
    return pack_run(&o, &sum, err);
}

static struct file_system *before(enum what what) {
    struct error err = {0};
    struct file_system *fs = memory();
    if (what == APPEND) {
        assert_ok(run(PACK, fs, false, &err), err);
    }
    static const char *const copies[] = {"out/a.tar", "out/b.tar"};
    for (uint32_t i = 0; what == INDEX && i < 2; i++) { /* what is written lies beside them */
        size_t size = 0;
        uint8_t *bytes = test_read_file(tars[i], &size);
        assert_ok(fs->make_directory(fs->context, "out", &err), err);
        assert_ok(file_write_atomic(fs, copies[i], bytes, size, &err), err);
        free(bytes);
    }
    for (uint32_t i = 0; what == MERGE && i < 2; i++) {
        struct pack_options o = pack_case_options(fs, parts[i], tars, 2);
        struct pack_summary sum;
        o.part = (struct pack_part){i + 1, 2};
        assert_ok(pack_run(&o, &sum, &err), err);
    }
    return fs;
}

static void sweep(enum what what) {
    struct error err = {0};
    make_tars();
    struct file_system *good = before(what);
    assert_ok(run(what, good, false, &err), err);
    uint64_t reported = 0;
    for (uint64_t n = 1;; n++) {
        struct file_system *fs = before(what);
        atomic_store(&count, 0);
        atomic_store(&fail_at, n);
        enum status s = run(what, fs, false, &err);
        atomic_store(&fail_at, 0);
        bool reached = atomic_load(&count) >= n;
        reported += s != STATUS_OK;
        assert_true(s == STATUS_OK || s == STATUS_NOMEM);
        assert_true(s == STATUS_OK || err.text[0] != '\0');
        pack_case_verify(fs, "out");
        s = run(what, fs, true, &err);
        if (s != STATUS_OK && !(what == MERGE && s == STATUS_EXISTS)) { /* the merge was done */
            fail_msg("allocation %d: %s", (int)n, err.text);
        }
        assert_true(pack_case_equal(good, "out", fs, "out"));
        file_memory_destroy(fs);
        if (!reached) {
            break;
        }
    }
    print_message("%d failures reported\n", (int)reported);
    assert_true(reported > 50);
    file_memory_destroy(good);
}

#else

enum what { PACK, APPEND, MERGE, INDEX };

static void sweep(enum what what) {
    (void)what;
    test_skip("the sanitizers bring their own malloc");
}

#endif

TEST(every_failing_allocation_of_a_run) {
    sweep(PACK);
}

TEST(every_failing_allocation_of_an_append) {
    sweep(APPEND);
}

TEST(every_failing_allocation_of_a_merge) {
    sweep(MERGE);
}

TEST(every_failing_allocation_of_an_index) {
    sweep(INDEX);
}
