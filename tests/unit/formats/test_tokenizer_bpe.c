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
