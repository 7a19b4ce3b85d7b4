/*
 * batch_features: features drawn or read, divided and standardised.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/base/rng.h"
#include "tools/ccstudy/batch_model.h"
#include "tools/cli/npy.h"

enum { LATENT = 12, CLUSTERS = 96, DRAWN_WIDTH = 64, MAX_PAIRS = 1 << 20 };

/* What is drawn, of (seed, this). */
enum { DRAW_MAPS, DRAW_PAIRS };

static enum status no_memory(int64_t count, struct error *err) {
    return error_set(err, STATUS_NOMEM, "out of memory for %lld pairs", (long long)count);
}

void batch_features_fini(struct batch_features *f) {
    free(f->images);
    free(f->texts);
    free(f->owners);
    free(f->labels);
    free(f->order);
    free(f->first_text);
    *f = (struct batch_features){0};
}

/* ---- drawn ---- */

struct maps {
    double centre[CLUSTERS][LATENT];
    double view[2][DRAWN_WIDTH][LATENT];
};

/* A cluster of [0, CLUSTERS), c with probability proportional to 1 / (c + 1). */
static int draw_cluster(struct rng *r) {
    double total = 0.0;
    for (int c = 0; c < CLUSTERS; c++) {
        total += 1.0 / (c + 1);
    }
    double left = rng_uniform(r) * total;
    int c = 0;
    while (c < CLUSTERS - 1 && (left -= 1.0 / (c + 1)) > 0.0) {
        c++;
    }
    return c;
}

static void draw_pair(struct batch_features *f, int64_t i, const struct maps *m, struct rng *r) {
    double z[LATENT];
    float *const rows[2] = {f->images + i * DRAWN_WIDTH, f->texts + i * DRAWN_WIDTH};
    const int cluster = draw_cluster(r);
    for (int k = 0; k < LATENT; k++) {
        z[k] = m->centre[cluster][k] + 0.7 * rng_normal(r);
    }
    for (int side = 0; side < 2; side++) {
        for (int d = 0; d < DRAWN_WIDTH; d++) {
            double sum = 0.0;
            for (int k = 0; k < LATENT; k++) {
                sum += m->view[side][d][k] * z[k];
            }
            rows[side][d] = (float)(tanh(sum) + rng_normal(r));
        }
    }
    f->owners[i] = (int32_t)i;
}

enum status
batch_features_draw(struct batch_features *f, int64_t count, uint64_t seed, struct error *err) {
    struct rng r;
    struct maps *m = malloc(sizeof *m);
    *f = (struct batch_features){.images_count = count,
                                 .texts_count = count,
                                 .image_width = DRAWN_WIDTH,
                                 .text_width = DRAWN_WIDTH};
    f->images = calloc((size_t)count * DRAWN_WIDTH, sizeof *f->images);
    f->texts = calloc((size_t)count * DRAWN_WIDTH, sizeof *f->texts);
    f->owners = calloc((size_t)count, sizeof *f->owners);
    if (m == NULL || f->images == NULL || f->texts == NULL || f->owners == NULL) {
        free(m);
        batch_features_fini(f);
        return no_memory(count, err);
    }
    rng_init(&r, seed, RNG_STUDY, CLUSTERS, DRAW_MAPS);
    for (size_t i = 0; i < (size_t)CLUSTERS * LATENT; i++) {
        m->centre[i / LATENT][i % LATENT] = rng_normal(&r);
    }
    for (size_t i = 0; i < 2 * (size_t)DRAWN_WIDTH * LATENT; i++) {
        m->view[i / (DRAWN_WIDTH * LATENT)][i / LATENT % DRAWN_WIDTH][i % LATENT] =
            rng_normal(&r) / sqrt(LATENT);
    }
    rng_init(&r, seed, RNG_STUDY, CLUSTERS, DRAW_PAIRS);
    for (int64_t i = 0; i < count; i++) {
        draw_pair(f, i, m, &r);
    }
    free(m);
    return STATUS_OK;
}

/* ---- read ---- */

