/*
 * ccstream-eval linear, knn, mean: classifiers on the image features of a labelled training set,
 * evaluated on another set. Each has its own way to use the training set; they share the rest.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tools/ccstream_eval/eval_common.h"
#include "train/eval/probe.h"

struct options {
    struct eval_options common;
    const char *train;
    int layer;
    bool per_class;
    uint64_t epochs, probe_batch, seed; /* linear */
    double lr, weight_decay;
    uint64_t neighbours; /* knn */
    double temperature;
};

#define FIELD(name) CLI_FIELD(struct options, name)

static const char *const layer_choices[] = {"tower", "projection", NULL};
static const struct cli_option feature_rows[] = {
    EVAL_DATA_ROW("dataset with labels to evaluate on"),
    {"train", 0, CLI_STRING, FIELD(train), .metavar = "DIR", .required = true,
     .help = "dataset with labels to learn from; classes are matched by name"},
    {"layer", 0, CLI_ENUM, FIELD(layer), .choices = layer_choices, .default_text = "tower",
     .metavar = "NAME",
     .help = "features: the output of the image tower, or the normalised projection after it"},
    EVAL_TRANSFORM_ROW("crop"),
    {"per-class", 0, CLI_FLAG, FIELD(per_class), .help = "also print a line for each class"},
};

static const struct cli_rows feature_tables[] = {CLI_ROWS(feature_rows),
                                                 {eval_option_rows, EVAL_OPTION_COUNT},
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
};

static enum status open_side(struct side *side,
                             struct job *j,
                             const struct options *o,
                             const char *dir,
                             struct error *err) {
    struct embed_options how = eval_transformed(&j->eval, &o->common);
    how.features = o->layer == 0;
    TRY(eval_classes(&side->classes, dir, err));
    TRY(embed_dataset(&side->e, &j->eval.encoder, j->eval.dev, dir, &how, err));
    side->set =
        (struct classify_set){.rows = o->layer == 0 ? side->e.features : side->e.images,
                              .labels = side->e.labels,
                              .count = side->e.images_count,
                              .dim = o->layer == 0 ? side->e.feature_dim : side->e.embed_dim};
    return STATUS_OK;
}

static void job_close(struct job *j) {
    embeddings_fini(&j->train.e);
    embeddings_fini(&j->test.e);
    text_list_fini(&j->train.classes);
    text_list_fini(&j->test.classes);
    eval_close(&j->eval);
}

/* Encodes both sets, and gives the test labels the numbers of the training set. */
static enum status
job_open(struct job *j, const struct options *o, const char *checkpoint, struct error *err) {
    *j = (struct job){0};
    enum status s;
    TRY_OR_FAIL(s, eval_open_images(&j->eval, checkpoint, &o->common, err));
    TRY_OR_FAIL(s, open_side(&j->train, j, o, o->train, err));
    TRY_OR_FAIL(s, open_side(&j->test, j, o, o->common.data, err));
    j->class_count = eval_label_count(j->train.e.labels, j->train.e.images_count);
    if (j->class_count == 0) {
        s = error_set(err, STATUS_USAGE,
                      "%s has no labels; ccpack gives them to class folders and CIFAR files",
                      o->train);
        goto fail;
    }
    eval_map_labels(j->test.e.labels, j->test.e.images_count, &j->test.classes, &j->train.classes);
    return STATUS_OK;
fail:
    job_close(j);
    return s;
}

/* A named result. */
struct answer {
    const char *name;
    struct classify_result result;
};

static enum status report(const struct options *o,
                          const struct job *j,
                          const struct answer *answers,
                          size_t count,
                          struct error *err) {
    if (!o->common.json) {
        for (size_t i = 0; i < count; i++) {
            eval_print_classes(answers[i].name, &answers[i].result, &j->train.classes,
                               o->per_class);
        }
        return STATUS_OK;
    }
    struct json_writer w;
    cli_begin_json(&w);
    for (size_t i = 0; i < count; i++) {
        if (count > 1) {
            json_open_object(&w, answers[i].name);
        }
        eval_write_classes(&w, &answers[i].result, &j->train.classes, o->per_class);
        if (count > 1) {
            json_close_object(&w);
        }
    }
    return cli_end_json(&w, err);
}

/* ---- mean ----------------------------------------------------------------------------------- */

static const struct cli_program mean_program = {
    .name = "ccstream-eval mean",
    .purpose = "classifies images by the mean features of each class",
    .usage = (const char *const[]){"CHECKPOINT --train DIR --data DIR [options]", NULL},
    .examples =
        (const char *const[]){"ccstream-eval mean runs/a --train cifar10 --data cifar10-test",
                              NULL},
    .notes =
        (const char *const[]){
            "The mean classifier of Arora et al. (ICML 2019): the class whose mean has the largest "
            "dot product, without bias or normalisation. AVG-k is the mean accuracy over all tasks "
            "of k classes, exactly.",
            NULL},
    .shared = feature_tables,
    .min_arguments = 1,
    .max_arguments = 1,
};

static enum status run_mean(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct job j;
    struct answer answer = {.name = "mean"};
    TRY(job_open(&j, o, a->items[0], err));
    float *means = calloc((size_t)j.class_count, (size_t)j.train.set.dim * sizeof *means);
    enum status s = means != NULL ? STATUS_OK : error_set(err, STATUS_NOMEM, "out of memory");
    if (s == STATUS_OK) {
        classify_means(means, &j.train.set, j.class_count);
        s = classify_by_vectors(&answer.result, j.eval.dev, &j.test.set, means, NULL, j.class_count,
                                err);
    }
    if (s == STATUS_OK) {
        s = report(o, &j, &answer, 1, err);
    }
    classify_result_fini(&answer.result);
    free(means);
    job_close(&j);
    return s;
}

