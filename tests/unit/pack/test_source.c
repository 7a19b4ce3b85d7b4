#include "pack/source/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "pack/source/source_internal.h"
#include "tests/support/source_rows.h"
#include "tests/support/tar_write.h"
#include "tests/support/test.h"

static const char jpeg_head[] = "\xFF\xD8\xFF\xE0 looks like one";

TEST(every_reason_has_a_name) {
    for (int i = 0; i < REASON_COUNT; i++) {
        const char *name = source_reason_name((enum source_reason)i);
        assert_string_not_equal(name, "unknown");
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(name, source_reason_name((enum source_reason)k));
        }
    }
    assert_string_equal(source_reason_name(REASON_COUNT), "unknown");
    assert_string_equal(source_kind_names[SOURCE_AUTO], "auto");
    assert_string_equal(source_kind_names[SOURCE_COCO], "coco");
    assert_string_equal(source_kind_names[SOURCE_CIFAR], "cifar");
    assert_null(source_kind_names[SOURCE_KIND_COUNT]);
}

TEST(keys_give_numbers_where_they_are_numbers) {
    static const struct {
        const char *key;
        bool is_number;
        uint64_t number;
    } cases[] = {
        {"000123", true, 123},
        {"set/0", true, 0},
        {"9223372036854775806", true, 9223372036854775806u},
        {"9223372036854775807", false, 0},
        {"99999999999999999999999", false, 0},
        {"12a", false, 0},
        {"-1", false, 0},
        {"", false, 0},
        {"12/", false, 0},
    };
    struct source_row row;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        source_row_init(&row);
        source_row_set_key(&row, cases[i].key, strlen(cases[i].key));
        assert_int_equal(row.has_number, cases[i].is_number);
        assert_true(row.number == cases[i].number);
        source_row_fini(&row);
    }
}

TEST(long_keys_keep_their_end) {
    char key[SOURCE_MAX_KEY_BYTES + 10];
    struct source_row row;
    memset(key, 'x', sizeof(key));
    memcpy(key + sizeof(key) - 3, "end", 3);
    source_row_init(&row);
    source_row_set_key(&row, key, sizeof(key));
    assert_int_equal(strlen(row.key), SOURCE_MAX_KEY_BYTES);
    assert_string_equal(row.key + SOURCE_MAX_KEY_BYTES - 4, "xend");
    source_row_fini(&row);
}

TEST(captions_are_bounded) {
    struct source_row row;
    struct error err = {0};
    char *text = calloc(1, SOURCE_MAX_TEXT_BYTES + 1);
    assert_non_null(text);
    memset(text, 'a', SOURCE_MAX_TEXT_BYTES + 1);
    source_row_init(&row);
    assert_ok(source_row_add_caption(&row, text, SOURCE_MAX_TEXT_BYTES, &err), err);
    assert_int_equal(row.reason, REASON_NONE);
    assert_ok(source_row_add_caption(&row, "b", 1, &err), err);
    assert_int_equal(row.reason, REASON_CAPTION_LIMIT);
    source_row_fini(&row);

    source_row_init(&row);
    for (int i = 0; i < SOURCE_MAX_CAPTIONS; i++) {
        assert_ok(source_row_add_caption(&row, "b", 1, &err), err);
        assert_int_equal(row.reason, REASON_NONE);
    }
    assert_ok(source_row_add_caption(&row, "b", 1, &err), err);
    assert_int_equal(row.reason, REASON_CAPTION_LIMIT);
    source_row_fini(&row);
    free(text);
}

