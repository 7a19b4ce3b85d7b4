/*
 * WebDataset archives (tar and zip, also .gz and .zst, also from a pipe), read once from front to
 * back. The stem of a name ends at its first dot, as in WebDataset, or with split_names at its
 * last.
 *
 *     00012.jpg 00012.txt 00012.json | 00013.txt 00013.png | ...
 *     \_______ one row _____________/
 *
 * A row ends where the stem changes, and before a member that the row has already: a second .txt or
 * .json, or an image of the same name. source_image_rank decides which of its images is the row's.
 * The others ("00012.depth.png") are extras: each becomes a rejected row of its own, so that no
 * image is lost without a line in rejects.jsonl. STEM.N.txt is a further caption, but not where
 * there is STEM.N.jpg, whose caption it is. Links are not followed, but named where an image or
 * caption is missing. STEM.cls is the number of a class, from 0, in the lines of classnames.txt,
 * which is beside the archive or in the folder above, as in CLIP-benchmark's sets. There STEM.npy
 * alone, several labels in one array, is enough too; it is not read.
 *
 * A row that is skipped is read in the same way, but for its image, of which only the first bytes
 * are read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "formats/image/image_codec.h"
#include "formats/shard/tar.h"
#include "net/location.h"
#include "pack/source/wds_internal.h"

enum {
    PEEK_BYTES = SOURCE_HASHED_BYTES, /* enough to recognise an image */
    EXTRAS_END_BYTES = 64 << 10,      /* a row with more names of extras than this ends */
};

enum member_kind { MEMBER_TEXT, MEMBER_JSON, MEMBER_CLASS, MEMBER_IMAGE, MEMBER_OTHER };

/* Whether the name belongs to the row with w->key. */
static bool has_stem(const struct source_wds *w, const char *name) {
    size_t n = wds_stem_bytes(w, name);
    return n == w->key.size_bytes && memcmp(name, w->key.data, n) == 0;
}

/* Links are no members of rows. They explain why one is missing. */
static enum status
keep_link(struct source_wds *w, const struct source_member *m, struct error *err) {
    bool later = w->key.size_bytes == 0 || !has_stem(w, m->name);
    struct byte_buffer *link = &w->links[later];
    link->size_bytes = 0;
    TRY(wds_add_name(link, m->name, err));
    return wds_add_name(link, m->link, err);
}

/* The link of the row that begins with w->key is among those that were found before it. */
static void take_link(struct source_wds *w) {
    w->links[0].size_bytes = 0;
    if (w->links[1].size_bytes > 0 && has_stem(w, (const char *)w->links[1].data)) {
        wds_swap_buffers(&w->links[0], &w->links[1]);
    }
    w->links[1].size_bytes = 0;
}

static enum source_ignored_kind ignored_kind(const struct source_member *m, size_t stem) {
    if (!m->is_file) {
        return IGNORED_NOT_FILE;
    }
    return m->name[stem] == '.' ? IGNORED_HIDDEN : IGNORED_NO_EXTENSION;
}

/* Finds the next regular file with a stem. Hidden files, such as "._x" of macOS, have none. */
static enum status next_entry(struct source_wds *w, struct error *err) {
    bool first = true;
    w->pending = NULL;
    while (!w->at_end) {
        enum status s = source_archive_next(w->archive, err);
        if (first) { /* entries after it may belong to no row */
            w->entry_bytes = source_archive_view(w->archive).offset_bytes;
            first = false;
        }
        w->base.position_bytes = source_archive_view(w->archive).position_bytes;
        TRY(s);
        if (s == STATUS_END) {
            w->base.note = source_archive_view(w->archive).note;
            source_note_joined(&w->base);
            w->at_end = true;
            break;
        }
        const struct source_member *m = source_archive_view(w->archive).member;
        size_t stem = wds_stem_bytes(w, m->name);
        if (m->is_file && stem > 0 && m->name[stem - 1] != '/' && m->name[stem] == '.') {
            w->pending = m;
            return STATUS_OK;
        }
        if (m->is_file && m->name[0] == '\0') {
            TRY(byte_buffer_append(&w->nameless, &m->offset_bytes, sizeof(m->offset_bytes), err));
            continue;
        }
        w->base.ignored.by[ignored_kind(m, stem)] += !m->is_folder;
        if (m->link) {
            TRY(keep_link(w, m, err));
        }
    }
    return STATUS_END;
}

