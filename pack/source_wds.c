/*
 * WebDataset tars, read once from front to back. The only file that knows libarchive.
 *
 *     00012.jpg 00012.txt 00012.json | 00013.txt 00013.png | ...
 *     \_______ one row _____________/
 *
 * A row ends with its stem, and before a member that it has already: a second .txt or .json, a
 * picture of the same name, or any picture once there are picture and caption. Other pictures of
 * the row ("00012.depth.png") are extras: each follows as a row of its own that only says so, so
 * that no picture is lost without a line in the list.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/image_codec.h"
#include "pack/source_internal.h"

enum {
    READ_BYTES = 256 << 10,
    WAIT_MS = 100,
    PEEK_BYTES = 64,             /* tell a picture */
    EXTRAS_END_BYTES = 64 << 10, /* a row with more names of extras than this ends */
};

struct source_wds {
    struct source base;
    char path[PATH_MAX_BYTES]; /* for messages */
    struct archive *archive;
    int fd;
    bool (*stop)(void *cookie);
    void *stop_cookie;
    bool stopped;
    void (*bytes)(void *cookie, const void *data, size_t size_bytes);
    void *bytes_cookie;
    uint8_t *block;                /* READ_BYTES, what libarchive reads from */
    struct archive_entry *pending; /* first member of the next row; NULL: none yet */
    uint64_t entry_bytes;          /* where the entry behind the last pending one begins, or the
                                    * archive ends */
    uint64_t body_bytes;           /* where the pending member's body begins */
    bool at_end;
    struct byte_buffer member;  /* the one being read */
    struct byte_buffer key;     /* of the row being read, and of its extras; no NUL */
    struct byte_buffer picture; /* name of the picture that the row has; ends with a NUL */
    struct byte_buffer extras;  /* names, each with a NUL behind it */
    size_t extras_at;           /* those before it have become rows */
};

/* What the members of a row have given so far. */
struct row_parts {
    bool image, text, json;
    bool guessed; /* the image is one by its name only */
};

enum member_kind { MEMBER_TEXT, MEMBER_JSON, MEMBER_PICTURE, MEMBER_OTHER };

/* Waits in small steps, so that a run can be stopped while nothing comes through a pipe. */
static la_ssize_t read_block(struct archive *a, void *context, const void **block) {
    struct source_wds *w = context;
    *block = w->block;
    for (;;) {
        if (w->stop && w->stop(w->stop_cookie)) {
            w->stopped = true;
            archive_set_error(a, EINTR, "stopped on request");
            return -1;
        }
        struct pollfd p = {.fd = w->fd, .events = POLLIN};
        if (poll(&p, 1, WAIT_MS) == 0) {
            continue;
        }
        ssize_t got = read(w->fd, w->block, READ_BYTES);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) {
            continue;
        }
        if (got < 0) {
            archive_set_error(a, errno, "cannot read: %s", strerror(errno));
        }
        if (got > 0) {
            w->base.position_bytes += (uint64_t)got;
            if (w->bytes) {
                w->bytes(w->bytes_cookie, w->block, (size_t)got);
            }
        }
        return got;
    }
}

static enum status broken(struct source_wds *w, const char *member, struct error *err) {
    if (w->stopped) {
        return error_set(err, STATUS_INTERRUPTED, "stopped on request");
    }
    const char *text = archive_error_string(w->archive);
    return error_set(
        err, STATUS_CORRUPT, "%s: not readable as a tar after row %" PRIu64 "%s%.80s: %s", w->path,
        w->base.rows, member ? ", in " : "", member ? member : "", text ? text : "unknown reason");
}

static const char *member_name(struct archive_entry *e) {
    const char *name = archive_entry_pathname(e);
    name = name ? name : archive_entry_pathname_utf8(e);
    if (!name) {
        return "";
    }
    return strncmp(name, "./", 2) == 0 ? name + 2 : name;
}

/* Bytes of folder and base name up to its first dot. */
static size_t stem_bytes(const char *name) {
    const char *slash = strrchr(name, '/');
    const char *base = slash ? slash + 1 : name;
    return (size_t)(base - name) + strcspn(base, ".");
}

