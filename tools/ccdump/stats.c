/*
 * ccdump stats: histograms and counts of an input, from the index and the captions. With an index
 * no image is read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/sort.h"
#include "formats/base/utf8.h"
#include "tools/ccdump/stats_internal.h"
#include "tools/cli/output.h"
#include "tools/inspect/page/page_data.h"

static const struct cli_option rows[] = {
    {"bins", 0, CLI_U64, CLI_FIELD(struct stats_options, bins), .min = "1", .max = "20",
     .default_text = "12", .metavar = "N", .help = "approximate number of bins per histogram"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct stats_options, json), .help = "one JSON object"},
    {"html", 0, CLI_STRING, CLI_FIELD(struct stats_options, html), .metavar = "FILE",
     .help = "also write a self-contained HTML page with the histograms and a contact sheet"},
    OUTPUT_FORCE_ROW(struct stats_options, force),
    {"quiet", 'q', CLI_FLAG, CLI_FIELD(struct stats_options, quiet), .help = "no progress"},
};

static const struct cli_program program = {
    .name = "ccdump stats",
    .purpose = "describes a dataset: histograms of image sizes and captions; formats, duplicates, "
               "classes, "
               "columns",
    .usage = CLI_TEXTS("DIR|SHARD|TAR [--bins N] [--json] [--html FILE]"),
    CLI_OPTIONS(rows),
    .shared = sample_choice_rows,
    .arguments = {1, 1},
    .examples = CLI_TEXTS("ccdump stats cc3m",
                          "ccdump stats cc3m --json | jq .short_side.median",
                          "ccdump stats cc3m --html cc3m.html"),
    .notes = CLI_TEXTS("The first and the last bin also count outliers. Aspect is width divided by "
                       "height. Size histograms omit images of unknown size. In a plain tar every "
                       "row with an image counts, with or without a caption. 'ccdump find --hash' "
                       "lists the images of largest_hash; 'ccdump verify' explains problems.")};

const char *const stats_names[STATS_MEASURES] = {
    [WIDTH] = "width",
    [HEIGHT] = "height",
    [SHORT_SIDE] = "short_side",
    [ASPECT] = "aspect",
    [IMAGE_BYTES] = "image_bytes",
    [CAPTIONS] = "captions",
    [CAPTION_CHARACTERS] = "caption_characters",
    [CAPTION_WORDS] = "caption_words",
};

static double scale_of(enum stats_measure m) {
    return m == ASPECT ? STATS_ASPECT_SCALE : 1;
}

/* ---- counting -------------------------------------------------------------------------------- */

uint64_t stats_aspect(const struct sample_facts *f) {
    return ((uint64_t)f->width_px * STATS_ASPECT_SCALE + f->height_px / 2) / f->height_px;
}

