/*
 * Tables of caption TAB path, one row a line, in either order of the columns.
 *
 * Which column is which: the first line is a header when a cell of it is a usual name of a path
 * column (PATH_NAMES); the caption column then has a name of CAPTION_NAMES, or is the other one of
 * two. Without a header there are two columns, and the path column is the one in which more of the
 * first 100 lines end like a picture's file; failing that, the one in which more of them name a
 * file that is there.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "pack/source_internal.h"

enum { READ_BYTES = 1 << 20, MAX_COLUMNS = 64, LOOK_LINES = 100 };

static const char *const PATH_NAMES[] = {"path",     "file",       "filename", "file_name",
                                         "filepath", "file_path",  "image",    "image_path",
                                         "img",      "image_file", NULL};
static const char *const CAPTION_NAMES[] = {"caption",  "captions",    "text", "title",
                                            "sentence", "description", NULL};

struct source_table {
    struct source base;
    char path[PATH_MAX_BYTES];
    char images[PATH_MAX_BYTES];
    struct file *file;
    uint8_t *block; /* READ_BYTES, at `offset` of the file */
    size_t got, at;
    uint64_t offset;
    uint64_t line;           /* of the text in `text`, from 1 */
    struct byte_buffer text; /* the line */
    bool line_too_long;
    size_t path_column, caption_column;
    bool header;
};

struct cell {
    const char *data;
    size_t size_bytes;
};

static enum status refill(struct source_table *t, struct error *err) {
    const struct file_system *fs = file_posix();
    t->offset += t->got;
    t->at = 0;
    return fs->pread(t->file, t->block, &t->got, READ_BYTES, t->offset, err);
}

/* The next line that is not blank. Of one beyond the limit only the beginning is kept. */
static enum status read_line(struct source_table *t, struct error *err) {
    do {
        t->text.size_bytes = 0;
        t->line_too_long = false;
        t->line++;
        bool ended = false;
        while (!ended) {
            if (t->at == t->got) {
                TRY(refill(t, err));
                if (t->got == 0) {
                    break;
                }
            }
            const uint8_t *from = t->block + t->at;
            const uint8_t *end = memchr(from, '\n', t->got - t->at);
            size_t n = end ? (size_t)(end - from) : t->got - t->at;
            t->at += n + (end ? 1 : 0);
            ended = end != NULL;
            if (n > SOURCE_MAX_LINE_BYTES - t->text.size_bytes) {
                n = SOURCE_MAX_LINE_BYTES - t->text.size_bytes;
                t->line_too_long = true;
            }
            TRY(byte_buffer_append(&t->text, from, n, err));
        }
        while (t->text.size_bytes > 0 && t->text.data[t->text.size_bytes - 1] == '\r') {
            t->text.size_bytes--;
        }
        if (t->text.size_bytes == 0 && !ended) {
            return STATUS_END;
        }
    } while (t->text.size_bytes == 0);
    return STATUS_OK;
}

/* Back to the front of the file, behind a byte order mark. */
static enum status rewind_table(struct source_table *t, struct error *err) {
    t->offset = 0;
    t->got = 0;
    t->line = 0;
    TRY(refill(t, err));
    if (t->got >= 3 && memcmp(t->block, "\xEF\xBB\xBF", 3) == 0) {
        t->at = 3;
    }
    return STATUS_OK;
}

static size_t split(const struct source_table *t, struct cell cells[MAX_COLUMNS]) {
    const char *p = (const char *)t->text.data;
    const char *end = p + t->text.size_bytes;
    size_t count = 0;
    for (;;) {
        const char *tab = memchr(p, '\t', (size_t)(end - p));
        const char *stop = tab && count + 1 < MAX_COLUMNS ? tab : end;
        cells[count++] = (struct cell){p, (size_t)(stop - p)};
        if (stop == end) {
            return count;
        }
        p = stop + 1;
    }
}

static bool is_one_of(const struct cell *c, const char *const *names) {
    for (; *names; names++) {
        if (strlen(*names) == c->size_bytes && strncasecmp(c->data, *names, c->size_bytes) == 0) {
            return true;
        }
    }
    return false;
}

static size_t
find_column(const struct cell *cells, size_t count, const char *const *names, size_t except) {
    for (size_t i = 0; i < count; i++) {
        if (i != except && is_one_of(&cells[i], names)) {
            return i;
        }
    }
    return count;
}

/* Whether the line is a header; sets the columns if so. */
static bool take_header(struct source_table *t, const struct cell *cells, size_t count) {
    size_t path = find_column(cells, count, PATH_NAMES, count);
    if (path == count) {
        return false;
    }
    size_t caption = find_column(cells, count, CAPTION_NAMES, path);
    if (caption == count) {
        if (count != 2) {
            return false;
        }
        caption = 1 - path;
    }
    t->path_column = path;
    t->caption_column = caption;
    return true;
}

static bool ends_like_picture(const struct cell *c) {
    for (size_t n = 0; n < c->size_bytes && n < 8; n++) {
        if (c->data[c->size_bytes - 1 - n] == '.') {
            return source_is_image_extension(c->data + c->size_bytes - n, n);
        }
    }
    return false;
}

