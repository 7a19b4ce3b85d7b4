/* The tokenizer in a dataset's directory: recorded, checked, and whole at every instant. */
#include "formats/dataset/dataset_tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/test.h"

static struct error err;

static const char first_text[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n";
static const char second_text[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n";

static struct tokenizer *open_text(const char *text) {
    struct tokenizer *t = NULL;
    assert_ok(tokenizer_open(&t, text, strlen(text), &err), err);
    return t;
}

/* A dataset without shards is enough: nothing here reads one. */
static struct file_system *make_dataset_in_memory(void) {
    struct file_system *fs = NULL;
    struct manifest m;
    assert_ok(file_memory_create(&fs, &err), err);
    assert_ok(fs->make_directory(fs->context, "d", &err), err);
    assert_ok(manifest_init(&m, SHARD_CONTAINER_TAR_ZSTD, "ccpack", &err), err);
    assert_ok(manifest_seal(&m, 0xef46db3751d8e999u, &err), err);
    assert_ok(manifest_write(&m, fs, "d", &err), err);
    manifest_fini(&m);
    return fs;
}

/* What opening gives: the number of pieces, 0 for no tokenizer. */
static uint32_t opened(const struct file_system *fs, enum status expected) {
    struct manifest m;
    struct tokenizer *t = NULL;
    uint32_t count = 0;
    assert_ok(manifest_read(&m, fs, "d", &err), err);
    assert_status(dataset_tokenizer_open(&t, "d", &m, fs, &err), expected, err);
    if (t) {
        count = tokenizer_vocab_count(t);
    }
    tokenizer_close(t);
    manifest_fini(&m);
    return count;
}

TEST(a_tokenizer_is_stored_recorded_and_replaced) {
    struct file_system *fs = make_dataset_in_memory();
    struct tokenizer *first = open_text(first_text);
    struct tokenizer *second = open_text(second_text);
    struct manifest m;
    assert_int_equal(opened(fs, STATUS_OK), 0);
    assert_ok(dataset_tokenizer_store(first, "d", fs, false, &err), err);
    assert_ok(dataset_tokenizer_store(first, "d", fs, false, &err), err);
    assert_int_equal(opened(fs, STATUS_OK), 5);
    assert_status(dataset_tokenizer_store(second, "d", fs, false, &err), STATUS_EXISTS, err);
    assert_int_equal(opened(fs, STATUS_OK), 5);
    assert_ok(dataset_tokenizer_store(second, "d", fs, true, &err), err);
    assert_int_equal(opened(fs, STATUS_OK), 6);
    assert_ok(manifest_read(&m, fs, "d", &err), err);
    assert_string_equal(m.tokenizer.file, "tokenizer.model");
    assert_string_equal(m.tokenizer.kind, "wordpiece");
    assert_int_equal(m.tokenizer.hash, tokenizer_hash(second));
    manifest_fini(&m);
    tokenizer_close(first);
    tokenizer_close(second);
    file_memory_destroy(fs);
}

TEST(another_file_than_the_recorded_one_is_refused) {
    struct file_system *fs = make_dataset_in_memory();
    struct tokenizer *first = open_text(first_text);
    assert_ok(dataset_tokenizer_store(first, "d", fs, false, &err), err);
    assert_ok(file_write_atomic(fs, "d/tokenizer.model", second_text, strlen(second_text), &err),
              err);
    opened(fs, STATUS_MISMATCH);
    assert_non_null(strstr(err.text, "d/tokenizer.model"));
    assert_status(dataset_tokenizer_store(first, "d", fs, false, &err), STATUS_EXISTS, err);
    assert_ok(fs->remove(fs->context, "d/tokenizer.model", &err), err);
    opened(fs, STATUS_NOTFOUND);
    assert_ok(dataset_tokenizer_store(first, "d", fs, true, &err), err);
    assert_int_equal(opened(fs, STATUS_OK), 5);
    tokenizer_close(first);
    file_memory_destroy(fs);
}

TEST(a_file_without_record_is_used) {
    struct file_system *fs = make_dataset_in_memory();
    struct tokenizer *first = open_text(first_text);
    assert_ok(file_write_atomic(fs, "d/tokenizer.model", first_text, strlen(first_text), &err),
              err);
    assert_int_equal(opened(fs, STATUS_OK), 5);
    assert_ok(dataset_tokenizer_store(first, "d", fs, false, &err),
              err); /* the same: recorded now */
    assert_ok(file_write_atomic(fs, "d/tokenizer.model", second_text, strlen(second_text), &err),
              err);
    opened(fs, STATUS_MISMATCH);
    tokenizer_close(first);
    file_memory_destroy(fs);
}

/* The process dies at every call in turn while one tokenizer replaces another. */
TEST(a_crash_leaves_a_correct_record) {
    struct tokenizer *first = open_text(first_text);
    struct tokenizer *second = open_text(second_text);
    uint64_t calls = UINT64_MAX;
    for (uint64_t nth = 0; nth <= calls; nth++) {
        struct file_system *fs = make_dataset_in_memory();
        struct file_system *mortal = NULL;
        assert_ok(dataset_tokenizer_store(first, "d", fs, false, &err), err);
        assert_ok(file_fault_create(&mortal, fs, nth, FILE_FAULT_DEAD, &err), err);
        enum status s = dataset_tokenizer_store(second, "d", mortal, true, &err);
        if (s == STATUS_OK) {
            calls = file_fault_count(mortal);
            assert_int_equal(opened(fs, STATUS_OK), 6);
        } else {
            uint32_t pieces = opened(fs, STATUS_OK);
            assert_true(pieces == 5 || pieces == 6);
        }
        file_fault_destroy(mortal);
        file_memory_destroy(fs);
    }
    assert_true(calls > 10);
    tokenizer_close(first);
    tokenizer_close(second);
}