/* Or a class, which replaces it. */
static bool has_caption(const struct source_wds *w, const struct row_parts *parts) {
    return ((parts->class_id || parts->vector) && w->classes.count > 0) ||
           (w->caption_member[0] != '\0' ? parts->json : parts->text);
}

/* Only reads the JSON. Checking it costs more than the rest of a row, so source_row_load does it on
 * another thread. */
static enum status take_json(struct source_wds *w, struct source_row *row, struct error *err) {
    bool fits;
    TRY(source_archive_read(w->archive, &row->json, SOURCE_MAX_JSON_BYTES, &fits, err));
    row->json_unchecked = true;
    strcpy(row->caption_member, w->caption_member);
    if (!fits) {
        char why[64];
        snprintf(why, sizeof(why), "more than %d bytes", SOURCE_MAX_JSON_BYTES);
        source_row_drop_json(row, why);
    }
    return STATUS_OK;
}

static enum status take_class(struct source_wds *w, struct source_row *row, struct error *err) {
    const size_t count = w->classes.count;
    bool fits;
    if (count == 0) {
        w->base.ignored.by[IGNORED_UNUSED]++;
        return STATUS_OK;
    }
    TRY(source_archive_read(w->archive, &w->text, SOURCE_CLASS_BYTES, &fits, err));
    if (!fits) {
        w->text.size_bytes = 0;
    }
    return source_row_set_class_id(row, &w->text, count, err);
}

/* Counts the pending member as ignored. A text is named where the row's caption is missing. */
static enum status ignore_member(struct source_wds *w, struct error *err) {
    const char *name = w->pending->name;
    const char *dot = strrchr(name, '.');
    w->base.ignored.by[IGNORED_UNUSED]++;
    return strcasecmp(dot, ".txt") == 0 && w->text_name.size_bytes == 0
               ? wds_add_name(&w->text_name, name, err)
               : STATUS_OK;
}

/* A further member of the row becomes an extra if it is an image. */
static enum status take_extra(struct source_wds *w, bool named_image, struct error *err) {
    if (!named_image) {
        uint8_t head[PEEK_BYTES];
        size_t got = 0;
        TRY(source_archive_peek(w->archive, head, &got, sizeof(head), err));
        if (image_format_of(head, got) == IMAGE_FORMAT_UNKNOWN) {
            return ignore_member(w, err);
        }
    }
    return wds_add_name(&w->extras, w->pending->name, err);
}

/* Whether a member is within the limit, and is an image by its content. w->member then holds the
 * image, or its first bytes if the row is skipped. */
static enum status look_at_image(struct source_wds *w, bool *fits, bool *real, struct error *err) {
    const struct source_member *m = w->pending;
    if (w->base.sparse && m->size_known) {
        w->member.size_bytes = 0;
        TRY(byte_buffer_reserve(&w->member, PEEK_BYTES, err));
        TRY(source_archive_peek(w->archive, w->member.data, &w->member.size_bytes, PEEK_BYTES,
                                err));
        *fits = m->size_bytes <= SOURCE_MAX_IMAGE_BYTES;
        w->member.size_bytes = *fits ? w->member.size_bytes : 0;
    } else {
        TRY(source_archive_read(w->archive, &w->member, SOURCE_MAX_IMAGE_BYTES, fits, err));
    }
    *real = *fits && image_format_of(w->member.data, w->member.size_bytes) != IMAGE_FORMAT_UNKNOWN;
    return STATUS_OK;
}

