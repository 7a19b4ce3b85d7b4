/*
 * study: files are written at the end, each atomically.
 */
#include "tools/ccstudy/study.h"

#include <stdio.h>

#include "formats/base/file_io.h"
#include "tools/cli/path_kind.h"

static enum status
path_of(char out[PATH_MAX_BYTES], const struct study *s, const char *suffix, struct error *err) {
    char name[64];
    (void)snprintf(name, sizeof name, "%s%s", s->name, suffix);
    return path_join(out, PATH_MAX_BYTES, s->shared->out, name, err);
}

enum status study_check(const struct study *s, struct error *err) {
    const struct file_system *fs = file_posix();
    const char *out = s->shared->out;
    if (out == NULL) {
        return STATUS_OK;
    }
    TRY(path_check_out_folder(out, err));
    TRY(file_make_parents(fs, out, err));
    return fs->make_directory(fs->context, out, err);
}

static void write_numbers(struct json_writer *w, const struct study *s) {
    json_open_object(w, NULL);
    s->write_json(w, s->result);
    json_close_object(w);
    json_newline(w);
}

static enum status
write_files(const struct study *s, const void *json, size_t size_bytes, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct html_page page;
    TRY(path_of(path, s, ".json", err));
    TRY(file_write_atomic(file_posix(), path, json, size_bytes, err));
    TRY(path_of(path, s, ".html", err));
    html_init(&page, s->title);
    enum status status = s->draw_page(&page, s->result, s->options, err);
    if (status == STATUS_OK) {
        status = html_write(&page, path, err);
    }
    html_fini(&page);
    if (status == STATUS_OK && !s->shared->json && !s->shared->quiet) {
        printf("%s\n", path);
    }
    return status;
}

enum status study_finish(const struct study *s, struct error *err) {
    struct json_writer w;
    json_writer_init(&w, 0);
    write_numbers(&w, s);
    enum status status = json_writer_status(&w, err);
    if (status == STATUS_OK && s->shared->out != NULL) {
        status = write_files(s, w.out.data, w.out.size_bytes, err);
    }
    if (status == STATUS_OK && s->shared->json) {
        status = cli_put(w.out.data, w.out.size_bytes, err);
    }
    json_writer_fini(&w);
    return status;
}

/* The line shows no counts: what is counted differs between experiments. */
static const uint64_t parts = 1000;

void study_begin(struct study_progress *p, double total, bool quiet) {
    cli_signals_install();
    cli_progress_init(&p->line, NULL, quiet);
    p->done = 0.0;
    p->total = total;
}

enum status study_advance(struct study_progress *p, double work, struct error *err) {
    p->done += work;
    cli_progress_update(&p->line, (uint64_t)((double)parts * p->done / p->total), parts, 0, NULL);
    return cli_interrupted() ? error_set(err, STATUS_INTERRUPTED, "stopped on request") : STATUS_OK;
}

void study_end(struct study_progress *p) {
    cli_progress_clear(&p->line);
}
