/*
 * libcurl's parser is the one that will connect, so there is no second opinion on where a URL
 * leads.
 */
#include "net/url.h"

#include <arpa/inet.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "net/curl_library_internal.h"

static enum status refuse(struct error *err, const char *text, const char *why) {
    return error_set(err, STATUS_INVALID, "'%.200s' is not a URL that can be fetched: %s", text,
                     why);
}

static CURLUcode
parse(const struct curl_library *curl, CURLU *u, const char *text, const char *base) {
    const unsigned flags = CURLU_URLENCODE | CURLU_ALLOW_SPACE;
    if (base != NULL) {
        const CURLUcode code = curl->url_set(u, CURLUPART_URL, base, flags);
        if (code != CURLUE_OK) {
            return code;
        }
    }
    CURLUcode code = curl->url_set(u, CURLUPART_URL, text, flags);
    if (code == CURLUE_OK) {
        code = curl->url_set(u, CURLUPART_FRAGMENT, NULL, 0);
    }
    return code;
}

static locale_t utf8;

static void make_utf8(void) {
    utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

/* The host in ASCII: letters of other scripts as xn--... (IDNA), which libcurl does by the thread's
 * locale, and ours is C. Where it cannot, the host stays as it is, and no connection will be made.
 */
static CURLUcode get_host(const struct curl_library *curl, CURLU *u, char **host) {
    const CURLUcode code = curl->url_get(u, CURLUPART_HOST, host, 0);
#ifdef CURLU_PUNYCODE /* libcurl 7.88 */
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *at = code == CURLUE_OK ? *host : "";
    while (*at != '\0' && (uint8_t)*at < 128) {
        at++;
    }
    (void)pthread_once(&once, make_utf8);
    if (*at != '\0' && utf8 != (locale_t)0) {
        char *ascii = NULL;
        const locale_t old = uselocale(utf8);
        if (curl->url_get(u, CURLUPART_HOST, &ascii, CURLU_PUNYCODE) == CURLUE_OK) {
            curl->free(*host);
            *host = ascii;
        }
        (void)uselocale(old);
    }
#endif
    return code;
}

/* libcurl keeps the case of a host. */
static CURLUcode lower_host(const struct curl_library *curl, CURLU *u, char *host) {
    for (char *c = host; *c != '\0'; c++) {
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c + ('a' - 'A') : *c);
    }
    return curl->url_set(u, CURLUPART_HOST, host, 0);
}

static enum status fill(struct url *out,
                        const struct curl_library *curl,
                        CURLU *u,
                        const char *text,
                        struct error *err) {
    char *scheme = NULL;
    char *host = NULL;
    char *port = NULL;
    char *whole = NULL;
    enum status s = STATUS_OK;
    if (curl->url_get(u, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        get_host(curl, u, &host) != CURLUE_OK || lower_host(curl, u, host) != CURLUE_OK ||
        curl->url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK ||
        curl->url_get(u, CURLUPART_URL, &whole, 0) != CURLUE_OK) {
        s = refuse(err, text, "it has no host");
    } else if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0) {
        s = refuse(err, text, "its scheme is neither http nor https");
    } else if (strlen(host) >= sizeof out->host) {
        s = refuse(err, text, "its host is too long");
    } else if (strlen(whole) >= URL_MAX_BYTES) {
        s = error_set(err, STATUS_LIMIT, "'%.200s...' is longer than %d bytes", text,
                      URL_MAX_BYTES);
    } else if ((out->text = strdup(whole)) == NULL) {
        s = error_set(err, STATUS_NOMEM, "no memory for a URL");
    } else {
        (void)snprintf(out->host, sizeof out->host, "%s", host);
        (void)snprintf(out->origin, sizeof out->origin, "%s://%s:%s", scheme, host, port);
        out->path = strchr(strstr(out->text, "://") + 3, '/');
    }
    curl->free(scheme);
    curl->free(host);
    curl->free(port);
    curl->free(whole);
    return s;
}

