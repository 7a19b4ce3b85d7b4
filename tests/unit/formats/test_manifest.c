/*
 * dataset.json: what is written is read, and what contradicts itself is refused.
 */
#include "formats/dataset/manifest_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/file_memory.h"
#include "tests/support/test.h"

static struct error err;

static void fill(struct manifest *m) {
    assert_ok(manifest_init(m, SHARD_CONTAINER_TAR_ZSTD, "ccpack 0.1.0", &err), err);
    for (uint32_t i = 0; i < 3; i++) {
        struct shard_summary s = {
            .size_bytes = 1000 + i,
            .hash = UINT64_MAX - i,
            .index_hash = i,
            .image_bytes = 500,
            .first_id = 100 * i,
            .last_id = 100 * i + 99,
            .sample_count = 90,
            .text_count = 95,
        };
        snprintf(s.name, sizeof(s.name), "x-%06u.tar.zst", i);
        assert_ok(manifest_add_shard(m, &s, &err), err);
    }
    assert_ok(manifest_add_source(m, "\"quoted\" caf\xC3\xA9.tsv", 300, &err), err);
    assert_ok(manifest_add_option(m, "resize", "short:256", &err), err);
    assert_ok(manifest_add_option(m, "ids", "row", &err), err);
    assert_ok(manifest_seal(m, 0x0123456789abcdefu, &err), err);
}

/* The manifest as text in fresh memory. */
static char *text_of(const struct manifest *m) {
    struct file_system *fs = NULL;
    struct byte_buffer b;
    assert_ok(file_memory_create(&fs, &err), err);
    assert_ok(manifest_write(m, fs, ".", &err), err);
    assert_ok(file_read_all(fs, &b, "./dataset.json", MANIFEST_MAX_BYTES, &err), err);
    char *text = malloc(b.size_bytes + 1);
    memcpy(text, b.data, b.size_bytes + 1);
    byte_buffer_fini(&b);
    file_memory_destroy(fs);
    return text;
}

TEST(written_manifests_are_read_back) {
    struct manifest m;
    struct manifest back;
    fill(&m);
    char *text = text_of(&m);
    assert_ok(manifest_parse(&back, "m", text, strlen(text), &err), err);
    assert_int_equal(back.samples, 270);
    assert_int_equal(back.texts, 285);
    assert_int_equal(back.id_space, 300);
    assert_int_equal(back.bytes, 3003);
    assert_int_equal(back.fingerprint, 0x0123456789abcdefu);
    assert_int_equal(back.shards[1].hash, UINT64_MAX - 1);
    assert_string_equal(back.sources[0].name, "\"quoted\" caf\xC3\xA9.tsv");
    assert_string_equal(back.options[0].value, "short:256");
    char *again = text_of(&back);
    assert_string_equal(text, again);
    free(again);
    free(text);
    manifest_fini(&back);
    manifest_fini(&m);
}

/* Far more than the mappings that Linux allows a process, which once was the limit. */
TEST(a_hundred_thousand_shards_are_written_and_read) {
    enum { SHARDS = 100000 };
    struct manifest m;
    struct manifest back;
    assert_ok(manifest_init(&m, SHARD_CONTAINER_TAR_ZSTD, "test", &err), err);
    for (uint32_t i = 0; i < SHARDS; i++) {
        struct shard_summary s = {
            .size_bytes = 1 << 30,
            .hash = UINT64_MAX - i,
            .index_hash = i,
            .image_bytes = 1 << 29,
            .first_id = UINT64_C(10000) * i,
            .last_id = UINT64_C(10000) * i + 9999,
            .sample_count = 10000,
            .text_count = 50000,
        };
        snprintf(s.name, sizeof(s.name), "shard-%06u.tar.zst", i);
        assert_ok(manifest_add_shard(&m, &s, &err), err);
    }
    assert_ok(manifest_seal(&m, 1, &err), err);
    char *text = text_of(&m);
    assert_ok(manifest_parse(&back, "m", text, strlen(text), &err), err);
    assert_int_equal(back.shard_count, SHARDS);
    assert_int_equal(back.samples, UINT64_C(10000) * SHARDS);
    assert_string_equal(back.shards[SHARDS - 1].name, "shard-099999.tar.zst");
    free(text);
    manifest_fini(&back);
    manifest_fini(&m);
}

static void assert_edit_refused(const char *from, const char *to, enum status expected) {
    struct manifest m;
    struct manifest back;
    fill(&m);
    char *text = text_of(&m);
    char *at = strstr(text, from);
    assert_non_null(at);
    char *edited = calloc(1, strlen(text) + strlen(to) + 1);
    memcpy(edited, text, (size_t)(at - text));
    strcat(edited, to);
    strcat(edited, at + strlen(from));
    assert_status(manifest_parse(&back, "m", edited, strlen(edited), &err), expected, err);
    free(edited);
    free(text);
    manifest_fini(&m);
}

