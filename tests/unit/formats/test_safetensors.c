/* Tensor files: the bytes by hand, round trips, every flipped bit, every fault, hostile headers. */
#include "formats/tensors/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/hash.h"
#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/test.h"

static const float weight[6] = {1.0f, -2.0f, 3.5f, 0.0f, 1e-30f, 7.0f};
static const uint8_t tag[3] = {9, 8, 7};
static const uint64_t steps[1] = {1234567890123456789u};

static enum status write_sample(const struct file_system *fs, const char *path, struct error *err) {
    struct safetensors_writer *w = NULL;
    TRY(safetensors_writer_create(&w, fs, path, err));
    const uint64_t shape_w[2] = {2, 3};
    const uint64_t shape_tag[1] = {3};
    const uint64_t shape_empty[2] = {0, 5};
    enum status s;
    TRY_OR_FAIL(s, safetensors_writer_metadata(w, "format", "sample", err));
    TRY_OR_FAIL(s, safetensors_writer_declare(w, "layer.weight", SAFETENSORS_F32, shape_w, 2, err));
    TRY_OR_FAIL(s, safetensors_writer_declare(w, "empty", SAFETENSORS_BF16, shape_empty, 2, err));
    TRY_OR_FAIL(s, safetensors_writer_declare(w, "tag", SAFETENSORS_U8, shape_tag, 1, err));
    TRY_OR_FAIL(s, safetensors_writer_metadata(w, "quote", "a \"b\" \n \xc3\xa9", err));
    TRY_OR_FAIL(s, safetensors_writer_declare(w, "step", SAFETENSORS_U64, NULL, 0, err));
    TRY_OR_FAIL(s, safetensors_writer_data(w, weight, 8, err));
    TRY_OR_FAIL(s, safetensors_writer_data(w, weight + 2, 16, err));
    TRY_OR_FAIL(s, safetensors_writer_data(w, tag, sizeof tag, err));
    TRY_OR_FAIL(s, safetensors_writer_data(w, steps, sizeof steps, err));
    s = safetensors_writer_finish(w, err);
fail:
    safetensors_writer_destroy(w);
    return s;
}

static void put_file(const struct file_system *fs, const char *path, const void *data, size_t n) {
    struct error err = {0};
    assert_ok(file_write_atomic(fs, path, data, n, &err), err);
}

/* A file of a JSON header and some bytes of data. */
static void
put_json(const struct file_system *fs, const char *path, const char *json, size_t data_bytes) {
    struct error err = {0};
    struct byte_buffer b;
    byte_buffer_init(&b, 0);
    static const uint8_t zeros[64];
    assert_true(data_bytes <= sizeof zeros);
    assert_ok(byte_buffer_u64(&b, strlen(json), &err), err);
    assert_ok(byte_buffer_append(&b, json, strlen(json), &err), err);
    assert_ok(byte_buffer_append(&b, zeros, data_bytes, &err), err);
    put_file(fs, path, b.data, b.size_bytes);
    byte_buffer_fini(&b);
}

static struct file_system *memory(void) {
    struct error err = {0};
    struct file_system *fs = NULL;
    assert_ok(file_memory_create(&fs, &err), err);
    return fs;
}

struct taken {
    uint8_t *bytes;
    size_t size_bytes;
    int pieces;
};

static void take(void *cookie, const void *piece, size_t size_bytes) {
    struct taken *t = cookie;
    assert_true(size_bytes > 0 && size_bytes <= SAFETENSORS_PIECE_BYTES);
    memcpy(t->bytes + t->size_bytes, piece, size_bytes);
    t->size_bytes += size_bytes;
    t->pieces++;
}

