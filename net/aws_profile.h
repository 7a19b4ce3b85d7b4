/*
 * aws_profile: keys, region and endpoint for S3, from the environment and from the files that the
 * AWS tools write.
 *
 *   keys     : AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN (unless a profile is
 *              asked for by name), else the profile
 *   region   : AWS_REGION, AWS_DEFAULT_REGION, else the profile
 *   endpoint : AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, else the profile
 *   profile  : the one asked for, AWS_PROFILE, or `default`; a section of ~/.aws/credentials
 *              (AWS_SHARED_CREDENTIALS_FILE) and one of ~/.aws/config (AWS_CONFIG_FILE)
 *
 * Not read: single sign-on, roles and credential_process; a profile with these and without keys is
 *           an error that explains how to get keys from it. Nested settings (`s3 =` and indented
 *           lines) and [services] are ignored.
 *
 * Threading : reads the environment: not while another thread changes it.
 * Ownership : a struct aws_profile owns its strings until aws_profile_fini.
 * Untrusted : the files. Values with spaces or control characters are refused.
 */
#ifndef NET_AWS_PROFILE_H
#define NET_AWS_PROFILE_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/status.h"

#define AWS_MAX_FILE_BYTES (1 << 20)

/* NULL: not set. */
struct aws_profile {
    char *access_key, *secret_key; /* both or none */
    char *session_token;           /* only with keys */
    char *region;
    char *endpoint; /* URL */
};

/* `name`: the requested profile; NULL: as above. A profile requested here or by AWS_PROFILE must
 * exist. Returns OK (also if there are no keys), NOTFOUND, CORRUPT for an inconsistent file,
 * UNSUPPORTED for a profile that gets its keys from elsewhere, INVALID if the environment has only
 * one key of the pair, IO, LIMIT or NOMEM. After a failure *out is empty. */
enum status aws_profile_find(struct aws_profile *out, const char *name, struct error *err);
void aws_profile_fini(struct aws_profile *p);

/* Reads one file's settings of a profile; adds those that *out lacks. `path` is for messages;
 * is_config: sections are called `profile NAME`, except `default`. *found becomes true if there is
 * such a section. Returns OK, CORRUPT, UNSUPPORTED or NOMEM; *out stays valid. */
enum status aws_profile_parse(struct aws_profile *out,
                              bool *found,
                              const char *path,
                              const char *text,
                              size_t size_bytes,
                              bool is_config,
                              const char *name,
                              struct error *err);

#endif
