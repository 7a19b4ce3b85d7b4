/*
 * cuda_module: finds and loads libccstream_cuda.so, or the file that $CCSTREAM_CUDA_MODULE names.
 *
 * The driver is checked first: the module is useless without it, and loading it with its libraries
 * takes half a second.
 */
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/module_file.h"
#include "kernels/module_internal.h"

static const char file_name[] = "libccstream_cuda.so";

static enum status
check_build(const struct backend_module *module, const char *path, struct error *err) {
    if (module == NULL || module->abi != BACKEND_MODULE_ABI ||
        module->ops_size_bytes != sizeof(struct ops) ||
        strcmp(module->version, CCSTREAM_VERSION) != 0) {
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s is from another build (%s, interface %u) than this program (%s, "
                         "interface %d); build both together",
                         path, module != NULL ? module->version : "unknown",
                         module != NULL ? module->abi : 0, CCSTREAM_VERSION, BACKEND_MODULE_ABI);
    }
    return STATUS_OK;
}

/* Loads a library that the module needs and the loader does not find, from the folders of CUDA and
 * of Python's wheels; then the module finds it. No folder is relative. */
static bool load_from_elsewhere(const char *name) {
    static const char wheels[] = "/lib/python3*/site-packages/nvidia/*/lib";
    static const struct {
        const char *variable, *folders;
    } places[] = {{"CUDA_HOME", "/lib*"},   {"CUDNN_ROOT", "/lib*"},
                  {"VIRTUAL_ENV", wheels},  {"CONDA_PREFIX", wheels},
                  {"CONDA_PREFIX", "/lib"}, {NULL, "/usr/local/cuda/lib*"}};
    bool loaded = false;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !loaded; i++) {
        const char *base = places[i].variable != NULL ? secure_getenv(places[i].variable) : "";
        char pattern[PATH_MAX];
        glob_t found;
        if (base == NULL || (places[i].variable != NULL && base[0] != '/') ||
            snprintf(pattern, sizeof pattern, "%s%s/%s", base, places[i].folders, name) >=
                PATH_MAX ||
            glob(pattern, 0, NULL, &found) != 0) {
            continue;
        }
        for (size_t k = 0; k < found.gl_pathc && !loaded; k++) {
            loaded = dlopen(found.gl_pathv[k], RTLD_NOW | RTLD_LOCAL) != NULL;
        }
        globfree(&found);
    }
    return loaded;
}

/* module_file_load, repeated while another library is missing. */
static enum status
load_with_libraries(void **library, void (**function)(void), const char *path, struct error *err) {
    enum { LIBRARIES_MAX = 16 };
    for (int i = 0;; i++) {
        char name[64] = "";
        struct error why = {0};
        const enum status s =
            module_file_load(library, function, path, BACKEND_MODULE_SYMBOL, &why);
        const char *missing = strstr(why.text, " cannot be loaded: lib");
        if (s == STATUS_OK || missing == NULL || strstr(missing, ": cannot open shared") == NULL ||
            sscanf(missing, " cannot be loaded: %63[^:/ ]", name) != 1) {
            return s == STATUS_OK ? s : error_pass(err, s, &why);
        }
        if (i == LIBRARIES_MAX || !load_from_elsewhere(name)) {
            return error_set(err, s,
                             "%s cannot be loaded: %s is not found; add its folder to "
                             "LD_LIBRARY_PATH, or set CUDA_HOME (CUDA) or CUDNN_ROOT to the parent "
                             "folder; for wheels activate the environment",
                             path, name);
        }
    }
}

enum status
cuda_module_load(const struct backend_module **out, const char *path, struct error *err) {
    *out = NULL;
    void *library;
    void (*function)(void);
    TRY(load_with_libraries(&library, &function, path, err));
    backend_module_entry *const entry = (backend_module_entry *)function;
    const enum status s = check_build(entry(), path, err);
    if (s != STATUS_OK) {
        module_file_unload(library);
        return s;
    }
    *out = entry(); /* never unloaded: its devices and CUDA's own threads use it */
    return STATUS_OK;
}

/* The driver's library comes only with the driver, not with the toolkit. */
static bool driver_present(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver != NULL) {
        (void)dlclose(driver);
    }
    return driver != NULL;
}

static enum status find_and_load(const struct backend_module **out, struct error *err) {
    char path[PATH_MAX];
    FAIL_IF(!module_file_find(path, sizeof path, file_name, "CCSTREAM_CUDA_MODULE"), err,
            STATUS_UNSUPPORTED, "this build has no CUDA module (%s next to the program)",
            file_name);
    FAIL_IF(!driver_present(), err, STATUS_UNSUPPORTED,
            "no NVIDIA driver: libcuda.so.1 is not on this machine");
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
