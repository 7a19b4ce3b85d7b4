/*
 * ccdump popularity: the samples to which nuclr assigns the largest and the smallest popularity,
 * with their captions, and with their images on a page (as figures 5, 7 and 8 of the paper).
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "tools/ccdump/ccdump_internal.h"
#include "tools/cli/cli_text.h"
#include "tools/cli/output.h"
#include "tools/cli/path_kind.h"
#include "tools/inspect/page/page_data.h"
#include "tools/inspect/state_column.h"

struct options {
    int side, by;
    uint64_t top, pair;
    double tau;
    struct remote_choice remote;
    struct cli_list only;
    const char *html;
    bool json;
    bool force;
};

static const char *const side_choices[] = {"text", "image", NULL};
static const char *const by_choices[] = {"zeta", "log_u", NULL};
enum { BY_ZETA, BY_LOG_U };
static const char *const exponential[] = {"popularity", "u"};
static const char *const titles[][2] = {{"most popular", "largest u"},
                                        {"least popular", "smallest u"}};

static const struct cli_option rows[] = {
    {"side", 0, CLI_ENUM, CLI_FIELD(struct options, side), .choices = side_choices,
     .default_text = "text", .metavar = "NAME",
     .help = "candidates whose popularity is shown: captions or images"},
    {"by", 0, CLI_ENUM, CLI_FIELD(struct options, by), .choices = by_choices,
     .default_text = "zeta", .metavar = "NAME",
     .help = "value to rank by. zeta: learned popularity (nuclr); log_u: log of the moving-average "
             "estimate u, for every loss with moving averages; the larger, the harder the sample"},
    {"top", 'n', CLI_U64, CLI_FIELD(struct options, top), .min = "1", .max = "1000",
     .default_text = "12", .metavar = "N", .help = "number of samples at each end of the ranking"},
    {"pair", 0, CLI_U64, CLI_FIELD(struct options, pair), .min = "1", .max = "8",
     .default_text = "1", .metavar = "N",
     .help = "with a run that used --positives: use each sample's pair N"},
    {"tau", 0, CLI_DOUBLE, CLI_FIELD(struct options, tau), .min = "0", .max = "100",
     .default_text = "0", .metavar = "X", .help = "temperature; 0: the run's"},
    {"html", 0, CLI_STRING, CLI_FIELD(struct options, html), .metavar = "FILE",
     .help = "also write a self-contained HTML page with the images"},
    OUTPUT_FORCE_ROW(struct options, force),
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "JSON lines"},
    CLI_ONLY_DATA_ROW(struct options, only),
    CLI_REMOTE_ROWS(struct options, remote),
};

static const struct cli_program program = {
    .name = "ccdump popularity",
    .purpose = "shows the samples with the largest and the smallest learned popularity "
               "exp(zeta / tau)",
    .usage = CLI_TEXTS("CHECKPOINT DIR... [options]"),
    CLI_OPTIONS(rows),
    .arguments = {2, 1 + LOADER_MAX_SOURCES},
    .examples = CLI_TEXTS("ccdump popularity runs/a cc3m --html popularity.html"),
    .notes = CLI_TEXTS(
        "The checkpoint must be from a run of nuclr (with --by log_u: of any loss with moving "
        "averages) on DIR, or on a mix that contains DIR. Several DIRs of a mix are ranked "
        "together. Ids are those of the dataset. Unvisited samples are omitted."),
};

struct ranked {
    uint64_t id;     /* in its dataset */
    uint32_t source; /* index of the dataset */
    uint32_t caption;
    float value; /* zeta, or log u */
};

static int by_value(const void *a, const void *b) {
    const struct ranked *x = a;
    const struct ranked *y = b;
    if (x->value != y->value) {
        return x->value > y->value ? -1 : 1;
    }
    if (x->source != y->source) {
        return x->source < y->source ? -1 : 1;
    }
    if (x->id != y->id) {
        return x->id < y->id ? -1 : 1;
    }
    return x->caption < y->caption ? -1 : x->caption > y->caption;
}

/* One of the datasets to rank. */
struct source {
    const char *dir;
    struct input *input;
    struct state_ids ids; /* in the run's state; samples added to the dataset later have none */
};

