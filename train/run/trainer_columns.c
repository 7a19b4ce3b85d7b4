/*
 * trainer_columns: a step's values from attached columns, by sample id: sample weights,
 * similarities of a reference model (DRRho-CLIP) and of a teacher (MobileCLIP). The loader delivers
 * the rows of this rank's part of the batch; the ranks exchange them, and each computes
 *
 *   R = X_R T_R^T of rows of length 1        S - R -> the loss         T -> distill_add
 *
 * on its device. The matrices are on the host, and so is the loss.
 */
#include "train/run/trainer_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The columns' names, each once, as loader_options.columns. */
enum status
trainer_list_columns(const struct trainer_options *o, char *out, size_t size, struct error *err) {
    const bool both = o->teacher_image != NULL && o->teacher_text != NULL;
    const char *const names[] = {
        o->weight, o->reference, o->teacher_image,
        both && strcmp(o->teacher_image, o->teacher_text) == 0 ? NULL : o->teacher_text};
    size_t used = 0;
    FAIL_IF((o->teacher_image == NULL) != (o->teacher_text == NULL), err, STATUS_USAGE,
            "--teacher-image and --teacher-text need each other; a column of two vectors is both");
    out[0] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i] != NULL) {
            FAIL_IF(strcspn(names[i], ",") > 32 || names[i][0] == '\0' || strchr(names[i], ','),
                    err, STATUS_USAGE, "'%.60s' is not a valid column name", names[i]);
            used +=
                (size_t)snprintf(out + used, size - used, "%s%s", used > 0 ? "," : "", names[i]);
        }
    }
    return STATUS_OK;
}

/* ---- memory ---- */

static const struct loader_column *find(const struct trainer *t, const char *name) {
    const struct loader_column *c = t->data.columns;
    while (strcmp(c->name, name) != 0) {
        c++;
    }
    return c;
}

/* The image and text vectors: of a column of two, the first and the second. */
static enum status open_features(struct trainer *t,
                                 struct column_features *f,
                                 const char *option,
                                 const char *image,
                                 const char *text,
                                 struct error *err) {
    const int64_t b = t->options.batch_count;
    for (int side = 0; side < 2; side++) {
        const struct loader_column *c = find(t, side == 0 ? image : text);
        const uint32_t size = c->values / c->vectors;
        FAIL_IF(c->vectors > 2 || (c->vectors == 1 && f == &t->reference) || size < 2 ||
                    (side == 1 && size != f->size),
                err, STATUS_USAGE,
                "%s: column '%s' has %" PRIu32 " numbers in %" PRIu32
                " vectors per sample; expected an image vector and a text vector of equal length",
                option, c->name, c->values, c->vectors);
        f->size = size;
        f->first[side] = c->first + (c->vectors == 2 && side == 1 ? size : 0);
        TRY(trainer_alloc_matrix(t, &f->x[side], b, size, err));
    }
    f->matrix = calloc((size_t)(b * b), sizeof *f->matrix);
    f->rows = calloc((size_t)b * f->size, sizeof *f->rows);
    TRY_MEMORY(f->matrix != NULL && f->rows != NULL, err, "no memory for columns");
    return STATUS_OK;
}

