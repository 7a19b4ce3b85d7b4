/*
 * Class folders inside a tar or zip: SET/CLASS/.../FILE. The folders that all images share are
 * above the classes; if all images are in one folder, that folder is the only class. The archive
 * is read twice: once for the names of the folders, so that the classes are known before the first
 * row, and once for the images, in the archive's order.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/image/image_codec.h"
#include "pack/source/archive_internal.h"
#include "pack/source/folders_internal.h"

enum { PEEK_BYTES = SOURCE_HASHED_BYTES, NO_KIND = ' ' };

struct folders_archive {
    struct source base;
    struct source_archive *archive;
    bool listing;                /* of all images' folders, before the prefix is known */
    size_t prefix_bytes;         /* of a name, up to its class */
    struct source_names folders; /* of all images */
    struct source_names classes;
    struct byte_buffer workspace; /* first bytes of images whose folders are listed */
};

/* Size of the folder in a member's name, with the slash; 0: none. */
static size_t folder_bytes(const char *name) {
    const char *slash = strrchr(name, '/');
    return slash ? (size_t)(slash - name) + 1 : 0;
}

/* Whether the current member is an image, by its name or else by its content. Reads its body into
 * `image`, only its first bytes if the row is skipped and its size is known. *fits is whether it is
 * within the limit; if not, `image` is empty. */
static enum status look(struct folders_archive *f,
                        bool *is_image,
                        struct byte_buffer *image,
                        bool *fits,
                        struct error *err) {
    const struct source_member *m = source_archive_view(f->archive).member;
    *fits = m->size_bytes <= SOURCE_MAX_IMAGE_BYTES;
    image->size_bytes = 0;
    if (!f->base.sparse || !m->size_known) {
        TRY(source_archive_read(f->archive, image, SOURCE_MAX_IMAGE_BYTES, fits, err));
    } else if (*fits) {
        TRY(byte_buffer_reserve(image, PEEK_BYTES, err));
        TRY(source_archive_peek(f->archive, image->data, &image->size_bytes, PEEK_BYTES, err));
    }
    *is_image = source_is_image_name(m->name) ||
                image_format_of(image->data, image->size_bytes) != IMAGE_FORMAT_UNKNOWN;
    return STATUS_OK;
}

/* Whether a file, or a folder of it, is hidden. */
static bool is_hidden(const char *name) {
    return name[0] == '.' || strstr(name, "/.") != NULL;
}

/* Moves to the next image that is in a folder below the prefix; image and fits as above. */
static enum status
next_image(struct folders_archive *f, struct byte_buffer *image, bool *fits, struct error *err) {
    bool found = false;
    while (!found) {
        enum status s = source_archive_next(f->archive, err);
        f->base.position_bytes = source_archive_view(f->archive).position_bytes;
        if (s != STATUS_OK) {
            f->base.note = source_archive_view(f->archive).note;
            return s;
        }
        const struct source_member *m = source_archive_view(f->archive).member;
        size_t above = f->listing ? folder_bytes(m->name) : f->prefix_bytes;
        const bool inside = folder_bytes(m->name) > f->prefix_bytes;
        enum source_ignored_kind kind = IGNORED_UNUSED;
        if (!m->is_file) {
            kind = IGNORED_NOT_FILE;
        } else if (m->name[0] == '\0') { /* it may be an image: a row, and a reject */
            found = !f->listing;
            *fits = true;
        } else if (!inside || is_hidden(m->name + above)) {
            kind = inside ? IGNORED_HIDDEN : IGNORED_NO_CLASS;
        } else {
            TRY(look(f, &found, image, fits, err));
        }
        f->base.ignored.by[kind] += !found && !m->is_folder;
    }
    return STATUS_OK;
}

static enum status
open_archive(struct folders_archive *f, const struct source_options *opt, struct error *err) {
    source_archive_close(f->archive);
    f->archive = NULL;
    f->base.note = NULL;
    f->base.ignored = (struct source_ignored){0};
    TRY(source_archive_open(&f->archive, f->base.path, opt, &f->base.rows, err));
    f->base.size_bytes = source_archive_view(f->archive).size_bytes;
    return STATUS_OK;
}

/* Lists the folders of all images, without consecutive repeats. */
static enum status list_folders(struct folders_archive *f, struct error *err) {
    size_t last = 0; /* where the previous one begins in the list */
    f->base.sparse = true;
    f->listing = true;
    for (;;) {
        bool fits;
        enum status s = next_image(f, &f->workspace, &fits, err);
        if (s != STATUS_OK) {
            f->listing = false;
            return s == STATUS_END ? source_names_sort(&f->folders, err) : s;
        }
        const char *name = source_archive_view(f->archive).member->name;
        size_t n = folder_bytes(name);
        const char *before =
            f->folders.count > 0 ? (const char *)f->folders.text.data + last + 1 : "";
        if (n > 0 && (strncmp(before, name, n) != 0 || before[n] != '\0')) {
            last = f->folders.text.size_bytes;
            TRY(source_names_add(&f->folders, NO_KIND, name, n, err));
        }
    }
}

