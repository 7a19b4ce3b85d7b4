/* tokens.cct: what is written is read, what has changed is seen, what is unfinished has no name. */
#include "formats/tokenizer/token_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/rng.h"
#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/test.h"

static struct error err;

static struct token_cache_key key_of(uint64_t texts, uint32_t vocab) {
    return (struct token_cache_key){0x1122334455667788u, texts, 0x99aabbccddeeff00u, vocab, true};
}

/* The pieces of a text: 0 to 40 of them, now and then as many as there may be. */
static uint32_t make_pieces(int32_t *out, uint64_t text_id, uint32_t vocab) {
    struct rng rng;
    rng_init(&rng, 5, RNG_CAPTION, 0, text_id);
    uint32_t count = rng_below(&rng, 200) == 0 ? TOKEN_CACHE_MAX_PIECES : rng_below(&rng, 41);
    for (uint32_t i = 0; i < count; i++) {
        out[i] = (int32_t)rng_below(&rng, vocab);
    }
    return count;
}

static enum status
write_cache(const struct file_system *fs, const char *path, uint64_t texts, uint32_t vocab) {
    struct token_cache_writer *w = NULL;
    struct token_cache_key key = key_of(texts, vocab);
    static int32_t pieces[TOKEN_CACHE_MAX_PIECES];
    enum status s = token_cache_writer_create(&w, path, fs, &key, &err);
    for (uint64_t t = 0; s == STATUS_OK && t < texts; t++) {
        s = token_cache_writer_add(w, pieces, make_pieces(pieces, t, vocab), &err);
    }
    if (s == STATUS_OK) {
        s = token_cache_writer_finish(w, &err);
    }
    token_cache_writer_destroy(w);
    return s;
}

/* The field token_count of the trailer, which only other programs read. */
static uint64_t stored_token_count(const struct file_system *fs, const char *path) {
    struct byte_buffer file = {0};
    assert_ok(file_read_all(fs, &file, path, 1 << 26, &err), err);
    uint64_t count = load_u64(file.data + file.size_bytes - 128 + 24);
    byte_buffer_fini(&file);
    return count;
}

static void check_cache(const struct file_system *fs,
                        const char *path,
                        const struct token_cache *c,
                        uint64_t texts,
                        uint32_t vocab) {
    static int32_t expected[TOKEN_CACHE_MAX_PIECES];
    static int32_t got[TOKEN_CACHE_MAX_PIECES];
    uint64_t tokens = 0;
    assert_int_equal(token_cache_key(c)->text_count, texts);
    for (uint64_t i = 0; i < texts; i++) {
        uint64_t t = (i * 7919) % texts; /* in no order */
        uint32_t count = make_pieces(expected, t, vocab);
        uint32_t n = 0;
        assert_ok(token_cache_get(c, got, &n, t, TOKEN_CACHE_MAX_PIECES, &err), err);
        assert_int_equal(n, count);
        assert_memory_equal(got, expected, n * sizeof(got[0]));
        assert_ok(token_cache_get(c, got, &n, t, 5, &err), err);
        assert_int_equal(n, count < 5 ? count : 5);
        tokens += count;
    }
    assert_int_equal(stored_token_count(fs, path), tokens);
}

TEST(written_rows_are_read_back) {
    static const uint32_t vocabs[] = {1, 1000, 65536, 65537, 262144};
    for (size_t i = 0; i < sizeof(vocabs) / sizeof(vocabs[0]); i++) {
        struct token_cache *c = NULL;
        const char *path = test_temp_path("%u.cct", vocabs[i]);
        assert_ok(write_cache(file_posix(), path, 1000, vocabs[i]), err);
        assert_ok(token_cache_open(&c, path, NULL, &err), err);
        check_cache(file_posix(), path, c, 1000, vocabs[i]);
        token_cache_close(c);
    }
}

/* More texts than share a base, and none at all. */
TEST(groups_of_texts_follow_each_other) {
    static const uint64_t counts[] = {0, 1, 65535, 65536, 65537, 140000};
    struct file_system *fs = NULL;
    assert_ok(file_memory_create(&fs, &err), err);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct token_cache *c = NULL;
        assert_ok(write_cache(fs, "./x.cct", counts[i], 30000), err);
        assert_ok(token_cache_open(&c, "./x.cct", fs, &err), err);
        check_cache(fs, "./x.cct", c, counts[i], 30000);
        token_cache_close(c);
    }
    file_memory_destroy(fs);
}

