/*
 * cuda_module: finds and loads libccstream_cuda.so.
 *
 * Searched: $CCSTREAM_CUDA_MODULE if set (ignored by a set-uid program), the folder of the
 * executable, and lib/ccstream next to that folder, where an installation puts it. The driver is
 * checked first: the module is useless without it, and loading it with its libraries takes half a
 * second.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/module_internal.h"

static const char file_name[] = "libccstream_cuda.so";

static bool executable_folder(char *out, size_t out_size) {
    const ssize_t n = readlink("/proc/self/exe", out, out_size - 1);
    if (n <= 0 || (size_t)n >= out_size - 1) {
        return false;
    }
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

/* The first place that holds a file, or false. */
static bool find_module(char *out, size_t out_size) {
    const char *named = secure_getenv("CCSTREAM_CUDA_MODULE");
    if (named != NULL && named[0] != '\0') {
        const int n = snprintf(out, out_size, "%s", named);
        return n > 0 && (size_t)n < out_size;
    }
    static const char *const places[] = {"", "/../lib/ccstream", "/../lib64/ccstream"};
    char folder[PATH_MAX];
    if (!executable_folder(folder, sizeof folder)) {
        return false;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const int n = snprintf(out, out_size, "%s%s/%s", folder, places[i], file_name);
        if (n > 0 && (size_t)n < out_size && access(out, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

static enum status
check_build(const struct backend_module *module, const char *path, struct error *err) {
    if (module == NULL || module->abi != BACKEND_MODULE_ABI ||
        module->ops_size_bytes != sizeof(struct ops) ||
        strcmp(module->version, CCSTREAM_VERSION) != 0) {
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s is of another build (%s, interface %u) than this program (%s, "
                         "interface %d); build both together",
                         path, module != NULL ? module->version : "unknown",
                         module != NULL ? module->abi : 0, CCSTREAM_VERSION, BACKEND_MODULE_ABI);
    }
    return STATUS_OK;
}

enum status
cuda_module_load(const struct backend_module **out, const char *path, struct error *err) {
    *out = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        return error_set(err, STATUS_UNSUPPORTED, "%s cannot be loaded: %s", path,
                         why != NULL ? why : "no reason given");
    }
    backend_module_entry *entry;
    void *symbol = dlsym(library, BACKEND_MODULE_SYMBOL);
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from an object to a function */
    enum status s = STATUS_OK;
    if (symbol == NULL) {
        s = error_set(err, STATUS_UNSUPPORTED, "%s is not a module of ccstream: it has no %s", path,
                      BACKEND_MODULE_SYMBOL);
    } else {
        s = check_build(entry(), path, err);
    }
    if (s != STATUS_OK) {
        (void)dlclose(library);
        return s;
    }
    *out = entry(); /* never unloaded: its devices and CUDA's own threads use it */
    return STATUS_OK;
}

/* The driver's library comes with the driver alone, not with the toolkit. */
static bool driver_present(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver != NULL) {
        (void)dlclose(driver);
    }
    return driver != NULL;
}

static enum status find_and_load(const struct backend_module **out, struct error *err) {
    char path[PATH_MAX];
    if (!find_module(path, sizeof path)) {
        return error_set(err, STATUS_UNSUPPORTED,
                         "this build has no CUDA module (%s next to the program)", file_name);
    }
    if (!driver_present()) {
        return error_set(err, STATUS_UNSUPPORTED,
                         "no NVIDIA driver: libcuda.so.1 is not on this machine");
    }
    return cuda_module_load(out, path, err);
}

enum status cuda_module(const struct backend_module **out, struct error *err) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const struct backend_module *loaded; /* guarded by lock */
    enum status s = STATUS_OK;
    (void)pthread_mutex_lock(&lock);
    if (loaded == NULL) {
        s = find_and_load(&loaded, err);
    }
    *out = loaded;
    (void)pthread_mutex_unlock(&lock);
    return s;
}
