/*
 * stats_page: the statistics of a dataset as one page. Its images are found in a second pass: for
 * each quantile of a measure the first sample that has its value, for each of the largest groups of
 * equal images the first one.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "tools/ccdump/stats_internal.h"
#include "tools/inspect/page/page_samples.h"

enum {
    QUANTILES = 6, /* 0, 20, .. 100 % */
    SHEETS = 4,
    IMAGE_PX = 144,
    CAPTION_CHARACTERS_SHOWN = 160,
    CLASSES_SHOWN = 100,
    CLASS_NAME_BYTES = 128,
    MAX_SUMMARY = 16,
};

_Static_assert((int)QUANTILES == (int)STATS_GROUPS, "rows of the page are as long");

static const enum stats_measure sheets[SHEETS] = {SHORT_SIDE, ASPECT, IMAGE_BYTES, CAPTION_WORDS};

static const char *const titles[SHEETS + 1] = {"By shorter side, in pixels", "By width / height",
                                               "By bytes per image", "By words per caption",
                                               "Most frequent duplicates"};

/* An image that the page wants. */
struct wanted {
    uint64_t value;                /* of the measure, or the hash */
    char label[STATS_LABEL_BYTES]; /* below the image */
    bool found;
};

struct sheet_page {
    struct page page;
    struct stats *s;
    struct wanted wanted[SHEETS + 1][QUANTILES]; /* the last: of equal images */
};

/* ---- numbers as text ------------------------------------------------------------------------- */

static const char *number_text(enum stats_measure m, uint64_t v) {
    return m == ASPECT ? cli_format("%.2f", (double)v / STATS_ASPECT_SCALE) : cli_format_count(v);
}

/* "200 - 249" */
static void bin_label(char out[STATS_LABEL_BYTES],
                      enum stats_measure m,
                      const struct tally_histogram *h,
                      size_t i) {
    /* For whole numbers the label ends with the last one in the bin; a bin of one number is named
     * by it. */
    const uint64_t last = m == ASPECT ? h->edges[i + 1] : h->edges[i + 1] - 1;
    const bool one = last == h->edges[i];
    snprintf(out, STATS_LABEL_BYTES, "%s%s%s", number_text(m, h->edges[i]), one ? "" : " - ",
             one ? "" : number_text(m, last));
}

/* Of a tally that is not empty. */
static void measure_line(char out[STATS_LINE_BYTES], enum stats_measure m, const struct tally *t) {
    snprintf(out, STATS_LINE_BYTES, "min %s, mean %.*f, median %s, max %s",
             number_text(m, t->entries[0].value), m == ASPECT ? 2 : 1,
             t->sum / (double)t->count / (m == ASPECT ? STATS_ASPECT_SCALE : 1),
             number_text(m, tally_quantile(t, 0.5)), number_text(m, t->entries[t->used - 1].value));
}

/* ---- images ---------------------------------------------------------------------------------- */

/* Whether the sample has the value; *caption: the one that does, else the first. */
static enum status has_value(bool *out,
                             uint32_t *caption,
                             struct sheet_page *p,
                             const struct sample_facts *f,
                             enum stats_measure m,
                             uint64_t value,
                             struct error *err) {
    const uint32_t shorter = f->width_px < f->height_px ? f->width_px : f->height_px;
    *out = (m == SHORT_SIDE && shorter == value) || (m == IMAGE_BYTES && f->image_bytes == value) ||
           (m == ASPECT && shorter > 0 && stats_aspect(f) == value);
    *caption = 0;
    for (uint32_t k = 0; m == CAPTION_WORDS && k < f->caption_count && !*out; k++) {
        struct shard_text caption_text;
        uint64_t characters;
        TRY(input_caption(p->s->input, &caption_text, k, err));
        *out = stats_words(&caption_text, &characters) == value;
        *caption = k;
    }
    return STATUS_OK;
}

/* The card of the current sample. Cards are written in the order of the samples; `place` puts them
 * into that of the page. */
static enum status put_card(struct sheet_page *p,
                            struct wanted *w,
                            const struct sample_facts *f,
                            uint32_t caption,
                            struct error *err) {
    const size_t place = (size_t)(w - p->wanted[0]);
    (void)snprintf(p->page.group, sizeof p->page.group, "%s", titles[place / QUANTILES]);
    TRY(page_sample(&p->page, p->s->input, f, caption, NULL, err));
    json_u64(page_json(&p->page), "place", place);
    page_line(&p->page, NULL, "%s, id %" PRIu64, w->label, f->id);
    page_card_end(&p->page);
    w->found = true;
    return STATUS_OK;
}

