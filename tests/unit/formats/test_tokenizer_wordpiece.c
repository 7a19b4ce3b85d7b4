/* WordPiece: the ids that Hugging Face's BertTokenizerFast gives, and vocabularies from strangers.
 * The golden files are made by tests/golden/tokenizer/make_wordpiece.py. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/hash.h"
#include "formats/base/rng.h"
#include "formats/base/utf8.h"
#include "formats/tokenizer/tokenizer.h"
#include "formats/tokenizer/tokenizer_words_internal.h"
#include "tests/support/captions.h"
#include "tests/support/test.h"

#define GOLDEN "tests/golden/tokenizer/"

enum { MAX_GOLDEN_TEXT = 1 << 12 };

static struct error err;

static struct tokenizer *open_golden(void) {
    size_t size = 0;
    uint8_t *vocab = test_read_file(test_source_path(GOLDEN "vocab.txt"), &size);
    struct tokenizer *t = NULL;
    assert_ok(tokenizer_open(&t, vocab, size, &err), err);
    free(vocab);
    return t;
}

/* The words of a text with spaces between. Text is given in memory of its exact size, so that a
 * sanitizer sees the first byte too far. */
static size_t join_words(char *out, const struct char_map *map, const void *text, size_t size) {
    char *exact = malloc(size > 0 ? size : 1);
    struct word_reader r;
    struct word w;
    size_t n = 0;
    memcpy(exact, text, size);
    word_reader_init(&r, map, NULL, 0, exact, size);
    while (word_reader_next(&r, &w)) {
        assert_int_equal(w.special, -1);
        if (n > 0) {
            out[n++] = ' ';
        }
        memcpy(out + n, w.text, w.size_bytes);
        n += w.size_bytes;
    }
    free(exact);
    return n;
}

TEST(words_are_those_of_the_reference) {
    static struct char_map map;
    size_t size = 0;
    uint8_t *golden = test_read_file(test_source_path(GOLDEN "words.bin"), &size);
    struct cursor c;
    int cases = 0;
    char_map_init(&map);
    cursor_init(&c, golden, size);
    while (cursor_left(&c) > 0) {
        uint32_t text_bytes = cursor_u32(&c);
        const uint8_t *text = cursor_take(&c, text_bytes);
        uint32_t words_bytes = cursor_u32(&c);
        const uint8_t *words = cursor_take(&c, words_bytes);
        assert_true(cursor_ok(&c) && words_bytes <= MAX_GOLDEN_TEXT);
        char out[2 * MAX_GOLDEN_TEXT];
        size_t n = join_words(out, &map, text, text_bytes);
        if (memmem(words, words_bytes, "xxxx", 4) == NULL) { /* too long: only the start is kept */
            assert_int_equal(n, words_bytes);
            assert_memory_equal(out, words, n);
            cases++;
        }
    }
    assert_true(cases > 200);
    free(golden);
}

TEST(every_code_point_is_cleaned_as_by_the_reference) {
    static struct char_map map;
    struct hasher *h = NULL;
    uint64_t count = 0;
    assert_ok(hasher_create(&h, &err), err);
    char_map_init(&map);
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000) {
            continue;
        }
        char text[8] = "a";
        char out[64];
        size_t n = 1 + utf8_encode(text + 1, c);
        text[n++] = 'b';
        struct word_reader r;
        struct word w;
        size_t to = 0;
        word_reader_init(&r, &map, NULL, 0, text, n);
        while (word_reader_next(&r, &w)) {
            memcpy(out + to, w.text, w.size_bytes);
            to += w.size_bytes;
            out[to++] = ' ';
        }
        out[to - 1] = '\n';
        hasher_update(h, out, to);
        count++;
    }
    size_t size = 0;
    char *golden = (char *)test_read_file(test_source_path(GOLDEN "digests.txt"), &size);
    uint64_t expected_count, expected;
    assert_int_equal(sscanf(golden, "code_points %" SCNu64 " %" SCNx64, &expected_count, &expected),
                     2);
    assert_int_equal(count, expected_count);
    assert_true(hasher_value(h) == expected);
    hasher_destroy(h);
    free(golden);
}

TEST(ids_are_those_of_the_reference) {
    struct tokenizer *t = open_golden();
    size_t size = 0;
    uint8_t *golden = test_read_file(test_source_path(GOLDEN "ids.bin"), &size);
    struct cursor c;
    int cases = 0;
    assert_int_equal(tokenizer_kind(t), TOKENIZER_WORDPIECE);
    assert_string_equal(tokenizer_kind_name(tokenizer_kind(t)), "wordpiece");
    cursor_init(&c, golden, size);
    while (cursor_left(&c) > 0) {
        uint32_t text_bytes = cursor_u32(&c);
        const char *text = (const char *)cursor_take(&c, text_bytes);
        uint32_t count = cursor_u32(&c);
        int32_t ids[64];
        uint32_t got = 0;
        assert_true(cursor_ok(&c));
        assert_ok(tokenizer_encode(t, ids, &got, text, text_bytes, 64, &err), err);
        assert_int_equal(got, count);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(ids[i], cursor_u32(&c));
        }
        for (uint32_t max = 2; max < count; max++) { /* a shorter row is the front, and [SEP] */
            int32_t cut[64];
            assert_ok(tokenizer_encode(t, cut, &got, text, text_bytes, max, &err), err);
            assert_int_equal(got, max);
            assert_memory_equal(cut, ids, (max - 1) * sizeof(ids[0]));
            assert_int_equal(cut[max - 1], ids[count - 1]);
        }
        cases++;
    }
    assert_true(cases > 300);
    free(golden);
    tokenizer_close(t);
}

