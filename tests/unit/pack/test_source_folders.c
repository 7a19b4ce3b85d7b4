/*
 * Class folders, on disk and in a tar.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pack/source/source.h"
#include "tests/support/source_rows.h"
#include "tests/support/tar_write.h"
#include "tests/support/test.h"

static const char jpeg_head[] = "\xFF\xD8\xFF\xE0 looks like one";

/* Folders of test_temp_dir() on the way to a file. */
static void make_folders(const char *path) {
    char folder[256];
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
        mkdir(test_temp_path("%s", folder), 0700);
    }
}

static void make_file(const char *path, const char *data) {
    make_folders(path);
    test_write_file(test_temp_path("%s", path), data, strlen(data));
}

static void expect_row(struct source_reading *r, const char *key, const char *class_name) {
    char json[128];
    assert_non_null(source_reading_next(r));
    assert_string_equal(r->row.key, key);
    assert_string_equal(source_class_name(r->source, (size_t)r->row.class_index), class_name);
    snprintf(json, sizeof(json), "{\"class\":\"%s\"}", class_name);
    assert_int_equal(r->row.json.size_bytes, strlen(json));
    assert_memory_equal(r->row.json.data, json, strlen(json));
    assert_int_equal(r->row.caption_count, 0);
}

TEST(rows_are_images_in_the_order_of_their_names) {
    struct source_reading r;
    make_file("set/dog/2.jpg", jpeg_head);
    make_file("set/dog/10.JPEG", jpeg_head);
    make_file("set/dog/1/z.png", "no image, but called one");
    make_file("set/dog/1/deep/a.gif", "");
    make_file("set/dog/notes.txt", "text");
    make_file("set/dog/noext", jpeg_head);
    make_file("set/dog/.hidden.jpg", jpeg_head);
    make_file("set/Cat/x.y.jpg", jpeg_head);
    make_file("set/empty/x.txt", "text");
    make_file("set/.git/x.jpg", jpeg_head);
    make_file("set/top.jpg", jpeg_head);
    source_reading_open(&r, test_temp_path("set"), NULL);
    assert_int_equal(source_class_count(r.source), 2); /* without the one that has no image */
    assert_string_equal(source_class_name(r.source, 1), "dog");
    assert_null(source_class_name(r.source, 2));
    expect_row(&r, "Cat/x.y", "Cat");
    assert_string_equal(r.row.path, test_temp_path("set/Cat/x.y.jpg"));
    assert_ok(source_row_load(&r.row, &r.err), r.err);
    assert_int_equal(r.row.image.size_bytes, strlen(jpeg_head));
    assert_int_equal(r.row.reason, REASON_NONE);
    expect_row(&r, "dog/1/deep/a", "dog");
    assert_ok(source_row_load(&r.row, &r.err), r.err);
    assert_int_equal(r.row.reason, REASON_IMAGE_UNREADABLE); /* it is empty */
    expect_row(&r, "dog/1/z", "dog");
    expect_row(&r, "dog/10", "dog");
    assert_true(r.row.has_number && r.row.number == 10);
    expect_row(&r, "dog/2", "dog");
    expect_row(&r, "dog/noext", "dog");
    assert_null(source_reading_next(&r));
    assert_int_equal(ignored_files(r.source), 5);
    source_reading_close(&r);
}

static void expect_caption(struct source_reading *r, const char *key, const char *caption) {
    assert_non_null(source_reading_next(r));
    assert_string_equal(r->row.key, key);
    assert_int_equal(r->row.class_index, 0);
    assert_int_equal(r->row.reason, REASON_NONE);
    assert_int_equal(r->row.caption_count, caption != NULL);
    if (caption != NULL) {
        assert_int_equal(r->row.caption_size_bytes[0], strlen(caption));
        assert_memory_equal(r->row.text.data, caption, strlen(caption));
    }
}