int ccstream_eval_mean(int argc, char **argv) {
    struct options o;
    return cli_main(&mean_program, &o, run_mean, argc, argv);
}

/* ---- linear --------------------------------------------------------------------------------- */

static const struct cli_option linear_rows[] = {
    {"epochs", 'e', CLI_U64, FIELD(epochs), .min = "1", .max = "100000", .default_text = "32",
     .metavar = "N", .help = "epochs over --train"},
    {"probe-batch", 0, CLI_U64, FIELD(probe_batch), .min = "1", .max = "1048576",
     .default_text = "512", .metavar = "N", .help = "images per step of the classifier"},
    {"lr", 0, CLI_DOUBLE, FIELD(lr), .min = "0", .max = "100", .default_text = "0.005",
     .metavar = "X", .help = "learning rate of AdamW, decays to 0 by a cosine"},
    {"weight-decay", 0, CLI_DOUBLE, FIELD(weight_decay), .min = "0", .max = "100",
     .default_text = "0.01", .metavar = "X",
     .help = "decoupled; of the weights only, not the bias"},
    {"seed", 's', CLI_U64, FIELD(seed), .min = "0", .max = "9223372036854775807",
     .default_text = "0", .metavar = "N", .help = "of the initial weights and the order"},
};

static const struct cli_program linear_program = {
    .name = "ccstream-eval linear",
    .purpose = "trains and evaluates a linear classifier on fixed image features",
    .usage = (const char *const[]){"CHECKPOINT --train DIR --data DIR [options]", NULL},
    .examples =
        (const char *const[]){"ccstream-eval linear runs/a --train cifar10 --data cifar10-test",
                              NULL},
    .notes = (const char *const[]){"The defaults are those of CyCLIP's linear probe (Goel et al., "
                                   "NeurIPS 2022): features as they are, AdamW, 32 epochs.",
                                   NULL},
    .options = linear_rows,
    .option_count = CLI_COUNT(linear_rows),
    .shared = feature_tables,
    .min_arguments = 1,
    .max_arguments = 1,
};

static enum status
train_probe(struct answer *answer, struct job *j, const struct options *o, struct error *err) {
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
        s = classify_by_vectors(&answer->result, j->eval.dev, &j->test.set, weight, bias,
                                j->class_count, err);
    }
    free(weight);
    free(bias);
    return s;
}

static enum status
run_linear(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct job j;
    struct answer answer = {.name = "linear"};
    TRY(job_open(&j, o, a->items[0], err));
    enum status s = train_probe(&answer, &j, o, err);
    if (s == STATUS_OK) {
        s = report(o, &j, &answer, 1, err);
    }
    classify_result_fini(&answer.result);
    job_close(&j);
    return s;
}

int ccstream_eval_linear(int argc, char **argv) {
    struct options o;
    return cli_main(&linear_program, &o, run_linear, argc, argv);
}

/* ---- knn ------------------------------------------------------------------------------------ */

static const struct cli_option knn_rows[] = {
    {"neighbours", 'k', CLI_U64, FIELD(neighbours), .min = "1", .max = "65536",
     .default_text = "200", .metavar = "N", .help = "how many neighbours vote"},
    {"temperature", 0, CLI_DOUBLE, FIELD(temperature), .min = "0", .max = "100",
     .default_text = "0.5", .metavar = "X",
     .help = "a vote has weight exp(cosine / X); 0: all the same"},
};

static const struct cli_program knn_program = {
    .name = "ccstream-eval knn",
    .purpose = "classifies images by their nearest neighbours",
    .usage = (const char *const[]){"CHECKPOINT --train DIR --data DIR [options]", NULL},
    .examples =
        (const char *const[]){"ccstream-eval knn runs/a --train cifar10 --data cifar10-test", NULL},
    .notes =
        (const char *const[]){"nn1: the nearest by Euclidean distance of the features as they are "
                              "(the protocol of EMC2); knn: the vote of --neighbours by cosine "
                              "(that of DCL and HCL).",
                              NULL},
    .options = knn_rows,
    .option_count = CLI_COUNT(knn_rows),
    .shared = feature_tables,
    .min_arguments = 1,
    .max_arguments = 1,
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

static enum status ask_neighbours(struct answer answers[2],
                                  struct job *j,
                                  const struct options *o,
                                  struct error *err) {
    float *offset = half_squares(&j->train.set);
    if (offset == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory");
    }
    enum status s = classify_by_neighbours(&answers[0].result, j->eval.dev, &j->test.set,
                                           &j->train.set, offset, j->class_count, 1, 0.0, err);
    free(offset);
    TRY(s);
    float *train = o->layer == 0 ? j->train.e.features : j->train.e.images;
    float *test = o->layer == 0 ? j->test.e.features : j->test.e.images;
    classify_normalize(train, j->train.set.count, j->train.set.dim);
    classify_normalize(test, j->test.set.count, j->test.set.dim);
    return classify_by_neighbours(&answers[1].result, j->eval.dev, &j->test.set, &j->train.set,
                                  NULL, j->class_count, (int32_t)o->neighbours, o->temperature,
                                  err);
}

static enum status run_knn(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct job j;
    struct answer answers[2] = {{.name = "nn1"}, {.name = "knn"}};
    TRY(job_open(&j, o, a->items[0], err));
    enum status s = ask_neighbours(answers, &j, o, err);
    if (s == STATUS_OK) {
        s = report(o, &j, answers, 2, err);
    }
    classify_result_fini(&answers[0].result);
    classify_result_fini(&answers[1].result);
    job_close(&j);
    return s;
}

int ccstream_eval_knn(int argc, char **argv) {
    struct options o;
    return cli_main(&knn_program, &o, run_knn, argc, argv);
}
