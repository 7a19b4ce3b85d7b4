/*
 * listing_internal: a list of files as the Hub or a bucket sends it, page by page.
 *
 * Threading : one owner.
 */
#ifndef NET_LISTING_INTERNAL_H
#define NET_LISTING_INTERNAL_H

#include "net/http.h"
#include "net/listing.h"

enum { LISTING_MAX_PAGES = 1000, LISTING_NAME_BYTES = 4096 };

struct listing_page {
    struct byte_buffer text; /* ends with a NUL */
    char link[1024];
    enum status status;
    struct error error;
    bool done;
};

struct listing {
    struct http *http;
    struct location *location; /* whose keys or token the requests carry */
    uint32_t max_pages;
    struct listing_page page;
    struct byte_buffer names; /* of listing_parse */
    char url[HTTP_MAX_URL_BYTES], api[HTTP_MAX_URL_BYTES], file[HTTP_MAX_URL_BYTES];
    char base[HTTP_MAX_URL_BYTES]; /* before the names: hf://datasets/O/N@COMMIT/, s3://BUCKET/ */
    struct listing_file *files;    /* (file_count) by name, of listing_read */
    size_t file_count;
};

/* A list that was not read yet. opt and allow_private as in listing_read. listing_destroy is due in
 * any case. */
enum status listing_create(struct listing **out,
                           const char *folder,
                           const struct location_options *opt,
                           bool allow_private,
                           struct error *err);

/* The commit of the location's revision. Sets l->api: of the repository, with a slash at its end.
 * `text` is for messages. */
enum status
listing_ask_commit(struct listing *l, char commit[41], const char *text, struct error *err);
bool listing_is_commit(const char *text);

/* Appends to l->names the files of a repository's revision (`place`: REVISION[/FOLDER] as in URLs),
 * with those of folders below if `recursive`; or the objects of the bucket l->location whose keys
 * begin with `prefix`, without those below it if `flat`. Return OK, LIMIT (l->max_pages) or what
 * listing_expand returns. */
enum status
listing_get_tree(struct listing *l, const char *place, bool recursive, struct error *err);
enum status listing_get_keys(struct listing *l,
                             const char *prefix,
                             size_t prefix_bytes,
                             bool flat,
                             struct error *err);

/* The name of the file at *at in l->names, which moves to the next one; NULL after the last. */
const char *
listing_next(const struct byte_buffer *names, size_t *at, struct listing_file *out /* or NULL */);

#endif
