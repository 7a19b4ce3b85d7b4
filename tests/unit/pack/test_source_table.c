/*
 * Tables: which column is which, quoting, line ends, bounds, and what is said of tables that cannot
 * be read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"
#include "pack/source/source.h"
#include "tests/support/source_rows.h"
#include "tests/support/test.h"

/* The captions and paths of all rows: "caption@path;...". */
static const char *read_all(const char *text, const struct source_options *how) {
    static char all[4096];
    struct source_reading r;
    size_t at = 0;
    const char *caption;
    all[0] = '\0';
    source_reading_open_text(&r, "t.txt", text, how);
    while ((caption = source_reading_next(&r)) != NULL) {
        at += (size_t)snprintf(all + at, sizeof(all) - at, "%s@%s;", caption,
                               r.row.reason ? source_reason_name(r.row.reason)
                                            : path_base_name(r.row.path));
    }
    source_reading_close(&r);
    return all;
}

static void expect_refused(const char *text,
                           const struct source_options *how,
                           enum status status,
                           const char *message) {
    struct source *s = NULL;
    struct error err = {0};
    const char *path = test_temp_path("t.txt");
    test_write_file(path, text, strlen(text));
    assert_status(source_open(&s, path, how, &err), status, err);
    if (!strstr(err.text, message) || !strstr(err.text, "t.txt")) {
        fail_msg("no '%s' in: %s", message, err.text);
    }
    assert_null(s);
}

TEST(table_columns_by_extension) {
    struct source_reading r;
    source_reading_open_text(&r, "a.tsv", "a dog\tone.jpg\r\n\n  a cat \tb/two.PNG", NULL);
    assert_string_equal(source_reading_next(&r), "a dog");
    assert_string_equal(r.row.key, "one");
    assert_string_equal(r.row.path, test_temp_path("one.jpg"));
    assert_string_equal(source_reading_next(&r), "a cat");
    assert_int_equal(r.row.row, 1);
    assert_string_equal(path_base_name(r.row.path), "two.PNG");
    assert_null(source_reading_next(&r));
    assert_int_equal(source_rows_read(r.source), 2);
    source_reading_close(&r);

    source_reading_open_text(&r, "b.tsv", "\xEF\xBB\xBFone.jpg\ta dog\ntwo.jpg\ta cat.jpg\n", NULL);
    assert_string_equal(source_reading_next(&r), "a dog");
    assert_string_equal(path_base_name(r.row.path), "one.jpg");
    assert_string_equal(source_reading_next(&r), "a cat.jpg");
    assert_null(source_reading_next(&r));
    source_reading_close(&r);
}

TEST(table_columns_by_header) {
    struct source_reading r;
    source_reading_open_text(&r, "a.tsv",
                             "id\tText\tIMAGE\tscore\n1\ta dog\tone\t0.5\n2\tshort line\n", NULL);
    assert_string_equal(source_reading_next(&r), "a dog");
    assert_string_equal(path_base_name(r.row.path), "one");
    source_reading_next(&r);
    assert_int_equal(r.row.reason, REASON_ROW_BAD);
    assert_non_null(strstr(r.row.detail, "line 3"));
    assert_null(source_reading_next(&r));
    source_reading_close(&r);

    source_reading_open_text(&r, "b.tsv", "file\twords\none\ta dog\n", NULL);
    assert_string_equal(source_reading_next(&r), "a dog");
    source_reading_close(&r);
}

TEST(table_columns_are_detected_by_content) {
    struct source_reading r;
    test_write_file(test_temp_path("one"), "x", 1);
    source_reading_open_text(&r, "a.tsv", "a dog\tone\n", NULL);
    assert_string_equal(source_reading_next(&r), "a dog");
    assert_string_equal(path_base_name(r.row.path), "one");
    source_reading_close(&r);
}

TEST(table_lines_are_bounded) {
    const char *path = test_temp_path("a.tsv");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs("a dog\tone.jpg\n", f);
    for (int i = 0; i <= SOURCE_MAX_LINE_BYTES; i++) {
        fputc('x', f);
    }
    fputs("\tlong.jpg\na cat\ttwo.jpg\n", f);
    assert_int_equal(fclose(f), 0);
    struct source_reading r;
    struct source_options how = {.kind = SOURCE_TSV};
    source_reading_open(&r, path, &how);
    assert_string_equal(source_reading_next(&r), "a dog");
    source_reading_next(&r);
    assert_int_equal(r.row.reason, REASON_ROW_BAD);
    assert_string_equal(source_reading_next(&r), "a cat");
    assert_int_equal(r.row.row, 2);
    assert_null(source_reading_next(&r));
    source_reading_close(&r);
}