/* The row's image is the member with the largest rank, and of these the first. */
static enum status take_image(struct source_wds *w,
                              struct source_row *row,
                              struct row_parts *parts,
                              bool named_image,
                              struct error *err) {
    const char *name = w->pending->name;
    const char *extension = name + wds_stem_bytes(w, name) + 1;
    if (parts->image && source_image_rank(extension, true) <= parts->image_rank) {
        return take_extra(w, named_image, err);
    }
    bool fits, real;
    TRY(look_at_image(w, &fits, &real, err));
    if (!real && !named_image) {
        return ignore_member(w, err);
    }
    const int rank = source_image_rank(extension, real || !fits);
    if (parts->image && rank <= parts->image_rank) {
        return wds_add_name(&w->extras, name, err);
    }
    if (parts->image) {
        TRY(wds_add_name(&w->extras, (const char *)w->image_name.data, err));
    }
    w->image_name.size_bytes = 0;
    TRY(wds_add_name(&w->image_name, name, err));
    wds_swap_buffers(&row->image, &w->member);
    row->member_bytes = w->pending->size_known ? w->pending->size_bytes : row->image.size_bytes;
    row->image_offset_bytes = w->pending->body_bytes;
    parts->image = true;
    parts->image_rank = rank;
    parts->image_fits = fits;
    return STATUS_OK;
}

static enum member_kind kind_of(const char *name, size_t stem) {
    const char *extension = name + stem + 1;
    uint32_t number;
    if (wds_text_number(extension, &number)) {
        return MEMBER_TEXT;
    }
    if (strcasecmp(extension, "json") == 0) {
        return MEMBER_JSON;
    }
    if (strcasecmp(extension, "cls") == 0) {
        return MEMBER_CLASS;
    }
    const char *last = strrchr(extension, '.');
    last = last ? last + 1 : extension;
    return source_is_image_extension(last, strlen(last)) ? MEMBER_IMAGE : MEMBER_OTHER;
}

static bool has_image_named(const struct source_wds *w, const char *name) {
    bool found =
        w->image_name.size_bytes > 0 && strcmp(name, (const char *)w->image_name.data) == 0;
    for (size_t at = 0; !found && at < w->extras.size_bytes;) {
        const char *other = (const char *)w->extras.data + at;
        found = strcmp(name, other) == 0;
        at += strlen(other) + 1;
    }
    return found;
}

/* Whether the pending member belongs to the row with these parts. */
static bool
belongs(const struct source_wds *w, const struct row_parts *parts, enum member_kind kind) {
    const char *name = w->pending->name;
    size_t stem = wds_stem_bytes(w, name);
    if (!has_stem(w, name) || w->extras.size_bytes >= EXTRAS_END_BYTES) {
        return false;
    }
    switch (kind) {
    case MEMBER_TEXT:
        return wds_is_new_text(parts, name + stem + 1);
    case MEMBER_JSON:
        return !parts->json;
    case MEMBER_CLASS:
        return !parts->class_id;
    case MEMBER_IMAGE:
        return !has_image_named(w, name);
    case MEMBER_OTHER:
        break;
    }
    return true;
}

/* Adds the pending member to the row; OK with *took false if it begins the next row. */
static enum status take_member(struct source_wds *w,
                               struct source_row *row,
                               struct row_parts *parts,
                               bool *took,
                               struct error *err) {
    const char *name = w->pending->name;
    enum member_kind kind = kind_of(name, wds_stem_bytes(w, name));
    *took = belongs(w, parts, kind);
    if (!*took) {
        return STATUS_OK;
    }
    switch (kind) {
    case MEMBER_TEXT:
        return wds_take_text(w, row, parts, err);
    case MEMBER_JSON:
        parts->json = true;
        return take_json(w, row, err);
    case MEMBER_CLASS:
        parts->class_id = true;
        return take_class(w, row, err);
    case MEMBER_OTHER:
        if (w->classes.count > 0 && strcasecmp(name + wds_stem_bytes(w, name), ".npy") == 0) {
            parts->vector = true;
            row->captions_optional = true;
        }
        break;
    case MEMBER_IMAGE:
        break;
    }
    return take_image(w, row, parts, kind == MEMBER_IMAGE, err);
}

/* The next extra as a row of its own. */
static void give_extra(struct source_wds *w, struct source_row *row) {
    const char *name = (const char *)w->extras.data + w->extras_at;
    w->extras_at += strlen(name) + 1;
    source_row_set_key(row, (const char *)w->key.data, w->key.size_bytes);
    source_row_reject(row, REASON_IMAGE_EXTRA, "%.100s: the row has its image, %.100s", name,
                      (const char *)w->image_name.data);
}

