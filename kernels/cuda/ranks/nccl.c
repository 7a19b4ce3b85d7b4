/*
 * nccl: opens libnccl.so.2 by the dynamic loader's search: LD_LIBRARY_PATH, the folders of CUDA
 * that this module was linked with, the system's folders. The folder of Python's wheel must be in
 * LD_LIBRARY_PATH.
 */
#include "kernels/cuda/ranks/nccl_internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

static enum status find_symbols(struct nccl *n, void *library, struct error *err) {
    void *symbol;
#define NCCL_FIND(member, name, result, parameters)                                                \
    symbol = dlsym(library, #name);                                                                \
    if (symbol == NULL) {                                                                          \
        return error_set(err, STATUS_UNSUPPORTED, "%s has no %s", NCCL_LIBRARY, #name);            \
    }                                                                                              \
    memcpy(&n->member, &symbol, sizeof n->member); /* ISO C has no such cast */
    NCCL_LIST(NCCL_FIND)
#undef NCCL_FIND
    return STATUS_OK;
}

static enum status check_version(struct nccl *n, struct error *err) {
    FAIL_IF(n->get_version(&n->version) != NCCL_SUCCESS, err, STATUS_UNSUPPORTED,
            "%s does not report its version", NCCL_LIBRARY);
    if (n->version < NCCL_MINIMUM || n->version >= 30000) {
        return error_set(err, STATUS_UNSUPPORTED,
                         "NCCL %d.%d is installed; %d.%d or a later version 2 is required",
                         n->version / 10000, n->version / 100 % 100, NCCL_MINIMUM / 10000,
                         NCCL_MINIMUM / 100 % 100);
    }
    return STATUS_OK;
}

static enum status load(struct nccl *n, struct error *err) {
    void *library = dlopen(NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        return error_set(err, STATUS_UNSUPPORTED,
                         "NCCL, which ranks on GPUs require, cannot be loaded (%s); install it "
                         "(libnccl2, or the wheel nvidia-nccl-cu12 or -cu13) and name its folder "
                         "in LD_LIBRARY_PATH (of a wheel: site-packages/nvidia/nccl/lib)",
                         why != NULL ? why : NCCL_LIBRARY);
    }
    enum status s = find_symbols(n, library, err);
    s = s == STATUS_OK ? check_version(n, err) : s;
    if (s != STATUS_OK) {
        (void)dlclose(library);
    }
    return s; /* if OK it is never closed: it has its own threads */
}

enum status nccl_open(const struct nccl **out, struct error *err) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct nccl nccl; /* guarded by lock until it is open */
    static bool is_open;
    enum status s = STATUS_OK;
    *out = NULL;
    (void)pthread_mutex_lock(&lock);
    if (!is_open) {
        s = load(&nccl, err);
        is_open = s == STATUS_OK;
    }
    (void)pthread_mutex_unlock(&lock);
    if (s == STATUS_OK) {
        *out = &nccl;
    }
    return s;
}
