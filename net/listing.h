/*
 * listing: expands a location with a pattern to files.
 *
 *   https://HOST/a-{0000..0575}.tar              braces: a range of numbers, or words with commas
 *   hf://datasets/OWNER/NAME[@REVISION]/a*.tar   also * ? [..], by the Hub's list of files; the
 *                                                revision becomes the commit that it is now
 *   s3://BUCKET/PREFIX*.tar                      likewise, by ListObjectsV2
 *
 * Threading : one owner.
 * Untrusted : lists. A name in a list only becomes part of a location, which is checked like any
 *             other.
 */
#ifndef NET_LISTING_H
#define NET_LISTING_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/bytes.h"
#include "formats/base/status.h"

struct location_options; /* net/location.h */

enum { LISTING_MAX_FILES = 100000 };

/* Whether a location is a pattern. */
bool listing_is_pattern(const char *text);

/* Appends the locations to `out`, each followed by a NUL: braces in their order, lists by name.
 * Returns OK; NOTFOUND (no file matches, or the server has no list); USAGE, LIMIT, IO, UNSUPPORTED
 * (no libcurl) or NOMEM. */
enum status listing_expand(struct byte_buffer *out, const char *text, struct error *err);

/* Expands the locations among a program's arguments; other arguments are copied. Locations of the
 * Hub get the current commit of their revision or, without a revision, the commit that file
 * `recorded` has for their repository ("": no such file). Call it once per program: *out stays
 * valid until exit. Returns as listing_expand. */
enum status listing_expand_all(const char ***out,
                               size_t *out_count,
                               const char *const *texts,
                               size_t count,
                               const char *recorded,
                               struct error *err);

/* The files of a folder, as its server lists them. */
struct listing; /* opaque */

struct listing_file {
    const char *name;    /* in the folder */
    const char *etag;    /* that answers have, with quotes; "": not known */
    uint64_t size_bytes; /* HTTP_UNKNOWN: not known */
};

/* Lists the files of a folder at the Hub or in a bucket, with at most max_pages requests;
 * subfolders are omitted. `how` NULL: the defaults of location.h. Returns OK; UNSUPPORTED (other
 * servers have no lists, or there is no libcurl); or as listing_expand. */
enum status listing_read(struct listing **out,
                         const char *folder,
                         const struct location_options *how,
                         bool allow_private,
                         uint32_t max_pages,
                         struct error *err);
void listing_destroy(struct listing *l); /* accepts NULL */

/* NULL: it is not there. */
const struct listing_file *listing_find(const struct listing *l, const char *name);

/* The total size of the locations that the servers' lists contain, and their number. */
void listing_measure(uint64_t *bytes,
                     size_t *found,
                     const char *const *locations,
                     size_t count,
                     bool allow_private);

/* For tests: appends the files in a page of the Hub's list or of S3's: name, size in digits (empty:
 * not known) and ETag, each with a NUL after it. Returns OK, CORRUPT, LIMIT or NOMEM. */
enum status listing_parse(struct byte_buffer *out, const char *page, bool is_s3, struct error *err);

#endif