TEST(it_fits_one_dataset_one_tokenizer_and_one_cleaning) {
    struct token_cache *c = NULL;
    const char *path = test_temp_path("x.cct");
    assert_ok(write_cache(file_posix(), path, 10, 1000), err);
    assert_ok(token_cache_open(&c, path, NULL, &err), err);
    struct token_cache_key key = key_of(10, 1000);
    assert_ok(token_cache_fits(c, &key, &err), err);
    key.fingerprint++;
    assert_status(token_cache_fits(c, &key, &err), STATUS_MISMATCH, err);
    assert_non_null(strstr(err.text, "dataset"));
    key = key_of(11, 1000);
    assert_status(token_cache_fits(c, &key, &err), STATUS_MISMATCH, err);
    key = key_of(10, 1000);
    key.tokenizer_hash++;
    assert_status(token_cache_fits(c, &key, &err), STATUS_MISMATCH, err);
    assert_non_null(strstr(err.text, "tokenizer"));
    key = key_of(10, 1000);
    key.clean = false;
    assert_status(token_cache_fits(c, &key, &err), STATUS_MISMATCH, err);
    assert_non_null(strstr(err.text, "cleaning"));
    token_cache_close(c);
}

/* Every bit in turn: it is refused at open, or every row is either right or refused, and one of the
 * rows is refused. */
TEST(every_flipped_bit_is_seen) {
    const uint64_t texts = 5;
    const char *path = test_temp_path("x.cct");
    size_t size = 0;
    assert_ok(write_cache(file_posix(), path, texts, 1000), err);
    uint8_t *bytes = test_read_file(path, &size);
    struct file_system *fs = NULL;
    assert_ok(file_memory_create(&fs, &err), err);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        struct token_cache *c = NULL;
        static int32_t expected[TOKEN_CACHE_MAX_PIECES];
        static int32_t got[TOKEN_CACHE_MAX_PIECES];
        bool seen = false;
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_ok(file_write_atomic(fs, "./x.cct", bytes, size, &err), err);
        seen = token_cache_open(&c, "./x.cct", fs, &err) != STATUS_OK;
        for (uint64_t t = 0; c && t < texts; t++) {
            uint32_t n = 0;
            enum status s = token_cache_get(c, got, &n, t, TOKEN_CACHE_MAX_PIECES, &err);
            seen = seen || s == STATUS_CORRUPT;
            if (s == STATUS_OK) {
                assert_int_equal(n, make_pieces(expected, t, 1000));
                assert_memory_equal(got, expected, n * sizeof(got[0]));
            }
        }
        assert_true(seen);
        token_cache_close(c);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t cut = 0; cut < size; cut++) {
        struct token_cache *c = NULL;
        assert_ok(file_write_atomic(fs, "./x.cct", bytes, cut, &err), err);
        assert_status(token_cache_open(&c, "./x.cct", fs, &err), STATUS_CORRUPT, err);
    }
    file_memory_destroy(fs);
    free(bytes);
}

/* A trailer with numbers that contradict the file, under a right check. */
static void open_edited(size_t offset, uint64_t value, size_t value_bytes, enum status expected) {
    const char *path = test_temp_path("x.cct");
    size_t size = 0;
    struct token_cache *c = NULL;
    assert_ok(write_cache(file_posix(), path, 5, 1000), err);
    uint8_t *bytes = test_read_file(path, &size);
    uint8_t *t = bytes + size - 128;
    for (size_t i = 0; i < value_bytes; i++) {
        t[offset + i] = (uint8_t)(value >> (8 * i));
    }
    uint64_t check = hash64(t, 120);
    memcpy(t + 120, &check, 8);
    test_write_file(path, bytes, size);
    assert_status(token_cache_open(&c, path, NULL, &err), expected, err);
    token_cache_close(c);
    free(bytes);
}

TEST(wrong_trailers_are_refused) {
    open_edited(16, 5, 8, STATUS_OK);
    open_edited(8, 2, 4, STATUS_VERSION);
    open_edited(12, 4, 2, STATUS_CORRUPT);
    open_edited(14, 3, 2, STATUS_CORRUPT);
    open_edited(16, 6, 8, STATUS_CORRUPT);
    open_edited(16, UINT64_MAX, 8, STATUS_CORRUPT);
    open_edited(16, (uint64_t)1 << 62, 8, STATUS_CORRUPT);
    open_edited(32, UINT64_MAX, 8, STATUS_CORRUPT);
    open_edited(32, 0, 8, STATUS_CORRUPT);
    open_edited(56, 0, 4, STATUS_CORRUPT);
    open_edited(56, 65537, 4, STATUS_CORRUPT);
    open_edited(60, 1, 1, STATUS_CORRUPT);
    open_edited(119, 1, 1, STATUS_CORRUPT);
}

