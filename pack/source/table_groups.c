/*
 * Records of one image become one row, which stands where the first of them is.
 *
 * Adjacent records: the row at hand waits until a record names another image. All records: the
 * table is read once to keep paths and captions, and a second time to make rows of them.
 *
 * A record that cannot be used, or that no longer fits into its row, is a row of its own, in the
 * order of the table. It ends no group, so that a bad caption between two good ones does not make
 * two samples of one image. With adjacent records, such records are read again after their group.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "pack/source/table_internal.h"

enum { FIRST_SLOTS = 1024, NONE = UINT32_MAX };

struct group {
    uint64_t path_at; /* in the text */
    uint64_t full_at; /* place of the first record that does not fit; UINT64_MAX: all fit */
    uint32_t path_bytes;
    uint32_t caption_count, captions_bytes;
    uint32_t first, last; /* indices of its captions */
    bool done;            /* its row was made */
};

struct caption {
    uint64_t at;
    uint32_t size_bytes;
    uint32_t next; /* of its group; NONE after the last */
};

struct table_groups {
    /* adjacent records */
    struct source_row waiting; /* a group to which records may be added; without caption: none */
    struct table_place left;   /* the first record after it that is a row of its own */
    bool has_left;             /* there is one */
    uint64_t full_at;          /* as in struct group */
    uint64_t again_end;        /* records before this place are read again, after their group ... */
    char again[PATH_MAX_BYTES]; /* ... which has this path */
    /* all records */
    bool collected;
    struct byte_buffer text, groups, captions;
    uint32_t *slots;   /* by the hash of the path: index of the group */
    size_t slot_count; /* a power of 2 */
};

enum status table_groups_create(struct table_groups **out, struct error *err) {
    struct table_groups *g = calloc(1, sizeof(*g));
    *out = g;
    TRY_MEMORY(g, err, "out of memory for rows of one image");
    source_row_init(&g->waiting);
    g->full_at = UINT64_MAX;
    byte_buffer_init(&g->text, SOURCE_MAX_WHOLE_BYTES);
    byte_buffer_init(&g->groups, SOURCE_MAX_WHOLE_BYTES);
    byte_buffer_init(&g->captions, SOURCE_MAX_WHOLE_BYTES);
    return STATUS_OK;
}

void table_groups_destroy(struct table_groups *g) {
    if (g) {
        source_row_fini(&g->waiting);
        byte_buffer_fini(&g->text);
        byte_buffer_fini(&g->groups);
        byte_buffer_fini(&g->captions);
        free(g->slots);
        free(g);
    }
}

static bool is_usable(const struct source_row *record) {
    return record->reason == REASON_NONE && record->caption_count > 0;
}

/* Whether a row with so many captions takes those of the record. */
static bool fits(const struct source_row *record, uint32_t caption_count, size_t captions_bytes) {
    return caption_count <= SOURCE_MAX_CAPTIONS - record->caption_count &&
           record->text.size_bytes <= SOURCE_MAX_TEXT_BYTES - captions_bytes;
}

static void reject_extra(struct source_row *record) {
    source_row_reject(record, REASON_CAPTION_LIMIT,
                      "an image has at most %d captions and %d bytes of them together",
                      SOURCE_MAX_CAPTIONS, SOURCE_MAX_TEXT_BYTES);
}

static const char other_metadata[] = "of several records of an image, only the metadata of the "
                                     "first is kept; --keep-columns selects columns";

/* ---- adjacent records ---- */

static void swap_rows(struct source_row *a, struct source_row *b) {
    struct source_row other = *a;
    *a = *b;
    *b = other;
}

/* Returns the waiting group in `row`, and begins the next one with the record there, if any. The
 * records since g->left, up to the one at `end`, are read again. */
static void
return_group(struct source_table *t, struct source_row *row, uint64_t end, bool has_record) {
    struct table_groups *g = t->groups;
    swap_rows(&g->waiting, row);
    if (g->has_left) {
        strcpy(g->again, row->path);
        g->again_end = end;
        table_return(t, &g->left);
    }
    if (g->has_left || !has_record) {
        source_row_reset(&g->waiting, 0);
    }
    g->has_left = false;
}

