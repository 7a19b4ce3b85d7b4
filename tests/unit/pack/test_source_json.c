/*
 * COCO captions, Karpathy's split files, and lists of objects.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/source/source.h"
#include "tests/support/source_rows.h"
#include "tests/support/test.h"

static void expect_refused(const char *text,
                           const struct source_options *how,
                           enum status status,
                           const char *message) {
    struct source *s = NULL;
    struct error err = {0};
    const char *path = test_temp_path("t.json");
    test_write_file(path, text, strlen(text));
    assert_status(source_open(&s, path, how, &err), status, err);
    if (!strstr(err.text, message) || !strstr(err.text, "t.json")) {
        fail_msg("no '%s' in: %s", message, err.text);
    }
    assert_null(s);
}

TEST(coco_rows_have_all_their_captions_in_order) {
    struct source_reading r;
    source_reading_open_text(
        &r, "c.json",
        " {\"images\": [{\"id\": 9, \"file_name\": \"nine.jpg\"}, {\"id\": 2, \"file_name\": "
        "\"d/two.jpg\"}, {\"id\": 5, \"file_name\": \"five.jpg\"}, {\"file_name\": \"x\"}],"
        "\"annotations\": [{\"image_id\": 2, \"caption\": \"b1\"}, {\"image_id\": 9, "
        "\"caption\": \"a1\"}, {\"image_id\": 2, \"caption\": \"b2 \"}, {\"image_id\": 77, "
        "\"caption\": \"of none\"}, {\"image_id\": 9, \"caption\": \"a2\"}]}",
        NULL);
    assert_string_equal(source_reading_next(&r), "a1|a2");
    assert_string_equal(r.row.key, "9");
    assert_true(r.row.has_number && r.row.number == 9);
    assert_string_equal(source_reading_next(&r), "b1|b2");
    assert_string_equal(r.row.path, test_temp_path("d/two.jpg"));
    assert_string_equal(source_reading_next(&r), "");
    assert_int_equal(r.row.reason, REASON_CAPTION_MISSING);
    source_reading_next(&r);
    assert_int_equal(r.row.reason, REASON_ROW_BAD);
    assert_null(source_reading_next(&r));
    assert_int_equal(ignored_files(r.source), 1);
    source_reading_close(&r);
}

TEST(repeated_coco_ids_are_refused) {
    static const char text[] = "{\"images\": [{\"id\": 4, \"file_name\": \"a\"}, {\"id\": 4, "
                               "\"file_name\": \"b\"}], \"annotations\": []}";
    struct source_options how = {0};
    struct source *s = NULL;
    struct error err = {0};
    const char *path = test_temp_path("c.json");
    test_write_file(path, text, strlen(text));
    assert_status(source_open(&s, path, &how, &err), STATUS_CORRUPT, err);
    assert_null(s);
    assert_non_null(strstr(err.text, "id 4"));
}

/* Values that are not valid JSON, each instead of %s. */
static const char *const bad_values[] = {"\"\\ud800\"", "\"\xFF\"", "NaN", "9223372036854775808",
                                         "{\"a\": 1, \"a\": 2}"};

/* One bad value costs the entry that it is in, not the file. */
TEST(bad_values_in_coco_cost_their_entry) {
    for (size_t i = 0; i < sizeof(bad_values) / sizeof(bad_values[0]); i++) {
        char text[1024];
        struct source_reading r;
        snprintf(
            text, sizeof(text),
            "\xEF\xBB\xBF{\"info\": %s, \"images\": [{\"id\": 1, \"file_name\": \"1\"}, "
            "{\"id\": 2, \"file_name\": \"2\", \"x\": %s}, {\"id\": 3, \"file_name\": \"3\"}], "
            "\"annotations\": [{\"image_id\": 1, \"caption\": \"a\"}, "
            "{\"image_id\": 1, \"caption\": %s}, {\"image_id\": %s, \"caption\": \"b\"}, "
            "{\"image_id\": 3, \"caption\": \"c\"}]}",
            bad_values[i], bad_values[i], bad_values[i], bad_values[i]);
        source_reading_open_text(&r, "c.json", text, &(struct source_options){0});
        assert_string_equal(source_reading_next(&r), "a");
        source_reading_next(&r);
        assert_int_equal(r.row.reason, REASON_ROW_BAD);
        assert_non_null(strstr(r.row.detail, "entry 1 of \"images\", at byte "));
        assert_string_equal(source_reading_next(&r), "c");
        assert_null(source_reading_next(&r));
        assert_int_equal(ignored_files(r.source), 2);
        source_reading_close(&r);
    }
}

