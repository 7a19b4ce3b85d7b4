/* The writer of samples in memory, against runs of the packer on the same samples. */
#include "pack/writer/writer.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/dataset/dataset.h"
#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/pack_case.h"
#include "tests/support/test.h"

enum { ROWS = 10, SIDE_PX = 16 };

static struct pack_options options(const struct file_system *fs) {
    struct pack_options o;
    pack_options_default(&o);
    o.fs = fs;
    o.shard_samples = 4;
    o.created_by = "test";
    return o;
}

/* What row `number` of pack_case_tar is, but for its key and id. */
struct row {
    struct byte_buffer jpeg;
    char key[16], text[32];
    struct shard_text caption;
    struct pack_writer_sample sample;
};

static void make_row(struct row *r, int number, bool key) {
    memset(r, 0, sizeof(*r));
    pack_case_jpeg(&r->jpeg, number, SIDE_PX, SIDE_PX);
    snprintf(r->key, sizeof(r->key), "%06d", number);
    int n = snprintf(r->text, sizeof(r->text), "caption %d", number);
    r->caption = (struct shard_text){r->text, (size_t)n};
    r->sample = (struct pack_writer_sample){
        .id = PACK_WRITER_NEXT_ID,
        .key = key ? r->key : NULL,
        .image = r->jpeg.data,
        .image_bytes = r->jpeg.size_bytes,
        .captions = &r->caption,
        .caption_count = 1,
        .label = SHARD_NO_LABEL,
    };
}

static enum status add_row(struct pack_writer *w, int number, uint64_t *id, struct error *err) {
    struct row r;
    make_row(&r, number, true);
    enum status s = pack_writer_add(w, id, &r.sample, err);
    byte_buffer_fini(&r.jpeg);
    return s;
}

static void add_rows(struct pack_writer *w, int first, int count) {
    struct error err = {0};
    for (int i = first; i < first + count; i++) {
        uint64_t id = 0;
        assert_ok(add_row(w, i, &id, &err), err);
        assert_int_equal(id, i);
    }
}

static struct pack_writer *open_writer(const char *directory, const struct pack_options *o) {
    struct error err = {0};
    struct pack_writer *w = NULL;
    assert_ok(pack_writer_open(&w, directory, o, &err), err);
    return w;
}

static uint64_t finish(struct pack_writer *w) {
    struct error err = {0};
    assert_ok(pack_writer_finish(w, &err), err);
    uint64_t fingerprint = pack_writer_manifest(w)->fingerprint;
    pack_writer_close(w);
    return fingerprint;
}

/* A dataset of ccpack with rows `first` to `first + count - 1`, or more of them in one. */
static uint32_t min_side_px; /* of the packer; a writer has no filters, and leaves the dataset's */

static void pack_rows(const char *directory, int first, int count, bool append) {
    struct error err = {0};
    struct pack_summary sum;
    char name[32];
    snprintf(name, sizeof(name), "rows-%d.tar", first);
    const char *source =
        pack_case_tar(name, &(struct pack_case_tar){.rows = count, .first = first, .side_px = 16});
    struct pack_options o = pack_case_options(NULL, directory, &source, 1);
    o.append = append;
    o.filter.min_side_px = min_side_px;
    assert_ok(pack_run(&o, &sum, &err), err);
}

/* The shards of two datasets, which have `count` each. */
static void compare_shards(const char *a, const char *b, int count) {
    for (int i = 0; i < count; i++) {
        static const char *const endings[] = {"tar.zst", "cci"};
        for (int k = 0; k < 2; k++) {
            struct byte_buffer x, y;
            struct error err = {0};
            char path[PATH_MAX_BYTES];
            snprintf(path, sizeof(path), "%s/shard-%06d.%s", a, i, endings[k]);
            assert_ok(file_read_all(file_posix(), &x, path, 1 << 20, &err), err);
            snprintf(path, sizeof(path), "%s/shard-%06d.%s", b, i, endings[k]);
            assert_ok(file_read_all(file_posix(), &y, path, 1 << 20, &err), err);
            assert_int_equal(x.size_bytes, y.size_bytes);
            assert_memory_equal(x.data, y.data, x.size_bytes);
            byte_buffer_fini(&x);
            byte_buffer_fini(&y);
        }
    }
}

