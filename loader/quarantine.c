/*
 * quarantine: the thread that writes the records of damaged samples to the quarantine file. The
 * decoders only add rows to the list of damaged samples, so that they never wait for the disk of
 * that file, and this thread follows them:
 *
 *   corrupt_list   | written | written | pending | pending |   ..   LOADER_MAX_CORRUPT_LIST
 *                    quarantined_count --^         listed_count --^
 *
 * The list is its own queue: a row never changes once it is listed, and there is room for as many
 * rows as a run may have damaged samples.
 */
#include "formats/base/json_writer.h"
#include "loader/pipeline_internal.h"

/* One line of JSON. */
static enum status
write_record(struct pipeline *p, const struct loader_corrupt *row, struct error *err) {
    struct json_writer w;
    json_writer_init(&w, 0);
    json_open_object(&w, NULL);
    json_string(&w, "dataset", p->sources->items[row->source].directory);
    if (row->sample_id == LOADER_NO_SAMPLE) {
        json_null(&w, "id");
    } else {
        json_u64(&w, "id", row->sample_id - p->sources->items[row->source].id_offset);
    }
    json_u64(&w, "position", row->position);
    json_string(&w, "reason", row->reason);
    json_close_object(&w);
    json_newline(&w);
    enum status s = json_writer_status(&w, err);
    THEN(s, file_posix()->write(p->quarantine, w.out.data, w.out.size_bytes, err));
    json_writer_fini(&w);
    return s;
}

void quarantine_run(struct pipeline *p) {
    const struct loader_corrupt *row;
    while ((row = pipeline_next_pending(p)) != NULL) {
        struct error err = {0};
        enum status s = write_record(p, row, &err);
        if (s < STATUS_OK) {
            pipeline_fail(p, s, &err);
            return; /* the row stays pending */
        }
        pipeline_quarantined(p);
    }
}
