/*
 * ccstream-eval objective: the global losses over a dataset, exactly.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ccstream_eval/ccstream_eval_internal.h"
#include "tools/cli/path_kind.h"
#include "tools/inspect/state_column.h"
#include "train/eval/objective.h"

struct options {
    struct eval_options common;
    struct cli_list also;
    double tau;
};

#define FIELD(name) CLI_FIELD(struct options, name)

static const struct cli_option rows[] = {
    EVAL_DATA_ROW("dataset with captions; each image is paired with its first caption"),
    {"also", 0, CLI_LIST, FIELD(also), .metavar = "DIR",
     .help = "further dataset of a mix; the losses are computed over all pairs together"},
    {"tau", 0, CLI_DOUBLE, FIELD(tau), .min = "0", .max = "100", .default_text = "0",
     .metavar = "X", .help = "temperature; 0: the run's"},
};

static const struct cli_program program = {
    .name = "ccstream-eval objective",
    .purpose = "computes the global losses over a whole dataset",
    .usage = CLI_TEXTS("CHECKPOINT --data DIR [options]"),
    .examples = CLI_TEXTS("ccstream-eval objective runs/a --data train --json",
                          "ccstream-eval objective runs/mix --data cc3m --also coco"),
    .notes = CLI_TEXTS(
        "gcl is the objective of sogclr: the sum over both directions of mean_i tau log sum_{j "
        "!= i} exp((S_ij - S_ii) / tau). nuclr is the same with the checkpoint's zeta, if the run "
        "was trained on all of the datasets. During training, global_loss in metrics.jsonl "
        "estimates the same number. clip is InfoNCE with the whole dataset as one batch. The cost "
        "grows with the square of the number of samples."),
    CLI_OPTIONS(rows),
    .shared = eval_shared,
    .arguments = {1, 1},
};

/* Pairs of an image and its first caption. */
struct pairs {
    float *images, *texts;
    float *zeta_image, *zeta_text; /* NULL: the checkpoint has none for this dataset */
    uint64_t *ids;                 /* in the state, where known_ids */
    bool known_ids;
    int64_t count;
};

static void pairs_fini(struct pairs *p) {
    free(p->images);
    free(p->texts);
    free(p->zeta_image);
    free(p->zeta_text);
    free(p->ids);
}

/* Allocates `count` pairs. */
static enum status grow(struct pairs *p, int64_t count, int64_t dim, struct error *err) {
    const size_t row_bytes = (size_t)dim * sizeof(float);
    float *images = realloc(p->images, (size_t)count * row_bytes);
    p->images = images != NULL ? images : p->images;
    float *texts = realloc(p->texts, (size_t)count * row_bytes);
    p->texts = texts != NULL ? texts : p->texts;
    uint64_t *ids = realloc(p->ids, (size_t)count * sizeof *ids);
    p->ids = ids != NULL ? ids : p->ids;
    return images != NULL && texts != NULL && ids != NULL
               ? STATUS_OK
               : error_set(err, STATUS_NOMEM, "no memory for %lld pairs", (long long)count);
}

/* Adds the pairs of one dataset. */
static enum status
add_pairs(struct pairs *p, const struct embeddings *e, uint64_t id_offset, struct error *err) {
    const size_t row_bytes = (size_t)e->embed_dim * sizeof(float);
    TRY(grow(p, p->count + e->texts_count, e->embed_dim, err));
    for (int64_t t = 0; t < e->texts_count; t++) {
        if (t > 0 && e->owner[t] == e->owner[t - 1]) {
            continue; /* captions of an image are adjacent */
        }
        memcpy(p->images + p->count * e->embed_dim, e->images + e->owner[t] * e->embed_dim,
               row_bytes);
        memcpy(p->texts + p->count * e->embed_dim, e->texts + t * e->embed_dim, row_bytes);
        p->ids[p->count++] = id_offset + e->sample_ids[e->owner[t]];
    }
    return STATUS_OK;
}

/* Where a dataset's ids begin in the checkpoint's state; *known false: not all of them are in it.
 */
