/*
 * The result of ccdump why, as JSON, readable text or a page.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/ccdump/why_internal.h"
#include "tools/inspect/page/page_data.h"

/* The lists in display order. */
enum { LISTS = 3 };
struct shown_list {
    const char *key, *value;
    const struct why_list *list;
};

static void lists_of(struct shown_list out[LISTS], const struct why *w) {
    out[0] = (struct shown_list){"nearest_by_zeta", "zeta", &w->zeta};
    out[1] = (struct shown_list){"nearest_images", "cosine", &w->images};
    out[2] = (struct shown_list){"nearest_texts", "cosine", &w->texts};
}

/* The neighbour's caption; an image's first caption, or "". Borrowed until the next call. */
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

/* ---- as JSON or text ------------------------------------------------------------------------- */

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
    TRY(input_put_columns(w->input, j, w->id, err));
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

static enum status put_page_data(struct page_data *d, const struct why *w, struct error *err) {
    uint64_t ids[1 + LISTS * WHY_MAX_NEAR] = {w->id};
    size_t count = 1;
    struct shown_list lists[LISTS];
    lists_of(lists, w);
    for (int i = 0; i < LISTS; i++) {
        for (size_t k = 0; k < lists[i].list->count; k++) {
            ids[count++] = lists[i].list->items[k].id;
        }
    }
    json_location(&d->json, "run", w->run);
    json_location(&d->json, "dataset", w->dataset);
    json_open_object(&d->json, "why");
    TRY(write_json(&d->json, w, err));
    json_close_object(&d->json);
    return page_data_samples(d, "images", w->input, ids, count, err);
}

enum status why_write_page(const struct why *w, const char *path, struct error *err) {
    struct page_data d;
    TRY(page_data_begin(&d, path, err));
    enum status s = put_page_data(&d, w, err);
    THEN(s, page_data_write(&d, err));
    page_data_fini(&d);
    return s;
}
