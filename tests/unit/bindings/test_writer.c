/* Datasets written through libccstream and read back through it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bindings/c/ccstream.h"
#include "formats/base/bytes.h"
#include "tests/support/pack_case.h"
#include "tests/support/test.h"

static const char metadata[] = "{\"url\": \"http://x\"}";

static struct ccs_writer *open_writer(const char *directory, bool append) {
    struct ccs_writer_options opt;
    struct ccs_writer *w = NULL;
    struct ccs_error err;
    ccs_writer_options_init(&opt, sizeof(opt));
    opt.shard_samples = 3;
    opt.append = append;
    if (ccs_writer_open(&w, directory, &opt, &err) != CCS_OK) {
        fail_msg("%s", err.text);
    }
    return w;
}

/* Sample `number`: its image, two captions, metadata, and itself as label. */
static int32_t add(struct ccs_writer *w, int number, uint64_t *id, struct ccs_error *err) {
    struct byte_buffer jpeg = {0};
    struct ccs_new_sample s;
    char text[32];
    int n = snprintf(text, sizeof(text), "caption %d", number);
    const struct ccs_text captions[] = {{text, (size_t)n}, {"  another ", 10}};
    pack_case_jpeg(&jpeg, number, 16, 16);
    ccs_new_sample_init(&s, sizeof(s));
    s.image = jpeg.data;
    s.image_size = jpeg.size_bytes;
    s.captions = captions;
    s.caption_count = 2;
    s.label = number;
    s.metadata = (struct ccs_text){metadata, strlen(metadata)};
    int32_t status = ccs_writer_add(w, &s, id, err);
    byte_buffer_fini(&jpeg);
    return status;
}

static void add_some(struct ccs_writer *w, int first, int count) {
    for (int i = first; i < first + count; i++) {
        uint64_t id = 99;
        assert_int_equal(add(w, i, &id, NULL), CCS_OK);
        assert_int_equal(id, i);
    }
}

TEST(samples_are_read_as_they_were_added) {
    static const char *const classes[] = {"a", "b", "c", "d", "e"};
    const char *dir = test_temp_path("d");
    struct ccs_writer *w = open_writer(dir, false);
    add_some(w, 0, 3);
    assert_int_equal(ccs_writer_set_classes(w, classes, 3, NULL), CCS_OK);
    assert_int_equal(ccs_writer_finish(w, NULL, NULL), CCS_OK);
    ccs_writer_close(w);
    w = open_writer(dir, true);
    assert_int_equal(ccs_writer_set_classes(w, classes, 5, NULL), CCS_OK);
    add_some(w, 3, 2);
    struct ccs_dataset_info made = {.struct_size = sizeof(made)};
    assert_int_equal(ccs_writer_finish(w, &made, NULL), CCS_OK);
    assert_int_equal(add(w, 5, NULL, NULL), CCS_ERROR_INVALID);
    ccs_writer_close(w);

    struct ccs_dataset *d = NULL;
    struct ccs_reader *r = NULL;
    struct ccs_dataset_info info = {.struct_size = sizeof(info)};
    assert_int_equal(ccs_dataset_open(&d, dir, NULL), CCS_OK);
    assert_int_equal(ccs_dataset_get_info(d, &info, NULL), CCS_OK);
    assert_memory_equal(&info, &made, sizeof(info));
    assert_int_equal(info.samples, 5);
    assert_int_equal(info.captions, 10);
    assert_string_equal(ccs_dataset_class(d, 4), "e");
    assert_int_equal(ccs_reader_open(&r, d, NULL), CCS_OK);
    for (int i = 0; i < 5; i++) {
        const struct ccs_sample *s = NULL;
        struct byte_buffer jpeg = {0};
        char key[8];
        snprintf(key, sizeof(key), "%d", i);
        pack_case_jpeg(&jpeg, i, 16, 16);
        assert_int_equal(ccs_reader_get(r, (uint64_t)i, &s, NULL), CCS_OK);
        assert_int_equal(s->record->id, i);
        assert_int_equal(s->record->label, i);
        assert_string_equal(s->key, key);
        assert_int_equal(s->record->image_bytes, jpeg.size_bytes);
        assert_memory_equal(s->image, jpeg.data, jpeg.size_bytes);
        assert_int_equal(s->record->captions, 2);
        assert_memory_equal(s->captions[0].data, "caption ", 8);
        assert_int_equal(s->captions[1].size, 7);
        assert_memory_equal(s->captions[1].data, "another", 7);
        assert_int_equal(s->metadata.size, strlen(metadata));
        assert_memory_equal(s->metadata.data, metadata, strlen(metadata));
        byte_buffer_fini(&jpeg);
    }
    ccs_reader_close(r);
    ccs_dataset_close(d);
}

