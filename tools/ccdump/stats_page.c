/*
 * stats_page: the statistics of a collection as one page. Its pictures are found in a second pass:
 * for each quantile of a measure the first sample that has its value, for each of the largest
 * groups of equal pictures the first one. A picture becomes markup when it is met, and stands where
 * it belongs.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "tools/ccdump/stats_internal.h"
#include "tools/cli/html.h"

enum {
    QUANTILES = 6, /* 0, 20, .. 100 % */
    SHEETS = 4,
    PICTURE_PX = 144,
    CAPTION_CHARACTERS_SHOWN = 160,
    CLASSES_SHOWN = 100,
};

static const enum stats_measure sheets[SHEETS] = {SHORT_SIDE, ASPECT, IMAGE_BYTES, CAPTION_WORDS};

/* A picture that the page wants. */
struct wanted {
    uint64_t value;                /* of the measure, or the hash */
    char label[STATS_LABEL_BYTES]; /* below the picture */
    bool found;
    struct byte_buffer figure;
};

struct page {
    struct html_page html;
    struct stats *s;
    struct wanted quantiles[SHEETS][QUANTILES];
    struct wanted groups[STATS_GROUPS];
};

static void text(struct page *p, const char *s) {
    html_text(&p->html, s, strlen(s));
}

/* ---- pictures -------------------------------------------------------------------------------- */