static enum status look_at(struct sheet_page *p, const struct sample_facts *f, struct error *err) {
    for (size_t i = 0; i < SHEETS + 1; i++) {
        for (size_t k = 0; k < QUANTILES; k++) {
            struct wanted *w = &p->wanted[i][k];
            bool has = false;
            uint32_t caption = 0;
            if (!w->found && i < SHEETS) {
                TRY(has_value(&has, &caption, p, f, sheets[i], w->value, err));
            } else if (!w->found) {
                has = w->value == f->image_hash;
            }
            if (has) { /* its one place in this row */
                TRY(put_card(p, w, f, caption, err));
                break;
            }
        }
    }
    return STATUS_OK;
}

/* Chooses values, then meets their samples. */
static enum status find_images(struct sheet_page *p, struct error *err) {
    struct stats *s = p->s;
    struct sample_walk walk = {0};
    struct sample_facts f;
    for (size_t i = 0; i < SHEETS; i++) {
        const struct tally *t = &s->tallies[sheets[i]];
        for (size_t k = 0; k < QUANTILES; k++) {
            struct wanted *w = &p->wanted[i][k];
            w->found = t->count == 0;
            if (!w->found) {
                w->value = tally_quantile(t, (double)k / (QUANTILES - 1));
                (void)snprintf(w->label, sizeof w->label, "%s, %zu %%",
                               number_text(sheets[i], w->value), 100 * k / (QUANTILES - 1));
            }
        }
    }
    for (size_t k = 0; k < QUANTILES; k++) {
        p->wanted[SHEETS][k].value = s->groups[k].hash;
        p->wanted[SHEETS][k].found = s->groups[k].samples == 0;
        (void)snprintf(p->wanted[SHEETS][k].label, sizeof p->wanted[SHEETS][k].label, "%s times",
                       cli_format_count(s->groups[k].samples));
    }
    enum status status;
    TRY(input_from(s->input, 0, err));
    TRY(sample_walk_init(&walk, s->input, &s->options->choice, s->options->quiet, err));
    while ((status = sample_walk_next(&walk, &f, err)) == STATUS_OK) {
        if (f.image_bytes > 0) {
            TRY_OR_FAIL(status, look_at(p, &f, err));
        }
    }
fail:
    sample_walk_fini(&walk);
    return status == STATUS_END ? STATUS_OK : status;
}

/* ---- numbers --------------------------------------------------------------------------------- */

struct summary {
    const char *names[MAX_SUMMARY];
    const char *cells[MAX_SUMMARY];
    size_t count;
};

/* Text made by cli_format. */
static void add_fact(struct summary *m, const char *name, const char *text) {
    m->names[m->count] = name;
    m->cells[m->count++] = text;
}

static void put_summary(struct sheet_page *p) {
    const struct stats *s = p->s;
    struct summary m = {.count = 0};
    add_fact(&m, "samples with an image", cli_format_count(s->samples));
    add_fact(&m, "captions", cli_format_count(s->tallies[CAPTION_WORDS].count));
    add_fact(&m, "bytes of images", cli_format_bytes((uint64_t)s->tallies[IMAGE_BYTES].sum));
    add_fact(&m, "duplicates", cli_format_count(s->duplicates));
    for (int i = 0; i < STATS_FORMATS; i++) {
        if (s->formats[i] > 0) {
            add_fact(&m, image_format_name((enum image_format)i), cli_format_count(s->formats[i]));
        }
    }
    if (s->input->manifest != NULL) {
        add_fact(&m, "fingerprint", cli_format("%016" PRIx64, s->input->manifest->fingerprint));
    }
    const struct {
        const char *name;
        uint64_t count;
    } rare[] = {{"rows that cannot be packed", s->problems},
                {"rows without an image", s->imageless},
                {"images of unknown size", s->size_unknown},
                {"re-encoded by the packer", s->reencoded},
                {"not decoded by the packer", s->unchecked}};
    for (size_t i = 0; i < CLI_COUNT(rare); i++) {
        if (rare[i].count > 0) {
            add_fact(&m, rare[i].name, cli_format_count(rare[i].count));
        }
    }
    page_summary(&p->page, &(struct page_table){.columns = m.names,
                                                .column_count = m.count,
                                                .cells = m.cells,
                                                .row_count = 1});
}