/* Size of the complete folders with which both begin. */
static size_t common_bytes(const char *a, const char *b) {
    size_t slash = 0;
    for (size_t i = 0; a[i] != '\0' && a[i] == b[i]; i++) {
        slash = a[i] == '/' ? i + 1 : slash;
    }
    return slash;
}

/* All share what the first and the last in order share. At least one folder is left as the class.
 */
static size_t find_prefix(const struct source_names *folders) {
    const char *first = folders->names[0];
    size_t prefix = common_bytes(first, folders->names[folders->count - 1]);
    if (prefix == strlen(first) && strcmp(first, folders->names[folders->count - 1]) == 0) {
        while (prefix > 1 && first[prefix - 2] != '/') {
            prefix--;
        }
        prefix -= prefix > 0;
    }
    return prefix;
}

/* Hidden folders are no classes, unless all are hidden: then they are above the classes. */
static void drop_hidden(struct source_names *folders) {
    size_t kept = 0;
    for (size_t i = 0; i < folders->count; i++) {
        if (!is_hidden(folders->names[i])) {
            folders->names[kept++] = folders->names[i];
        }
    }
    folders->count = kept > 0 ? kept : folders->count;
}

static enum status find_classes(struct folders_archive *f, struct error *err) {
    const char *path = f->base.path;
    FAIL_IF(f->folders.count == 0, err, STATUS_CORRUPT,
            "%s: no image in it is in a folder, but the folders are the classes", path);
    drop_hidden(&f->folders);
    f->prefix_bytes = find_prefix(&f->folders);
    const char *last = NULL;
    size_t last_bytes = 0;
    for (size_t i = 0; i < f->folders.count; i++) {
        const char *name = f->folders.names[i] + f->prefix_bytes;
        size_t n = strcspn(name, "/");
        if (n == 0 || (last && n == last_bytes && memcmp(name, last, n) == 0)) {
            continue;
        }
        TRY(source_names_add(&f->classes, NO_KIND, name, n, err));
        last = name;
        last_bytes = n;
    }
    TRY(source_names_sort(&f->classes, err));
    for (size_t i = 0; i < f->classes.count; i++) {
        TRY(source_check_class(path, f->classes.names[i], f->classes.count, err));
    }
    f->base.class_names = f->classes.names;
    f->base.class_count = f->classes.count;
    source_names_fini(&f->folders);
    return STATUS_OK;
}

static int compare_class(const void *key, const void *name) {
    const char *wanted = key; /* ends with a slash */
    const char *known = *(const char *const *)name;
    size_t n = strcspn(wanted, "/");
    int order = strncmp(wanted, known, n);
    return order != 0 ? order : known[n] == '\0' ? 0 : -1;
}

static enum status
folders_archive_next(struct source *s, struct source_row *row, struct error *err) {
    struct folders_archive *f = (struct folders_archive *)s;
    bool fits;
    enum status status = next_image(f, &row->image, &fits, err);
    if (status != STATUS_OK) {
        return status;
    }
    const struct source_member *m = source_archive_view(f->archive).member;
    row->offset_bytes = source_archive_view(f->archive).offset_bytes;
    if (m->name[0] == '\0') {
        source_row_reject(row, REASON_ROW_BAD, SOURCE_NAMELESS, row->offset_bytes);
        return STATUS_OK;
    }
    const char *name = m->name + f->prefix_bytes;
    const char *const *class = bsearch(name, f->classes.names, f->classes.count,
                                       sizeof(f->classes.names[0]), compare_class);
    if (!class) { /* the file has changed since it was opened */
        return error_set(err, STATUS_CORRUPT, "%s: its class was not there when it was opened",
                         name);
    }
    row->member_bytes = m->size_known ? m->size_bytes : row->image.size_bytes;
    if (!fits) {
        source_row_reject(row, REASON_IMAGE_LIMIT, "more than %d bytes", SOURCE_MAX_IMAGE_BYTES);
    }
    return source_row_set_class(row, &s->json, name, (size_t)(class - f->classes.names), *class,
                                err);
}

static void folders_archive_close(struct source *s) {
    struct folders_archive *f = (struct folders_archive *)s;
    source_archive_close(f->archive);
    source_names_fini(&f->folders);
    source_names_fini(&f->classes);
    byte_buffer_fini(&f->workspace);
}

static enum status
folders_archive_open(struct source *s, const struct source_options *opt, struct error *err) {
    struct folders_archive *f = (struct folders_archive *)s;
    byte_buffer_init(&f->workspace, SOURCE_MAX_IMAGE_BYTES);
    source_names_init(&f->folders);
    source_names_init(&f->classes);
    FAIL_IF(
        strcmp(s->path, "-") == 0, err, STATUS_USAGE,
        "class folders in a tar are read twice, so standard input is impossible: pass the file");
    TRY(open_archive(f, opt, err));
    TRY(list_folders(f, err));
    TRY(find_classes(f, err));
    return open_archive(f, opt, err);
}

const struct source_type source_type_folders_archive = {
    .struct_bytes = sizeof(struct folders_archive),
    .open = folders_archive_open,
    .next = folders_archive_next,
    .close = folders_archive_close,
};