TEST(every_caption_of_the_data_has_the_ids_of_the_reference) {
    (void)test_data_path("pairs"); /* skips before anything is made */
    struct tokenizer *t = open_golden();
    test_caption_rows(t, GOLDEN "digests.txt");
    tokenizer_close(t);
}

static void *encode_often(void *cookie) {
    const struct tokenizer *t = cookie;
    static const char text[] = "Unbelievably l\xC3\xB4ng tokenization, [SEP] readers' threads";
    int32_t expected[32];
    int32_t ids[32];
    uint32_t n = 0;
    uint32_t count = 0;
    if (tokenizer_encode(t, expected, &n, text, sizeof(text) - 1, 32, NULL) != STATUS_OK) {
        return NULL;
    }
    for (int i = 0; i < 500; i++) {
        if (tokenizer_encode(t, ids, &count, text, sizeof(text) - 1, 32, NULL) != STATUS_OK ||
            count != n || memcmp(ids, expected, n * sizeof(ids[0])) != 0) {
            return NULL;
        }
    }
    return cookie;
}

TEST(threads_share_one_vocabulary) {
    struct tokenizer *t = open_golden();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, t), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *done = NULL;
        assert_int_equal(pthread_join(threads[i], &done), 0);
        assert_ptr_equal(done, t);
    }
    tokenizer_close(t);
}

static enum status open_text(struct tokenizer **t, const char *text) {
    return tokenizer_open(t, text, strlen(text), &err);
}

/* The ids of `text` without the first and the last, as text. */
static void assert_ids(const struct tokenizer *t, const char *text, const char *expected) {
    int32_t ids[32];
    uint32_t count = 0;
    char out[256] = "";
    size_t n = 0;
    assert_ok(tokenizer_encode(t, ids, &count, text, strlen(text), 32, &err), err);
    for (uint32_t i = 1; i + 1 < count; i++) {
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%d", i > 1 ? " " : "", ids[i]);
    }
    assert_string_equal(out, expected);
}

TEST(the_longest_pieces_from_the_left_are_taken) {
    struct tokenizer *t = NULL;
    assert_ok(open_text(&t, "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nab\nabc\n##b\n##cd\n##d\n##bc\n#\n"),
              err);
    assert_int_equal(tokenizer_vocab_count(t), 12);
    assert_int_equal(tokenizer_pad_id(t), 0);
    assert_ids(t, "a ab abc", "4 5 6");
    assert_ids(t, "abcd", "6 9"); /* not ab ##cd */
    assert_ids(t, "abb", "5 7");
    assert_ids(t, "abcdx ab", "1 5"); /* one piece that does not fit makes the word unknown */
    assert_ids(t, "bcd", "1");        /* ##bc begins no word */
    assert_ids(t, "##b #", "11 11 1 11");
    tokenizer_close(t);
}

TEST(lines_are_ids) {
    struct tokenizer *t = NULL;
    /* CR LF, an empty line, no line feed at the end, a piece twice: the last one counts */
    assert_ok(open_text(&t, "[SEP]\r\n\r\na\r\n[UNK]\r\na\r\n[CLS]"), err);
    assert_int_equal(tokenizer_vocab_count(t), 6);
    assert_int_equal(tokenizer_pad_id(t), 3); /* no [PAD]: unknown */
    assert_ids(t, "a b", "4 3");
    tokenizer_close(t);
    assert_status(open_text(&t, "[UNK]\n[CLS]\na\n"), STATUS_UNSUPPORTED, err);
    assert_non_null(strstr(err.text, "[SEP]"));
    assert_status(open_text(&t, "[CLS]\n[SEP]\na\n"), STATUS_CORRUPT, err);
    assert_status(open_text(&t, "[UNK]\n[CLS]\n[SEP]\n\xFF\n"), STATUS_CORRUPT, err);
}

TEST(limits_are_kept) {
    struct tokenizer *t = NULL;
    const size_t size = ((size_t)4 << 20) + 1;
    char *text = malloc(size);
    memset(text, 'a', size);
    memcpy(text, "[UNK]\n[CLS]\n[SEP]\n", 18);
    assert_status(tokenizer_open(&t, text, size, &err), STATUS_LIMIT, err);
    assert_ok(tokenizer_open(&t, text, size - 1, &err), err); /* one line too long to be used */
    assert_int_equal(tokenizer_vocab_count(t), 4);
    assert_ids(t, "a", "0");
    tokenizer_close(t);
    memset(text + 18, '\n', size - 18);
    assert_ok(tokenizer_open(&t, text, 18 + TOKENIZER_MAX_VOCAB - 3, &err), err);
    assert_int_equal(tokenizer_vocab_count(t), TOKENIZER_MAX_VOCAB);
    tokenizer_close(t);
    assert_status(tokenizer_open(&t, text, 18 + TOKENIZER_MAX_VOCAB - 2, &err), STATUS_LIMIT, err);
    free(text);
}

TEST(any_text_gives_ids_of_the_vocabulary) {
    struct tokenizer *t = open_golden();
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_CAPTION, 0, 0);
    for (int i = 0; i < 3000; i++) {
        size_t n = rng_below(&rng, 200);
        char *text = malloc(n + 1);
        for (size_t k = 0; k < n; k++) {
            text[k] =
                (char)(rng_below(&rng, 3) > 0 ? rng_below(&rng, 256) : ' ' + rng_below(&rng, 95));
        }
        int32_t ids[48];
        uint32_t count = 0;
        assert_ok(tokenizer_encode(t, ids, &count, text, n, 48, &err), err);
        assert_true(count >= 2 && count <= 48);
        for (uint32_t k = 0; k < count; k++) {
            assert_in_range(ids[k], 0, tokenizer_vocab_count(t) - 1);
        }
        free(text);
    }
    tokenizer_close(t);
}