TEST(shards_are_those_of_the_packer) {
    char packed[256], written[256];
    snprintf(packed, sizeof(packed), "%s", test_temp_path("packed"));
    snprintf(written, sizeof(written), "%s", test_temp_path("written"));
    pack_rows(packed, 0, ROWS, false);
    struct pack_options o = options(file_posix());
    struct pack_writer *w = open_writer(written, &o);
    add_rows(w, 0, ROWS);
    uint64_t fingerprint = finish(w);
    assert_int_equal(fingerprint, pack_case_verify(file_posix(), packed));
    assert_int_equal(fingerprint, pack_case_verify(file_posix(), written));
    compare_shards(packed, written, 3);
    assert_false(pack_case_exists(file_posix(), written, PACK_JOURNAL_NAME));
}

TEST(writers_and_packer_append_to_each_other) {
    char a[256], b[256];
    snprintf(a, sizeof(a), "%s", test_temp_path("a"));
    snprintf(b, sizeof(b), "%s", test_temp_path("b"));
    struct pack_options o = options(file_posix());
    min_side_px = 4;
    pack_rows(a, 0, 5, false); /* packer, writer, packer */
    o.append = true;
    struct pack_writer *w = open_writer(a, &o);
    add_rows(w, 5, 3);
    finish(w);
    pack_rows(a, 8, 4, true);
    min_side_px = 0;
    o.append = false;
    w = open_writer(b, &o); /* writer, packer, writer */
    add_rows(w, 0, 5);
    finish(w);
    pack_rows(b, 5, 3, true);
    o.append = true;
    w = open_writer(b, &o);
    add_rows(w, 8, 4);
    uint64_t fingerprint = finish(w);
    assert_int_equal(fingerprint, pack_case_verify(file_posix(), a));
    assert_int_equal(fingerprint, pack_case_verify(file_posix(), b));
    compare_shards(a, b, 4);
    assert_int_equal(pack_writer_open(&w, test_temp_path("none"), &o, NULL), STATUS_NOTFOUND);
    assert_null(w);
}

static void refused(struct pack_writer *w,
                    const struct pack_writer_sample *sample,
                    enum status expected,
                    const char *text) {
    struct error err = {0};
    uint64_t id = 7;
    assert_int_equal(pack_writer_add(w, &id, sample, &err), expected);
    assert_int_equal(id, 0);
    if (!strstr(err.text, text)) {
        fail_msg("'%s' lacks '%s'", err.text, text);
    }
}

TEST(refused_samples_leave_the_writer_as_it_was) {
    static const char bad_text[] = "caf\xE9";
    static char long_text[SOURCE_MAX_TEXT_BYTES + 1];
    struct pack_options o = options(file_posix());
    struct pack_writer *w = open_writer(test_temp_path("d"), &o);
    struct row r;
    make_row(&r, 0, true);
    struct error err = {0};
    struct pack_writer_sample s = r.sample;
    s.image_bytes = 0;
    refused(w, &s, STATUS_INVALID, "no image");
    s.image_bytes = r.sample.image_bytes / 2;
    refused(w, &s, STATUS_CORRUPT, "image-damaged");
    s.image = "neither";
    s.image_bytes = 7;
    refused(w, &s, STATUS_UNSUPPORTED, "image-unsupported");
    s = r.sample;
    s.captions = &(struct shard_text){bad_text, strlen(bad_text)};
    refused(w, &s, STATUS_CORRUPT, "caption-not-utf8: at its byte 3");
    memset(long_text, 'x', sizeof(long_text));
    s.captions = &(struct shard_text){long_text, sizeof(long_text)};
    refused(w, &s, STATUS_LIMIT, "caption-limit");
    s = r.sample;
    s.json = (struct shard_text){"[1]", 3};
    refused(w, &s, STATUS_CORRUPT, "not a JSON object");
    s.json = (struct shard_text){" {\"a\":}", 7};
    refused(w, &s, STATUS_CORRUPT, "not valid JSON");
    s = r.sample;
    s.key = "a b";
    refused(w, &s, STATUS_INVALID, "key 'a b'");
    s = r.sample;
    s.label = -2;
    refused(w, &s, STATUS_INVALID, "label -2");
    s = r.sample;
    s.id = SHARD_MAX_ID + 1;
    refused(w, &s, STATUS_LIMIT, "id 9223372036854775807");
    assert_int_equal(pack_writer_finish(w, &err), STATUS_INVALID);
    assert_string_equal(err.text + strlen(err.text) - 19, "no sample was added");

    add_rows(w, 0, 1);
    s = r.sample;
    refused(w, &s, STATUS_EXISTS, "key '000000'");
    s.key = "other";
    s.id = 0;
    refused(w, &s, STATUS_EXISTS, "id 0");
    s.key = NULL;
    s.id = PACK_WRITER_NEXT_ID;
    refused(w, &s, STATUS_INVALID, "no key");
    add_rows(w, 1, ROWS - 1);
    char packed[256];
    snprintf(packed, sizeof(packed), "%s", test_temp_path("packed"));
    pack_rows(packed, 0, ROWS, false);
    assert_int_equal(finish(w), pack_case_verify(file_posix(), packed));
    byte_buffer_fini(&r.jpeg);
}