TEST(captions_of_blanks_are_empty_and_nul_is_no_text) {
    static const struct {
        const char *text;
        size_t size_bytes;
        enum source_reason reason;
        uint32_t count;
    } cases[] = {
        {"\xE3\x80\x80", 3, REASON_NONE, 0},             /* ideographic space */
        {"\xC2\xA0 \xC2\xA0", 5, REASON_NONE, 0},        /* no-break spaces */
        {"\xE2\x80\x8B\xE2\x80\x8F", 6, REASON_NONE, 0}, /* zero width, right-to-left mark */
        {"\0", 1, REASON_NONE, 0},
        {"\xE2\x80\xA8", 3, REASON_NONE, 0}, /* line separator */
        {"\xE3\x85\xA4", 3, REASON_NONE, 0}, /* Hangul filler */
        {"\xC2\xA0x", 3, REASON_NONE, 1},
        {"\xF0\x9F\x98\x80", 4, REASON_NONE, 1},
        {"a\0b", 3, REASON_CAPTION_NOT_UTF8, 0},
        {"\xFF\xFEo\0", 4, REASON_CAPTION_NOT_UTF8, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct source_row row;
        source_row_init(&row);
        source_row_reset(&row, 0);
        assert_int_equal(source_row_add_caption(&row, cases[i].text, cases[i].size_bytes, NULL), 0);
        assert_int_equal(row.reason, cases[i].reason);
        assert_int_equal(row.caption_count, cases[i].count);
        source_row_fini(&row);
    }
}

TEST(json_that_is_none_is_dropped_with_a_reason) {
    static const struct {
        const char *text;
        bool kept;
    } cases[] = {
        {"{\"a\": [1, null]}\n", true}, {"7", true},       {"", false},
        {"{\"a\": }", false},           {"{} {}", false},  {"\xFF", false},
        {"{\"a\": NaN}", false},        {"[\"cut", false},
    };
    struct source_row row;
    struct error err = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t size_bytes = strlen(cases[i].text);
        source_row_init(&row);
        assert_ok(byte_buffer_append(&row.json, cases[i].text, size_bytes, &err), err);
        row.json_unchecked = true;
        assert_ok(source_row_load(&row, &err), err);
        assert_int_equal(row.json_problem[0] == '\0', cases[i].kept);
        assert_int_equal(row.json.size_bytes, cases[i].kept ? size_bytes : 0);
        source_row_fini(&row);
    }
}

/* The rows of a tar with a caption in each .json: what source_row_load makes of it. */
TEST(captions_come_out_of_the_json) {
    static const struct {
        const char *json, *text;
        enum source_reason reason;
    } cases[] = {
        {"{\"caption\": \" a dog \"}", "a dog", REASON_NONE},
        {"{\"caption\": [\"one\", \"\", \"two\"]}", "one|two", REASON_NONE},
        {"{\"text\": \"a dog\"}", "", REASON_CAPTION_MISSING},
        {"{\"caption\": 7}", "", REASON_CAPTION_MISSING},
        {"{\"caption\": [\"one\", 7]}", "one", REASON_CAPTION_MISSING},
        {"{\"caption\": \" \"}", "", REASON_CAPTION_EMPTY},
        {"{\"caption\": []}", "", REASON_CAPTION_EMPTY},
        {"{\"caption\": ", "", REASON_CAPTION_MISSING},
        {"[\"caption\"]", "", REASON_CAPTION_MISSING},
        {NULL, "", REASON_CAPTION_MISSING},
    };
    size_t count = sizeof(cases) / sizeof(cases[0]);
    const char *path = test_temp_path("a.tar");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%zu.jpg", i);
        assert_true(tar_write_file(f, name, jpeg_head, sizeof(jpeg_head)));
        snprintf(name, sizeof(name), "%zu.txt", i);
        assert_true(tar_write_file(f, name, "not this one", 12));
        snprintf(name, sizeof(name), "%zu.json", i);
        if (cases[i].json) {
            assert_true(tar_write_file(f, name, cases[i].json, strlen(cases[i].json)));
        }
    }
    assert_true(tar_write_end(f));
    assert_int_equal(fclose(f), 0);
    struct source_options how = {.caption_column = "caption"};
    struct source_reading r;
    source_reading_open(&r, path, &how);
    for (size_t i = 0; i < count; i++) {
        assert_non_null(source_reading_next(&r));
        assert_ok(source_row_load(&r.row, &r.err), r.err);
        assert_int_equal(r.row.reason, cases[i].reason);
        assert_string_equal(source_row_captions(&r.row), cases[i].text);
    }
    assert_null(source_reading_next(&r));
    source_reading_close(&r);
}