TEST(csv_cells_may_be_quoted) {
    static const struct {
        const char *text, *rows;
    } cases[] = {
        {"a dog,1.jpg\nb,2.jpg\n", "a dog@1.jpg;b@2.jpg;"},
        {"1.jpg,\"a dog, black\"\r\n2.jpg,\"say \"\"hi\"\"\"\r\n",
         "a dog, black@1.jpg;say \"hi\"@2.jpg;"},
        {"1.jpg,\"two\n\nlines\"\n\n2.jpg,b", "two\n\nlines@1.jpg;b@2.jpg;"},
        {"1.jpg,\"\"\"\"\n2.jpg,\"\"\n", "\"@1.jpg;@caption-empty;"},
        {"1.jpg,5\" screen\n2.jpg,a \"b\" c\n", "5\" screen@1.jpg;a \"b\" c@2.jpg;"},
        {"1.jpg,\"a\"b\n\"2.jpg\",\"c\" \n", "ab@1.jpg;c@2.jpg;"},
        {"0.jpg,z\n1.jpg,\"a\n2.jpg,b\n", "z@0.jpg;@row-bad;b@2.jpg;"},
        {"0.jpg,z\n1.jpg,\"a\n2.jpg,b\"\n", "z@0.jpg;@row-bad;b\"@2.jpg;"},
        {"0.jpg,z\n1.jpg,\"a\n2.jpg,\"b, c\"\n", "z@0.jpg;@row-bad;b, c@2.jpg;"},
        {"0.jpg,z\n1.jpg,\"a\nb, c\" \n2.jpg,d\n", "z@0.jpg;a\nb, c@1.jpg;d@2.jpg;"},
        {"1.jpg,a\nb\n2.jpg,c,d\n3.jpg,e\n", "a@1.jpg;@row-bad;@row-bad;e@3.jpg;"},
        {"1.jpg;a, b\n2.jpg;c\n", "a, b@1.jpg;c@2.jpg;"},
        {"image_name| comment_number| comment\n1.jpg| 0| A dog .\n1.jpg| 1| It runs .\n",
         "A dog .|It runs .@1.jpg;"},
        {"\xEF\xBB\xBF\"caption\",\"path\"\n\"a\",\"d/1\"\n", "a@1;"},
    };
    struct source_options how = {.kind = SOURCE_CSV};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(read_all(cases[i].text, &how), cases[i].rows);
    }
}

/* The 40 captions of a table, whose images are named 0 to 39. */
static void check_rows(const char *path, const struct source_options *how, char want[40][24]) {
    struct source_reading r;
    source_reading_open(&r, path, how);
    for (int row = 0; row < 40; row++) {
        assert_string_equal(source_reading_next(&r), want[row]);
        assert_int_equal(r.row.reason, REASON_NONE);
        assert_int_equal(atoi(path_base_name(r.row.path)), row);
    }
    assert_null(source_reading_next(&r));
    source_reading_close(&r);
}

/* Comma-separated as it should be, whatever the cells hold: the same cells come out. */
TEST(csv_of_any_cells_is_read_back) {
    static const char bytes[] = "ab \",;\t\r\n|'";
    struct source_options how = {.kind = SOURCE_CSV, .caption_column = "2", .image_column = "1"};
    const char *path = test_temp_path("t.csv");
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_CAPTION, 0, 0);
    for (int round = 0; round < 200; round++) {
        char want[40][24];
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        for (int row = 0; row < 40; row++) {
            size_t n = 1 + rng_below(&rng, 16);
            want[row][0] = 'x'; /* no white space at the ends */
            for (size_t i = 1; i < n; i++) {
                want[row][i] = bytes[rng_below(&rng, sizeof(bytes) - 1)];
            }
            want[row][n] = 'x';
            want[row][n + 1] = '\0';
            fprintf(f, "%d,\"", row);
            for (const char *p = want[row]; *p; p++) {
                fputs(*p == '"' ? "\"\"" : (char[]){*p, '\0'}, f);
            }
            fprintf(f, "\",%s%s", rng_below(&rng, 2) ? "\"\"" : "z",
                    rng_below(&rng, 2) ? "\r\n" : "\n");
        }
        assert_int_equal(fclose(f), 0);
        check_rows(path, &how, want);
    }
}

