/*
 * report_examples: the queries that metrics.jsonl names with what they found, shown from the
 * dataset that --val named.
 */
#include "tools/inspect/page/page_samples.h"
#include "tools/inspect/report/report_internal.h"

/* before NULL: there was one evaluation. */
static enum status show(struct page *p,
                        const char *directory,
                        const struct json_value *now,
                        const struct json_value *before,
                        struct error *err) {
    static const char *const keys[] = {"t2i", "i2t"};
    static const char *const titles[] = {"Text-to-image retrieval, last evaluation",
                                         "Image-to-text retrieval"};
    struct input *val = NULL;
    TRY(input_open(&val, directory, err));
    enum status s = STATUS_OK;
    for (int side = 0; side < 2 && s == STATUS_OK; side++) {
        page_section(p, titles[side], false);
        s = page_queries(p, val,
                         &(struct page_queries){.now = json_value_get(now, keys[side]),
                                                .before = json_value_get(before, keys[side]),
                                                .by_caption = side == 0,
                                                .last_rank = UINT64_MAX,
                                                .own = true},
                         err);
    }
    input_close(val);
    return s;
}

void report_examples(struct page *page, const struct run_log *r) {
    const char *directory = json_value_string(run_log_option(r, "val"), NULL);
    struct error err = {0};
    if (r->last_examples == NULL || directory == NULL) {
        return;
    }
    const struct json_value *now = json_document_root(r->last_examples);
    const struct json_value *first = json_document_root(r->first_examples);
    if (show(page, directory, json_value_get(now, "examples"),
             first != now ? json_value_get(first, "examples") : NULL, &err) != STATUS_OK) {
        page_section(page, "Text-to-image retrieval", false);
        page_note(page, "Retrieval examples are missing: %s", err.text);
    }
}
