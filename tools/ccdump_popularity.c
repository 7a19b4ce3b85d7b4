/*
 * ccdump popularity: the samples to which nuclr has given the largest and the smallest popularity,
 * with their captions, and with their pictures in a page (as figures 5, 7 and 8 of the paper).
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset.h"
#include "tools/ccdump_internal.h"
#include "tools/cli_text.h"
#include "tools/html.h"
#include "train/checkpoint.h"
#include "train/sample_state.h"

struct options {
    int side;
    uint64_t top;
    double tau;
    const char *html;
    bool json;
};

static const char *const side_choices[] = {"text", "image", NULL};

static const struct cli_option rows[] = {
    {"side", 0, CLI_ENUM, CLI_FIELD(struct options, side), .choices = side_choices,
     .default_text = "text", .metavar = "NAME",
     .help = "popularity of the captions, or of the pictures, as contrasts"},
    {"top", 'n', CLI_U64, CLI_FIELD(struct options, top), .min = "1", .max = "1000",
     .default_text = "12", .metavar = "N", .help = "so many of the largest and of the smallest"},
    {"tau", 0, CLI_DOUBLE, CLI_FIELD(struct options, tau), .min = "0", .max = "100",
     .default_text = "0", .metavar = "X", .help = "temperature; 0: that of the run"},
    {"html", 0, CLI_STRING, CLI_FIELD(struct options, html), .metavar = "FILE",
     .help = "also a page with the pictures, in one file"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "JSON lines"},
};

static const struct cli_program program = {
    .name = "ccdump popularity",
    .purpose = "shows the samples with the largest and the smallest learned popularity "
               "exp(zeta / tau)",
    .usage = (const char *const[]){"CHECKPOINT DIR [options]", NULL},
    .options = rows,
    .option_count = CLI_COUNT(rows),
    .min_arguments = 2,
    .max_arguments = 2,
    .examples = (const char *const[]){"ccdump popularity runs/a cc3m --html popularity.html", NULL},
    .notes =
        (const char *const[]){"The checkpoint must be of a run of nuclr on DIR. Samples that no "
                              "step has seen are left out.",
                              NULL},
};

struct ranked {
    uint64_t id;
    float zeta;
};

static int by_zeta(const void *a, const void *b) {
    const struct ranked *x = a;
    const struct ranked *y = b;
    if (x->zeta != y->zeta) {
        return x->zeta > y->zeta ? -1 : 1;
    }
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Where results go. */
struct report {
    const struct options *o;
    double tau;
    struct ccdump_input *input;
    struct html_page page;
    struct json_writer line;
};

/* zeta of all samples of the dataset that were visited, the largest first. */
static enum status rank_samples(struct ranked **out,
                                size_t *count,
                                const struct checkpoint *c,
                                struct ccdump_input *input,
                                const struct options *o,
                                struct error *err) {
    const struct manifest *m = ccdump_input_manifest(input);
    struct sample_state *state = NULL;
    int32_t zeta = -1;
    int32_t seen = -1;
    *out = NULL;
    *count = 0;
    TRY(sample_state_create(&state, m->id_space, err));
    enum status s =
        sample_state_add(state, o->side == 0 ? "text.zeta" : "image.zeta", 0.0f, &zeta, err);
    if (s == STATUS_OK) {
        s = sample_state_add(state, o->side == 0 ? "text.zeta_momentum" : "image.zeta_momentum",
                             SAMPLE_STATE_UNVISITED, &seen, err);
    }
    if (s == STATUS_OK) {
        s = checkpoint_load_state(c, state, NULL, 0, err);
    }
    if (s == STATUS_OK) {
        *out = calloc((size_t)m->samples + 1, sizeof **out);
        s = *out != NULL ? STATUS_OK : error_set(err, STATUS_NOMEM, "out of memory for samples");
    }
    struct ccdump_facts f;
    while (s == STATUS_OK && (s = ccdump_input_next(input, &f, err)) == STATUS_OK) {
        if (sample_state_visited(sample_state_column(state, seen)[f.id])) {
            (*out)[(*count)++] = (struct ranked){f.id, sample_state_column(state, zeta)[f.id]};
        }
    }
    sample_state_destroy(state);
    if (s != STATUS_END) {
        return s;
    }
    if (*count == 0) {
        return error_set(err, STATUS_USAGE,
                         "%s: zeta of no sample has moved yet: it is frozen in the first epochs",
                         checkpoint_path(c));
    }
    qsort(*out, *count, sizeof **out, by_zeta);
    return STATUS_OK;
}

