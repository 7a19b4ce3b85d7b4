/*
 * attach: reads what is new in metrics.jsonl a few times a second. The file is replaced when a run
 * is resumed from an earlier step; then it is read again.
 */
#include "tools/ccstream_train/ccstream_train_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/file_io.h"
#include "formats/json/json_reader.h"

enum { MAX_LAUNCHES_BYTES = 1 << 28, PAUSE_US = 200000 };

struct watched {
    const char *run;
    char metrics[PATH_MAX_BYTES], launches[PATH_MAX_BYTES];
    FILE *file; /* metrics; NULL: not there yet */
    struct stat opened;
    char line[1 << 20];
    off_t launches_size;
    uint64_t total_steps; /* 0: not known */
    struct step_report last;
};

/* ---- sessions.jsonl: how many steps, and since when ---- */

static int64_t seconds_since(const char *utc) {
    struct tm then = {0};
    const bool parsed = utc != NULL && strptime(utc, "%Y-%m-%dT%H:%M:%SZ", &then) != NULL;
    const int64_t seconds = parsed ? (int64_t)(time(NULL) - timegm(&then)) : 0;
    return seconds > 0 ? seconds : 0;
}

/* The last whole line is the call that trains. */
static void take_launch(struct watched *w, struct live *l, const char *text, size_t size) {
    struct json_document *d = NULL;
    size_t end = size;
    while (end > 0 && text[end - 1] != '\n') {
        end--;
    }
    size_t begin = end > 0 ? end - 1 : 0;
    while (begin > 0 && text[begin - 1] != '\n') {
        begin--;
    }
    if (json_document_parse(&d, SESSION_LOG_NAME, text + begin, end - begin, NULL) == STATUS_OK) {
        const struct json_value *root = json_document_root(d);
        uint64_t step = 0;
        uint64_t per_epoch = 0;
        (void)json_value_u64(json_value_get(root, "total_steps"), &w->total_steps);
        (void)json_value_u64(json_value_get(root, "step"), &step);
        (void)json_value_u64(json_value_get(root, "steps_per_epoch"), &per_epoch);
        const char *host = json_value_string(json_value_get(root, "host"), NULL);
        uint64_t pid = 0;
        (void)json_value_u64(json_value_get(root, "pid"), &pid);
        log_write(&l->log, LOG_LEVEL_INFO,
                  "%s: process %" PRIu64 " on %s began at step %" PRIu64 " of %" PRIu64, w->run,
                  pid, host != NULL ? host : "a host", step, w->total_steps);
        live_begin(l, step, per_epoch);
        l->progress.started_ns -=
            seconds_since(json_value_string(json_value_get(root, "time"), NULL)) * 1000000000;
    }
    json_document_destroy(d);
}

static enum status read_launches(struct watched *w, struct live *l, struct error *err) {
    struct stat now;
    struct byte_buffer text;
    if (stat(w->launches, &now) != 0 || now.st_size == w->launches_size) {
        return STATUS_OK;
    }
    w->launches_size = now.st_size;
    TRY(file_read_all(file_posix(), &text, w->launches, MAX_LAUNCHES_BYTES, err));
    take_launch(w, l, (const char *)text.data, text.size_bytes);
    byte_buffer_fini(&text);
    return STATUS_OK;
}

/* ---- metrics.jsonl ---- */

static double number(const struct json_value *line, const char *name) {
    double value = 0;
    (void)json_value_double(json_value_get(line, name), &value);
    return value;
}

/* True: a step. */
static bool take_line(struct watched *w, struct live *l, size_t size) {
    struct json_document *d = NULL;
    if (json_document_parse(&d, "metrics.jsonl", w->line, size, NULL) != STATUS_OK) {
        return false;
    }
    const struct json_value *line = json_document_root(d);
    struct step_report r = {.loss = number(line, "loss"),
                            .global_loss = json_value_get(line, "global_loss") != NULL
                                               ? number(line, "global_loss")
                                               : (double)NAN,
                            .pairs_per_s = number(line, "pairs_per_s"),
                            .stall_fraction = number(line, "stall_fraction"),
                            .grad_norm = number(line, "grad_norm"),
                            .lr = number(line, "lr"),
                            .slowest_pairs_per_s = number(line, "slowest_pairs_per_s"),
                            .wait_fraction = number(line, "wait_fraction")};
    (void)json_value_u64(json_value_get(line, "epoch"), &r.epoch);
    (void)json_value_u32(json_value_get(line, "slowest_rank"), &r.slowest_rank);
    const bool is_step = json_value_u64(json_value_get(line, "step"), &r.step) &&
                         json_value_get(line, "pairs_per_s") != NULL;
    if (is_step) {
        w->last = r;
    }
    (void)json_value_double(json_value_get(json_value_get(line, "retrieval"), "mean_r1"),
                            &l->recall);
    if (json_value_get(line, "finished") != NULL) {
        w->total_steps = r.step;
    }
    json_document_destroy(d);
    return is_step;
}