/* The same for TSVs as pandas writes them: only cells that need it are quoted. */
TEST(tsv_of_any_cells_is_read_back) {
    static const char bytes[] = "abc \",\t\r\n|'";
    const char *path = test_temp_path("t.tsv");
    struct rng rng;
    rng_init(&rng, test_seed(), RNG_CAPTION, 1, 0);
    for (int round = 0; round < 200; round++) {
        char want[40][24];
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        for (int row = 0; row < 40; row++) {
            size_t n = 1 + rng_below(&rng, 16);
            for (size_t i = 0; i < n; i++) {
                want[row][i] = bytes[rng_below(&rng, sizeof(bytes) - 1)];
            }
            want[row][0] = rng_below(&rng, 2) ? '"' : 'x'; /* no white space at the ends */
            want[row][n] = rng_below(&rng, 2) ? '"' : 'x';
            want[row][n + 1] = '\0';
            bool quoted = strpbrk(want[row], "\"\t\r\n") != NULL;
            if (round % 2) {
                fprintf(f, "%d.jpg\t", row);
            }
            fputs(quoted ? "\"" : "", f);
            for (const char *p = want[row]; *p; p++) {
                fputs(*p == '"' ? "\"\"" : (char[]){*p, '\0'}, f);
            }
            fputs(quoted ? "\"" : "", f);
            if (round % 2 == 0) {
                fprintf(f, "\t%d.jpg", row);
            }
            fputc('\n', f);
        }
        assert_int_equal(fclose(f), 0);
        struct source_options how = {.kind = SOURCE_TSV};
        check_rows(path, &how, want);
    }
}

/* A quote that is never closed costs its own line, however many lines follow. */
TEST(csv_quotes_never_closed_cost_one_line) {
    const char *path = test_temp_path("t.csv");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs("1.jpg,a\n2.jpg,\"b\n", f);
    uint64_t lines = SOURCE_MAX_LINE_BYTES / 8 + 1000;
    for (uint64_t i = 0; i < lines; i++) {
        fputs("3.jpg,c\n", f);
    }
    assert_int_equal(fclose(f), 0);
    struct source_reading r;
    struct source_options how = {.kind = SOURCE_CSV, .grouping = SOURCE_GROUP_NEVER};
    source_reading_open(&r, path, &how);
    assert_string_equal(source_reading_next(&r), "a");
    assert_non_null(source_reading_next(&r));
    assert_int_equal(r.row.reason, REASON_ROW_BAD);
    assert_non_null(strstr(r.row.detail, "line 2:"));
    uint64_t good = 0;
    while (source_reading_next(&r)) {
        assert_string_equal(path_base_name(r.row.path), "3.jpg");
        good++;
    }
    assert_int_equal(good, lines);
    source_reading_close(&r);
}

/* Every line closes a cell and opens another one. A search from each line to the limit would read
 * the file 65,536 times, which takes minutes. */
TEST(searches_for_quotes_take_linear_time) {
    const char *path = test_temp_path("t.csv");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (uint64_t i = 0; i < 400000; i++) {
        fputs("x\",\"y\n", f);
    }
    assert_int_equal(fclose(f), 0);
    struct source_options how = {.kind = SOURCE_CSV, .delimiter = ",", .columns = "path,caption"};
    struct source *s = NULL;
    struct error err = {0};
    uint64_t rows = 0;
    assert_ok(source_open(&s, path, &how, &err), err);
    assert_status(source_skip(s, UINT64_MAX, &rows, &err), STATUS_END, err);
    assert_true(rows > 1000);
    source_close(s);
}

