/*
 * ccstream-eval score: how well the captions of every sample match its image, by sample id.
 */
#include <math.h>
#include <stdlib.h>

#include "formats/dataset/dataset.h"
#include "tools/ccstream_eval/ccstream_eval_internal.h"
#include "tools/cli/npy.h"
#include "tools/cli/output.h"

struct options {
    struct eval_options common;
    const char *out, *attach;
    bool force;
};

static const struct cli_option rows[] = {
    EVAL_DATA_ROW("dataset made by ccpack"),
    {"out", 'o', CLI_STRING, CLI_FIELD(struct options, out), .metavar = "FILE",
     .help = "output file, a NumPy array (.npy)"},
    {"attach", 0, CLI_STRING, CLI_FIELD(struct options, attach), .metavar = "NAME",
     .help = "attach the scores to the dataset as column NAME, one f32 per sample with a caption"},
    OUTPUT_FORCE_ROW(struct options, force),
    EVAL_TRANSFORM_ROW("squash"),
};

static const struct cli_program program = {
    .name = "ccstream-eval score",
    .purpose = "writes the similarity of each sample's image and captions",
    .usage = CLI_TEXTS("CHECKPOINT --data DIR -o FILE|--attach NAME [options]"),
    .examples = CLI_TEXTS("ccstream-eval score runs/a --data cc3m --attach fit",
                          "ccstream-eval score runs/a --data cc3m -o cc3m-scores.npy"),
    .notes = CLI_TEXTS("Entry i of the f32 array is the score of sample i: the cosine similarity "
                       "of its image and its caption, or the mean over its captions. It is NaN for "
                       "ids without a sample and for samples without a caption.",
                       "Samples that a model was trained on score higher than others. Scores of "
                       "different models are not comparable.",
                       "Memory: the embeddings of all images and captions, 1 KiB each with "
                       "embedding dimension 256."),
    CLI_OPTIONS(rows),
    .shared = eval_shared,
    .arguments = {1, 1},
};

static double dot(const float *a, const float *b, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

/* scores (id_space). Texts are in the order of their images, so an image's texts are adjacent.
 */
static void fill_scores(float *scores, uint64_t id_space, const struct embeddings *e) {
    for (uint64_t i = 0; i < id_space; i++) {
        scores[i] = NAN;
    }
    for (int64_t t = 0; t < e->texts_count;) {
        const int32_t image = e->owner[t];
        const float *of_image = e->images + image * e->embed_dim;
        double sum = 0;
        int64_t count = 0;
        for (; t < e->texts_count && e->owner[t] == image; t++, count++) {
            sum += dot(of_image, e->texts + t * e->embed_dim, e->embed_dim);
        }
        scores[e->sample_ids[image]] = (float)(sum / (double)count);
    }
}

static int by_score(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Percentiles of the scores. */
static const double shares[] = {0, 0.01, 0.1, 0.5, 0.9, 0.99, 1};
static const char *const share_keys[] = {"min", "p1", "p10", "median", "p90", "p99", "max"};
enum { SHARE_COUNT = sizeof(shares) / sizeof(shares[0]) };

struct summary {
    uint64_t scored, samples;
    double mean;
    double at[SHARE_COUNT];
};

/* Sorts and summarises the scores that are not NaN. */
static void summarise(struct summary *out, float *scores, uint64_t id_space, uint64_t samples) {
    double sum = 0;
    *out = (struct summary){.samples = samples};
    for (uint64_t i = 0; i < id_space; i++) {
        if (!isnan(scores[i])) {
            sum += (double)scores[i];
            scores[out->scored++] = scores[i];
        }
    }
    if (out->scored == 0) {
        return;
    }
    qsort(scores, out->scored, sizeof(*scores), by_score);
    out->mean = sum / (double)out->scored;
    for (int k = 0; k < SHARE_COUNT; k++) {
        out->at[k] = (double)scores[(uint64_t)floor(shares[k] * (double)(out->scored - 1))];
    }
}

static enum status report(const struct options *o, const struct summary *r, struct error *err) {
    struct json_writer w;
    cli_begin_json(&w);
    json_u64(&w, "samples", r->samples);
    json_u64(&w, "scored", r->scored);
    json_double(&w, "mean", r->mean);
    for (int k = 0; k < SHARE_COUNT; k++) {
        json_double(&w, share_keys[k], r->at[k]);
    }
    return end_result(&w, o->common.json, err);
}

static enum status
score(const struct options *o, const struct embeddings *e, uint64_t id_space, struct error *err) {
    struct summary r;
    float *scores = malloc((size_t)id_space * sizeof(*scores));
    TRY_MEMORY(scores, err, "out of memory for the scores");
    fill_scores(scores, id_space, e);
    enum status s =
        o->out ? npy_write(o->out, "<f4", scores, sizeof(*scores), id_space, 0, err) : STATUS_OK;
    struct column_info info = {.kind = SAFETENSORS_F32, .values = 1, .vectors = 1};
    THEN(s, o->attach ? eval_attach(o->common.data, o->attach, &info, NULL, scores,
                                    (int64_t)id_space, err)
                      : STATUS_OK);
    summarise(&r, scores, id_space, (uint64_t)e->images_count);
    free(scores);
    return s == STATUS_OK ? report(o, &r, err) : s;
}

static enum status id_space_of(uint64_t *out, const char *directory, struct error *err) {
    struct dataset *d = NULL;
    TRY(dataset_open(&d, directory, NULL, err));
    *out = dataset_id_space(d);
    dataset_close(d);
    return STATUS_OK;
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct eval e;
    struct embeddings found;
    uint64_t id_space = 0;
    FAIL_IF(!o->out && !o->attach, err, STATUS_USAGE, "-o FILE or --attach NAME must be given");
    TRY(output_check_file(o->out, o->force, err));
    TRY(o->attach ? eval_check_column(o->common.data, o->attach, o->force, err) : STATUS_OK);
    TRY(id_space_of(&id_space, o->common.data, err));
    TRY(eval_open(&e, a->items[0], &o->common, err));
    struct embed_options how = eval_transformed(&e, &o->common, AUGMENT_EVAL_SQUASH);
    how.texts = true;
    enum status s = embed_dataset(&found, &e.encoder, e.dev, o->common.data, &how, err);
    eval_close(&e);
    TRY(s);
    s = score(o, &found, id_space, err);
    embeddings_fini(&found);
    return s;
}

CLI_MAIN(ccstream_eval_score, program, struct options, run)
