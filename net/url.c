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
            char *old_host = *host;
            *host = ascii;
            ascii = old_host;
        }
        curl->free(ascii); /* a failure may leave a copy too */
        (void)uselocale(old);
    }
#endif
    return code;
}

/* libcurl keeps the case of a host, and numbers whose digits are percent-encoded. */
static CURLUcode normalise_host(const struct curl_library *curl, CURLU *u, char **host) {
    char quad[INET_ADDRSTRLEN];
    struct in_addr v4;
    const bool is_number = inet_aton(*host, &v4) != 0;
    for (char *c = *host; *c != '\0'; c++) {
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c + ('a' - 'A') : *c);
    }
    const CURLUcode code = curl->url_set(
        u, CURLUPART_HOST, is_number ? inet_ntop(AF_INET, &v4, quad, sizeof quad) : *host, 0);
    curl->free(*host);
    *host = NULL;
    return code != CURLUE_OK ? code : curl->url_get(u, CURLUPART_HOST, host, 0);
}

/* libcurl keeps spaces and bytes above 127 in user names and passwords, and what has them is no
 * URL.
 */
static CURLUcode normalise_user(const struct curl_library *curl, CURLU *u) {
    static const struct {
        CURLUPart part;
        CURLUcode none;
    } parts[] = {{CURLUPART_USER, CURLUE_NO_USER}, {CURLUPART_PASSWORD, CURLUE_NO_PASSWORD}};
    CURLUcode code = CURLUE_OK;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && code == CURLUE_OK; i++) {
        char *text = NULL;
        code = curl->url_get(u, parts[i].part, &text, CURLU_URLDECODE);
        code = code == CURLUE_OK       ? curl->url_set(u, parts[i].part, text, CURLU_URLENCODE)
               : code == parts[i].none ? CURLUE_OK
                                       : code;
        curl->free(text);
    }
    return code;
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
        get_host(curl, u, &host) != CURLUE_OK || normalise_host(curl, u, &host) != CURLUE_OK ||
        curl->url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK ||
        curl->url_get(u, CURLUPART_URL, &whole, 0) != CURLUE_OK) {
        s = refuse(err, text, "it has no host");
    } else if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0) {
        s = refuse(err, text, "its scheme is neither http nor https");
    } else if (strlen(host) >= sizeof out->host) {
        s = refuse(err, text, "its host is too long");
    } else if (strchr(host, '\177') != NULL) { /* libcurl takes it percent-encoded, and only so */
        s = refuse(err, text, "its host has a control character");
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
    } else if (normalise_user(curl, u) != CURLUE_OK) {
        s = refuse(err, text, "its user name or password has a control character");
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

enum address_scope address_scope_v4(const uint8_t address[4]) {
    /* The metadata services of clouds, then IANA's registry of special-purpose addresses, and
     * multicast. The first that fits counts. */
    static const struct {
        uint8_t prefix[4];
        uint8_t bits;
        enum address_scope scope;
    } ranges[] = {
        {{169, 254, 0, 0}, 16, ADDRESS_LINK},     {{100, 100, 100, 200}, 32, ADDRESS_LINK},
        {{168, 63, 129, 16}, 32, ADDRESS_LINK},   {{192, 0, 0, 192}, 32, ADDRESS_LINK},
        {{0, 0, 0, 0}, 8, ADDRESS_LOOPBACK},      {{127, 0, 0, 0}, 8, ADDRESS_LOOPBACK},
        {{10, 0, 0, 0}, 8, ADDRESS_PRIVATE},      {{100, 64, 0, 0}, 10, ADDRESS_PRIVATE},
        {{172, 16, 0, 0}, 12, ADDRESS_PRIVATE},   {{192, 0, 0, 0}, 24, ADDRESS_PRIVATE},
        {{192, 0, 2, 0}, 24, ADDRESS_PRIVATE},    {{192, 88, 99, 0}, 24, ADDRESS_PRIVATE},
        {{192, 168, 0, 0}, 16, ADDRESS_PRIVATE},  {{198, 18, 0, 0}, 15, ADDRESS_PRIVATE},
        {{198, 51, 100, 0}, 24, ADDRESS_PRIVATE}, {{203, 0, 113, 0}, 24, ADDRESS_PRIVATE},
        {{224, 0, 0, 0}, 3, ADDRESS_PRIVATE}, /* multicast, reserved, broadcast */
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (has_prefix(address, ranges[i].prefix, ranges[i].bits)) {
            return ranges[i].scope;
        }
    }
    return ADDRESS_PUBLIC;
}

enum address_scope address_scope_v6(const uint8_t address[16]) {
    /* Those that hold an address of IPv4, by its place; then others. */
    static const struct {
        uint8_t prefix[15];
        uint8_t bits, v4_at;
        enum address_scope scope;
    } ranges[] = {
        {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96, 12, 0}, /* mapped */
        {{0x00, 0x64, 0xff, 0x9b}, 96, 12, 0},                   /* NAT64 */
        {{0x20, 0x02}, 16, 2, 0},                                /* 6to4 */
        {{0}, 120, 0, ADDRESS_LOOPBACK},                         /* :: and ::1 */
        {{0xfe, 0x80}, 10, 0, ADDRESS_LINK},
        {{0xfd, 0x00, 0x0e, 0xc2}, 32, 0, ADDRESS_LINK},    /* metadata of EC2 */
        {{0x20, 0x01, 0x0d, 0xb8}, 32, 0, ADDRESS_PRIVATE}, /* documentation */
        {{0x3f, 0xff}, 20, 0, ADDRESS_PRIVATE},             /* documentation */
        {{0x20, 0x01, 0x00}, 23, 0, ADDRESS_PRIVATE},       /* Teredo, benchmarks, ... */
        {{0x20}, 3, 0, ADDRESS_PUBLIC},                     /* global unicast */
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (has_prefix(address, ranges[i].prefix, ranges[i].bits)) {
            return ranges[i].v4_at > 0 ? address_scope_v4(address + ranges[i].v4_at)
                                       : ranges[i].scope;
        }
    }
    return ADDRESS_PRIVATE;
}

/* Names that no public server has: of one label, or below a domain kept for local networks. */
static bool is_local_name(const char *host, size_t size_bytes) {
    static const char *const domains[] = {".localhost", ".local", ".internal",
                                          ".home.arpa", ".svc",   ".lan"};
    bool local = memchr(host, '.', size_bytes) == NULL;
    for (size_t i = 0; i < sizeof domains / sizeof domains[0] && !local; i++) {
        const size_t n = strlen(domains[i]);
        local = size_bytes > n && memcmp(host + size_bytes - n, domains[i], n) == 0;
    }
    return local;
}

enum address_scope url_host_scope(const struct url *u) {
    size_t size = strlen(u->host);
    uint8_t address[16];
    if (u->host[0] == '[') {
        char bare[URL_HOST_BYTES];
        (void)snprintf(bare, sizeof bare, "%.*s", (int)strcspn(u->host + 1, "]%"), u->host + 1);
        return inet_pton(AF_INET6, bare, address) == 1 ? address_scope_v6(address) : ADDRESS_LINK;
    }
    if (inet_pton(AF_INET, u->host, address) == 1) {
        return address_scope_v4(address);
    }
    size -= size > 0 && u->host[size - 1] == '.';
    return is_local_name(u->host, size) ? ADDRESS_LOOPBACK : ADDRESS_PUBLIC;
}