/* Where results go. */
struct report {
    const struct options *o;
    double tau, divisor;         /* zeta is in units of tau, log u is a plain logarithm */
    const char *caption_columns; /* its entries follow a sample's own captions */
    struct source sources[LOADER_MAX_SOURCES];
    uint32_t source_count;
    struct json_writer line;
};

/* ---- opening ---- */

static enum status
open_source(struct source *s, const struct checkpoint *c, const char *dir, struct error *err) {
    s->dir = dir;
    TRY(input_open(&s->input, dir, err));
    FAIL_IF(s->input->kind != INPUT_DATASET, err, STATUS_USAGE,
            "%s is not a dataset; name one that the run was trained on", dir);
    return state_ids_find(&s->ids, c, s->input->manifest, dir, err);
}

static enum status open_sources(struct report *r,
                                const struct checkpoint *c,
                                const char *const *dirs,
                                size_t count,
                                struct error *err) {
    for (size_t i = 0; i < count; i++) {
        r->source_count++; /* counted first, so that a half-open one is closed too */
        TRY(open_source(&r->sources[i], c, dirs[i], err));
        for (size_t k = 0; k < i; k++) {
            FAIL_IF(r->sources[k].ids.source == r->sources[i].ids.source, err, STATUS_USAGE,
                    "%s is given twice", dirs[i]);
        }
    }
    return STATUS_OK;
}

/* ---- ranking ---- */

/* Adds the samples of one dataset, or their captions, with a number in `visited`, which a step has
 * written. */
static enum status add_samples(struct ranked *out,
                               size_t *count,
                               const struct report *r,
                               uint32_t source,
                               const struct state_column *column,
                               const struct state_column *visited,
                               struct error *err) {
    const struct source *s = &r->sources[source];
    const size_t most =
        *count + (size_t)(column->first != NULL ? column->count : s->input->manifest->samples);
    const uint32_t caption = (uint32_t)r->o->pair - 1; /* if all have the same number */
    enum status status;
    struct sample_facts f;
    while ((status = input_next(s->input, &f, err)) == STATUS_OK) {
        const uint64_t at = s->ids.first + f.id;
        const uint32_t several = f.id < s->ids.count ? state_column_captions(column, at) : 0;
        for (uint32_t k = several > 0 ? 0 : caption; k < (several > 0 ? several : caption + 1);
             k++) {
            if (*count < most && f.id < s->ids.count &&
                !isnan(state_column_caption(visited, at, k))) {
                const float own = (float)state_column_caption(column, at, k);
                out[(*count)++] = (struct ranked){f.id, source, k, own};
            }
        }
    }
    return status == STATUS_END ? STATUS_OK : status;
}

/* The column of the side and pair given by the options. */
static enum status find_column(struct state_column *out,
                               const struct checkpoint *c,
                               const char *name,
                               const struct options *o,
                               struct error *err) {
    const char *pair = o->pair > 1 ? cli_format(".%" PRIu64, o->pair) : "";
    return state_column_find(out, c, cli_format("%s.%s%s", side_choices[o->side], name, pair), err);
}

/* All visited samples of the datasets, largest number first. */
static enum status rank_samples(struct ranked **out,
                                size_t *count,
                                const struct checkpoint *c,
                                const struct report *r,
                                struct error *err) {
    const bool by_zeta = r->o->by == BY_ZETA; /* it has its initial value before the first step */
    struct state_column column = {0};
    struct state_column visited = {0};
    size_t samples = 0;
    enum status s;
    *out = NULL;
    *count = 0;
    TRY_OR_FAIL(s, find_column(&column, c, by_choices[r->o->by], r->o, err));
    TRY_OR_FAIL(s, find_column(&visited, c, by_zeta ? "zeta_momentum" : "log_u", r->o, err));
    for (uint32_t i = 0; i < r->source_count; i++) {
        const struct manifest *m = r->sources[i].input->manifest;
        samples += (size_t)(column.first != NULL ? column.count : m->samples);
    }
    *out = calloc(samples + 1, sizeof **out);
    s = *out != NULL ? STATUS_OK : error_set(err, STATUS_NOMEM, "out of memory for samples");
    for (uint32_t i = 0; i < r->source_count && s == STATUS_OK; i++) {
        s = add_samples(*out, count, r, i, &column, &visited, err);
    }
    if (s == STATUS_OK && *count == 0) {
        s = error_set(err, STATUS_USAGE,
                      by_zeta ? "%s: zeta is still frozen (--zeta-freeze-epochs), so no popularity "
                                "has been learned yet"
                              : "%s: no step has written log_u",
                      checkpoint_path(c));
    }
    if (s == STATUS_OK) {
        qsort(*out, *count, sizeof **out, by_value);
    }
fail:
    state_column_fini(&column);
    state_column_fini(&visited);
    return s;
}