/* As Python's csv module and pandas write and read them. */
TEST(tsv_cells_may_be_quoted) {
    static const struct {
        const char *text, *rows;
    } cases[] = {
        {"image\tcaption\n1.jpg\t\"a \"\"big\"\" dog\"\n2.jpg\tb\n",
         "a \"big\" dog@1.jpg;b@2.jpg;"},
        {"image\tcaption\r\n1.jpg\t\"a\tdog\"\r\n2.jpg\t\"two\nlines\"\r\n3.jpg\tc\r\n",
         "a\tdog@1.jpg;two\nlines@2.jpg;c@3.jpg;"},
        {"1.jpg\t\"line one\nline two\twith a tab\"\n2.jpg\tb\n",
         "line one\nline two\twith a tab@1.jpg;b@2.jpg;"},
        {"\"a\n\n\"\"b\"\"\"\t1.jpg\nc\t2.jpg\n", "a\n\n\"b\"@1.jpg;c@2.jpg;"},
        {"1.jpg\t\"a \"\"x\"\"\"\n2.jpg\t\"b\n3.jpg\tc\n4.jpg\t\"d\te\"\n",
         "a \"x\"@1.jpg;@row-bad;c@3.jpg;d\te@4.jpg;"},
        /* Not quoted: captions with stray quotes, as in CC3M. */
        {"\"hello\" is on the wall\t1.jpg\na 6\" pipe\t2.jpg\n",
         "\"hello\" is on the wall@1.jpg;a 6\" pipe@2.jpg;"},
        {"\"he said\t1.jpg\nb\t2.jpg\nthe end\"\t3.jpg\n",
         "\"he said@1.jpg;b@2.jpg;the end\"@3.jpg;"},
        {"1.jpg\t\"he said\n2.jpg\tb\n", "\"he said@1.jpg;b@2.jpg;"},
        {"1.jpg\ta \"b\" c\n2.jpg\t\"d\"\n3.jpg\te \"f\"\n",
         "a \"b\" c@1.jpg;\"d\"@2.jpg;e \"f\"@3.jpg;"},
    };
    struct source_options how = {.kind = SOURCE_TSV};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(read_all(cases[i].text, &how), cases[i].rows);
    }
    how = (struct source_options){.kind = SOURCE_CSV, .delimiter = "tab"};
    assert_string_equal(read_all(cases[0].text, &how), cases[0].rows);
}

/* With a header, further cells may be missing, but none may be lost. */
TEST(rows_wider_than_the_header_are_rejected) {
    struct source_reading r;
    source_reading_open_text(
        &r, "a.csv", "image,caption,by\n1.jpg,A man, a dog and a tree,me\n2.jpg,\"A, b\"\n", NULL);
    source_reading_next(&r);
    assert_int_equal(r.row.reason, REASON_ROW_BAD);
    assert_string_equal(r.row.detail, "line 2 has 4 columns instead of 3");
    assert_string_equal(source_reading_next(&r), "A, b");
    assert_null(source_reading_next(&r));
    source_reading_close(&r);
    char wide[1024] = "image,caption\n1.jpg,a";
    memset(wide + strlen(wide), ',', 200);
    struct source_options how = {0};
    assert_string_equal(read_all(wide, &how), "@row-bad;");
    memset(wide, ',', sizeof(wide) - 1);
    expect_refused(wide, &(struct source_options){.kind = SOURCE_CSV}, STATUS_LIMIT, "64 columns");
}

