/*
 * stats_page: a second pass finds the images of the contact sheet: for each quantile of a measure
 * the first sample with its value, for each of the largest groups of equal images the first one.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/ccdump/stats_internal.h"
#include "tools/inspect/page/page_data.h"

enum {
    QUANTILES = 6, /* 0, 20, .. 100 % */
    SHEETS = 4,
    IMAGE_PX = 144,
};

_Static_assert((int)QUANTILES == (int)STATS_GROUPS, "rows of the page are as long");

static const enum stats_measure sheets[SHEETS] = {SHORT_SIDE, ASPECT, IMAGE_BYTES, CAPTION_WORDS};

struct wanted {
    uint64_t value; /* of the measure, or the hash */
    uint64_t id;    /* of the sample, once found */
    bool needed, found;
};

struct sheet {
    struct page_data data;
    struct stats *s;
    struct wanted wanted[SHEETS + 1][QUANTILES]; /* the last: of equal images */
};

static enum status has_value(bool *out,
                             struct sheet *p,
                             const struct sample_facts *f,
                             enum stats_measure m,
                             uint64_t value,
                             struct error *err) {
    const uint32_t shorter = f->width_px < f->height_px ? f->width_px : f->height_px;
    *out = (m == SHORT_SIDE && shorter == value) || (m == IMAGE_BYTES && f->image_bytes == value) ||
           (m == ASPECT && shorter > 0 && stats_aspect(f) == value);
    for (uint32_t k = 0; m == CAPTION_WORDS && k < f->caption_count && !*out; k++) {
        struct shard_text caption;
        uint64_t characters;
        TRY(input_caption(p->s->input, &caption, k, err));
        *out = stats_words(&caption, &characters) == value;
    }
    return STATUS_OK;
}

static enum status look_at(struct sheet *p, const struct sample_facts *f, struct error *err) {
    bool shown = false;
    for (size_t i = 0; i < SHEETS + 1; i++) {
        bool has = false; /* a sample occurs once per row */
        for (size_t k = 0; k < QUANTILES && !has; k++) {
            struct wanted *w = &p->wanted[i][k];
            if (w->needed && !w->found && i < SHEETS) {
                TRY(has_value(&has, p, f, sheets[i], w->value, err));
            } else if (w->needed && !w->found) {
                has = w->value == f->image_hash;
            }
            if (has) {
                w->id = f->id;
                w->found = shown = true;
            }
        }
    }
    return shown ? page_data_sample(&p->data, p->s->input, f, err) : STATUS_OK;
}

static void choose_values(struct sheet *p) {
    for (size_t k = 0; k < QUANTILES; k++) {
        for (size_t i = 0; i < SHEETS; i++) {
            const struct tally *t = &p->s->tallies[sheets[i]];
            if (t->count > 0) {
                const uint64_t value = tally_quantile(t, (double)k / (QUANTILES - 1));
                p->wanted[i][k] = (struct wanted){.value = value, .needed = true};
            }
        }
        p->wanted[SHEETS][k] =
            (struct wanted){.value = p->s->groups[k].hash, .needed = p->s->groups[k].samples > 0};
    }
}

static enum status find_images(struct sheet *p, struct error *err) {
    struct stats *s = p->s;
    struct sample_walk walk = {0};
    struct sample_facts f;
    enum status status;
    TRY(input_from(s->input, 0, err));
    TRY(sample_walk_init(&walk, s->input, &s->options->choice, s->options->quiet, err));
    json_open_array(&p->data.json, "images");
    while ((status = sample_walk_next(&walk, &f, err)) == STATUS_OK) {
        if (f.image_bytes > 0) {
            TRY_OR_FAIL(status, look_at(p, &f, err));
        }
    }
fail:
    json_close_array(&p->data.json);
    sample_walk_fini(&walk);
    return status == STATUS_END ? STATUS_OK : status;
}

static void put_places(struct sheet *p) {
    struct json_writer *j = &p->data.json;
    json_open_array(j, "sheet");
    for (size_t i = 0; i < SHEETS + 1; i++) {
        for (size_t k = 0; k < QUANTILES; k++) {
            const struct wanted *w = &p->wanted[i][k];
            if (w->found) {
                json_open_object(j, NULL);
                json_u64(j, "id", w->id);
                json_string(j, "row", i < SHEETS ? stats_names[sheets[i]] : "duplicates");
                json_u64(j, i < SHEETS ? "percent" : "times",
                         i < SHEETS ? 100 * k / (QUANTILES - 1) : p->s->groups[k].samples);
                stats_number(j, "value", i < SHEETS ? sheets[i] : WIDTH, w->value);
                json_close_object(j);
            }
        }
    }
    json_close_array(j);
}

enum status stats_page_write(struct stats *s, struct error *err) {
    struct sheet *p = calloc(1, sizeof *p);
    TRY_MEMORY(p, err, "out of memory for a page");
    p->s = s;
    enum status status = page_data_begin(&p->data, s->options->html, err);
    if (status == STATUS_OK) {
        struct json_writer *j = &p->data.json;
        p->data.image_px = IMAGE_PX;
        json_location(j, "input", s->input->path);
        if (s->input->manifest != NULL) {
            json_hex64(j, "fingerprint", s->input->manifest->fingerprint);
        }
        json_open_object(j, "stats");
        stats_write(j, s);
        json_close_object(j);
        choose_values(p);
        status = find_images(p, err);
        put_places(p);
        THEN(status, page_data_write(&p->data, err));
        page_data_fini(&p->data);
    }
    free(p);
    return status;
}
