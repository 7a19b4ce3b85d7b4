/*
 * The allocating functions of the C library, defined again by the test program: shared libraries
 * and the C library itself then call these too. The return address says whose code the caller is.
 */
#include "tests/support/count_malloc.h"

#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test.h"

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

enum { MAX_OBJECTS = 128 };

/* The program ("") and the libraries that were loaded when counting began; the last one is the
 * unknown. Counts are relaxed: they are read when the threads have nothing to do. */
static struct object {
    char name[64]; /* of the file, without folders */
    uintptr_t begin, end;
    atomic_uint_fast64_t calls;
} objects[MAX_OBJECTS + 1];
static int object_count;

#ifndef SANITIZED

static atomic_bool counting;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

static void count_call(const void *caller) {
    if (atomic_load_explicit(&counting, memory_order_relaxed)) {
        int i = 0;
        while (i < object_count &&
               ((uintptr_t)caller < objects[i].begin || (uintptr_t)caller >= objects[i].end)) {
            i++;
        }
        atomic_fetch_add_explicit(&objects[i].calls, 1, memory_order_relaxed);
    }
}

#define INTERPOSED   __attribute__((visibility("default"), noinline)) void *
#define COUNT_CALL() count_call(__builtin_return_address(0))

INTERPOSED malloc(size_t size) {
    COUNT_CALL();
    return __libc_malloc(size);
}

INTERPOSED calloc(size_t count, size_t size) {
    COUNT_CALL();
    return __libc_calloc(count, size);
}

INTERPOSED realloc(void *old, size_t size) {
    COUNT_CALL();
    return __libc_realloc(old, size);
}

INTERPOSED aligned_alloc(size_t alignment, size_t size) {
    COUNT_CALL();
    return __libc_memalign(alignment, size);
}

INTERPOSED memalign(size_t alignment, size_t size) {
    COUNT_CALL();
    return __libc_memalign(alignment, size);
}

__attribute__((visibility("default"), noinline)) int
posix_memalign(void **out, size_t alignment, size_t size) {
    COUNT_CALL();
    void *data = __libc_memalign(alignment, size);
    if (data == NULL) {
        return ENOMEM;
    }
    *out = data;
    return 0;
}

/* One object of the process: from its first to its last byte. */
static int add_object(struct dl_phdr_info *info, size_t size, void *cookie) {
    (void)size;
    (void)cookie;
    if (object_count == MAX_OBJECTS) {
        return 1;
    }
    struct object *o = &objects[object_count++];
    const char *slash = strrchr(info->dlpi_name, '/');
    (void)snprintf(o->name, sizeof o->name, "%s", slash != NULL ? slash + 1 : info->dlpi_name);
    o->begin = UINTPTR_MAX;
    o->end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            o->begin = at < o->begin ? at : o->begin;
            o->end =
                at + info->dlpi_phdr[i].p_memsz > o->end ? at + info->dlpi_phdr[i].p_memsz : o->end;
        }
    }
    return 0;
}

bool count_malloc_works(void) {
    return true;
}

void count_malloc_start(void) {
    object_count = 0;
    (void)dl_iterate_phdr(add_object, NULL);
    (void)snprintf(objects[object_count].name, sizeof objects[0].name, "(unknown)");
    for (int i = 0; i <= object_count; i++) {
        atomic_store(&objects[i].calls, 0);
    }
    atomic_store(&counting, true);
}

void count_malloc_stop(void) {
    atomic_store(&counting, false);
}

#else

bool count_malloc_works(void) {
    return false;
}

void count_malloc_start(void) {
}

void count_malloc_stop(void) {
}

#endif

static bool begins_with(const char *name, const char *prefix) {
    return prefix[0] == '\0' ? name[0] == '\0' : strncmp(name, prefix, strlen(prefix)) == 0;
}

uint64_t count_malloc_by(const char *library) {
    uint64_t sum = 0;
    for (int i = 0; i <= object_count; i++) {
        sum += begins_with(objects[i].name, library) ? atomic_load(&objects[i].calls) : 0;
    }
    return sum;
}

/* Ends the test unless calls from here and from the C library are seen; changes the counts. */
static void assert_sees_calls(void) {
    void *(*volatile allocate)(size_t) = malloc; /* calls that the compiler cannot see through */
    char *(*volatile copy)(const char *) = strdup;
    count_malloc_start();
    void *piece = allocate(10);
    char *text = copy("text");
    count_malloc_stop();
    free(piece);
    free(text);
    assert_int_equal(count_malloc_by(""), 1);
    assert_int_equal(count_malloc_by("libc.so"), 1);
}

void count_malloc_assert_only(const char *const *libraries) {
    if (!count_malloc_works()) {
        return;
    }
    int wrong = 0;
    for (int i = 0; i <= object_count; i++) {
        const uint64_t calls = atomic_load(&objects[i].calls);
        bool allowed = false;
        for (int k = 0; libraries[k] != NULL; k++) {
            allowed = allowed || begins_with(objects[i].name, libraries[k]);
        }
        if (calls > 0 && !allowed) {
            print_error("%llu allocations by %s\n", (unsigned long long)calls,
                        objects[i].name[0] != '\0' ? objects[i].name : "ccstream");
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
    assert_sees_calls();
}
