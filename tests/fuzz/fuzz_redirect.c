/*
 * A chain of redirects, any bytes: none leads nearer to this machine than the server that sent it,
 * from https to http, or to another scheme; what may be asked is what a second reading of the
 * host's address finds; and a name in normal form stays what it is.
 *
 * Input: LF-separated lines: the first URL; then for each redirect the address that answered and
 * where it leads.
 */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/http_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes);

static void demand(bool holds) {
    if (!holds) {
        abort();
    }
}

/* Whether an address of IPv4, in the order of this machine, is public by its written ranges. */
static bool is_public(uint32_t a) {
    static const char *const ranges[][2] = {
        {"0.0.0.0", "0.255.255.255"},       {"10.0.0.0", "10.255.255.255"},
        {"100.64.0.0", "100.127.255.255"},  {"100.100.100.200", "100.100.100.200"},
        {"127.0.0.0", "127.255.255.255"},   {"168.63.129.16", "168.63.129.16"},
        {"169.254.0.0", "169.254.255.255"}, {"172.16.0.0", "172.31.255.255"},
        {"192.0.0.0", "192.0.0.255"},       {"192.0.2.0", "192.0.2.255"},
        {"192.88.99.0", "192.88.99.255"},   {"192.168.0.0", "192.168.255.255"},
        {"198.18.0.0", "198.19.255.255"},   {"198.51.100.0", "198.51.100.255"},
        {"203.0.113.0", "203.0.113.255"},   {"224.0.0.0", "255.255.255.255"},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        if (a >= ntohl(inet_addr(ranges[i][0])) && a <= ntohl(inet_addr(ranges[i][1]))) {
            return false;
        }
    }
    return true;
}

/* A host that the system reads as an address, in whatever spelling, is one that is judged. */
static void check_host(const struct url *u) {
    static const struct proxies none;
    struct in_addr v4;
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6};
    struct sockaddr_in to4 = {.sin_family = AF_INET};
    char bare[URL_HOST_BYTES];
    const bool v6 = u->host[0] == '[';
    strcpy(bare, u->host + (v6 ? 1 : 0));
    bare[strcspn(bare, v6 ? "]" : "")] = '\0';
    const struct sockaddr *to = NULL;
    if (!v6 && inet_aton(u->host, &v4) != 0) {
        demand(is_public(ntohl(v4.s_addr)) == (url_host_scope(u) == ADDRESS_PUBLIC));
        to4.sin_addr = v4;
        to = (const struct sockaddr *)&to4;
    } else if (v6 && inet_pton(AF_INET6, bare, &to6.sin6_addr) == 1) {
        const uint8_t *a = to6.sin6_addr.s6_addr;
        demand((a[0] >> 5) == 1 || url_host_scope(u) != ADDRESS_PUBLIC ||
               IN6_IS_ADDR_V4MAPPED(&to6.sin6_addr) || memcmp(a, "\0\x64\xff\x9b", 4) == 0);
        to = (const struct sockaddr *)&to6;
    }
    for (int scope = ADDRESS_PUBLIC; scope <= ADDRESS_LINK && to != NULL; scope++) {
        demand(proxies_allow(&none, to, (enum address_scope)scope) ==
               (url_host_scope(u) <= (enum address_scope)scope));
    }
}

static void check_url(const struct url *u) {
    struct url again;
    demand(strncmp(u->text, "http://", 7) == 0 || strncmp(u->text, "https://", 8) == 0);
    demand(u->path != NULL && u->path[0] == '/' && strpbrk(u->text, " \r\n\t#") == NULL);
    demand(url_init(&again, u->text, NULL, NULL) == STATUS_OK);
    demand(strcmp(u->origin, again.origin) == 0 && strcmp(u->host, again.host) == 0 &&
           url_host_scope(u) == url_host_scope(&again));
    url_fini(&again);
    check_host(u);
}

static enum address_scope scope_of(const char *address) {
    uint8_t bytes[16];
    return inet_pton(AF_INET, address, bytes) == 1    ? address_scope_v4(bytes)
           : inet_pton(AF_INET6, address, bytes) == 1 ? address_scope_v6(bytes)
                                                      : ADDRESS_PUBLIC;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes) {
    static const char *const unset[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
                                        "ALL_PROXY"};
    for (size_t i = 0; i < sizeof unset / sizeof unset[0]; i++) {
        unsetenv(unset[i]);
    }
    char *text = malloc(size_bytes + 1);
    demand(text != NULL);
    memcpy(text, data, size_bytes);
    text[size_bytes] = '\0';
    char *rest = text;
    const char *line = strsep(&rest, "\n");
    const bool keep_https = size_bytes % 2 == 0;
    struct url at;
    bool more = url_init(&at, line, NULL, NULL) == STATUS_OK;
    enum address_scope scope = more ? url_host_scope(&at) : ADDRESS_PUBLIC;
    while (more) {
        check_url(&at);
        const char *address = strsep(&rest, "\n");
        const char *to = strsep(&rest, "\n");
        const enum address_scope before = scope;
        struct url next = {0};
        more = to != NULL &&
               http_redirect(&next, &scope, at.text, address, to, keep_https, NULL) == STATUS_OK;
        if (more) {
            demand(scope <= before && scope <= scope_of(address));
            demand(!keep_https || strncmp(at.text, "https:", 6) != 0 ||
                   strncmp(next.text, "https:", 6) == 0);
        }
        url_fini(&at);
        at = next;
    }
    free(text);
    return 0;
}
