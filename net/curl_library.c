/*
 * Debian has libcurl twice, over OpenSSL and over GnuTLS (the one that git brings); either will do.
 */
#include "net/curl_library_internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#define OLDEST_VERSION 0x075500 /* 7.85: headers by name, protocols by name */

static struct {
    pthread_once_t once;
    enum status status;
    struct error error;
    struct curl_library table;
} library = {.once = PTHREAD_ONCE_INIT};

static enum status find_functions(void *handle, struct error *err) {
#define X(name)                                                                                    \
    {                                                                                              \
        void *found = dlsym(handle, "curl_" #name);                                                \
        if (found == NULL) {                                                                       \
            return error_set(err, STATUS_UNSUPPORTED,                                              \
                             "this libcurl is too old: it has no curl_" #name                      \
                             "; libcurl 7.85 or newer is required");                               \
        }                                                                                          \
        memcpy(&library.table.name, &found, sizeof found); /* ISO C has no cast to a function */   \
    }
    CURL_LIBRARY_LIST(X)
#undef X
    return STATUS_OK;
}

static enum status load(struct error *err) {
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *handle = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && handle == NULL; i++) {
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == NULL) {
        return error_set(err, STATUS_UNSUPPORTED,
                         "reading over the network needs libcurl, which is not installed; on "
                         "Debian and Ubuntu: apt-get install libcurl4");
    }
    TRY(find_functions(handle, err));
    const curl_version_info_data *version = library.table.version_info(CURLVERSION_NOW);
    if (version->version_num < OLDEST_VERSION) {
        return error_set(err, STATUS_UNSUPPORTED,
                         "libcurl %s is too old: 7.85 or newer is required", version->version);
    }
    if (library.table.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        return error_set(err, STATUS_UNSUPPORTED, "libcurl %s cannot be initialised",
                         version->version);
    }
    return STATUS_OK;
}

static void load_once(void) {
    library.status = load(&library.error);
}

enum status curl_library_get(const struct curl_library **out, struct error *err) {
    (void)pthread_once(&library.once, load_once);
    *out = NULL;
    if (library.status != STATUS_OK) {
        return error_set(err, library.status, "%s", library.error.text);
    }
    *out = &library.table;
    return STATUS_OK;
}