TEST(classes_are_kept_in_order) {
    struct manifest m;
    struct manifest back;
    fill(&m);
    assert_ok(manifest_add_class(&m, "tench", &err), err);
    assert_ok(manifest_add_class(&m, "a \"great\" white", &err), err);
    char *text = text_of(&m);
    assert_ok(manifest_parse(&back, "m", text, strlen(text), &err), err);
    assert_int_equal(back.class_count, 2);
    assert_string_equal(back.classes[0], "tench");
    assert_string_equal(back.classes[1], "a \"great\" white");
    manifest_fini(&back);
    char *list = strstr(text, "\"classes\":[\"tench\"");
    assert_non_null(list);
    memcpy(list, "\"classes\":[12345678", 20);
    assert_status(manifest_parse(&back, "m", text, strlen(text), &err), STATUS_CORRUPT, err);
    memcpy(list, "\"classes\":\"tench\",[", 20);
    assert_status(manifest_parse(&back, "m", text, strlen(text), &err), STATUS_CORRUPT, err);
    free(text);
    manifest_fini(&m);
}

TEST(a_tokenizer_is_recorded_replaced_and_removed) {
    struct manifest m;
    struct manifest back;
    fill(&m);
    char *without = text_of(&m);
    assert_ok(manifest_set_tokenizer(&m, "old.model", "sentencepiece", 1, &err), err);
    assert_ok(manifest_set_tokenizer(&m, "vocab.txt", "wordpiece", 0xabcu, &err), err);
    char *text = text_of(&m);
    assert_ok(manifest_parse(&back, "m", text, strlen(text), &err), err);
    assert_string_equal(back.tokenizer.file, "vocab.txt");
    assert_string_equal(back.tokenizer.kind, "wordpiece");
    assert_int_equal(back.tokenizer.hash, 0xabcu);
    assert_int_equal(back.fingerprint, m.fingerprint);
    assert_ok(manifest_set_tokenizer(&back, NULL, NULL, 0, &err), err);
    char *again = text_of(&back);
    assert_string_equal(again, without);
    free(again);
    manifest_fini(&back);
    char *name = strstr(text, "vocab.txt");
    assert_non_null(name);
    name[0] = '/';
    assert_status(manifest_parse(&back, "m", text, strlen(text), &err), STATUS_CORRUPT, err);
    name[0] = 'v';
    char *hash = strstr(text, "0000000000000abc");
    assert_non_null(hash);
    hash[0] = 'x';
    assert_status(manifest_parse(&back, "m", text, strlen(text), &err), STATUS_CORRUPT, err);
    free(without);
    free(text);
    manifest_fini(&m);
}

/* A part of a cluster's run may have got no rows at all. */
TEST(a_manifest_without_shards_is_valid) {
    struct manifest m;
    struct manifest back;
    assert_ok(manifest_init(&m, SHARD_CONTAINER_TAR, "ccpack 0.1.0", &err), err);
    assert_ok(manifest_seal(&m, 0xef46db3751d8e999u, &err), err);
    char *text = text_of(&m);
    assert_null(strstr(text, "classes"));
    assert_ok(manifest_parse(&back, "m", text, strlen(text), &err), err);
    assert_int_equal(back.samples, 0);
    assert_int_equal(back.container, SHARD_CONTAINER_TAR);
    free(text);
    manifest_fini(&back);
    manifest_fini(&m);
}

/* Version 2: totals and the last generation are without the removed samples. */
TEST(removed_ids_are_kept_and_checked) {
    const uint64_t ids[] = {7, 3, 7, 250};
    struct manifest m;
    struct manifest back;
    struct shard_summary shard = {.name = "x-000000.tar",
                                  .size_bytes = 9000,
                                  .sample_count = 300,
                                  .text_count = 310,
                                  .image_bytes = 5000,
                                  .last_id = 299};
    assert_ok(manifest_init(&m, SHARD_CONTAINER_TAR, "ccpack 0.1.0", &err), err);
    assert_ok(manifest_add_shard(&m, &shard, &err), err);
    assert_ok(manifest_seal(&m, 1, &err), err);
    assert_ok(manifest_add_removed(&m, ids, 4, &err), err);
    m.removed.samples = 2; /* 250 is in no shard any more */
    m.removed.texts = 4;
    m.removed.image_bytes = 30;
    assert_ok(manifest_seal(&m, 2, &err), err);
    char *text = text_of(&m);
    assert_non_null(strstr(text, "\"version\":2,"));
    assert_ok(manifest_parse(&back, "m", text, strlen(text), &err), err);
    assert_int_equal(back.samples, 298);
    assert_int_equal(back.texts, 306);
    assert_int_equal(back.image_bytes, 4970);
    assert_int_equal(back.removed.count, 3);
    assert_true(manifest_is_removed(&back, 3) && manifest_is_removed(&back, 250));
    assert_false(manifest_is_removed(&back, 4));
    assert_int_equal(back.generation_count, 2);
    manifest_fini(&back);
    const char *const edits[][2] = {
        {"[3,7,250]", "[7,3,250]"},    {"[3,7,250]", "[3,3,250]"},
        {"[3,7,250]", "[3]      "},    {"[3,7,250]", "[       ]"},
        {"[3,7,250]", "{       }"},    {"\"samples\":2,", "\"samples\":3,"},
        {"\"removed\"", "\"removex\""}};
    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        char *at = strstr(text, edits[i][0]);
        assert_non_null(at);
        memcpy(at, edits[i][1], strlen(edits[i][1]));
        assert_status(manifest_parse(&back, "m", text, strlen(text), &err), STATUS_CORRUPT, err);
        memcpy(at, edits[i][0], strlen(edits[i][0]));
    }
    free(text);
    manifest_fini(&m);
}