TEST(ids_may_come_in_any_order) {
    static const uint64_t ids[] = {100, 7, 101, 8, 3, PACK_WRITER_NEXT_ID, 1000, 102};
    static const uint64_t sorted[] = {3, 7, 8, 100, 101, 102, 1000};
    struct pack_options o = options(file_posix());
    struct pack_writer *w = open_writer(test_temp_path("d"), &o);
    struct error err = {0};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        struct row r;
        uint64_t id = 0;
        make_row(&r, (int)i, false);
        r.sample.id = ids[i];
        enum status s = pack_writer_add(w, &id, &r.sample, &err);
        byte_buffer_fini(&r.jpeg);
        assert_int_equal(s, i == 7 ? STATUS_EXISTS : STATUS_OK); /* 102 was the next one */
        if (s == STATUS_OK) {
            assert_int_equal(id, i == 5 ? 102 : ids[i]);
        }
    }
    finish(w);
    struct dataset *d = NULL;
    assert_ok(dataset_open(&d, test_temp_path("d"), NULL, &err), err);
    assert_int_equal(dataset_sample_count(d), 7);
    for (size_t i = 0; i < 7; i++) {
        struct dataset_sample s;
        assert_ok(dataset_sample_at(d, i, &s, &err), err);
        assert_int_equal(s.sample_id, sorted[i]);
    }
    dataset_close(d);
    o.append = true;
    w = open_writer(test_temp_path("d"), &o);
    struct row r;
    make_row(&r, 20, false);
    r.sample.id = 500;
    refused(w, &r.sample, STATUS_EXISTS, "at least 1001");
    byte_buffer_fini(&r.jpeg);
    pack_writer_close(w);
}

TEST(classes_name_labels) {
    static const char *const names[] = {"ant", "bee", "cat"};
    static const char *const others[] = {"ant", "cow", "cat"};
    struct pack_options o = options(file_posix());
    struct pack_writer *w = open_writer(test_temp_path("d"), &o);
    struct error err = {0};
    struct row r;
    uint64_t id = 0;
    make_row(&r, 0, true);
    r.sample.label = 2;
    assert_ok(pack_writer_add(w, &id, &r.sample, &err), err);
    assert_int_equal(pack_writer_set_classes(w, names, 2, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "label 2"));
    assert_ok(pack_writer_set_classes(w, names, 3, &err), err);
    assert_int_equal(pack_writer_set_classes(w, names, 3, &err), STATUS_INVALID);
    r.sample.label = 3;
    assert_int_equal(pack_writer_add(w, &id, &r.sample, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "label 3"));
    pack_writer_close(w);
    w = open_writer(test_temp_path("d"), &o);
    add_rows(w, 0, 1);
    assert_ok(pack_writer_set_classes(w, names, 2, &err), err);
    finish(w);
    o.append = true;
    w = open_writer(test_temp_path("d"), &o);
    r.sample.label = 2; /* the dataset has two classes, and the writer none yet */
    assert_int_equal(pack_writer_add(w, &id, &r.sample, &err), STATUS_INVALID);
    byte_buffer_fini(&r.jpeg);
    pack_writer_close(w);
    w = open_writer(test_temp_path("d"), &o);
    assert_int_equal(pack_writer_set_classes(w, others, 3, &err), STATUS_INVALID);
    pack_writer_close(w);
    w = open_writer(test_temp_path("d"), &o);
    assert_ok(pack_writer_set_classes(w, names, 3, &err), err);
    add_rows(w, 1, 1);
    assert_ok(pack_writer_finish(w, &err), err);
    assert_int_equal(pack_writer_manifest(w)->class_count, 3);
    assert_string_equal(pack_writer_manifest(w)->classes[2], "cat");
    pack_writer_close(w);
}

