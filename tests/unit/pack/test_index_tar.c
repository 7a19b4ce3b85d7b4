/*
 * Tars indexed in place: the same dataset as packing them, whatever form they have and however many
 * threads read them; and nothing under a final name when it fails, wherever that is.
 */
#include "pack/index/index_tar.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/dataset/dataset.h"
#include "formats/shard/shard_reader.h"
#include "tests/support/file_fault.h"
#include "tests/support/file_memory.h"
#include "tests/support/tar_write.h"
#include "tests/support/test.h"

enum { TARS = 5, IMAGES = 8 }; /* of each tar; and a bad row in every second */

static char paths[TARS][640];
static const char *tars[TARS];
static char folder[512];

static void put_row(FILE *f, int number, int shade, const char *caption) {
    static uint8_t pixels[16 * 16 * 3];
    struct image_view view = {pixels, 16, 16, 48};
    struct byte_buffer jpeg = {0};
    struct error err = {0};
    char name[64];
    memset(pixels, shade, sizeof(pixels));
    assert_ok(image_encode_jpeg(&jpeg, &view, 90, &err), err);
    snprintf(name, sizeof(name), "part/%04d.jpg", number);
    assert_true(tar_write_file(f, name, jpeg.data, jpeg.size_bytes));
    snprintf(name, sizeof(name), "part/%04d.txt", number);
    assert_true(tar_write_file(f, name, caption, strlen(caption)));
    snprintf(name, sizeof(name), "part/%04d.json", number);
    assert_true(tar_write_file(f, name, "{\"a\":1}", 7));
    byte_buffer_fini(&jpeg);
}

/* Keys are numbers of their own, 1000 - row. */
static void make_tars(void) {
    snprintf(folder, sizeof(folder), "%s", test_temp_path("tars"));
    mkdir(folder, 0777);
    int row = 0;
    for (int k = 0; k < TARS; k++) {
        snprintf(paths[k], sizeof(paths[k]), "%s/%05d.tar", folder, k);
        tars[k] = paths[k];
        FILE *f = fopen(paths[k], "wb");
        assert_non_null(f);
        for (int i = 0; i < IMAGES; i++, row++) {
            put_row(f, 1000 - row, 6 * row, "a caption\n");
        }
        if (k % 2 == 1) {
            put_row(f, 1000 - row, 0, "  ");
            row++;
        }
        assert_true(tar_write_end(f));
        assert_int_equal(fclose(f), 0);
    }
}

static void default_options(struct pack_options *o) {
    pack_options_default(o);
    o->directory = folder;
    o->sources = tars;
    o->source_count = TARS;
}

static void assert_same_dataset(const struct pack_summary *sum,
                                const struct pack_options *packing) {
    struct pack_options o = *packing;
    struct pack_summary packed;
    struct dataset *d = NULL;
    struct error err = {0};
    o.directory = test_temp_path("packed");
    o.overwrite = true;
    assert_ok(pack_run(&o, &packed, &err), err);
    assert_int_equal(sum->fingerprint, packed.fingerprint);
    assert_int_equal(sum->rows, packed.rows);
    assert_int_equal(sum->samples, packed.samples);
    assert_int_equal(sum->texts, packed.texts);
    assert_memory_equal(sum->rejected_by, packed.rejected_by, sizeof(packed.rejected_by));
    assert_ok(dataset_open(&d, folder, NULL, &err), err);
    assert_int_equal(dataset_sample_count(d), TARS * IMAGES);
    assert_int_equal(dataset_fingerprint(d), packed.fingerprint);
    for (uint32_t i = 0; i < dataset_shard_count(d); i++) {
        struct shard_verify how = {.expected = &dataset_manifest(d)->shards[i]};
        assert_ok(shard_verify(file_posix(), dataset_shard_path(d, i), &how, &err), err);
    }
    dataset_close(d);
    size_t a = 0;
    size_t b = 0; /* the same rows are listed, in the same words */
    char *listed = (char *)test_read_file(test_temp_path("tars/rejects.jsonl"), &a);
    char *packed_list = (char *)test_read_file(test_temp_path("packed/rejects.jsonl"), &b);
    assert_int_equal(a, b);
    assert_memory_equal(listed, packed_list, a);
    free(listed);
    free(packed_list);
}

TEST(indexing_is_packing_without_the_copy) {
    struct pack_options o;
    struct pack_summary sum;
    struct error err = {0};
    make_tars();
    for (int ids = PACK_IDS_ROW; ids <= PACK_IDS_KEY; ids++) {
        default_options(&o);
        o.ids = (enum pack_ids)ids;
        o.overwrite = ids != PACK_IDS_ROW;
        o.check = ids == PACK_IDS_ROW;
        assert_ok(index_tar_run(&o, &sum, &err), err);
        assert_true(sum.is_dataset);
        assert_int_equal(sum.shards, TARS);
        assert_same_dataset(&sum, &o);
    }
}

