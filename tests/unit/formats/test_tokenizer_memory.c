/* WordPiece encodes without allocating: the C library's malloc is wrapped and counts. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer.h"
#include "tests/support/test.h"

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

static atomic_size_t calls;

#ifndef SANITIZED

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

__attribute__((visibility("default"), noinline)) void *malloc(size_t size) {
    calls++;
    return __libc_malloc(size);
}

__attribute__((visibility("default"), noinline)) void *calloc(size_t count, size_t size) {
    calls++;
    return __libc_calloc(count, size);
}

__attribute__((visibility("default"), noinline)) void *realloc(void *old, size_t size) {
    calls++;
    return __libc_realloc(old, size);
}

#endif

TEST(wordpiece_allocates_nothing) {
#ifdef SANITIZED
    test_skip("allocations are counted in builds without sanitizers");
#endif
    struct error err = {0};
    struct tokenizer *t = NULL;
    size_t size = 0;
    uint8_t *vocab = test_read_file(test_source_path("tests/golden/tokenizer/vocab.txt"), &size);
    const char *text = "Two dogs on the gr\xC3\xA4ss, \xE6\xBC\xA2\xEA\xB0\x80 [SEP] \xFF";
    const struct tokenizer_text texts[2] = {{text, strlen(text)}, {NULL, 0}};
    int32_t rows[2 * 16];
    int32_t lengths[2];
    size_t before = calls;
    assert_ok(tokenizer_open(&t, vocab, size, &err), err);
    assert_true(calls > before); /* the count is alive */
    before = calls;
    enum status s = STATUS_OK;
    for (int i = 0; i < 100 && s == STATUS_OK; i++) {
        s = tokenizer_encode_rows(t, rows, lengths, texts, 2, 16, &err);
    }
    size_t after = calls;
    assert_ok(s, err);
    assert_int_equal(after, before);
    assert_int_equal(lengths[1], 2);
    assert_int_equal(rows[31], tokenizer_pad_id(t));
    tokenizer_close(t);
    free(vocab);
}