static enum status find_ids(uint64_t *first,
                            bool *known,
                            const struct checkpoint *c,
                            const char *dataset_dir,
                            struct error *err) {
    struct state_ids ids = {0};
    struct manifest m;
    TRY(manifest_read(&m, file_system_of(dataset_dir), dataset_dir, err));
    *known = state_ids_find(&ids, c, &m, dataset_dir, NULL) == STATUS_OK && m.id_space <= ids.count;
    *first = *known ? ids.first : 0;
    manifest_fini(&m);
    return STATUS_OK;
}

/* The zeta of the pairs, allocated in *out. */
static enum status take_side(float **out,
                             const struct pairs *p,
                             const struct eval *e,
                             const char *name,
                             struct error *err) {
    struct state_column column;
    enum status s = state_column_find(&column, e->checkpoint, name, err);
    *out = calloc((size_t)p->count, sizeof **out);
    if (s == STATUS_OK && *out == NULL) {
        s = error_set(err, STATUS_NOMEM, "out of memory for zeta");
    }
    for (int64_t i = 0; s == STATUS_OK && i < p->count; i++) {
        (*out)[i] = (float)state_column_caption(&column, p->ids[i], 0);
    }
    state_column_fini(&column);
    return s;
}

/* Reads zeta of the pairs if the checkpoint was trained by nuclr on all of their datasets. */
static enum status take_zeta(struct pairs *p, const struct eval *e, struct error *err) {
    if (!p->known_ids || strncmp(checkpoint_loss_name(e->checkpoint), "nuclr", 5) != 0) {
        return STATUS_OK;
    }
    TRY(take_side(&p->zeta_image, p, e, "image.zeta", err));
    return take_side(&p->zeta_text, p, e, "text.zeta", err);
}

static enum status report(const struct options *o,
                          const struct objective_result *r,
                          int64_t count,
                          struct error *err) {
    struct json_writer w;
    cli_begin_json(&w);
    json_i64(&w, "pairs", count);
    json_double(&w, "tau", o->tau);
    json_double(&w, "gcl", r->gcl);
    json_double(&w, "gcl_image", r->gcl_image);
    json_double(&w, "gcl_text", r->gcl_text);
    json_double(&w, "clip", r->clip);
    if (!isnan(r->nuclr)) {
        json_double(&w, "nuclr", r->nuclr);
    }
    return end_result(&w, o->common.json, err);
}

static enum status embed_pairs(struct pairs *p,
                               struct eval *e,
                               const struct options *o,
                               const char *dataset_dir,
                               struct error *err) {
    struct embeddings found;
    struct embed_options how = eval_embed_options(e, &o->common);
    uint64_t id_offset;
    bool known;
    how.texts = true;
    TRY(find_ids(&id_offset, &known, e->checkpoint, dataset_dir, err));
    TRY(embed_dataset(&found, &e->encoder, e->dev, dataset_dir, &how, err));
    const enum status s = add_pairs(p, &found, id_offset, err);
    embeddings_fini(&found);
    p->known_ids = p->known_ids && known;
    return s;
}

static enum status compute(struct objective_result *out,
                           struct pairs *p,
                           struct eval *e,
                           const struct options *o,
                           struct error *err) {
    p->known_ids = true;
    TRY(embed_pairs(p, e, o, o->common.data, err));
    for (size_t i = 0; i < o->also.count; i++) {
        TRY(embed_pairs(p, e, o, o->also.items[i], err));
    }
    FAIL_IF(p->count < 2, err, STATUS_USAGE, "fewer than two images have a caption");
    TRY(take_zeta(p, e, err));
    const int64_t dim = dual_encoder_get_options(e->model)->embed_dim;
    return objective_compute(out, e->dev, p->images, p->texts, p->count, dim, o->tau, p->zeta_image,
                             p->zeta_text, err);
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    struct options o = *(const struct options *)options;
    struct eval e;
    struct pairs pairs = {0};
    struct objective_result result;
    for (size_t i = 0; i < o.also.count; i++) {
        TRY(path_check_dataset(o.also.items[i], err));
    }
    TRY(eval_open(&e, a->items[0], &o.common, err));
    enum status s;
    TRY_OR_FAIL(s, checkpoint_choose_tau(e.checkpoint, &o.tau, err));
    TRY_OR_FAIL(s, compute(&result, &pairs, &e, &o, err));
    s = report(&o, &result, pairs.count, err);
fail:
    pairs_fini(&pairs);
    eval_close(&e);
    return s;
}

CLI_MAIN(ccstream_eval_objective, program, struct options, run)
