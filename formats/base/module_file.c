/*
 * A module that cannot be used is not an error of the program: the message says which file, and
 * why the loader refuses it.
 */
#include "formats/base/module_file.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

bool module_file_find(char *path,
                      size_t path_size,
                      const char *file_name,
                      const char *environment_variable) {
    const char *named = environment_variable != NULL ? secure_getenv(environment_variable) : NULL;
    if (named != NULL && named[0] != '\0') {
        const int n = snprintf(path, path_size, "%s", named);
        return n > 0 && (size_t)n < path_size;
    }
    static const char *const places[] = {"", "/../lib/ccstream", "/../lib64/ccstream"};
    char folder[PATH_MAX];
    if (!executable_folder(folder, sizeof folder)) {
        return false;
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const int n = snprintf(path, path_size, "%s%s/%s", folder, places[i], file_name);
        if (n > 0 && (size_t)n < path_size && access(path, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

enum status module_file_load(void **library,
                             void (**function)(void),
                             const char *path,
                             const char *symbol,
                             struct error *err) {
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (*library == NULL) {
        const char *why = dlerror();
        return error_set(err, STATUS_UNSUPPORTED, "%s cannot be loaded: %s", path,
                         why != NULL ? why : "no reason given");
    }
    void *found = dlsym(*library, symbol);
    if (found == NULL) {
        (void)dlclose(*library);
        *library = NULL;
        return error_set(err, STATUS_UNSUPPORTED, "%s is not a module of ccstream: it has no %s",
                         path, symbol);
    }
    memcpy(function, &found, sizeof found); /* ISO C has no cast from an object to a function */
    return STATUS_OK;
}

void module_file_unload(void *library) {
    (void)dlclose(library);
}
