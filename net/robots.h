/*
 * robots: the rules of one robots.txt that apply to one crawler (RFC 9309), parsed and matched.
 *
 * The groups that name the crawler apply, all of them together; if there is none, the groups of
 * `*`. Of the rules that match a path the one with the most octets decides, `allow` among equals; a
 * path that none matches is allowed. In rules `*` stands for any octets, and `$` at the end for the
 * end of the path. Octets and their percent-encodings are equal, except / and ? before the query.
 * Line ends are LF, CR LF and CR; keys and tokens match in any case; a missing colon and the
 * frequent misspellings of keys are understood; other lines do not end a group.
 *
 * The caller handles responses other than 2xx (RFC 9309, section 2.3.1): 4xx allows everything, 5xx
 * and an unreachable server forbid everything.
 *
 * Threading : pure functions; objects do not change after their creation.
 * Ownership : copies what it keeps.
 * Untrusted : every byte of the file and of the path.
 * Memory    : one block: for each rule its text and 2 bytes. Most hosts need less than 1 KiB.
 */
#ifndef NET_ROBOTS_H
#define NET_ROBOTS_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/status.h"

#define ROBOTS_MAX_BYTES      (500 * 1024) /* of a file; further lines are ignored */
#define ROBOTS_MAX_KEPT_BYTES (64 * 1024)

struct robots; /* opaque */

/* Keeps the rules for the crawler `agent` (its product token: letters, - and _). *out is NULL if
 * there are none. Returns OK, NOMEM, INVALID for another token, or LIMIT if they exceed
 * ROBOTS_MAX_KEPT_BYTES; polite is then to fetch nothing of the host. */
enum status robots_create(struct robots **out,
                          const void *text,
                          size_t size_bytes,
                          const char *agent,
                          struct error *err);
void robots_destroy(struct robots *r); /* accepts NULL */

/* Whether the rules allow a URL's path with its query, as in /a/b?c. NULL: no rules. False too if
 * that cannot be decided in about 20 ms. */
bool robots_allows(const struct robots *r, const char *path);

/* Heap size in bytes; 0 for NULL. */
size_t robots_memory_bytes(const struct robots *r);

#endif