static enum status read_one(void **out,
                            int64_t *rows,
                            int64_t *columns,
                            const char *prefix,
                            const char *name,
                            const char *dtype,
                            struct error *err) {
    char path[PATH_MAX_BYTES];
    uint64_t r = 0;
    uint64_t c = 0;
    if (snprintf(path, sizeof path, "%s.%s.npy", prefix, name) >= (int)sizeof path) {
        return error_set(err, STATUS_LIMIT, "%.80s...: the path is too long", prefix);
    }
    TRY(npy_read(path, dtype, out, &r, &c, err));
    if (r < 1 || r > MAX_PAIRS || c > BATCH_MAX_WIDTH) {
        return error_set(err, STATUS_LIMIT, "%s: %llu rows of %llu numbers; at most %d of %d", path,
                         (unsigned long long)r, (unsigned long long)c, (int)MAX_PAIRS,
                         (int)BATCH_MAX_WIDTH);
    }
    *rows = (int64_t)r;
    *columns = (int64_t)c;
    return STATUS_OK;
}

static bool finite_row(const float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) {
            return false;
        }
    }
    return true;
}

static enum status
check(const struct batch_features *f, int64_t owners_count, const char *prefix, struct error *err) {
    int32_t next = 0;
    if (f->image_width < 1 || f->text_width < 1 || owners_count != f->texts_count) {
        return error_set(err, STATUS_CORRUPT,
                         "%s: images and texts of two dimensions, and an owner of each text, "
                         "are needed; there are %lld texts and %lld owners",
                         prefix, (long long)f->texts_count, (long long)owners_count);
    }
    for (int64_t t = 0; t < f->texts_count; t++) {
        if (f->owners[t] != next && (t == 0 || f->owners[t] != next - 1)) {
            return error_set(err, STATUS_CORRUPT,
                             "%s.owners.npy: text %lld has image %d: owners ascend, and every "
                             "image has a text",
                             prefix, (long long)t, (int)f->owners[t]);
        }
        next = f->owners[t] + 1;
    }
    if (next != f->images_count) {
        return error_set(err, STATUS_CORRUPT, "%s: %lld images, but texts of %d", prefix,
                         (long long)f->images_count, (int)next);
    }
    if (!finite_row(f->images, f->images_count * f->image_width) ||
        !finite_row(f->texts, f->texts_count * f->text_width)) {
        return error_set(err, STATUS_CORRUPT, "%s: a feature is not finite", prefix);
    }
    return STATUS_OK;
}

/* The tower's output, or the embeddings. */
static enum status read_images(struct batch_features *f, const char *prefix, struct error *err) {
    char path[PATH_MAX_BYTES];
    bool towers = false;
    void *data = NULL;
    if (snprintf(path, sizeof path, "%s.features.npy", prefix) < (int)sizeof path) {
        TRY(file_posix()->exists(file_posix()->context, path, &towers, err));
    }
    TRY(read_one(&data, &f->images_count, &f->image_width, prefix, towers ? "features" : "images",
                 "<f4", err));
    f->images = data;
    return STATUS_OK;
}

static enum status read_all(struct batch_features *f, const char *prefix, struct error *err) {
    int64_t owners_count = 0;
    int64_t none = 0;
    void *data = NULL;
    TRY(read_images(f, prefix, err));
    TRY(read_one(&data, &f->texts_count, &f->text_width, prefix, "texts", "<f4", err));
    f->texts = data;
    TRY(read_one(&data, &owners_count, &none, prefix, "owners", "<i4", err));
    f->owners = data;
    return check(f, owners_count, prefix, err);
}

static enum status
read_all_labelled(struct batch_features *f, const char *prefix, struct error *err) {
    int64_t labels_count = 0;
    int64_t none = 0;
    void *data = NULL;
    TRY(read_images(f, prefix, err));
    TRY(read_one(&data, &labels_count, &none, prefix, "labels", "<i4", err));
    f->labels = data;
    bool sound = f->image_width >= 1 && labels_count == f->images_count &&
                 finite_row(f->images, f->images_count * f->image_width);
    for (int64_t i = 0; i < labels_count && sound; i++) {
        sound = f->labels[i] >= 0 && f->labels[i] < BATCH_MAX_CLASSES;
        f->classes = f->labels[i] >= f->classes ? f->labels[i] + 1 : f->classes;
    }
    return sound && f->classes >= 2
               ? STATUS_OK
               : error_set(err, STATUS_CORRUPT,
                           "%s: finite features of images are needed, and for each a label of two "
                           "to %d classes",
                           prefix, (int)BATCH_MAX_CLASSES);
}