static bool was_replaced(const struct watched *w) {
    struct stat now;
    return stat(w->metrics, &now) == 0 &&
           (now.st_ino != w->opened.st_ino || now.st_dev != w->opened.st_dev ||
            now.st_size < ftello(w->file));
}

/* What is new. Of what was there before, the last step alone is shown. */
static enum status read_metrics(struct watched *w, struct live *l, struct error *err) {
    bool old = w->file == NULL;
    if (w->file != NULL && was_replaced(w)) {
        (void)fclose(w->file);
        w->file = NULL;
        old = true;
    }
    w->file = w->file != NULL ? w->file : fopen(w->metrics, "re");
    if (w->file == NULL || (old && fstat(fileno(w->file), &w->opened) != 0)) {
        return STATUS_OK; /* the run has not begun to write */
    }
    bool is_step = false;
    for (;;) {
        const off_t at = ftello(w->file);
        const ssize_t size = fgets(w->line, sizeof w->line, w->file) ? (ssize_t)strlen(w->line) : 0;
        FAIL_IF(size == sizeof w->line - 1 && w->line[size - 1] != '\n', err, STATUS_LIMIT,
                "%s: a line is longer than %zu bytes", w->metrics, sizeof w->line);
        if (size <= 0 || w->line[size - 1] != '\n') { /* the rest of a line comes later */
            const bool failed = ferror(w->file) != 0;
            clearerr(w->file);
            FAIL_ERRNO_IF(failed || fseeko(w->file, at, SEEK_SET) != 0, err, "cannot read %s",
                          w->metrics);
            break;
        }
        if (!take_line(w, l, (size_t)size)) {
            continue;
        }
        is_step = true;
        if (!old) {
            live_step(l, &w->last, w->total_steps);
        }
    }
    if (old && is_step) {
        l->logged_ns = 0; /* shown at once */
        live_step(l, &w->last, w->total_steps);
    }
    return STATUS_OK;
}

/* ---- the run ---- */

static enum status check_run(const char *run, struct error *err) {
    char path[PATH_MAX_BYTES];
    bool there = false;
    TRY(path_join(path, sizeof path, run, "config.json", err));
    TRY(file_posix()->exists(file_posix()->context, path, &there, err));
    return there
               ? STATUS_OK
               : error_set(err, STATUS_NOTFOUND,
                           "%s is not a run of ccstream-train, or one that has not begun: there is "
                           "no config.json",
                           run);
}

static enum status say_end(const struct watched *w, const struct live *l, struct error *err) {
    FAIL_IF(w->total_steps == 0 || w->last.step < w->total_steps, err, STATUS_MISMATCH,
            "%s is not being trained; it stopped at step %" PRIu64 " of %" PRIu64
            "; resume with --resume %s",
            w->run, w->last.step, w->total_steps, w->run);
    log_write(&l->log, LOG_LEVEL_INFO, "%s is finished after %" PRIu64 " steps", w->run,
              w->last.step);
    return STATUS_OK;
}

static enum status follow(struct watched *w, struct live *l, struct error *err) {
    while (!cli_interrupted()) {
        const bool held = session_log_is_held(w->run); /* before all that it wrote is read */
        TRY(read_launches(w, l, err));
        TRY(read_metrics(w, l, err));
        if (!held) {
            return say_end(w, l, err);
        }
        (void)usleep(PAUSE_US);
    }
    return STATUS_OK;
}

enum status attach(struct live *l, struct error *err) {
    struct watched *w = calloc(1, sizeof *w);
    TRY_MEMORY(w, err, "out of memory");
    w->run = l->run;
    l->estimated = true; /* the run said so itself */
    enum status s = check_run(w->run, err);
    s = s == STATUS_OK ? path_join(w->metrics, sizeof w->metrics, w->run, "metrics.jsonl", err) : s;
    s = s == STATUS_OK ? path_join(w->launches, sizeof w->launches, w->run, SESSION_LOG_NAME, err)
                       : s;
    s = s == STATUS_OK ? follow(w, l, err) : s;
    live_end(l);
    if (w->file != NULL) {
        (void)fclose(w->file);
    }
    free(w);
    return s;
}
