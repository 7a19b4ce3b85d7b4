/* Remote datasets through libccstream: samples and batches as from the folder, options once, forks.
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bindings/c/ccstream.h"
#include "tests/support/fault_server.h"
#include "tests/support/library.h"
#include "tests/support/picture_dataset.h"
#include "tests/support/test.h"

enum { BATCH = 20, SIDE = 16, WAIT_MS = 60000 };

/* A dataset in the folder `d`, and where it is served. */
static const char *serve(struct fault_server *s) {
    static char url[64];
    struct picture_dataset how;
    picture_dataset_default(&how);
    picture_dataset_make(test_temp_path("d"), &how);
    fault_server_start(s, test_temp_dir(), "--faults reset=0.1,half=0.1");
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u/d", s->port);
    return url;
}

static struct ccs_loader *open_loader(const char *path) {
    struct ccs_loader *l = NULL;
    struct ccs_loader_options opt;
    struct ccs_error err;
    ccs_loader_options_init(&opt, sizeof opt);
    opt.batch = BATCH;
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

static void check_sample(const char *url) {
    struct ccs_dataset *d = NULL;
    struct ccs_reader *r = NULL;
    struct ccs_error err;
    const struct ccs_sample *s = NULL;
    assert_int_equal(ccs_dataset_open(&d, url, &err), CCS_OK);
    assert_int_equal(ccs_reader_open(&r, d, &err), CCS_OK);
    assert_int_equal(ccs_reader_get(r, 3, &s, &err), CCS_OK);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct ccs_dataset *other = NULL;
        _exit(ccs_dataset_open(&other, url, &err) == CCS_ERROR_FORKED && other == NULL ? 0 : 1);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    ccs_reader_close(r);
    ccs_dataset_close(d);
}

TEST(a_remote_dataset_is_like_its_folder) {
    struct fault_server s;
    struct ccs_remote_options opt = {.struct_size = sizeof opt};
    struct ccs_error err;
    const char *url = serve(&s);
    check_batches(url);
    check_sample(url);
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
    check_batches(url);
    check_sample(url);
    fault_server_stop(&s);
    check_batches(url); /* from the cache */
}