/* The next regular file that has a stem: hidden files, such as "._x" of macOS, have none. */
static enum status next_entry(struct source_wds *w, struct error *err) {
    bool first = true;
    w->pending = NULL;
    while (!w->at_end) {
        struct archive_entry *e = NULL;
        int code = archive_read_next_header(w->archive, &e);
        if (first) { /* the entries behind it may be of no row */
            w->entry_bytes = (uint64_t)archive_read_header_position(w->archive);
            first = false;
        }
        if (code == ARCHIVE_EOF) {
            w->at_end = true;
            break;
        }
        if (code != ARCHIVE_OK && code != ARCHIVE_WARN) {
            return broken(w, NULL, err);
        }
        const char *name = member_name(e);
        size_t stem = stem_bytes(name);
        if (archive_entry_filetype(e) == AE_IFREG && stem > 0 && name[stem - 1] != '/' &&
            name[stem] == '.') {
            w->pending = e;
            w->body_bytes = (uint64_t)archive_filter_bytes(w->archive, 0);
            return STATUS_OK;
        }
        w->base.ignored += archive_entry_filetype(e) != AE_IFDIR;
    }
    return STATUS_END;
}

/* The member's bytes into w->member; false in *fits when they are more than max_bytes. */
static enum status
read_member(struct source_wds *w, size_t max_bytes, bool *fits, struct error *err) {
    w->member.size_bytes = 0;
    *fits = archive_entry_size(w->pending) <= (la_int64_t)max_bytes;
    while (*fits) {
        TRY(byte_buffer_reserve(&w->member, READ_BYTES, err));
        la_ssize_t got =
            archive_read_data(w->archive, w->member.data + w->member.size_bytes, READ_BYTES);
        if (got < 0) {
            return broken(w, member_name(w->pending), err);
        }
        if (got == 0) {
            break;
        }
        w->member.size_bytes += (size_t)got;
        *fits = w->member.size_bytes <= max_bytes;
    }
    return STATUS_OK;
}

static enum status take_text(struct source_wds *w, struct source_row *row, struct error *err) {
    bool fits;
    TRY(read_member(w, SOURCE_MAX_TEXT_BYTES, &fits, err));
    if (!fits) {
        source_row_reject(row, REASON_CAPTION_LIMIT, "more than %d bytes", SOURCE_MAX_TEXT_BYTES);
        return STATUS_OK;
    }
    return source_row_add_caption(row, (const char *)w->member.data, w->member.size_bytes, err);
}

static enum status take_json(struct source_wds *w, struct source_row *row, struct error *err) {
    bool fits;
    TRY(read_member(w, SOURCE_MAX_JSON_BYTES, &fits, err));
    size_t size_bytes = fits ? w->member.size_bytes : (size_t)SOURCE_MAX_JSON_BYTES + 1;
    return source_row_set_json(row, (const char *)w->member.data, size_bytes, err);
}

static enum status add_name(struct byte_buffer *names, const char *name, struct error *err) {
    return byte_buffer_append(names, name, strlen(name) + 1, err);
}

/* One more picture than the row takes, unless it turns out to be none. */
static enum status take_extra(struct source_wds *w, bool named_image, struct error *err) {
    const char *name = member_name(w->pending);
    if (!named_image) {
        uint8_t head[PEEK_BYTES];
        la_ssize_t got = archive_read_data(w->archive, head, sizeof(head));
        if (got < 0) {
            return broken(w, name, err);
        }
        if (image_format_of(head, (size_t)got) == IMAGE_FORMAT_UNKNOWN) {
            return STATUS_OK;
        }
    }
    return add_name(&w->extras, name, err);
}

/* The first member that is a picture by content wins; one that is so by its name alone stays until
 * then, so that the decoder says what is wrong with it. */