TEST(coco_ids_that_are_strings_are_named) {
    struct source_reading r;
    source_reading_open_text(&r, "c.json",
                             "{\"images\": [{\"id\": \"x7\", \"file_name\": \"1\"}], "
                             "\"annotations\": [{\"image_id\": \"x7\", \"caption\": \"a\"}]}",
                             NULL);
    source_reading_next(&r);
    assert_int_equal(r.row.reason, REASON_ROW_BAD);
    assert_non_null(strstr(r.row.detail, "is the string \"x7\""));
    assert_null(source_reading_next(&r));
    assert_int_equal(ignored_files(r.source), 1);
    source_reading_close(&r);
}

TEST(bad_values_in_split_files_cost_their_image) {
    for (size_t i = 0; i < sizeof(bad_values) / sizeof(bad_values[0]); i++) {
        char text[1024];
        struct source_reading r;
        struct source_options how = {.split = "train"};
        snprintf(text, sizeof(text),
                 "\xEF\xBB\xBF{\"images\": [{\"filename\": \"1.jpg\", \"split\": \"train\", "
                 "\"sentences\": [{\"raw\": \"a\"}]}, {\"filename\": \"2.jpg\", \"split\": "
                 "\"train\", \"sentences\": [{\"raw\": %s}]}, {\"filename\": \"3.jpg\", \"split\": "
                 "\"train\", \"sentences\": [{\"raw\": \"c\"}]}], \"dataset\": %s}",
                 bad_values[i], bad_values[i]);
        source_reading_open_text(&r, "k.json", text, &how);
        assert_string_equal(source_reading_next(&r), "a");
        source_reading_next(&r);
        assert_int_equal(r.row.reason, REASON_ROW_BAD);
        assert_string_equal(source_reading_next(&r), "c");
        assert_null(source_reading_next(&r));
        source_reading_close(&r);
    }
}

/* The list of objects after a byte order mark. */
TEST(bad_values_in_lists_cost_their_element) {
    for (size_t i = 0; i < sizeof(bad_values) / sizeof(bad_values[0]); i++) {
        char text[512];
        struct source_reading r;
        snprintf(text, sizeof(text),
                 "\xEF\xBB\xBF[{\"image\": \"1\", \"caption\": \"a\"}, {\"image\": \"2\", "
                 "\"caption\": %s}, {\"image\": \"3\", \"caption\": \"c\"}]",
                 bad_values[i]);
        source_reading_open_text(&r, "l.json", text, NULL);
        assert_string_equal(source_reading_next(&r), "a");
        source_reading_next(&r);
        assert_int_not_equal(r.row.reason, REASON_NONE);
        assert_string_equal(source_reading_next(&r), "c");
        assert_null(source_reading_next(&r));
        source_reading_close(&r);
    }
}

