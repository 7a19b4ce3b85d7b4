/*
 * url: http and https URLs, read and normalised by libcurl's own parser; and which addresses are
 * private.
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
    char *text; /* scheme and host in lower case and ASCII, spaces and bytes above 127 of path and
                   query as %XX, no fragment; owned */
    const char *path;              /* within text: path and query; begins with / */
    char host[URL_HOST_BYTES];     /* lower case, in ASCII (xn--...); IPv6 in brackets */
    char origin[URL_ORIGIN_BYTES]; /* scheme://host:port */
};

/* Reads `text`, relative to `base` where that is not NULL; dot segments of the path are resolved.
 * Returns OK, NOMEM, INVALID for what is not an http(s) URL, LIMIT for one longer than
 * URL_MAX_BYTES, or UNSUPPORTED without libcurl. After a failure url_fini does nothing. */
enum status url_init(struct url *out, const char *text, const char *base, struct error *err);
void url_fini(struct url *u);

/* Whether an address of IPv4 (4 bytes, network order) or IPv6 (16 bytes) is anything but a public
 * unicast address: loopback, private, link-local, shared, multicast, documentation, unspecified, or
 * an IPv6 form of such an IPv4 address (mapped, NAT64, 6to4). */
bool address_is_private_v4(const uint8_t address[4]);
bool address_is_private_v6(const uint8_t address[16]);

/* Whether the host of a URL is written as an address that is private, or is localhost. */
bool url_host_is_private(const struct url *u);

#endif