static enum status take_picture(struct source_wds *w,
                                struct source_row *row,
                                struct row_parts *parts,
                                bool named_image,
                                struct error *err) {
    if (parts->image && !parts->guessed) {
        return take_extra(w, named_image, err);
    }
    bool fits;
    TRY(read_member(w, SOURCE_MAX_IMAGE_BYTES, &fits, err));
    bool real =
        fits && image_format_of(w->member.data, w->member.size_bytes) != IMAGE_FORMAT_UNKNOWN;
    if (!real && !named_image) {
        return STATUS_OK;
    }
    const char *name = member_name(w->pending);
    if (!real && parts->image) {
        return add_name(&w->extras, name, err);
    }
    if (!fits) {
        source_row_reject(row, REASON_IMAGE_LIMIT, "more than %d bytes", SOURCE_MAX_IMAGE_BYTES);
        w->member.size_bytes = 0;
    }
    if (parts->image) {
        TRY(add_name(&w->extras, (const char *)w->picture.data, err));
    }
    w->picture.size_bytes = 0;
    TRY(add_name(&w->picture, name, err));
    row->image.size_bytes = 0;
    TRY(byte_buffer_append(&row->image, w->member.data, w->member.size_bytes, err));
    row->image_offset_bytes = w->body_bytes;
    parts->image = true;
    parts->guessed = fits && !real;
    return STATUS_OK;
}

static enum member_kind kind_of(const char *name, size_t stem) {
    const char *extension = name + stem + 1;
    if (strcasecmp(extension, "txt") == 0) {
        return MEMBER_TEXT;
    }
    if (strcasecmp(extension, "json") == 0) {
        return MEMBER_JSON;
    }
    const char *last = strrchr(extension, '.');
    last = last ? last + 1 : extension;
    return source_is_image_extension(last, strlen(last)) ? MEMBER_PICTURE : MEMBER_OTHER;
}

/* Whether the pending member is of the row that has these parts. */
static bool
belongs(const struct source_wds *w, const struct row_parts *parts, enum member_kind kind) {
    const char *name = member_name(w->pending);
    size_t stem = stem_bytes(name);
    if (stem != w->key.size_bytes || memcmp(name, w->key.data, stem) != 0 ||
        w->extras.size_bytes >= EXTRAS_END_BYTES) {
        return false;
    }
    switch (kind) {
    case MEMBER_TEXT:
        return !parts->text;
    case MEMBER_JSON:
        return !parts->json;
    case MEMBER_PICTURE:
        return !parts->image || (!parts->text && strcmp(name, (const char *)w->picture.data) != 0);
    case MEMBER_OTHER:
        break;
    }
    return true;
}

/* The pending member into the row; OK and *took false when it begins the next one. */
static enum status take_member(struct source_wds *w,
                               struct source_row *row,
                               struct row_parts *parts,
                               bool *took,
                               struct error *err) {
    const char *name = member_name(w->pending);
    enum member_kind kind = kind_of(name, stem_bytes(name));
    *took = belongs(w, parts, kind);
    if (!*took) {
        return STATUS_OK;
    }
    switch (kind) {
    case MEMBER_TEXT:
        parts->text = true;
        return take_text(w, row, err);
    case MEMBER_JSON:
        parts->json = true;
        return take_json(w, row, err);
    case MEMBER_PICTURE:
    case MEMBER_OTHER:
        break;
    }
    return take_picture(w, row, parts, kind == MEMBER_PICTURE, err);
}

/* The next extra as a row of its own. */
static void give_extra(struct source_wds *w, struct source_row *row) {
    const char *name = (const char *)w->extras.data + w->extras_at;
    w->extras_at += strlen(name) + 1;
    source_row_set_key(row, (const char *)w->key.data, w->key.size_bytes);
    source_row_reject(row, REASON_IMAGE_EXTRA, "%.100s: the row has its picture, %.100s", name,
                      (const char *)w->picture.data);
}

