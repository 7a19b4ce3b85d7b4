/* Byte-level BPE: the ids that open_clip and Hugging Face's library give, every form of CLIP's
 * merges, and files from strangers. The golden files are made by
 * tests/golden/tokenizer/make_clip.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/json_writer.h"
#include "formats/tokenizer/tokenizer.h"
#include "formats/tokenizer/tokenizer_bpe_internal.h"
#include "tests/support/clip_json.h"
#include "tests/support/test.h"

#define GOLDEN "tests/golden/tokenizer/"

static struct error err;

/* Compares with the texts and ids of a golden file; shorter rows are the front, and the end. */
static void compare(const struct tokenizer *t, const char *golden_name) {
    size_t size = 0;
    uint8_t *golden = test_read_file(test_source_path(golden_name), &size);
    struct cursor c;
    int cases = 0;
    static int32_t ids[TOKENIZER_MAX_TOKENS];
    static int32_t row[TOKENIZER_MAX_TOKENS];
    cursor_init(&c, golden, size);
    for (; cursor_left(&c) > 0; cases++) {
        uint32_t got = 0;
        const uint32_t text_bytes = cursor_u32(&c);
        const char *text = (const char *)cursor_take(&c, text_bytes);
        const uint32_t count = cursor_u32(&c);
        assert_true(cursor_ok(&c));
        char *exact = malloc(text_bytes > 0 ? text_bytes : 1); /* for a sanitizer */
        memcpy(exact, text, text_bytes);
        assert_ok(tokenizer_encode(t, ids, &got, exact, text_bytes, TOKENIZER_MAX_TOKENS, &err),
                  err);
        for (uint32_t i = 0; i < count && i < got; i++) {
            const int32_t id = (int32_t)cursor_u32(&c);
            if (ids[i] != id) {
                fail_msg("case %d, '%.*s': id %u is %d, expected %d", cases, (int)text_bytes, text,
                         i, ids[i], id);
            }
        }
        assert_int_equal(got, count);
        for (uint32_t max = 2; max < count && max < 20; max++) {
            assert_ok(tokenizer_encode(t, row, &got, exact, text_bytes, max, &err), err);
            assert_int_equal(got, max);
            assert_memory_equal(row, ids, (max - 1) * sizeof(ids[0]));
            assert_int_equal(row[max - 1], tokenizer_end_id(t));
        }
        free(exact);
    }
    assert_int_equal(cases, 220);
    free(golden);
}

TEST(clip_ids_are_those_of_open_clip) {
    struct tokenizer *t = NULL;
    assert_ok(tokenizer_open_clip(&t, &err), err);
    assert_int_equal(tokenizer_kind(t), TOKENIZER_CLIP_BPE);
    assert_string_equal(tokenizer_kind_name(tokenizer_kind(t)), "clip-bpe");
    assert_true(tokenizer_cleans(t));
    assert_int_equal(tokenizer_vocab_count(t), 49408);
    assert_int_equal(tokenizer_begin_id(t), 49406);
    assert_int_equal(tokenizer_end_id(t), 49407);
    assert_int_equal(tokenizer_pad_id(t), 0);
    compare(t, GOLDEN "clip_ids.bin");
    tokenizer_close(t);
}

TEST(byte_level_ids_are_those_of_the_reference) {
    struct tokenizer *t = NULL;
    assert_ok(tokenizer_load(&t, test_source_path(GOLDEN "byte_bpe.json"), &err), err);
    assert_int_equal(tokenizer_kind(t), TOKENIZER_BYTE_BPE);
    assert_string_equal(tokenizer_kind_name(tokenizer_kind(t)), "byte-bpe");
    assert_false(tokenizer_cleans(t));
    assert_int_equal(tokenizer_pad_id(t), 1);
    compare(t, GOLDEN "byte_ids.bin");
    tokenizer_close(t);
}

TEST(byte_level_ids_with_a_space_before_are_those_of_the_reference) {
    size_t size = 0;
    char *json = (char *)test_read_file(test_source_path(GOLDEN "byte_bpe.json"), &size);
    char *at = memmem(json, size, "_space\":false", 13);
    struct tokenizer *t = NULL;
    assert_non_null(at);
    memcpy(at, "_space\":true ", 13);
    assert_ok(tokenizer_open(&t, json, size, &err), err);
    compare(t, GOLDEN "byte_prefix_ids.bin");
    tokenizer_close(t);
    free(json);
}