TEST(images_of_classes_may_have_captions) {
    struct source_reading r;
    make_file("set/dog/1.jpg", jpeg_head);
    make_file("set/dog/1.txt", " a dog\n");
    make_file("set/dog/2.jpg", jpeg_head);
    make_file("set/dog/2.json", "{}");
    make_file("set/dog/3.TXT", "another");
    make_file("set/dog/3.png", jpeg_head);
    make_file("set/dog/4.txt", "of no image");
    make_file("set/dog/5.jpg", jpeg_head);
    make_file("set/dog/5.txt", "\xFF");
    make_file("set/dog/more/1.jpg", jpeg_head);
    struct source_options opt = {.kind = SOURCE_FOLDERS};
    source_reading_open(&r, test_temp_path("set"), &opt);
    expect_caption(&r, "dog/1", "a dog");
    expect_caption(&r, "dog/2", NULL);
    expect_caption(&r, "dog/3", "another");
    assert_non_null(source_reading_next(&r));
    assert_int_equal(r.row.reason, REASON_CAPTION_NOT_UTF8);
    expect_caption(&r, "dog/more/1", NULL);
    assert_null(source_reading_next(&r));
    assert_int_equal(ignored_files(r.source), 2); /* 2.json and 4.txt */
    source_reading_close(&r);
}

TEST(links_are_followed_without_loops) {
    struct source_reading r;
    make_file("set/a/1.jpg", jpeg_head);
    make_file("elsewhere/2.jpg", jpeg_head);
    assert_int_equal(symlink(test_temp_path("elsewhere/2.jpg"), test_temp_path("set/a/2.jpg")), 0);
    assert_int_equal(symlink("gone", test_temp_path("set/a/3.jpg")), 0);
    assert_int_equal(symlink("gone", test_temp_path("set/a/4.txt")), 0);
    assert_int_equal(symlink("..", test_temp_path("set/a/up")), 0);
    assert_int_equal(symlink(test_temp_path("elsewhere"), test_temp_path("set/b")), 0);
    assert_int_equal(mkfifo(test_temp_path("set/a/pipe.jpg"), 0600), 0);
    source_reading_open(&r, test_temp_path("set/"), NULL);
    expect_row(&r, "a/1", "a");
    expect_row(&r, "a/2", "a");
    expect_row(&r, "a/3", "a");
    assert_ok(source_row_load(&r.row, &r.err), r.err);
    assert_int_equal(r.row.reason, REASON_IMAGE_UNREADABLE);
    expect_row(&r, "b/2", "b");
    assert_null(source_reading_next(&r));
    assert_int_equal(ignored_files(r.source), 3); /* the pipe, up, 4.txt */
    source_reading_close(&r);
}

static void expect_refused(const char *path, enum status status, const char *message) {
    struct source_options how = {.kind = SOURCE_FOLDERS};
    struct source *s = NULL;
    struct error err = {0};
    assert_status(source_open(&s, path, &how, &err), status, err);
    if (!strstr(err.text, message)) {
        fail_msg("no '%s' in: %s", message, err.text);
    }
    assert_null(s);
}

TEST(folders_are_bounded) {
    char path[512] = "set/a/";
    for (int i = 0; i < SOURCE_MAX_FOLDER_DEPTH; i++) {
        strcat(path, "d/");
    }
    strcat(path, "1.jpg");
    make_file(path, jpeg_head);
    expect_refused(test_temp_path("set"), STATUS_LIMIT, "32 folders deep");
}

TEST(folders_without_classes_are_refused) {
    make_file("flat/1.jpg", jpeg_head);
    expect_refused(test_temp_path("flat"), STATUS_CORRUPT, "each class is a folder in it");
    make_file("odd/caf\xE9/1.jpg", jpeg_head);
    expect_refused(test_temp_path("odd"), STATUS_CORRUPT, "is not UTF-8");
    expect_refused(test_temp_path("gone"), STATUS_NOTFOUND, "gone");
    expect_refused("-", STATUS_USAGE, "read twice");
    const char *path = test_temp_path("flat.tar");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(tar_write_file(f, "1.jpg", jpeg_head, 5));
    assert_true(tar_write_end(f));
    assert_int_equal(fclose(f), 0);
    expect_refused(path, STATUS_CORRUPT, "folders are the classes");
}

static const char *make_tar(const char *const *names, size_t count) {
    const char *path = test_temp_path("set.tar");
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (size_t i = 0; i < count; i++) {
        assert_true(tar_write_file(f, names[i], jpeg_head, strlen(jpeg_head)));
    }
    assert_true(tar_write_end(f));
    assert_int_equal(fclose(f), 0);
    return path;
}

