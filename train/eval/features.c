/*
 * features: encodes both sets, then classifies.
 */
#include "train/eval/features.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- sets ---- */

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

static enum status open_side(struct feature_side *side,
                             const struct embed_model *model,
                             struct device *dev,
                             const char *dir,
                             enum feature_layer layer,
                             const struct embed_options *opt,
                             struct error *err) {
    struct embed_options how = *opt;
    const bool captions = layer == FEATURES_CAPTIONS;
    how.features = layer == FEATURES_TOWER;
    how.texts = how.no_images = captions;
    TRY(zeroshot_classes(&side->classes, dir, err));
    TRY(embed_dataset(&side->e, model, dev, dir, &how, err));
    TRY(captions ? label_texts(&side->e, err) : STATUS_OK);
    side->rows = how.features ? side->e.features : captions ? side->e.texts : side->e.images;
    side->set =
        (struct classify_set){.rows = side->rows,
                              .labels = side->e.labels,
                              .count = captions ? side->e.texts_count : side->e.images_count,
                              .dim = how.features ? side->e.feature_dim : side->e.embed_dim};
    return STATUS_OK;
}

/* Renumbers labels from the classes `from` to those of `to` with the same name; a class that `to`
 * lacks becomes -1. If either list is empty, labels stay as they are. */
static void map_labels(int32_t *labels,
                       int64_t count,
                       const struct text_list *from,
                       const struct text_list *to) {
    if (from->count == 0 || to->count == 0) {
        return;
    }
    for (size_t c = 0; c < from->count; c++) {
        int32_t target = -1;
        for (size_t t = 0; t < to->count && target < 0; t++) {
            target = strcmp(from->lines[c], to->lines[t]) == 0 ? (int32_t)t : -1;
        }
        if (target == (int32_t)c) {
            continue;
        }
        for (int64_t i = 0; i < count; i++) { /* below -1: already renumbered */
            labels[i] = labels[i] == (int32_t)c ? -2 - target : labels[i];
        }
    }
    for (int64_t i = 0; i < count; i++) {
        labels[i] = labels[i] < -1 ? -2 - labels[i] : labels[i];
    }
}

enum status feature_sets_open(struct feature_sets *out,
                              const struct embed_model *model,
                              struct device *dev,
                              const char *train_dir,
                              const char *test_dir,
                              enum feature_layer layer,
                              const struct embed_options *opt,
                              struct error *err) {
    memset(out, 0, sizeof *out);
    TRY(open_side(&out->train, model, dev, train_dir, layer, opt, err));
    TRY(open_side(&out->test, model, dev, test_dir, layer, opt, err));
    for (int64_t i = 0; i < out->train.set.count; i++) {
        const int32_t label = out->train.set.labels[i];
        out->class_count = label >= out->class_count ? label + 1 : out->class_count;
    }
    FAIL_IF(out->class_count == 0, err, STATUS_USAGE,
            "%s has no labels; pack class folders, CIFAR or STL-10 files", train_dir);
    map_labels(out->test.e.labels, out->test.set.count, &out->test.classes, &out->train.classes);
    return STATUS_OK;
}

void feature_sets_close(struct feature_sets *f) {
    embeddings_fini(&f->train.e);
    embeddings_fini(&f->test.e);
    text_list_fini(&f->train.classes);
    text_list_fini(&f->test.classes);
}

/* ---- classifiers ---- */

enum status features_by_probe(struct classify_result *out,
                              double *loss,
                              struct device *dev,
                              const struct feature_sets *f,
                              const struct probe_options *opt,
                              struct error *err) {
    float *weight = calloc((size_t)f->class_count, (size_t)f->train.set.dim * sizeof *weight);
    float *bias = calloc((size_t)f->class_count, sizeof *bias);
    enum status s =
        weight != NULL && bias != NULL
            ? probe_train(weight, bias, loss, dev, &f->train.set, f->class_count, opt, err)
            : error_set(err, STATUS_NOMEM, "out of memory");
    THEN(s, classify_by_vectors(out, dev, &f->test.set, weight, bias, f->class_count, err));
    free(weight);
    free(bias);
    return s;
}

const char *const features_neighbour_names[FEATURES_NEIGHBOURS] = {"nn1", "nn10", "knn"};

enum status features_by_neighbours(struct classify_result out[FEATURES_NEIGHBOURS],
                                   struct device *dev,
                                   const struct feature_sets *f,
                                   int32_t neighbours,
                                   double temperature,
                                   struct error *err) {
    const struct neighbour_rule rules[FEATURES_NEIGHBOURS] = {
        [FEATURES_NN1] = {NEIGHBOURS_DISTANCE, 1, 0.0},
        [FEATURES_NN10] = {NEIGHBOURS_DISTANCE, 10, 0.0},
        [FEATURES_KNN] = {NEIGHBOURS_COSINE, neighbours, temperature}};
    return classify_by_neighbours(out, dev, &f->test.set, &f->train.set, f->class_count, rules,
                                  FEATURES_NEIGHBOURS, err);
}

/* ---- during training ---- */

enum status features_evaluate(struct features_result *out,
                              const struct embed_model *model,
                              struct device *dev,
                              const char *train_dir,
                              const char *test_dir,
                              enum feature_layer layer,
                              bool probe,
                              const struct embed_options *opt,
                              struct error *err) {
    struct feature_sets sets;
    struct classify_result near[FEATURES_NEIGHBOURS] = {{0}};
    struct classify_result linear = {.top1 = NAN, .top5 = NAN};
    struct probe_options how;
    probe_options_default(&how);
    how.should_stop = opt->should_stop;
    how.cookie = opt->cookie;
    enum status s = feature_sets_open(&sets, model, dev, train_dir, test_dir, layer, opt, err);
    if (s == STATUS_OK && probe) {
        s = features_by_probe(&linear, NULL, dev, &sets, &how, err);
    }
    THEN(s, features_by_neighbours(near, dev, &sets, 200, 0.5, err));
    *out = (struct features_result){.probe = linear.top1,
                                    .probe_top5 = linear.top5,
                                    .images = near[0].images,
                                    .class_count = sets.class_count};
    for (size_t i = 0; i < FEATURES_NEIGHBOURS; i++) {
        out->neighbours[i] = near[i].top1;
        classify_result_fini(&near[i]);
    }
    classify_result_fini(&linear);
    feature_sets_close(&sets);
    return s;
}

void features_write_json(struct json_writer *w, const struct features_result *r) {
    json_open_object(w, "features");
    for (size_t i = 0; i < FEATURES_NEIGHBOURS; i++) {
        json_rounded(w, features_neighbour_names[i], r->neighbours[i]);
    }
    if (isfinite(r->probe)) {
        json_rounded(w, "probe", r->probe);
        json_rounded(w, "probe_top5", r->probe_top5);
    }
    json_u64(w, "images", r->images);
    json_i64(w, "classes", r->class_count);
    json_close_object(w);
}