static const char karpathy[] =
    "{\"dataset\": \"coco\", \"images\": ["
    "{\"filepath\": \"val2014\", \"filename\": \"9.jpg\", \"imgid\": 0, \"cocoid\": 391895, "
    "\"split\": \"test\", \"sentids\": [1, 2], \"sentences\": [{\"tokens\": [\"a\"], \"raw\": \"A "
    "man. \", \"sentid\": 1}, {\"raw\": \"A bike.\"}]},"
    "{\"filename\": \"2.jpg\", \"imgid\": 7, \"split\": \"train\", \"sentences\": [{\"raw\": "
    "\"b\"}]},"
    "{\"filename\": \"dir/3.jpg\", \"split\": \"restval\", \"sentences\": [{\"raw\": \"c\"}]},"
    "{\"filename\": \"4.jpg\", \"split\": \"train\", \"sentences\": []},"
    "{\"imgid\": 5, \"split\": \"train\", \"sentences\": [{\"raw\": \"d\"}]},"
    "{\"filename\": \"6.jpg\", \"split\": \"train\", \"sentences\": [{\"tokens\": []}]},"
    "{\"filename\": \"7.jpg\", \"sentences\": [{\"raw\": \"of no split\"}]}]}";

TEST(karpathy_rows_are_images_with_all_sentences) {
    struct source_reading r;
    source_reading_open_text(&r, "k.json", karpathy, NULL);
    assert_string_equal(source_reading_next(&r), "A man.|A bike.");
    assert_string_equal(r.row.key, "391895");
    assert_true(r.row.has_number && r.row.number == 391895);
    assert_string_equal(r.row.path, test_temp_path("val2014/9.jpg"));
    assert_string_equal(source_reading_next(&r), "b");
    assert_string_equal(r.row.key, "7");
    assert_string_equal(source_reading_next(&r), "c");
    assert_string_equal(r.row.key, "3");
    assert_string_equal(r.row.path, test_temp_path("dir/3.jpg"));
    static const enum source_reason bad[] = {REASON_CAPTION_MISSING, REASON_ROW_BAD,
                                             REASON_ROW_BAD};
    for (size_t i = 0; i < 3; i++) {
        assert_non_null(source_reading_next(&r));
        assert_int_equal(r.row.reason, bad[i]);
    }
    assert_string_equal(source_reading_next(&r), "of no split");
    assert_int_equal(r.row.row, 6);
    assert_null(source_reading_next(&r));
    source_reading_close(&r);
}

TEST(karpathy_splits_choose) {
    struct source_reading r;
    struct source_options how = {.split = "restval,test"};
    source_reading_open_text(&r, "k.json", karpathy, &how);
    assert_string_equal(source_reading_next(&r), "A man.|A bike.");
    assert_string_equal(source_reading_next(&r), "c");
    assert_int_equal(r.row.row, 1);
    assert_null(source_reading_next(&r));
    source_reading_close(&r);
    how.split = "train,tests";
    expect_refused(karpathy, &how, STATUS_USAGE, "'tests'; the splits are test,train,restval");
    how = (struct source_options){.kind = SOURCE_KARPATHY, .split = "train"};
    expect_refused("{\"images\": []}", &how, STATUS_USAGE, "the splits are none");
    expect_refused("{\"images\": 7}", &how, STATUS_CORRUPT, "a list \"images\" is required");
    expect_refused("{\"images\": [}", &how, STATUS_CORRUPT, "at byte 12: a value is expected");
    expect_refused("{\"images\": [{\"a\": 1}", &how, STATUS_CORRUPT, "where it ends");
}