static enum status show_sample(struct report *r, const struct ranked *x, struct error *err) {
    struct ccdump_facts f;
    struct ccdump_content content;
    const double popularity = exp((double)x->zeta / r->tau);
    TRY(ccdump_input_find(r->input, &f, x->id, err));
    TRY(ccdump_input_read(r->input, &content, err));
    const struct shard_text none = {"", 0};
    const struct shard_text caption = f.caption_count > 0 ? content.captions[0] : none;
    if (r->o->html != NULL) {
        html_markup(&r->page, "<figure>");
        html_image(&r->page, content.image, f.image_bytes);
        html_markup(&r->page, "<figcaption>");
        html_text(&r->page, caption.data, caption.size_bytes);
        html_markup(&r->page,
                    "<br><span class=\"number\">id %" PRIu64 ", popularity %.4g, zeta %.5f</span>"
                    "</figcaption></figure>\n",
                    x->id, popularity, (double)x->zeta);
    }
    if (r->o->json) {
        json_open_object(&r->line, NULL);
        json_u64(&r->line, "id", x->id);
        json_double(&r->line, "zeta", (double)x->zeta);
        json_double(&r->line, "popularity", popularity);
        json_string_n(&r->line, "caption", caption.data, caption.size_bytes);
        json_close_object(&r->line);
        return ccdump_put_json(&r->line, err);
    }
    printf("%10.4g  %9.5f  %10" PRIu64 "  ", popularity, (double)x->zeta, x->id);
    const size_t columns = cli_screen().columns;
    cli_text_put(stdout, caption.data, caption.size_bytes, columns > 60 ? columns - 36 : 0);
    putchar('\n');
    return STATUS_OK;
}

/* `count` samples from `first` on, in steps of `step`. */
static enum status show_list(struct report *r,
                             const char *title,
                             const struct ranked *first,
                             size_t count,
                             int step,
                             struct error *err) {
    if (!r->o->json) {
        printf("%s%s\npopularity       zeta          id  caption\n", step < 0 ? "\n" : "", title);
    }
    if (r->o->html != NULL) {
        html_markup(&r->page, "<h2>%s</h2>\n<div class=\"grid\">\n", title);
    }
    for (size_t i = 0; i < count; i++) {
        TRY(show_sample(r, first + (ptrdiff_t)i * step, err));
    }
    if (r->o->html != NULL) {
        html_markup(&r->page, "</div>\n");
    }
    return STATUS_OK;
}

static enum status
show(struct report *r, const struct ranked *ranked, size_t count, struct error *err) {
    const size_t top = r->o->top < count ? (size_t)r->o->top : count;
    TRY(show_list(r, "most popular", ranked, top, 1, err));
    TRY(show_list(r, "least popular", ranked + count - 1, top, -1, err));
    if (r->o->html != NULL) {
        TRY(html_write(&r->page, r->o->html, err));
    }
    return ccdump_flush(err);
}

static enum status
run(const struct options *o, const char *path, const char *dir, struct error *err) {
    struct checkpoint *c = NULL;
    struct ranked *ranked = NULL;
    size_t count = 0;
    struct report r = {.o = o, .tau = o->tau};
    TRY(checkpoint_open(&c, file_posix(), path, err));
    html_init(&r.page, o->side == 0 ? "Popularity of captions" : "Popularity of pictures");
    json_writer_init(&r.line, 0);
    enum status s = checkpoint_choose_tau(c, &r.tau, err);
    if (s == STATUS_OK) {
        s = ccdump_input_open(&r.input, dir, err);
    }
    if (s == STATUS_OK && ccdump_input_kind(r.input) != CCDUMP_DATASET) {
        s = error_set(err, STATUS_USAGE, "%s is no dataset; the one of the run is wanted", dir);
    }
    if (s == STATUS_OK &&
        ccdump_input_manifest(r.input)->fingerprint != checkpoint_position(c)->fingerprint) {
        s = error_set(err, STATUS_MISMATCH,
                      "%s was trained on dataset %016" PRIx64 ", %s is %016" PRIx64,
                      checkpoint_path(c), checkpoint_position(c)->fingerprint, dir,
                      ccdump_input_manifest(r.input)->fingerprint);
    }
    if (s == STATUS_OK) {
        s = rank_samples(&ranked, &count, c, r.input, o, err);
    }
    if (s == STATUS_OK) {
        s = show(&r, ranked, count, err);
    }
    free(ranked);
    html_fini(&r.page);
    json_writer_fini(&r.line);
    ccdump_input_close(r.input);
    checkpoint_close(c);
    return s;
}

int ccdump_popularity(int argc, char **argv) {
    struct options o;
    struct cli_arguments a = {0};
    struct error err = {0};
    enum status s = cli_parse(&program, &o, &a, argc, argv, &err);
    if (s == STATUS_OK) {
        ccdump_signals();
        s = run(&o, a.items[0], a.items[1], &err);
    }
    cli_arguments_fini(&a);
    return cli_exit(&program, s, &err);
}
