/* All captions in order, tokenized as the loader tokenizes them. */
#include "loader/texts.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/dataset/dataset.h"
#include "formats/tokenizer/token_cache.h"
#include "formats/tokenizer/tokenizer.h"
#include "loader/loader.h"
#include "tests/support/image_dataset.h"
#include "tests/support/test.h"

enum { TOKENS = 10, SAMPLES = 100, STEP = 3, TEXTS = 150 };

static struct loader *open_loader(void) {
    struct image_dataset how;
    struct loader_options opt;
    struct loader *l = NULL;
    struct error err = {0};
    const char *dir = test_temp_path("d");
    image_dataset_default(&how);
    image_dataset_make(dir, &how);
    loader_options_default(&opt);
    opt.batch_count = 10;
    opt.image_size_px = 8;
    opt.max_tokens = TOKENS;
    opt.epochs = 2;
    opt.threads = 1;
    assert_ok(loader_open(&l, dir, &opt, &err), err);
    return l;
}

static struct texts *open_texts(const struct loader *l, const struct texts_options *opt) {
    struct texts *t = NULL;
    struct error err = {0};
    assert_ok(texts_open(&t, loader_dataset(l, 0), loader_tokenizer(l), opt, &err), err);
    return t;
}

/* rows: (TEXTS, TOKENS); counts the texts of the range. */
static uint32_t
collect(int32_t *rows, uint64_t *owners, const struct loader *l, const struct texts_options *opt) {
    struct texts *t = open_texts(l, opt);
    struct texts_batch b;
    struct error err = {0};
    enum status s;
    uint32_t n = 0;
    while ((s = texts_next(t, &b, &err)) == STATUS_OK) {
        assert_true(b.count >= 1 && b.count <= opt->batch_count);
        for (uint32_t i = 0; i < b.count; i++, n++) {
            assert_true(b.text_ids[i] < TEXTS);
            assert_true(b.lengths[i] >= 2 && b.lengths[i] <= TOKENS);
            for (int32_t k = b.lengths[i]; k < TOKENS; k++) {
                assert_int_equal(b.tokens[i * TOKENS + (uint32_t)k], TOKENIZER_PAD);
            }
            memcpy(rows + b.text_ids[i] * TOKENS, b.tokens + i * TOKENS, TOKENS * sizeof(*rows));
            owners[b.text_ids[i]] = b.sample_ids[i];
        }
    }
    assert_status(s, STATUS_END, err);
    assert_int_equal(texts_next(t, &b, &err), STATUS_END);
    texts_close(t);
    return n;
}

static struct texts_options options(uint32_t batch) {
    struct texts_options opt;
    texts_options_default(&opt);
    opt.batch_count = batch;
    opt.max_tokens = TOKENS;
    return opt;
}

TEST(all_captions_are_delivered_once_in_order) {
    struct loader *l = open_loader();
    int32_t rows[TEXTS * TOKENS];
    int32_t other[TEXTS * TOKENS];
    uint64_t owners[TEXTS];
    struct texts_options opt = options(7);
    assert_int_equal(collect(rows, owners, l, &opt), TEXTS);
    /* Sample i has i % 4 captions. */
    uint32_t at = 0;
    for (uint64_t i = 0; i < SAMPLES; i++) {
        for (uint64_t k = 0; k < i % 4; k++) {
            assert_int_equal(owners[at++], i * STEP);
        }
    }
    opt = options(1000);
    assert_int_equal(collect(other, owners, l, &opt), TEXTS);
    assert_memory_equal(rows, other, sizeof(rows));
    /* A range, and its rest. */
    memset(other, 0, sizeof(other));
    opt.position_to = 43;
    uint32_t n = collect(other, owners, l, &opt);
    opt.position_from = 43;
    opt.position_to = UINT64_MAX;
    n += collect(other, owners, l, &opt);
    assert_int_equal(n, TEXTS);
    assert_memory_equal(rows, other, sizeof(rows));
    loader_close(l);
}

TEST(loader_and_texts_give_the_same_rows) {
    struct loader *l = open_loader();
    int32_t rows[TEXTS * TOKENS];
    uint64_t owners[TEXTS];
    struct texts_options opt = options(64);
    assert_int_equal(collect(rows, owners, l, &opt), TEXTS);
    struct loader_batch b;
    struct error err = {0};
    uint32_t compared = 0;
    uint32_t without = 0;
    while (loader_acquire(l, &b, &err) == STATUS_OK) {
        for (uint32_t i = 0; i < b.count; i++) {
            if (b.text_ids[i] == LOADER_NO_TEXT) {
                assert_int_equal(b.sample_ids[i] / STEP % 4, 0);
                assert_int_equal(b.lengths[i], 2);
                without++;
                continue;
            }
            assert_int_equal(owners[b.text_ids[i]], b.sample_ids[i]);
            assert_memory_equal(b.tokens + i * TOKENS, rows + b.text_ids[i] * TOKENS,
                                TOKENS * sizeof(*rows));
            compared++;
        }
        loader_release(l, &b);
    }
    assert_int_equal(compared, 150);
    assert_int_equal(without, 50);
    loader_close(l);
}

