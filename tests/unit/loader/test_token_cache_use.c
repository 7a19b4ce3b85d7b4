/* The loader with tokens.cct: the same batches as without, for both kinds of tokenizer; a cache
 * that does not fit is named and not used; a damaged row is tokenized again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "augment/caption.h"
#include "formats/dataset/dataset.h"
#include "formats/dataset/dataset_tokenizer.h"
#include "formats/tokenizer/token_cache.h"
#include "loader/texts.h"
#include "tests/support/batches.h"
#include "tests/support/image_dataset.h"
#include "tests/support/test.h"

enum { STEPS = 8, LONG_ROW = 64 };

static struct error err;

static const char *make_dataset_at(const char *name) {
    struct image_dataset how;
    image_dataset_default(&how);
    const char *dir = test_temp_path("%s", name);
    image_dataset_make(dir, &how);
    return dir;
}

/* Writes the ids of all captions with what is in `dir`, each plus `shift`. */
static void write_cache(const char *dir, bool clean, int32_t shift) {
    struct dataset *d = NULL;
    struct tokenizer *t = NULL;
    struct caption_reader *r = NULL;
    struct token_cache_writer *w = NULL;
    assert_ok(dataset_open(&d, dir, NULL, &err), err);
    assert_ok(dataset_tokenizer_open(&t, dir, dataset_manifest(d), file_posix(), &err), err);
    assert_ok(caption_reader_create(&r, d, &err), err);
    const struct token_cache_key key = {dataset_fingerprint(d), dataset_text_count(d),
                                        tokenizer_hash(t), tokenizer_vocab_count(t), clean};
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, TOKEN_CACHE_NAME);
    assert_ok(token_cache_writer_create(&w, path, file_posix(), &key, &err), err);
    for (uint64_t i = 0; i < dataset_sample_count(d); i++) {
        struct dataset_sample s;
        assert_ok(dataset_sample_at(d, i, &s, &err), err);
        for (uint32_t k = 0; k < s.text_count; k++) {
            struct shard_text text;
            static char cleaned[CAPTION_CLEAN_BOUND_BYTES(SHARD_MAX_TEXT_BYTES)];
            int32_t ids[128];
            uint32_t n = 0;
            assert_ok(caption_reader_get(r, &s, k, &text, &err), err);
            size_t size =
                clean ? caption_clean(cleaned, text.data, text.size_bytes) : text.size_bytes;
            assert_ok(tokenizer_encode(t, ids, &n, clean ? cleaned : text.data, size, 128, &err),
                      err);
            for (uint32_t j = 0; j < n; j++) {
                ids[j] = (ids[j] + shift) % (int32_t)key.vocab_count;
            }
            assert_ok(token_cache_writer_add(w, ids + 1, n - 2, &err), err);
        }
    }
    assert_ok(token_cache_writer_finish(w, &err), err);
    token_cache_writer_destroy(w);
    caption_reader_destroy(r);
    tokenizer_close(t);
    dataset_close(d);
}

static void hash_steps(uint64_t out[STEPS], const char *dir, const struct loader_options *opt) {
    batches_of(out, STEPS, &(struct loader_source){.directory = dir}, 1, opt);
}

static void check_same_batches(const char *dir) {
    uint64_t without[STEPS];
    uint64_t with[STEPS];
    for (uint32_t max_tokens = 2; max_tokens <= BATCHES_TOKENS; max_tokens += 5) {
        struct loader_options opt = batches_options(20);
        opt.max_tokens = max_tokens;
        hash_steps(without, dir, &opt);
        write_cache(dir, true, 0);
        for (opt.threads = test_step(4); opt.threads <= 4; opt.threads += 3) {
            hash_steps(with, dir, &opt);
            assert_memory_equal(with, without, sizeof(with));
        }
        if (max_tokens > 2) { /* other ids are delivered, so it is the cache that is read */
            write_cache(dir, true, 1);
            hash_steps(with, dir, &opt);
            assert_memory_not_equal(with, without, sizeof(with));
        }
        remove(test_temp_path("d/%s", TOKEN_CACHE_NAME));
    }
}

TEST(cache_gives_the_same_batches) {
    check_same_batches(make_dataset_at("d"));
}

TEST(wordpiece_cache_gives_the_same_batches) {
    const char *dir = make_dataset_at("d");
    struct tokenizer *t = NULL;
    size_t size = 0;
    uint8_t *vocab = test_read_file(test_source_path("tests/golden/tokenizer/vocab.txt"), &size);
    assert_ok(tokenizer_open(&t, vocab, size, &err), err);
    assert_ok(dataset_tokenizer_store(t, dir, file_posix(), true, &err), err);
    tokenizer_close(t);
    free(vocab);
    check_same_batches(dir);
}

TEST(mix_uses_the_cache_of_each_dataset) {
    const char *a = make_dataset_at("a");
    struct image_dataset how;
    image_dataset_default(&how);
    how.samples = 70;
    const char *b = test_temp_path("b");
    image_dataset_make(b, &how);
    char copy[512], from[512];
    snprintf(copy, sizeof(copy), "%s/tokenizer.model", b);
    snprintf(from, sizeof(from), "%s/tokenizer.model", a);
    size_t size = 0;
    uint8_t *model = test_read_file(from, &size);
    test_write_file(copy, model, size);
    free(model);
    const struct loader_source sources[] = {{.directory = a, .weight = 1},
                                            {.directory = b, .weight = 2}};
    struct loader_options opt = batches_options(20);
    uint64_t without[STEPS];
    uint64_t with[STEPS];
    batches_of(without, STEPS, sources, 2, &opt);
    write_cache(b, true, 0);
    batches_of(with, STEPS, sources, 2, &opt);
    assert_memory_equal(with, without, sizeof(with));
    write_cache(b, true, 1);
    batches_of(with, STEPS, sources, 2, &opt);
    assert_memory_not_equal(with, without, sizeof(with));
    write_cache(a, true, 0);
    write_cache(b, true, 0);
    batches_of(with, STEPS, sources, 2, &opt);
    assert_memory_equal(with, without, sizeof(with));
}