TEST(options_of_another_kind_are_refused) {
    static const struct {
        struct source_options how;
        const char *message;
    } cases[] = {
        {{.split = "train"}, "--split does not apply to sources of kind tsv"},
        {{.caption_column = ""}, "--caption-column is empty"},
        {{.kind = SOURCE_COCO, .caption_column = "x"},
         "--caption-column does not apply to sources of kind coco"},
        {{.kind = SOURCE_WDS, .image_column = "x"},
         "--image-column does not apply to sources of kind wds"},
        {{.kind = SOURCE_WDS, .columns = "a,b"}, "--columns does not apply to sources of kind wds"},
        {{.image_column = "0123456789012345678901234567890123456789012345678901234567890123"},
         "longer than 63 bytes"},
    };
    const char *path = test_temp_path("a.tsv");
    test_write_file(path, "a dog\tone.jpg\n", 14);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct source *s = NULL;
        struct error err = {0};
        assert_status(source_open(&s, path, &cases[i].how, &err), STATUS_USAGE, err);
        assert_non_null(strstr(err.text, cases[i].message));
        assert_null(s);
    }
}

TEST(loading_judges_files) {
    struct source_reading r;
    test_write_file(test_temp_path("full.jpg"), jpeg_head, sizeof(jpeg_head));
    test_write_file(test_temp_path("empty.jpg"), "", 0);
    assert_int_equal(mkfifo(test_temp_path("pipe.jpg"), 0600), 0);
    source_reading_open_text(&r, "a.tsv",
                             "a\tfull.jpg\na\tempty.jpg\na\tpipe.jpg\na\tgone.jpg\na\t.\n", NULL);
    static const enum source_reason want[] = {REASON_NONE, REASON_IMAGE_UNREADABLE,
                                              REASON_IMAGE_UNREADABLE, REASON_IMAGE_UNREADABLE,
                                              REASON_IMAGE_UNREADABLE};
    for (int i = 0; i < 5; i++) {
        assert_non_null(source_reading_next(&r));
        assert_ok(source_row_load(&r.row, &r.err), r.err);
        assert_int_equal(r.row.reason, want[i]);
        assert_int_equal(r.row.image.size_bytes, i == 0 ? sizeof(jpeg_head) : 0);
    }
    source_reading_close(&r);
}