TEST(wrong_options_and_samples_are_refused) {
    struct ccs_writer_options opt;
    struct ccs_writer *w = NULL;
    struct ccs_error err;
    const char *dir = test_temp_path("d");
    ccs_writer_options_init(&opt, sizeof(opt));
    opt.container = "zip";
    assert_int_equal(ccs_writer_open(&w, dir, &opt, &err), CCS_ERROR_USAGE);
    assert_non_null(strstr(err.text, "container zip"));
    ccs_writer_options_init(&opt, sizeof(opt));
    opt.level = 20;
    assert_int_equal(ccs_writer_open(&w, dir, &opt, &err), CCS_ERROR_USAGE);
    ccs_writer_options_init(&opt, sizeof(opt));
    opt.shard_samples = 0;
    assert_int_equal(ccs_writer_open(&w, dir, &opt, &err), CCS_ERROR_USAGE);
    ccs_writer_options_init(&opt, sizeof(opt));
    opt.overwrite = opt.append = true;
    assert_int_equal(ccs_writer_open(&w, dir, &opt, &err), CCS_ERROR_USAGE);
    assert_int_equal(ccs_writer_open(&w, NULL, NULL, &err), CCS_ERROR_INVALID);
    assert_int_equal(access(dir, F_OK), -1); /* none of them made it */
    assert_null(w);

    w = open_writer(dir, false);
    struct ccs_new_sample s;
    ccs_new_sample_init(&s, sizeof(s));
    assert_int_equal(ccs_writer_add(w, &s, NULL, &err), CCS_ERROR_INVALID);
    assert_non_null(strstr(err.text, "no image"));
    s.caption_count = 257;
    s.captions = (const struct ccs_text[]){{"", 0}};
    assert_int_equal(ccs_writer_add(w, &s, NULL, &err), CCS_ERROR_LIMIT);
    s.captions = NULL;
    assert_int_equal(ccs_writer_add(w, &s, NULL, &err), CCS_ERROR_INVALID);
    s.struct_size = 0;
    assert_int_equal(ccs_writer_add(w, &s, NULL, &err), CCS_ERROR_INVALID);
    assert_int_equal(ccs_writer_add(NULL, &s, NULL, &err), CCS_ERROR_INVALID);
    assert_int_equal(ccs_writer_finish(w, NULL, &err), CCS_ERROR_INVALID);
    add_some(w, 0, 1);
    assert_int_equal(ccs_writer_finish(w, NULL, &err), CCS_OK);
    ccs_writer_close(w);
    ccs_writer_close(NULL);
    assert_int_equal(ccs_writer_open(&w, dir, NULL, &err), CCS_ERROR_EXISTS);
    assert_null(w);
}

TEST(a_child_leaves_the_writer_to_its_parent) {
    struct ccs_writer *w = open_writer(test_temp_path("d"), false);
    add_some(w, 0, 4);
    pid_t child = fork();
    if (child == 0) {
        bool good = add(w, 4, NULL, NULL) == CCS_ERROR_FORKED &&
                    ccs_writer_finish(w, NULL, NULL) == CCS_ERROR_FORKED;
        ccs_writer_close(w);
        _exit(good ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    add_some(w, 4, 2);
    assert_int_equal(ccs_writer_finish(w, NULL, NULL), CCS_OK);
    ccs_writer_close(w);
}