static bool is_there(const struct source_table *t, const struct cell *c) {
    char name[PATH_MAX_BYTES];
    char path[PATH_MAX_BYTES];
    if (c->size_bytes == 0 || c->size_bytes >= sizeof(name)) {
        return false;
    }
    memcpy(name, c->data, c->size_bytes);
    name[c->size_bytes] = '\0';
    return path_join(path, sizeof(path), t->images, name, NULL) == STATUS_OK &&
           access(path, F_OK) == 0;
}

static bool is_address(const struct cell *c) {
    return (c->size_bytes > 7 && strncasecmp(c->data, "http://", 7) == 0) ||
           (c->size_bytes > 8 && strncasecmp(c->data, "https://", 8) == 0);
}

/* Looks at the first lines and decides which column is which. */
static enum status find_columns(struct source_table *t, struct error *err) {
    struct cell cells[MAX_COLUMNS];
    unsigned named[2] = {0, 0};
    unsigned there[2] = {0, 0};
    unsigned addresses = 0;
    for (int i = 0; i < LOOK_LINES; i++) {
        enum status s = read_line(t, err);
        TRY(s);
        if (s == STATUS_END) {
            break;
        }
        size_t count = split(t, cells);
        if (i == 0 && take_header(t, cells, count)) {
            t->header = true;
            return STATUS_OK;
        }
        for (size_t c = 0; c < 2 && count == 2; c++) {
            named[c] += ends_like_picture(&cells[c]);
            there[c] += is_there(t, &cells[c]);
            addresses += is_address(&cells[c]);
        }
    }
    if (addresses > 0) {
        return error_set(err, STATUS_CORRUPT,
                         "%s: holds addresses, not files; fetch the pictures first, img2dataset "
                         "does",
                         t->path);
    }
    const unsigned *votes = named[0] != named[1] ? named : there;
    if (votes[0] == votes[1]) {
        return error_set(err, STATUS_CORRUPT,
                         "%s: cannot tell the captions from the paths: two columns parted by a TAB "
                         "are wanted, or a header line with 'caption' and 'path' (paths count from "
                         "%s)",
                         t->path, t->images);
    }
    t->path_column = votes[0] > votes[1] ? 0 : 1;
    t->caption_column = 1 - t->path_column;
    return STATUS_OK;
}

/* A path's last part without its extension. */
static void set_key(struct source_row *row, const struct cell *path) {
    const char *begin = path->data;
    const char *end = path->data + path->size_bytes;
    for (const char *p = begin; p < end; p++) {
        begin = *p == '/' ? p + 1 : begin;
    }
    const char *dot = end;
    for (const char *p = begin + 1; p < end; p++) {
        dot = *p == '.' ? p : dot;
    }
    source_row_set_key(row, begin, (size_t)(dot - begin));
}

static enum status table_next(struct source *s, struct source_row *row, struct error *err) {
    struct source_table *t = (struct source_table *)s;
    enum status status = read_line(t, err);
    if (status != STATUS_OK) {
        return status;
    }
    s->position_bytes = t->offset + t->at;
    struct cell cells[MAX_COLUMNS];
    size_t count = split(t, cells);
    if (t->line_too_long) {
        source_row_reject(row, REASON_ROW_BAD, "line %" PRIu64 " has more than %d bytes", t->line,
                          SOURCE_MAX_LINE_BYTES);
        return STATUS_OK;
    }
    if (count <= t->path_column || count <= t->caption_column || (!t->header && count != 2)) {
        source_row_reject(row, REASON_ROW_BAD, "line %" PRIu64 " has %zu columns", t->line, count);
        return STATUS_OK;
    }
    const struct cell *caption = &cells[t->caption_column];
    const struct cell *path = &cells[t->path_column];
    set_key(row, path);
    source_row_set_path(row, t->images, path->data, path->size_bytes);
    return source_row_add_caption(row, caption->data, caption->size_bytes, err);
}

static void table_close(struct source *s) {
    struct source_table *t = (struct source_table *)s;
    file_posix()->close(t->file);
    byte_buffer_fini(&t->text);
    free(t->block);
    free(t);
}

static const struct source_ops table_ops = {table_next, NULL, table_close};

static enum status open_table(struct source_table *t,
                              const char *path,
                              const struct source_options *opt,
                              struct error *err) {
    const struct file_system *fs = file_posix();
    TRY(path_join(t->path, sizeof(t->path), "", path, err));
    TRY(source_images_folder(t->images, sizeof(t->images), path, opt, err));
    TRY(fs->open(fs->context, &t->file, path, FILE_READ, err));
    TRY(fs->size(t->file, &t->base.size_bytes, err));
    TRY(rewind_table(t, err));
    TRY(find_columns(t, err));
    TRY(rewind_table(t, err));
    if (t->header) {
        TRY(read_line(t, err));
    }
    return STATUS_OK;
}

enum status source_open_table(struct source **out,
                              const char *path,
                              const struct source_options *opt,
                              struct error *err) {
    struct source_table *t = calloc(1, sizeof(*t));
    uint8_t *block = malloc(READ_BYTES);
    if (!t || !block) {
        free(t);
        free(block);
        return error_set(err, STATUS_NOMEM, "%s: out of memory", path);
    }
    t->base.ops = &table_ops;
    t->block = block;
    byte_buffer_init(&t->text, SOURCE_MAX_LINE_BYTES);
    enum status s = open_table(t, path, opt, err);
    if (s != STATUS_OK) {
        table_close(&t->base);
        return s;
    }
    *out = &t->base;
    return STATUS_OK;
}