TEST(contradictions_are_refused) {
    assert_edit_refused("\"version\":1", "\"version\":4", STATUS_VERSION);
    assert_edit_refused("\"version\":1", "\"version\":3", STATUS_CORRUPT); /* without a base */
    assert_edit_refused("\"version\":1", "\"version\":2", STATUS_CORRUPT);
    assert_edit_refused("ccstream-dataset", "other", STATUS_CORRUPT);
    assert_edit_refused("\"tar.zst\"", "\"tar.gz\"", STATUS_VERSION);
    assert_edit_refused("\"samples\":270", "\"samples\":271", STATUS_CORRUPT);
    assert_edit_refused("\"id_space\":300", "\"id_space\":299", STATUS_CORRUPT);
    assert_edit_refused("\"id_space\":300", "\"id_space\":-1", STATUS_CORRUPT);
    assert_edit_refused("0123456789abcdef", "0123456789abcdeF", STATUS_CORRUPT);
    assert_edit_refused("0123456789abcdef", "0123456789abcde", STATUS_CORRUPT);
    assert_edit_refused("0123456789abcdef", "0123456789abcde0", STATUS_CORRUPT);
    assert_edit_refused("x-000001.tar.zst", "../escape.tar.zst", STATUS_CORRUPT);
    assert_edit_refused("x-000001.tar.zst", "/etc/passwd", STATUS_CORRUPT);
    assert_edit_refused("x-000001.tar.zst", "", STATUS_CORRUPT);
    assert_edit_refused("\"last_id\":199", "\"last_id\":99", STATUS_CORRUPT);
    assert_edit_refused("\"last_id\":199", "\"last_id\":120", STATUS_CORRUPT);
    assert_edit_refused("\"bytes\":1001", "\"bytes\":9223372036854775807", STATUS_CORRUPT);
    assert_edit_refused("\"samples\":90", "\"samples\":0", STATUS_CORRUPT);
    assert_edit_refused("\"samples\":90", "\"samples\":4294967297", STATUS_CORRUPT);
    assert_edit_refused("\"generations\":[{", "\"generations\":[],\"x\":[{", STATUS_CORRUPT);
    assert_edit_refused("\"resize\":\"short:256\"", "\"resize\":256", STATUS_CORRUPT);
    assert_edit_refused("]}", "]", STATUS_CORRUPT);
}

TEST(a_base_is_a_location_of_foreign_tars) {
    struct manifest m;
    struct manifest back;
    fill(&m);
    assert_status(manifest_set_base(&m, "https://host/tars", &err), STATUS_INVALID, err);
    m.container = SHARD_CONTAINER_TAR_FOREIGN;
    assert_status(manifest_set_base(&m, "/etc", &err), STATUS_INVALID, err);
    assert_ok(manifest_set_base(&m, "https://host/tars", &err), err);
    strcpy(m.shards[0].etag, "\"a\"");
    char *text = text_of(&m);
    assert_non_null(strstr(text, "\"version\":3,"));
    assert_ok(manifest_parse(&back, "m", text, strlen(text), &err), err);
    assert_string_equal(back.base, "https://host/tars");
    assert_string_equal(back.shards[0].etag, "\"a\"");
    manifest_fini(&back);
    memcpy(strstr(text, "https://host"), "/////://host", 12);
    assert_status(manifest_parse(&back, "m", text, strlen(text), &err), STATUS_CORRUPT, err);
    free(text);
    manifest_fini(&m);
}

TEST(every_truncation_is_refused) {
    struct manifest m;
    struct manifest back;
    fill(&m);
    char *text = text_of(&m);
    for (size_t size = 0; size + 1 < strlen(text); size++) { /* the last byte is a line feed */
        assert_status(manifest_parse(&back, "m", text, size, &err), STATUS_CORRUPT, err);
    }
    free(text);
    manifest_fini(&m);
}

TEST(names_that_cannot_be_stored_are_refused) {
    assert_true(shard_name_is_valid("cc3m-000000.tar.zst"));
    static const char *const bad[] = {"", ".", "..", ".hidden", "a/b", "a b", "a.", "\xC3\xA9"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(shard_name_is_valid(bad[i]));
    }
}
