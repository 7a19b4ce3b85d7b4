/*
 * instance_metadata: keys of an Amazon EC2 instance's role, from its metadata service (version 2).
 *
 * A PUT request gets a token; with it, GET requests get the role's name and keys. The service is at
 * http://169.254.169.254, or at AWS_EC2_METADATA_SERVICE_ENDPOINT; AWS_EC2_METADATA_DISABLED=true
 * is respected.
 *
 * Threading : as http.h; the call blocks for a few seconds at most.
 * Untrusted : the answers; each is bounded, and keys with spaces or control characters are refused.
 */
#ifndef NET_INSTANCE_METADATA_H
#define NET_INSTANCE_METADATA_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/status.h"
#include "net/aws_profile.h"

/* Replaces the keys of *p, and their end, in seconds since 1970. Returns OK, NOTFOUND if the
 * machine has no role, IO if the service cannot be reached or refuses, CORRUPT for an answer that
 * cannot be read, UNSUPPORTED if it is disabled, or a failure of http_create. After a failure *p is
 * as before. */
enum status instance_metadata_keys(struct aws_profile *p, int64_t *end_s, struct error *err);

/* Reads the answer with the keys, as instance_metadata_keys does. Returns OK, CORRUPT or NOMEM. */
enum status instance_metadata_parse(struct aws_profile *p,
                                    int64_t *end_s,
                                    const char *text,
                                    size_t size_bytes,
                                    struct error *err);

#endif
