/*
 * location: a remote folder, the URLs of its files, and the headers of their requests.
 *
 *   https://HOST/PATH[?QUERY]   as it is; a file's name goes after PATH (QUERY: as a signature
 * needs) s3://BUCKET[/PREFIX]        Amazon S3, or the server of an endpoint: MinIO, Ceph, R2, GCS
 *   hf://datasets/OWNER/NAME[@REVISION][/PATH]    files of a dataset of the Hugging Face Hub
 *
 * S3: https://BUCKET.s3.REGION.amazonaws.com/KEY, or with an endpoint, or a bucket that is not a
 * valid label of a host name, ENDPOINT/BUCKET/KEY. Requests are signed if there are keys
 * (aws_profile.h, or the instance's metadata service if that is allowed), and anonymous if there
 * are none. Hub: HF_ENDPOINT replaces https://huggingface.co; the token is HF_TOKEN, or the content
 * of the file HF_TOKEN_PATH, HF_HOME/token or ~/.cache/huggingface/token; without one requests are
 * anonymous.
 *
 * Threading : one owner at a time; creating one reads the environment.
 * Ownership : copies its arguments.
 * Untrusted : names of files. They are percent-encoded, and cannot lead out of the folder.
 */
#ifndef NET_LOCATION_H
#define NET_LOCATION_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/status.h"
#include "net/http.h"

struct location_options {   /* of s3:// only; zero-initialise for the defaults */
    const char *endpoint;   /* URL; NULL: of the profile or its environment, else Amazon's */
    const char *profile;    /* NULL: AWS_PROFILE, or `default` */
    bool instance_metadata; /* get keys from the instance metadata service if there are none */
};

struct location; /* opaque */

/* Whether a path is one of these locations: it begins with http://, https://, s3:// or hf://. */
bool location_is_remote(const char *path);

/* Sets the options of location_create for opt NULL, and whether requests for such locations may
 * reach all addresses. Call it at program start; `endpoint` is borrowed until exit. */
void location_set_defaults(const char *endpoint, bool instance_metadata, bool allow_private);
bool location_allows_private(void);

/* opt NULL: the defaults. Returns OK, USAGE for a text or an endpoint that cannot be read, NOMEM,
 * or a failure of aws_profile_find. */
enum status location_create(struct location **out,
                            const char *text,
                            const struct location_options *opt,
                            struct error *err);
void location_destroy(struct location *l); /* accepts NULL */

/* Whether its server is one that the options or the user's profile or environment name. */
bool location_endpoint_is_named(const struct location *l);

/* The URL of the file `name` of the folder; parts of a name are separated by /. Returns OK, INVALID
 * for a name with an empty part, `.` or `..`, or LIMIT. */
enum status location_url(const struct location *l,
                         char url[HTTP_MAX_URL_BYTES],
                         const char *name,
                         struct error *err);

/* The URL of the location itself, as of a file. Returns OK or LIMIT. */
enum status
location_file_url(const struct location *l, char url[HTTP_MAX_URL_BYTES], struct error *err);

/* Fills headers, header_count, signature and own_server of a request for a file of the folder; they
 * are borrowed until the next call or location_destroy. If the keys come from the metadata service
 * and expire within minutes, it is queried again, which may take seconds. Returns OK, or a failure
 * of that service if no valid keys are left. */
enum status location_authorize(struct location *l, struct http_request *request, struct error *err);

#endif
