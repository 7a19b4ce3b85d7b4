/*
 * The C library's functions wrapped: a caller between the linker's marks of this program's text is
 * ours.
 */
#include "tests/support/count_malloc.h"

#include <stdatomic.h>
#include <stdlib.h>

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

/* Relaxed: counts that are read when the threads have nothing to do. */
static atomic_bool counting;
static atomic_uint_fast64_t ours;
static atomic_uint_fast64_t all;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static void count_call(const void *caller) {
    if (atomic_load_explicit(&counting, memory_order_relaxed)) {
        uintptr_t at = (uintptr_t)caller;
        bool is_ours = at >= (uintptr_t)&__executable_start && at < (uintptr_t)&etext;
        atomic_fetch_add_explicit(&ours, is_ours, memory_order_relaxed);
        atomic_fetch_add_explicit(&all, 1, memory_order_relaxed);
    }
}

__attribute__((visibility("default"), noinline)) void *malloc(size_t size) {
    count_call(__builtin_return_address(0));
    return __libc_malloc(size);
}

__attribute__((visibility("default"), noinline)) void *calloc(size_t count, size_t size) {
    count_call(__builtin_return_address(0));
    return __libc_calloc(count, size);
}

__attribute__((visibility("default"), noinline)) void *realloc(void *old, size_t size) {
    count_call(__builtin_return_address(0));
    return __libc_realloc(old, size);
}

__attribute__((visibility("default"), noinline)) void *aligned_alloc(size_t alignment,
                                                                     size_t size) {
    count_call(__builtin_return_address(0));
    return __libc_memalign(alignment, size);
}

bool count_malloc_works(void) {
    return true;
}

void count_malloc_start(void) {
    atomic_store(&ours, 0);
    atomic_store(&all, 0);
    atomic_store(&counting, true);
}

void count_malloc_stop(void) {
    atomic_store(&counting, false);
}

uint64_t count_malloc_ours(void) {
    return atomic_load(&ours);
}

uint64_t count_malloc_all(void) {
    return atomic_load(&all);
}

#else

bool count_malloc_works(void) {
    return false;
}

void count_malloc_start(void) {
}

void count_malloc_stop(void) {
}

uint64_t count_malloc_ours(void) {
    return 0;
}

uint64_t count_malloc_all(void) {
    return 0;
}

#endif

void count_malloc_check(void) {
    count_malloc_start();
    void *(*volatile allocate)(size_t) = malloc; /* a call that the compiler cannot see through */
    void *piece = allocate(10);
    count_malloc_stop();
    free(piece);
    assert_true(count_malloc_ours() > 0 || !count_malloc_works());
}
