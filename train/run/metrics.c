/*
 * metrics: JSON lines through stdio, one write per line.
 */
#include "train/run/metrics.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/file_io.h"
#include "formats/base/json_writer.h"

enum { MAX_METRICS_BYTES = 1 << 30, MAX_LINE_BYTES = 1 << 17 };

static const char step_prefix[] = "{\"step\":";
static const char *const evaluation_names[METRICS_EVALUATIONS] = {[METRICS_RETRIEVAL] = "retrieval",
                                                                  [METRICS_ZEROSHOT] = "zeroshot",
                                                                  [METRICS_FEATURES] = "features"};

struct metrics {
    FILE *file;
    const char *id;                /* of the run; NULL: none */
    bool has[METRICS_EVALUATIONS]; /* of the step it was opened for */
    struct metrics_watch watch;
    struct metrics_best best;
    struct json_writer line;
    char path[PATH_MAX_BYTES];
};

/* Whether `rest`, a line after its step, is an evaluation of this name. */
static bool is_evaluation(const char *rest, const char *name) {
    const size_t length = strlen(name);
    return strncmp(rest, ",\"", 2) == 0 && strncmp(rest + 2, name, length) == 0 &&
           rest[2 + length] == '"';
}

/* Reads the watched metric of a line, if it has it. rest, up to end: the line after its step. */
static void watch_line(struct metrics *m, uint64_t step, const char *rest, const char *end) {
    char key[64];
    if (m->watch.object == NULL || !is_evaluation(rest, m->watch.object)) {
        return;
    }
    const int length = snprintf(key, sizeof key, "\"%s\":", m->watch.key);
    const char *stop = memchr(rest, '}', (size_t)(end - rest));
    const char *found =
        stop != NULL ? memmem(rest, (size_t)(stop - rest), key, (size_t)length) : NULL;
    if (found == NULL) {
        return;
    }
    const double value = strtod(found + length, NULL);
    const bool better = m->best.step == 0 || value > m->best.value;
    m->best = better ? (struct metrics_best){value, step, 0}
                     : (struct metrics_best){m->best.value, m->best.step, m->best.since + 1};
}

/* The size of the part of `text` with complete lines up to step `step`; notes that step's
 * evaluations. */
static size_t kept_size(struct metrics *m, const char *text, uint64_t step) {
    size_t kept = 0;
    for (;;) {
        const char *line = text + kept;
        const char *end = strchr(line, '\n');
        if (end == NULL || strncmp(line, step_prefix, sizeof step_prefix - 1) != 0) {
            return kept;
        }
        char *rest;
        const uint64_t found = strtoull(line + sizeof step_prefix - 1, &rest, 10);
        if (found > step) {
            return kept;
        }
        for (int i = 0; i < METRICS_EVALUATIONS && found == step; i++) {
            m->has[i] |= is_evaluation(rest, evaluation_names[i]);
        }
        watch_line(m, found, rest, end);
        kept += (size_t)(end - line) + 1;
    }
}

static enum status truncate_after(struct metrics *m, uint64_t step, struct error *err) {
    struct byte_buffer old;
    const struct file_system *fs = file_posix();
    struct error ignored = {0};
    enum status s = file_read_all(fs, &old, m->path, MAX_METRICS_BYTES, &ignored);
    if (s == STATUS_NOTFOUND) {
        return STATUS_OK;
    }
    FAIL_IF(s != STATUS_OK, err, s, "%s", ignored.text);
    const size_t kept = old.size_bytes > 0 ? kept_size(m, (const char *)old.data, step) : 0;
    s = kept == old.size_bytes ? STATUS_OK : file_write_atomic(fs, m->path, old.data, kept, err);
    byte_buffer_fini(&old);
    return s;
}

