/* The tokenizer of libccstream: rows are those that the loader delivers for the same captions. */
#include <stdlib.h>
#include <string.h>

#include "bindings/c/ccstream.h"
#include "tests/support/image_dataset.h"
#include "tests/support/library.h"
#include "tests/support/test.h"

enum { SAMPLES = 100, TOKENS = 12 };

static struct ccs_dataset *open_made(bool tokenizer) {
    struct image_dataset how;
    image_dataset_default(&how);
    how.tokenizer = tokenizer;
    struct ccs_dataset *d = NULL;
    image_dataset_make(test_temp_path("d"), &how);
    assert_int_equal(ccs_dataset_open(&d, test_temp_path("d"), NULL), CCS_OK);
    return d;
}

/* Whether one of the captions of sample `id` gives this row. */
static bool is_row_of(struct ccs_reader *r,
                      const struct ccs_tokenizer *t,
                      uint64_t position,
                      bool clean,
                      const int32_t *row,
                      int32_t length) {
    const struct ccs_text *texts = NULL;
    uint32_t count = 0;
    int32_t tokens[8 * TOKENS];
    int32_t lengths[8];
    bool found = false;
    assert_int_equal(ccs_reader_captions(r, position, &texts, &count, NULL), CCS_OK);
    assert_int_equal(ccs_tokenizer_encode(t, tokens, lengths, texts, count, TOKENS, clean, NULL),
                     CCS_OK);
    for (uint32_t k = 0; k < count; k++) {
        found = found || (lengths[k] == length &&
                          memcmp(tokens + k * TOKENS, row, TOKENS * sizeof(*row)) == 0);
    }
    return found || count == 0;
}

static void check_loader(bool clean) {
    struct ccs_dataset *d = open_made(true);
    struct ccs_tokenizer *t = NULL;
    struct ccs_reader *r = NULL;
    struct ccs_loader *l = NULL;
    struct ccs_loader_options opt;
    const struct ccs_batch *b = NULL;
    struct ccs_record record = {.struct_size = sizeof(record)};
    ccs_loader_options_init(&opt, sizeof(opt));
    opt.batch_size = SAMPLES;
    opt.image_size_px = 8;
    opt.max_tokens = TOKENS;
    opt.clean_captions = clean;
    assert_int_equal(ccs_tokenizer_of_dataset(&t, d, NULL), CCS_OK);
    assert_int_equal(ccs_reader_open(&r, d, NULL), CCS_OK);
    assert_int_equal(ccs_loader_open(&l, test_temp_path("d"), &opt, NULL), CCS_OK);
    assert_int_equal(ccs_loader_next(l, &b, 60000, NULL), CCS_OK);
    for (uint32_t i = 0; i < b->count; i++) {
        assert_int_equal(ccs_dataset_find(d, b->ids[i], &record, NULL), CCS_OK);
        assert_true(is_row_of(r, t, record.position, clean, b->tokens + i * TOKENS, b->lengths[i]));
    }
    ccs_batch_release(b);
    ccs_loader_close(l);
    ccs_reader_close(r);
    ccs_tokenizer_close(t);
    ccs_dataset_close(d);
}

TEST(rows_are_those_of_the_loader) {
    check_loader(true);
}

TEST(rows_without_cleaning_are_those_of_the_loader) {
    check_loader(false);
}

