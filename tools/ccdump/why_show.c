/*
 * What ccdump why found, as JSON, as the same in readable text, and as a page.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/ccdump/why_internal.h"
#include "tools/inspect/page/page_samples.h"

enum { SHOWN_VISITS = 8 };

/* The lists in the order in which they are shown. */
enum { LISTS = 3 };
struct shown_list {
    const char *key, *title, *value;
    const struct why_list *list;
};

static void lists_of(struct shown_list out[LISTS], const struct why *w) {
    out[0] = (struct shown_list){"nearest_by_zeta", "nearest by zeta", "zeta", &w->zeta};
    out[1] = (struct shown_list){"nearest_images", "nearest images", "cosine", &w->images};
    out[2] = (struct shown_list){"nearest_texts", "nearest captions", "cosine", &w->texts};
}

/* The neighbour's caption; of an image its first, "" without one. Borrowed until the next. */
static enum status read_caption(const struct why *w,
                                const struct why_near *x,
                                struct sample_facts *f,
                                struct shard_text *out,
                                struct error *err) {
    *out = (struct shard_text){"", 0};
    TRY(input_find(w->input, f, x->id, err));
    return x->caption < f->caption_count ? input_caption(w->input, out, x->caption, err)
                                         : STATUS_OK;
}

/* Which visits the page shows: the last ones. */
static size_t first_shown(const struct why *w) {
    return w->visit_count > SHOWN_VISITS ? w->visit_count - SHOWN_VISITS : 0;
}

/* ---- as JSON or text
 * --------------------------------------------------------------------------------- */

static void write_visits(struct json_writer *j, const struct why *w) {
    if (w->no_visits[0] != '\0') {
        json_string(j, "steps_unknown", w->no_visits);
    }
    if (w->steps_per_epoch == 0) { /* no step was computed */
        return;
    }
    for (int part = 0; part < 2; part++) {
        const size_t from = part == 0 ? 0 : w->visit_count;
        const size_t count = part == 0 ? w->visit_count : w->next_count;
        json_open_array(j, part == 0 ? "seen" : "next");
        for (size_t i = from; i < from + count; i++) {
            json_open_object(j, NULL);
            json_u64(j, "step", w->visits[i].global_step);
            json_u64(j, "epoch", w->visits[i].epoch);
            json_u64(j, "row", w->visits[i].row);
            json_close_object(j);
        }
        json_close_array(j);
    }
}

static void write_columns(struct json_writer *j, const struct why *w) {
    json_open_object(j, "state");
    for (size_t i = 0; i < w->column_count; i++) {
        const struct why_column *c = &w->columns[i];
        if (!c->visited) {
            json_null(j, c->name);
            continue;
        }
        json_open_object(j, c->name);
        json_double(j, "value", c->value);
        json_u64(j, "smaller", c->below);
        json_u64(j, "of", c->count);
        if (c->caption_count > 0) {
            json_open_array(j, "captions");
            for (uint32_t k = 0; k < c->caption_count; k++) {
                isnan(c->captions[k]) ? json_null(j, NULL) : json_double(j, NULL, c->captions[k]);
            }
            json_close_array(j);
        }
        json_close_object(j);
    }
    json_close_object(j);
}

static enum status write_list(struct json_writer *j,
                              const struct why *w,
                              const struct shown_list *l,
                              struct error *err) {
    if (l->list->none[0] != '\0') {
        json_null(j, l->key);
        json_string(j, cli_format("%s_unknown", l->key), l->list->none);
        return STATUS_OK;
    }
    json_open_array(j, l->key);
    for (size_t i = 0; i < l->list->count; i++) {
        struct sample_facts f;
        struct shard_text caption;
        TRY(read_caption(w, &l->list->items[i], &f, &caption, err));
        json_open_object(j, NULL);
        json_u64(j, "id", l->list->items[i].id);
        json_double(j, l->value, l->list->items[i].value);
        json_string_n(j, "caption", caption.data, caption.size_bytes);
        json_close_object(j);
    }
    json_close_array(j);
    return STATUS_OK;
}

static enum status write_json(struct json_writer *j, const struct why *w, struct error *err) {
    struct sample_facts f;
    struct sample_content content;
    struct shown_list lists[LISTS];
    lists_of(lists, w);
    TRY(input_find(w->input, &f, w->id, err));
    TRY(input_read(w->input, &content, err));
    json_u64(j, "id", f.id);
    json_u64(j, "run_id", w->run_id);
    json_u64(j, "position", f.position);
    json_u64(j, "first_text_id", f.first_text_id);
    json_string(j, "key", content.key);
    json_open_array(j, "captions");
    for (uint32_t k = 0; k < f.caption_count; k++) {
        json_string_n(j, NULL, content.captions[k].data, content.captions[k].size_bytes);
    }
    json_close_array(j);
    json_u64(j, "steps_done", checkpoint_position(w->checkpoint)->step);
    write_visits(j, w);
    write_columns(j, w);
    for (int i = 0; i < LISTS; i++) {
        TRY(write_list(j, w, &lists[i], err));
    }
    return STATUS_OK;
}