/* ---- what is left of a writer that did not finish -------------------------------------------- */

TEST(close_without_finish_removes_only_its_own_files) {
    char d[256];
    snprintf(d, sizeof(d), "%s", test_temp_path("d"));
    struct pack_options o = options(file_posix());
    struct pack_writer *w = open_writer(d, &o);
    add_rows(w, 0, ROWS);
    pack_writer_close(w);
    assert_int_equal(rmdir(d), 0); /* empty */

    pack_rows(d, 0, 6, false);
    pack_case_copy(file_posix(), d, file_posix(), test_temp_path("copy"));
    o.append = true;
    w = open_writer(d, &o);
    add_rows(w, 6, ROWS - 6);
    pack_writer_close(w);
    assert_true(pack_case_equal(file_posix(), d, file_posix(), test_temp_path("copy")));

    o.append = false;
    assert_int_equal(pack_writer_open(&w, d, &o, NULL), STATUS_EXISTS);
    o.overwrite = true;
    w = open_writer(d, &o); /* no sample: nothing is replaced */
    pack_writer_close(w);
    assert_true(pack_case_equal(file_posix(), d, file_posix(), test_temp_path("copy")));
    test_write_file(test_temp_path("d/mine.txt"), "x", 1);
    w = open_writer(d, &o);
    add_rows(w, 0, ROWS);
    pack_writer_close(w);
    assert_true(pack_case_exists(file_posix(), d, "mine.txt"));
    assert_int_equal(unlink(test_temp_path("d/mine.txt")), 0);
    assert_int_equal(rmdir(d), 0);
}

TEST(two_writers_exclude_each_other) {
    struct pack_options o = options(file_posix());
    struct error err = {0};
    struct pack_writer *w = open_writer(test_temp_path("d"), &o);
    struct pack_writer *other = NULL;
    o.overwrite = true;
    assert_int_equal(pack_writer_open(&other, test_temp_path("d"), &o, &err), STATUS_EXISTS);
    assert_non_null(strstr(err.text, "in use by"));
    add_rows(w, 0, 1);
    finish(w);
}

