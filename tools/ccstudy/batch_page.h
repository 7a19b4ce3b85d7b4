/*
 * batch_page: the numbers of ccstudy batch, as JSON, as a table of text, and as a page with
 * figures.
 *
 * Threading : single-owner. Ownership: everything is borrowed for the call.
 */
#ifndef TOOLS_CCSTUDY_BATCH_PAGE_H
#define TOOLS_CCSTUDY_BATCH_PAGE_H

#include "formats/base/json_writer.h"
#include "tools/ccstudy/batch_cells.h"
#include "tools/cli/html.h"

struct batch_result {
    struct batch_cells cells;
    struct batch_table table; /* of the cells */
};

/* For struct study: `result` is a struct batch_result. */
void batch_write_json(struct json_writer *w, const void *result);
enum status
batch_draw_page(struct html_page *p, const void *result, const void *options, struct error *err);

/* On stdout. */
void batch_print_table(const struct batch_result *r);

#endif
