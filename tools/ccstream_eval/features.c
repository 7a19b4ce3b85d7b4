/*
 * ccstream-eval linear, knn, mean: classifiers on the features of images, or captions, of a
 * labelled training set, evaluated on another set. They differ only in how they use the training
 * set.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/ccstream_eval/ccstream_eval_internal.h"
#include "tools/cli/path_kind.h"
#include "train/eval/features.h"

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

/* The differences between the subcommands. */
struct method {
    const struct cli_program *program;
    const char *const *answers; /* names of the results */
    size_t answer_count;
    enum status (*classify)(struct job *j, const struct options *o, struct error *err);
};

#define FIELD(name) CLI_FIELD(struct options, name)

/* In the order of enum feature_layer. */
static const char *const layer_choices[] = {"tower", "projection", "captions", NULL};
static const struct cli_option feature_rows[] = {
    EVAL_DATA_ROW("dataset with labels to evaluate on"),
    {"train", 0, CLI_STRING, FIELD(train), .metavar = "DIR", .required = true,
     .help = "dataset with labels to train on; classes are matched by name"},
    {"layer", 0, CLI_ENUM, FIELD(layer), .choices = layer_choices, .default_text = "tower",
     .metavar = "NAME",
     .help = "features to classify. tower: output of the image tower; projection: embedding after "
             "the projection (L2-normalised, except with --task blocks); captions: embedding of "
             "each caption, with the label of its image"},
    EVAL_TRANSFORM_ROW("crop"),
    {"per-class", 0, CLI_FLAG, FIELD(per_class), .help = "also print one line per class"},
};

static const struct cli_rows feature_tables[] = {CLI_ROWS(feature_rows),
                                                 {eval_option_rows, EVAL_OPTION_COUNT},
                                                 {eval_remote_rows, EVAL_REMOTE_COUNT},
                                                 {NULL, 0}};

struct job {
    struct eval eval;
    struct feature_sets sets;
    struct classify_result results[FEATURES_NEIGHBOURS];
    struct classify_result deviation; /* of the first result, over draws; all-zero: one result */
};

static void job_close(struct job *j) {
    for (size_t i = 0; i < CLI_COUNT(j->results); i++) {
        classify_result_fini(&j->results[i]);
    }
    classify_result_fini(&j->deviation);
    feature_sets_close(&j->sets);
    eval_close(&j->eval);
}

static enum status
job_open(struct job *j, const struct options *o, const char *checkpoint, struct error *err) {
    const enum feature_layer layer = (enum feature_layer)o->layer;
    TRY((layer == FEATURES_CAPTIONS ? eval_open_texts : eval_open_images)(&j->eval, checkpoint,
                                                                          &o->common, err));
    TRY(path_check_dataset(o->train, err));
    const struct embed_options how = eval_transformed(&j->eval, &o->common, AUGMENT_EVAL_CROP);
    return feature_sets_open(&j->sets, &j->eval.encoder, j->eval.dev, o->train, o->common.data,
                             layer, &how, err);
}

static enum status report(const struct job *j, const struct options *o, struct error *err) {
    const size_t count = o->method->answer_count;
    struct json_writer w;
    cli_begin_json(&w);
    for (size_t i = 0; i < count; i++) {
        if (count > 1) {
            json_open_object(&w, o->method->answers[i]);
        }
        eval_write_classes(&w, &j->results[i], &j->sets.train.classes, o->per_class);
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
     .help = "random images per class from which the means are computed, at most all of the class; "
             "0: all"},
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
    .notes =
        CLI_TEXTS("The mean classifier of Arora et al. (ICML 2019) predicts the class whose mean "
                  "has the largest dot product with the features, without bias or normalisation. "
                  "AVG-k is the mean accuracy over all tasks of k classes, computed exactly.",
                  "--shots 5 is the paper's mu-5. Each number is then the mean over --draws random "
                  "draws, followed by the standard deviation (--json: std)."),
    CLI_OPTIONS(mean_rows),
    .shared = feature_tables,
    .arguments = {1, 1},
};

static enum status classify_mean(struct job *j, const struct options *o, struct error *err) {
    const struct feature_sets *f = &j->sets;
    if (o->shots > 0) {
        return classify_by_few(&j->results[0], &j->deviation, j->eval.dev, &f->test.set,
                               &f->train.set, f->class_count, (int64_t)o->shots, o->draws, o->seed,
                               err);
    }
    float *means = calloc((size_t)f->class_count, (size_t)f->train.set.dim * sizeof *means);
    TRY_MEMORY(means, err, "out of memory");
    classify_means(means, &f->train.set, f->class_count, INT64_MAX, 0, 0);
    enum status s = classify_by_vectors(&j->results[0], j->eval.dev, &f->test.set, means, NULL,
                                        f->class_count, err);
    free(means);
    return s;
}

int ccstream_eval_mean(int argc, char **argv) {
    static const struct method method = {&mean_program, NULL, 1, classify_mean};
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
    .notes = CLI_TEXTS("The defaults are those of CyCLIP's linear probe (Goel et al., NeurIPS "
                       "2022): unnormalised features, AdamW, 32 epochs."),
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
    double loss = 0.0;
    TRY(features_by_probe(&j->results[0], &loss, j->eval.dev, &j->sets, &how, err));
    log_write(&j->eval.log, LOG_LEVEL_INFO, "cross-entropy of the last epoch: %.4f", loss);
    return STATUS_OK;
}

int ccstream_eval_linear(int argc, char **argv) {
    static const struct method method = {&linear_program, NULL, 1, classify_linear};
    return method_main(&method, argc, argv);
}

/* ---- knn ------------------------------------------------------------------------------------ */

static const struct cli_option knn_rows[] = {
    {"neighbours", 'k', CLI_U64, FIELD(neighbours), .min = "1", .max = "65536",
     .default_text = "200", .metavar = "N", .help = "number of voting neighbours"},
    {"temperature", 0, CLI_DOUBLE, FIELD(temperature), .min = "0", .max = "100",
     .default_text = "0.5", .metavar = "X",
     .help = "temperature of the vote: a neighbour has weight exp(cosine / X); 0: equal weights"},
};

static const struct cli_program knn_program = {
    .name = "ccstream-eval knn",
    .purpose = "classifies images by their nearest neighbours",
    .usage = CLI_TEXTS("CHECKPOINT --train DIR --data DIR [options]"),
    .examples = CLI_TEXTS("ccstream-eval knn runs/a --train cifar10 --data cifar10-test"),
    .notes =
        CLI_TEXTS("nn1: the nearest neighbour, by Euclidean distance of the unnormalised features; "
                  "nn10: the majority of the ten nearest (EMC2); knn: the vote of --neighbours by "
                  "cosine similarity (DCL, HCL). Ties go to the lower class number."),
    CLI_OPTIONS(knn_rows),
    .shared = feature_tables,
    .arguments = {1, 1},
};

static enum status classify_neighbours(struct job *j, const struct options *o, struct error *err) {
    return features_by_neighbours(j->results, j->eval.dev, &j->sets, (int32_t)o->neighbours,
                                  o->temperature, err);
}

int ccstream_eval_knn(int argc, char **argv) {
    static const struct method method = {&knn_program, features_neighbour_names,
                                         FEATURES_NEIGHBOURS, classify_neighbours};
    return method_main(&method, argc, argv);
}