/* Whether the sample has the value; *caption: the one that does, else the first. */
static enum status has_value(bool *out,
                             uint32_t *caption,
                             struct page *p,
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

/* Makes the figure of the current sample, and takes it out of the page again. */
static enum status make_figure(struct page *p,
                               struct wanted *w,
                               const struct sample_facts *f,
                               uint32_t caption,
                               struct error *err) {
    struct sample_content content;
    struct shard_text alt = {"", 0};
    struct byte_buffer *out = &p->html.out;
    const size_t from = out->size_bytes;
    TRY(input_read(p->s->input, &content, err));
    if (caption < f->caption_count) {
        alt = content.captions[caption];
    }
    html_raw(&p->html, "<figure>");
    html_image(&p->html, content.image, f->image_bytes, alt);
    html_markup(&p->html, "<figcaption>%s <span class=\"number\">id %" PRIu64 "</span><br>",
                w->label, f->id);
    html_excerpt(&p->html, alt, CAPTION_CHARACTERS_SHOWN);
    html_raw(&p->html, "</figcaption></figure>\n");
    w->found = true;
    const enum status s =
        byte_buffer_append(&w->figure, out->data + from, out->size_bytes - from, err);
    out->size_bytes = from;
    return s;
}

static enum status look_at(struct page *p, const struct sample_facts *f, struct error *err) {
    for (size_t i = 0; i < SHEETS; i++) {
        for (size_t k = 0; k < QUANTILES; k++) {
            struct wanted *w = &p->quantiles[i][k];
            bool has = false;
            uint32_t caption;
            if (!w->found) {
                TRY(has_value(&has, &caption, p, f, sheets[i], w->value, err));
            }
            if (has) { /* its one place in this row */
                TRY(make_figure(p, w, f, caption, err));
                break;
            }
        }
    }
    for (size_t k = 0; k < STATS_GROUPS; k++) {
        if (!p->groups[k].found && p->groups[k].value == f->image_hash) {
            TRY(make_figure(p, &p->groups[k], f, 0, err));
        }
    }
    return STATUS_OK;
}

/* Chooses values, then meets their samples. */
static enum status find_pictures(struct page *p, struct error *err) {
    struct stats *s = p->s;
    struct sample_walk walk = {0};
    struct sample_facts f;
    char number[CLI_TEXT_BYTES];
    for (size_t i = 0; i < SHEETS; i++) {
        const struct tally *t = &s->tallies[sheets[i]];
        for (size_t k = 0; k < QUANTILES; k++) {
            struct wanted *w = &p->quantiles[i][k];
            w->found = t->count == 0;
            if (!w->found) {
                w->value = tally_quantile(t, (double)k / (QUANTILES - 1));
                (void)snprintf(w->label, sizeof w->label, "<b>%s</b>, %zu %%",
                               stats_number_text(number, sheets[i], w->value),
                               100 * k / (QUANTILES - 1));
            }
        }
    }
    for (size_t k = 0; k < STATS_GROUPS; k++) {
        p->groups[k].value = s->groups[k].hash;
        p->groups[k].found = s->groups[k].samples == 0;
        (void)snprintf(p->groups[k].label, sizeof p->groups[k].label, "<b>%s times</b>,",
                       cli_format_count(number, s->groups[k].samples));
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

static void put_figures(struct page *p, const struct wanted *w, size_t count) {
    html_raw(&p->html, "<div class=\"grid\">\n");
    for (size_t i = 0; i < count; i++) {
        html_bytes(&p->html, w[i].figure.data, w[i].figure.size_bytes);
    }
    html_raw(&p->html, "</div>\n");
}

static void put_sheets(struct page *p) {
    static const char *const titles[SHEETS] = {"By shorter side, in pixels", "By width / height",
                                               "By bytes per picture", "By words per caption"};
    html_raw(&p->html, "<h2>Contact sheet</h2>\n<p class=\"number\">From the least to the most: of "
                       "all samples the named share has at most the value below the picture."
                       "</p>\n");
    for (size_t i = 0; i < SHEETS; i++) {
        if (p->s->tallies[sheets[i]].count > 0) {
            html_markup(&p->html, "<h3>%s</h3>\n", titles[i]);
            put_figures(p, p->quantiles[i], QUANTILES);
        }
    }
    if (p->s->groups[0].samples > 0) {
        html_raw(&p->html, "<h2>Pictures that occur most often</h2>\n");
        put_figures(p, p->groups, STATS_GROUPS);
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void put_fact(struct page *p, const char *name, const char *value) {
    html_raw(&p->html, "<div><dt>");
    text(p, name);
    html_raw(&p->html, "</dt><dd>");
    text(p, value);
    html_raw(&p->html, "</dd></div>\n");
}

static void put_count(struct page *p, const char *name, uint64_t count) {
    char number[CLI_TEXT_BYTES];
    put_fact(p, name, cli_format_count(number, count));
}

static void put_facts(struct page *p) {
    const struct stats *s = p->s;
    char number[CLI_TEXT_BYTES];
    char hash[32];
    html_raw(&p->html, "<dl class=\"tiles\">\n");
    put_count(p, "samples with a picture", s->samples);
    put_count(p, "captions", s->tallies[CAPTION_WORDS].count);
    put_fact(p, "bytes of pictures",
             cli_format_bytes(number, (uint64_t)s->tallies[IMAGE_BYTES].sum));
    put_count(p, "duplicates", s->duplicates);
    for (int i = 0; i < STATS_FORMATS; i++) {
        if (s->formats[i] > 0) {
            put_count(p, image_format_name((enum image_format)i), s->formats[i]);
        }
    }
    if (s->input->manifest != NULL) {
        (void)snprintf(hash, sizeof hash, "%016" PRIx64, s->input->manifest->fingerprint);
        put_fact(p, "fingerprint", hash);
    }
    const struct {
        const char *name;
        uint64_t count;
    } rare[] = {{"rows that cannot be packed", s->problems},
                {"rows without a picture", s->pictureless},
                {"pictures of unknown size", s->size_unknown},
                {"re-encoded by the packer", s->reencoded},
                {"not decoded by the packer", s->unchecked}};
    for (size_t i = 0; i < CLI_COUNT(rare); i++) {
        if (rare[i].count > 0) {
            put_count(p, rare[i].name, rare[i].count);
        }
    }
    html_raw(&p->html, "</dl>\n");
}

/* A row of a table of bars. */
static void
put_bar(struct page *p, struct shard_text label, uint64_t count, uint64_t most, uint64_t total) {
    char number[CLI_TEXT_BYTES];
    html_raw(&p->html, "<tr><th scope=\"row\">");
    html_excerpt(&p->html, label, 40);
    html_markup(&p->html, "</th><td class=\"bar\">");
    if (count > 0) {
        html_markup(&p->html, "<div style=\"width:%.2f%%\"></div>",
                    100.0 * (double)count / (double)most);
    }
    html_markup(&p->html, "</td><td>%s</td><td>%.1f %%</td></tr>\n",
                cli_format_count(number, count), 100.0 * (double)count / (double)total);
}

static void begin_bars(struct page *p, const char *title, const char *line) {
    html_raw(&p->html, "<figure class=\"chart\"><figcaption>");
    text(p, title);
    html_raw(&p->html, "</figcaption><p class=\"number\">");
    text(p, line);
    html_raw(&p->html, "</p><table class=\"bars\">\n");
}

static void put_measure(struct page *p, enum stats_measure m) {
    const struct tally *t = &p->s->tallies[m];
    struct tally_histogram h;
    char line[STATS_LINE_BYTES];
    char label[STATS_LABEL_BYTES];
    uint64_t most = 0;
    if (t->count == 0) {
        return;
    }
    tally_histogram(&h, t, p->s->options->bins);
    for (size_t i = 0; i < h.bin_count; i++) {
        most = h.counts[i] > most ? h.counts[i] : most;
    }
    stats_measure_line(line, m, t);
    begin_bars(p, stats_measures[m].title, line);
    for (size_t i = 0; i < h.bin_count; i++) {
        stats_bin_label(label, m, &h, i);
        put_bar(p, (struct shard_text){label, strlen(label)}, h.counts[i], most, t->count);
    }
    html_raw(&p->html, "</table></figure>\n");
}

static void put_classes(struct page *p) {
    const struct tally *t = &p->s->labels;
    char line[STATS_LINE_BYTES];
    uint64_t most = 0;
    size_t classes = 0;
    for (size_t i = 0; i < t->used; i++) {
        most = t->entries[i].value > 0 && t->entries[i].count > most ? t->entries[i].count : most;
        classes += t->entries[i].value > 0;
    }
    if (classes == 0) {
        return;
    }
    (void)snprintf(line, sizeof line, "%zu with samples%s", classes,
                   classes > CLASSES_SHOWN ? "; the first of them, --json has them all" : "");
    begin_bars(p, "classes", line);
    size_t shown = 0;
    for (size_t i = 0; i < t->used && shown < CLASSES_SHOWN; i++) {
        char number[CLI_TEXT_BYTES];
        const uint64_t label = t->entries[i].value - 1;
        if (t->entries[i].value > 0) {
            const char *name = input_class_name(p->s->input, (int32_t)label);
            (void)snprintf(number, sizeof number, "%" PRIu64, label);
            name = name != NULL ? name : number;
            put_bar(p, (struct shard_text){name, strlen(name)}, t->entries[i].count, most,
                    p->s->samples);
            shown++;
        }
    }
    html_raw(&p->html, "</table></figure>\n");
}

enum status stats_page_write(struct stats *s, struct error *err) {
    struct page p = {.s = s};
    enum status status;
    if (strcmp(s->input->path, "-") == 0) {
        return error_set(err, STATUS_USAGE, "--html reads the collection twice: name a file");
    }
    for (size_t i = 0; i < SHEETS * QUANTILES; i++) {
        byte_buffer_init(&p.quantiles[i / QUANTILES][i % QUANTILES].figure, HTML_MAX_BYTES);
    }
    for (size_t k = 0; k < STATS_GROUPS; k++) {
        byte_buffer_init(&p.groups[k].figure, HTML_MAX_BYTES);
    }
    html_init(&p.html, s->input->path);
    p.html.image_px = PICTURE_PX;
    put_facts(&p);
    html_raw(&p.html, "<div class=\"wide\">\n");
    for (int m = 0; m < STATS_MEASURES; m++) {
        put_measure(&p, (enum stats_measure)m);
    }
    put_classes(&p);
    html_raw(&p.html, "</div>\n");
    TRY_OR_FAIL(status, find_pictures(&p, err));
    put_sheets(&p);
    TRY_OR_FAIL(status, file_make_parents(file_posix(), s->options->html, err));
    status = html_write(&p.html, s->options->html, err);
fail:
    for (size_t i = 0; i < SHEETS * QUANTILES; i++) {
        byte_buffer_fini(&p.quantiles[i / QUANTILES][i % QUANTILES].figure);
    }
    for (size_t k = 0; k < STATS_GROUPS; k++) {
        byte_buffer_fini(&p.groups[k].figure);
    }
    html_fini(&p.html);
    return status;
}