/* Counts under names, with their percentage of a total. */
struct bars {
    const char *names[CLASSES_SHOWN];
    char name_texts[CLASSES_SHOWN][CLASS_NAME_BYTES];
    const char *shares[CLASSES_SHOWN];
    char share_texts[CLASSES_SHOWN][16];
    double counts[CLASSES_SHOWN];
    size_t count;
};

static char *add_bar(struct bars *b, uint64_t count, uint64_t total) {
    const size_t i = b->count++;
    (void)snprintf(b->share_texts[i], sizeof b->share_texts[i], "%.1f %%",
                   100.0 * (double)count / (double)total);
    b->shares[i] = b->share_texts[i];
    b->names[i] = b->name_texts[i];
    b->counts[i] = (double)count;
    return b->name_texts[i];
}

static void put_bars(struct sheet_page *p,
                     const struct bars *b,
                     const char *title,
                     const char *x,
                     const char *note) {
    page_bars(&p->page, &(struct page_bars){.title = title,
                                            .note = note,
                                            .x = x,
                                            .y = "count",
                                            .names = b->names,
                                            .values = b->counts,
                                            .texts = b->shares,
                                            .count = b->count});
}

static void put_measure(struct sheet_page *p, struct bars *b, enum stats_measure m) {
    const struct tally *t = &p->s->tallies[m];
    struct tally_histogram h;
    char line[STATS_LINE_BYTES];
    if (t->count == 0) {
        return;
    }
    tally_histogram(&h, t, p->s->options->bins);
    b->count = 0;
    for (size_t i = 0; i < h.bin_count; i++) {
        bin_label(add_bar(b, h.counts[i], t->count), m, &h, i);
    }
    measure_line(line, m, t);
    put_bars(p, b, stats_measures[m].title, stats_measures[m].title, line);
}

static void put_classes(struct sheet_page *p, struct bars *b) {
    const struct tally *t = &p->s->labels;
    char line[STATS_LINE_BYTES];
    size_t classes = 0;
    b->count = 0;
    for (size_t i = 0; i < t->used; i++) {
        classes += t->entries[i].value > 0;
        if (t->entries[i].value > 0 && b->count < CLASSES_SHOWN) {
            const uint64_t label = t->entries[i].value - 1;
            const char *name = input_class_name(p->s->input, (int32_t)label);
            char *out = add_bar(b, t->entries[i].count, p->s->samples);
            if (name != NULL) {
                (void)snprintf(out, CLASS_NAME_BYTES, "%.*s",
                               page_excerpt_bytes((struct shard_text){name, strlen(name)}, 30),
                               name);
            } else {
                (void)snprintf(out, CLASS_NAME_BYTES, "%" PRIu64, label);
            }
        }
    }
    if (classes > 0) {
        (void)snprintf(line, sizeof line, "%zu with samples%s", classes,
                       classes > CLASSES_SHOWN ? "; the first of them, --json has them all" : "");
        put_bars(p, b, "classes", "class", line);
    }
}

enum status stats_page_write(struct stats *s, struct error *err) {
    enum status status = STATUS_OK;
    FAIL_IF(strcmp(s->input->path, "-") == 0, err, STATUS_USAGE,
            "--html reads the input twice: name a file");
    struct sheet_page *p = calloc(1, sizeof *p);
    struct bars *bars = calloc(1, sizeof *bars);
    if (p == NULL || bars == NULL) {
        free(p);
        free(bars);
        return error_set(err, STATUS_NOMEM, "out of memory for a page");
    }
    p->s = s;
    page_begin(&p->page, s->input->path);
    p->page.image_px = IMAGE_PX;
    p->page.caption_characters = CAPTION_CHARACTERS_SHOWN;
    put_summary(p);
    page_section(&p->page, "Sizes and captions", false);
    for (int m = 0; m < STATS_MEASURES; m++) {
        put_measure(p, bars, (enum stats_measure)m);
    }
    put_classes(p, bars);
    page_section(&p->page, "Contact sheet", false);
    page_note(&p->page, "From the smallest to the largest: this percentage of all samples has at "
                        "most the value below the image.");
    page_images(&p->page, NULL, "cards");
    TRY_OR_FAIL(status, find_images(p, err));
    page_images_end(&p->page);
    status = page_end(&p->page, s->options->html, err);
fail:
    page_fini(&p->page);
    free(p);
    free(bars);
    return status;
}
