/*
 * report_samples: the queries that metrics.jsonl names with what they found, shown from the dataset
 * that --val named; and the samples for which the last checkpoint keeps the largest and the
 * smallest zeta, or u where zeta has not changed yet.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/cli.h"
#include "tools/cli/data_list.h"
#include "tools/inspect/page/page_samples.h"
#include "tools/inspect/report/report_internal.h"
#include "tools/inspect/state_column.h"

/* before NULL: there was one evaluation. */
static enum status show_examples(struct page *p,
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
    if (show_examples(page, directory, json_value_get(now, "examples"),
                      first != now ? json_value_get(first, "examples") : NULL, &err) != STATUS_OK) {
        page_section(page, "Text-to-image retrieval", false);
        page_note(page, "Retrieval examples are missing: %s", err.text);
    }
}

/* ---- extreme samples ---- */

enum { SHOWN = 6, CHOSEN = 24 }; /* CHOSEN: some samples may have been removed since */

struct pick {
    uint64_t at; /* index in the state */
    double value;
};

struct view {
    struct page *page;
    const struct checkpoint *checkpoint;
    struct state_column visits;
    struct data_list *data;
    struct input *inputs[LOADER_MAX_SOURCES];
};

/* The CHOSEN largest (sign 1) or smallest (sign -1), the most extreme first. Returns how many. */
static size_t choose(struct pick out[CHOSEN],
                     const struct view *v,
                     const struct state_column *column,
                     double sign) {
    size_t count = 0;
    for (uint64_t i = 0; i < column->ids; i++) {
        const double value = state_column_value(column, i);
        if (!(state_column_value(&v->visits, i) > 0.0) || isnan(value) ||
            (count == CHOSEN && sign * value <= sign * out[CHOSEN - 1].value)) {
            continue;
        }
        size_t at = count < CHOSEN ? count++ : CHOSEN - 1;
        for (; at > 0 && sign * out[at - 1].value < sign * value; at--) {
            out[at] = out[at - 1];
        }
        out[at] = (struct pick){i, value};
    }
    return count;
}

/* The dataset of an index of the state, and its id there. NULL: the dataset is another by now. */
static struct input *source_of(struct view *v, uint64_t at, uint64_t *id) {
    const struct train_position *p = checkpoint_position(v->checkpoint);
    uint32_t i = p->source_count > 0 ? p->source_count - 1 : 0;
    while (i > 0 && p->sources[i].id_offset > at) {
        i--;
    }
    struct input *in = i < v->data->count ? v->inputs[i] : NULL;
    *id = at - p->sources[i].id_offset;
    return in != NULL && in->manifest != NULL &&
                   manifest_has_been(in->manifest, p->sources[i].fingerprint)
               ? in
               : NULL;
}

/* False: the sample is not there any more. */
static bool show_pick(struct view *v, const struct pick *pick) {
    struct sample_facts f;
    uint64_t id;
    struct input *in = source_of(v, pick->at, &id);
    if (in == NULL || input_find(in, &f, id, NULL) != STATUS_OK ||
        page_sample(v->page, in, &f, 0, NULL, NULL) != STATUS_OK) {
        return false;
    }
    page_line(v->page, NULL, "%.4g, id %" PRIu64, pick->value, id);
    page_card_end(v->page);
    return true;
}

static void show_end(struct view *v, const char *title, const struct pick *picks, size_t count) {
    size_t shown = 0;
    page_images(v->page, title, "cards");
    for (size_t i = 0; i < count && shown < SHOWN; i++) {
        shown += show_pick(v, &picks[i]) ? 1 : 0;
    }
    page_images_end(v->page);
    if (shown == 0) {
        page_note(v->page, "These samples cannot be shown: the run's dataset is missing, or it has "
                           "changed.");
    }
}

/* Both ends of one column, unless the file has none or all are equal: END. */
static enum status show_column(struct view *v, const char *name, struct error *err) {
    struct state_column column;
    struct pick high[CHOSEN];
    struct pick low[CHOSEN];
    enum status s = state_column_find(&column, v->checkpoint, name, err);
    const size_t count = s == STATUS_OK ? choose(high, v, &column, 1.0) : 0;
    if (count == 0 || choose(low, v, &column, -1.0) == 0 || high[0].value == low[0].value) {
        s = s == STATUS_OK || s == STATUS_USAGE ? STATUS_END : s;
    } else {
        show_end(v, cli_format("The largest %s", name), high, count);
        show_end(v, cli_format("The smallest %s", name), low, count);
    }
    state_column_fini(&column);
    return s;
}

static enum status show_all(struct view *v, struct error *err) {
    static const char *const names[] = {"text.zeta", "image.zeta", "text.log_u", "image.log_u"};
    bool shown = false;
    page_section(v->page, "Extreme samples", false);
    page_text(v->page,
              "From the last checkpoint, visited samples only. zeta: learned popularity of a "
              "caption or image (the more it matches, the larger). u: how much better other "
              "candidates match than the positive; the larger, the harder the sample.");
    for (size_t i = 0; i < 4 && !(shown && i == 2); i++) { /* u where zeta has not changed */
        const enum status s = show_column(v, names[i], err);
        if (s != STATUS_OK && s != STATUS_END) {
            return s;
        }
        shown = shown || s == STATUS_OK;
    }
    if (!shown) {
        page_note(v->page, "All of them have the same numbers so far.");
    }
    return STATUS_OK;
}

static enum status open_and_show(struct view *v, const struct run_log *r, struct error *err) {
    const struct json_value *data = run_log_option(r, "data");
    for (size_t i = 0; i < json_value_count(data); i++) {
        const char *text = json_value_string(json_value_at(data, i), NULL);
        if (text != NULL) {
            TRY(data_list_add(v->data, &text, 1, err));
        }
    }
    for (uint32_t i = 0; i < v->data->count; i++) {
        TRY(input_open(&v->inputs[i], v->data->items[i].directory, err));
    }
    const enum status s = state_column_find(&v->visits, v->checkpoint, "visits", err);
    return s == STATUS_OK ? show_all(v, err) : s == STATUS_USAGE ? STATUS_OK : s;
}

/* Whether the log has a column that could be shown: else nothing is opened. */
static bool keeps_numbers(const struct run_log *r) {
    bool any = false;
    for (size_t i = 0; i < r->column_count; i++) {
        any = any || strstr(r->columns[i].name, ".zeta") != NULL ||
              strstr(r->columns[i].name, ".log_u") != NULL;
    }
    return any;
}

void report_extremes(struct page *page, const struct run_log *r) {
    struct error err = {0};
    struct checkpoint *c = NULL;
    struct view v = {.page = page};
    if (!keeps_numbers(r)) {
        return;
    }
    v.data = calloc(1, sizeof *v.data);
    enum status s = v.data != NULL ? checkpoint_open_state(&c, file_posix(), r->path, &err)
                                   : error_set(&err, STATUS_NOMEM, "out of memory");
    if (s == STATUS_OK) {
        v.checkpoint = c;
        s = open_and_show(&v, r, &err);
    }
    if (s != STATUS_OK) {
        page_section(page, "Extreme samples", false);
        page_note(page, "The extreme samples are missing: %s", err.text);
    }
    state_column_fini(&v.visits);
    for (uint32_t i = 0; v.data != NULL && i < v.data->count; i++) {
        input_close(v.inputs[i]);
    }
    free(v.data);
    checkpoint_close(c);
}