/* ---- showing ---- */

/* Its caption, or "". Borrowed until the next call. */
static enum status read_caption(struct shard_text *out,
                                const struct report *r,
                                const struct ranked *x,
                                struct error *err) {
    struct input *in = r->sources[x->source].input;
    struct sample_facts f;
    *out = (struct shard_text){"", 0};
    TRY(input_find(in, &f, x->id, err));
    const uint32_t own = f.caption_count > 0 ? f.caption_count : 1;
    const char *column = r->caption_columns;
    if (column[0] != '\0' && x->caption >= own) {
        for (uint32_t k = own; k < x->caption && column[0] != '\0'; k++) {
            column += strcspn(column, ",");
            column += column[0] == ',';
        }
        out->data = cli_format("(a caption of column %.*s)", (int)strcspn(column, ","), column);
        out->size_bytes = strlen(out->data);
        return STATUS_OK;
    }
    return f.caption_count > 0 ? input_caption(in, out, x->caption % f.caption_count, err)
                               : STATUS_OK;
}

static double popularity(const struct report *r, const struct ranked *x) { /* or u */
    return exp((double)x->value / r->divisor);
}

/* Writes an element of an open array, or prints a line. */
static enum status write_sample(struct json_writer *w,
                                const struct report *r,
                                const struct ranked *x,
                                struct error *err) {
    struct shard_text caption;
    TRY(read_caption(&caption, r, x, err));
    json_open_object(w, NULL);
    json_location(w, "dataset", r->sources[x->source].dir);
    json_u64(w, "id", x->id);
    json_double(w, by_choices[r->o->by], (double)x->value);
    json_double(w, exponential[r->o->by], popularity(r, x));
    json_string_n(w, "caption", caption.data, caption.size_bytes);
    json_close_object(w);
    return STATUS_OK;
}

static enum status print_sample(const struct report *r, const struct ranked *x, struct error *err) {
    struct shard_text caption;
    TRY(read_caption(&caption, r, x, err));
    printf("%10.4g  %9.5f  %10" PRIu64 "  ", popularity(r, x), (double)x->value, x->id);
    size_t used = 36;
    if (r->source_count > 1) {
        cli_print(stdout, "%s  ", r->sources[x->source].dir);
        used += strlen(r->sources[x->source].dir) + 2;
    }
    const size_t columns = cli_columns();
    cli_text_put(stdout, caption.data, caption.size_bytes,
                 columns > used + 24 ? columns - used : 0);
    putchar('\n');
    return STATUS_OK;
}

/* Side 0: the i-th largest, 1: the i-th smallest. */
static const struct ranked *at(const struct ranked *ranked, size_t count, int side, size_t i) {
    return side == 0 ? &ranked[i] : &ranked[count - 1 - i];
}

static enum status
show(struct report *r, const struct ranked *ranked, size_t count, struct error *err) {
    for (int side = 0; side < 2; side++) {
        if (!r->o->json) {
            printf("%s%s\n%10s  %9s          id  %scaption\n", side > 0 ? "\n" : "",
                   titles[side][r->o->by], exponential[r->o->by], by_choices[r->o->by],
                   r->source_count > 1 ? "dataset, " : "");
        }
        for (size_t i = 0; i < r->o->top && i < count; i++) {
            const struct ranked *x = at(ranked, count, side, i);
            TRY(r->o->json ? write_sample(&r->line, r, x, err) : print_sample(r, x, err));
            TRY(r->o->json ? cli_put_json(&r->line, err) : STATUS_OK);
        }
    }
    return STATUS_OK;
}