TEST(tar_members_make_rows) {
    static const struct {
        const char *name, *data;
    } members[] = {
        {"./0.txt", "zero\n"},    {"./0.jpg", jpeg_head},  {"._0.jpg", "of macOS"},
        {"a.b/1.jpg", jpeg_head}, {"a.b/1.seg.txt", "no"}, {"a.b/1.txt", "one"},
        {"a.b/1.json", "{}"},     {"README", "no row"},    {"2.cls", "7"},
        {"2.txt", "two"},         {"3.jpg", "no image"},   {"3.txt", "three"},
        {"4.jpg", jpeg_head},     {"5.jpg", jpeg_head},    {"5.txt", "\n "},
        {"6.jpg", jpeg_head},     {"6.txt", "\xFF"},       {"7.dat", jpeg_head},
        {"7.TXT", "seven"},       {"8.jpg", jpeg_head},    {"8.txt", "x"},
        {"8.txt", "y"},           {"9.jpg", jpeg_head},    {"9.json", "\xC0"},
        {"9.txt", "nine"},        {"e.bmp", "guessed"},    {"e.jpg", jpeg_head},
        {"e.depth.png", "other"}, {"e.none", "x"},         {"e.dat", jpeg_head},
        {"e.txt", "extras"},      {"0.jpg", jpeg_head},    {"0.txt", "again"},
        {"0.jpg", jpeg_head},     {"0.txt", "and again"},  {"0.gif", "late"},
        {"m.txt", "first"},       {"m.1.txt", "second"},   {"m.3.txt", "four"},
        {"m.jpg", jpeg_head},     {"m.2.txt", "third"},    {"m.02.txt", "no"},
        {"n.1.txt", "second"},    {"n.2.txt", " \n"},      {"n.10.txt", "last"},
        {"n.jpg", jpeg_head},     {"n.3.txt", "third"},    {"n.txt", "first"},
        {"n.1.txt", "next row"},  {"n.jpg", jpeg_head},    {"n.txt", "of this"},
        {"o.1.txt", "no"},        {"o.jpg", jpeg_head},
    };
    static const struct {
        const char *key, *text;
        enum source_reason reason;
    } want[] = {
        {"0", "zero", REASON_NONE},
        {"a.b/1", "one", REASON_NONE},
        {"2", "two", REASON_IMAGE_MISSING},
        {"3", "three", REASON_NONE}, /* the decoder says what it is */
        {"4", "", REASON_CAPTION_MISSING},
        {"5", "", REASON_CAPTION_EMPTY},
        {"6", "", REASON_CAPTION_NOT_UTF8},
        {"7", "seven", REASON_NONE},
        {"8", "x", REASON_NONE},
        {"8", "y", REASON_IMAGE_MISSING},
        {"9", "nine", REASON_NONE},
        {"e", "extras", REASON_NONE},
        {"e", "", REASON_IMAGE_EXTRA},
        {"e", "", REASON_IMAGE_EXTRA},
        {"e", "", REASON_IMAGE_EXTRA},
        {"0", "again", REASON_NONE},
        {"0", "and again", REASON_NONE},
        {"0", "", REASON_IMAGE_EXTRA},
        {"m", "first|second|third|four", REASON_NONE},
        {"n", "first|second|third|last", REASON_NONE},
        {"n", "of this|next row", REASON_NONE},
        {"o", "", REASON_CAPTION_MISSING},
    };
    const char *path = test_temp_path("a.tar");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        assert_true(tar_write_file(f, members[i].name, members[i].data, strlen(members[i].data)));
    }
    assert_true(tar_write_end(f));
    assert_int_equal(fclose(f), 0);
    struct source_reading r;
    size_t size = 0;
    uint8_t *tar = test_read_file(path, &size);
    uint64_t end = 0;
    source_reading_open(&r, path, NULL);
    assert_true(source_is_plain_tar(r.source));
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        const char *text = source_reading_next(&r);
        assert_non_null(text);
        assert_string_equal(r.row.key, want[i].key);
        assert_string_equal(text, want[i].text);
        assert_int_equal(r.row.reason, want[i].reason);
        assert_ok(source_row_load(&r.row, &r.err), r.err);
        assert_int_equal(r.row.json.size_bytes, i == 1 ? 2 : 0);
        assert_int_equal(r.row.json_problem[0] != '\0', strcmp(want[i].key, "9") == 0);
        if (want[i].reason != REASON_IMAGE_EXTRA) { /* the header of its first member */
            const char *name = (const char *)tar + r.row.offset_bytes;
            assert_true(r.row.offset_bytes % 512 == 0 && r.row.offset_bytes < size);
            name += strncmp(name, "./", 2) == 0 ? 2 : 0;
            assert_int_equal(strncmp(name, want[i].key, strlen(want[i].key)), 0);
            assert_true(r.row.offset_bytes >= end && r.row.end_bytes > r.row.offset_bytes);
            assert_true(r.row.end_bytes % 512 == 0 && r.row.end_bytes < size);
            assert_true(r.row.end_bytes - r.row.offset_bytes >= 1024);
            assert_memory_equal(tar + r.row.image_offset_bytes, r.row.image.data,
                                r.row.image.size_bytes);
            end = r.row.end_bytes;
        }
    }
    assert_null(source_reading_next(&r));
    assert_int_equal(ignored_files(r.source), 6);
    const struct source_ignored ignored = source_ignored(r.source);
    assert_int_equal(ignored.by[IGNORED_HIDDEN], 1);       /* ._0.jpg */
    assert_int_equal(ignored.by[IGNORED_NO_EXTENSION], 1); /* README */
    assert_int_equal(ignored.by[IGNORED_UNUSED], 4);       /* 1.seg.txt, 2.cls, e.none, m.02.txt */
    source_reading_close(&r);
    free(tar);
}

/* Stored, deflated, and one written to a pipe, which has its sizes after the bodies. */
TEST(zips_are_read_like_tars) {
    static const char *const names[] = {"zip-stored", "zip-deflated", "zip-piped"};
    for (size_t i = 0; i < 3; i++) {
        struct source_reading r;
        char path[256];
        snprintf(path, sizeof(path), "tests/fuzz/corpus/wds/%s", names[i]);
        source_reading_open(&r, test_source_path(path), NULL);
        assert_string_equal(source_reading_next(&r), "zero");
        assert_memory_equal(r.row.image.data, jpeg_head, r.row.image.size_bytes);
        assert_string_equal(source_reading_next(&r), "one, one, one, one, one");
        assert_string_equal(r.row.key, "folder/1");
        assert_int_equal(r.row.json.size_bytes, 8);
        assert_string_equal(source_reading_next(&r), "two");
        assert_int_equal(r.row.image.size_bytes, 300);
        assert_int_equal(r.row.reason, REASON_NONE);
        assert_null(source_reading_next(&r));
        assert_int_equal(ignored_files(r.source), 1);
        source_reading_close(&r);
    }
}

