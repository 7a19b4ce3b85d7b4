/* columns: rows are read as they were written, every flipped bit is found, a disk that is full and
 * a process that is killed at any call leave the column as it was or as it becomes. */
#include "formats/columns/columns.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/test.h"

enum { ROWS = 150, MAX_ROW = 2000 };
static const uint64_t WIDE = UINT64_C(5) << 32;

static struct error err;

static struct file_system *new_files(void) {
    struct file_system *fs = NULL;
    assert_ok(file_memory_create(&fs, &err), err);
    return fs;
}

/* Row i of a version of a column: captions with weights and sources, texts, or two f32. */
static size_t make_row(uint8_t *out, int kind, uint64_t i, unsigned version) {
    size_t size = 0;
    if (kind == SAFETENSORS_F32) {
        const float values[2] = {(float)i, (float)version};
        memcpy(out, values, sizeof values);
        return sizeof values;
    }
    if (kind == COLUMN_TEXT) {
        return (size_t)sprintf((char *)out, "text %" PRIu64 " of version %u%*s", i, version,
                               (int)(i * 7 % 900), "");
    }
    const uint16_t head = (uint16_t)(2 | (i % 3 == 1 ? 0x8000 : 0) | (i % 3 == 2 ? 0xC000 : 0));
    const float weights[2] = {0.0F, (float)i};
    memcpy(out, &head, 2);
    size = 2;
    if (i % 3 > 0) {
        memcpy(out + size, weights, sizeof weights);
        size += sizeof weights;
    }
    if (i % 3 == 2) {
        out[size++] = 7;
        out[size++] = 0;
    }
    size += (size_t)sprintf((char *)out + size, "first %" PRIu64 " %u", i, version) + 1;
    size += (size_t)sprintf((char *)out + size, "%*s", (int)(i * 11 % 700), "") + 1;
    return size;
}

static uint64_t id_of(uint64_t i, uint64_t first) {
    return first + 3 * i + i % 2;
}

static enum status
write_column(const struct file_system *fs, int kind, uint64_t first, unsigned version) {
    struct column_info info = {.name = "x", .kind = kind, .source = (char[]){"{}"}};
    struct column_writer *w = NULL;
    struct column_block b = {0};
    uint8_t row[MAX_ROW];
    info.values = info.vectors = kind == SAFETENSORS_F32 ? 2 : 0;
    info.vectors = info.values > 0 ? 1 : 0;
    enum status s = column_writer_create(&w, fs, ".", &info, &err);
    for (uint64_t i = 0; s == STATUS_OK && i < ROWS; i++) {
        s = column_block_add(&b, &info, id_of(i, first), row, make_row(row, kind, i, version),
                             &err);
        if (s == STATUS_OK && i % 64 == 63) {
            s = column_writer_put(w, &b, &err);
        }
    }
    THEN(s, column_writer_put(w, &b, &err));
    THEN(s, column_writer_finish(w, &err));
    column_block_fini(&b);
    column_writer_destroy(w);
    return s;
}

/* Which version all rows are of; -1: not all of one. */
static int version_of(const struct file_system *fs, int kind, uint64_t first) {
    struct column *c = NULL;
    struct column_workspace *workspace = NULL;
    unsigned found = 0;
    assert_ok(column_open(&c, fs, ".", "x", NULL, &err), err);
    assert_ok(column_verify(c, &err), err);
    assert_ok(column_workspace_create(&workspace, &err), err);
    for (unsigned version = 1; version <= 2 && found == 0; version++) {
        uint64_t same = 0;
        for (uint64_t i = 0; i < ROWS; i++) {
            uint8_t want[MAX_ROW];
            const uint8_t *row = NULL;
            size_t size = 0;
            assert_ok(column_get(c, workspace, id_of(i, first), &row, &size, &err), err);
            same += size == make_row(want, kind, i, version) && memcmp(row, want, size) == 0;
        }
        found = same == ROWS ? version : 0;
    }
    column_workspace_destroy(workspace);
    column_close(c);
    return found > 0 ? (int)found : -1;
}

static const int kinds[] = {SAFETENSORS_F32, COLUMN_TEXT, COLUMN_CAPTIONS};

TEST(written_rows_are_read_back) {
    for (size_t k = 0; k < 3; k++) {
        for (int wide = 0; wide < 2; wide++) {
            struct file_system *fs = new_files();
            struct column *c = NULL;
            const uint64_t first = wide ? WIDE : 4;
            assert_ok(write_column(fs, kinds[k], first, 1), err);
            assert_int_equal(version_of(fs, kinds[k], first), 1);
            assert_ok(column_open(&c, fs, ".", "x", NULL, &err), err);
            assert_true(column_row_id(c, ROWS - 1) == id_of(ROWS - 1, first));
            assert_true(column_has(c, id_of(9, first)) && !column_has(c, id_of(9, first) + 1));
            column_close(c);
            file_memory_destroy(fs);
        }
    }
}

