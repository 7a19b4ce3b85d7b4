/*
 * What ccdump why found, as text, as JSON and as a page.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/ccdump/why_internal.h"
#include "tools/cli/cli_text.h"
#include "tools/cli/html.h"

enum { INDENT = 11, SHOWN_VISITS = 8 };

/* The lists in the order in which they are shown. */
enum { LISTS = 3 };
struct shown_list {
    const char *key, *title, *value;
    const struct why_list *list;
};

static void lists_of(struct shown_list out[LISTS], const struct why *w) {
    out[0] = (struct shown_list){"nearest_by_zeta", "nearest by zeta", "zeta", &w->zeta};
    out[1] = (struct shown_list){"nearest_images", "nearest pictures", "cosine", &w->images};
    out[2] = (struct shown_list){"nearest_texts", "nearest captions", "cosine", &w->texts};
}

/* The neighbour's caption; of a picture its first, "" without one. Borrowed until the next. */
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

/* Which visits a person is shown: the last ones. */
static size_t first_shown(const struct why *w) {
    return w->visit_count > SHOWN_VISITS ? w->visit_count - SHOWN_VISITS : 0;
}

/* ---- as text --------------------------------------------------------------------------------- */

static enum status print_sample(const struct why *w, struct error *err) {
    struct sample_facts f;
    struct sample_content content;
    char bytes[CLI_TEXT_BYTES];
    TRY(input_find(w->input, &f, w->id, err));
    TRY(input_read(w->input, &content, err));
    printf("sample %" PRIu64 "  key ", f.id);
    cli_text_put(stdout, content.key, strlen(content.key), 0);
    if (w->run_id != f.id) {
        printf("  id in the run %" PRIu64, w->run_id);
    }
    printf("\n  %-8s %" PRIu32 " x %" PRIu32 " %s, %s\n", "image", f.width_px, f.height_px,
           image_format_name(f.format), cli_format_bytes(bytes, f.image_bytes));
    for (uint32_t k = 0; k < f.caption_count; k++) {
        printf("  %-8s ", k == 0 ? "caption" : "");
        cli_text_wrap(stdout, content.captions[k].data, content.captions[k].size_bytes, INDENT,
                      cli_columns());
    }
    return STATUS_OK;
}

static void print_visits(const struct why *w) {
    const struct train_position *p = checkpoint_position(w->checkpoint);
    printf("\nrun %s, loss %s, checkpoint after %" PRIu64 " steps\n", w->run,
           checkpoint_loss_name(w->checkpoint), p->step);
    if (w->no_visits[0] != '\0') {
        printf("  %-8s %s\n", "steps", w->no_visits);
        return;
    }
    printf("  %-8s %zu time%s", "seen", w->visit_count, w->visit_count == 1 ? "" : "s");
    for (size_t i = first_shown(w); i < w->visit_count; i++) {
        printf("%s%" PRIu64,
               i > first_shown(w)    ? ", "
               : first_shown(w) > 0  ? ", last in steps "
               : w->visit_count == 1 ? ", in step "
                                     : ", in steps ",
               w->visits[i].global_step);
    }
    printf("\n  %-8s ", "next");
    for (size_t i = 0; i < w->next_count; i++) {
        const struct sampler_visit *v = &w->visits[w->visit_count + i];
        printf("%s%" PRIu64 " (epoch %" PRIu64 ", row %u)", i == 0 ? "in step " : ", ",
               v->global_step, v->epoch, v->row);
    }
    printf("%s\n", w->next_count == 0 ? "never: the run ends before" : "");
}

static void print_columns(const struct why *w) {
    char count[CLI_TEXT_BYTES];
    if (w->column_count > 0) {
        printf("\n%-28s %12s  %s\n", "what the loss keeps of it", "value", "smaller ones");
    }
    for (size_t i = 0; i < w->column_count; i++) {
        const struct why_column *c = &w->columns[i];
        if (!c->visited) {
            printf("%-28s %12s\n", c->name, "not visited");
        } else {
            printf("%-28s %12.6g  %.1f %% of %s\n", c->name, c->value,
                   100.0 * (double)c->below / (double)c->count, cli_format_count(count, c->count));
        }
    }
}

static enum status print_list(const struct why *w, const struct shown_list *l, struct error *err) {
    if (l->list->capacity == 0) {
        return STATUS_OK;
    }
    printf("\n%s\n", l->title);
    if (l->list->none[0] != '\0') {
        printf("  %s\n", l->list->none);
        return STATUS_OK;
    }
    for (size_t i = 0; i < l->list->count; i++) {
        const struct why_near *x = &l->list->items[i];
        struct sample_facts f;
        struct shard_text caption;
        TRY(read_caption(w, x, &f, &caption, err));
        const int used = printf("  %10.6f  %10" PRIu64 "  %s", x->value, x->id,
                                x->id == w->id ? "(its own) " : "");
        const size_t columns = cli_columns();
        cli_text_put(stdout, caption.data, caption.size_bytes,
                     columns > (size_t)used + 24 ? columns - (size_t)used : 0);
        putchar('\n');
    }
    return STATUS_OK;
}