TEST(broken_archives_name_the_file_and_the_row) {
    static const struct {
        const char *file, *message;
    } cases[] = {
        {"zip-cut", "after row 1: "},
        {"cut", "after row 0, in 0.jpg: "},
    };
    for (size_t i = 0; i < 2; i++) {
        struct source_reading r;
        char path[256];
        enum status s = STATUS_OK;
        snprintf(path, sizeof(path), "tests/fuzz/corpus/wds/%s", cases[i].file);
        source_reading_open(&r, test_source_path(path), NULL);
        while (s == STATUS_OK) {
            s = source_next(r.source, &r.row, &r.err);
        }
        assert_int_equal(s, STATUS_CORRUPT);
        assert_non_null(strstr(r.err.text, cases[i].file));
        if (!strstr(r.err.text, cases[i].message)) {
            fail_msg("%s", r.err.text);
        }
        source_reading_close(&r);
    }
}

/* STEM.EXT before STEM.X.EXT and jpg before png, wherever they stand; STEM.1.txt is no caption of
 * the stem's image where there is STEM.1.jpg. */
TEST(which_image_is_the_stems_does_not_depend_on_the_order) {
    static const char *const names[][4] = {{"p.1.jpg", "p.1.txt", "p.jpg", "p.txt"},
                                           {"p.depth.png", "p.seg", "p.webp", "p.txt"},
                                           {"p.png", "p.jpeg", "p.jpg", "p.txt"}};
    for (size_t k = 0; k < 3 * 256; k++) {
        const size_t order[4] = {k / 3 % 4, k / 12 % 4, k / 48 % 4, k / 192};
        unsigned all = 0;
        FILE *f = fopen(test_temp_path("%zu.tar", k), "wb");
        assert_non_null(f);
        for (size_t i = 0; i < 4; i++) {
            const char *name = names[k % 3][order[i]];
            char body[64]; /* all but texts are JPEGs by their content */
            snprintf(body, sizeof(body), "%s%s", strstr(name, ".txt") ? "" : jpeg_head, name);
            assert_true(tar_write_file(f, name, body, strlen(body)));
            all |= 1u << order[i];
        }
        assert_true(tar_write_end(f) && fclose(f) == 0);
        struct source_reading r;
        if (all == 15) { /* each name once */
            char want[64];
            snprintf(want, sizeof(want), "%s%s", jpeg_head, names[k % 3][2]);
            source_reading_open(&r, test_temp_path("%zu.tar", k), NULL);
            assert_string_equal(source_reading_next(&r), "p.txt");
            assert_int_equal(r.row.reason, REASON_NONE);
            assert_int_equal(r.row.image.size_bytes, strlen(want));
            assert_memory_equal(r.row.image.data, want, strlen(want));
            for (size_t i = 0; i < (k % 3 == 0 ? 1 : 2); i++) {
                assert_non_null(source_reading_next(&r));
                assert_int_equal(r.row.reason, REASON_IMAGE_EXTRA);
            }
            assert_null(source_reading_next(&r));
            source_reading_close(&r);
        }
        assert_int_equal(remove(test_temp_path("%zu.tar", k)), 0);
    }
}

static void expect_lines(const char *texts[3], enum source_lines lines, const char *want[3]) {
    FILE *f = fopen(test_temp_path("a.tar"), "wb");
    assert_non_null(f);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d.jpg", i);
        assert_true(tar_write_file(f, name, jpeg_head, sizeof(jpeg_head)));
        snprintf(name, sizeof(name), "%d.txt", i);
        assert_true(tar_write_file(f, name, texts[i], strlen(texts[i])));
    }
    assert_true(tar_write_file(f, "2.1.txt", "more", 4));
    assert_true(tar_write_end(f) && fclose(f) == 0);
    const struct source_options how = {.lines = lines};
    struct source_reading r;
    source_reading_open(&r, test_temp_path("a.tar"), &how);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(source_reading_next(&r), want[i]);
    }
    assert_null(source_reading_next(&r));
    const char *note = source_note(r.source);
    const bool joined = lines == SOURCE_LINES_AUTO && strchr(want[0], '\n') != NULL;
    assert_int_equal(joined, strstr(note, "--caption-lines each") != NULL);
    source_reading_close(&r);
}