TEST(single_text_gives_the_same_row) {
    struct loader *l = open_loader();
    const struct tokenizer *t = loader_tokenizer(l);
    int32_t a[TOKENS];
    int32_t b[TOKENS];
    int32_t length_a;
    int32_t length_b;
    struct error err = {0};
    const char loud[] = "A Red-Car, at NIGHT!!";
    const char plain[] = "a red car at night";
    assert_ok(texts_encode(t, a, &length_a, loud, sizeof(loud) - 1, TOKENS, true, &err), err);
    assert_ok(texts_encode(t, b, &length_b, plain, sizeof(plain) - 1, TOKENS, true, &err), err);
    assert_int_equal(length_a, length_b);
    assert_memory_equal(a, b, sizeof(a));
    assert_int_equal(a[0], TOKENIZER_CLS);
    assert_ok(texts_encode(t, b, &length_b, loud, sizeof(loud) - 1, TOKENS, false, &err), err);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_ok(texts_encode(t, a, &length_a, NULL, 0, 2, true, &err), err);
    assert_int_equal(length_a, 2);
    char *huge = calloc(SHARD_MAX_TEXT_BYTES + 1, 1);
    assert_non_null(huge);
    assert_status(texts_encode(t, a, &length_a, huge, SHARD_MAX_TEXT_BYTES + 1, 2, true, &err),
                  STATUS_LIMIT, err);
    free(huge);
    loader_close(l);
    texts_close(NULL);
}

/* --- the token cache --- */

/* What 'ccpack tokenizer --cache' does. */
static void write_cache(const struct loader *l, bool clean, int32_t first_id_moved_by) {
    const struct dataset *d = loader_dataset(l, 0);
    const struct tokenizer *t = loader_tokenizer(l);
    const struct token_cache_key key = {
        .fingerprint = dataset_fingerprint(d),
        .text_count = dataset_text_count(d),
        .tokenizer_hash = tokenizer_hash(t),
        .vocab_count = tokenizer_vocab_count(t),
        .clean = clean,
    };
    struct texts_options opt;
    struct texts_batch b;
    struct token_cache_writer *w = NULL;
    struct error err = {0};
    texts_options_default(&opt);
    opt.max_tokens = 200;
    opt.clean_captions = clean;
    struct texts *texts = open_texts(l, &opt);
    assert_ok(token_cache_writer_create(&w, test_temp_path("d/" TOKEN_CACHE_NAME), file_posix(),
                                        &key, &err),
              err);
    while (texts_next(texts, &b, &err) == STATUS_OK) {
        for (uint32_t i = 0; i < b.count; i++) {
            int32_t ids[200];
            uint32_t count = (uint32_t)b.lengths[i] - 2;
            memcpy(ids, b.tokens + (size_t)i * 200 + 1, count * sizeof(*ids));
            ids[0] += first_id_moved_by;
            assert_ok(token_cache_writer_add(w, ids, count, &err), err);
        }
    }
    assert_ok(token_cache_writer_finish(w, &err), err);
    token_cache_writer_destroy(w);
    texts_close(texts);
}

static struct loader *reopen(uint32_t expected_cached) {
    struct loader_options opt;
    struct loader *l = NULL;
    struct loader_info info;
    struct error err = {0};
    loader_options_default(&opt);
    opt.batch_count = 100;
    opt.image_size_px = 8;
    opt.max_tokens = TOKENS;
    opt.order = LOADER_ORDER_SEQUENTIAL;
    assert_ok(loader_open(&l, test_temp_path("d"), &opt, &err), err);
    loader_info(l, &info);
    assert_int_equal(info.cached_count, expected_cached);
    return l;
}

/* (SAMPLES, TOKENS) of the first epoch. */
static void take_rows(int32_t *rows, struct loader *l) {
    struct loader_batch b;
    struct error err = {0};
    assert_ok(loader_acquire(l, &b, &err), err);
    assert_int_equal(b.count, SAMPLES);
    memcpy(rows, b.tokens, (size_t)SAMPLES * TOKENS * sizeof(*rows));
    loader_close(l);
}

TEST(cached_rows_equal_tokenized_rows) {
    struct loader *l = open_loader();
    static int32_t rows[SAMPLES * TOKENS];
    static int32_t cached[SAMPLES * TOKENS];
    static int32_t texts[TEXTS * TOKENS];
    static int32_t cached_texts[TEXTS * TOKENS];
    uint64_t owners[TEXTS];
    struct texts_options opt;
    texts_options_default(&opt);
    opt.max_tokens = TOKENS;
    take_rows(rows, reopen(0));
    assert_int_equal(collect(texts, owners, l, &opt), TEXTS);
    write_cache(l, true, 0);
    take_rows(cached, reopen(1));
    assert_memory_equal(cached, rows, sizeof(rows));
    loader_close(l);
    l = reopen(1);
    assert_int_equal(collect(cached_texts, owners, l, &opt), TEXTS);
    assert_memory_equal(cached_texts, texts, sizeof(texts));

    /* Other ids in it show that it is used; one made otherwise is not. */
    write_cache(l, true, 1);
    loader_close(l);
    take_rows(cached, reopen(1));
    assert_memory_not_equal(cached, rows, sizeof(rows));
    l = reopen(1);
    write_cache(l, false, 1);
    loader_close(l);
    take_rows(cached, reopen(0));
    assert_memory_equal(cached, rows, sizeof(rows));
}

TEST(damaged_cached_rows_are_tokenized) {
    struct loader *l = open_loader();
    static int32_t rows[SAMPLES * TOKENS];
    static int32_t cached[SAMPLES * TOKENS];
    take_rows(rows, reopen(0));
    write_cache(l, true, 0);
    loader_close(l);
    size_t size = 0;
    uint8_t *bytes = test_read_file(test_temp_path("d/" TOKEN_CACHE_NAME), &size);
    for (size_t i = 0; i < size / 2; i += 40) {
        bytes[i + 20] ^= 1;
    }
    test_write_file(test_temp_path("d/" TOKEN_CACHE_NAME), bytes, size);
    free(bytes);
    take_rows(cached, reopen(1)); /* the trailer is sound, so the file is used */
    assert_memory_equal(cached, rows, sizeof(rows));
}