/* In pieces: the same bytes, and the same answer. Returns the number of pieces. */
static int check_pieces(const struct safetensors *r,
                        const struct safetensors_info *t,
                        enum status expected,
                        const void *bytes) {
    struct error err = {0};
    struct taken got = {.bytes = malloc((size_t)t->size_bytes + 1)};
    assert_non_null(got.bytes);
    assert_int_equal(safetensors_read_pieces(r, t, take, &got, &err), expected);
    if (expected == STATUS_OK) {
        assert_int_equal(got.size_bytes, t->size_bytes);
        assert_memory_equal(got.bytes, bytes, got.size_bytes);
    }
    free(got.bytes);
    return got.pieces;
}

/* Reads every tensor, which checks its hash. */
static enum status read_all(const struct safetensors *r, struct error *err) {
    enum status s = STATUS_OK;
    for (size_t i = 0; i < safetensors_count(r) && s == STATUS_OK; i++) {
        const struct safetensors_info *t = safetensors_at(r, i);
        void *bytes = malloc((size_t)t->size_bytes + 1);
        assert_non_null(bytes);
        s = safetensors_read(r, t, bytes, (size_t)t->size_bytes, err);
        (void)check_pieces(r, t, s, bytes);
        free(bytes);
    }
    return s;
}

TEST(written_tensors_are_read_back) {
    struct error err = {0};
    struct file_system *fs = memory();
    assert_ok(write_sample(fs, "a", &err), err);
    struct safetensors *r = NULL;
    assert_ok(safetensors_open(&r, fs, "a", &err), err);
    assert_int_equal(safetensors_count(r), 4);
    assert_true(safetensors_has_hashes(r));
    assert_string_equal(safetensors_at(r, 0)->name, "layer.weight");
    assert_string_equal(safetensors_at(r, 1)->name, "empty");
    assert_null(safetensors_at(r, 4));
    assert_null(safetensors_find(r, "ccstream.xxh64"));
    assert_null(safetensors_find(r, "layer.bias"));

    const struct safetensors_info *t = safetensors_find(r, "layer.weight");
    assert_int_equal(t->dim_count, 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->element_count, 6);
    assert_int_equal(t->offset_bytes % 8, 0);
    float got[6] = {0};
    assert_ok(safetensors_read(r, t, got, sizeof got, &err), err);
    assert_memory_equal(got, weight, sizeof weight);
    assert_status(safetensors_read(r, t, got, sizeof got - 4, &err), STATUS_INVALID, err);

    const struct safetensors_info *step = safetensors_find(r, "step");
    uint64_t step_value = 0;
    assert_int_equal(step->dim_count, 0);
    assert_ok(safetensors_read(r, step, &step_value, sizeof step_value, &err), err);
    assert_true(step_value == steps[0]);
    assert_ok(safetensors_read(r, safetensors_find(r, "empty"), NULL, 0, &err), err);

    assert_int_equal(safetensors_metadata_count(r), 2);
    assert_string_equal(safetensors_metadata_key(r, 0), "format");
    assert_string_equal(safetensors_metadata(r, "format"), "sample");
    assert_string_equal(safetensors_metadata(r, "quote"), "a \"b\" \n \xc3\xa9");
    assert_null(safetensors_metadata(r, "missing"));
    assert_ok(read_all(r, &err), err);
    safetensors_close(r);
    file_memory_destroy(fs);
}

TEST(equal_content_gives_equal_bytes) {
    struct error err = {0};
    struct file_system *fs = memory();
    struct byte_buffer a, b;
    assert_ok(write_sample(fs, "a", &err), err);
    assert_ok(fs->make_directory(fs->context, "deep", &err), err);
    assert_ok(write_sample(fs, "deep/other", &err), err);
    assert_ok(file_read_all(fs, &a, "a", 1 << 20, &err), err);
    assert_ok(file_read_all(fs, &b, "deep/other", 1 << 20, &err), err);
    assert_int_equal(a.size_bytes, b.size_bytes);
    assert_memory_equal(a.data, b.data, a.size_bytes);
    byte_buffer_fini(&a);
    byte_buffer_fini(&b);
    file_memory_destroy(fs);
}

