/*
 * The parts of ccdump that several commands need: stdout, and one sample by its number.
 */
#include <inttypes.h>
#include <stdio.h>

#include "tools/ccdump_internal.h"

enum status ccdump_put(const void *data, size_t size_bytes, struct error *err) {
    if (size_bytes > 0 && fwrite(data, 1, size_bytes, stdout) != size_bytes) {
        return error_set_errno(err, "cannot write to the standard output");
    }
    return STATUS_OK;
}

enum status ccdump_put_json(struct json_writer *w, struct error *err) {
    json_newline(w);
    TRY(json_writer_status(w, err));
    TRY(ccdump_put(w->out.data, w->out.size_bytes, err));
    json_writer_reset(w);
    return STATUS_OK;
}

enum status ccdump_flush(struct error *err) {
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return error_set_errno(err, "cannot write to the standard output");
    }
    return STATUS_OK;
}

static enum status
read_sample(struct ccdump_sample *s, bool by_id, uint64_t number, struct error *err) {
    const struct dataset *d = s->dataset;
    s->position = number;
    if (by_id) {
        TRY(dataset_find(d, number, &s->position, err));
    } else if (number >= dataset_sample_count(d)) {
        return error_set(err, STATUS_NOTFOUND,
                         "there is no position %" PRIu64 ": the dataset has %" PRIu64 " samples",
                         number, dataset_sample_count(d));
    }
    TRY(dataset_sample_at(d, s->position, &s->facts, err));
    TRY(shard_reader_open(&s->reader, file_posix(), dataset_shard_path(d, s->facts.shard), err));
    return shard_reader_get(s->reader, s->facts.index_in_shard, &s->view, err);
}

enum status ccdump_sample_open(struct ccdump_sample *out,
                               const char *directory,
                               bool by_id,
                               uint64_t number,
                               struct error *err) {
    *out = (struct ccdump_sample){0};
    TRY(dataset_open(&out->dataset, directory, NULL, err));
    enum status s = read_sample(out, by_id, number, err);
    if (s != STATUS_OK) {
        ccdump_sample_close(out);
    }
    return s;
}

void ccdump_sample_close(struct ccdump_sample *s) {
    shard_reader_close(s->reader);
    dataset_close(s->dataset);
    *s = (struct ccdump_sample){0};
}