/* The next member without a name as a row of its own. */
static void give_nameless(struct source_wds *w, struct source_row *row) {
    uint64_t offset_bytes;
    memcpy(&offset_bytes, w->nameless.data + w->nameless_at, sizeof(offset_bytes));
    w->nameless_at += sizeof(offset_bytes);
    source_row_reject(row, REASON_ROW_BAD, SOURCE_NAMELESS, offset_bytes);
    if (w->nameless_at == w->nameless.size_bytes) {
        w->nameless_at = w->nameless.size_bytes = 0;
    }
}

/* Reads the members of one row. */
static enum status take_members(struct source_wds *w,
                                struct source_row *row,
                                struct row_parts *parts,
                                struct error *err) {
    enum status status = w->pending ? STATUS_OK : next_entry(w, err);
    if (status != STATUS_OK) {
        return status;
    }
    w->key.size_bytes = 0;
    w->image_name.size_bytes = 0;
    w->text_name.size_bytes = 0;
    w->extras.size_bytes = 0;
    w->extras_at = 0;
    const char *name = w->pending->name;
    TRY(byte_buffer_append(&w->key, name, wds_stem_bytes(w, name), err));
    source_row_set_key(row, (const char *)w->key.data, w->key.size_bytes);
    row->offset_bytes = w->pending->offset_bytes;
    take_link(w);
    bool took = true;
    while (status == STATUS_OK && took && w->pending) {
        status = take_member(w, row, parts, &took, err);
        if (status == STATUS_OK && took) {
            status = next_entry(w, err);
            row->end_bytes = w->entry_bytes;
        }
    }
    return status < STATUS_OK ? status : STATUS_OK;
}

/* Names a link instead of the image or caption that is missing. */
static void
reject_link(const struct source_wds *w, struct source_row *row, const struct row_parts *parts) {
    if (w->links[0].size_bytes > 0 && (!parts->image || !has_caption(w, parts))) {
        const char *name = (const char *)w->links[0].data;
        source_row_reject(row, parts->image ? REASON_CAPTION_MISSING : REASON_IMAGE_MISSING,
                          "%.70s is a link to %.70s, and links in a tar are not followed; store "
                          "files with tar --dereference --hard-dereference",
                          name, name + strlen(name) + 1);
    }
}

static enum status next_row(struct source_wds *w, struct source_row *row, struct error *err) {
    if (w->extras_at < w->extras.size_bytes) {
        give_extra(w, row);
        return STATUS_OK;
    }
    struct row_parts parts = {0};
    enum status status =
        w->nameless.size_bytes > 0 ? STATUS_END : take_members(w, row, &parts, err);
    if (status == STATUS_END && w->nameless.size_bytes > 0) {
        give_nameless(w, row);
        return STATUS_OK;
    }
    if (status != STATUS_OK) {
        return status;
    }
    TRY(wds_order_captions(w, row, &parts, err));
    if (parts.image && !parts.image_fits) {
        source_row_reject(row, REASON_IMAGE_LIMIT, "more than %d bytes", SOURCE_MAX_IMAGE_BYTES);
    }
    reject_link(w, row, &parts);
    if (!parts.image) {
        source_row_reject(
            row, REASON_IMAGE_MISSING,
            "no image next to it: members of a row must have the same name and be consecutive");
    }
    if (!has_caption(w, &parts) && w->caption_member[0] == '\0' && w->text_name.size_bytes > 0) {
        source_row_reject(row, REASON_CAPTION_MISSING,
                          "no %.60s.txt: there is %.60s, but a row's name ends at %s dot%s",
                          row->key, (const char *)w->text_name.data,
                          w->last_dot ? "its last" : "the first",
                          w->last_dot ? "" : "; use --split-names last to end it at the last dot");
    }
    if (!has_caption(w, &parts) && parts.class_id) {
        source_row_reject(row, REASON_CAPTION_MISSING,
                          "no caption, and no class: a .cls needs classnames.txt next to the "
                          "archive or in the folder above");
    }
    if (!has_caption(w, &parts)) {
        source_row_reject(row, REASON_CAPTION_MISSING,
                          "no caption: a member of the same name ending in .%s is required right "
                          "before or after the image; --caption-column reads it from the .json, "
                          "--from folders makes folders classes",
                          w->caption_member[0] != '\0' ? "json" : "txt");
    }
    return STATUS_OK;
}

