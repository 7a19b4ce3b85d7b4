/*
 * features: features of two labelled datasets, and classifiers trained on the first and tested on
 * the second.
 *
 * Threading : as the device.
 * Ownership : struct feature_sets owns its arrays until feature_sets_close.
 */
#ifndef TRAIN_EVAL_FEATURES_H
#define TRAIN_EVAL_FEATURES_H

#include "train/eval/classify.h"
#include "train/eval/embed.h"
#include "train/eval/probe.h"
#include "train/eval/prompts.h"

enum feature_layer {
    FEATURES_TOWER,      /* the image tower's output */
    FEATURES_PROJECTION, /* image embeddings */
    FEATURES_CAPTIONS    /* embeddings of every caption, with the label of its image */
};

struct feature_side {
    struct embeddings e;
    struct text_list classes;
    float *rows; /* (set.count, set.dim), an array of e */
    struct classify_set set;
};
struct feature_sets {
    struct feature_side train, test; /* labels of both: class numbers of `train`; -1: none */
    int32_t class_count;
};

/* Close *out after a failure too. With several ranks (opt->comm): collective, as embed_dataset.
 * Returns OK, USAGE (no labels to train on) or what embed_dataset returns. */
enum status feature_sets_open(struct feature_sets *out,
                              const struct embed_model *model,
                              struct device *dev,
                              const char *train_dir,
                              const char *test_dir,
                              enum feature_layer layer,
                              const struct embed_options *opt,
                              struct error *err);
void feature_sets_close(struct feature_sets *f); /* accepts an all-zero one */

/* By a linear classifier. *loss (may be NULL) and status as of probe_train; USAGE: no labelled
 * query. */
enum status features_by_probe(struct classify_result *out,
                              double *loss,
                              struct device *dev,
                              const struct feature_sets *f,
                              const struct probe_options *opt,
                              struct error *err);

/* By neighbours, in one pass: the nearest one and the majority of ten, by Euclidean distance of
 * unnormalised features (as EMC2), and `neighbours` votes by cosine, with weights exp(cosine /
 * temperature) (as DCL and HCL). Returns as classify_by_neighbours. */
enum { FEATURES_NN1, FEATURES_NN10, FEATURES_KNN, FEATURES_NEIGHBOURS };
extern const char *const features_neighbour_names[FEATURES_NEIGHBOURS];
enum status features_by_neighbours(struct classify_result out[FEATURES_NEIGHBOURS],
                                   struct device *dev,
                                   const struct feature_sets *f,
                                   int32_t neighbours,
                                   double temperature,
                                   struct error *err);

/* The results of one evaluation during training: top-1 in percent. */
struct features_result {
    double neighbours[FEATURES_NEIGHBOURS]; /* features_by_neighbours with 200 neighbours,
                                               temperature 0.5 */
    double probe, probe_top5;               /* NaN: not requested */
    uint64_t images;                        /* 0: no evaluation was made */
    int32_t class_count;
};

/* Encodes both sets, then classifies by neighbours and, if `probe`, by probe_train's defaults.
 * Returns as the functions above. */
enum status features_evaluate(struct features_result *out,
                              const struct embed_model *model,
                              struct device *dev,
                              const char *train_dir,
                              const char *test_dir,
                              enum feature_layer layer,
                              bool probe,
                              const struct embed_options *opt,
                              struct error *err);

/* One object "features" {"nn1":..,"nn10":..,"knn":..,"probe":..,"probe_top5":..,"images":..,
 * "classes":..}. */
void features_write_json(struct json_writer *w, const struct features_result *r);

#endif
