/* The tokenizer: training repeats to the byte, text and models from strangers do no harm. */
#include "formats/tokenizer/tokenizer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/base/rng.h"
#include "tests/support/captions.h"
#include "tests/support/test.h"

/* Captions made of a few words, the same for the same seed. */
struct captions {
    struct rng rng;
    uint32_t left;
    char text[256];
};

static const char *const words[] = {
    "a",    "red", "Dog",  "Cat", "photo", "of",   "the",         "house", "blue", "runs",
    "near", "two", "bird", "on",  "grass", "with", "caf\xc3\xa9", "river", "old",  "street"};

static enum status
next_caption(void *cookie, const char **text, size_t *size_bytes, struct error *err) {
    struct captions *c = cookie;
    (void)err;
    if (c->left == 0) {
        return STATUS_END;
    }
    c->left--;
    size_t n = 0;
    uint32_t count = 3 + rng_below(&c->rng, 6);
    for (uint32_t i = 0; i < count; i++) {
        const char *word = words[rng_below(&c->rng, sizeof words / sizeof words[0])];
        n += (size_t)snprintf(c->text + n, sizeof c->text - n, "%s%s", i ? " " : "", word);
    }
    *text = c->text;
    *size_bytes = n;
    return STATUS_OK;
}

static enum status train_with(struct byte_buffer *out,
                              uint32_t *piece_count,
                              uint32_t caption_count,
                              const struct tokenizer_train_options *opt,
                              struct error *err) {
    struct captions c = {.left = caption_count};
    rng_init(&c.rng, 1, RNG_CAPTION, 0, 0);
    struct tokenizer_source source = {.next = next_caption, .cookie = &c};
    return tokenizer_train(out, piece_count, &source, opt, err);
}

static struct tokenizer *trained(void) {
    struct error err = {0};
    struct byte_buffer model;
    byte_buffer_init(&model, 0);
    struct tokenizer_train_options opt;
    tokenizer_train_options_default(&opt);
    opt.vocab_size = 100;
    uint32_t count = 0;
    assert_ok(train_with(&model, &count, 500, &opt, &err), err);
    struct tokenizer *t = NULL;
    assert_ok(tokenizer_open(&t, model.data, model.size_bytes, &err), err);
    assert_int_equal(tokenizer_vocab_count(t), count);
    byte_buffer_fini(&model);
    return t;
}

TEST(training_repeats_to_the_byte) {
    struct error err = {0};
    struct byte_buffer a, b;
    byte_buffer_init(&a, 0);
    byte_buffer_init(&b, 0);
    struct tokenizer_train_options opt;
    tokenizer_train_options_default(&opt);
    opt.vocab_size = 60;
    uint32_t count = 0;
    assert_ok(train_with(&a, &count, 2000, &opt, &err), err);
    assert_true(count > 4 && count <= 60);
    assert_ok(train_with(&b, &count, 2000, &opt, &err), err);
    assert_int_equal(a.size_bytes, b.size_bytes);
    assert_memory_equal(a.data, b.data, a.size_bytes);
    /* Sampled training repeats too, and is another model. */
    a.size_bytes = b.size_bytes = 0;
    opt.max_captions = 50;
    assert_ok(train_with(&a, &count, 2000, &opt, &err), err);
    assert_ok(train_with(&b, &count, 2000, &opt, &err), err);
    assert_int_equal(a.size_bytes, b.size_bytes);
    assert_memory_equal(a.data, b.data, a.size_bytes);
    byte_buffer_fini(&a);
    byte_buffer_fini(&b);
}

TEST(the_ceiling_is_a_ceiling) {
    struct error err = {0};
    struct byte_buffer model;
    byte_buffer_init(&model, 0);
    struct tokenizer_train_options opt;
    tokenizer_train_options_default(&opt);
    uint32_t count = 0;
    opt.vocab_size = 30000;
    assert_ok(train_with(&model, &count, 300, &opt, &err), err);
    assert_true(count < 1000);
    model.size_bytes = 0;
    opt.vocab_size = TOKENIZER_MIN_VOCAB;
    assert_status(train_with(&model, &count, 300, &opt, &err), STATUS_LIMIT, err);
    assert_non_null(strstr(err.text, "at least"));
    assert_int_equal(model.size_bytes, 0);
    assert_int_equal(count, 0);
    opt.vocab_size = TOKENIZER_MIN_VOCAB - 1;
    assert_status(train_with(&model, &count, 300, &opt, &err), STATUS_LIMIT, err);
    opt.vocab_size = TOKENIZER_MAX_VOCAB + 1;
    assert_status(train_with(&model, &count, 300, &opt, &err), STATUS_LIMIT, err);
    opt.vocab_size = 100;
    assert_status(train_with(&model, &count, 0, &opt, &err), STATUS_USAGE, err);
    assert_ok(train_with(&model, &count, 1, &opt, &err), err);
    byte_buffer_fini(&model);
}