/* CLIP's tokenizer.json, in which the merges are. */
static struct byte_buffer clip_json(void) {
    struct byte_buffer json;
    byte_buffer_init(&json, 0);
    assert_ok(test_clip_json(&json, &err), err);
    assert_ok(byte_buffer_u8(&json, 0, &err), err);
    json.size_bytes--;
    return json;
}

/* merges.txt from the member of the JSON: a line for each "left right". */
static struct byte_buffer merges_text(const struct byte_buffer *json) {
    struct byte_buffer text;
    byte_buffer_init(&text, 0);
    assert_ok(byte_buffer_append(&text, "#version: 0.2\n", 14, &err), err);
    const char *p = strstr((const char *)json->data, "\"merges\":[") + 10;
    while (*p != ']') {
        for (p++; *p != '"'; p++) {
            p += *p == '\\';
            assert_ok(byte_buffer_u8(&text, (uint8_t)*p, &err), err);
        }
        assert_ok(byte_buffer_u8(&text, '\n', &err), err);
        p += p[1] == ',' ? 2 : 1;
    }
    return text;
}

static void same_table(const char *path) {
    struct tokenizer *t = NULL;
    size_t size = 0;
    assert_ok(tokenizer_load(&t, path, &err), err);
    const void *bytes = tokenizer_bytes(t, &size);
    assert_int_equal(size, clip_merges_bytes);
    assert_memory_equal(bytes, clip_merges, size);
    tokenizer_close(t);
}

TEST(every_form_of_clip_is_one_table) {
    struct byte_buffer json = clip_json();
    struct byte_buffer merges = merges_text(&json);
    same_table(TOKENIZER_CLIP_NAME);
    test_write_file(test_temp_path("tokenizer.json"), json.data, json.size_bytes);
    same_table(test_temp_path("tokenizer.json"));
    test_write_file(test_temp_path("merges.txt"), merges.data, merges.size_bytes);
    same_table(test_temp_path("merges.txt"));
    byte_buffer_fini(&json);
    byte_buffer_fini(&merges);
}

static void refused(const void *bytes, size_t size, enum status status, const char *message) {
    struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_open(&t, bytes, size, &err), status);
    assert_null(t);
    if (!strstr(err.text, message)) {
        fail_msg("'%s' lacks '%s'", err.text, message);
    }
}

/* A tokenizer.json with one part replaced. */
static void
refused_json(const char *old, const char *new, enum status status, const char *message) {
    size_t size = 0;
    uint8_t *json = test_read_file(test_source_path(GOLDEN "byte_bpe.json"), &size);
    const uint8_t *at = memmem(json, size, old, strlen(old));
    struct byte_buffer b;
    byte_buffer_init(&b, 0);
    assert_non_null(at);
    assert_ok(byte_buffer_append(&b, json, (size_t)(at - json), &err), err);
    assert_ok(byte_buffer_append(&b, new, strlen(new), &err), err);
    at += strlen(old);
    assert_ok(byte_buffer_append(&b, at, (size_t)(json + size - at), &err), err);
    refused(b.data, b.size_bytes, status, message);
    byte_buffer_fini(&b);
    free(json);
}

TEST(wrong_members_of_a_tokenizer_json_are_refused_by_name) {
    refused_json("\"type\":\"BPE\"", "\"type\":\"Unigram\"", STATUS_UNSUPPORTED,
                 "model.type is Unigram, expected \"BPE\"");
    refused_json("\"type\":\"ByteLevel\"", "\"type\":\"Whitespace\"", STATUS_UNSUPPORTED,
                 "pre_tokenizer.type is Whitespace, expected \"ByteLevel\"");
    refused_json("\"normalizer\":null", "\"normalizer\":{\"type\":\"NFC\"}", STATUS_UNSUPPORTED,
                 "normalizer is NFC, expected null");
    refused_json("\"dropout\":null", "\"dropout\":0.1", STATUS_UNSUPPORTED, "model.dropout is set");
    refused_json("\"byte_fallback\":false", "\"byte_fallback\":true", STATUS_UNSUPPORTED,
                 "byte_fallback");
    refused_json("\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"##\"",
                 STATUS_UNSUPPORTED, "continuing_subword_prefix is ##, expected none");
    refused_json("\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"",
                 STATUS_UNSUPPORTED, "expected CLIP's 48894 and 49408");
    refused_json("\"!\":5", "\"!\":-5", STATUS_CORRUPT, "no id in [0, 262144) for '!'");
    refused_json("\"!\":5,", "", STATUS_UNSUPPORTED, "no piece '!' for the byte 0x21");
    refused_json("\"merges\":[", "\"merges\":[7,", STATUS_CORRUPT, "model.merges[0] is neither");
    refused_json("\"merges\":[", "\"merges\":[\"a  b\",", STATUS_CORRUPT,
                 "merge 1 is 'a  b', expected two pieces");
    refused_json("\"merges\":[", "\"merges\":[[\"zz\",\"qq\"],", STATUS_CORRUPT,
                 "merge 1 has 'zz', which is not in the vocabulary");
    refused_json("\"single_word\":false", "\"single_word\":true", STATUS_UNSUPPORTED,
                 "added_tokens[0]");
    refused_json("\"merges\":", "\"others\":", STATUS_CORRUPT, "vocab and array merges");
}