TEST(options_name_the_delimiter) {
    static const struct {
        const char *delimiter, *text;
    } cases[] = {{"tab", "a, b\t1.jpg\nc\t2.jpg\n"}, {"\\t", "a, b\t1.jpg\nc\t2.jpg\n"},
                 {"\t", "a, b\t1.jpg\nc\t2.jpg\n"},  {";", "\"a, b\";1.jpg\nc;2.jpg\n"},
                 {"|", "a, b|1.jpg\nc|2.jpg\n"},     {":", "a, b:1.jpg\nc:2.jpg\n"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct source_options how = {.delimiter = cases[i].delimiter};
        assert_string_equal(read_all(cases[i].text, &how), "a, b@1.jpg;c@2.jpg;");
    }
    static const char *const bad[] = {"", ";;", "\"", "\n", "\xC2\xA7", "TAB"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct source_options how = {.delimiter = bad[i]};
        struct source *s = NULL;
        struct error err = {0};
        const char *path = test_temp_path("t.txt");
        test_write_file(path, "a;1.jpg\n", 8);
        assert_status(source_open(&s, path, &how, &err), STATUS_USAGE, err);
        assert_non_null(strstr(err.text, "--delimiter"));
    }
}

TEST(options_name_the_columns) {
    static const char header[] = "when,words,where,what\n1,a dog,d/1,x\n2,a cat,d/2,y\n";
    static const char bare[] = "1\ta dog\tx\td/1\n2\ta cat\ty\td/2\n";
    struct source_options how = {.caption_column = "words", .image_column = "WHERE"};
    assert_string_equal(read_all(header, &how), "a dog@1;a cat@2;");
    how = (struct source_options){.caption_column = "2", .image_column = "3"};
    assert_string_equal(read_all("a,b,file\n1,a dog,d/1\n", &how), "a dog@1;");
    how = (struct source_options){.caption_column = "2", .image_column = "4"};
    assert_string_equal(read_all(bare, &how), "a dog@1;a cat@2;");
    how = (struct source_options){.columns = "_,caption,_,path"};
    assert_string_equal(read_all(bare, &how), "a dog@1;a cat@2;");
    how = (struct source_options){
        .columns = "n,said,x,shown", .caption_column = "said", .image_column = "shown"};
    assert_string_equal(read_all(bare, &how), "a dog@1;a cat@2;");
    how = (struct source_options){.columns = "caption,path"};
    assert_string_equal(read_all("caption\tpath\na\tb\n", &how), "caption@path;a@b;");
    how = (struct source_options){.caption_column = "2"};
    assert_string_equal(read_all("1\t2\n3\t4\n", &how), "2@1;4@3;");
    assert_string_equal(read_all("x,2,1.jpg\nx,4,3.jpg\n", &how), "2@1.jpg;4@3.jpg;");
}

TEST(caption_goes_before_other_usual_names) {
    static const char table[] = "image,text,Title,caption,path\na.jpg,ocr,t,a dog,b.jpg\n";
    struct source_options how = {.kind = SOURCE_CSV};
    struct source_reading r;
    source_reading_open_text(&r, "t.csv", table, &how);
    assert_string_equal(source_columns(r.source),
                        "captions are from 'caption', not from 'text', 'Title'; paths from "
                        "'image', not from 'path'; kept as metadata: 'text', 'Title', 'path'");
    assert_string_equal(source_reading_next(&r), "a dog");
    source_reading_close(&r);
    assert_string_equal(read_all("n,image_name,title,description\n1,a.jpg,t,d\n", &how),
                        "t@a.jpg;");
    how.caption_column = "4,text"; /* in this order */
    assert_string_equal(read_all(table, &how), "a dog|ocr@a.jpg;");
    source_reading_open_text(&r, "t.csv", "image,caption\na.jpg,a dog\n", NULL);
    assert_string_equal(source_columns(r.source), "");
    source_reading_close(&r);
    how.caption_column = "text,,caption";
    struct source *none = NULL;
    assert_status(source_open(&none, test_temp_path("t.csv"), &how, NULL), STATUS_USAGE, r.err);
}

/* The cells of other columns as texts, under names that differ. */
TEST(other_columns_become_metadata) {
    static const char table[] =
        "x,image,caption,x,,url\n007,a.jpg,a dog,\"p \"\"q\"\"\",\xC3\xA9,u\n1,b.jpg,c\n";
    static const char *const cases[][3] = {
        {NULL, "{\"x\":\"007\",\"x_\":\"p \\\"q\\\"\",\"column5\":\"\xC3\xA9\",\"url\":\"u\"}",
         "kept as metadata: 'x', 'x_', 'column5', 'url'"},
        {"url,1,image", "{\"x\":\"007\",\"image\":\"a.jpg\",\"url\":\"u\"}",
         "kept as metadata: 'x', 'url'; not kept: 'x_', 'column5'"},
        {"none", "", "not kept: 'x', 'x_', 'column5', 'url'"},
    };
    struct source_options how = {.kind = SOURCE_CSV};
    struct source_reading r;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        how.keep_columns = cases[i][0];
        source_reading_open_text(&r, "t.csv", table, &how);
        assert_string_equal(source_columns(r.source), cases[i][2]);
        assert_string_equal(source_reading_next(&r), "a dog");
        assert_int_equal(r.row.json.size_bytes, strlen(cases[i][1]));
        assert_memory_equal(r.row.json.data, cases[i][1], r.row.json.size_bytes);
        assert_string_equal(source_reading_next(&r), "c");
        assert_int_equal(r.row.json.size_bytes > 0, i < 2);
        source_reading_close(&r);
    }
    how.keep_columns = "nosuch";
    expect_refused(table, &how, STATUS_USAGE, "no column is named 'nosuch'");
    how = (struct source_options){.columns = "_,image,caption,n", .kind = SOURCE_CSV};
    source_reading_open_text(&r, "t.csv", "1,a.jpg,a dog,2\n", &how);
    source_reading_next(&r);
    assert_memory_equal(r.row.json.data, "{\"n\":\"2\"}", r.row.json.size_bytes);
    source_reading_close(&r);
}