/* The example of CHECKPOINT_FORMAT.md, byte for byte. */
TEST(bytes_are_those_of_the_specification) {
    struct error err = {0};
    struct file_system *fs = memory();
    struct safetensors_writer *w = NULL;
    const uint64_t shape[1] = {2};
    const uint8_t values[2] = {1, 2};
    assert_ok(safetensors_writer_create(&w, fs, "x", &err), err);
    assert_ok(safetensors_writer_metadata(w, "k", "v", &err), err);
    assert_ok(safetensors_writer_declare(w, "t", SAFETENSORS_U8, shape, 1, &err), err);
    assert_ok(safetensors_writer_data(w, values, sizeof values, &err), err);
    assert_ok(safetensors_writer_finish(w, &err), err);
    safetensors_writer_destroy(w);

    const char *json = "{\"__metadata__\":{\"ccstream.xxh64\":\"last tensor: header, then each "
                       "tensor\",\"k\":\"v\"},\"t\":{\"dtype\":\"U8\",\"shape\":[2],"
                       "\"data_offsets\":[0,2]},\"ccstream.xxh64\":{\"dtype\":\"U64\","
                       "\"shape\":[2],\"data_offsets\":[2,18]}}";
    struct byte_buffer expected, got;
    byte_buffer_init(&expected, 0);
    size_t padded = (strlen(json) + 7) / 8 * 8;
    assert_ok(byte_buffer_u64(&expected, padded, &err), err);
    assert_ok(byte_buffer_append(&expected, json, strlen(json), &err), err);
    assert_ok(byte_buffer_append(&expected, "        ", padded - strlen(json), &err), err);
    uint64_t head_hash = hash64(expected.data, expected.size_bytes);
    assert_ok(byte_buffer_append(&expected, values, sizeof values, &err), err);
    assert_ok(byte_buffer_u64(&expected, head_hash, &err), err);
    assert_ok(byte_buffer_u64(&expected, hash64(values, sizeof values), &err), err);
    assert_ok(file_read_all(fs, &got, "x", 1 << 20, &err), err);
    assert_int_equal(got.size_bytes, expected.size_bytes);
    assert_memory_equal(got.data, expected.data, got.size_bytes);
    byte_buffer_fini(&got);
    byte_buffer_fini(&expected);
    file_memory_destroy(fs);
}

TEST(every_flipped_bit_is_found) {
    struct error err = {0};
    struct file_system *fs = memory();
    struct byte_buffer b;
    assert_ok(write_sample(fs, "a", &err), err);
    assert_ok(file_read_all(fs, &b, "a", 1 << 20, &err), err);
    for (size_t bit = 0; bit < 8 * b.size_bytes; bit++) {
        b.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        put_file(fs, "flipped", b.data, b.size_bytes);
        struct safetensors *r = NULL;
        enum status s = safetensors_open(&r, fs, "flipped", &err);
        if (s == STATUS_OK) {
            s = read_all(r, &err);
        }
        safetensors_close(r);
        if (s == STATUS_OK) {
            fail_msg("bit %zu of byte %zu", bit % 8, bit / 8);
        }
        b.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t size = 0; size < b.size_bytes; size++) {
        put_file(fs, "cut", b.data, size);
        struct safetensors *r = NULL;
        assert_true(safetensors_open(&r, fs, "cut", &err) < STATUS_OK);
        assert_null(r);
    }
    byte_buffer_fini(&b);
    file_memory_destroy(fs);
}

