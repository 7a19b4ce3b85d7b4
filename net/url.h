/*
 * url: http and https URLs, read and normalised by libcurl's own parser; and how near addresses
 * are.
 *
 * Threading : everything here may be called by any thread.
 * Untrusted : every byte of a URL.
 */
#ifndef NET_URL_H
#define NET_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/status.h"

#define URL_MAX_BYTES    8192
#define URL_HOST_BYTES   256 /* a host's name and its zero byte */
#define URL_ORIGIN_BYTES (URL_HOST_BYTES + 16)

struct url {
    char *text; /* scheme and host in lower case and ASCII, spaces and bytes above 127 as %XX, no
                   fragment; owned */
    const char *path;              /* within text: path and query; begins with / */
    char host[URL_HOST_BYTES];     /* lower case, in ASCII (xn--...); IPv6 in brackets */
    char origin[URL_ORIGIN_BYTES]; /* scheme://host:port */
};

/* Parses `text`, relative to `base` if that is not NULL; dot segments of the path are resolved.
 * Returns OK, NOMEM, INVALID if it is not an http(s) URL, LIMIT for one longer than URL_MAX_BYTES,
 * or UNSUPPORTED without libcurl. After a failure url_fini does nothing. */
enum status url_init(struct url *out, const char *text, const char *base, struct error *err);
void url_fini(struct url *u);

/* How near an address is to this machine: a request that is allowed one of them may reach those
 * before it too. */
enum address_scope {
    ADDRESS_PUBLIC,
    ADDRESS_PRIVATE,  /* private, shared, multicast, documentation, reserved */
    ADDRESS_LOOPBACK, /* of this machine, and unspecified */
    ADDRESS_LINK,     /* link-local, with the metadata services of clouds */
};

/* The scope of an IPv4 address (4 bytes, network order) or IPv6 address (16 bytes; mapped, NAT64
 * and 6to4 addresses by the IPv4 address inside). */
enum address_scope address_scope_v4(const uint8_t address[4]);
enum address_scope address_scope_v6(const uint8_t address[16]);

/* The scope of a URL's host as written, without DNS: that of an address; LOOPBACK for localhost and
 * names of local networks only (one label, .local, .internal, ...), else PUBLIC. */
enum address_scope url_host_scope(const struct url *u);

#endif