enum status why_print(const struct why *w, struct error *err) {
    struct shown_list lists[LISTS];
    lists_of(lists, w);
    TRY(print_sample(w, err));
    print_visits(w);
    print_columns(w);
    for (int i = 0; i < LISTS; i++) {
        TRY(print_list(w, &lists[i], err));
    }
    return STATUS_OK;
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static void write_visits(struct json_writer *j, const struct why *w) {
    if (w->no_visits[0] != '\0') {
        json_string(j, "steps_unknown", w->no_visits);
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

enum status why_print_json(const struct why *w, struct error *err) {
    struct json_writer j;
    cli_begin_json(&j);
    const enum status s = write_json(&j, w, err);
    if (s != STATUS_OK) {
        json_writer_fini(&j);
        return s;
    }
    return cli_end_json(&j, err);
}

/* ---- as a page ------------------------------------------------------------------------------- */

static enum status
page_figure(struct html_page *p, const struct why *w, const struct why_near *x, struct error *err) {
    struct sample_facts f;
    struct sample_content content;
    TRY(input_find(w->input, &f, x->id, err));
    TRY(input_read(w->input, &content, err));
    const struct shard_text caption =
        x->caption < f.caption_count ? content.captions[x->caption] : (struct shard_text){"", 0};
    html_markup(p, "<figure>");
    html_image(p, content.image, f.image_bytes, caption);
    html_markup(p, "<figcaption>");
    html_text(p, caption.data, caption.size_bytes);
    if (!isnan(x->value)) {
        html_markup(p, "<br><span class=\"number\">id %" PRIu64 ", %.5f%s</span>", x->id, x->value,
                    x->id == w->id ? ", its own" : "");
    }
    html_markup(p, "</figcaption></figure>\n");
    return STATUS_OK;
}

static void page_visits(struct html_page *p, const struct why *w) {
    if (w->no_visits[0] != '\0') {
        html_markup(p, "<p>Steps: %s.</p>\n", w->no_visits);
        return;
    }
    html_markup(p, "<p>Seen %zu times", w->visit_count);
    for (size_t i = first_shown(w); i < w->visit_count; i++) {
        html_markup(p, "%s%" PRIu64, i == first_shown(w) ? ", last in steps " : ", ",
                    w->visits[i].global_step);
    }
    for (size_t i = 0; i < w->next_count; i++) {
        html_markup(p, "%s%" PRIu64, i == 0 ? "; next in steps " : ", ",
                    w->visits[w->visit_count + i].global_step);
    }
    html_markup(p, ".</p>\n");
}

static void page_columns(struct html_page *p, const struct why *w) {
    html_markup(p, "<div class=\"scroll\"><table><caption>What the loss keeps of it</caption>"
                   "<tr><th>column</th><th>value</th><th>smaller ones</th></tr>\n");
    for (size_t i = 0; i < w->column_count; i++) {
        const struct why_column *c = &w->columns[i];
        html_markup(p, "<tr><td>");
        html_text(p, c->name, strlen(c->name));
        if (c->visited) {
            html_markup(p, "</td><td>%.6g</td><td>%.1f %% of %" PRIu64 "</td></tr>\n", c->value,
                        100.0 * (double)c->below / (double)c->count, c->count);
        } else {
            html_markup(p, "</td><td>not visited</td><td></td></tr>\n");
        }
    }
    html_markup(p, "</table></div>\n");
}

static enum status make_page(struct html_page *p, const struct why *w, struct error *err) {
    const struct why_near own = {.id = w->id, .value = (double)NAN};
    struct shown_list lists[LISTS];
    lists_of(lists, w);
    html_markup(p, "<p>Of ");
    html_text(p, w->dataset, strlen(w->dataset));
    html_markup(p, ", in the run ");
    html_text(p, w->run, strlen(w->run));
    html_markup(p, " after %" PRIu64 " steps.</p>\n<div class=\"grid\">\n",
                checkpoint_position(w->checkpoint)->step);
    TRY(page_figure(p, w, &own, err));
    html_markup(p, "</div>\n");
    page_visits(p, w);
    page_columns(p, w);
    for (int i = 0; i < LISTS; i++) {
        const struct why_list *l = lists[i].list;
        html_markup(p, "<h2>%c%s</h2>\n<p>%s</p>\n<div class=\"grid\">\n", 'N', lists[i].title + 1,
                    l->none[0] != '\0' ? l->none
                    : i == 0           ? "With the zeta of their caption (text.zeta)."
                                       : "With cosine similarity to the picture.");
        for (size_t k = 0; k < l->count; k++) {
            TRY(page_figure(p, w, &l->items[k], err));
        }
        html_markup(p, "</div>\n");
    }
    return STATUS_OK;
}

enum status why_write_page(const struct why *w, const char *path, struct error *err) {
    struct html_page p;
    char title[64];
    (void)snprintf(title, sizeof title, "Sample %" PRIu64, w->id);
    html_init(&p, title);
    enum status s = make_page(&p, w, err);
    if (s == STATUS_OK) {
        s = html_write(&p, path, err);
    }
    html_fini(&p);
    return s;
}