TEST(truncated_and_damaged_merges_are_refused) {
    struct byte_buffer json = clip_json();
    struct byte_buffer text = merges_text(&json);
    uint8_t *table = malloc(clip_merges_bytes);
    memcpy(table, clip_merges, clip_merges_bytes);
    refused(table, clip_merges_bytes - 1, STATUS_CORRUPT, "195583 bytes, expected 195584");
    table[9] = 0xFF;
    refused(table, clip_merges_bytes, STATUS_CORRUPT, "merge 1 of CLIP's table refers to piece");
    memcpy(table + 12, clip_merges + 8, 4);
    memcpy(table + 8, clip_merges + 8, 4);
    refused(table, clip_merges_bytes, STATUS_CORRUPT, "merge 2 is the same as merge 1");
    free(table);
    const uint8_t *line = memmem(text.data, text.size_bytes, "\nc a", 4);
    refused(text.data, (size_t)(line - text.data), STATUS_CORRUPT, "merges, expected CLIP's 48894");
    text.data[15] = 'q'; /* "i n": no space */
    refused(text.data, text.size_bytes, STATUS_CORRUPT, "merge 1 is 'iqn', expected two pieces");
    static const uint8_t gzip[] = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3};
    refused(gzip, sizeof(gzip), STATUS_CORRUPT, "gzip file is truncated or damaged");
    byte_buffer_fini(&json);
    byte_buffer_fini(&text);
    struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_load(&t, test_temp_path("none"), &err), STATUS_NOTFOUND);
}

/* Whatever merges are asked for, a long word ends, and wrong UTF-8 counts as U+FFFD. */
/* CLIP's file with two ids exchanged. */
TEST(a_tokenizer_json_with_other_ids_than_clip_is_refused) {
    struct byte_buffer json = clip_json();
    char *at = strstr((char *)json.data, "\"!\":0,\"\\\"\":1,");
    assert_non_null(at);
    at[4] = '1';
    at[strlen("\"!\":0,\"\\\"\":")] = '0';
    refused(json.data, json.size_bytes, STATUS_UNSUPPORTED, "'!' has the id 1, expected CLIP's 0");
    byte_buffer_fini(&json);
}

TEST(long_words_and_wrong_bytes_have_ids) {
    struct tokenizer *t = NULL;
    static char text[TOKENIZER_MAX_TEXT_BYTES + 10];
    static int32_t ids[TOKENIZER_MAX_TOKENS];
    int32_t other[16];
    uint32_t count = 0;
    uint32_t other_count = 0;
    assert_ok(tokenizer_open_clip(&t, &err), err);
    memset(text, 'a', sizeof(text));
    assert_ok(tokenizer_encode(t, ids, &count, text, sizeof(text), TOKENIZER_MAX_TOKENS, &err),
              err);
    assert_int_equal(count, TOKENIZER_MAX_TOKENS);
    for (size_t i = 0; i + 2 <= sizeof(text); i += 2) { /* marks of falling classes, to be sorted */
        memcpy(text + i, i < sizeof(text) / 2 ? "\xcc\x80" : "\xcc\xa7", 2);
    }
    assert_ok(tokenizer_encode(t, ids, &count, text, sizeof(text), 77, &err), err);
    assert_ok(tokenizer_encode(t, ids, &count, "a\xff", 2, 77, &err), err);
    assert_ok(tokenizer_encode(t, other, &other_count, "a\xef\xbf\xbd", 4, 16, &err), err);
    assert_int_equal(count, other_count);
    assert_memory_equal(ids, other, count * sizeof(ids[0]));
    tokenizer_close(t);
}
