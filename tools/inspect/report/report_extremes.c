/*
 * report_extremes: the samples for which the last checkpoint keeps the largest and the smallest
 * zeta, or u where zeta has not changed yet.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/data_list.h"
#include "tools/inspect/page/page_samples.h"
#include "tools/inspect/report/report_internal.h"
#include "train/run/checkpoint.h"

enum { SHOWN = 6, CHOSEN = 24 }; /* CHOSEN: some samples may have been removed since */

struct pick {
    uint64_t at; /* index in the state */
    double value;
};

/* One number of all samples. */
struct numbers {
    void *values;
    struct checkpoint_column column;
    const uint64_t *visits; /* (visits_count) */
    uint64_t visits_count;
};

struct view {
    struct page *page;
    const struct checkpoint *checkpoint;
    struct data_list *data;
    struct input *inputs[LOADER_MAX_SOURCES];
};

static enum status find_column(struct checkpoint_column *out,
                               const struct checkpoint *c,
                               const char *name,
                               struct error *err) {
    enum status s = STATUS_OK;
    for (uint32_t i = 0; s == STATUS_OK; i++) {
        s = checkpoint_column(c, i, out, err);
        if (s == STATUS_OK && strcmp(out->name, name) == 0) {
            return STATUS_OK;
        }
    }
    return s; /* END: it has none */
}

/* END: no such column. */
static enum status read_column(void **out,
                               struct checkpoint_column *column,
                               const struct checkpoint *c,
                               const char *name,
                               struct error *err) {
    const enum status s = find_column(column, c, name, err);
    if (s != STATUS_OK) {
        return s;
    }
    *out = malloc((size_t)column->ids * sizeof(uint64_t) + 1);
    return *out != NULL ? checkpoint_read_column(c, column, *out, 0, column->ids, err)
                        : error_set(err, STATUS_NOMEM, "out of memory for the per-sample state");
}

/* The CHOSEN largest (sign 1) or smallest (sign -1), the most extreme first. Returns how many. */
static size_t choose(struct pick out[CHOSEN], const struct numbers *n, double sign) {
    size_t count = 0;
    for (uint64_t i = 0; i < n->column.ids; i++) {
        double value;
        if (i >= n->visits_count || n->visits[i] == 0 ||
            !sample_state_entry(n->values, n->column.kind, i, &value) ||
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

static void show_end(struct view *v, const struct numbers *n, const char *word, double sign) {
    struct pick picks[CHOSEN];
    char title[SAMPLE_STATE_NAME_BYTES + 32];
    const size_t count = choose(picks, n, sign);
    size_t shown = 0;
    (void)snprintf(title, sizeof title, "The %s %s", word, n->column.name);
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

static bool is_constant(const struct numbers *n) {
    struct pick high[CHOSEN];
    struct pick low[CHOSEN];
    return choose(high, n, 1.0) == 0 || choose(low, n, -1.0) == 0 || high[0].value == low[0].value;
}

/* Both ends of one column, unless the file has none or all are equal. */
static enum status show_column(struct view *v,
                               const struct numbers *seen,
                               const char *name,
                               bool *shown,
                               struct error *err) {
    struct numbers n = *seen;
    enum status s = read_column(&n.values, &n.column, v->checkpoint, name, err);
    if (s == STATUS_OK && !is_constant(&n)) {
        *shown = true;
        show_end(v, &n, "largest", 1.0);
        show_end(v, &n, "smallest", -1.0);
    }
    free(n.values);
    return s == STATUS_END ? STATUS_OK : s;
}

/* seen: the visits alone. */
static enum status show_all(struct view *v, const struct numbers *seen, struct error *err) {
    static const char *const names[2][2] = {{"text.zeta", "image.zeta"},
                                            {"text.log_u", "image.log_u"}};
    bool shown = false;
    page_section(v->page, "Samples at both ends", false);
    page_text(v->page, "By the last checkpoint, among the samples seen. zeta is the learned "
                       "popularity of a caption or an image: the more it fits, the larger. u "
                       "estimates how much better others fit a sample than its own: the larger, "
                       "the harder the sample.");
    for (int i = 0; i < 2 && !shown; i++) {
        for (int side = 0; side < 2; side++) {
            TRY(show_column(v, seen, names[i][side], &shown, err));
        }
    }
    if (!shown) {
        page_note(v->page, "All of them have the same numbers so far.");
    }
    return STATUS_OK;
}

static enum status open_and_show(struct view *v, const struct run_log *r, struct error *err) {
    const struct json_value *data = run_log_option(r, "data");
    struct checkpoint_column column;
    void *visits = NULL;
    for (size_t i = 0; i < json_value_count(data); i++) {
        const char *text = json_value_string(json_value_at(data, i), NULL);
        if (text != NULL) {
            TRY(data_list_add(v->data, &text, 1, err));
        }
    }
    for (uint32_t i = 0; i < v->data->count; i++) {
        TRY(input_open(&v->inputs[i], v->data->items[i].directory, err));
    }
    enum status s = read_column(&visits, &column, v->checkpoint, "visits", err);
    if (s == STATUS_OK && column.kind == SAMPLE_STATE_COUNT) {
        s = show_all(v, &(struct numbers){.visits = visits, .visits_count = column.ids}, err);
    }
    free(visits);
    return s == STATUS_END ? STATUS_OK : s;
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
        page_section(page, "Samples at both ends", false);
        page_note(page, "The samples at both ends are missing: %s", err.text);
    }
    for (uint32_t i = 0; v.data != NULL && i < v.data->count; i++) {
        input_close(v.inputs[i]);
    }
    free(v.data);
    checkpoint_close(c);
}
