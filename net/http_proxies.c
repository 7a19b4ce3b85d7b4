/*
 * A proxy usually has a private address, and libcurl does not say whether an address it is about to
 * connect to is a proxy's: so those of the environment are looked up once. The target of a proxied
 * request is looked up by the proxy, where nobody can judge it.
 */
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "net/http_internal.h"

static void add_proxy(struct proxies *p, const struct curl_library *curl, const char *text) {
    CURLU *u = curl->url();
    char *host = NULL;
    char *port = NULL;
    if (u != NULL &&
        curl->url_set(u, CURLUPART_URL, text, CURLU_GUESS_SCHEME | CURLU_NON_SUPPORT_SCHEME) ==
            CURLUE_OK &&
        curl->url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK) {
        (void)curl->url_get(u, CURLUPART_PORT, &port, 0);
        /* An IPv6 host stands in brackets. */
        char *bare = host[0] == '[' ? host + 1 : host;
        bare[strcspn(bare, "]")] = '\0';
        struct addrinfo *found = NULL;
        const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
        if (getaddrinfo(bare, port != NULL ? port : "1080", &hints, &found) == 0) {
            for (struct addrinfo *a = found; a != NULL && p->count < HTTP_MAX_PROXIES;
                 a = a->ai_next) {
                memcpy(&p->addresses[p->count++], a->ai_addr, a->ai_addrlen);
            }
            freeaddrinfo(found);
        }
    }
    curl->free(host);
    curl->free(port);
    curl->url_cleanup(u);
}

static const char *const variables[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
                                        "ALL_PROXY"};
enum { VARIABLE_COUNT = sizeof variables / sizeof variables[0] };

static bool is_set(const char *variable) {
    const char *text = getenv(variable);
    return text != NULL && text[0] != '\0';
}

void proxies_init(struct proxies *p, const struct curl_library *curl) {
    *p = (struct proxies){0};
    for (size_t i = 0; i < VARIABLE_COUNT; i++) {
        if (is_set(variables[i])) {
            add_proxy(p, curl, getenv(variables[i]));
        }
    }
}

const char *proxies_variable(void) {
    for (size_t i = 0; i < VARIABLE_COUNT; i++) {
        if (is_set(variables[i])) {
            return variables[i];
        }
    }
    return NULL;
}

static bool is_same(const struct sockaddr *a, const struct sockaddr *b) {
    if (a->sa_family != b->sa_family) {
        return false;
    }
    if (a->sa_family == AF_INET) {
        const struct sockaddr_in *x = (const void *)a;
        const struct sockaddr_in *y = (const void *)b;
        return x->sin_port == y->sin_port && x->sin_addr.s_addr == y->sin_addr.s_addr;
    }
    const struct sockaddr_in6 *x = (const void *)a;
    const struct sockaddr_in6 *y = (const void *)b;
    return x->sin6_port == y->sin6_port && memcmp(&x->sin6_addr, &y->sin6_addr, 16) == 0;
}

bool proxies_allow(const struct proxies *p,
                   const struct sockaddr *address,
                   enum address_scope scope) {
    if (address->sa_family != AF_INET && address->sa_family != AF_INET6) {
        return false;
    }
    for (size_t i = 0; i < p->count; i++) {
        if (is_same((const void *)&p->addresses[i], address)) {
            return true;
        }
    }
    if (address->sa_family == AF_INET) {
        return address_scope_v4(
                   (const void *)&((const struct sockaddr_in *)(const void *)address)->sin_addr) <=
               scope;
    }
    return address_scope_v6(
               (const void *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr) <=
           scope;
}