struct lines {
    int count;
    char last[1024];
};

static void keep_line(void *cookie, enum log_level level, const char *text) {
    struct lines *lines = cookie;
    (void)level;
    if (strstr(text, TOKEN_CACHE_NAME)) {
        lines->count++;
        snprintf(lines->last, sizeof(lines->last), "%s", text);
    }
}

/* Batches as without a cache, and one line that holds `why`. */
static void
check_unused(const char *dir, bool clean, const uint64_t expected[STEPS], const char *why) {
    struct lines lines = {0};
    struct log_sink sink = {keep_line, &lines, LOG_LEVEL_INFO};
    struct loader_options opt = batches_options(20);
    uint64_t got[STEPS];
    opt.clean_captions = clean;
    opt.max_tokens = LONG_ROW;
    opt.log = &sink;
    hash_steps(got, dir, &opt);
    assert_memory_equal(got, expected, sizeof(got));
    assert_int_equal(lines.count, why ? 1 : 0);
    if (why && strstr(lines.last, why) == NULL) {
        fail_msg("no '%s' in: %s", why, lines.last);
    }
}

TEST(mismatching_cache_is_logged_and_not_used) {
    const char *dir = make_dataset_at("d");
    const char *path = test_temp_path("d/%s", TOKEN_CACHE_NAME);
    struct loader_options opt = batches_options(20);
    uint64_t cleaned[STEPS];
    uint64_t stored[STEPS];
    size_t size = 0;
    opt.max_tokens = LONG_ROW;
    hash_steps(cleaned, dir, &opt);
    opt.clean_captions = false;
    hash_steps(stored, dir, &opt);
    assert_memory_not_equal(stored, cleaned, sizeof(stored));
    check_unused(dir, true, cleaned, NULL);
    write_cache(dir, true, 1);
    check_unused(dir, false, stored, "cleaning");
    write_cache(dir, false, 1);
    check_unused(dir, true, cleaned, "cleaning");
    uint8_t *bytes = test_read_file(path, &size);
    bytes[size - 20] ^= 1;
    test_write_file(path, bytes, size);
    check_unused(dir, true, cleaned, "trailer");
    test_write_file(path, bytes, size / 2);
    check_unused(dir, true, cleaned, "not a token cache");
    free(bytes);
}

TEST(damaged_cache_row_is_tokenized_and_logged) {
    const char *dir = make_dataset_at("d");
    const char *path = test_temp_path("d/%s", TOKEN_CACHE_NAME);
    struct lines lines = {0};
    struct log_sink sink = {keep_line, &lines, LOG_LEVEL_INFO};
    struct loader_options opt = batches_options(20);
    uint64_t without[STEPS];
    uint64_t with[STEPS];
    size_t size = 0;
    hash_steps(without, dir, &opt);
    write_cache(dir, true, 0);
    uint8_t *bytes = test_read_file(path, &size);
    bytes[4]++; /* how many ids text 0 has */
    test_write_file(path, bytes, size);
    free(bytes);
    opt.log = &sink;
    opt.threads = 1;
    hash_steps(with, dir, &opt);
    assert_memory_equal(with, without, sizeof(with));
    assert_int_equal(lines.count, 1);
    assert_non_null(strstr(lines.last, "row of text 0"));
}

/* All captions of the dataset, as evaluation reads them. */
static uint64_t all_texts(int32_t *rows, const char *dir) {
    struct dataset *d = NULL;
    struct tokenizer *t = NULL;
    struct texts *texts = NULL;
    struct texts_batch b;
    struct texts_options opt;
    uint64_t count = 0;
    enum status s;
    texts_options_default(&opt);
    opt.max_tokens = BATCHES_TOKENS;
    assert_ok(dataset_open(&d, dir, NULL, &err), err);
    assert_ok(dataset_tokenizer_open(&t, dir, dataset_manifest(d), file_posix(), &err), err);
    assert_ok(texts_open(&texts, d, t, &opt, &err), err);
    while ((s = texts_next(texts, &b, &err)) == STATUS_OK) {
        memcpy(rows + count * BATCHES_TOKENS, b.tokens, b.count * BATCHES_TOKENS * sizeof(rows[0]));
        count += b.count;
    }
    assert_int_equal(s, STATUS_END);
    texts_close(texts);
    tokenizer_close(t);
    dataset_close(d);
    return count;
}

TEST(evaluation_uses_the_same_rows) {
    static int32_t without[1000 * BATCHES_TOKENS];
    static int32_t with[1000 * BATCHES_TOKENS];
    const char *dir = make_dataset_at("d");
    uint64_t count = all_texts(without, dir);
    assert_true(count > 100 && count < 1000);
    write_cache(dir, true, 0);
    assert_int_equal(all_texts(with, dir), count);
    assert_memory_equal(with, without, sizeof(with));
    write_cache(dir, true, 1);
    assert_int_equal(all_texts(with, dir), count);
    assert_memory_not_equal(with, without, sizeof(with));
}
