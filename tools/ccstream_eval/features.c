/*
 * ccstream-eval linear, knn, mean: classifiers on the features of images, or captions, of a
 * labelled training set, evaluated on another set. Each has its own way to use the training set;
 * they share the rest.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/ccstream_eval/ccstream_eval_internal.h"
#include "tools/cli/path_kind.h"
#include "train/eval/probe.h"

struct options {
    struct eval_options common;
    const char *train;
    int layer;
    bool per_class;
    uint64_t shots, draws;              /* mean */
    uint64_t epochs, probe_batch, seed; /* linear; seed also of mean */
    double lr, weight_decay;
    uint64_t neighbours; /* knn */
    double temperature;
    const struct method *method; /* set by the subcommand */
};

struct job;

/* What differs between the subcommands. */
struct method {
    const struct cli_program *program;
    const char *answers[2]; /* names of the results; one may be NULL */
    enum status (*classify)(struct job *j, const struct options *o, struct error *err);
};

#define FIELD(name) CLI_FIELD(struct options, name)

enum layer { LAYER_TOWER, LAYER_PROJECTION, LAYER_CAPTIONS };
static const char *const layer_choices[] = {"tower", "projection", "captions", NULL};
static const struct cli_option feature_rows[] = {
    EVAL_DATA_ROW("dataset with labels to evaluate on"),
    {"train", 0, CLI_STRING, FIELD(train), .metavar = "DIR", .required = true,
     .help = "dataset with labels to train on; classes are matched by name"},
    {"layer", 0, CLI_ENUM, FIELD(layer), .choices = layer_choices, .default_text = "tower",
     .metavar = "NAME",
     .help = "features: the output of the image tower, or the projection after it (L2-normalised, "
             "except with --task blocks); captions: every caption, with the label of its image, "
             "through text tower and projection"},
    EVAL_TRANSFORM_ROW("crop"),
    {"per-class", 0, CLI_FLAG, FIELD(per_class), .help = "also print a line for each class"},
};

static const struct cli_rows feature_tables[] = {CLI_ROWS(feature_rows),
                                                 {eval_option_rows, EVAL_OPTION_COUNT},
                                                 {eval_remote_rows, EVAL_REMOTE_COUNT},
                                                 {NULL, 0}};

/* A labelled dataset encoded by the model. */
struct side {
    struct embeddings e;
    struct text_list classes;
    struct classify_set set;
};

struct job {
    struct eval eval;
    struct side train, test;
    int32_t class_count;
    struct classify_result results[2];
    struct classify_result deviation; /* of the first result, over draws; all-zero: one result */
};

/* Every caption has the label of its image. */
static enum status label_texts(struct embeddings *e, struct error *err) {
    int32_t *labels = calloc((size_t)e->texts_count, sizeof *labels);
    TRY_MEMORY(labels, err, "out of memory");
    for (int64_t i = 0; i < e->texts_count; i++) {
        labels[i] = e->labels[e->owner[i]];
    }
    free(e->labels);
    e->labels = labels;
    return STATUS_OK;
}

/* The features of a side, (set.count, set.dim). */
static float *rows_of(const struct side *side, const struct options *o) {
    return o->layer == LAYER_TOWER        ? side->e.features
           : o->layer == LAYER_PROJECTION ? side->e.images
                                          : side->e.texts;
}

static enum status open_side(struct side *side,
                             struct job *j,
                             const struct options *o,
                             const char *dir,
                             struct error *err) {
    struct embed_options how = eval_transformed(&j->eval, &o->common, AUGMENT_EVAL_CROP);
    const bool captions = o->layer == LAYER_CAPTIONS;
    how.features = o->layer == LAYER_TOWER;
    how.texts = how.no_images = captions;
    TRY(zeroshot_classes(&side->classes, dir, err));
    TRY(embed_dataset(&side->e, &j->eval.encoder, j->eval.dev, dir, &how, err));
    TRY(captions ? label_texts(&side->e, err) : STATUS_OK);
    side->set = (struct classify_set){
        .rows = rows_of(side, o),
        .labels = side->e.labels,
        .count = captions ? side->e.texts_count : side->e.images_count,
        .dim = o->layer == LAYER_TOWER ? side->e.feature_dim : side->e.embed_dim};
    return STATUS_OK;
}

static void job_close(struct job *j) {
    classify_result_fini(&j->results[0]);
    classify_result_fini(&j->results[1]);
    classify_result_fini(&j->deviation);
    embeddings_fini(&j->train.e);
    embeddings_fini(&j->test.e);
    text_list_fini(&j->train.classes);
    text_list_fini(&j->test.classes);
    eval_close(&j->eval);
}

/* Encodes both sets, and gives the test labels the numbers of the training set. */
static enum status
job_open(struct job *j, const struct options *o, const char *checkpoint, struct error *err) {
    TRY((o->layer == LAYER_CAPTIONS ? eval_open_texts : eval_open_images)(&j->eval, checkpoint,
                                                                          &o->common, err));
    TRY(path_check_dataset(o->train, err));
    TRY(open_side(&j->train, j, o, o->train, err));
    TRY(open_side(&j->test, j, o, o->common.data, err));
    j->class_count = eval_label_count(j->train.e.labels, j->train.set.count);
    FAIL_IF(j->class_count == 0, err, STATUS_USAGE,
            "%s has no labels; pack class folders or CIFAR files", o->train);
    eval_map_labels(j->test.e.labels, j->test.set.count, &j->test.classes, &j->train.classes);
    return STATUS_OK;
}