/* Adds the record in `row` to the waiting group, or leaves it for later. */
static enum status add_record(struct source_table *t,
                              const struct table_place *place,
                              const struct source_row *row,
                              struct error *err) {
    struct table_groups *g = t->groups;
    struct source_row *w = &g->waiting;
    bool same = is_usable(row);
    if (same && g->full_at == UINT64_MAX && fits(row, w->caption_count, w->text.size_bytes)) {
        const char *text = (const char *)row->text.data;
        if (row->json.size_bytes != w->json.size_bytes ||
            (t->keeps && memcmp(row->json.data, w->json.data, w->json.size_bytes) != 0)) {
            t->base.note = other_metadata;
        }
        for (uint32_t i = 0; i < row->caption_count; text += row->caption_size_bytes[i++]) {
            TRY(source_row_add_caption(w, text, row->caption_size_bytes[i], err));
        }
        return STATUS_OK;
    }
    if (same && g->full_at == UINT64_MAX) {
        g->full_at = place->offset;
    }
    if (!g->has_left) {
        g->has_left = true;
        g->left = *place;
    }
    return STATUS_OK;
}

/* Whether a record that is read again was added to its group. If not, it is a row. */
static bool was_added(const struct table_groups *g, uint64_t offset, struct source_row *row) {
    bool same = is_usable(row) && strcmp(row->path, g->again) == 0;
    if (same && offset >= g->full_at) {
        reject_extra(row);
    }
    return same && offset < g->full_at;
}

enum status
table_groups_adjacent(struct source_table *t, struct source_row *row, struct error *err) {
    struct table_groups *g = t->groups;
    for (;; source_row_reset(row, row->row)) {
        struct table_cell path;
        struct table_place place = table_place_of(t);
        enum status s = table_record(t, row, &path, err);
        TRY(s);
        bool waits = g->waiting.caption_count > 0;
        if (s == STATUS_END) {
            if (waits) {
                return_group(t, row, UINT64_MAX, false);
            }
            return waits ? STATUS_OK : s;
        }
        if (place.offset < g->again_end) {
            if (was_added(g, place.offset, row)) {
                continue;
            }
            return STATUS_OK;
        }
        if (!waits && !is_usable(row)) {
            return STATUS_OK;
        }
        if (!waits) {
            g->full_at = UINT64_MAX;
            swap_rows(&g->waiting, row);
        } else if (!is_usable(row) || strcmp(g->waiting.path, row->path) == 0) {
            TRY(add_record(t, &place, row, err));
        } else {
            return_group(t, row, place.offset, true);
            return STATUS_OK;
        }
    }
}

/* ---- all records ---- */

static struct group *group_at(const struct table_groups *g, size_t i) {
    return (struct group *)(void *)g->groups.data + i;
}

static struct caption *caption_at(const struct table_groups *g, size_t i) {
    return (struct caption *)(void *)g->captions.data + i;
}

static size_t group_count(const struct table_groups *g) {
    return g->groups.size_bytes / sizeof(struct group);
}

/* The slot of the path's group, or a free one. */
static uint32_t *find_slot(const struct table_groups *g, const char *path, size_t size_bytes) {
    size_t at = hash64(path, size_bytes) & (g->slot_count - 1);
    for (;; at = (at + 1) & (g->slot_count - 1)) {
        uint32_t index = g->slots[at];
        const struct group *group = index == NONE ? NULL : group_at(g, index);
        if (!group || (group->path_bytes == size_bytes &&
                       memcmp(g->text.data + group->path_at, path, size_bytes) == 0)) {
            return &g->slots[at];
        }
    }
}

static enum status grow_slots(struct table_groups *g, struct error *err) {
    size_t count = g->slot_count > 0 ? 2 * g->slot_count : FIRST_SLOTS;
    uint32_t *slots = malloc(count * sizeof(*slots));
    TRY_MEMORY(slots, err, "out of memory for rows of one image");
    memset(slots, 0xFF, count * sizeof(*slots));
    free(g->slots);
    g->slots = slots;
    g->slot_count = count;
    for (size_t i = 0; i < group_count(g); i++) {
        const struct group *group = group_at(g, i);
        *find_slot(g, (const char *)g->text.data + group->path_at, group->path_bytes) = (uint32_t)i;
    }
    return STATUS_OK;
}

static enum status add_group(struct table_groups *g,
                             uint32_t *slot,
                             const struct table_cell *path,
                             struct error *err) {
    struct group group = {.path_at = g->text.size_bytes,
                          .full_at = UINT64_MAX,
                          .path_bytes = (uint32_t)path->size_bytes,
                          .first = NONE,
                          .last = NONE};
    *slot = (uint32_t)group_count(g);
    TRY(byte_buffer_append(&g->text, path->data, path->size_bytes, err));
    return byte_buffer_append(&g->groups, &group, sizeof(group), err);
}