enum status why_print(const struct why *w, bool json, struct error *err) {
    struct json_writer j;
    cli_begin_json(&j);
    const enum status s = write_json(&j, w, err);
    if (s != STATUS_OK) {
        json_writer_fini(&j);
        return s;
    }
    return end_result(&j, json, err);
}

/* ---- as a page ------------------------------------------------------------------------------- */

static enum status
put_card(struct page *p, const struct why *w, const struct why_near *x, struct error *err) {
    struct sample_facts f;
    TRY(input_find(w->input, &f, x->id, err));
    TRY(page_sample(p, w->input, &f, x->caption, x->id == w->id ? "own" : NULL, err));
    if (!isnan(x->value)) {
        page_line(p, NULL, "id %" PRIu64 ", %.5f%s", x->id, x->value,
                  x->id == w->id ? ", its own" : "");
    }
    page_card_end(p);
    return STATUS_OK;
}

static void put_steps(struct page *p, const struct why *w) {
    char text[1024];
    size_t used = (size_t)snprintf(text, sizeof text, "Seen %zu times", w->visit_count);
    if (w->no_visits[0] != '\0') {
        page_text(p, "Steps that are not known: %s.", w->no_visits);
    }
    if (w->steps_per_epoch == 0) {
        return;
    }
    for (size_t i = first_shown(w); i < w->visit_count + w->next_count; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRIu64,
                                 i == w->visit_count   ? "; next in steps "
                                 : i == first_shown(w) ? ", last in steps "
                                                       : ", ",
                                 w->visits[i].global_step);
    }
    page_text(p, "%s.", text);
}

static void put_columns(struct page *p, const struct why *w) {
    static const char *const heads[] = {"column", "value", "percentile"};
    const char *cells[WHY_MAX_COLUMNS * 3];
    char texts[WHY_MAX_COLUMNS][2][48];
    for (size_t i = 0; i < w->column_count; i++) {
        const struct why_column *c = &w->columns[i];
        (void)snprintf(texts[i][0], sizeof texts[i][0], c->visited ? "%.6g" : "not visited",
                       c->value);
        (void)snprintf(texts[i][1], sizeof texts[i][1], "%.1f %% of %" PRIu64,
                       100.0 * (double)c->below / (double)c->count, c->count);
        cells[3 * i] = c->name;
        cells[3 * i + 1] = texts[i][0];
        cells[3 * i + 2] = c->visited ? texts[i][1] : "";
    }
    page_table(p,
               &(struct page_table){"What the loss keeps of it", heads, 3, cells, w->column_count});
}

static enum status make_page(struct page *p, const struct why *w, struct error *err) {
    static const char *const names[] = {"dataset", "run", "steps"};
    const struct why_near own = {.id = w->id, .value = (double)NAN};
    struct shown_list lists[LISTS];
    lists_of(lists, w);
    const char *steps = cli_format("%" PRIu64, checkpoint_position(w->checkpoint)->step);
    page_summary(p, &(struct page_table){.columns = names,
                                         .column_count = 3,
                                         .cells = (const char *const[]){w->dataset, w->run, steps},
                                         .row_count = 1});
    page_section(p, NULL, false);
    page_images(p, NULL, "wide");
    enum status s = put_card(p, w, &own, err);
    page_images_end(p);
    put_steps(p, w);
    put_columns(p, w);
    for (int i = 0; i < LISTS && s == STATUS_OK; i++) {
        const struct why_list *l = lists[i].list;
        page_section(p, cli_format("N%s", lists[i].title + 1), false);
        page_text(p, "%s",
                  l->none[0] != '\0' ? l->none
                  : i == 0           ? "With the zeta of their caption (text.zeta)."
                                     : "With cosine similarity to the image.");
        page_images(p, NULL, "cards");
        for (size_t k = 0; k < l->count && s == STATUS_OK; k++) {
            s = put_card(p, w, &l->items[k], err);
        }
        page_images_end(p);
    }
    return s;
}

enum status why_write_page(const struct why *w, const char *path, struct error *err) {
    struct page p;
    page_begin(&p, cli_format("Sample %" PRIu64, w->id));
    enum status s = make_page(&p, w, err);
    THEN(s, page_end(&p, path, err));
    page_fini(&p);
    return s;
}