/* One sample has one record's metadata: where others are lost, that is noted. */
TEST(other_metadata_of_joined_records_is_noted) {
    static const char same[] = "image,caption,by\n1.jpg,a,me\n1.jpg,b,me\n";
    static const char other[] = "image,caption,by\n1.jpg,a,me\n1.jpg,b,you\n";
    struct source_reading r;
    for (size_t i = 0; i < 4; i++) {
        struct source_options how = {.kind = SOURCE_CSV,
                                     .keep_columns = i == 2 ? "none" : NULL,
                                     .grouping = i == 3 ? SOURCE_GROUP_ALL : SOURCE_GROUP_ADJACENT};
        source_reading_open_text(&r, "t.csv", i == 0 ? same : other, &how);
        assert_string_equal(source_reading_next(&r), "a|b");
        assert_int_equal(r.row.json.size_bytes, i == 2 ? 0 : strlen("{\"by\":\"me\"}"));
        assert_null(source_reading_next(&r));
        assert_int_equal(strlen(source_note(r.source)) > 0, i % 2);
        source_reading_close(&r);
    }
}

/* Of records of one image, each with several captions. */
TEST(several_caption_columns_are_grouped) {
    static const enum source_grouping groupings[] = {SOURCE_GROUP_ADJACENT, SOURCE_GROUP_ALL};
    for (size_t i = 0; i < 2; i++) {
        struct source_options how = {
            .kind = SOURCE_CSV, .grouping = groupings[i], .caption_column = "a,b"};
        assert_string_equal(read_all("file,a,b\n1.jpg,p,q\n1.jpg,r,s\n2.jpg,,t\n", &how),
                            "p|q|r|s@1.jpg;t@2.jpg;");
    }
}

TEST(columns_that_are_not_there_are_refused) {
    static const char header[] = "when,words,where\n1,a dog,d/1\n";
    struct source_options how = {.caption_column = "word", .image_column = "where"};
    expect_refused(header, &how, STATUS_USAGE, "'word'; the columns are when, words, where");
    how = (struct source_options){.caption_column = "9", .image_column = "where"};
    expect_refused(header, &how, STATUS_USAGE, "no column 9: the table has 3");
    how = (struct source_options){.caption_column = "3", .image_column = "where"};
    expect_refused(header, &how, STATUS_USAGE, "column 3 cannot be both");
    how = (struct source_options){.image_column = "where"};
    expect_refused(header, &how, STATUS_CORRUPT, "with --caption-column");
    how = (struct source_options){.columns = "a,b,path"};
    expect_refused(header, &how, STATUS_USAGE, "contains no caption column");
    how = (struct source_options){0};
    expect_refused("a,b,c\nd,e,f\n", &how, STATUS_CORRUPT, "separated by a comma");
    expect_refused("a\tb\nd\te\n", &how, STATUS_CORRUPT, "separated by a TAB");
    expect_refused("a dog\thttp://x/1.jpg\n", &how, STATUS_CORRUPT, "ccpack fetch");
    expect_refused("caption,url\na,https://x/1.jpg\n", &how, STATUS_CORRUPT, "ccpack fetch");
    expect_refused("1.jpg,2.jpg\n", &how, STATUS_CORRUPT, "cannot tell");
}

/* Flickr8k.token.txt: the caption's number follows the file's name. */
TEST(numbers_after_paths_are_no_part_of_them) {
    struct source_options how = {0};
    assert_string_equal(read_all("1.jpg#0\tA dog .\n1.jpg#12\tIt runs .\n2#3\tb\n", &how),
                        "A dog .|It runs .@1.jpg;b@2#3;");
}