TEST(captions_have_their_weights_and_sources) {
    struct file_system *fs = new_files();
    struct column *c = NULL;
    struct column_workspace *workspace = NULL;
    assert_ok(write_column(fs, COLUMN_CAPTIONS, 0, 1), err);
    assert_ok(column_open(&c, fs, ".", "x", NULL, &err), err);
    assert_ok(column_workspace_create(&workspace, &err), err);
    for (uint64_t i = 0; i < ROWS; i++) {
        struct column_caption x = {0};
        const uint8_t *row = NULL;
        size_t size = 0;
        assert_ok(column_get(c, workspace, id_of(i, 0), &row, &size, &err), err);
        assert_true(column_next_caption(&x, row, size));
        assert_true(x.weight == (i % 3 > 0 ? 0.0F : 1.0F) && x.source == (i % 3 == 2 ? 7U : 0U));
        assert_true(strncmp(x.text, "first ", 6) == 0 && strlen(x.text) == x.size_bytes);
        assert_true(column_next_caption(&x, row, size));
        assert_true(x.weight == (i % 3 > 0 ? (float)i : 1.0F) && x.source == 0);
        assert_true(x.size_bytes == i * 11 % 700);
        assert_false(column_next_caption(&x, row, size));
    }
    column_workspace_destroy(workspace);
    column_close(c);
    file_memory_destroy(fs);
}

/* Every f16, and numbers of the other kinds: a row at once is its numbers one by one. */
TEST(a_row_widened_at_once_is_its_numbers) {
    static const int all[] = {SAFETENSORS_F16, SAFETENSORS_BF16, SAFETENSORS_F32,
                              SAFETENSORS_F64, SAFETENSORS_I8,   SAFETENSORS_U8,
                              SAFETENSORS_I32, SAFETENSORS_U32,  SAFETENSORS_I64};
    enum { VALUES = 1 << 13 };
    static uint16_t numbers[4 * VALUES];
    static float got[VALUES];
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        struct column_info info = {
            .name = "x", .kind = all[k], .values = VALUES, .vectors = 1, .source = (char[]){"{}"}};
        struct file_system *fs = new_files();
        struct column_writer *w = NULL;
        struct column_block b = {0};
        struct column *c = NULL;
        assert_ok(column_writer_create(&w, fs, ".", &info, &err), err);
        for (uint64_t row = 0; row < 8; row++) { /* 65,536 bit patterns of 16 bits */
            for (uint32_t i = 0; i < 4 * VALUES; i++) {
                numbers[i] = (uint16_t)(row * VALUES + i);
            }
            assert_ok(column_block_add(&b, &info, row, numbers, column_row_bytes(&info), &err),
                      err);
        }
        assert_ok(column_writer_put(w, &b, &err), err);
        assert_ok(column_writer_finish(w, &err), err);
        assert_ok(column_open(&c, fs, ".", "x", NULL, &err), err);
        for (uint64_t row = 0; row < 8; row++) {
            const uint8_t *bytes = NULL;
            size_t size = 0;
            assert_ok(column_get(c, NULL, row, &bytes, &size, &err), err);
            column_floats(c, bytes, got);
            for (uint32_t i = 0; i < VALUES; i++) {
                const float want = (float)column_number(c, bytes, i);
                assert_true(memcmp(&want, &got[i], sizeof want) == 0 ||
                            (want != want && got[i] != got[i]));
            }
        }
        column_close(c);
        column_writer_destroy(w);
        column_block_fini(&b);
        file_memory_destroy(fs);
    }
}

TEST(rows_that_are_not_of_their_kind_are_refused) {
    static const struct {
        int kind;
        const char *bytes;
        size_t size;
    } bad[] = {
        {COLUMN_TEXT, "a\0b", 3},         {COLUMN_JSON, "1\0", 2},
        {COLUMN_CAPTIONS, "", 0},         {COLUMN_CAPTIONS, "\1", 1},
        {COLUMN_CAPTIONS, "\1\0a", 3},    {COLUMN_CAPTIONS, "\1\0a\0b", 5},
        {COLUMN_CAPTIONS, "\2\0a\0", 4},  {COLUMN_CAPTIONS, "\1\200\0\0a", 5},
        {COLUMN_CAPTIONS, "\1\100\0", 3},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const struct column_info info = {.name = "x", .kind = bad[i].kind};
        struct column_block b = {0};
        assert_status(column_block_add(&b, &info, 5, bad[i].bytes, bad[i].size, &err), STATUS_USAGE,
                      err);
        assert_non_null(strstr(err.text, "column 'x': the row of sample 5 is not"));
        assert_int_equal(b.rows, 0);
        column_block_fini(&b);
    }
}

