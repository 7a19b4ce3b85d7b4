/*
 * WebDataset tars, read once from front to back. The only file that knows libarchive.
 *
 *     00012.jpg 00012.txt 00012.json | 00013.txt 00013.png | ...
 *     \_______ one row _____________/
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
#include <unistd.h>

#include "formats/base/utf8.h"
#include "formats/image_codec.h"
#include "pack/source_internal.h"

enum { READ_BYTES = 256 << 10, WAIT_MS = 100 };

struct source_wds {
    struct source base;
    char path[PATH_MAX_BYTES]; /* for messages */
    struct archive *archive;
    int fd;
    bool (*stop)(void *cookie);
    void *stop_cookie;
    bool stopped;
    uint8_t *block;                /* READ_BYTES, what libarchive reads from */
    struct archive_entry *pending; /* first member of the next row; NULL: none yet */
    bool at_end;
    struct byte_buffer member; /* the one being read */
};

/* What the members of a row have given so far. */
struct row_parts {
    bool image, text, json;
    bool guessed; /* the image is one by its name only */
};

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
    w->pending = NULL;
    while (!w->at_end) {
        struct archive_entry *e = NULL;
        int code = archive_read_next_header(w->archive, &e);
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
            return STATUS_OK;
        }
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

static enum status take_text(struct source_wds *w,
                             struct source_row *row,
                             struct row_parts *parts,
                             struct error *err) {
    bool fits;
    TRY(read_member(w, SOURCE_MAX_TEXT_BYTES, &fits, err));
    if (parts->text) {
        source_row_reject(row, REASON_ROW_BAD, "has two captions of one name");
    } else if (!fits) {
        source_row_reject(row, REASON_CAPTION_LIMIT, "more than %d bytes", SOURCE_MAX_TEXT_BYTES);
    } else {
        TRY(source_row_add_caption(row, (const char *)w->member.data, w->member.size_bytes, err));
    }
    parts->text = true;
    return STATUS_OK;
}

static enum status take_json(struct source_wds *w,
                             struct source_row *row,
                             struct row_parts *parts,
                             struct error *err) {
    bool fits;
    TRY(read_member(w, SOURCE_MAX_JSON_BYTES, &fits, err));
    const char *text = (const char *)w->member.data;
    if (parts->json) {
        source_row_reject(row, REASON_ROW_BAD, "has two .json members");
    } else if (!fits) {
        source_row_reject(row, REASON_JSON_BAD, "more than %d bytes", SOURCE_MAX_JSON_BYTES);
    } else if (utf8_valid_prefix(text, w->member.size_bytes) != w->member.size_bytes) {
        source_row_reject(row, REASON_JSON_BAD, "not UTF-8");
    } else {
        TRY(byte_buffer_append(&row->json, text, w->member.size_bytes, err));
    }
    parts->json = true;
    return STATUS_OK;
}

/* The first member that is a picture by content wins; one that is so by its name alone stays until
 * then, so that the decoder says what is wrong with it. */
static enum status take_other(struct source_wds *w,
                              struct source_row *row,
                              struct row_parts *parts,
                              bool named_image,
                              struct error *err) {
    if (parts->image && !parts->guessed) {
        return STATUS_OK;
    }
    bool fits;
    TRY(read_member(w, SOURCE_MAX_IMAGE_BYTES, &fits, err));
    if (!fits) {
        if (named_image) {
            source_row_reject(row, REASON_IMAGE_LIMIT, "more than %d bytes",
                              SOURCE_MAX_IMAGE_BYTES);
        }
        return STATUS_OK;
    }
    bool real = image_format_of(w->member.data, w->member.size_bytes) != IMAGE_FORMAT_UNKNOWN;
    if (!real && (!named_image || parts->image)) {
        return STATUS_OK;
    }
    row->image.size_bytes = 0;
    TRY(byte_buffer_append(&row->image, w->member.data, w->member.size_bytes, err));
    parts->image = true;
    parts->guessed = !real;
    return STATUS_OK;
}

static enum status take_member(struct source_wds *w,
                               struct source_row *row,
                               struct row_parts *parts,
                               struct error *err) {
    const char *name = member_name(w->pending);
    const char *extension = name + stem_bytes(name) + 1;
    if (strcasecmp(extension, "txt") == 0) {
        return take_text(w, row, parts, err);
    }
    if (strcasecmp(extension, "json") == 0) {
        return take_json(w, row, parts, err);
    }
    const char *last = strrchr(extension, '.');
    last = last ? last + 1 : extension;
    return take_other(w, row, parts, source_is_image_extension(last, strlen(last)), err);
}

static enum status wds_next(struct source *s, struct source_row *row, struct error *err) {
    struct source_wds *w = (struct source_wds *)s;
    enum status status = w->pending ? STATUS_OK : next_entry(w, err);
    if (status != STATUS_OK) {
        return status;
    }
    const char *name = member_name(w->pending);
    size_t stem = stem_bytes(name);
    char *key = strndup(name, stem); /* the entry's own name goes with the next header */
    if (!key) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory", w->path);
    }
    source_row_set_key(row, key, stem);
    struct row_parts parts = {0};
    while (status == STATUS_OK && w->pending) {
        name = member_name(w->pending);
        if (stem_bytes(name) != stem || memcmp(name, key, stem) != 0) {
            break;
        }
        status = take_member(w, row, &parts, err);
        if (status == STATUS_OK) {
            status = next_entry(w, err);
        }
    }
    free(key);
    if (status < STATUS_OK) {
        return status;
    }
    if (!parts.image) {
        source_row_reject(row, REASON_IMAGE_MISSING, "%s", "");
    }
    if (!parts.text) {
        source_row_reject(row, REASON_CAPTION_MISSING, "no .txt member");
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
    free(w->block);
    free(w);
}

static const struct source_ops wds_ops = {wds_next, wds_close};

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
    byte_buffer_init(&w->member, SOURCE_MAX_IMAGE_BYTES + (size_t)2 * READ_BYTES);
    enum status s = open_archive(w, path, err);
    if (s != STATUS_OK) {
        wds_close(&w->base);
        return s;
    }
    *out = &w->base;
    return STATUS_OK;
}