TEST(a_flipped_data_bit_is_named_on_read) {
    struct error err = {0};
    struct file_system *fs = memory();
    struct byte_buffer b;
    struct safetensors *r = NULL;
    assert_ok(write_sample(fs, "a", &err), err);
    assert_ok(file_read_all(fs, &b, "a", 1 << 20, &err), err);
    assert_ok(safetensors_open(&r, fs, "a", &err), err);
    size_t place = (size_t)safetensors_find(r, "tag")->offset_bytes + 1;
    safetensors_close(r);
    b.data[place] ^= 0x10;
    put_file(fs, "a", b.data, b.size_bytes);
    assert_ok(safetensors_open(&r, fs, "a", &err), err);
    uint8_t got[3];
    enum status s = safetensors_read(r, safetensors_find(r, "tag"), got, sizeof got, &err);
    assert_status(s, STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "\"tag\""));
    safetensors_close(r);
    byte_buffer_fini(&b);
    file_memory_destroy(fs);
}

TEST(a_large_tensor_comes_in_pieces) {
    struct error err = {0};
    struct file_system *fs = memory();
    struct safetensors_writer *w = NULL;
    struct safetensors *r = NULL;
    const uint64_t count = 2 * SAFETENSORS_PIECE_BYTES / 8 + 3;
    uint64_t *values = calloc(count, sizeof *values);
    assert_non_null(values);
    for (uint64_t i = 0; i < count; i++) {
        values[i] = i * UINT64_C(0x9e3779b97f4a7c15);
    }
    assert_ok(safetensors_writer_create(&w, fs, "f", &err), err);
    assert_ok(safetensors_writer_declare(w, "t", SAFETENSORS_U64, &count, 1, &err), err);
    assert_ok(safetensors_writer_data(w, values, count * sizeof *values, &err), err);
    assert_ok(safetensors_writer_finish(w, &err), err);
    safetensors_writer_destroy(w);
    assert_ok(safetensors_open(&r, fs, "f", &err), err);
    assert_int_equal(check_pieces(r, safetensors_at(r, 0), STATUS_OK, values), 3);
    safetensors_close(r);
    file_memory_destroy(fs);
    free(values);
}

TEST(files_from_other_programs_load_without_hashes) {
    struct error err = {0};
    struct file_system *fs = memory();
    struct safetensors *r = NULL;
    /* Header order is not data order, spaces inside, no metadata. */
    put_json(fs, "a",
             "{ \"b\": {\"dtype\":\"F16\",\"shape\":[2, 1],\"data_offsets\":[8,12]},"
             "\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]} }   ",
             12);
    assert_ok(safetensors_open(&r, fs, "a", &err), err);
    assert_false(safetensors_has_hashes(r));
    assert_string_equal(safetensors_at(r, 0)->name, "a");
    uint8_t got[4];
    assert_ok(safetensors_read(r, safetensors_find(r, "b"), got, sizeof got, &err), err);
    assert_ok(read_all(r, &err), err);
    assert_null(safetensors_metadata(r, "format"));
    safetensors_close(r);
    put_json(fs, "a", "{}", 0);
    assert_ok(safetensors_open(&r, fs, "a", &err), err);
    assert_int_equal(safetensors_count(r), 0);
    safetensors_close(r);
    file_memory_destroy(fs);
}