TEST(lists_of_objects) {
    static const char text[] =
        " [ {\"image\": \"d/1.jpg\", \"caption\": \"a dog\", \"image_id\": 17},\n"
        "{\"image_id\": \"set/0042\", \"image\": \"/abs/2.jpg\", \"caption\": [\"x\", \"y \"]} ,"
        "{\"image\": \"d/3.x.jpg\", \"caption\": \"br}ack\\\"ets]{\", \"url\": \"u\"},"
        "{\"image\": \"4.jpg\"}, {\"caption\": \"no image\"}, 7, \"a,]string\", [1, [2]], null,"
        "{\"image\": 8, \"caption\": \"b\"}, {\"image\": \"9.jpg\", \"caption\": {}},"
        "{\"image\": \"a.jpg\", \"caption\": \"a\", \"caption\": \"twice\"}, {oops},"
        "{\"image\": \"b.jpg\", \"caption\": \" \"}, {\"image\": \"c.jpg\", \"caption\": \"c\"}]\n";
    static const struct {
        const char *key, *text;
        enum source_reason reason;
        size_t json_bytes;
    } want[] = {
        {"17", "a dog", REASON_NONE, 0},
        {"set/0042", "x|y", REASON_NONE, 0},
        {"3.x", "br}ack\"ets]{", REASON_NONE, 62},
        {"4", "", REASON_CAPTION_MISSING, 0},
        {"", "", REASON_ROW_BAD, 0},
        {"", "", REASON_ROW_BAD, 0},
        {"", "", REASON_ROW_BAD, 0},
        {"", "", REASON_ROW_BAD, 0},
        {"", "", REASON_ROW_BAD, 0},
        {"", "", REASON_ROW_BAD, 0},
        {"9", "", REASON_CAPTION_MISSING, 0},
        {"", "", REASON_ROW_BAD, 0},
        {"", "", REASON_ROW_BAD, 0},
        {"b", "", REASON_CAPTION_EMPTY, 0},
        {"c", "c", REASON_NONE, 0},
    };
    struct source_reading r;
    source_reading_open_text(&r, "l.json", text, NULL);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        assert_string_equal(source_reading_next(&r), want[i].text);
        assert_string_equal(r.row.key, want[i].key);
        assert_int_equal(r.row.reason, want[i].reason);
        assert_int_equal(r.row.json.size_bytes, want[i].json_bytes);
        if (i == 0) {
            assert_string_equal(r.row.path, test_temp_path("d/1.jpg"));
            assert_true(r.row.has_number && r.row.number == 17);
        }
        if (i == 1) {
            assert_string_equal(r.row.path, "/abs/2.jpg");
            assert_true(r.row.has_number && r.row.number == 42);
        }
    }
    assert_null(source_reading_next(&r));
    source_reading_close(&r);
}

TEST(lines_of_objects) {
    struct source_reading r;
    source_reading_open_text(&r, "l.jsonl",
                             "{\"image\": \"1.jpg\", \"caption\": \"a\"}\n\n{\"image\": \"2.jpg\", "
                             "\"caption\": \"b\"}\r\n{\"image\": \"3.jpg\", \"caption\": \"c\"}",
                             NULL);
    assert_string_equal(source_reading_next(&r), "a");
    assert_string_equal(source_reading_next(&r), "b");
    assert_string_equal(source_reading_next(&r), "c");
    assert_null(source_reading_next(&r));
    source_reading_close(&r);
}

/* The order of preference is that of tables; what was not taken is said. */
TEST(caption_goes_before_other_usual_names) {
    struct source_reading r;
    source_reading_open_text(
        &r, "l.json",
        "[{\"path\": \"1.jpg\", \"title\": \"t\", \"text\": \"a\", \"caption\": \"b\"}]", NULL);
    assert_string_equal(source_columns(r.source),
                        "captions are from 'caption', not from 'title', 'text'; paths from "
                        "'path'; kept as metadata: 'title', 'text'");
    assert_string_equal(source_reading_next(&r), "b");
    source_reading_close(&r);
    struct source_options how = {.caption_column = "text,none,title"};
    source_reading_open_text(
        &r, "l.json", "[{\"image\": \"1.jpg\", \"title\": [\"t\", \"u\"], \"text\": \"a\"}]", &how);
    assert_string_equal(source_columns(r.source), "");
    assert_string_equal(source_reading_next(&r), "a|t|u");
    source_reading_close(&r);
    how.caption_column = "none,nor";
    source_reading_open_text(&r, "l.json", "[{\"image\": \"1.jpg\", \"text\": \"a\"}]", &how);
    source_reading_next(&r);
    assert_int_equal(r.row.reason, REASON_CAPTION_MISSING);
    source_reading_close(&r);
}

