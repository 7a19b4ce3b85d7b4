/*
 * gradient_part: the runs that a study has made so far, as JSON. Numbers read back as the same
 * doubles, so a resumed study ends with the numbers of an uninterrupted one; null is NaN.
 */
#include <math.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/json/json_reader.h"
#include "tools/ccstudy/gradient_study.h"

enum { MAX_PART_BYTES = 16 << 20 };

static enum status
path_of(char out[PATH_MAX_BYTES], const struct gradient_study *g, struct error *err) {
    return path_join(out, PATH_MAX_BYTES, g->o.shared.out, "gradient.part.json", err);
}

/* ---- writing ---- */

static void write_curve(struct json_writer *w, const struct gradient_curve *c) {
    json_open_object(w, NULL);
    json_double(w, "lr", c->lr);
    json_double(w, "bias2", c->bias2);
    json_open_array(w, "norm2");
    for (int k = 0; k < GRADIENT_OBJECTIVES; k++) {
        json_double(w, NULL, c->norm2[k]);
    }
    json_close_array(w);
    json_open_array(w, "points");
    for (size_t k = 0; k < c->point_count; k++) {
        const struct gradient_point *p = &c->points[k];
        json_open_array(w, NULL);
        json_double(w, NULL, (double)p->step);
        json_double(w, NULL, p->seconds);
        json_double(w, NULL, p->loss);
        json_double(w, NULL, p->norm2);
        json_double(w, NULL, p->length);
        json_close_array(w);
    }
    json_close_array(w);
    json_close_object(w);
}

enum status gradient_part_write(const struct gradient_study *g, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct json_writer w;
    if (g->o.shared.out == NULL) {
        return STATUS_OK;
    }
    TRY(path_of(path, g, err));
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    json_string(&w, "settings", g->settings);
    json_open_array(&w, "runs");
    for (size_t i = 0; i < g->run_count; i++) {
        write_curve(&w, &g->runs[i]);
    }
    json_close_array(&w);
    json_close_object(&w);
    json_newline(&w);
    enum status s = json_writer_status(&w, err);
    if (s == STATUS_OK) {
        s = file_write_atomic(file_posix(), path, w.out.data, w.out.size_bytes, err);
    }
    json_writer_fini(&w);
    return s;
}

enum status gradient_part_remove(const struct gradient_study *g, struct error *err) {
    char path[PATH_MAX_BYTES];
    const struct file_system *fs = file_posix();
    uint64_t size_bytes;
    if (g->o.shared.out == NULL) {
        return STATUS_OK;
    }
    TRY(path_of(path, g, err));
    const enum status s = file_size(fs, &size_bytes, path, err);
    return s == STATUS_NOTFOUND ? STATUS_OK
           : s == STATUS_OK     ? fs->remove(fs->context, path, err)
                                : s;
}

/* ---- reading ---- */

static double number(const struct json_value *v) {
    double d = NAN;
    (void)json_value_double(v, &d);
    return d;
}

static void read_curve(struct gradient_curve *c, const struct json_value *v) {
    const struct json_value *points = json_value_get(v, "points");
    *c = (struct gradient_curve){.lr = number(json_value_get(v, "lr")),
                                 .bias2 = number(json_value_get(v, "bias2")),
                                 .point_count = json_value_count(points)};
    if (c->point_count > GRADIENT_MAX_POINTS) {
        c->point_count = GRADIENT_MAX_POINTS;
    }
    for (int k = 0; k < GRADIENT_OBJECTIVES; k++) {
        c->norm2[k] = number(json_value_at(json_value_get(v, "norm2"), (size_t)k));
    }
    for (size_t k = 0; k < c->point_count; k++) {
        const struct json_value *p = json_value_at(points, k);
        const double step = number(json_value_at(p, 0));
        c->points[k] = (struct gradient_point){.step = step >= 0.0 ? (uint64_t)step : 0,
                                               .seconds = number(json_value_at(p, 1)),
                                               .loss = number(json_value_at(p, 2)),
                                               .norm2 = number(json_value_at(p, 3)),
                                               .length = number(json_value_at(p, 4))};
    }
}

static enum status take_runs(struct gradient_study *g,
                             const struct json_value *root,
                             const char *path,
                             struct error *err) {
    const char *settings = json_value_string(json_value_get(root, "settings"), NULL);
    const struct json_value *runs = json_value_get(root, "runs");
    if (settings == NULL || json_value_count(runs) > GRADIENT_METHODS * g->rate_count) {
        return error_set(err, STATUS_CORRUPT, "%s: not what an interrupted study leaves", path);
    }
    if (strcmp(settings, g->settings) != 0) {
        return error_set(err, STATUS_USAGE, "--resume: %s is of a study with other options: %s",
                         path, settings);
    }
    g->run_count = json_value_count(runs);
    for (size_t i = 0; i < g->run_count; i++) {
        read_curve(&g->runs[i], json_value_at(runs, i));
    }
    return STATUS_OK;
}

enum status gradient_part_read(struct gradient_study *g, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct byte_buffer text;
    struct json_document *d = NULL;
    TRY(path_of(path, g, err));
    enum status s = file_read_all(file_posix(), &text, path, MAX_PART_BYTES, err);
    if (s == STATUS_OK) {
        s = json_document_parse(&d, path, text.data, text.size_bytes, err);
    }
    if (s == STATUS_OK) {
        s = take_runs(g, json_document_root(d), path, err);
    }
    json_document_destroy(d);
    byte_buffer_fini(&text);
    return s == STATUS_NOTFOUND ? STATUS_OK : s; /* interrupted before the first run */
}