enum status trainer_open_columns(struct trainer *t, struct error *err) {
    const struct trainer_options *o = &t->options;
    const char *code = o->loss.parity == LOSS_PARITY_REFERENCE ? " of --variant code" : "";
    if (t->data.column_count == 0) {
        return STATUS_OK;
    }
    FAIL_IF(o->weight != NULL && !loss_takes_weights(t->loss), err, STATUS_USAGE,
            "--weight: loss %s%s does not support sample weights", o->loss.name, code);
    FAIL_IF(o->weight != NULL && find(t, o->weight)->values != 1, err, STATUS_USAGE,
            "--weight: column '%s' has %" PRIu32 " numbers per sample, expected one", o->weight,
            find(t, o->weight)->values);
    FAIL_IF(o->reference != NULL && !loss_takes_reference(t->loss), err, STATUS_USAGE,
            "--reference: loss %s%s keeps no moving average u of each sample; use sogclr, isogclr, "
            "nuclr or fastclip-v0 to -v3",
            o->loss.name, code);
    t->column_rows = calloc((size_t)o->batch_count * t->data.column_values, sizeof(float));
    t->weights = calloc(o->batch_count, sizeof *t->weights);
    TRY_MEMORY(t->column_rows != NULL && t->weights != NULL, err, "no memory for columns");
    TRY(o->reference == NULL
            ? STATUS_OK
            : open_features(t, &t->reference, "--reference", o->reference, o->reference, err));
    return o->teacher_image == NULL ? STATUS_OK
                                    : open_features(t, &t->teacher, "--teacher-image",
                                                    o->teacher_image, o->teacher_text, err);
}

void trainer_close_columns(struct trainer *t) {
    struct column_features *features[] = {&t->reference, &t->teacher};
    for (int i = 0; i < 2; i++) {
        free(features[i]->matrix);
        free(features[i]->rows);
        trainer_free_matrix(t, &features[i]->x[0]);
        trainer_free_matrix(t, &features[i]->x[1]);
    }
    free(t->column_rows);
    free(t->weights);
}

/* ---- a step ---- */

/* Computes the similarities of f. t->s is free between trainer_hand_similarity and
 * trainer_take_gradient. */
static enum status compare(struct trainer *t, const struct column_features *f, struct error *err) {
    const struct matmul m = {
        .out = t->s, .a = f->x[0], .b = f->x[1], .transpose_b = true, .alpha = 1.0f};
    for (int side = 0; side < 2 && f->size > 0; side++) {
        for (uint32_t i = 0; i < t->options.batch_count; i++) {
            const float *from = t->column_rows + (size_t)i * t->data.column_values + f->first[side];
            double square = 0.0;
            for (uint32_t k = 0; k < f->size; k++) {
                square += (double)from[k] * (double)from[k];
            }
            const double scale = square > 0.0 ? 1.0 / sqrt(square) : 0.0;
            for (uint32_t k = 0; k < f->size; k++) {
                f->rows[(size_t)i * f->size + k] = (float)((double)from[k] * scale);
            }
        }
        TRY(t->dev->ops->upload(t->dev, f->x[side].data, f->rows, tensor_size_bytes(&f->x[side]),
                                err));
    }
    if (f->size == 0) {
        return STATUS_OK;
    }
    TRY(t->dev->ops->matmul(t->dev, &m, err));
    return t->dev->ops->download(t->dev, f->matrix, t->s.data, tensor_size_bytes(&t->s), err);
}

enum status
trainer_take_columns(struct trainer *t, const struct step_flight *f, struct error *err) {
    const size_t values = t->data.column_values;
    const float *s = t->pairs[PAIR_CROSS].similarity;
    if (values == 0) {
        return STATUS_OK;
    }
    TRY(comm_gather(t->comm, t->column_rows, f->batch.columns,
                    f->batch.count * values * sizeof(float), err));
    for (size_t i = 0; i < t->options.batch_count && t->options.weight != NULL; i++) {
        t->weights[i] = t->column_rows[i * values + find(t, t->options.weight)->first];
        FAIL_IF(t->weights[i] < 0.0f, err, STATUS_USAGE,
                "--weight: column '%s' has %g for sample %" PRIu64 "; weights are 0 or more",
                t->options.weight, (double)t->weights[i], f->ids[i]);
    }
    TRY(compare(t, &t->reference, err));
    TRY(compare(t, &t->teacher, err));
    for (int64_t i = 0; t->reference.size > 0 && i < tensor_count(&t->s); i++) {
        t->reference.matrix[i] = s[i] - t->reference.matrix[i];
    }
    return STATUS_OK;
}