TEST(hostile_headers_are_refused) {
    static const struct {
        enum status expected;
        size_t data_bytes;
        const char *json;
    } rows[] = {
        {STATUS_CORRUPT, 0, ""},
        {STATUS_CORRUPT, 0, "[]"},
        {STATUS_CORRUPT, 0, " {}"},
        {STATUS_CORRUPT, 1, "{}"},
        {STATUS_CORRUPT, 0, "{\"a\":1}"},
        {STATUS_CORRUPT, 0, "{\"__metadata__\":[]}"},
        {STATUS_CORRUPT, 0, "{\"__metadata__\":{\"a\":1}}"},
        {STATUS_CORRUPT, 0, "{\"__metadata__\":{\"ccstream.xxh64\":\"x\"}}"},
        {STATUS_CORRUPT, 4, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}"},
        {STATUS_CORRUPT, 4, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}"},
        {STATUS_CORRUPT, 4, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}"},
        {STATUS_CORRUPT, 4, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}"},
        {STATUS_CORRUPT, 8, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,8]}}"},
        {STATUS_CORRUPT, 8, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}"},
        {STATUS_CORRUPT, 8, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"},
        {STATUS_CORRUPT, 4, "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}"},
        {STATUS_CORRUPT, 4, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}"},
        {STATUS_CORRUPT, 4,
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}"},
        {STATUS_CORRUPT, 4,
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}"},
        {STATUS_CORRUPT, 0,
         "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4294967296],"
         "\"data_offsets\":[0,0]}}"},
        {STATUS_CORRUPT, 0,
         "{\"ccstream.xxh64\":{\"dtype\":\"U64\",\"shape\":[0],\"data_offsets\":[0,0]}}"},
        {STATUS_CORRUPT, 8,
         "{\"ccstream.xxh64\":{\"dtype\":\"U64\",\"shape\":[1],\"data_offsets\":[0,8]}}"},
        {STATUS_UNSUPPORTED, 4,
         "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[0,4]}}"},
        {STATUS_LIMIT, 0, "{\"\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}"},
        {STATUS_LIMIT, 1,
         "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}"},
    };
    struct error err = {0};
    struct file_system *fs = memory();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct safetensors *r = NULL;
        put_json(fs, "a", rows[i].json, rows[i].data_bytes);
        enum status s = safetensors_open(&r, fs, "a", &err);
        if (s != rows[i].expected) {
            fail_msg("%s gives %s: %s", rows[i].json, status_name(s), err.text);
        }
    }
    struct safetensors *r = NULL;
    char key[SAFETENSORS_MAX_NAME_BYTES + 64];
    int n = snprintf(key, sizeof key, "{\"__metadata__\":{\"%0*d\":\"\"}}",
                     SAFETENSORS_MAX_NAME_BYTES + 1, 0);
    assert_true(n > 0 && (size_t)n < sizeof key);
    put_json(fs, "a", key, 0);
    assert_status(safetensors_open(&r, fs, "a", &err), STATUS_LIMIT, err);
    uint8_t huge[16] = {0};
    store_u64(huge, SAFETENSORS_MAX_HEADER_BYTES + 1u);
    put_file(fs, "a", huge, sizeof huge);
    assert_status(safetensors_open(&r, fs, "a", &err), STATUS_LIMIT, err);
    store_u64(huge, UINT64_MAX);
    put_file(fs, "a", huge, sizeof huge);
    assert_status(safetensors_open(&r, fs, "a", &err), STATUS_LIMIT, err);
    assert_status(safetensors_open(&r, fs, "missing", &err), STATUS_NOTFOUND, err);
    file_memory_destroy(fs);
}

TEST(misuse_of_the_writer_is_refused) {
    struct error err = {0};
    struct file_system *fs = memory();
    struct safetensors_writer *w = NULL;
    const uint64_t one[1] = {1};
    const uint64_t vast[2] = {UINT64_MAX, 2};
    assert_status(safetensors_writer_create(&w, fs, "no/dir", &err), STATUS_NOTFOUND, err);
    assert_ok(safetensors_writer_create(&w, fs, "a", &err), err);
    assert_ok(safetensors_writer_declare(w, "t", SAFETENSORS_U8, one, 1, &err), err);
    enum status s = safetensors_writer_declare(w, "t", SAFETENSORS_U8, one, 1, &err);
    assert_status(s, STATUS_EXISTS, err);
    s = safetensors_writer_declare(w, "", SAFETENSORS_U8, one, 1, &err);
    assert_status(s, STATUS_INVALID, err);
    s = safetensors_writer_declare(w, "\xff", SAFETENSORS_U8, one, 1, &err);
    assert_status(s, STATUS_INVALID, err);
    s = safetensors_writer_declare(w, "__metadata__", SAFETENSORS_U8, one, 1, &err);
    assert_status(s, STATUS_INVALID, err);
    s = safetensors_writer_declare(w, "v", SAFETENSORS_U8, vast, 2, &err);
    assert_status(s, STATUS_LIMIT, err);
    assert_ok(safetensors_writer_metadata(w, "k", "v", &err), err);
    assert_status(safetensors_writer_metadata(w, "k", "v", &err), STATUS_EXISTS, err);
    assert_status(safetensors_writer_metadata(w, "l", "\xc0\x80", &err), STATUS_INVALID, err);
    assert_status(safetensors_writer_finish(w, &err), STATUS_INVALID, err);
    assert_status(safetensors_writer_data(w, "xy", 2, &err), STATUS_INVALID, err);
    assert_ok(safetensors_writer_data(w, "x", 1, &err), err);
    assert_status(safetensors_writer_data(w, "y", 1, &err), STATUS_INVALID, err);
    assert_status(safetensors_writer_metadata(w, "m", "v", &err), STATUS_INVALID, err);
    assert_ok(safetensors_writer_finish(w, &err), err);
    safetensors_writer_destroy(w);
    file_memory_destroy(fs);
}