static enum status
read_into(struct batch_features *f,
          enum status (*read)(struct batch_features *f, const char *prefix, struct error *err),
          const char *prefix,
          struct error *err) {
    *f = (struct batch_features){0};
    const enum status s = read(f, prefix, err);
    if (s != STATUS_OK) {
        batch_features_fini(f);
    }
    return s;
}

enum status batch_features_read(struct batch_features *f, const char *prefix, struct error *err) {
    return read_into(f, read_all, prefix, err);
}

enum status
batch_features_read_labelled(struct batch_features *f, const char *prefix, struct error *err) {
    return read_into(f, read_all_labelled, prefix, err);
}

/* ---- divided ---- */

/* Sums over the rows of the training images' `width` columns; `first` NULL: a row for each image.
 */
static int64_t add_rows(double *sums,
                        double *squares,
                        const float *rows,
                        int64_t width,
                        const struct batch_features *f,
                        const int64_t *first) {
    const int64_t *train = f->order + 2 * f->held_out_count;
    int64_t count = 0;
    for (int64_t i = 0; i < f->train_count; i++) {
        const int64_t from = first != NULL ? first[train[i]] : train[i];
        const int64_t to = first != NULL ? first[train[i] + 1] : train[i] + 1;
        for (int64_t r = from; r < to; r++) {
            for (int64_t d = 0; d < width; d++) {
                const double v = (double)rows[r * width + d];
                sums[d] += v;
                *squares += v * v;
            }
        }
        count += to - from;
    }
    return count;
}

/* Columns to mean 0, all of them to mean square 1, over training rows. */
static void standardise(float *rows,
                        int64_t count,
                        int64_t width,
                        const struct batch_features *f,
                        const int64_t *first) {
    static double means[BATCH_MAX_WIDTH];
    memset(means, 0, sizeof means);
    double squares = 0.0;
    const double n = (double)add_rows(means, &squares, rows, width, f, first);
    double variance = squares / n;
    for (int64_t d = 0; d < width; d++) {
        means[d] /= n;
        variance -= means[d] * means[d];
    }
    const double scale = variance > 0.0 ? sqrt((double)width / variance) : 0.0;
    for (int64_t r = 0; r < count; r++) {
        for (int64_t d = 0; d < width; d++) {
            rows[r * width + d] = (float)(scale * ((double)rows[r * width + d] - means[d]));
        }
    }
}

enum status batch_features_divide(struct batch_features *f,
                                  int64_t held_out_count,
                                  uint64_t seed,
                                  struct error *err) {
    const int64_t rest = f->images_count - 2 * held_out_count;
    struct permutation p;
    if (rest < BATCH_LARGEST) {
        return error_set(err, STATUS_USAGE,
                         "%lld pairs: with --held-out %lld for validation and as many for the test "
                         "fewer than %d remain",
                         (long long)f->images_count, (long long)held_out_count, (int)BATCH_LARGEST);
    }
    f->held_out_count = held_out_count;
    f->train_count = rest / BATCH_LARGEST * BATCH_LARGEST;
    f->order = calloc((size_t)f->images_count, sizeof *f->order);
    f->first_text = calloc((size_t)f->images_count + 1, sizeof *f->first_text);
    if (f->order == NULL || f->first_text == NULL) {
        return no_memory(f->images_count, err);
    }
    permutation_init(&p, (uint64_t)f->images_count, seed, 0);
    for (int64_t i = 0; i < f->images_count; i++) {
        f->order[i] = (int64_t)permutation_at(&p, (uint64_t)i);
    }
    for (int64_t t = 0; t < f->texts_count; t++) {
        f->first_text[f->owners[t] + 1] = t + 1;
    }
    standardise(f->images, f->images_count, f->image_width, f, NULL);
    if (f->labels == NULL) {
        standardise(f->texts, f->texts_count, f->text_width, f, f->first_text);
    }
    return STATUS_OK;
}

enum status batch_features_open(struct batch_features *f,
                                const char *prefix,
                                int64_t count,
                                int64_t held_out,
                                uint64_t seed,
                                struct error *err) {
    TRY(prefix != NULL ? batch_features_read(f, prefix, err)
                       : batch_features_draw(f, count, seed, err));
    return batch_features_divide(f, held_out, seed, err);
}