/* One record per caption, as in Flickr's tables. */
TEST(records_of_one_image_become_one_row) {
    static const char text[] = "image,caption\n"
                               "1.jpg,a\n1.jpg,b\n2.jpg,c\n1.jpg,d\n3.jpg,\n2.jpg,e\n"
                               "2.jpg,f,g\n2.jpg,h\n2.jpg,\xFF\n2.jpg,i\n";
    static const struct {
        enum source_grouping grouping;
        const char *rows;
    } cases[] = {
        {SOURCE_GROUP_NEVER,
         "a@1.jpg;b@1.jpg;c@2.jpg;d@1.jpg;@caption-empty;e@2.jpg;@row-bad;h@2.jpg;"
         "@caption-not-utf8;i@2.jpg;"},
        {SOURCE_GROUP_AUTO,
         "a|b@1.jpg;c@2.jpg;d@1.jpg;@caption-empty;e|h|i@2.jpg;@row-bad;@caption-not-utf8;"},
        {SOURCE_GROUP_ADJACENT,
         "a|b@1.jpg;c@2.jpg;d@1.jpg;@caption-empty;e|h|i@2.jpg;@row-bad;@caption-not-utf8;"},
        {SOURCE_GROUP_ALL, "a|b|d@1.jpg;c|e|h|i@2.jpg;@caption-empty;@row-bad;@caption-not-utf8;"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct source_options how = {.grouping = cases[i].grouping};
        assert_string_equal(read_all(text, &how), cases[i].rows);
        struct source *s = NULL;
        struct error err = {0};
        uint64_t skipped = 0;
        struct source_row row;
        source_row_init(&row);
        for (uint64_t at = 0; at < 3; at++) { /* the numbers of rows do not depend on skipping */
            assert_ok(source_open(&s, test_temp_path("t.txt"), &how, &err), err);
            assert_ok(source_skip(s, at, &skipped, &err), err);
            assert_ok(source_next(s, &row, &err), err);
            assert_int_equal(row.row, at);
            source_close(s);
        }
        source_row_fini(&row);
    }
    struct source_options how = {.kind = SOURCE_JSON, .grouping = SOURCE_GROUP_ALL};
    expect_refused("[]", &how, STATUS_USAGE, "--group-captions does not apply");
}

/* Captions beyond a row's limit are rows of their own, and none is lost. */
TEST(groups_are_bounded) {
    enum { RECORDS = 3 * SOURCE_MAX_CAPTIONS };
    static const enum source_grouping groupings[] = {SOURCE_GROUP_ADJACENT, SOURCE_GROUP_ALL};
    const char *path = test_temp_path("t.tsv");
    for (size_t k = 0; k < 2; k++) {
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        for (int i = 0; i < RECORDS; i++) {
            int image = groupings[k] == SOURCE_GROUP_ALL ? i % 2 : i < RECORDS / 2;
            fprintf(f, "%d.jpg\tcaption %d\n", image, i);
        }
        assert_int_equal(fclose(f), 0);
        struct source_reading r;
        struct source_options how = {.grouping = groupings[k]};
        source_reading_open(&r, path, &how);
        unsigned rejected = 0;
        unsigned captions = 0;
        while (source_reading_next(&r)) {
            rejected += r.row.reason == REASON_CAPTION_LIMIT;
            captions += r.row.reason == REASON_NONE ? r.row.caption_count : 0;
        }
        assert_int_equal(captions, 2 * SOURCE_MAX_CAPTIONS);
        assert_int_equal(rejected, RECORDS - 2 * SOURCE_MAX_CAPTIONS);
        source_reading_close(&r);
    }
}

/* More groups than the first table of hashes holds, whose records are far apart. */
TEST(groups_of_all_records_are_found) {
    enum { IMAGES = 5000 };
    const char *path = test_temp_path("t.tsv");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < 3 * IMAGES; i++) {
        fprintf(f, "%d.jpg\t%d\n", i % IMAGES, i);
    }
    assert_int_equal(fclose(f), 0);
    struct source_reading r;
    struct source_options how = {.grouping = SOURCE_GROUP_ALL};
    source_reading_open(&r, path, &how);
    for (int i = 0; i < IMAGES; i++) {
        char expected[64];
        snprintf(expected, sizeof(expected), "%d|%d|%d", i, i + IMAGES, i + 2 * IMAGES);
        assert_string_equal(source_reading_next(&r), expected);
        assert_int_equal(atoi(path_base_name(r.row.path)), i);
    }
    assert_null(source_reading_next(&r));
    source_reading_close(&r);
}