TEST(lines_of_a_text_are_captions_where_all_agree) {
    const char *two[3] = {"a\nb\n", "c\r\nd", "\n e\n\nf\n"};
    const char *mixed[3] = {"a\nb\n", "c", "e"};
    const char *each[3] = {"a|b", "c|d", "e|f|more"};
    const char *whole[3] = {"a\nb", "c\r\nd", "e\n\nf|more"};
    expect_lines(two, SOURCE_LINES_JOIN, whole);
    expect_lines(two, SOURCE_LINES_EACH, each);
    expect_lines(two, SOURCE_LINES_FIRST, (const char *[]){"a", "c", "e|more"});
    expect_lines(two, SOURCE_LINES_AUTO, each);
    expect_lines(mixed, SOURCE_LINES_AUTO, (const char *[]){"a\nb", "c", "e|more"});
    test_write_file(test_temp_path("dataset_type.txt"), "retrieval\n", 10);
    expect_lines(mixed, SOURCE_LINES_AUTO, (const char *[]){"a|b", "c", "e|more"});
}

TEST(names_may_be_split_at_their_last_dot) {
    static const char *const names[] = {"p.v2.jpg", "p.v2.txt", "p.v3.jpg", "p.v3.txt"};
    FILE *f = fopen(test_temp_path("a.tar"), "wb");
    assert_non_null(f);
    for (size_t i = 0; i < 4; i++) {
        const char *body = i % 2 == 0 ? jpeg_head : names[i];
        assert_true(tar_write_file(f, names[i], body, strlen(body)));
    }
    assert_true(tar_write_end(f) && fclose(f) == 0);
    struct source_reading r;
    source_reading_open(&r, test_temp_path("a.tar"), NULL);
    assert_non_null(source_reading_next(&r));
    assert_int_equal(r.row.reason, REASON_CAPTION_MISSING);
    assert_non_null(strstr(r.row.detail, "no p.txt: there is p.v2.txt"));
    assert_non_null(strstr(r.row.detail, "--split-names last"));
    source_reading_close(&r);
    const struct source_options how = {.split_names = SOURCE_SPLIT_LAST_DOT};
    source_reading_open(&r, test_temp_path("a.tar"), &how);
    assert_string_equal(source_reading_next(&r), "p.v2.txt");
    assert_string_equal(r.row.key, "p.v2");
    assert_string_equal(source_reading_next(&r), "p.v3.txt");
    assert_null(source_reading_next(&r));
    source_reading_close(&r);
}

TEST(class_ids_are_labels_by_classnames_txt) {
    static const struct {
        const char *cls, *reject;
        int32_t label;
    } cases[] = {{"1", NULL, 1},
                 {" 0\n", NULL, 0},
                 {"2", NULL, 2},
                 {"3", "its .cls is '3', which is not a line number of classnames.txt", -1},
                 {"-1", "its .cls is '-1'", -1},
                 {"cat", "its .cls is 'cat'", -1},
                 {"", "its .cls is ''", -1}};
    enum { COUNT = sizeof(cases) / sizeof(cases[0]) };
    assert_int_equal(mkdir(test_temp_path("test"), 0755), 0);
    FILE *f = fopen(test_temp_path("test/0.tar"), "wb");
    assert_non_null(f);
    for (int i = 0; i < COUNT; i++) {
        char name[16];
        snprintf(name, sizeof(name), "s%d.cls", i);
        assert_true(tar_write_file(f, name, cases[i].cls, strlen(cases[i].cls)));
        snprintf(name, sizeof(name), "s%d.jpg", i);
        assert_true(tar_write_file(f, name, jpeg_head, sizeof(jpeg_head)));
    }
    assert_true(tar_write_end(f) && fclose(f) == 0);
    struct source_reading r;
    source_reading_open(&r, test_temp_path("test/0.tar"), NULL);
    assert_non_null(source_reading_next(&r));
    assert_int_equal(r.row.reason, REASON_CAPTION_MISSING);
    assert_non_null(strstr(r.row.detail, "a .cls needs classnames.txt"));
    source_reading_close(&r);
    test_write_file(test_temp_path("classnames.txt"), "a dog \n\r\n a cat", 15);
    source_reading_open(&r, test_temp_path("test/0.tar"), NULL);
    assert_int_equal(source_class_count(r.source), 3);
    assert_string_equal(source_class_name(r.source, 0), "a dog");
    assert_string_equal(source_class_name(r.source, 1), "");
    assert_string_equal(source_class_name(r.source, 2), "a cat");
    for (int i = 0; i < COUNT; i++) {
        assert_non_null(source_reading_next(&r));
        assert_int_equal(r.row.class_index, cases[i].label);
        assert_int_equal(r.row.reason, cases[i].reject ? REASON_ROW_BAD : REASON_NONE);
        assert_true(!cases[i].reject || strstr(r.row.detail, cases[i].reject));
    }
    assert_null(source_reading_next(&r));
    source_reading_close(&r);
}