TEST(any_number_of_threads_gives_the_same_bytes) {
    struct pack_options o;
    struct pack_summary sum;
    struct error err = {0};
    char path[600];
    uint8_t *first[TARS];
    size_t sizes[TARS];
    make_tars();
    for (uint32_t jobs = 1; jobs <= 7; jobs += 3) {
        default_options(&o);
        o.jobs = jobs;
        o.overwrite = true;
        assert_ok(index_tar_run(&o, &sum, &err), err);
        for (int k = 0; k < TARS; k++) {
            size_t size = 0;
            snprintf(path, sizeof(path), "%s/%05d.cci", folder, k);
            uint8_t *index = test_read_file(path, &size);
            if (jobs == 1) {
                first[k] = index;
                sizes[k] = size;
                continue;
            }
            assert_int_equal(size, sizes[k]);
            assert_memory_equal(index, first[k], size);
            free(index);
        }
    }
    for (int k = 0; k < TARS; k++) {
        free(first[k]);
    }
}

/* Whether the folder holds nothing but the tars, and perhaps the list. */
static void assert_clean(const struct file_system *fs, const char *directory, bool list) {
    struct byte_buffer names = {0};
    struct error err = {0};
    if (fs->list(fs->context, directory, &names, &err) == STATUS_OK) {
        const char *name = (const char *)names.data;
        for (size_t at = 0; at < names.size_bytes; at += strlen(name + at) + 1) {
            size_t n = strlen(name + at);
            bool tar = n > 4 && strcmp(name + at + n - 4, ".tar") == 0;
            if (!tar && !(list && strcmp(name + at, PACK_REJECTS_NAME) == 0)) {
                fail_msg("%s is left", name + at);
            }
        }
    }
    byte_buffer_fini(&names);
}

static enum status run(struct pack_options *o, struct error *err) {
    struct pack_summary sum;
    *err = (struct error){0};
    return index_tar_run(o, &sum, err);
}

TEST(invalid_options_are_refused_before_anything_is_read) {
    struct pack_options o;
    struct error err;
    char out[PATH_MAX_BYTES];
    make_tars();
    const char *twice[] = {tars[0], tars[1], tars[0]};
    default_options(&o);
    o.sources = twice;
    o.source_count = 3;
    assert_status(run(&o, &err), STATUS_USAGE, err);
    char stem[600];
    snprintf(stem, sizeof(stem), "%s/00001", folder);
    test_write_file(stem, "", 0);
    const char *wrong[] = {tars[0], stem};
    o.sources = wrong;
    o.source_count = 2;
    assert_status(run(&o, &err), STATUS_CORRUPT, err); /* no tar */
    const char *spaced = test_temp_path("tars/with space.tar");
    test_write_file(spaced, "", 0);
    wrong[1] = spaced;
    assert_status(run(&o, &err), STATUS_USAGE, err);
    test_remove_tree(stem);
    test_remove_tree(spaced);
    wrong[1] = "-";
    assert_status(run(&o, &err), STATUS_USAGE, err);
    wrong[1] = test_temp_path("tars/nowhere.tar");
    assert_status(run(&o, &err), STATUS_NOTFOUND, err);
    assert_clean(file_posix(), folder, false);
    const char *apart[] = {tars[0], test_temp_path("elsewhere.tar")};
    assert_status(index_tar_folder(out, sizeof(out), apart, 2, &err), STATUS_USAGE, err);
    assert_ok(index_tar_folder(out, sizeof(out), tars, TARS, &err), err);
    assert_string_equal(out, folder);
}

TEST(existing_files_are_kept) {
    struct pack_options o;
    struct pack_summary sum;
    struct error err = {0};
    struct dataset *d = NULL;
    make_tars();
    default_options(&o);
    assert_ok(index_tar_run(&o, &sum, &err), err);
    assert_status(run(&o, &err), STATUS_EXISTS, err);
    test_remove_tree(test_temp_path("tars/dataset.json")); /* the indexes alone are as good */
    assert_status(run(&o, &err), STATUS_EXISTS, err);
    o.overwrite = true;
    assert_ok(run(&o, &err), err);
    assert_ok(dataset_open(&d, folder, NULL, &err), err);
    dataset_close(d);

    /* A dataset that was packed, of tars as well. */
    const char *own = test_temp_path("own");
    const char *shard = test_temp_path("own/shard-000000.tar");
    o.directory = own;
    o.container = SHARD_CONTAINER_TAR;
    o.overwrite = false;
    assert_ok(pack_run(&o, &sum, &err), err);
    o.sources = &shard;
    o.source_count = 1;
    o.overwrite = true;
    assert_status(run(&o, &err), STATUS_EXISTS, err);
    test_remove_tree(test_temp_path("own/dataset.json"));
    assert_status(run(&o, &err), STATUS_EXISTS, err);
    assert_ok(shard_verify(file_posix(), shard, &(struct shard_verify){0}, &err), err);
}

