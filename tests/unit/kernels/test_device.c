/*
 * Devices by name: refusals, the note of auto, and the search for the CUDA module. The cases hold
 * with and without a GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/module_internal.h"
#include "kernels/ops.h"
#include "tests/support/test.h"

TEST(an_unknown_name_is_refused_with_the_known_ones) {
    static const char *const names[] = {"",        "gpu",     "cuda:",    "cuda:x",  "cuda:1x",
                                        "cuda:-1", "cuda:64", "cuda:999", "cuda:1 ", "CUDA"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct device *dev;
        struct error err = {0};
        assert_status(device_open(&dev, names[i], 1, &err), STATUS_UNSUPPORTED, err);
        assert_null(dev);
        assert_non_null(strstr(err.text, "cpu-ref, cuda, cuda:N or auto"));
    }
}

/* It works, or the reason is one line; it is never another device. */
TEST(cuda_by_name_works_or_reports_why_not) {
    struct device *dev;
    struct error err = {0};
    const enum status s = device_open(&dev, "cuda", 1, &err);
    if (s == STATUS_OK) {
        assert_string_equal(dev->ops->name, "cuda");
        assert_string_equal(dev->note, "");
        device_close(dev);
        return;
    }
    assert_true(s == STATUS_UNSUPPORTED || s == STATUS_DEVICE || s == STATUS_NOMEM);
    assert_null(dev);
    assert_true(strlen(err.text) > 0);
    assert_null(strchr(err.text, '\n'));
}

TEST(auto_gives_a_device_and_a_reason) {
    struct device *dev;
    struct error err = {0};
    assert_ok(device_open(&dev, "auto", 1, &err), err);
    if (strcmp(dev->ops->name, "cuda") == 0) {
        assert_string_equal(dev->note, "");
    } else {
        assert_string_equal(dev->ops->name, "cpu");
        assert_true(strncmp(dev->note, "no cuda: ", 9) == 0 && strlen(dev->note) > 9);
        assert_null(strchr(dev->note, '\n'));
    }
    device_close(dev);
}

TEST(a_device_by_name_has_no_note) {
    struct device *dev;
    struct error err = {0};
    assert_ok(device_open(&dev, "cpu", 1, &err), err);
    assert_string_equal(dev->note, "");
    device_close(dev);
}

struct listed {
    int count, cuda_lines, working;
};

static void count_line(const char *name, bool works, const char *text, void *cookie) {
    struct listed *l = cookie;
    l->count++;
    l->working += works ? 1 : 0;
    l->cuda_lines += strncmp(name, "cuda", 4) == 0 ? 1 : 0;
    assert_true(strlen(text) > 0 && strchr(text, '\n') == NULL);
}

TEST(the_list_names_every_device) {
    struct listed l = {0};
    device_list(count_line, &l);
    assert_true(l.count >= 3 && l.cuda_lines >= 1 && l.working >= 2);
}

TEST(a_missing_module_is_reported) {
    const struct backend_module *module;
    struct error err = {0};
    assert_status(cuda_module_load(&module, "/nowhere/libccstream_cuda.so", &err),
                  STATUS_UNSUPPORTED, err);
    assert_null(module);
    assert_non_null(strstr(err.text, "/nowhere/libccstream_cuda.so"));
}

TEST(a_file_that_is_not_a_module_is_refused) {
    char path[512];
    const struct backend_module *module;
    struct error err = {0};
    (void)snprintf(path, sizeof path, "%s/libccstream_cuda.so", test_temp_dir());
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fputs("not a library", f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_status(cuda_module_load(&module, path, &err), STATUS_UNSUPPORTED, err);
    assert_non_null(strstr(err.text, path));
}

/* A library, but not ours: the C library itself. */
TEST(a_library_without_the_entry_is_refused) {
    const struct backend_module *module;
    struct error err = {0};
    assert_status(cuda_module_load(&module, "libc.so.6", &err), STATUS_UNSUPPORTED, err);
    assert_null(module);
    assert_non_null(strstr(err.text, BACKEND_MODULE_SYMBOL));
}

TEST(a_module_of_another_build_is_refused) {
    const char *folder = getenv("TESTBIN");
    if (folder == NULL) {
        test_skip("TESTBIN is not set; run by ctest");
    }
    char path[512];
    const struct backend_module *module;
    struct error err = {0};
    (void)snprintf(path, sizeof path, "%s/module_of_another_build.so", folder);
    assert_status(cuda_module_load(&module, path, &err), STATUS_UNSUPPORTED, err);
    assert_null(module);
    assert_non_null(strstr(err.text, "another build"));
    assert_non_null(strstr(err.text, "0.0.1-other"));
}
