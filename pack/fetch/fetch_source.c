/*
 * The rows of a list with the images that were fetched for them, as a source of pack_run. Rows
 * come from the list itself; the fetch thread is waited for.
 *
 * What identifies the source is its list alone (key, URL, captions, metadata), so a resumed run
 * recognises it whatever the servers answered.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/fetch/fetch_internal.h"
#include "pack/run/metadata_internal.h"

struct fetch_source {
    struct source base;
    struct fetch *fetch;
    struct source *list;
    struct byte_buffer identity; /* of the row */
    uint64_t list_rows;          /* read from the list */
    bool begun;
};

enum status fetch_open_list(struct source **out, const struct fetch *f, struct error *err) {
    struct source_options how = f->source_options;
    how.urls = true;
    how.grouping = SOURCE_GROUP_NEVER;
    how.fetch = NULL;
    return source_open(out, f->opt->list, &how, err);
}

/* The next selected row of the list. */
static enum status
next_selected(struct fetch_source *s, struct source_row *row, struct error *err) {
    const uint64_t sequence = row->row;
    enum status status;
    uint64_t skipped = 0;
    while ((status = source_next(s->list, row, err)) == STATUS_OK &&
           !fetch_is_selected(s->fetch, row)) {
        skipped++;
    }
    if (s->fetch->urls && skipped > 0) {
        pthread_mutex_lock(&s->fetch->mutex);
        s->fetch->stats.skipped += skipped;
        pthread_mutex_unlock(&s->fetch->mutex);
    }
    uint64_t size_bytes;
    source_position(s->list, &s->base.position_bytes, &size_bytes);
    if (status != STATUS_OK) {
        return status;
    }
    s->list_rows = row->row + 1;
    source_row_set_number_key(row, s->fetch->first_row + row->row);
    s->identity.size_bytes = 0;
    TRY(byte_buffer_append(&s->identity, &row->number, sizeof(row->number), err));
    TRY(byte_buffer_append(&s->identity, row->path, strlen(row->path) + 1, err));
    TRY(byte_buffer_append(&s->identity, row->text.data, row->text.size_bytes, err));
    TRY(byte_buffer_append(&s->identity, row->json.data, row->json.size_bytes, err));
    row->raw = s->identity.data;
    row->raw_bytes = s->identity.size_bytes;
    row->row = sequence;
    return STATUS_OK;
}

static enum status take_image(struct fetch_source *s,
                              struct source_row *row,
                              const struct ledger_line *line,
                              uint64_t sequence,
                              struct error *err) {
    struct fetch *f = s->fetch;
    if (f->images) {
        const uint64_t first = hash_map_get(f->images, line->hash);
        if (first != HASH_MAP_NONE && first != line->row) {
            source_row_reject(row, REASON_DUPLICATE, "row %" PRIu64 " has the same image", first);
            return STATUS_OK;
        }
        TRY(hash_map_put(f->images, line->hash, line->row, err));
    }
    TRY(pack_metadata_add(row, "url", row->path, &s->base.json, err));
    return fetch_spool_path(f, row->path, sequence, err);
}

static enum status
fetch_source_next(struct source *base, struct source_row *row, struct error *err) {
    struct fetch_source *s = (struct fetch_source *)base;
    struct fetch *f = s->fetch;
    if (base->sparse) {
        return next_selected(s, row, err);
    }
    if (!s->begun) {
        TRY(fetch_read_known(f, s->list_rows, err));
        f->removed = row->row;
        TRY(fetch_start(f, row->row, s->list_rows, err));
        s->begun = true;
    }
    const uint64_t sequence = row->row;
    const enum status status = next_selected(s, row, err);
    if (status != STATUS_OK) { /* also END */
        return status;
    }
    struct ledger_line line;
    bool unusable;
    TRY(fetch_take(f, &line, &unusable, err));
    if (row->reason != REASON_NONE) {
        return STATUS_OK;
    }
    FAIL_IF(unusable || line.row != row->number, err, STATUS_CORRUPT,
            "%.300s: changed while it was read", f->opt->list);
    if (line.state == LEDGER_FETCHED) {
        return take_image(s, row, &line, sequence, err);
    }
    /* The reason alone: the ledger's detail may have times in it. */
    source_row_reject(row,
                      line.state == LEDGER_EXCLUDED ? REASON_FETCH_EXCLUDED : REASON_FETCH_FAILED,
                      "%s", line.reason);
    row->path[0] = '\0';
    return STATUS_OK;
}

static void fetch_source_close(struct source *base) {
    struct fetch_source *s = (struct fetch_source *)base;
    fetch_stop(s->fetch);
    source_close(s->list);
    byte_buffer_fini(&s->identity);
}

static const struct source_type fetch_source_type = {
    .struct_bytes = sizeof(struct fetch_source),
    .next = fetch_source_next,
    .close = fetch_source_close,
};

enum status fetch_open_source(struct source **out,
                              const char *path,
                              const struct source_options *opt,
                              struct error *err) {
    (void)path;
    struct fetch *f = opt->fetch;
    *out = NULL;
    f->source_options = *opt;
    TRY(fetch_open_ledger(f, err));
    struct fetch_source *s = calloc(1, sizeof(*s));
    TRY_MEMORY(s, err, "%.300s: out of memory", f->opt->list);
    s->base.type = &fetch_source_type;
    s->base.content = hash64(NULL, 0);
    s->fetch = f;
    byte_buffer_init(&s->identity, 0);
    json_writer_init(&s->base.json, 0);
    enum status status = fetch_open_list(&s->list, f, err);
    if (status != STATUS_OK) {
        source_close(&s->base);
        return status;
    }
    uint64_t position_bytes;
    source_position(s->list, &position_bytes, &s->base.size_bytes);
    memcpy(s->base.columns, s->list->columns, sizeof(s->base.columns));
    *out = &s->base;
    return STATUS_OK;
}
