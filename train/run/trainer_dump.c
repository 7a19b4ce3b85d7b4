/*
 * trainer_dump: RUN/nonfinite.json: a description of a step with a number that is not finite, for
 * the user.
 */
#include "train/run/trainer_internal.h"

#include <math.h>
#include <stdlib.h>

#include "formats/base/file_io.h"
#include "formats/base/json_writer.h"

enum { MAX_DUMP_BYTES = 64 << 20 };

/* Writes how many numbers are finite, and their range. */
static void put_range(struct json_writer *w, const float *values, int64_t count) {
    int64_t finite_count = 0;
    double low = 0.0;
    double high = 0.0;
    for (int64_t i = 0; i < count; i++) {
        if (isfinite(values[i])) {
            const double v = (double)values[i];
            low = finite_count == 0 || v < low ? v : low;
            high = finite_count == 0 || v > high ? v : high;
            finite_count++;
        }
    }
    json_i64(w, "numbers", count);
    json_i64(w, "not_finite", count - finite_count);
    json_double(w, "min", low);
    json_double(w, "max", high);
}

/* Writes every tensor of a slot with a number that is not finite. */
static enum status
put_tensors(struct json_writer *w, struct trainer *t, enum param_slot slot, struct error *err) {
    const struct params *p = trainer_params(t);
    enum status s = STATUS_OK;
    for (int32_t i = 0; i < params_count(p) && s == STATUS_OK; i++) {
        const struct param_info info = params_info(p, i);
        if (slot != PARAM_VALUE && info.kind != PARAM_TRAINED) {
            continue;
        }
        const size_t size_bytes = (size_t)info.count * sizeof(float);
        float *values = malloc(size_bytes);
        TRY_MEMORY(values != NULL, err, "out of memory");
        s = params_read(p, i, slot, values, size_bytes, err);
        bool finite = true;
        for (int64_t k = 0; k < info.count && s == STATUS_OK; k++) {
            finite = finite && isfinite(values[k]);
        }
        if (s == STATUS_OK && !finite) {
            json_open_object(w, info.name);
            put_range(w, values, info.count);
            json_close_object(w);
        }
        free(values);
    }
    return s;
}

static enum status put_similarity(struct json_writer *w, struct trainer *t, struct error *err) {
    const int64_t rows = t->dx[0].shape[0];
    if (t->tiled != NULL) {
        return STATUS_OK; /* there is none */
    }
    float *values = malloc((size_t)(rows * rows) * sizeof *values);
    TRY_MEMORY(values != NULL, err, "out of memory");
    const enum status s = trainer_read_similarity(t, values, err);
    if (s == STATUS_OK) {
        json_open_object(w, "similarity");
        put_range(w, values, rows * rows);
        json_close_object(w);
    }
    free(values);
    return s;
}

enum status
trainer_dump(struct trainer *t, const struct step_flight *f, const char *why, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct json_writer w;
    TRY(path_join(path, sizeof path, t->options.run, "nonfinite.json", err));
    json_writer_init(&w, MAX_DUMP_BYTES);
    json_open_object(&w, NULL);
    json_string(&w, "why", why);
    json_u64(&w, "step", f->report.step);
    json_u64(&w, "epoch", f->batch.epoch);
    json_double(&w, "lr", f->report.lr);
    json_double(&w, "tau", f->report.tau);
    json_double(&w, "loss", f->report.loss);
    json_u64s(&w, "sample_ids", f->ids, t->options.batch_count);
    enum status s = put_similarity(&w, t, err);
    json_open_object(&w, "parameters_not_finite");
    THEN(s, put_tensors(&w, t, PARAM_VALUE, err));
    json_close_object(&w);
    json_open_object(&w, "gradients_not_finite");
    THEN(s, put_tensors(&w, t, PARAM_GRAD, err));
    json_close_object(&w);
    json_close_object(&w);
    json_newline(&w);
    THEN(s, json_writer_status(&w, err));
    THEN(s, file_write_atomic(file_posix(), path, w.out.data, w.out.size_bytes, err));
    json_writer_fini(&w);
    return s;
}