TEST(a_model_is_opened_from_its_bytes) {
    static const char vocabulary[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\ndog\n!\n";
    static const int32_t expected[2][6] = {{2, 4, 5, 6, 3, 0}, {2, 3, 0, 0, 0, 0}};
    static const int32_t cleaned[6] = {2, 4, 5, 3, 0, 0};
    const struct ccs_text texts[] = {{"A dog!", 6}, {NULL, 0}};
    struct ccs_tokenizer *t = NULL;
    int32_t tokens[2][6];
    int32_t lengths[2];
    assert_int_equal(ccs_tokenizer_open(&t, vocabulary, sizeof(vocabulary) - 1, NULL), CCS_OK);
    assert_int_equal(ccs_tokenizer_vocabulary(t), 7);
    assert_int_equal(ccs_tokenizer_pad(t), 0);
    assert_int_equal(ccs_tokenizer_encode(t, tokens[0], lengths, texts, 2, 6, false, NULL), CCS_OK);
    assert_memory_equal(tokens, expected, sizeof(expected));
    assert_int_equal(lengths[0], 5);
    assert_int_equal(lengths[1], 2);
    assert_int_equal(ccs_tokenizer_encode(t, tokens[0], lengths, texts, 2, 6, true, NULL), CCS_OK);
    assert_memory_equal(tokens[0], cleaned, sizeof(cleaned));
    assert_int_equal(ccs_tokenizer_encode(t, NULL, NULL, NULL, 0, 6, true, NULL), CCS_OK);
    ccs_tokenizer_close(t);
}

TEST(clip_is_built_in_and_cleans_by_its_own_rules) {
    struct ccs_tokenizer *t = NULL;
    struct ccs_error err;
    int32_t rows[2][6];
    int32_t length;
    const struct ccs_text text = {"A cat's  PHOTO.", 15};
    static const int32_t expected[6] = {49406, 320, 2368, 568, 1125, 49407};
    assert_int_equal(ccs_tokenizer_load(&t, "clip", NULL), CCS_OK);
    assert_int_equal(ccs_tokenizer_vocabulary(t), 49408);
    assert_int_equal(ccs_tokenizer_begin(t), 49406);
    assert_int_equal(ccs_tokenizer_end(t), 49407);
    for (int clean = 0; clean < 2; clean++) {
        assert_int_equal(
            ccs_tokenizer_encode(t, rows[clean], &length, &text, 1, 6, clean != 0, NULL), CCS_OK);
        assert_memory_equal(rows[clean], expected, sizeof(expected));
        assert_int_equal(length, 6);
    }
    ccs_tokenizer_close(t);
    library_check_error(ccs_tokenizer_load(&t, "none", &err), CCS_ERROR_NOTFOUND, &err, "none");
    library_check_error(ccs_tokenizer_load(&t, NULL, &err), CCS_ERROR_INVALID, &err, "path");
    library_check_error(ccs_tokenizer_load(NULL, "clip", &err), CCS_ERROR_INVALID, &err, "out");
    assert_int_equal(ccs_tokenizer_begin(NULL), 0);
    assert_int_equal(ccs_tokenizer_end(NULL), 0);
}

TEST(wrong_models_and_arguments_are_refused) {
    struct ccs_dataset *d = open_made(false);
    struct ccs_tokenizer *t = NULL;
    struct ccs_error err;
    int32_t tokens[4];
    int32_t length;
    const struct ccs_text wrong = {NULL, 1};
    const struct ccs_text text = {"a", 1};
    static const char vocabulary[] = "[UNK]\n[CLS]\n[SEP]\na\n";
    library_check_error(ccs_tokenizer_of_dataset(&t, d, &err), CCS_ERROR_NOTFOUND, &err,
                        "no tokenizer");
    library_check_error(ccs_tokenizer_of_dataset(&t, NULL, &err), CCS_ERROR_INVALID, &err, "NULL");
    library_check_error(ccs_tokenizer_of_dataset(NULL, d, &err), CCS_ERROR_INVALID, &err, "NULL");
    library_check_error(ccs_tokenizer_open(&t, "x", 1, &err), CCS_ERROR_CORRUPT, &err, "");
    library_check_error(ccs_tokenizer_open(&t, NULL, 0, &err), CCS_ERROR_INVALID, &err,
                        "model is NULL");
    library_check_error(ccs_tokenizer_open(NULL, "x", 1, &err), CCS_ERROR_INVALID, &err,
                        "out is NULL");
    assert_null(t);
    assert_int_equal(ccs_tokenizer_open(&t, vocabulary, sizeof(vocabulary) - 1, NULL), CCS_OK);
    library_check_error(ccs_tokenizer_encode(t, tokens, &length, &text, 1, 1, true, &err),
                        CCS_ERROR_USAGE, &err, "max_tokens is 1");
    library_check_error(ccs_tokenizer_encode(t, tokens, &length, &text, 1, 4097, true, &err),
                        CCS_ERROR_USAGE, &err, "max_tokens is 4097");
    library_check_error(ccs_tokenizer_encode(t, tokens, &length, &wrong, 1, 4, true, &err),
                        CCS_ERROR_INVALID, &err, "data of a text is NULL");
    library_check_error(ccs_tokenizer_encode(t, NULL, &length, &text, 1, 4, true, &err),
                        CCS_ERROR_INVALID, &err, "tokens");
    library_check_error(ccs_tokenizer_encode(NULL, tokens, &length, &text, 1, 4, true, &err),
                        CCS_ERROR_INVALID, &err, "tokenizer is NULL");
    assert_int_equal(ccs_tokenizer_vocabulary(NULL), 0);
    ccs_tokenizer_close(t);
    ccs_tokenizer_close(NULL);
    ccs_dataset_close(d);
}
