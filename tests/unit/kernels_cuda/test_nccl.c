/*
 * The NCCL of this machine, where there is one: it has every function that is used here, and
 * nccl.h declares them as nccl_internal.h does.
 */
#include <stddef.h>
#include <string.h>

#include "kernels/cuda/ranks/nccl_internal.h"
#include "tests/support/test.h"

#if defined __has_include
#if __has_include(<nccl.h>)
#include <nccl.h>
#define HAS_HEADER 1
#endif
#endif

static const struct nccl *open_nccl(void) {
    const struct nccl *nccl;
    struct error err = {0};
    const enum status s = nccl_open(&nccl, &err);
    if (s == STATUS_UNSUPPORTED && strstr(err.text, "cannot be loaded") != NULL) {
        test_skip("%s", err.text);
    }
    assert_ok(s, err);
    return nccl;
}

TEST(the_library_has_all_functions) {
    assert_true(open_nccl()->version >= NCCL_MINIMUM);
}

/* This requires no GPU. */
TEST(ids_differ) {
    const struct nccl *nccl = open_nccl();
    struct nccl_id a;
    struct nccl_id b;
    assert_int_equal(nccl->get_unique_id(&a), NCCL_SUCCESS);
    assert_int_equal(nccl->get_unique_id(&b), NCCL_SUCCESS);
    assert_memory_not_equal(&a, &b, sizeof a);
}

TEST(results_have_a_text) {
    const struct nccl *nccl = open_nccl();
    assert_string_equal(nccl->error_string(NCCL_SUCCESS), "no error");
    assert_non_null(nccl->error_string(NCCL_IN_PROGRESS));
}

TEST(the_header_declares_the_same) {
#ifdef HAS_HEADER
    assert_int_equal(ncclSuccess, NCCL_SUCCESS);
    assert_int_equal(ncclInProgress, NCCL_IN_PROGRESS);
    assert_int_equal(ncclUint8, NCCL_UINT8);
    assert_int_equal(ncclUint32, NCCL_UINT32);
    assert_int_equal(ncclFloat32, NCCL_FLOAT32);
    assert_int_equal(ncclSum, NCCL_SUM);
    assert_int_equal(sizeof(ncclUniqueId), sizeof(struct nccl_id));
    assert_int_equal(offsetof(ncclConfig_t, magic), offsetof(struct nccl_config, magic));
    assert_int_equal(offsetof(ncclConfig_t, version), offsetof(struct nccl_config, version));
    assert_int_equal(offsetof(ncclConfig_t, blocking), offsetof(struct nccl_config, blocking));
    const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    assert_int_equal(config.magic, (unsigned)NCCL_MAGIC);
#else
    test_skip("nccl.h is not installed");
#endif
}
