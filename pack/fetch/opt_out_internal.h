/*
 * opt_out: a list of hosts, URLs and pictures that must not be fetched.
 *
 * A text, one entry a line; empty lines and those that begin with # are skipped:
 *
 *     example.org                      this host and all below it
 *     https://example.com/a/b.jpg      this URL
 *     9f86d081884c7d65                 the picture with this XXH64, as the ledger writes it
 *
 * Threading : does not change once it is open.
 * Untrusted : the file.
 * Memory    : 8 bytes an entry.
 */
#ifndef PACK_FETCH_OPT_OUT_INTERNAL_H
#define PACK_FETCH_OPT_OUT_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/file_io.h"
#include "net/url.h"

struct opt_out; /* opaque */

/* Returns OK, NOTFOUND, IO, LIMIT (more than 1 GiB), NOMEM, UNSUPPORTED (URLs without libcurl), or
 * CORRUPT with the line that is none of the three. */
enum status opt_out_open(struct opt_out **out,
                         const struct file_system *fs,
                         const char *path,
                         struct error *err);
void opt_out_close(struct opt_out *o); /* accepts NULL */

/* NULL has no entries. */
bool opt_out_has_url(const struct opt_out *o, const struct url *u);
bool opt_out_has_picture(const struct opt_out *o, uint64_t hash);

#endif
