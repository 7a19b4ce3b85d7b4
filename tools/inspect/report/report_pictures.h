/*
 * report_pictures: pictures and captions of one run's page: what captions and pictures found at the
 * last evaluation, and the samples with the greatest and the least numbers in the last checkpoint.
 *
 * Threading : single-owner.
 * Untrusted : the run's files and its datasets. What cannot be read is named on the page.
 */
#ifndef TOOLS_INSPECT_REPORT_REPORT_PICTURES_H
#define TOOLS_INSPECT_REPORT_REPORT_PICTURES_H

#include "tools/cli/html.h"
#include "tools/inspect/run_log.h"

enum { REPORT_CAPTION_CHARACTERS = 240 }; /* that are shown of a longer one */

/* Nothing where the run was not evaluated on captions. */
void report_examples(struct html_page *page, const struct run_log *r);

/* Nothing where no checkpoint keeps zeta or u. */
void report_extremes(struct html_page *page, const struct run_log *r);

#endif