/* A full disk or a failing call, at each of them, with all or half of a write done: nothing has
 * changed. */
TEST(a_fault_at_any_call_leaves_the_old_column) {
    static const enum file_fault faults[] = {FILE_FAULT_ERROR, FILE_FAULT_SHORT_WRITE,
                                             FILE_FAULT_DEAD};
    for (size_t k = 0; k < 3; k++) {
        for (size_t f = 0; f < 3; f++) {
            bool failed = true;
            for (uint64_t nth = 0; failed; nth += FILE_FAULT_STEP) {
                struct file_system *fs = new_files();
                struct file_system *faulty = NULL;
                assert_ok(write_column(fs, kinds[k], 4, 1), err);
                assert_ok(file_fault_create(&faulty, fs, nth, faults[f], &err), err);
                const enum status s = write_column(faulty, kinds[k], 4, 2);
                failed = file_fault_count(faulty) > nth;
                const int version = version_of(fs, kinds[k], 4);
                assert_true(version == (s == STATUS_OK ? 2 : 1) ||
                            (s != STATUS_OK && version == 2));
                assert_true(faults[f] == FILE_FAULT_DEAD ||
                            !file_any_temporary(fs, "./columns", false));
                file_memory_crash(fs); /* and the power fails */
                const int after = version_of(fs, kinds[k], 4);
                assert_true(after == 1 || after == 2);
                assert_true(s != STATUS_OK || after == 2);
                assert_ok(write_column(fs, kinds[k], 4, 2), err); /* the same again */
                assert_int_equal(version_of(fs, kinds[k], 4), 2);
                assert_false(file_any_temporary(fs, "./columns", false));
                file_fault_destroy(faulty);
                file_memory_destroy(fs);
            }
        }
    }
}

static bool is_listed(const struct file_system *fs, const char *name) {
    struct byte_buffer list = {0};
    char line[COLUMN_MAX_NAME_BYTES + 2];
    (void)snprintf(line, sizeof line, "%s\n", name);
    const bool found = file_read_all(fs, &list, COLUMN_LIST_NAME, 1 << 12, NULL) == STATUS_OK &&
                       memmem(list.data, list.size_bytes, line, strlen(line)) != NULL;
    byte_buffer_fini(&list);
    return found;
}

static enum status write_number(const struct file_system *fs, const char *name) {
    struct column_info info = {
        .kind = SAFETENSORS_F32, .values = 1, .vectors = 1, .source = (char[]){"{}"}};
    struct column_writer *w = NULL;
    struct column_block b = {0};
    (void)snprintf(info.name, sizeof info.name, "%s", name);
    enum status s = column_writer_create(&w, fs, ".", &info, &err);
    THEN(s, column_block_add(&b, &info, 3, &(float){1.5F}, sizeof(float), &err));
    THEN(s, column_writer_put(w, &b, &err));
    THEN(s, column_writer_finish(w, &err));
    column_block_fini(&b);
    column_writer_destroy(w);
    return s;
}

/* The list may have more than there is, never less; the same command again brings it in line. */
TEST(a_fault_at_any_call_leaves_every_column_listed) {
    bool failed = true;
    for (uint64_t nth = 0; failed; nth++) {
        struct file_system *fs = new_files();
        struct file_system *faulty = NULL;
        bool there = false;
        assert_ok(write_number(fs, "b"), err);
        assert_ok(file_fault_create(&faulty, fs, nth, FILE_FAULT_DEAD, &err), err);
        const enum status s = write_number(faulty, "a");
        failed = file_fault_count(faulty) > nth;
        file_memory_crash(fs);
        assert_ok(fs->exists(fs->context, "./columns/a.ccc", &there, &err), err);
        assert_true(is_listed(fs, "b") && (!there || is_listed(fs, "a")));
        assert_true(there || s != STATUS_OK);
        assert_ok(write_number(fs, "a"), err);
        assert_ok(column_list_mend(fs, ".", NULL, false, &err), err);
        file_fault_destroy(faulty);
        file_memory_destroy(fs);
    }
}