/* Captions that no trainer expects. */
static enum status
next_odd(void *cookie, const char **text, size_t *size_bytes, struct error *err) {
    static char longest[70000];
    static const struct {
        const char *text;
        size_t size_bytes;
    } rows[] = {
        {NULL, 0},
        {"  \t\n", 4},
        {"nul\0inside", 10},
        {"\xff\xfe\x80 not utf8", 12},
        {"[CLS] [SEP] <unk> \xe2\x96\x81 word", 26},
        {"line one\nline two\ttab", 21},
        {longest, sizeof longest},
        {"a plain caption", 15},
    };
    size_t *at = cookie;
    if (*at == sizeof rows / sizeof rows[0] * 20) {
        return STATUS_END;
    }
    if (*at == 77) {
        (*at)++;
        return error_set(err, STATUS_CORRUPT, "row 77");
    }
    memset(longest, 'w', sizeof longest);
    *text = rows[*at % 8].text;
    *size_bytes = rows[*at % 8].size_bytes;
    (*at)++;
    return STATUS_OK;
}

TEST(pieces_of_either_type_are_learnt) {
    struct error err = {0};
    struct byte_buffer models[3];
    struct tokenizer_train_options opt;
    tokenizer_train_options_default(&opt);
    opt.vocab_size = 60;
    for (int i = 0; i < 3; i++) {
        uint32_t count = 0;
        byte_buffer_init(&models[i], 0);
        opt.model_type = i == 0 ? TOKENIZER_UNIGRAM : TOKENIZER_BPE;
        assert_ok(train_with(&models[i], &count, 300, &opt, &err), err);
        assert_true(count <= 60);
    }
    assert_int_equal(models[1].size_bytes, models[2].size_bytes);
    assert_memory_equal(models[1].data, models[2].data, models[1].size_bytes);
    assert_true(models[0].size_bytes != models[1].size_bytes ||
                memcmp(models[0].data, models[1].data, models[0].size_bytes) != 0);
    for (int i = 0; i < 3; i++) {
        byte_buffer_fini(&models[i]);
    }
}

TEST(odd_captions_train_and_failures_pass_through) {
    struct error err = {0};
    struct byte_buffer model;
    byte_buffer_init(&model, 0);
    struct tokenizer_train_options opt;
    tokenizer_train_options_default(&opt);
    opt.vocab_size = 64;
    size_t at = 0;
    uint32_t count = 0;
    struct tokenizer_source source = {.next = next_odd, .cookie = &at};
    assert_status(tokenizer_train(&model, &count, &source, &opt, &err), STATUS_CORRUPT, err);
    assert_string_equal(err.text, "row 77");
    at = 78;
    assert_ok(tokenizer_train(&model, &count, &source, &opt, &err), err);
    byte_buffer_fini(&model);
}

TEST(encoding_has_the_promised_shape) {
    struct error err = {0};
    struct tokenizer *t = trained();
    int32_t ids[64], cut[64];
    uint32_t count = 0;
    assert_int_equal(tokenizer_pad_id(t), TOKENIZER_PAD);

    assert_ok(tokenizer_encode(t, ids, &count, NULL, 0, 30, &err), err);
    assert_int_equal(count, 2);
    assert_int_equal(ids[0], TOKENIZER_CLS);
    assert_int_equal(ids[1], TOKENIZER_SEP);

    const char *text = "a red dog runs near the old house";
    assert_ok(tokenizer_encode(t, ids, &count, text, strlen(text), 64, &err), err);
    assert_true(count > 6 && count < 64);
    for (uint32_t max = 2; max <= count; max++) {
        uint32_t n = 0;
        cut[max] = -7;
        assert_ok(tokenizer_encode(t, cut, &n, text, strlen(text), max, &err), err);
        assert_int_equal(n, max);
        assert_memory_equal(cut, ids, (max - 1) * sizeof ids[0]);
        assert_int_equal(cut[max - 1], TOKENIZER_SEP);
        assert_int_equal(cut[max], -7); /* nothing is written after the limit */
    }
    uint32_t upper = 0;
    const char *shouted = "A RED DOG RUNS NEAR THE OLD HOUSE";
    assert_ok(tokenizer_encode(t, cut, &upper, shouted, strlen(shouted), 64, &err), err);
    assert_int_equal(upper, count);
    assert_memory_equal(cut, ids, count * sizeof ids[0]);
    tokenizer_close(t);
    tokenizer_close(NULL);
}