enum status metrics_open(struct metrics **out,
                         const char *run,
                         const char *id,
                         uint64_t step,
                         struct metrics_watch watch,
                         struct error *err) {
    REQUIRE(out != NULL && run != NULL);
    *out = NULL;
    struct metrics *m = calloc(1, sizeof *m);
    TRY_MEMORY(m != NULL, err, "metrics: out of memory");
    enum status s;
    m->id = id;
    m->watch = watch;
    json_writer_init(&m->line, MAX_LINE_BYTES);
    TRY_OR_FAIL(s, path_join(m->path, sizeof m->path, run, "metrics.jsonl", err));
    TRY_OR_FAIL(s, truncate_after(m, step, err));
    const int fd = open(m->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    m->file = fd >= 0 ? fdopen(fd, "a") : NULL;
    if (m->file == NULL) {
        s = error_set_errno(err, "cannot open %s", m->path);
        goto fail;
    }
fail:
    RETURN_CREATED(s, out, m, metrics_close);
}

bool metrics_has(const struct metrics *m, enum metrics_evaluation which) {
    return m->has[which];
}

struct metrics_best metrics_best(const struct metrics *m) {
    return m->best;
}

static void put_time(struct json_writer *w) {
    struct timespec now = {0};
    struct tm utc;
    char seconds[32];
    char text[64];
    clock_gettime(CLOCK_REALTIME, &now);
    (void)strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    (void)snprintf(text, sizeof text, "%s.%03ldZ", seconds, now.tv_nsec / 1000000);
    json_string(w, "time", text);
}

/* Ends the object and writes it as one line. */
static enum status write_line(struct metrics *m, struct error *err) {
    struct json_writer *w = &m->line;
    put_time(w);
    if (m->id != NULL) {
        json_string(w, "run", m->id);
    }
    json_close_object(w);
    json_newline(w);
    TRY(json_writer_status(w, err));
    FAIL_ERRNO_IF(fwrite(w->out.data, 1, w->out.size_bytes, m->file) != w->out.size_bytes ||
                      fflush(m->file) != 0,
                  err, "cannot write %s", m->path);
    char *rest;
    const char *line = (const char *)w->out.data;
    const uint64_t step = strtoull(line + sizeof step_prefix - 1, &rest, 10);
    watch_line(m, step, rest, line + w->out.size_bytes);
    return STATUS_OK;
}

static struct json_writer *begin_line(struct metrics *m, uint64_t step) {
    json_writer_reset(&m->line);
    json_open_object(&m->line, NULL);
    json_u64(&m->line, "step", step);
    return &m->line;
}

static void put_peak_rss(struct json_writer *w) {
    struct rusage used;
    if (getrusage(RUSAGE_SELF, &used) == 0) {
        json_u64(w, "peak_rss_bytes", (uint64_t)used.ru_maxrss * 1024);
    }
}

static void put_batch(struct json_writer *w, const struct loss_batch_state *b) {
    const struct {
        const char *name;
        double value;
    } members[] = {{"image.log_u", b->log_u[0]},
                   {"text.log_u", b->log_u[1]},
                   {"image.zeta", b->zeta[0]},
                   {"text.zeta", b->zeta[1]}};
    json_open_object(w, "batch");
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (isfinite(members[i].value)) {
            json_double(w, members[i].name, members[i].value);
        }
    }
    json_close_object(w);
}

enum status metrics_step(struct metrics *m, const struct step_report *r, struct error *err) {
    if (m == NULL) {
        return STATUS_OK;
    }
    struct json_writer *w = begin_line(m, r->step);
    json_u64(w, "epoch", r->epoch);
    json_double(w, "loss", r->loss);
    if (isfinite(r->global_loss)) {
        json_double(w, "global_loss", r->global_loss);
    }
    if (r->distill_loss > 0.0) {
        json_double(w, "distill_loss", r->distill_loss);
    }
    json_double(w, "tau", r->tau);
    put_batch(w, &r->batch);
    json_double(w, "lr", r->lr);
    json_double(w, "zeta_lr", r->zeta_lr);
    json_double(w, "grad_norm", r->grad_norm);
    json_double(w, "pairs_per_s", r->pairs_per_s);
    json_double(w, "stall_fraction", r->stall_fraction);
    if (r->launches_count > 0) {
        json_u64(w, "launches", r->launches_count);
    }
    json_u64(w, "replaced", r->replaced_count);
    if (r->world > 1) {
        json_u64(w, "ranks", r->world);
    }
    if (r->slowest_pairs_per_s > 0.0) {
        json_u64(w, "slowest_rank", r->slowest_rank);
        json_double(w, "slowest_pairs_per_s", r->slowest_pairs_per_s);
        json_double(w, "wait_fraction", r->wait_fraction);
    }
    put_peak_rss(w);
    if (r->device_bytes > 0) {
        json_u64(w, "device_bytes", r->device_bytes);
    }
    return write_line(m, err);
}

