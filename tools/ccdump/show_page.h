/*
 * show_page: samples on a page: image, captions, metadata, facts.
 *
 * Threading : single-owner.
 * Untrusted : the samples.
 */
#ifndef TOOLS_CCDUMP_SHOW_PAGE_H
#define TOOLS_CCDUMP_SHOW_PAGE_H

#include "tools/inspect/input.h"

/* Writes `path` for the current sample, with facts `first`, and up to count - 1 after it. The page
 * has at most 1 MiB apart from texts: images that it has no room for are omitted. Returns OK, IO,
 * NOMEM, LIMIT or CORRUPT. */
enum status show_page_write(const char *path,
                            struct input *in,
                            const struct sample_facts *first,
                            uint64_t count,
                            struct error *err);

#endif