TEST(too_many_bad_rows_leave_their_list_only) {
    struct pack_options o;
    struct error err;
    make_tars();
    default_options(&o);
    o.max_bad = (struct pack_max_bad){.percent = -1, .rows = 1};
    assert_status(run(&o, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "rejects.jsonl"));
    size_t size = 0;
    free(test_read_file(test_temp_path("tars/rejects.jsonl"), &size));
    assert_true(size > 0);
    assert_clean(file_posix(), folder, true);
    o.max_bad = (struct pack_max_bad){.percent = 100};
    assert_ok(run(&o, &err), err); /* the list is the packer's own, and replaced */
}

TEST(a_repeated_id_ends_the_run) {
    struct pack_options o;
    struct error err;
    make_tars();
    const char *pair[] = {tars[0], test_temp_path("tars/copy.tar")};
    size_t size = 0;
    uint8_t *bytes = test_read_file(tars[0], &size);
    test_write_file(pair[1], bytes, size);
    default_options(&o);
    o.sources = pair;
    o.source_count = 2;
    o.ids = PACK_IDS_KEY;
    assert_status(run(&o, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "--ids row"));
    assert_clean(file_posix(), folder, false);
    free(bytes);
}

TEST(a_tar_that_breaks_off_ends_the_run) {
    struct pack_options o;
    struct error err;
    size_t size = 0;
    make_tars();
    uint8_t *bytes = test_read_file(tars[2], &size);
    test_write_file(tars[2], bytes, size / 2 + 100);
    default_options(&o);
    o.jobs = 2;
    assert_status(run(&o, &err), STATUS_CORRUPT, err);
    assert_non_null(strstr(err.text, "00002.tar"));
    assert_clean(file_posix(), folder, true);
    free(bytes);
}

static bool stops(void *cookie) { /* asked by every thread */
    return atomic_fetch_sub((atomic_int *)cookie, 1) <= 0;
}

TEST(stopping_anywhere_leaves_the_folder_as_it_was) {
    struct pack_options o;
    struct error err;
    make_tars();
    default_options(&o);
    o.interrupted = stops;
    bool ended = false;
    for (int calls = 0; !ended; calls += 3) {
        atomic_int left = calls;
        o.cookie = &left;
        enum status s = run(&o, &err);
        ended = s == STATUS_OK;
        if (!ended) {
            assert_status(s, STATUS_INTERRUPTED, err);
            assert_clean(file_posix(), folder, false);
        }
    }
}

/* The n-th call to the file system fails, for every n. The memory's folder only holds what is
 * written; the tars are the machine's. */
TEST(a_failure_of_any_call_leaves_no_index) {
    struct pack_options o;
    struct error err = {0};
    uint64_t calls = 1;
    make_tars();
    for (uint64_t nth = 0; nth <= calls; nth++) {
        struct file_system *memory = NULL;
        struct file_system *faulty = NULL;
        struct dataset *d = NULL;
        bool exists = false;
        char path[64];
        assert_ok(file_memory_create(&memory, &err), err);
        assert_ok(memory->make_directory(memory->context, "tars", &err), err);
        for (int k = 0; k < TARS; k++) { /* dataset_fingerprint_of looks at their sizes */
            size_t size = 0;
            uint8_t *bytes = test_read_file(tars[k], &size);
            snprintf(path, sizeof(path), "tars/%05d.tar", k);
            assert_ok(file_write_atomic(memory, path, bytes, size, &err), err);
            free(bytes);
        }
        default_options(&o);
        o.directory = "tars";
        if (nth == 0) {
            assert_ok(file_fault_create(&faulty, memory, UINT64_MAX, FILE_FAULT_ERROR, &err), err);
            o.fs = faulty;
            assert_ok(run(&o, &err), err);
            calls = file_fault_count(faulty);
            file_fault_destroy(faulty);
            file_memory_destroy(memory);
            continue;
        }
        assert_ok(file_fault_create(&faulty, memory, nth - 1, FILE_FAULT_ERROR, &err), err);
        o.fs = faulty;
        enum status s = run(&o, &err);
        assert_ok(memory->exists(memory->context, "tars/dataset.json", &exists, &err), err);
        if (exists) {
            assert_ok(dataset_open(&d, "tars", memory, &err), err);
            assert_int_equal(dataset_sample_count(d), TARS * IMAGES);
            dataset_close(d);
        } else if (s < STATUS_OK) {
            assert_clean(memory, "tars", true);
        }
        file_fault_destroy(faulty);
        file_memory_destroy(memory);
    }
    assert_true(calls > 30);
}