enum status
metrics_stages(struct metrics *m, uint64_t step, const struct stage_report *r, struct error *err) {
    const struct {
        const char *name;
        double value;
    } members[] = {{"seconds", r->seconds},
                   {"load_s", r->load_s},
                   {"ranks_s", r->ranks_s},
                   {"step_s", r->step_s},
                   {"checkpoint_s", r->checkpoint_s},
                   {"evaluation_s", r->evaluation_s},
                   {"read_wait_fraction", r->read_wait_fraction},
                   {"decode_wait_fraction", r->decode_wait_fraction},
                   {"deliver_wait_fraction", r->deliver_wait_fraction}};
    if (m == NULL) {
        return STATUS_OK;
    }
    struct json_writer *w = begin_line(m, step);
    json_open_object(w, "stages");
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (members[i].value >= 0.0) {
            json_double(w, members[i].name, members[i].value);
        }
    }
    json_close_object(w);
    return write_line(m, err);
}

enum status metrics_retrieval(struct metrics *m,
                              uint64_t step,
                              const struct retrieval_result *r,
                              const struct examples *found,
                              const struct embeddings *e,
                              struct error *err) {
    if (m == NULL) {
        return STATUS_OK;
    }
    struct json_writer *w = begin_line(m, step);
    retrieval_write_json(w, evaluation_names[METRICS_RETRIEVAL], r);
    json_open_object(w, "examples");
    for (int i = 0; i < 2; i++) {
        examples_write_json(w, found[i].by_caption ? "t2i" : "i2t", &found[i], e);
    }
    json_close_object(w);
    return write_line(m, err);
}

enum status metrics_zeroshot(struct metrics *m,
                             uint64_t step,
                             const struct classify_result *r,
                             struct error *err) {
    if (m == NULL) {
        return STATUS_OK;
    }
    struct json_writer *w = begin_line(m, step);
    json_open_object(w, evaluation_names[METRICS_ZEROSHOT]);
    classify_write_json(w, r);
    json_close_object(w);
    return write_line(m, err);
}

enum status metrics_features(struct metrics *m,
                             uint64_t step,
                             const struct features_result *r,
                             struct error *err) {
    if (m == NULL) {
        return STATUS_OK;
    }
    features_write_json(begin_line(m, step), r);
    return write_line(m, err);
}

enum status metrics_finished(struct metrics *m, uint64_t step, struct error *err) {
    if (m == NULL) {
        return STATUS_OK;
    }
    json_bool(begin_line(m, step), "finished", true);
    return write_line(m, err);
}

static void put_histogram(struct json_writer *w, const struct sample_state_summary *s) {
    size_t used = SAMPLE_STATE_BINS;
    while (used > 0 && s->bins[used - 1] == 0) {
        used--;
    }
    json_open_object(w, "histogram");
    json_double(w, "low", s->first * s->width);
    json_double(w, "width", s->width);
    json_u64s(w, "counts", s->bins, used);
    json_close_object(w);
}

/* Writes every column of `state`. NULL: none. */
static void put_state(struct json_writer *w,
                      const struct sample_state *state,
                      const struct sample_state_summary *summaries) {
    for (int32_t c = 0; state != NULL && c < sample_state_count(state); c++) {
        const struct sample_state_summary *s = &summaries[c];
        json_open_object(w, sample_state_name(state, c));
        json_u64(w, "visited", s->visited_count);
        json_double(w, "min", s->min);
        json_double(w, "mean", s->mean);
        json_double(w, "max", s->max);
        json_double(w, "std", s->deviation);
        json_u64(w, "at_min", s->at_min_count);
        json_u64(w, "at_max", s->at_max_count);
        put_histogram(w, s);
        json_close_object(w);
    }
}

enum status metrics_state(struct metrics *m,
                          uint64_t step,
                          const struct sample_state *state,
                          const struct sample_state *captions,
                          const struct sample_state_summary *summaries,
                          struct error *err) {
    if (m == NULL) {
        return STATUS_OK;
    }
    struct json_writer *w = begin_line(m, step);
    json_open_object(w, "state");
    put_state(w, state, summaries);
    put_state(w, captions, summaries + sample_state_count(state));
    json_close_object(w);
    put_peak_rss(w);
    return write_line(m, err);
}

enum status metrics_sync(struct metrics *m, struct error *err) {
    if (m == NULL) {
        return STATUS_OK;
    }
    FAIL_ERRNO_IF(fflush(m->file) != 0 || fsync(fileno(m->file)) != 0, err, "cannot write %s",
                  m->path);
    return STATUS_OK;
}

void metrics_close(struct metrics *m) {
    if (m == NULL) {
        return;
    }
    if (m->file != NULL) {
        (void)fclose(m->file);
    }
    json_writer_fini(&m->line);
    free(m);
}