TEST(untrusted_text_does_no_harm) {
    struct error err = {0};
    struct tokenizer *t = trained();
    int32_t ids[32];
    uint32_t count = 0;
    static char text[300000];
    struct rng r;
    rng_init(&r, test_seed(), RNG_CAPTION, 1, 0);
    for (int round = 0; round < 300; round++) {
        size_t n = rng_below(&r, 200);
        for (size_t i = 0; i < n; i++) {
            text[i] = (char)rng_below(&r, 256);
        }
        assert_ok(tokenizer_encode(t, ids, &count, text, n, 32, &err), err);
        for (uint32_t i = 0; i < count; i++) {
            assert_true(ids[i] >= 0 && (uint32_t)ids[i] < tokenizer_vocab_count(t));
        }
    }
    /* Text beyond the limit is ignored; truncation never splits a character. */
    for (size_t i = 0; i + 2 <= sizeof text; i += 2) {
        memcpy(text + i, "\xc3\xa9", 2);
    }
    text[0] = 'x';
    text[1] = 'x';
    text[2] = 'x';
    memmove(text + 3, text + 4, sizeof text - 4);
    static int32_t a[TOKENIZER_MAX_TOKENS], b[TOKENIZER_MAX_TOKENS];
    uint32_t na = 0, nb = 0;
    assert_ok(tokenizer_encode(t, a, &na, text, sizeof text, TOKENIZER_MAX_TOKENS, &err), err);
    assert_ok(
        tokenizer_encode(t, b, &nb, text, TOKENIZER_MAX_TEXT_BYTES - 1, TOKENIZER_MAX_TOKENS, &err),
        err);
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na * sizeof a[0]);
    tokenizer_close(t);
}

static void *encode_many(void *cookie) {
    const struct tokenizer *t = cookie;
    int32_t expected[32], ids[32];
    uint32_t n = 0, count = 0;
    const char *text = "two bird on the grass near a blue house";
    if (tokenizer_encode(t, expected, &n, text, strlen(text), 32, NULL) != STATUS_OK) {
        return NULL;
    }
    for (int i = 0; i < 500; i++) {
        if (tokenizer_encode(t, ids, &count, text, strlen(text), 32, NULL) != STATUS_OK ||
            count != n || memcmp(ids, expected, n * sizeof ids[0]) != 0) {
            return NULL;
        }
    }
    return cookie;
}

TEST(threads_share_one_tokenizer) {
    struct tokenizer *t = trained();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, encode_many, t), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        assert_ptr_equal(result, t);
    }
    tokenizer_close(t);
}

TEST(embedded_bytes_open_again) {
    struct error err = {0};
    struct tokenizer *t = trained();
    struct tokenizer *again = NULL;
    size_t size = 0, size_again = 0;
    const void *bytes = tokenizer_bytes(t, &size);
    assert_ok(tokenizer_open(&again, bytes, size, &err), err);
    const void *bytes_again = tokenizer_bytes(again, &size_again);
    assert_int_equal(size, size_again);
    assert_memory_equal(bytes, bytes_again, size);
    assert_int_equal(tokenizer_vocab_count(t), tokenizer_vocab_count(again));
    tokenizer_close(again);
    tokenizer_close(t);
}

/* Damaged models are refused, or encode something: never a crash. */
TEST(damaged_models_do_no_harm) {
    struct error err = {0};
    struct tokenizer *t = trained();
    size_t size = 0;
    const void *bytes = tokenizer_bytes(t, &size);
    uint8_t *copy = malloc(size);
    assert_non_null(copy);
    struct tokenizer *broken = NULL;
    assert_status(tokenizer_open(&broken, NULL, 0, &err), STATUS_CORRUPT, err);
    assert_status(tokenizer_open(&broken, "abc", 3, &err), STATUS_CORRUPT, err);
    assert_status(tokenizer_open(&broken, bytes, size - 1, &err), STATUS_CORRUPT, err);
    struct rng r;
    rng_init(&r, test_seed(), RNG_CAPTION, 2, 0);
    int opened = 0;
    for (int round = 0; round < 60; round++) {
        memcpy(copy, bytes, size);
        for (int i = 0; i < 40; i++) {
            copy[rng_below(&r, (uint32_t)size)] ^= (uint8_t)(1u << rng_below(&r, 8));
        }
        if (tokenizer_open(&broken, copy, size, &err) == STATUS_OK) {
            int32_t ids[32];
            uint32_t count = 0;
            const char *text = "a caf\xc3\xa9 \xef\xbc\xa1 \xe2\x91\xa0 near the river";
            tokenizer_encode(broken, ids, &count, text, strlen(text), 32, &err);
            opened++;
            tokenizer_close(broken);
        }
    }
    assert_true(opened < 60);
    free(copy);
    tokenizer_close(t);
}