TEST(real_tables) {
    struct source_options how = {0};
    struct source *s = NULL;
    struct error err = {0};
    const char *cc3m = test_data_path("formats/cc3m_validation_first5000.tsv");
    assert_status(source_open(&s, cc3m, &how, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "ccpack fetch"));
    struct source_reading r;
    how.urls = true;
    source_reading_open(&r, cc3m, &how);
    assert_string_equal(source_reading_next(&r), "author : a life in photography -- in pictures");
    assert_int_equal(strncmp(r.row.path, "https://i.pinimg.com/", 21), 0);
    source_reading_close(&r);
    how.urls = false;
    const char *tsv = test_data_path("raw/captions.tsv");
    uint64_t rows = 0;
    assert_ok(source_open(&s, tsv, &how, &err), err);
    assert_status(source_skip(s, UINT64_MAX, &rows, &err), STATUS_END, err);
    assert_int_equal(rows, 190);
    source_close(s);
    const char *flickr = test_data_path("formats/flickr8k_token_fragment.txt");
    source_reading_open(&r, flickr, NULL);
    assert_non_null(source_reading_next(&r));
    assert_int_equal(r.row.reason, REASON_NONE);
    assert_int_equal(r.row.caption_count, 5);
    assert_non_null(strstr(r.row.path, ".jpg"));
    assert_int_equal(strcmp(r.row.path + strlen(r.row.path) - 4, ".jpg"), 0);
    source_reading_close(&r);
}

/* The rows of a list of URLs: "caption@url;...". */
static const char *read_urls(const char *text, const struct source_options *how) {
    static char all[4096];
    struct source_options urls = how ? *how : (struct source_options){0};
    struct source_row row;
    struct source *s = NULL;
    struct error err = {0};
    const char *path = test_temp_path("list.txt");
    size_t at = 0;
    all[0] = '\0';
    urls.urls = true;
    test_write_file(path, text, strlen(text));
    source_row_init(&row);
    assert_ok(source_open(&s, path, &urls, &err), err);
    while (source_next(s, &row, &err) == STATUS_OK) {
        at += (size_t)snprintf(all + at, sizeof(all) - at, "%.*s@%s%s;", (int)row.text.size_bytes,
                               row.text.size_bytes ? (const char *)row.text.data : "", row.path,
                               row.reason ? source_reason_name(row.reason) : "");
    }
    source_close(s);
    source_row_fini(&row);
    return all;
}

TEST(columns_of_url_lists) {
    const char *const rows = "a dog@http://a.b/1.jpg?x=1,2;a cat@HTTPS://c/d#0;";
    /* CC3M, CC12M, img2dataset, and names in any order */
    assert_string_equal(read_urls("a dog\thttp://a.b/1.jpg?x=1,2\na cat\tHTTPS://c/d#0\n", NULL),
                        rows);
    assert_string_equal(read_urls("http://a.b/1.jpg?x=1,2\ta dog\nHTTPS://c/d#0\ta cat\n", NULL),
                        rows);
    assert_string_equal(
        read_urls("URL,TEXT\n\"http://a.b/1.jpg?x=1,2\",a dog\nHTTPS://c/d#0,a cat\n", NULL), rows);
    assert_string_equal(read_urls("id\ttext\timage_url\n1\ta dog\thttp://a.b/1.jpg?x=1,2\n"
                                  "2\ta cat\tHTTPS://c/d#0\n",
                                  NULL),
                        rows);
    const struct source_options names = {.columns = "_,caption,url"};
    assert_string_equal(
        read_urls("1\ta dog\thttp://a.b/1.jpg?x=1,2\n2\ta cat\tHTTPS://c/d#0\n", &names), rows);
    /* no captions */
    assert_string_equal(read_urls("http://a/1\nhttp://a/2\n", NULL), "@http://a/1;@http://a/2;");
    assert_string_equal(read_urls("url\nhttp://a/1\n", NULL), "@http://a/1;");
}

TEST(urls_and_files_are_not_confused) {
    const struct source_options files = {.urls = false}, urls = {.urls = true};
    expect_refused("a dog\thttp://a.b/1.jpg\n", &files, STATUS_CORRUPT, "ccpack fetch");
    expect_refused("http://a.b/1.jpg\n", &files, STATUS_CORRUPT, "ccpack fetch");
    expect_refused("a dog\t1.jpg\n", &urls, STATUS_CORRUPT, "http://");
    expect_refused("url\twidth\talt\nhttp://a/1\t3\tx\n", &urls, STATUS_CORRUPT,
                   "--caption-column");
    expect_refused("[{\"image\": \"http://a/1\", \"caption\": \"x\"}]", &urls, STATUS_USAGE,
                   "not a list of URLs");
}