TEST(a_list_that_is_wrong_is_found_and_written) {
    static const char *const wrong[] = {"b\n",          "a\nb\nc\n", "b\na\n",
                                        "a\nb\n../x\n", "a b\n",     "\n"};
    struct file_system *fs = new_files();
    struct byte_buffer many = {0};
    assert_ok(column_list_mend(fs, ".", NULL, false, &err), err); /* no columns, no list */
    assert_ok(write_number(fs, "b"), err);
    assert_ok(write_number(fs, "a"), err);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_ok(file_write_atomic(fs, COLUMN_LIST_NAME, wrong[i], strlen(wrong[i]), &err), err);
        assert_status(column_list_mend(fs, ".", NULL, false, &err), STATUS_MISMATCH, err);
        assert_ok(column_list_mend(fs, ".", NULL, true, &err), err);
        assert_ok(column_list_mend(fs, ".", NULL, false, &err), err);
    }
    assert_ok(fs->remove(fs->context, COLUMN_LIST_NAME, &err), err);
    assert_status(column_list_mend(fs, ".", NULL, false, &err), STATUS_NOTFOUND, err);
    for (int i = 0; i < COLUMNS_MAX - 2; i++) {
        char name[8];
        (void)snprintf(name, sizeof name, "c%d", i);
        assert_ok(write_number(fs, name), err);
    }
    assert_status(write_number(fs, "last"), STATUS_LIMIT, err);
    assert_true(!is_listed(fs, "last") && is_listed(fs, "c61"));
    assert_ok(write_number(fs, "c61"), err);
    assert_ok(column_remove_all(fs, ".", &err), err);
    assert_status(file_read_all(fs, &many, COLUMN_LIST_NAME, 1, &err), STATUS_NOTFOUND, err);
    byte_buffer_fini(&many);
    file_memory_destroy(fs);
}

static bool keeps_even(const void *cookie, uint64_t id) {
    (void)cookie;
    return id % 2 == 0;
}

static uint64_t count_rows(const struct file_system *fs) {
    struct column *c = NULL;
    assert_ok(column_open(&c, fs, ".", "x", NULL, &err), err);
    assert_ok(column_verify(c, &err), err);
    const uint64_t rows = column_info(c)->rows;
    column_close(c);
    return rows;
}

/* As ccpack compact does it. */
TEST(a_fault_at_any_call_of_a_copy_leaves_all_rows_or_those_to_keep) {
    static const char *const here[] = {"."};
    uint64_t kept = 0;
    for (uint64_t i = 0; i < ROWS; i++) {
        kept += id_of(i, 4) % 2 == 0;
    }
    bool failed = true;
    for (uint64_t nth = 0; failed; nth += FILE_FAULT_STEP) {
        struct file_system *fs = new_files();
        struct file_system *faulty = NULL;
        assert_ok(write_column(fs, COLUMN_CAPTIONS, 4, 1), err);
        assert_ok(file_fault_create(&faulty, fs, nth, FILE_FAULT_SHORT_WRITE, &err), err);
        struct column_copy how = {.from_fs = faulty,
                                  .fs = faulty,
                                  .from = here,
                                  .from_count = 1,
                                  .to = ".",
                                  .keep = keeps_even};
        const enum status s = column_copy_all(&how, &err);
        failed = file_fault_count(faulty) > nth;
        assert_true(count_rows(fs) == (s == STATUS_OK ? kept : ROWS) || count_rows(fs) == kept);
        how.from_fs = how.fs = fs;
        assert_ok(column_copy_all(&how, &err), err);
        assert_int_equal(count_rows(fs), kept);
        assert_false(file_any_temporary(fs, "./columns", false));
        file_fault_destroy(faulty);
        file_memory_destroy(fs);
    }
}

TEST(every_flipped_bit_and_every_truncation_is_found) {
    for (size_t k = 0; k < 3; k++) {
        struct file_system *fs = new_files();
        struct byte_buffer file = {0};
        assert_ok(write_column(fs, kinds[k], 4, 1), err);
        assert_ok(file_read_all(fs, &file, "./columns/x.ccc", 1 << 20, &err), err);
        const size_t bits = 8 * file.size_bytes;
        for (size_t i = 0; i < bits + file.size_bytes;
             i += (i < bits && kinds[k] != SAFETENSORS_F32 ? 5 : 1) * test_step(7)) {
            struct column *c = NULL;
            const size_t size = i < bits ? file.size_bytes : i - bits;
            if (i < bits) {
                file.data[i / 8] ^= (uint8_t)(1U << i % 8);
            }
            assert_ok(file_write_atomic(fs, "./columns/x.ccc", file.data, size, &err), err);
            enum status s = column_open(&c, fs, ".", "x", NULL, &err);
            s = s == STATUS_OK ? column_verify(c, &err) : s;
            if (s != STATUS_CORRUPT && s != STATUS_VERSION) {
                fail_msg("%s: bit %zu of %zu is not found", column_kind_name(kinds[k]), i, bits);
            }
            column_close(c);
            if (i < bits) {
                file.data[i / 8] ^= (uint8_t)(1U << i % 8);
            }
        }
        byte_buffer_fini(&file);
        file_memory_destroy(fs);
    }
}