/* Without a begin piece: the piece is there, and nothing names it. */
TEST(siglips_texts_are_cleaned_and_have_no_begin) {
    static const char *const texts[][2] = {{"a photo of two dogs", "a photo of two dogs"},
                                           {"  A_photo, of   Two (dogs)! ", "a photo of two dogs"},
                                           {"the caf&eacute;'s river...", "the caf\xc3\xa9s river"},
                                           {"!?_", ""}};
    struct error err = {0};
    struct tokenizer *plain = trained();
    size_t size = 0;
    const uint8_t *bytes = tokenizer_bytes(plain, &size);
    uint8_t *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    size_t at = size - 5;
    while (memcmp(copy + at, "[CLS]", 5) != 0) {
        at--; /* the last one is the trainer's */
    }
    memcpy(copy + at, "[XXX]", 5);
    struct tokenizer *t = NULL;
    assert_ok(tokenizer_open(&t, copy, size, &err), err);
    assert_true(tokenizer_begin_id(t) < 0 && tokenizer_cleans(t));
    assert_int_equal(tokenizer_end_id(t), TOKENIZER_SEP);
    assert_int_equal(tokenizer_pad_id(t), TOKENIZER_SEP);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        int32_t ids[12], expected[13], length, longer;
        const struct tokenizer_text text = {texts[i][0], strlen(texts[i][0])};
        const struct tokenizer_text same = {texts[i][1], strlen(texts[i][1])};
        assert_ok(tokenizer_encode_rows(t, ids, &length, &text, 1, 12, &err), err);
        assert_ok(tokenizer_encode_rows(plain, expected, &longer, &same, 1, 13, &err), err);
        assert_int_equal(length, longer - 1);
        assert_memory_equal(ids, expected + 1, (size_t)length * sizeof *ids);
        for (int32_t k = length; k < 12; k++) {
            assert_int_equal(ids[k], TOKENIZER_SEP);
        }
    }
    tokenizer_close(t);
    tokenizer_close(plain);
    free(copy);
}

/* Begin piece <bos>: the pieces alone, filled up with the padding. */
TEST(siglip_2_s_texts_are_padded_as_gemmas) {
    static const struct tokenizer_text text = {"A photo, of two_dogs", 20};
    static const struct tokenizer_text clean = {"a photo of two dogs", 19};
    struct error err = {0};
    struct tokenizer *plain = trained();
    struct tokenizer *t = NULL;
    size_t size = 0;
    const uint8_t *bytes = tokenizer_bytes(plain, &size);
    uint8_t *copy = malloc(size);
    int32_t ids[12], expected[13], length, longer;
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    for (size_t at = 0; at + 5 <= size; at++) {
        if (memcmp(copy + at, "[CLS]", 5) == 0) {
            memcpy(copy + at, "<bos>", 5);
        }
    }
    assert_ok(tokenizer_open(&t, copy, size, &err), err);
    assert_true(tokenizer_begin_id(t) < 0 && tokenizer_cleans(t));
    assert_ok(tokenizer_encode_rows(t, ids, &length, &text, 1, 12, &err), err);
    assert_ok(tokenizer_encode_rows(plain, expected, &longer, &clean, 1, 13, &err), err);
    assert_int_equal(length, longer - 1);
    assert_memory_equal(ids, expected + 1, (size_t)length * sizeof *ids);
    assert_int_equal(ids[length - 1], TOKENIZER_SEP);
    assert_int_equal(ids[11], TOKENIZER_PAD);
    tokenizer_close(t);
    tokenizer_close(plain);
    free(copy);
}

TEST(a_model_from_another_program_opens) {
    struct error err = {0};
    size_t size = 0;
    uint8_t *bytes =
        test_read_file(test_data_path("formats/sentencepiece_test_model.model"), &size);
    struct tokenizer *t = NULL;
    assert_ok(tokenizer_open(&t, bytes, size, &err), err);
    assert_int_equal(tokenizer_vocab_count(t), 1000);
    int32_t ids[30];
    uint32_t count = 0;
    assert_ok(tokenizer_encode(t, ids, &count, "I saw a girl", 12, 30, &err), err);
    assert_int_equal(ids[0], 1);              /* <s> */
    assert_int_equal(ids[count - 1], 2);      /* </s> */
    assert_int_equal(tokenizer_pad_id(t), 0); /* has no padding: its unknown piece */
    assert_int_equal(tokenizer_kind(t), TOKENIZER_SENTENCEPIECE);
    test_caption_rows(t, "tests/golden/tokenizer/sentencepiece.txt");
    tokenizer_close(t);
    free(bytes);
}
