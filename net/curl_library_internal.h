/*
 * curl_library: the functions of libcurl that net/ uses, loaded at run time.
 *
 * Threading : curl_library_get may be called by any thread; the table never changes afterwards.
 * Ownership : the table lives until the process ends.
 */
#ifndef NET_CURL_LIBRARY_INTERNAL_H
#define NET_CURL_LIBRARY_INTERNAL_H

#define CURL_DISABLE_TYPECHECK /* its macros would take part in the declarations below */
#include <curl/curl.h>

#include "formats/base/status.h"

/* Function of libcurl, without its prefix curl_. */
#define CURL_LIBRARY_LIST(X)                                                                       \
    X(easy_cleanup)                                                                                \
    X(easy_getinfo)                                                                                \
    X(easy_header)                                                                                 \
    X(easy_init)                                                                                   \
    X(easy_reset)                                                                                  \
    X(easy_setopt)                                                                                 \
    X(easy_strerror)                                                                               \
    X(free)                                                                                        \
    X(global_init)                                                                                 \
    X(multi_add_handle)                                                                            \
    X(multi_cleanup)                                                                               \
    X(multi_info_read)                                                                             \
    X(multi_init)                                                                                  \
    X(multi_perform)                                                                               \
    X(multi_poll)                                                                                  \
    X(multi_remove_handle)                                                                         \
    X(multi_setopt)                                                                                \
    X(multi_strerror)                                                                              \
    X(multi_wakeup)                                                                                \
    X(slist_append)                                                                                \
    X(slist_free_all)                                                                              \
    X(url)                                                                                         \
    X(url_cleanup)                                                                                 \
    X(url_get)                                                                                     \
    X(url_set)                                                                                     \
    X(version_info)

struct curl_library {
#define X(name) __typeof__(curl_##name) *name;
    CURL_LIBRARY_LIST(X)
#undef X
};

/* Loads libcurl at the first call. Returns OK, or UNSUPPORTED with a message that names the
 * package to install or the version that is too old. */
enum status curl_library_get(const struct curl_library **out, struct error *err);

#endif
