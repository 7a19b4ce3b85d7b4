/*
 * What all kinds of sources share once they are open: counting their rows.
 */
#include "pack/source/source.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "pack/source/source_internal.h"

const char *const source_kind_names[SOURCE_KIND_COUNT + 1] = {
    "auto",
#define X(name, type) #type,
    SOURCE_KIND_LIST(X)
#undef X
        NULL,
};

const char *const source_grouping_names[] = {"auto", "never", "adjacent", "all", NULL};
const char *const source_lines_names[] = {"auto", "join", "each", "first", NULL};
const char *const source_name_split_names[] = {"first", "last", NULL};

/* The path of a row's image, without the folder that all paths are relative to. */
static const char *relative_path(const struct source *s, const struct source_row *row) {
    size_t n = strlen(s->images);
    bool inside = n > 0 && strncmp(row->path, s->images, n) == 0 &&
                  (row->path[n] == '/' || s->images[n - 1] == '/');
    return inside ? row->path + n + (row->path[n] == '/') : row->path;
}

/* Extends s->content by a row. */
static void add_to_content(struct source *s, const struct source_row *row) {
    const char *path = relative_path(s, row);
    if (row->raw) {
        const uint64_t texts[] = {s->content, hash64(row->raw, row->raw_bytes)};
        s->content = hash64(texts, sizeof(texts));
        return;
    }
    size_t image_bytes = row->image.size_bytes;
    if (row->member_bytes > 0 && image_bytes > SOURCE_HASHED_BYTES) {
        image_bytes = SOURCE_HASHED_BYTES;
    }
    const uint64_t parts[] = {
        s->content,
        hash64(row->key, strlen(row->key)),
        hash64(path, strlen(path)),
        hash64(row->text.data, row->text.size_bytes),
        hash64(row->caption_size_bytes, row->caption_count * sizeof(row->caption_size_bytes[0])),
        hash64(row->json.data, row->json.size_bytes),
        row->member_bytes,
        hash64(row->image.data, image_bytes),
        (uint64_t)(row->class_index + 1) << 32 | (uint64_t)row->reason,
    };
    s->content = hash64(parts, sizeof(parts));
}

static enum status
take_row(struct source *s, struct source_row *row, bool sparse, struct error *err) {
    source_row_reset(row, s->rows);
    s->sparse = sparse;
    enum status status = s->type->next(s, row, err);
    if (status == STATUS_OK) {
        s->rows++;
        add_to_content(s, row);
    }
    return status;
}

enum status source_next(struct source *s, struct source_row *row, struct error *err) {
    REQUIRE(s && row);
    enum status status = take_row(s, row, false, err);
    bool needs_caption = !row->captions_optional && row->caption_member[0] == '\0';
    if (status == STATUS_OK && row->caption_count == 0 && needs_caption) {
        source_row_reject(row, REASON_CAPTION_EMPTY, "%s", "");
    }
    if (status == STATUS_OK && row->path[0] != '\0' && !s->urls && row->reason == REASON_NONE &&
        source_leads_outside(s, row->path)) {
        source_row_reject_outside(row, s, row->path);
    }
    return status;
}

enum status source_skip(struct source *s, uint64_t count, uint64_t *skipped, struct error *err) {
    REQUIRE(s && skipped);
    *skipped = 0;
    if (!s->workspace) {
        s->workspace = malloc(sizeof(*s->workspace));
        TRY_MEMORY(s->workspace, err, "out of memory for a row");
        source_row_init(s->workspace);
    }
    enum status status = STATUS_OK;
    while (status == STATUS_OK && *skipped < count) {
        status = take_row(s, s->workspace, true, err);
        *skipped += status == STATUS_OK;
    }
    return status;
}

uint64_t source_rows_read(const struct source *s) {
    return s->rows;
}

uint64_t source_content(const struct source *s) {
    return s->content != 0 ? s->content : 1;
}

struct source_place source_place(const struct source *s) {
    return (struct source_place){.offset_bytes = s->next_bytes,
                                 .rows = s->rows,
                                 .members = s->next_members,
                                 .joined = s->joined,
                                 .content = s->content,
                                 .ignored = s->ignored};
}

size_t source_class_count(const struct source *s) {
    return s->class_count;
}

const char *source_class_name(const struct source *s, size_t i) {
    return i < s->class_count ? s->class_names[i] : NULL;
}

struct source_ignored source_ignored(const struct source *s) {
    return s->ignored;
}

const char *source_ignored_name(enum source_ignored_kind kind) {
    static const char *const names[IGNORED_KINDS] = {
        [IGNORED_HIDDEN] = "hidden",     [IGNORED_NO_EXTENSION] = "no-extension",
        [IGNORED_NOT_FILE] = "not-file", [IGNORED_UNUSED] = "unused",
        [IGNORED_NO_CLASS] = "no-class", [IGNORED_ANNOTATION] = "annotation",
    };
    return names[kind];
}

void source_ignored_add(struct source_ignored *sum, const struct source_ignored *counts) {
    for (int i = 0; i < IGNORED_KINDS; i++) {
        sum->by[i] += counts->by[i];
    }
}

uint64_t source_ignored_total(const struct source_ignored *counts) {
    uint64_t total = 0;
    for (int i = 0; i < IGNORED_KINDS; i++) {
        total += counts->by[i];
    }
    return total;
}

const char *source_note(const struct source *s) {
    return s->note ? s->note : "";
}

const char *source_columns(const struct source *s) {
    return s->columns;
}

void source_position(const struct source *s, uint64_t *position_bytes, uint64_t *size_bytes) {
    *position_bytes = s->position_bytes < s->size_bytes ? s->position_bytes : s->size_bytes;
    *size_bytes = s->size_bytes;
}

bool source_is_plain_tar(const struct source *s) {
    return s->plain_tar;
}

const char *source_etag(const struct source *s) {
    return s->etag ? s->etag : "";
}

void source_close(struct source *s) {
    if (s) {
        if (s->workspace) {
            source_row_fini(s->workspace);
            free(s->workspace);
        }
        s->type->close(s);
        json_writer_fini(&s->json);
        free(s->folder);
        free(s);
    }
}
