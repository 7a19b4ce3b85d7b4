/*
 * libcurl asks the resolvers: by DNS over HTTPS (CURLOPT_DOH_URL), or name servers by address if it
 * is built with c-ares (CURLOPT_DNS_SERVERS). It takes one URL per request, so each host has one,
 * chosen by a hash of its name: every resolver has its share of the hosts and a warm cache.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "net/http_internal.h"

/* DNS over HTTPS of these versions crashes when a request is cancelled (curl's issue 14207). */
enum { DOH_BROKEN_FROM = 0x080500, DOH_BROKEN_UNTIL = 0x080900 };

/* The URL without what RFC 8484 calls a template: {?dns} at its end. */
static enum status add_url(struct resolvers *r, const char *text, struct error *err) {
    static const char template[] = "{?dns}";
    const size_t ending = sizeof template - 1;
    size_t size = strlen(text);
    if (size > ending && strcmp(text + size - ending, template) == 0) {
        size -= ending;
    }
    char *plain = strndup(text, size);
    if (plain == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for resolvers");
    }
    r->texts[r->count++] = plain;
    struct url u;
    const enum status s = url_init(&u, plain, NULL, err);
    url_fini(&u);
    return s == STATUS_INVALID
               ? error_set(err, STATUS_USAGE, "resolver '%.100s' is not a URL of https", text)
               : s;
}

/* The whole list, beginning with the address at `at`. */
static enum status
add_addresses(struct resolvers *r, const char *list, size_t at, struct error *err) {
    const int before = at > 0 ? (int)at - 1 : 0;
    char *text = NULL;
    if (asprintf(&text, "%s%s%.*s", list + at, before > 0 ? "," : "", before, list) < 0) {
        return error_set(err, STATUS_NOMEM, "no memory for resolvers");
    }
    r->texts[r->count++] = text;
    return STATUS_OK;
}

static enum status read_list(struct resolvers *r, const char *list, struct error *err) {
    for (size_t at = 0, size; at <= strlen(list); at += size + 1) {
        size = strcspn(list + at, ",");
        char text[HTTP_MAX_URL_BYTES];
        (void)snprintf(text, sizeof text, "%.*s", (int)size, list + at);
        const bool is_url = strncmp(text, "https://", 8) == 0;
        if (r->count == HTTP_MAX_RESOLVERS) {
            return error_set(err, STATUS_USAGE, "resolvers: more than %d", HTTP_MAX_RESOLVERS);
        }
        if (size == 0 || size >= sizeof text || (strstr(text, "://") != NULL && !is_url)) {
            return error_set(err, STATUS_USAGE,
                             "resolver '%.100s' is neither a URL of https nor an IP address", text);
        }
        if (r->count > 0 && is_url != r->are_urls) {
            return error_set(err, STATUS_USAGE,
                             "resolvers: pass either URLs of https or IP addresses, not both");
        }
        r->are_urls = is_url;
        TRY(is_url ? add_url(r, text, err) : add_addresses(r, list, at, err));
    }
    return STATUS_OK;
}

/* Whether this libcurl can ask them. */
static enum status
check_curl(const struct resolvers *r, const struct curl_library *curl, struct error *err) {
    const curl_version_info_data *version = curl->version_info(CURLVERSION_NOW);
    if (r->are_urls && version->version_num >= DOH_BROKEN_FROM &&
        version->version_num < DOH_BROKEN_UNTIL) {
        return error_set(err, STATUS_UNSUPPORTED,
                         "resolver %.100s: DNS over HTTPS is broken in libcurl %s (8.5 to 8.8); "
                         "let /etc/resolv.conf name a caching resolver, such as unbound",
                         r->texts[0], version->version);
    }
    CURL *easy = curl->easy_init();
    const CURLoption option = r->are_urls ? CURLOPT_DOH_URL : CURLOPT_DNS_SERVERS;
    const CURLcode code =
        easy != NULL ? curl->easy_setopt(easy, option, r->texts[0]) : CURLE_OUT_OF_MEMORY;
    curl->easy_cleanup(easy);
    switch (code) {
    case CURLE_OK:
        return STATUS_OK;
    case CURLE_OUT_OF_MEMORY:
        return error_set(err, STATUS_NOMEM, "no memory for resolvers");
    case CURLE_UNKNOWN_OPTION:
    case CURLE_NOT_BUILT_IN:
        return error_set(err, STATUS_UNSUPPORTED, "resolver %.60s: libcurl %s cannot ask it%s",
                         r->texts[0], version->version,
                         r->are_urls ? ""
                                     : ", as it is built without c-ares; pass a URL of DNS over "
                                       "HTTPS (https://HOST/dns-query), or let /etc/resolv.conf "
                                       "name the server");
    default:
        return error_set(err, STATUS_USAGE, "resolver '%.100s' is not an IP address", r->texts[0]);
    }
}

enum status resolvers_init(struct resolvers *r,
                           const char *list,
                           const struct curl_library *curl,
                           struct error *err) {
    *r = (struct resolvers){0};
    if (list == NULL) {
        return STATUS_OK;
    }
    const char *proxy = proxies_variable();
    if (proxy != NULL) {
        return error_set(err, STATUS_USAGE,
                         "resolvers have no effect behind a proxy, which resolves host names "
                         "itself: unset %s, or pass no resolvers",
                         proxy);
    }
    TRY(read_list(r, list, err));
    return check_curl(r, curl, err);
}

void resolvers_fini(struct resolvers *r) {
    for (size_t i = 0; i < r->count; i++) {
        free(r->texts[i]);
    }
    *r = (struct resolvers){0};
}

const char *resolvers_choose(const struct resolvers *r, const char *host) {
    return r->texts[hash64(host, strlen(host)) % r->count];
}

enum status http_check_resolvers(const char *list, struct error *err) {
    const struct curl_library *curl;
    TRY(curl_library_get(&curl, err));
    struct resolvers r;
    const enum status s = resolvers_init(&r, list, curl, err);
    resolvers_fini(&r);
    return s;
}