static enum status add_caption(struct table_groups *g,
                               struct group *group,
                               const char *text,
                               uint32_t size_bytes,
                               struct error *err) {
    uint32_t index = (uint32_t)(g->captions.size_bytes / sizeof(struct caption));
    struct caption caption = {g->text.size_bytes, size_bytes, NONE};
    TRY(byte_buffer_append(&g->text, text, size_bytes, err));
    TRY(byte_buffer_append(&g->captions, &caption, sizeof(caption), err));
    if (group->first == NONE) {
        group->first = index;
    } else {
        caption_at(g, group->last)->next = index;
    }
    group->last = index;
    group->caption_count++;
    group->captions_bytes += caption.size_bytes;
    return STATUS_OK;
}

static enum status collect_record(struct table_groups *g,
                                  uint64_t offset,
                                  const struct table_cell *path,
                                  const struct source_row *row,
                                  const char **note,
                                  struct error *err) {
    if (2 * group_count(g) >= g->slot_count) {
        TRY(grow_slots(g, err));
    }
    uint32_t *slot = find_slot(g, path->data, path->size_bytes);
    if (*slot == NONE) {
        TRY(add_group(g, slot, path, err));
    }
    struct group *group = group_at(g, *slot);
    if (group->full_at != UINT64_MAX) {
        return STATUS_OK;
    }
    if (group->caption_count > 0 && row->json.size_bytes > 0) {
        *note = other_metadata;
    }
    if (!fits(row, group->caption_count, group->captions_bytes)) {
        group->full_at = offset;
        return STATUS_OK;
    }
    const char *text = (const char *)row->text.data;
    for (uint32_t i = 0; i < row->caption_count; text += row->caption_size_bytes[i++]) {
        TRY(add_caption(g, group, text, row->caption_size_bytes[i], err));
    }
    return STATUS_OK;
}

/* Reads the whole table, and returns to its first record. */
static enum status collect(struct source_table *t, struct source_row *row, struct error *err) {
    enum status s = STATUS_OK;
    while (s == STATUS_OK) {
        struct table_cell path;
        uint64_t offset = table_place_of(t).offset;
        source_row_reset(row, row->row);
        s = table_record(t, row, &path, err);
        if (s == STATUS_OK && is_usable(row)) {
            s = collect_record(t->groups, offset, &path, row, &t->base.note, err);
        }
    }
    FAIL_IF(s == STATUS_LIMIT, err, s,
            "%s: --group-captions all keeps at most 1 GiB of paths and captions; sort "
            "the table by path and use adjacent",
            t->base.path);
    TRY(s);
    t->groups->collected = true;
    return table_restart(t, err);
}

/* Replaces the caption in `row` by those of its group. */
static enum status fill_row(const struct table_groups *g,
                            struct group *group,
                            struct source_row *row,
                            struct error *err) {
    group->done = true;
    row->text.size_bytes = 0;
    row->caption_count = 0;
    for (uint32_t i = group->first; i != NONE; i = caption_at(g, i)->next) {
        const struct caption *caption = caption_at(g, i);
        const char *text = (const char *)g->text.data + caption->at;
        TRY(source_row_add_caption(row, text, caption->size_bytes, err));
    }
    return STATUS_OK;
}

enum status table_groups_all(struct source_table *t, struct source_row *row, struct error *err) {
    struct table_groups *g = t->groups;
    if (!g->collected) {
        TRY(collect(t, row, err));
    }
    for (;;) {
        struct table_cell path;
        uint64_t offset = table_place_of(t).offset;
        source_row_reset(row, row->row);
        enum status s = table_record(t, row, &path, err);
        if (s != STATUS_OK || !is_usable(row)) {
            return s;
        }
        const uint32_t *slot = g->slot_count > 0 ? find_slot(g, path.data, path.size_bytes) : NULL;
        if (!slot || *slot == NONE) { /* the file has changed */
            return STATUS_OK;
        }
        struct group *group = group_at(g, *slot);
        if (!group->done) {
            return fill_row(g, group, row, err);
        }
        if (offset >= group->full_at) {
            reject_extra(row);
            return STATUS_OK;
        }
    }
}