/* FairFace has several labels an image, in an array that the evaluation reads. */
TEST(an_array_is_enough_beside_classnames_txt) {
    FILE *f = fopen(test_temp_path("0.tar"), "wb");
    assert_non_null(f);
    assert_true(tar_write_file(f, "a.jpg", jpeg_head, sizeof(jpeg_head)));
    assert_true(tar_write_file(f, "a.npy", "x", 1));
    assert_true(tar_write_file(f, "b.jpg", jpeg_head, sizeof(jpeg_head)));
    assert_true(tar_write_end(f) && fclose(f) == 0);
    struct source_reading r;
    for (int with = 0; with < 2; with++) {
        source_reading_open(&r, test_temp_path("0.tar"), NULL);
        assert_non_null(source_reading_next(&r));
        assert_int_equal(r.row.reason, with ? REASON_NONE : REASON_CAPTION_MISSING);
        assert_int_equal(r.row.class_index, -1);
        assert_non_null(source_reading_next(&r));
        assert_int_equal(r.row.reason, REASON_CAPTION_MISSING);
        source_reading_close(&r);
        test_write_file(test_temp_path("classnames.txt"), "a", 1);
    }
}

/* Names such as photo.1.jpg all have the stem "photo". */
TEST(many_images_of_one_stem_all_become_rows) {
    const char *path = test_temp_path("a.tar");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < 10000; i++) {
        char name[64];
        snprintf(name, sizeof(name), "photo.%d.jpg", i);
        assert_true(tar_write_file(f, name, jpeg_head, sizeof(jpeg_head)));
    }
    assert_true(tar_write_end(f));
    assert_int_equal(fclose(f), 0);
    struct source_reading r;
    int extra = 0;
    int missing = 0;
    source_reading_open(&r, path, NULL);
    while (source_reading_next(&r)) {
        extra += r.row.reason == REASON_IMAGE_EXTRA;
        missing += r.row.reason == REASON_CAPTION_MISSING;
        assert_string_equal(r.row.key, "photo");
    }
    assert_int_equal(source_rows_read(r.source), 10000);
    assert_int_equal(extra + missing, 10000);
    assert_true(missing < 10);
    source_reading_close(&r);
}

TEST(positions_end_at_the_size) {
    static const char table[] = "a dog\tone.jpg\na cat\ttwo.jpg\na bird\tthree.jpg\n";
    static const char coco[] = "{\"images\": [{\"id\": 1, \"file_name\": \"a\"}, {\"id\": 2, "
                               "\"file_name\": \"b\"}], \"annotations\": []}";
    const char *const texts[] = {table, coco};
    for (size_t i = 0; i < 2; i++) {
        struct source_reading r;
        uint64_t at = 0;
        uint64_t size = 0;
        source_reading_open_text(&r, "a.txt", texts[i], NULL);
        assert_non_null(source_reading_next(&r));
        source_position(r.source, &at, &size);
        assert_int_equal(size, strlen(texts[i]));
        assert_true(at > 0 && at < size);
        assert_non_null(source_reading_next(&r));
        source_position(r.source, &at, &size);
        assert_int_equal(at, size);
        source_reading_close(&r);
    }
}