/* Ids that are none of the vocabulary's, under right checks. */
TEST(rows_of_another_vocabulary_are_refused) {
    const char *path = test_temp_path("x.cct");
    struct token_cache *c = NULL;
    static int32_t pieces[TOKEN_CACHE_MAX_PIECES];
    int refused = 0;
    open_edited(56, 500, 4, STATUS_OK); /* ids are below 1000 */
    assert_ok(token_cache_open(&c, path, NULL, &err), err);
    for (uint64_t t = 0; t < 5; t++) {
        uint32_t n = 0;
        enum status s = token_cache_get(c, pieces, &n, t, TOKEN_CACHE_MAX_PIECES, &err);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(pieces[i] < 500);
        }
        refused += s == STATUS_CORRUPT;
    }
    assert_true(refused > 0);
    token_cache_close(c);
}

/* The process dies at every call in turn: the old file or the new one is there, whole. */
TEST(a_crash_leaves_the_old_file_or_the_new_one) {
    uint64_t calls = UINT64_MAX;
    for (uint64_t nth = 0; nth <= calls; nth++) {
        struct file_system *fs = NULL;
        struct file_system *mortal = NULL;
        struct token_cache *c = NULL;
        assert_ok(file_memory_create(&fs, &err), err);
        assert_ok(write_cache(fs, "./x.cct", 3, 1000), err);
        assert_ok(file_fault_create(&mortal, fs, nth, FILE_FAULT_DEAD, &err), err);
        bool done = write_cache(mortal, "./x.cct", 4, 500) == STATUS_OK;
        assert_ok(token_cache_open(&c, "./x.cct", fs, &err), err);
        bool is_new = token_cache_key(c)->text_count == 4;
        assert_true(is_new || !done);
        check_cache(fs, "./x.cct", c, is_new ? 4 : 3, is_new ? 500 : 1000);
        calls = done ? file_fault_count(mortal) : calls;
        token_cache_close(c);
        file_fault_destroy(mortal);
        file_memory_destroy(fs);
    }
    assert_true(calls >= 5);
}

TEST(an_error_removes_the_temporary) {
    struct file_system *fs = NULL;
    struct file_system *faulty = NULL;
    assert_ok(file_memory_create(&fs, &err), err);
    assert_ok(file_fault_create(&faulty, fs, 1, FILE_FAULT_ERROR, &err), err);
    assert_status(write_cache(faulty, "./x.cct", 4, 500), STATUS_IO, err);
    assert_false(file_any_temporary(fs, ".", false));
    file_fault_destroy(faulty);
    file_memory_destroy(fs);
}

/* The file that TOKENS_FORMAT.md shows. */
TEST(the_bytes_are_those_of_the_specification) {
    struct file_system *fs = NULL;
    struct token_cache_writer *w = NULL;
    struct byte_buffer got;
    struct token_cache_key key = key_of(2, 1000);
    const int32_t pieces[] = {7, 300};
    size_t size = 0;
    char *spec = (char *)test_read_file(test_source_path("formats/TOKENS_FORMAT.md"), &size);
    assert_ok(file_memory_create(&fs, &err), err);
    assert_ok(token_cache_writer_create(&w, "./x.cct", fs, &key, &err), err);
    assert_ok(token_cache_writer_add(w, pieces, 2, &err), err);
    assert_ok(token_cache_writer_add(w, NULL, 0, &err), err);
    assert_ok(token_cache_writer_finish(w, &err), err);
    token_cache_writer_destroy(w);
    assert_ok(file_read_all(fs, &got, "./x.cct", 4096, &err), err);
    for (size_t at = 0; at < got.size_bytes; at += 16) {
        char line[80];
        size_t n = (size_t)snprintf(line, sizeof(line), "%08zx ", at);
        for (size_t i = at; i < at + 16 && i < got.size_bytes; i++) {
            n += (size_t)snprintf(line + n, sizeof(line) - n, " %02x", got.data[i]);
        }
        if (strstr(spec, line) == NULL) {
            fail_msg("not in TOKENS_FORMAT.md: %s", line);
        }
    }
    byte_buffer_fini(&got);
    file_memory_destroy(fs);
    free(spec);
}
