/*
 * The built module, loaded as the programs load it: it is complete, exports one symbol, and reports
 * a missing driver. With a GPU the same cases open it.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/module_internal.h"
#include "tests/support/test.h"

static const char *module_path(void) {
    const char *path = getenv("CCSTREAM_CUDA_MODULE");
    if (path == NULL) {
        test_skip("CCSTREAM_CUDA_MODULE is not set; run by ctest");
    }
    return path;
}

static const struct backend_module *load(void) {
    const struct backend_module *module;
    struct error err = {0};
    assert_ok(cuda_module_load(&module, module_path(), &err), err);
    return module;
}

TEST(the_module_loads_without_a_driver) {
    const struct backend_module *module = load();
    assert_int_equal(module->abi, BACKEND_MODULE_ABI);
    assert_int_equal(module->ops_size_bytes, sizeof(struct ops));
    assert_non_null(strstr(module->requirements, "cuDNN"));
}

/* But for the last members, which only a CPU has. */
TEST(its_table_is_complete) {
#define ONE(name) +1
    const size_t absent_count = 0 OPS_CPU_LIST(ONE);
#undef ONE
    const struct ops *ops = load()->ops;
    const size_t count = sizeof *ops / sizeof(void *);
    assert_string_equal(ops->name, "cuda");
    for (size_t i = 0; i < count; i++) {
        void *member;
        memcpy(&member, (const char *)ops + i * sizeof member, sizeof member);
        if ((member == NULL) != (i >= count - absent_count)) {
            fail_msg("member %zu of struct ops is %s", i, member == NULL ? "NULL" : "not NULL");
        }
    }
}

/* Its own copies of shared sources must not clash with the program's. */
TEST(only_the_entry_is_exported) {
    static const char *const hidden[] = {"error_set", "cuda_count", "check_linear",
                                         "rng_block", "launch_add", "cudaMalloc"};
    void *library = dlopen(module_path(), RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    assert_non_null(dlsym(library, BACKEND_MODULE_SYMBOL));
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
        if (dlsym(library, hidden[i]) != NULL) {
            fail_msg("%s leaves the module", hidden[i]);
        }
    }
}

TEST(a_missing_device_is_reported_in_one_line) {
    const struct backend_module *module = load();
    struct error err = {0};
    int32_t count = -1;
    const enum status s = module->count(&count, &err);
    if (s == STATUS_OK) {
        char text[200];
        assert_true(count >= 1);
        assert_ok(module->describe(0, text, sizeof text, &err), err);
        assert_true(strlen(text) > 0);
        return;
    }
    assert_int_equal(s, STATUS_DEVICE);
    assert_int_equal(count, 0);
    assert_non_null(strstr(err.text, "NVIDIA"));
    assert_null(strchr(err.text, '\n'));
    char text[200];
    err = (struct error){0};
    assert_status(module->describe(0, text, sizeof text, &err), STATUS_DEVICE, err);
}

TEST(opening_without_a_device_fails_and_leaves_nothing) {
    const struct backend_module *module = load();
    struct device_options opt;
    struct device *dev;
    struct error err = {0};
    device_options_default(&opt);
    for (int i = 0; i < 3; i++) { /* a sticky error would show the second time */
        if (module->open(&dev, 0, &opt, &err) == STATUS_OK) {
            device_close(dev);
            continue;
        }
        assert_int_equal(err.status, STATUS_DEVICE);
        assert_null(dev);
        assert_true(strlen(err.text) > 0 && strchr(err.text, '\n') == NULL);
    }
}