static enum status report(const struct job *j, const struct options *o, struct error *err) {
    const char *const *names = o->method->answers;
    const size_t count = names[1] != NULL ? 2 : 1;
    struct json_writer w;
    cli_begin_json(&w);
    for (size_t i = 0; i < count; i++) {
        if (count > 1) {
            json_open_object(&w, names[i]);
        }
        eval_write_classes(&w, &j->results[i], &j->train.classes, o->per_class);
        if (count > 1) {
            json_close_object(&w);
        }
    }
    if (j->deviation.class_top1 != NULL) { /* several draws */
        json_u64(&w, "shots", o->shots);
        json_u64(&w, "draws", o->draws);
        json_open_object(&w, "std");
        classify_write_json(&w, &j->deviation);
        json_close_object(&w);
    }
    return end_result(&w, o->common.json, err);
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct job j = {0};
    enum status s;
    TRY_OR_FAIL(s, job_open(&j, o, a->items[0], err));
    TRY_OR_FAIL(s, o->method->classify(&j, o, err));
    s = report(&j, o, err);
fail:
    job_close(&j);
    return s;
}

static int method_main(const struct method *method, int argc, char **argv) {
    struct options o = {.method = method};
    return cli_main(method->program, &o, run, argc, argv);
}

/* ---- mean ----------------------------------------------------------------------------------- */

static const struct cli_option mean_rows[] = {
    {"shots", 0, CLI_U64, FIELD(shots), .min = "0", .max = "1000000", .default_text = "0",
     .metavar = "N",
     .help = "means of N random images per class, or of all if it has no more; 0: of all"},
    {"draws", 0, CLI_U64, FIELD(draws), .min = "1", .max = "10000", .default_text = "10",
     .metavar = "N", .help = "with --shots: number of random draws"},
    {"seed", 's', CLI_U64, FIELD(seed), .min = "0", .max = "9223372036854775807",
     .default_text = "0", .metavar = "N", .help = "with --shots: random seed"},
};

static const struct cli_program mean_program = {
    .name = "ccstream-eval mean",
    .purpose = "classifies images by the mean features of each class",
    .usage = CLI_TEXTS("CHECKPOINT --train DIR --data DIR [options]"),
    .examples = CLI_TEXTS("ccstream-eval mean runs/a --train cifar10 --data cifar10-test",
                          "ccstream-eval mean runs/a --train cifar10 --data cifar10-test "
                          "--shots 5 --json",
                          "ccstream-eval mean runs/b --train topics --data topics-test "
                          "--layer captions"),
    .notes = CLI_TEXTS(
        "The mean classifier of Arora et al. (ICML 2019): the class whose mean has the largest "
        "dot product, without bias or normalisation. AVG-k is the mean accuracy over all tasks "
        "of k classes, exactly.",
        "--shots 5 is mu-5 of the paper: every number is the mean over --draws random draws, "
        "followed by its standard deviation (--json: std)."),
    CLI_OPTIONS(mean_rows),
    .shared = feature_tables,
    .arguments = {1, 1},
};

static enum status classify_mean(struct job *j, const struct options *o, struct error *err) {
    if (o->shots > 0) {
        return classify_by_few(&j->results[0], &j->deviation, j->eval.dev, &j->test.set,
                               &j->train.set, j->class_count, (int64_t)o->shots, o->draws, o->seed,
                               err);
    }
    float *means = calloc((size_t)j->class_count, (size_t)j->train.set.dim * sizeof *means);
    TRY_MEMORY(means, err, "out of memory");
    classify_means(means, &j->train.set, j->class_count, INT64_MAX, 0, 0);
    enum status s = classify_by_vectors(&j->results[0], j->eval.dev, &j->test.set, means, NULL,
                                        j->class_count, err);
    free(means);
    return s;
}

int ccstream_eval_mean(int argc, char **argv) {
    static const struct method method = {&mean_program, {"mean"}, classify_mean};
    return method_main(&method, argc, argv);
}

/* ---- linear --------------------------------------------------------------------------------- */

static const struct cli_option linear_rows[] = {
    {"epochs", 'e', CLI_U64, FIELD(epochs), .min = "1", .max = "100000", .default_text = "32",
     .metavar = "N", .help = "epochs over --train"},
    {"probe-batch", 0, CLI_U64, FIELD(probe_batch), .min = "1", .max = "1048576",
     .default_text = "512", .metavar = "N", .help = "batch size of the classifier"},
    {"lr", 0, CLI_DOUBLE, FIELD(lr), .min = "0", .max = "100", .default_text = "0.005",
     .metavar = "X", .help = "peak learning rate of AdamW; cosine schedule to 0"},
    {"weight-decay", 0, CLI_DOUBLE, FIELD(weight_decay), .min = "0", .max = "100",
     .default_text = "0.01", .metavar = "X",
     .help = "decoupled weight decay; not applied to the bias"},
    {"seed", 's', CLI_U64, FIELD(seed), .min = "0", .max = "9223372036854775807",
     .default_text = "0", .metavar = "N", .help = "random seed of initial weights and order"},
};