/* After any fault PATH has the old bytes or all of the new ones, also after a power failure. */
TEST(a_fault_anywhere_leaves_old_or_new) {
    struct error err = {0};
    static const enum file_fault kinds[] = {FILE_FAULT_ERROR, FILE_FAULT_SHORT_WRITE,
                                            FILE_FAULT_DEAD};
    for (size_t kind = 0; kind < 3; kind++) {
        bool finished = false;
        for (uint64_t nth = 0; !finished; nth++) {
            struct file_system *fs = memory();
            struct file_system *faulty = NULL;
            put_file(fs, "a", "old", 3);
            assert_ok(file_fault_create(&faulty, fs, nth, kinds[kind], &err), err);
            enum status s = write_sample(faulty, "a", &err);
            finished = s == STATUS_OK; /* the fault lies beyond the last call */
            for (int crashed = 0; crashed < 2; crashed++) {
                struct byte_buffer b;
                assert_ok(file_read_all(fs, &b, "a", 1 << 20, &err), err);
                bool old = b.size_bytes == 3 && memcmp(b.data, "old", 3) == 0;
                byte_buffer_fini(&b);
                if (!old) {
                    struct safetensors *r = NULL;
                    assert_ok(safetensors_open(&r, fs, "a", &err), err);
                    assert_ok(read_all(r, &err), err);
                    safetensors_close(r);
                }
                assert_true(!old || s < STATUS_OK);
                const bool temporary = file_any_temporary(fs, ".", false);
                assert_true(crashed || !temporary || kinds[kind] == FILE_FAULT_DEAD);
                file_memory_crash(fs);
            }
            file_fault_destroy(faulty);
            file_memory_destroy(fs);
        }
    }
}

TEST(tensors_above_four_gib_are_found) {
    struct error err = {0};
    const char *path = test_temp_path("sparse");
    const char *json = "{\"a\":{\"dtype\":\"F32\",\"shape\":[65536,16400],"
                       "\"data_offsets\":[0,4299161600]},"
                       "\"b\":{\"dtype\":\"U8\",\"shape\":[2],"
                       "\"data_offsets\":[4299161600,4299161602]}}";
    uint8_t length[8];
    store_u64(length, strlen(json));
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(length, 1, 8, f), 8);
    assert_int_equal(fwrite(json, 1, strlen(json), f), strlen(json));
    assert_int_equal(fseeko(f, (off_t)(8 + strlen(json) + 4299161600u), SEEK_SET), 0);
    assert_int_equal(fwrite("hi", 1, 2, f), 2);
    assert_int_equal(fclose(f), 0);
    struct safetensors *r = NULL;
    assert_ok(safetensors_open(&r, file_posix(), path, &err), err);
    char got[2];
    assert_ok(safetensors_read(r, safetensors_find(r, "b"), got, sizeof got, &err), err);
    assert_memory_equal(got, "hi", 2);
    safetensors_close(r);
}