/* Whole, or the members that are asked for. */
TEST(members_are_kept_on_request) {
    static const char text[] =
        "{\"image\": \"1.jpg\", \"caption\": \"a\", \"by\": {\"n\": 1.50}, \"x\": 2}\n";
    static const char *const cases[][3] = {
        {NULL, "{\"image\": \"1.jpg\", \"caption\": \"a\", \"by\": {\"n\": 1.50}, \"x\": 2}",
         "kept as metadata: 'by', 'x'"},
        {"by,caption", "{\"caption\":\"a\",\"by\":{\"n\":1.5}}",
         "kept as metadata: 'by'; not kept: 'x'"},
        {"none", "", "not kept: 'by', 'x'"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct source_options how = {.kind = SOURCE_JSON, .keep_columns = cases[i][0]};
        struct source_reading r;
        source_reading_open_text(&r, "l.jsonl", text, &how);
        assert_string_equal(source_columns(r.source), cases[i][2]);
        assert_string_equal(source_reading_next(&r), "a");
        assert_int_equal(r.row.json.size_bytes, strlen(cases[i][1]));
        assert_memory_equal(r.row.json.data, cases[i][1], r.row.json.size_bytes);
        source_reading_close(&r);
    }
}

TEST(licences_of_coco_and_splits_of_karpathy_are_kept) {
    static const char *const cases[][2] = {
        {"{\"images\": [{\"id\": 1, \"file_name\": \"1.jpg\", \"license\": 4, \"coco_url\": "
         "\"u\"}], "
         "\"annotations\": [{\"image_id\": 1, \"caption\": \"a\"}]}",
         "{\"license\":4,\"coco_url\":\"u\"}"},
        {"{\"licenses\": [{\"id\": 3}, 5, {\"url\": \"http://l\", \"id\": 4, \"name\": \"A "
         "\\\"B\\\"\"}], "
         "\"images\": [{\"id\": 1, \"file_name\": \"1.jpg\", \"license\": 4}], "
         "\"annotations\": [{\"image_id\": 1, \"caption\": \"a\"}]}",
         "{\"license\":4,\"license_name\":\"A \\\"B\\\"\",\"license_url\":\"http://l\"}"},
        {"{\"licenses\": [{\"id\": 3}], \"images\": [{\"id\": 1, \"file_name\": \"1.jpg\", "
         "\"license\": 3}], "
         "\"annotations\": [{\"image_id\": 1, \"caption\": \"a\"}]}",
         "{\"license\":3}"},
        {"{\"images\": [{\"filename\": \"1.jpg\", \"split\": \"train\", \"imgid\": 3, \"sentids\": "
         "[1], "
         "\"sentences\": [{\"raw\": \"a\"}]}]}",
         "{\"split\":\"train\",\"imgid\":3}"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct source_reading r;
        source_reading_open_text(&r, "l.json", cases[i][0], NULL);
        assert_non_null(strstr(source_columns(r.source), "kept as metadata: "));
        assert_string_equal(source_reading_next(&r), "a");
        assert_int_equal(r.row.json.size_bytes, strlen(cases[i][1]));
        assert_memory_equal(r.row.json.data, cases[i][1], r.row.json.size_bytes);
        source_reading_close(&r);
    }
}

TEST(members_of_other_names) {
    struct source_reading r;
    struct source_options how = {.caption_column = "text", .image_column = "img"};
    source_reading_open_text(&r, "l.json", "[{\"img\": \"1.jpg\", \"text\": \"a\"}]", &how);
    assert_string_equal(source_reading_next(&r), "a");
    assert_int_equal(r.row.json.size_bytes, 0);
    source_reading_close(&r);
}

/* What stands between the elements must be right: the message says where it is not. */
TEST(broken_lists) {
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"[{\"image\": \"1.jpg\", \"caption\": \"a\"} {}]", "at byte 36, after row 1: a comma"},
        {"[{\"image\": \"1.jpg\", \"caption\": \"a\"},]", "at byte 36, after row 1: an element"},
        {"[{\"image\": \"1.jpg\", \"caption\": \"a\"},", "the file ends within the list"},
        {"[{\"image\": \"1.jpg\", \"caption\": \"a\"}", "the file ends within the list"},
        {"[{\"image\": \"1.jpg\", \"caption\": \"a\"}, {\"a\": \"]", "ends within an object"},
        {"[{\"image\": \"1.jpg\", \"caption\": \"a\"}] x", "there is more data after the list"},
        {"{\"image\": \"1.jpg\", \"caption\": \"a\"}, {}", "after row 1: an element is expected"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct source_reading r;
        source_reading_open_text(&r, "l.json", cases[i].text, NULL);
        assert_string_equal(source_reading_next(&r), "a");
        assert_status(source_next(r.source, &r.row, &r.err), STATUS_CORRUPT, r.err);
        if (!strstr(r.err.text, cases[i].message) || !strstr(r.err.text, "l.json")) {
            fail_msg("no '%s' in: %s", cases[i].message, r.err.text);
        }
        source_reading_close(&r);
    }
    struct source_options how = {0};
    expect_refused("[{\"image_id\": 1, \"text\": \"a result\"}]", &how, STATUS_CORRUPT,
                   "expected objects with 'image' (a path) and 'text'");
    expect_refused(" [ ] ", &how, STATUS_CORRUPT, "an empty list");
    expect_refused("[", &how, STATUS_CORRUPT, "ends within the list");
}

/* Elements over the ends of the blocks that the file is read in, and one that is too large. */
TEST(lists_are_streamed) {
    const char *path = test_temp_path("l.json");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputc('[', f);
    for (int i = 0; i < 40000; i++) {
        fprintf(f, "%s{\"image\": \"d/%d.jpg\", \"caption\": \"number %d, \\\"quoted\\\" [\\\\\"}",
                i > 0 ? ",\n" : "", i, i);
        if (i == 20000) {
            fputs(", {\"image\": \"large.jpg\", \"caption\": \"", f);
            for (int k = 0; k <= SOURCE_MAX_JSON_BYTES / 8; k++) {
                fputs("12345678", f);
            }
            fputs("\"}", f);
        }
    }
    fputs("]\n", f);
    assert_int_equal(fclose(f), 0);
    struct source_reading r;
    source_reading_open(&r, path, NULL);
    for (int i = 0; i < 40000; i++) {
        char want[64];
        snprintf(want, sizeof(want), "number %d, \"quoted\" [\\", i);
        assert_string_equal(source_reading_next(&r), want);
        if (i == 20000) {
            assert_non_null(source_reading_next(&r));
            assert_int_equal(r.row.reason, REASON_ROW_BAD);
            assert_non_null(strstr(r.row.detail, "more than"));
        }
    }
    assert_null(source_reading_next(&r));
    uint64_t at, size;
    source_position(r.source, &at, &size);
    assert_true(at == size && size > 0);
    source_reading_close(&r);
}

TEST(real_files) {
    struct source_reading r;
    const char *path = test_data_path("retrieval/dataset_karpathy.json");
    source_reading_open(&r, path, NULL);
    uint64_t images = 0;
    uint64_t sentences = 0;
    while (source_reading_next(&r)) {
        assert_int_equal(r.row.reason, REASON_NONE);
        images++;
        sentences += r.row.caption_count;
    }
    assert_int_equal(images, 500);
    assert_int_equal(sentences, 2500);
    source_reading_close(&r);
    struct source *s = NULL;
    struct error err = {0};
    struct source_options how = {0};
    const char *results = test_data_path("formats/coco_captions_results.json");
    assert_status(source_open(&s, results, &how, &err), STATUS_CORRUPT, err);
    const char *coco = test_data_path("formats/coco_mini_captions_val2017.json");
    uint64_t rows = 0;
    assert_ok(source_open(&s, coco, &how, &err), err);
    assert_status(source_skip(s, UINT64_MAX, &rows, &err), STATUS_END, err);
    assert_true(rows > 0);
    source_close(s);
}