TEST(a_killed_writer_leaves_no_dataset_and_can_be_overwritten) {
    static const enum shard_container containers[] = {SHARD_CONTAINER_TAR_ZSTD,
                                                      SHARD_CONTAINER_TAR};
    for (int i = 0; i < 2; i++) {
        char d[256];
        snprintf(d, sizeof(d), "%s", test_temp_path("d%d", i));
        struct pack_options o = options(file_posix());
        o.container = containers[i];
        pid_t child = fork();
        if (child == 0) {
            struct pack_writer *w = open_writer(d, &o);
            add_rows(w, 0, ROWS);
            kill(getpid(), SIGKILL);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_false(pack_case_exists(file_posix(), d, MANIFEST_NAME));
        assert_true(pack_case_exists(file_posix(), d, PACK_JOURNAL_NAME));
        struct pack_writer *w = NULL;
        struct error err = {0};
        assert_int_equal(pack_writer_open(&w, d, &o, &err), STATUS_EXISTS);

        const char *source = pack_case_tar("a.tar", &(struct pack_case_tar){.rows = 1});
        struct pack_options run = pack_case_options(NULL, d, &source, 1);
        struct pack_summary sum;
        assert_int_equal(pack_run(&run, &sum, &err), STATUS_EXISTS);
        assert_non_null(strstr(err.text, "an unfinished program; --overwrite"));
        run.resume = true;
        assert_int_equal(pack_run(&run, &sum, &err), STATUS_EXISTS);

        o.overwrite = true;
        w = open_writer(d, &o);
        add_rows(w, 0, 3);
        finish(w);
        assert_true(pack_case_verify(file_posix(), d) != 0);
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Writes with the fault at call `nth` over or after a dataset of three samples; returns the number
 * of calls. What is left is the old dataset, the new one or none, also after a power cut. */
static uint64_t write_with_fault(bool append, uint64_t nth, enum file_fault fault) {
    struct error err = {0};
    struct file_system *memory = NULL;
    struct file_system *faulty = NULL;
    assert_ok(file_memory_create(&memory, &err), err);
    struct pack_options o = options(memory);
    struct pack_writer *w = open_writer("d", &o);
    add_rows(w, 0, 3);
    const uint64_t old = finish(w);
    assert_ok(file_fault_create(&faulty, memory, nth, fault, &err), err);
    o.fs = faulty;
    o.append = append;
    o.overwrite = !append;
    enum status s = pack_writer_open(&w, "d", &o, &err);
    for (int i = 0; s == STATUS_OK && i < ROWS; i++) {
        uint64_t id = 0;
        s = add_row(w, append ? 3 + i : i, &id, &err);
    }
    s = s == STATUS_OK ? pack_writer_finish(w, &err) : s;
    const uint64_t calls = file_fault_count(faulty);
    assert_true(nth >= calls || s != STATUS_OK);
    pack_writer_close(w);
    for (int i = 0; i < 2; i++) {
        const uint64_t now = pack_case_verify(memory, "d");
        assert_true(s != STATUS_OK || (now != 0 && now != old));
        assert_true(!append || now != 0);
        file_memory_crash(memory);
    }
    o.fs = memory;
    o.append = false;
    o.overwrite = true;
    w = open_writer("d", &o);
    add_rows(w, 0, 3);
    assert_int_equal(finish(w), old);
    file_fault_destroy(faulty);
    file_memory_destroy(memory);
    return calls;
}

static void write_with_all_faults(bool append) {
    static const enum file_fault faults[] = {FILE_FAULT_ERROR, FILE_FAULT_SHORT_WRITE,
                                             FILE_FAULT_DEAD};
    const uint64_t calls = write_with_fault(append, UINT64_MAX, FILE_FAULT_ERROR);
    assert_true(calls > 30);
    for (size_t k = 0; k < sizeof(faults) / sizeof(faults[0]); k++) {
        for (uint64_t nth = 0; nth < calls; nth += FILE_FAULT_STEP) {
            write_with_fault(append, nth, faults[k]);
        }
    }
}

TEST(every_failing_write_of_an_append_leaves_a_dataset) {
    write_with_all_faults(true);
}

TEST(every_failing_write_while_overwriting_is_reported) {
    write_with_all_faults(false);
}

/* ---- threads --------------------------------------------------------------------------------- */

struct adder {
    pthread_t thread;
    struct pack_writer *writer;
    int number;
    enum status status;
};

enum { THREADS = 4, EACH = 12 };

static void *add_some(void *cookie) {
    struct adder *a = cookie;
    for (int i = 0; i < EACH && a->status == STATUS_OK; i++) {
        struct row r;
        uint64_t id = 0;
        make_row(&r, i * THREADS + a->number, true);
        r.sample.id = (uint64_t)(i * THREADS + a->number);
        a->status = pack_writer_add(a->writer, &id, &r.sample, NULL);
        byte_buffer_fini(&r.jpeg);
    }
    return NULL;
}

TEST(threads_may_add_at_once) {
    char packed[256];
    struct pack_options o = options(file_posix());
    struct pack_writer *w = open_writer(test_temp_path("d"), &o);
    struct adder adders[THREADS];
    for (int i = 0; i < THREADS; i++) {
        adders[i] = (struct adder){.writer = w, .number = i};
        assert_int_equal(pthread_create(&adders[i].thread, NULL, add_some, &adders[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(adders[i].thread, NULL), 0);
        assert_int_equal(adders[i].status, STATUS_OK);
    }
    snprintf(packed, sizeof(packed), "%s", test_temp_path("packed"));
    pack_rows(packed, 0, THREADS * EACH, false);
    assert_int_equal(finish(w), pack_case_verify(file_posix(), packed));
}
