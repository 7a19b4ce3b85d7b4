/*
 * The kind of a source is detected from its content; messages for files that are no source.
 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pack/source/source.h"
#include "tests/support/test.h"

TEST(kinds_are_detected_by_content) {
    static const struct {
        const char *data;
        size_t size_bytes;
        enum status status;
        enum source_kind kind;
        const char *message;
    } cases[] = {
        {"", 0, STATUS_CORRUPT, 0, "is empty"},
        {"\x1F\x8B....", 6, STATUS_OK, SOURCE_WDS, ""},
        {"\x28\xB5\x2F\xFD..", 6, STATUS_OK, SOURCE_WDS, ""},
        {"PK\3\4....", 8, STATUS_OK, SOURCE_WDS, ""},
        {"a\tb", 3, STATUS_OK, SOURCE_TSV, ""},
        {"a, b\tc\nd,e\tf", 12, STATUS_OK, SOURCE_TSV, ""},
        {"a,b\nc\td,e\nf,g", 13, STATUS_OK, SOURCE_CSV, ""},
        {"a;b\n", 4, STATUS_OK, SOURCE_CSV, ""},
        {"a| b\n", 5, STATUS_OK, SOURCE_CSV, ""},
        {"words\n", 6, STATUS_OK, SOURCE_TSV, ""},
        {"a\0b", 3, STATUS_CORRUPT, 0, "a NUL at byte 1"},
        {"\1\0b", 3, STATUS_CORRUPT, 0, "neither a tar or zip"},
        {"PAR1\0\0", 6, STATUS_OK, SOURCE_PARQUET, ""},
        {"\xFF\xD8\xFF\xE0", 4, STATUS_CORRUPT, 0, "a single image"},
        {"\x89PNG\r\n\x1a\n", 8, STATUS_CORRUPT, 0, "a single image"},
    };
    enum source_kind kind;
    struct error err = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *path = test_temp_path("file");
        test_write_file(path, cases[i].data, cases[i].size_bytes);
        err = (struct error){0};
        assert_status(source_kind_of(&kind, path, &err), cases[i].status, err);
        assert_non_null(strstr(err.text, cases[i].message));
        assert_true(cases[i].status != STATUS_OK || kind == cases[i].kind);
    }
    assert_status(source_kind_of(&kind, test_temp_path("gone"), &err), STATUS_NOTFOUND, err);
    assert_int_equal(mkfifo(test_temp_path("pipe"), 0600), 0);
    assert_status(source_kind_of(&kind, test_temp_path("pipe"), &err), STATUS_CORRUPT, err);
    assert_ok(source_kind_of(&kind, "-", &err), err);
    assert_int_equal(kind, SOURCE_WDS);
}

TEST(kinds_of_json_are_detected_by_their_keys) {
    static const struct {
        const char *text;
        enum source_kind kind;
    } cases[] = {
        {" \n[{", SOURCE_JSON},
        {"\xEF\xBB\xBF {\"images\": [], \"annotations\": []}", SOURCE_COCO},
        {"{\"info\": {\"image\": \"x\"}, \"images\": [{\"id\": 1, \"file_name\": \"a\"",
         SOURCE_COCO},
        {"{\"annotations\": [{\"image\": 1}", SOURCE_COCO},
        {"{\"images\": [{\"sentids\": [1], \"split\": \"train\"", SOURCE_KARPATHY},
        {"{\"dataset\": \"x\", \"images\": [{\"filename\": \"a\"}]}", SOURCE_KARPATHY},
        {"{\"images\": [{\"file_name\": \"a\", \"split\": \"x\"}]}", SOURCE_COCO},
        {"{\"image\": \"a\", \"caption\": \"b\"}\n{\"image\"", SOURCE_JSON},
        {"{\"image\": \"a\", \"caption\": \"not \\\"images\\\": [{ ends", SOURCE_JSON},
        {"{\"file\": \"a\", \"text\": \"b\"}\n{", SOURCE_JSON},
        {"{\"data\": \"a\", \"words\": \"b\"}\n", SOURCE_COCO},
        {"{\"file_name\": \"a\", \"text\": \"b\"}\n", SOURCE_JSON},
        {"{\"info\": {\"sentences\": [{\"image", SOURCE_COCO},
        {"{", SOURCE_COCO},
        {"{\"a\\", SOURCE_COCO},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        enum source_kind kind;
        struct error err = {0};
        const char *path = test_temp_path("file");
        test_write_file(path, cases[i].text, strlen(cases[i].text));
        assert_ok(source_kind_of(&kind, path, &err), err);
        if (kind != cases[i].kind) {
            fail_msg("%s is taken for %s", cases[i].text, source_kind_names[kind]);
        }
    }
}

TEST(folders_are_detected_by_their_content) {
    enum source_kind kind;
    struct error err = {0};
    const char *path = test_temp_path("folder");
    assert_int_equal(mkdir(path, 0700), 0);
    assert_ok(source_kind_of(&kind, path, &err), err);
    assert_int_equal(kind, SOURCE_FOLDERS);
    test_write_file(test_temp_path("folder/train.bin"), "", 0);
    assert_ok(source_kind_of(&kind, path, &err), err);
    assert_int_equal(kind, SOURCE_CIFAR);
    assert_int_equal(unlink(test_temp_path("folder/train.bin")), 0);
    assert_int_equal(mkdir(test_temp_path("folder/a"), 0700), 0);
    assert_int_equal(mkdir(test_temp_path("folder/b"), 0700), 0);
    test_write_file(test_temp_path("folder/a/notes.txt"), "", 0);
    test_write_file(test_temp_path("folder/b/1.jpg"), "", 0);
    test_write_file(test_temp_path("folder/b/2.jpg"), "", 0);
    test_write_file(test_temp_path("folder/b/3.jpg"), "", 0);
    test_write_file(test_temp_path("folder/b/1.txt"), "", 0);
    assert_ok(source_kind_of(&kind, path, &err), err);
    assert_int_equal(kind, SOURCE_FOLDERS);
    test_write_file(test_temp_path("folder/b/2.txt"), "", 0);
    assert_ok(source_kind_of(&kind, path, &err), err);
    assert_int_equal(kind, SOURCE_PAIRS);
    test_write_file(test_temp_path("folder/metadata.csv"), "", 0);
    assert_ok(source_kind_of(&kind, path, &err), err);
    assert_int_equal(kind, SOURCE_IMAGEFOLDER);
}

TEST(real_files) {
    static const struct {
        const char *name;
        enum status status;
        enum source_kind kind;
    } files[] = {
        {"formats/cc3m_validation_first5000.tsv", STATUS_OK, SOURCE_TSV},
        {"formats/clip_retrieval_image1.tar", STATUS_OK, SOURCE_WDS},
        {"formats/coco_captions_results.json", STATUS_OK, SOURCE_JSON},
        {"formats/coco_mini_captions_val2017.json", STATUS_OK, SOURCE_COCO},
        {"formats/flickr8k_token_fragment.txt", STATUS_OK, SOURCE_TSV},
        {"formats/img2dataset_test_1000.parquet", STATUS_OK, SOURCE_PARQUET},
        {"formats/webdataset_sample.tgz", STATUS_OK, SOURCE_WDS},
        {"retrieval/captions.json", STATUS_OK, SOURCE_COCO},
        {"retrieval/dataset_karpathy.json", STATUS_OK, SOURCE_KARPATHY},
        {"pairs/000000.tar", STATUS_OK, SOURCE_WDS},
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        enum source_kind kind;
        struct error err = {0};
        const char *path = test_data_path(files[i].name);
        assert_status(source_kind_of(&kind, path, &err), files[i].status, err);
        assert_true(files[i].status != STATUS_OK || kind == files[i].kind);
    }
}