enum status url_init(struct url *out, const char *text, const char *base, struct error *err) {
    *out = (struct url){0};
    const struct curl_library *curl;
    TRY(curl_library_get(&curl, err));
    if (strlen(text) >= URL_MAX_BYTES) {
        return error_set(err, STATUS_LIMIT, "'%.200s...' is longer than %d bytes", text,
                         URL_MAX_BYTES);
    }
    CURLU *u = curl->url();
    if (u == NULL) {
        return error_set(err, STATUS_NOMEM, "no memory for a URL");
    }
    const CURLUcode code = parse(curl, u, text, base);
    enum status s;
    if (code == CURLUE_OUT_OF_MEMORY) {
        s = error_set(err, STATUS_NOMEM, "no memory for a URL");
    } else if (code == CURLUE_UNSUPPORTED_SCHEME) {
        s = refuse(err, text, "its scheme is neither http nor https");
    } else if (code != CURLUE_OK) {
        s = refuse(err, text, "it is malformed");
    } else {
        s = fill(out, curl, u, text, err);
    }
    curl->url_cleanup(u);
    return s;
}

void url_fini(struct url *u) {
    free(u->text);
    *u = (struct url){0};
}

/* Whether the first `bits` of an address are those of `prefix`. */
static bool has_prefix(const uint8_t *address, const uint8_t *prefix, unsigned bits) {
    const unsigned whole = bits / 8;
    const unsigned rest = bits % 8;
    return memcmp(address, prefix, whole) == 0 &&
           (rest == 0 || ((address[whole] ^ prefix[whole]) >> (8 - rest)) == 0);
}

bool address_is_private_v4(const uint8_t address[4]) {
    /* IANA's registry of special-purpose addresses, and multicast. */
    static const struct {
        uint8_t prefix[4];
        uint8_t bits;
    } ranges[] = {
        {{0, 0, 0, 0}, 8},     {{10, 0, 0, 0}, 8},      {{100, 64, 0, 0}, 10},
        {{127, 0, 0, 0}, 8},   {{169, 254, 0, 0}, 16},  {{172, 16, 0, 0}, 12},
        {{192, 0, 0, 0}, 24},  {{192, 0, 2, 0}, 24},    {{192, 168, 0, 0}, 16},
        {{198, 18, 0, 0}, 15}, {{198, 51, 100, 0}, 24}, {{203, 0, 113, 0}, 24},
        {{224, 0, 0, 0}, 3}, /* multicast, reserved, broadcast */
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (has_prefix(address, ranges[i].prefix, ranges[i].bits)) {
            return true;
        }
    }
    return false;
}

bool address_is_private_v6(const uint8_t address[16]) {
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b};
    static const uint8_t six_to_four[2] = {0x20, 0x02};
    static const uint8_t documentation[4] = {0x20, 0x01, 0x0d, 0xb8};
    static const uint8_t global_unicast[1] = {0x20}; /* 2000::/3 */
    if (has_prefix(address, mapped, 96) || has_prefix(address, nat64, 96)) {
        return address_is_private_v4(address + 12);
    }
    if (has_prefix(address, six_to_four, 16)) {
        return address_is_private_v4(address + 2);
    }
    return !has_prefix(address, global_unicast, 3) || has_prefix(address, documentation, 32);
}

bool url_host_is_private(const struct url *u) {
    const size_t size = strlen(u->host);
    uint8_t address[16];
    if (strcmp(u->host, "localhost") == 0 ||
        (size > 10 && strcmp(u->host + size - 10, ".localhost") == 0)) {
        return true;
    }
    if (u->host[0] == '[') {
        char bare[URL_HOST_BYTES];
        (void)snprintf(bare, sizeof bare, "%.*s", (int)strcspn(u->host + 1, "]%"), u->host + 1);
        return inet_pton(AF_INET6, bare, address) == 1 && address_is_private_v6(address);
    }
    return inet_pton(AF_INET, u->host, address) == 1 && address_is_private_v4(address);
}
