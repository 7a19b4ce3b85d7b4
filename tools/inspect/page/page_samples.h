/*
 * page_samples: samples of an input on a page: one, and queries with the samples that they find.
 *
 * Threading : single-owner.
 * Untrusted : the samples, and the queries.
 */
#ifndef TOOLS_INSPECT_PAGE_PAGE_SAMPLES_H
#define TOOLS_INSPECT_PAGE_PAGE_SAMPLES_H

#include "formats/json/json_reader.h"
#include "tools/inspect/input.h"
#include "tools/inspect/page/page.h"

/* Opens the card of the input's current sample with this caption of it; "" where there is none.
 * page_card_end closes it. On failure nothing is open. */
enum status page_sample(struct page *p,
                        struct input *in,
                        const struct sample_facts *f,
                        uint64_t caption,
                        const char *mark,
                        struct error *err);

/* Queries as examples_write_json writes them, the best ranks first. */
struct page_queries {
    const struct json_value *now, *before; /* before: the same at the first evaluation; or NULL */
    bool by_caption;                       /* captions are the queries, images what they find */
    uint64_t first_rank, last_rank;        /* only queries whose own one is ranked from .. to */
    bool own;                              /* a row begins with the caption's own image */
};
enum status
page_queries(struct page *p, struct input *in, const struct page_queries *q, struct error *err);

#endif