/* ---- as a page ---- */

/* One list: pairs of a sample and its image. */
static enum status put_list(struct page_data *d,
                            const struct report *r,
                            const struct ranked *ranked,
                            size_t count,
                            int side,
                            struct error *err) {
    json_open_array(&d->json, NULL);
    for (size_t i = 0; i < r->o->top && i < count; i++) {
        const struct ranked *x = at(ranked, count, side, i);
        struct sample_facts f;
        json_open_array(&d->json, NULL);
        TRY(write_sample(&d->json, r, x, err));
        TRY(input_find(r->sources[x->source].input, &f, x->id, err));
        TRY(page_data_sample(d, r->sources[x->source].input, &f, err));
        json_close_array(&d->json);
    }
    json_close_array(&d->json);
    return STATUS_OK;
}

static enum status put_page_data(struct page_data *d,
                                 const struct report *r,
                                 const struct checkpoint *c,
                                 const struct ranked *ranked,
                                 size_t count,
                                 struct error *err) {
    struct json_writer *j = &d->json;
    page_data_checkpoint(d, c, r->tau);
    json_string(j, "side", side_choices[r->o->side]);
    json_string(j, "by", by_choices[r->o->by]);
    json_u64(j, "count", count);
    json_double(j, "least", popularity(r, &ranked[count - 1]));
    json_double(j, "median", popularity(r, &ranked[count / 2]));
    json_double(j, "most", popularity(r, &ranked[0]));
    json_open_array(j, "datasets");
    for (uint32_t i = 0; i < r->source_count; i++) {
        json_location(j, NULL, r->sources[i].dir);
    }
    json_close_array(j);
    json_open_array(j, "lists");
    TRY(put_list(d, r, ranked, count, 0, err));
    TRY(put_list(d, r, ranked, count, 1, err));
    json_close_array(j);
    return STATUS_OK;
}

static enum status write_page(const struct report *r,
                              const struct checkpoint *c,
                              const struct ranked *ranked,
                              size_t count,
                              struct error *err) {
    struct page_data d;
    TRY(page_data_begin(&d, r->o->html, err));
    enum status s = put_page_data(&d, r, c, ranked, count, err);
    THEN(s, page_data_write(&d, err));
    page_data_fini(&d);
    return s;
}

static enum status rank_and_show(struct report *r,
                                 const struct checkpoint *c,
                                 const char *const *dirs,
                                 size_t dir_count,
                                 struct error *err) {
    struct ranked *ranked = NULL;
    size_t count = 0;
    TRY(checkpoint_choose_tau(c, &r->tau, err));
    r->divisor = r->o->by == BY_ZETA ? r->tau : 1.0;
    r->caption_columns = checkpoint_caption_columns(c);
    TRY(open_sources(r, c, dirs, dir_count, err));
    enum status s = rank_samples(&ranked, &count, c, r, err);
    THEN(s, show(r, ranked, count, err));
    if (s == STATUS_OK && r->o->html != NULL) {
        s = write_page(r, c, ranked, count, err);
    }
    free(ranked);
    return s;
}

/* The first argument is the checkpoint, the others are datasets. */
static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct checkpoint *c = NULL;
    struct report r = {.o = o, .tau = o->tau};
    struct remote_choice remote = o->remote;
    samples_signals();
    TRY(page_check(o->html, o->force, err));
    remote.only = o->only.count > 0 ? &o->only : NULL;
    TRY(remote_choice_use(&remote, err));
    TRY(path_check_checkpoint(a->items[0], err));
    TRY(checkpoint_open_state(&c, file_posix(), a->items[0], err));
    json_writer_init(&r.line, 0);
    const enum status s = rank_and_show(&r, c, a->items + 1, a->count - 1, err);
    json_writer_fini(&r.line);
    for (uint32_t i = 0; i < r.source_count; i++) {
        input_close(r.sources[i].input);
    }
    checkpoint_close(c);
    return s;
}

CLI_MAIN(ccdump_popularity, program, struct options, run)