static enum status wds_next(struct source *s, struct source_row *row, struct error *err) {
    struct source_wds *w = (struct source_wds *)s;
    if (w->extras_at < w->extras.size_bytes) {
        give_extra(w, row);
        return STATUS_OK;
    }
    enum status status = w->pending ? STATUS_OK : next_entry(w, err);
    if (status != STATUS_OK) {
        return status;
    }
    w->key.size_bytes = 0;
    w->picture.size_bytes = 0;
    w->extras.size_bytes = 0;
    w->extras_at = 0;
    const char *name = member_name(w->pending);
    TRY(byte_buffer_append(&w->key, name, stem_bytes(name), err));
    source_row_set_key(row, (const char *)w->key.data, w->key.size_bytes);
    row->offset_bytes = (uint64_t)archive_read_header_position(w->archive);
    struct row_parts parts = {0};
    bool took = true;
    while (status == STATUS_OK && took && w->pending) {
        status = take_member(w, row, &parts, &took, err);
        if (status == STATUS_OK && took) {
            status = next_entry(w, err);
            row->end_bytes = w->entry_bytes;
        }
    }
    if (status < STATUS_OK) {
        return status;
    }
    if (!parts.image) {
        source_row_reject(row, REASON_IMAGE_MISSING,
                          "no picture beside it: a row's members have "
                          "one name and follow each other");
    }
    if (!parts.text) {
        source_row_reject(row, REASON_CAPTION_MISSING,
                          "no caption: a member of the same name "
                          "ending in .txt is wanted right before or behind the picture");
    }
    return STATUS_OK;
}

static void wds_close(struct source *s) {
    struct source_wds *w = (struct source_wds *)s;
    archive_read_free(w->archive);
    if (w->fd > STDERR_FILENO) {
        close(w->fd);
    }
    byte_buffer_fini(&w->member);
    byte_buffer_fini(&w->key);
    byte_buffer_fini(&w->picture);
    byte_buffer_fini(&w->extras);
    free(w->block);
    free(w);
}

static const struct source_ops wds_ops = {wds_next, NULL, wds_close};

static enum status open_archive(struct source_wds *w, const char *path, struct error *err) {
    if (strcmp(path, "-") == 0) {
        w->fd = STDIN_FILENO;
        strcpy(w->path, "standard input");
    } else {
        if (strlen(path) >= sizeof(w->path)) {
            return error_set(err, STATUS_LIMIT, "%.80s...: the path is too long", path);
        }
        strcpy(w->path, path);
        w->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (w->fd < 0) {
            return error_set_errno(err, "%s: cannot open it", path);
        }
        struct stat info;
        if (fstat(w->fd, &info) == 0 && S_ISREG(info.st_mode)) {
            w->base.size_bytes = (uint64_t)info.st_size;
        }
    }
    w->block = malloc(READ_BYTES);
    w->archive = archive_read_new();
    if (!w->block || !w->archive) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory", w->path);
    }
    archive_read_support_filter_gzip(w->archive);
    archive_read_support_filter_zstd(w->archive);
    archive_read_support_format_tar(w->archive);
    if (archive_read_open(w->archive, w, NULL, read_block, NULL) != ARCHIVE_OK) {
        return broken(w, NULL, err);
    }
    w->base.plain_tar = w->base.size_bytes > 0 && archive_filter_count(w->archive) == 1;
    return STATUS_OK;
}

enum status source_open_wds(struct source **out,
                            const char *path,
                            const struct source_options *opt,
                            struct error *err) {
    struct source_wds *w = calloc(1, sizeof(*w));
    if (!w) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory", path);
    }
    w->base.ops = &wds_ops;
    w->fd = -1;
    w->stop = opt->stop;
    w->stop_cookie = opt->stop_cookie;
    w->bytes = opt->bytes;
    w->bytes_cookie = opt->bytes_cookie;
    byte_buffer_init(&w->member, SOURCE_MAX_IMAGE_BYTES + (size_t)2 * READ_BYTES);
    byte_buffer_init(&w->key, 0);
    byte_buffer_init(&w->picture, 0);
    byte_buffer_init(&w->extras, 0);
    enum status s = open_archive(w, path, err);
    if (s != STATUS_OK) {
        wds_close(&w->base);
        return s;
    }
    *out = &w->base;
    return STATUS_OK;
}