TEST(tars_of_class_folders) {
    static const char *const names[] = {"./set/dog/2.jpg", "set/dog/1.jpg", "set/cat/deep/3.png",
                                        "set/dog-1/4.jpg", "set/a.jpg",     "set/dog/.x.jpg",
                                        "set/cat/data",    "top.txt",       "set/dog/5.jpg"};
    struct source_reading r;
    struct source_options how = {.kind = SOURCE_FOLDERS};
    source_reading_open(&r, make_tar(names, 9), &how);
    assert_int_equal(source_class_count(r.source), 3);
    assert_string_equal(source_class_name(r.source, 1), "dog");
    expect_row(&r, "dog/2", "dog");
    assert_int_equal(r.row.image.size_bytes, strlen(jpeg_head));
    expect_row(&r, "dog/1", "dog");
    expect_row(&r, "cat/deep/3", "cat");
    expect_row(&r, "dog-1/4", "dog-1");
    expect_row(&r, "cat/data", "cat");
    expect_row(&r, "dog/5", "dog");
    assert_null(source_reading_next(&r));
    assert_int_equal(ignored_files(r.source), 3);
    source_reading_close(&r);

    static const char *const hidden[] = {"set/.git/1.jpg", "set/b/.x/2.jpg", "set/b/3.jpg",
                                         "set/a/4.jpg"};
    source_reading_open(&r, make_tar(hidden, 4), &how);
    assert_int_equal(source_class_count(r.source), 2);
    expect_row(&r, "b/3", "b");
    expect_row(&r, "a/4", "a");
    assert_null(source_reading_next(&r));
    assert_int_equal(ignored_files(r.source), 2);
    source_reading_close(&r);

    static const char *const below_hidden[] = {".cache/cat/2.jpg", ".cache/dog/1.jpg"};
    source_reading_open(&r, make_tar(below_hidden, 2), &how);
    expect_row(&r, "cat/2", "cat");
    expect_row(&r, "dog/1", "dog");
    source_reading_close(&r);

    static const char *const one_class[] = {"a/b/cat/2.jpg", "a/b/cat/1.jpg"};
    source_reading_open(&r, make_tar(one_class, 2), &how);
    expect_row(&r, "cat/2", "cat");
    expect_row(&r, "cat/1", "cat");
    assert_null(source_reading_next(&r));
    source_reading_close(&r);

    static const char *const plain[] = {"cat/2.jpg", "dog/1.jpg", "cat/1.jpg"};
    source_reading_open(&r, make_tar(plain, 3), &how);
    expect_row(&r, "cat/2", "cat");
    expect_row(&r, "dog/1", "dog");
    expect_row(&r, "cat/1", "cat");
    source_reading_close(&r);
}

TEST(real_class_folders) {
    struct source_options how = {.kind = SOURCE_FOLDERS};
    struct source_reading r;
    uint64_t counts[10] = {0};
    const char *path = test_data_path("zeroshot/cifar10.tar");
    source_reading_open(&r, path, &how);
    assert_int_equal(source_class_count(r.source), 10);
    assert_string_equal(source_class_name(r.source, 0), "airplane");
    while (source_reading_next(&r)) {
        assert_int_equal(r.row.reason, REASON_NONE);
        counts[r.row.class_index]++;
    }
    for (int i = 0; i < 10; i++) {
        assert_int_equal(counts[i], 200);
    }
    source_reading_close(&r);
    path = test_data_path("zeroshot/imagenet200.tar");
    source_reading_open(&r, path, &how);
    assert_int_equal(source_class_count(r.source), 200);
    source_reading_close(&r);
}

/* ---- loose pairs and imagefolders -------------------------------------------------------------
 */

static void expect_pair(struct source_reading *r,
                        const char *key,
                        enum source_reason reason,
                        const char *captions) {
    assert_string_equal(source_reading_next(r), captions);
    assert_string_equal(r->row.key, key);
    assert_int_equal(r->row.reason, reason);
    assert_int_equal(r->row.class_index, -1);
}