static enum status add_size(struct stats *s, const struct sample_facts *f, struct error *err) {
    if (f->width_px == 0 || f->height_px == 0) {
        s->size_unknown++;
        return STATUS_OK;
    }
    uint64_t w = f->width_px;
    uint64_t h = f->height_px;
    TRY(tally_add(&s->tallies[WIDTH], w, err));
    TRY(tally_add(&s->tallies[HEIGHT], h, err));
    TRY(tally_add(&s->tallies[SHORT_SIDE], w < h ? w : h, err));
    return tally_add(&s->tallies[ASPECT], stats_aspect(f), err);
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

uint64_t stats_words(const struct shard_text *text, uint64_t *characters) {
    uint64_t words = 0;
    bool inside = false;
    *characters = 0;
    for (size_t at = 0; at < text->size_bytes; (*characters)++) {
        bool space = is_space(text->data[at]);
        words += !space && !inside;
        inside = !space;
        size_t n = utf8_character(text->data + at, text->size_bytes - at);
        at += n > 0 ? n : 1;
    }
    return words;
}

static enum status add_caption(struct stats *s, const struct shard_text *text, struct error *err) {
    uint64_t characters;
    const uint64_t words = stats_words(text, &characters);
    TRY(tally_add(&s->tallies[CAPTION_CHARACTERS], characters, err));
    return tally_add(&s->tallies[CAPTION_WORDS], words, err);
}

static enum status add_sample(struct stats *s, const struct sample_facts *f, struct error *err) {
    s->problems += f->problem != NULL;
    if (f->image_bytes == 0) {
        s->imageless++;
        return STATUS_OK;
    }
    TRY(byte_buffer_append(&s->hashes, &f->image_hash, sizeof(f->image_hash), err));
    s->samples++;
    TRY(add_size(s, f, err));
    TRY(tally_add(&s->tallies[IMAGE_BYTES], f->image_bytes, err));
    TRY(tally_add(&s->tallies[CAPTIONS], f->caption_count, err));
    TRY(tally_add(&s->labels, (uint64_t)((int64_t)f->label + 1), err));
    s->formats[(int)f->format < STATS_FORMATS ? f->format : IMAGE_FORMAT_UNKNOWN]++;
    s->reencoded += (f->flags & SHARD_FLAG_REENCODED) != 0;
    s->unchecked += (f->flags & SHARD_FLAG_UNCHECKED) != 0;
    TRY(stats_columns_add(s, f->id, err));
    for (uint32_t k = 0; k < f->caption_count; k++) {
        struct shard_text text;
        TRY(input_caption(s->input, &text, k, err));
        TRY(add_caption(s, &text, err));
    }
    return STATUS_OK;
}

/* Inserts a group into the largest groups, in their order. */
static void keep_group(struct stats *s, uint64_t hash, uint64_t samples) {
    size_t at = STATS_GROUPS;
    while (at > 0 && s->groups[at - 1].samples < samples) {
        at--;
        if (at + 1 < STATS_GROUPS) {
            s->groups[at + 1] = s->groups[at];
        }
    }
    if (at < STATS_GROUPS) {
        s->groups[at] = (struct stats_group){hash, samples};
    }
}

/* An image that occurs n times has n - 1 duplicates. */
static void count_duplicates(struct stats *s) {
    uint64_t *hashes = (uint64_t *)(void *)s->hashes.data;
    if (s->samples > 1) {
        qsort(hashes, s->samples, sizeof(*hashes), compare_u64);
    }
    for (uint64_t i = 0; i < s->samples;) {
        uint64_t n = 1;
        while (i + n < s->samples && hashes[i + n] == hashes[i]) {
            n++;
        }
        s->duplicates += n - 1;
        s->duplicate_groups += n > 1;
        if (n > 1) {
            keep_group(s, hashes[i], n);
        }
        i += n;
    }
}

static enum status count_all(struct stats *s, struct error *err) {
    struct sample_walk walk;
    struct sample_facts facts;
    enum status status;
    TRY(sample_walk_init(&walk, s->input, &s->options->choice, s->options->quiet, err));
    while ((status = sample_walk_next(&walk, &facts, err)) == STATUS_OK) {
        TRY_OR_FAIL(status, add_sample(s, &facts, err));
    }
fail:
    sample_walk_fini(&walk);
    for (int i = 0; i < STATS_MEASURES; i++) {
        tally_sort(&s->tallies[i]);
    }
    tally_sort(&s->labels);
    count_duplicates(s);
    return status == STATUS_END ? STATUS_OK : status;
}

static const char *class_name(const struct stats *s, uint64_t label) {
    return input_class_name(s->input, (int32_t)label);
}

/* ---- as JSON or text ------------------------------------------------------------------------- */

void stats_number(struct json_writer *w, const char *key, enum stats_measure m, uint64_t v) {
    if (m == ASPECT) {
        json_double(w, key, (double)v / STATS_ASPECT_SCALE);
    } else {
        json_u64(w, key, v);
    }
}

static void write_measure(struct json_writer *w, const struct stats *s, enum stats_measure m) {
    const struct tally *t = &s->tallies[m];
    struct tally_histogram h;
    tally_histogram(&h, t, s->options->bins);
    json_open_object(w, stats_names[m]);
    json_u64(w, "count", t->count);
    if (t->count > 0) {
        stats_number(w, "min", m, t->entries[0].value);
        json_double(w, "mean", t->sum / (double)t->count / scale_of(m));
        stats_number(w, "median", m, tally_quantile(t, 0.5));
        stats_number(w, "max", m, t->entries[t->used - 1].value);
    }
    json_open_array(w, "edges");
    for (size_t i = 0; h.bin_count > 0 && i <= h.bin_count; i++) {
        stats_number(w, NULL, m, h.edges[i]);
    }
    json_close_array(w);
    json_u64s(w, "counts", h.counts, h.bin_count);
    json_close_object(w);
}

static void write_labels(struct json_writer *w, const struct stats *s) {
    json_open_array(w, "labels");
    for (size_t i = 0; i < s->labels.used; i++) {
        const struct tally_entry *e = &s->labels.entries[i];
        if (e->value > 0) {
            json_open_object(w, NULL);
            json_u64(w, "label", e->value - 1);
            json_string(w, "class", class_name(s, e->value - 1));
            json_u64(w, "samples", e->count);
            json_close_object(w);
        }
    }
    json_close_array(w);
}

void stats_write(struct json_writer *w, const struct stats *s) {
    json_u64(w, "samples", s->samples);
    json_u64(w, "problems", s->problems);
    json_u64(w, "imageless", s->imageless);
    json_u64(w, "texts", s->tallies[CAPTION_WORDS].count);
    for (int m = 0; m < STATS_MEASURES; m++) {
        write_measure(w, s, (enum stats_measure)m);
    }
    json_open_object(w, "formats");
    for (int i = 0; i < STATS_FORMATS; i++) {
        if (s->formats[i] > 0) {
            json_u64(w, image_format_name((enum image_format)i), s->formats[i]);
        }
    }
    json_close_object(w);
    json_u64(w, "size_unknown", s->size_unknown);
    json_u64(w, "reencoded", s->reencoded);
    json_u64(w, "unchecked", s->unchecked);
    json_open_object(w, "duplicates");
    json_u64(w, "samples", s->duplicates);
    json_u64(w, "groups", s->duplicate_groups);
    json_u64(w, "largest", s->groups[0].samples);
    if (s->groups[0].samples > 0) {
        json_hex64(w, "largest_hash", s->groups[0].hash);
    } else {
        json_null(w, "largest_hash");
    }
    json_close_object(w);
    write_labels(w, s);
    stats_columns_write(w, s);
}

static enum status print(const struct stats *s, struct error *err) {
    struct json_writer w;
    cli_begin_json(&w);
    stats_write(&w, s);
    return end_result(&w, s->options->json, err);
}

/* ---- the command ----------------------------------------------------------------------------- */

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct stats s = {.options = options, .hashes.max_bytes = SIZE_MAX};
    FAIL_IF(s.options->html != NULL && strcmp(a->items[0], "-") == 0, err, STATUS_USAGE,
            "--html reads the input twice: name a file");
    TRY(page_check(s.options->html, s.options->force, err));
    TRY(remote_choice_use(&s.options->choice.remote, err));
    TRY(input_open(&s.input, a->items[0], err));
    s.input->all_numbers = true;
    enum status status = count_all(&s, err);
    THEN(status, print(&s, err));
    if (status == STATUS_OK && s.options->html != NULL) {
        status = stats_page_write(&s, err);
    }
    for (int i = 0; i < STATS_MEASURES; i++) {
        tally_fini(&s.tallies[i]);
    }
    tally_fini(&s.labels);
    byte_buffer_fini(&s.hashes);
    for (int i = 0; i < COLUMNS_MAX; i++) {
        byte_buffer_fini(&s.columns[i].values);
    }
    input_close(s.input);
    return status;
}

CLI_MAIN(ccdump_stats, program, struct stats_options, run)