static const struct cli_program linear_program = {
    .name = "ccstream-eval linear",
    .purpose = "trains and evaluates a linear classifier on fixed image features",
    .usage = CLI_TEXTS("CHECKPOINT --train DIR --data DIR [options]"),
    .examples = CLI_TEXTS("ccstream-eval linear runs/a --train cifar10 --data cifar10-test"),
    .notes = CLI_TEXTS("The defaults are those of CyCLIP's linear probe (Goel et al., "
                       "NeurIPS 2022): features as they are, AdamW, 32 epochs."),
    CLI_OPTIONS(linear_rows),
    .shared = feature_tables,
    .arguments = {1, 1},
};

static enum status classify_linear(struct job *j, const struct options *o, struct error *err) {
    struct probe_options how;
    probe_options_default(&how);
    how.epochs = (int32_t)o->epochs;
    how.batch_count = (int32_t)o->probe_batch;
    how.lr = o->lr;
    how.weight_decay = o->weight_decay;
    how.seed = o->seed;
    how.should_stop = cli_interrupted_callback;
    float *weight = calloc((size_t)j->class_count, (size_t)j->train.set.dim * sizeof *weight);
    float *bias = calloc((size_t)j->class_count, sizeof *bias);
    double loss = 0.0;
    enum status s = weight != NULL && bias != NULL
                        ? probe_train(weight, bias, &loss, j->eval.dev, &j->train.set,
                                      j->class_count, &how, err)
                        : error_set(err, STATUS_NOMEM, "out of memory");
    if (s == STATUS_OK) {
        log_write(&j->eval.log, LOG_LEVEL_INFO, "cross-entropy of the last epoch: %.4f", loss);
        s = classify_by_vectors(&j->results[0], j->eval.dev, &j->test.set, weight, bias,
                                j->class_count, err);
    }
    free(weight);
    free(bias);
    return s;
}

int ccstream_eval_linear(int argc, char **argv) {
    static const struct method method = {&linear_program, {"linear"}, classify_linear};
    return method_main(&method, argc, argv);
}

/* ---- knn ------------------------------------------------------------------------------------ */

static const struct cli_option knn_rows[] = {
    {"neighbours", 'k', CLI_U64, FIELD(neighbours), .min = "1", .max = "65536",
     .default_text = "200", .metavar = "N", .help = "number of voting neighbours"},
    {"temperature", 0, CLI_DOUBLE, FIELD(temperature), .min = "0", .max = "100",
     .default_text = "0.5", .metavar = "X",
     .help = "a vote has weight exp(cosine / X); 0: equal weights"},
};

static const struct cli_program knn_program = {
    .name = "ccstream-eval knn",
    .purpose = "classifies images by their nearest neighbours",
    .usage = CLI_TEXTS("CHECKPOINT --train DIR --data DIR [options]"),
    .examples = CLI_TEXTS("ccstream-eval knn runs/a --train cifar10 --data cifar10-test"),
    .notes = CLI_TEXTS("nn1: the nearest by Euclidean distance of the features as they are "
                       "(the protocol of EMC2); knn: the vote of --neighbours by cosine "
                       "(that of DCL and HCL)."),
    CLI_OPTIONS(knn_rows),
    .shared = feature_tables,
    .arguments = {1, 1},
};

/* -|row|^2 / 2: with it the largest dot product is the smallest distance. */
static float *half_squares(const struct classify_set *set) {
    float *out = calloc((size_t)set->count, sizeof *out);
    for (int64_t i = 0; out != NULL && i < set->count; i++) {
        double sum = 0.0;
        for (int64_t d = 0; d < set->dim; d++) {
            sum += (double)set->rows[i * set->dim + d] * (double)set->rows[i * set->dim + d];
        }
        out[i] = (float)(-0.5 * sum);
    }
    return out;
}

static enum status classify_neighbours(struct job *j, const struct options *o, struct error *err) {
    float *offset = half_squares(&j->train.set);
    TRY_MEMORY(offset, err, "out of memory");
    enum status s = classify_by_neighbours(&j->results[0], j->eval.dev, &j->test.set, &j->train.set,
                                           offset, j->class_count, 1, 0.0, err);
    free(offset);
    TRY(s);
    classify_normalize(rows_of(&j->train, o), j->train.set.count, j->train.set.dim);
    classify_normalize(rows_of(&j->test, o), j->test.set.count, j->test.set.dim);
    return classify_by_neighbours(&j->results[1], j->eval.dev, &j->test.set, &j->train.set, NULL,
                                  j->class_count, (int32_t)o->neighbours, o->temperature, err);
}

int ccstream_eval_knn(int argc, char **argv) {
    static const struct method method = {&knn_program, {"nn1", "knn"}, classify_neighbours};
    return method_main(&method, argc, argv);
}
