/*
 * Remote datasets through libccstream: samples and batches as from the folder, options once, forks.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bindings/c/ccstream.h"
#include "tests/support/fault_server.h"
#include "tests/support/image_dataset.h"
#include "tests/support/library.h"
#include "tests/support/test.h"

enum { BATCH = 20, SIDE = 16, WAIT_MS = 60000 };

/* Datasets in the folders d, e, f and g, each of other samples; returns where they are served. */
static const char *serve(struct fault_server *s) {
    static char url[64];
    struct image_dataset how;
    image_dataset_default(&how);
    for (char name[] = "d"; name[0] <= 'g'; name[0]++) {
        image_dataset_make(test_temp_path("%s", name), &how);
        how.samples -= 10;
        how.id_step++;
    }
    fault_server_start(s, test_temp_dir(), "--faults reset=0.1,half=0.1");
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", s->port);
    return url;
}

static const char *at(const char *url, const char *name) {
    static char path[80];
    (void)snprintf(path, sizeof path, "%s/%s", url, name);
    return path;
}

static struct ccs_loader *open_loader(const char *path) {
    struct ccs_loader *l = NULL;
    struct ccs_loader_options opt;
    struct ccs_error err;
    ccs_loader_options_init(&opt, sizeof opt);
    opt.batch_size = BATCH;
    opt.image_size_px = SIDE;
    if (ccs_loader_open(&l, path, &opt, &err) != CCS_OK) {
        fail_msg("%s", err.text);
    }
    return l;
}

static void check_batches(const char *url) {
    struct ccs_loader *local = open_loader(test_temp_path("d"));
    struct ccs_loader *remote = open_loader(url);
    for (int i = 0; i < 7; i++) {
        const struct ccs_batch *a = NULL;
        const struct ccs_batch *b = NULL;
        assert_int_equal(ccs_loader_next(local, &a, WAIT_MS, NULL), CCS_OK);
        assert_int_equal(ccs_loader_next(remote, &b, WAIT_MS, NULL), CCS_OK);
        assert_memory_equal(a->ids, b->ids, BATCH * sizeof *a->ids);
        assert_memory_equal(a->images, b->images, (size_t)BATCH * SIDE * SIDE * 3);
        ccs_batch_release(a);
        ccs_batch_release(b);
    }
    ccs_loader_close(local);
    ccs_loader_close(remote);
}

struct opened {
    struct ccs_dataset *dataset;
    struct ccs_reader *reader;
};

/* Of these two the failure is printed, as an assertion would not end a child. */
static bool open_samples(struct opened *o, const char *path) {
    struct ccs_error err;
    *o = (struct opened){0};
    if (ccs_dataset_open(&o->dataset, path, &err) == CCS_OK &&
        ccs_reader_open(&o->reader, o->dataset, &err) == CCS_OK) {
        return true;
    }
    (void)fprintf(stderr, "%s\n", err.text);
    return false;
}

static void close_samples(struct opened o) {
    ccs_reader_close(o.reader);
    ccs_dataset_close(o.dataset);
}

static bool same_samples(struct opened a, struct opened b, uint64_t first, uint64_t end) {
    for (uint64_t i = first; i < end; i++) {
        const struct ccs_sample *x = NULL;
        const struct ccs_sample *y = NULL;
        struct ccs_error err = {.text = "other bytes"};
        if (ccs_reader_get(a.reader, i, &x, &err) != CCS_OK ||
            ccs_reader_get(b.reader, i, &y, &err) != CCS_OK || x->record->id != y->record->id ||
            x->record->image_bytes != y->record->image_bytes ||
            memcmp(x->image, y->image, (size_t)x->record->image_bytes) != 0) {
            (void)fprintf(stderr, "sample %d: %s\n", (int)i, err.text);
            return false;
        }
    }
    return true;
}

/* A child reads on with what the parent opened, and opens another dataset and the same one. */
static bool
read_as_child(const char *url, const char *other, struct opened local, struct opened remote) {
    struct opened a, b;
    return same_samples(local, remote, 0, 20) && open_samples(&a, test_temp_path("%s", other)) &&
           open_samples(&b, at(url, other)) && same_samples(a, b, 0, 30) &&
           open_samples(&b, at(url, "d")) && same_samples(local, b, 10, 30);
}

/* The thread sanitizer ends a child that starts a thread. */
#ifdef __SANITIZE_THREAD__
static const int children_count = 0;
#else
static const int children_count = 3;
#endif

static void check_samples(const char *url) {
    static const char *const others[] = {"e", "f", "g"};
    struct opened local, remote;
    pid_t children[3];
    assert_true(open_samples(&local, test_temp_path("d")));
    assert_true(open_samples(&remote, at(url, "d")));
    assert_true(same_samples(local, remote, 0, 4));
    fflush(NULL);
    for (int i = 0; i < children_count; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            _exit(read_as_child(url, others[i], local, remote) ? 0 : 1);
        }
    }
    assert_true(same_samples(local, remote, 0, 30));
    for (int i = 0; i < children_count; i++) {
        int how = 0;
        assert_int_equal(waitpid(children[i], &how, 0), children[i]);
        assert_int_equal(how, 0);
    }
    close_samples(remote);
    close_samples(local);
}

TEST(a_remote_dataset_is_like_its_folder) {
    struct fault_server s;
    struct ccs_remote_options opt = {.struct_size = sizeof opt};
    struct ccs_error err;
    const char *url = serve(&s);
    check_batches(at(url, "d"));
    check_samples(url);
    assert_int_equal(ccs_remote_configure(&opt, &err), CCS_ERROR_EXISTS);
    assert_non_null(strstr(err.text, "before the first"));
    fault_server_stop(&s);
}

TEST(options_are_set_once_and_checked) {
    struct fault_server s;
    struct ccs_remote_options opt = {.struct_size = sizeof opt, .cache_bytes = 1};
    struct ccs_error err;
    const char *url = serve(&s);
    assert_int_equal(ccs_remote_configure(NULL, &err), CCS_ERROR_INVALID);
    opt.cache = test_temp_path("cache");
    assert_int_equal(ccs_remote_configure(&opt, &err), CCS_ERROR_USAGE);
    opt.cache_bytes = 0;
    opt.instance_metadata = 2;
    assert_int_equal(ccs_remote_configure(&opt, &err), CCS_ERROR_INVALID);
    opt.instance_metadata = 0;
    assert_int_equal(ccs_remote_configure(&opt, &err), CCS_OK);
    assert_int_equal(ccs_remote_configure(&opt, &err), CCS_ERROR_EXISTS);
    check_batches(at(url, "d"));
    check_samples(url);
    fault_server_stop(&s);
    check_batches(at(url, "d")); /* from the cache */
}