TEST(loose_pairs) {
    struct source_reading r;
    make_file("pairs/a/1.jpg", jpeg_head);
    make_file("pairs/a/1.txt", "\xEF\xBB\xBF a dog\n");
    make_file("pairs/a/1.json", "{\"x\": 1}");
    make_file("pairs/a/10.txt", "of ten");
    make_file("pairs/a/10.JPG", jpeg_head);
    make_file("pairs/a/1-2.png", jpeg_head);
    make_file("pairs/b.x.txt", "top");
    make_file("pairs/b.x.webp", jpeg_head);
    make_file("pairs/b.x.png", jpeg_head);
    make_file("pairs/c.jpg", jpeg_head);
    make_file("pairs/c.txt", " ");
    make_file("pairs/d.jpg", jpeg_head);
    make_file("pairs/d.txt", "\xFF");
    make_file("pairs/lost.txt", "no image");
    make_file("pairs/notes.md", "x");
    make_file("pairs/.hidden.jpg", jpeg_head);
    source_reading_open(&r, test_temp_path("pairs"), NULL);
    expect_pair(&r, "a/1-2", REASON_CAPTION_MISSING, "");
    expect_pair(&r, "a/1", REASON_NONE, "a dog");
    assert_string_equal(r.row.path, test_temp_path("pairs/a/1.jpg"));
    assert_int_equal(r.row.json.size_bytes, 8);
    expect_pair(&r, "a/10", REASON_NONE, "of ten");
    assert_int_equal(r.row.json.size_bytes, 0);
    expect_pair(&r, "b.x", REASON_NONE, "top");
    expect_pair(&r, "b.x", REASON_IMAGE_EXTRA, "");
    expect_pair(&r, "c", REASON_CAPTION_EMPTY, "");
    expect_pair(&r, "d", REASON_CAPTION_NOT_UTF8, "");
    expect_pair(&r, "lost", REASON_IMAGE_MISSING, "");
    assert_null(source_reading_next(&r));
    assert_int_equal(ignored_files(r.source), 2);
    source_reading_close(&r);
}

TEST(imagefolders) {
    static const struct {
        const char *name, *text;
    } tables[] = {
        {"metadata.jsonl", "{\"file_name\": \"d/1.jpg\", \"text\": \"a dog\"}\n"
                           "{\"file_name\": \"2.jpg\", \"text\": \"a cat\", \"by\": \"me\"}\n7\n"},
        {"metadata.csv", "file_name,text,by\nd/1.jpg,a dog,\n2.jpg,a cat,me\n7,8,9,10\n"},
        {"metadata.jsonl",
         "{\"file_name\": \"d/1.jpg\", \"caption\": \"a dog\"}\n"
         "{\"file_name\": \"2.jpg\", \"caption\": \"a cat\", \"by\": \"me\"}\n7\n"},
    };
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        struct source_reading r;
        char name[64];
        snprintf(name, sizeof(name), "set%zu/%s", i, tables[i].name);
        make_file(name, tables[i].text);
        snprintf(name, sizeof(name), "set%zu/d/1.txt", i);
        make_file(name, "another caption");
        snprintf(name, sizeof(name), "set%zu", i);
        source_reading_open(&r, test_temp_path("%s", name), NULL);
        expect_pair(&r, "1", REASON_NONE, "a dog");
        assert_string_equal(r.row.path, test_temp_path("set%zu/d/1.jpg", i));
        expect_pair(&r, "2", REASON_NONE, "a cat");
        assert_true(r.row.json.size_bytes > 0);
        source_reading_next(&r);
        assert_int_equal(r.row.reason, REASON_ROW_BAD);
        assert_int_equal(r.row.row, 2);
        assert_null(source_reading_next(&r));
        source_reading_close(&r);
    }
    struct source *s = NULL;
    struct error err = {0};
    struct source_options how = {.kind = SOURCE_IMAGEFOLDER};
    make_file("plain/1.jpg", jpeg_head);
    make_file("splits/train/metadata.csv", "file_name,text\n");
    how.kind = SOURCE_AUTO;
    assert_status(source_open(&s, test_temp_path("splits"), &how, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "splits/train"));
    how.kind = SOURCE_IMAGEFOLDER;
    assert_status(source_open(&s, test_temp_path("plain"), &how, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "metadata.jsonl"));
}