/* Where a remote tar can be opened again: nothing of the rows before is still to come, and
 * the next header lies within the file. */
static void mark_place(struct source_wds *w) {
    const struct source_archive_view v = source_archive_view(w->archive);
    const bool clean = w->extras_at == w->extras.size_bytes && w->nameless.size_bytes == 0 &&
                       w->links[1].size_bytes == 0;
    const bool within = v.offset_bytes + TAR_BLOCK_BYTES <= v.size_bytes;
    const bool here = w->base.plain_tar && location_is_remote(w->base.path) && clean && within;
    w->base.next_bytes = here ? v.offset_bytes : 0;
    w->base.next_members = v.members - (w->pending != NULL);
}

static enum status wds_next(struct source *s, struct source_row *row, struct error *err) {
    struct source_wds *w = (struct source_wds *)s;
    const enum status status = next_row(w, row, err);
    if (status == STATUS_OK) {
        mark_place(w);
    }
    return status;
}

static void wds_close(struct source *s) {
    struct source_wds *w = (struct source_wds *)s;
    source_archive_close(w->archive);
    byte_buffer_fini(&w->text);
    byte_buffer_fini(&w->member);
    byte_buffer_fini(&w->key);
    byte_buffer_fini(&w->image_name);
    byte_buffer_fini(&w->extras);
    byte_buffer_fini(&w->nameless);
    byte_buffer_fini(&w->text_name);
    byte_buffer_fini(&w->links[0]);
    byte_buffer_fini(&w->links[1]);
    source_names_fini(&w->classes);
}

static enum status wds_open(struct source *s, const struct source_options *opt, struct error *err) {
    struct source_wds *w = (struct source_wds *)s;
    byte_buffer_init(&w->text, SOURCE_MAX_TEXT_BYTES);
    byte_buffer_init(&w->member, SOURCE_MAX_IMAGE_BYTES);
    w->last_dot = opt->split_names == SOURCE_SPLIT_LAST_DOT;
    if (opt->caption_column) {
        strcpy(w->caption_member, opt->caption_column); /* source_open has checked its size */
    }
    TRY(source_read_classes(&w->base, &w->classes, w->base.path, err));
    wds_decide_lines(w, opt);
    TRY(source_archive_open(&w->archive, s->path, opt, &s->rows, err));
    s->size_bytes = source_archive_view(w->archive).size_bytes;
    s->plain_tar = source_archive_view(w->archive).is_plain_tar;
    s->etag = source_archive_view(w->archive).etag;
    return STATUS_OK;
}

/* Checks the checksum of the first header, because tars older than "ustar" have no magic number. */
static bool is_tar_header(const uint8_t *p, size_t size_bytes) {
    char field[TAR_SUM_BYTES + 1] = {0};
    if (size_bytes < TAR_BLOCK_BYTES || p[0] == '\0') {
        return false;
    }
    memcpy(field, p + TAR_SUM_AT, TAR_SUM_BYTES);
    return strtoul(field, NULL, 8) == tar_header_sum(p);
}

static bool wds_detect(const struct source_head *h) {
    static const char *const magics[] = {"\x1F\x8B", "\x28\xB5\x2F\xFD", "PK\3\4"};
    for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++) {
        size_t n = strlen(magics[i]);
        if (h->size_bytes >= n && memcmp(h->data, magics[i], n) == 0) {
            return true;
        }
    }
    return is_tar_header(h->data, h->size_bytes);
}

const struct source_type source_type_wds = {
    .options = SOURCE_HAS_CAPTION_COLUMN | SOURCE_HAS_NAME_SPLIT | SOURCE_HAS_LINES,
    .struct_bytes = sizeof(struct source_wds),
    .detect = wds_detect,
    .open = wds_open,
    .next = wds_next,
    .close = wds_close,
};
