/*
 * Which column of a table is which.
 *
 * Names come from the options (for a table without header line), or from the first line if that is
 * a header: if a cell of it is a usual name of a path column (source_image_names), or options
 * choose columns by name. The path column is then the one that the options name, or the one with
 * the first usual name that is there. The same holds for captions, whose column may also be the
 * other of two.
 *
 * Without names, the path column is the one in which most of the first 100 records end like an
 * image's file; failing that, the one in which most of them name a file that exists. The caption
 * column is the other one of two.
 *
 * In a list of URLs the same holds with the names of source_url_names, and of cells that begin like
 * a URL. A list of one column has no captions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "pack/source/table_internal.h"

enum { LOOK_RECORDS = 100, NO_COLUMN = TABLE_NO_COLUMN };

/* What is known of the first records' cells, by column. */
struct votes {
    size_t columns; /* of the first record */
    unsigned records;
    unsigned named[TABLE_MAX_COLUMNS];     /* end like an image's file */
    unsigned there[TABLE_MAX_COLUMNS];     /* name a file that exists */
    unsigned addresses[TABLE_MAX_COLUMNS]; /* are URLs */
};

static const char *const *path_names(bool urls) {
    return urls ? source_url_names : source_image_names;
}

static struct table_cell trimmed(const struct table_cell *c) {
    struct table_cell t = *c;
    while (t.size_bytes > 0 && source_is_space(t.data[0])) {
        t.data++;
        t.size_bytes--;
    }
    while (t.size_bytes > 0 && source_is_space(t.data[t.size_bytes - 1])) {
        t.size_bytes--;
    }
    return t;
}

static bool ends_like_image(const char *data, size_t size_bytes) {
    for (size_t n = 0; n < size_bytes && n < 8; n++) {
        if (data[size_bytes - 1 - n] == '.') {
            return source_is_image_extension(data + size_bytes - n, n);
        }
    }
    return false;
}

struct table_cell table_path(const struct table_cell *c) {
    struct table_cell path = trimmed(c);
    size_t n = path.size_bytes;
    while (n > 0 && path.data[n - 1] >= '0' && path.data[n - 1] <= '9') {
        n--;
    }
    if (n > 0 && n < path.size_bytes && path.data[n - 1] == '#' &&
        ends_like_image(path.data, n - 1)) {
        path.size_bytes = n - 1;
    }
    return path;
}

bool table_names_image(const struct table_cell *c) {
    struct table_cell path = table_path(c);
    return ends_like_image(path.data, path.size_bytes);
}

static bool is_named(const struct table_cell *c, const char *name, size_t size_bytes) {
    struct table_cell t = trimmed(c);
    return t.size_bytes == size_bytes && strncasecmp(t.data, name, size_bytes) == 0;
}

static bool is_caption(const struct source_table *t, size_t column) {
    size_t i = 0;
    while (i < t->caption_count && t->captions[i] != column) {
        i++;
    }
    return i < t->caption_count;
}

/* The column with the first of the names that is there, but for `path` and those of captions. */
static size_t find_usual(const struct source_table *t,
                         const struct table_cell *cells,
                         size_t count,
                         const char *const *names,
                         size_t path) {
    for (; *names; names++) {
        for (size_t i = 0; i < count; i++) {
            if (i != path && !is_caption(t, i) && is_named(&cells[i], *names, strlen(*names))) {
                return i;
            }
        }
    }
    return NO_COLUMN;
}

/* A column's number from 1; 0 when the option is a name. */
static size_t number_of(const char *option) {
    if (!option || strspn(option, "0123456789") != strlen(option) || strlen(option) > 3) {
        return 0;
    }
    return (size_t)strtoul(option, NULL, 10);
}

/* Whether one of the comma-separated columns is a name. */
static bool has_name(const char *list) {
    char name[SOURCE_MAX_NAME_BYTES + 1];
    bool found = false;
    while (list && !found && source_next_name(&list, name)) {
        found = number_of(name) == 0;
    }
    return found;
}

/* The column that an option chooses. Returns OK or USAGE. */
static enum status find_asked(const struct source_table *t,
                              size_t *out,
                              const struct table_cell *cells,
                              size_t count,
                              const char *option,
                              struct error *err) {
    *out = NO_COLUMN;
    if (!option) {
        return STATUS_OK;
    }
    size_t number = number_of(option);
    FAIL_IF(number > count || number > TABLE_MAX_COLUMNS, err, STATUS_USAGE,
            "%s: there is no column %zu: the table has %zu", t->base.path, number, count);
    if (number > 0) {
        *out = number - 1;
        return STATUS_OK;
    }
    char names[120] = "";
    for (size_t i = 0; i < count; i++) {
        if (is_named(&cells[i], option, strlen(option))) {
            *out = i;
            return STATUS_OK;
        }
        size_t at = strlen(names);
        struct table_cell name = trimmed(&cells[i]);
        int shown = name.size_bytes < 40 ? (int)name.size_bytes : 40;
        snprintf(names + at, sizeof(names) - at, "%s%.*s", i > 0 ? ", " : "", shown, name.data);
    }
    return error_set(err, STATUS_USAGE, "%s: no column is named '%s'; the columns are %s",
                     t->base.path, option, names);
}

/* The columns that --caption-column chooses. Returns OK or USAGE. */
static enum status find_captions(struct source_table *t,
                                 const struct table_cell *cells,
                                 size_t count,
                                 const struct source_options *opt,
                                 struct error *err) {
    char name[SOURCE_MAX_NAME_BYTES + 1];
    size_t column;
    t->caption_count = 0;
    for (const char *list = opt->caption_column; list && source_next_name(&list, name);) {
        TRY(find_asked(t, &column, cells, count, name, err));
        if (!is_caption(t, column)) {
            t->captions[t->caption_count++] = column;
        }
    }
    return STATUS_OK;
}

/* A list of nothing but URLs has no captions. */
static bool lacks_captions(const struct source_table *t, size_t columns) {
    return t->base.urls && columns == 1 && t->path_column == 0 && t->caption_count == 0;
}

/* Of two columns, the one that is known tells the other. Returns OK, END (undecided) or USAGE. */
static enum status settle(struct source_table *t, size_t path, size_t count, struct error *err) {
    if (count == 2 && path < NO_COLUMN && t->caption_count == 0) {
        t->captions[t->caption_count++] = 1 - path;
    } else if (count == 2 && path == NO_COLUMN && t->caption_count == 1) {
        path = 1 - t->captions[0];
    }
    t->path_column = path;
    if (path == NO_COLUMN || (t->caption_count == 0 && !lacks_captions(t, count))) {
        return STATUS_END;
    }
    FAIL_IF(is_caption(t, path), err, STATUS_USAGE,
            "%s: column %zu cannot be both the caption and the image's path", t->base.path,
            path + 1);
    t->column_count = count;
    t->needed_columns = path + 1;
    for (size_t i = 0; i < t->caption_count; i++) {
        const size_t end = t->captions[i] + 1;
        t->needed_columns = end > t->needed_columns ? end : t->needed_columns;
    }
    return STATUS_OK;
}

/* Whether a column before this one has its name. A list of URLs gives samples a "url" itself. */
static bool is_taken(const struct source_table *t, size_t column) {
    size_t i = 0;
    while (i < column && strcmp(t->names[i], t->names[column]) != 0) {
        i++;
    }
    return i < column || (t->base.urls && strcmp(t->names[column], "url") == 0);
}

/* Names the columns by the cells, or by their numbers where these are empty. */
static void name_columns(struct source_table *t, const struct table_cell *cells, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const struct table_cell name = trimmed(&cells[i]);
        const int n =
            name.size_bytes < SOURCE_MAX_NAME_BYTES ? (int)name.size_bytes : SOURCE_MAX_NAME_BYTES;
        snprintf(t->names[i], sizeof(t->names[i]), "%.*s", n, n > 0 ? name.data : "");
        if (n == 0) {
            snprintf(t->names[i], sizeof(t->names[i]), "column%zu", i + 1);
        }
        for (size_t end; is_taken(t, i);) {
            end = strlen(t->names[i]);
            end = end < SOURCE_MAX_NAME_BYTES ? end : SOURCE_MAX_NAME_BYTES - 1;
            snprintf(t->names[i] + end, 2, "%c", '_');
        }
    }
}

/* Chooses the columns that become JSON, and sets the text of source_columns. Returns OK or USAGE.
 */
static enum status keep_columns(struct source_table *t,
                                const struct table_cell *cells,
                                size_t count,
                                const struct source_options *opt,
                                struct error *err) {
    const bool all = !opt->keep_columns;
    const bool none = !all && strcmp(opt->keep_columns, "none") == 0;
    struct source_column columns[TABLE_MAX_COLUMNS];
    char name[SOURCE_MAX_NAME_BYTES + 1];
    size_t column;
    name_columns(t, cells, count);
    for (size_t i = 0; i < count; i++) {
        const bool used = i == t->path_column || is_caption(t, i);
        t->kept[i] = all && !used && !(opt->columns && is_named(&cells[i], "_", 1)) &&
                     parquet_may_keep(t, i);
    }
    for (const char *list = opt->keep_columns; list && !none && source_next_name(&list, name);) {
        TRY(find_asked(t, &column, cells, count, name, err));
        t->kept[column] = true;
    }
    for (size_t i = 0; i < count; i++) {
        t->keeps |= t->kept[i];
        columns[i].name = t->names[i];
        columns[i].role = i == t->path_column                    ? SOURCE_COLUMN_IMAGE
                          : is_caption(t, i)                     ? SOURCE_COLUMN_CAPTION
                          : t->rows && i == t->image_path_column ? SOURCE_COLUMN_USED
                          : t->kept[i]                           ? SOURCE_COLUMN_KEPT
                                                                 : SOURCE_COLUMN_DROPPED;
    }
    source_say_columns(&t->base, columns, count);
    return STATUS_OK;
}

/* Finds the columns by these names. Returns OK, END (undecided) or USAGE. */
static enum status by_names(struct source_table *t,
                            const struct table_cell *cells,
                            size_t count,
                            const struct source_options *opt,
                            struct error *err) {
    size_t path;
    TRY(find_asked(t, &path, cells, count, opt->image_column, err));
    TRY(find_captions(t, cells, count, opt, err));
    path =
        path < NO_COLUMN ? path : find_usual(t, cells, count, path_names(t->base.urls), NO_COLUMN);
    path = path < NO_COLUMN || !t->rows ? path : parquet_find_image(t);
    const size_t caption =
        t->caption_count > 0 ? NO_COLUMN : find_usual(t, cells, count, source_caption_names, path);
    if (caption < NO_COLUMN) {
        t->captions[t->caption_count++] = caption;
    }
    enum status s = settle(t, path, count, err);
    if (s == STATUS_OK && t->rows) {
        parquet_find_image_path(t);
    }
    return s == STATUS_OK ? keep_columns(t, cells, count, opt, err) : s;
}

/* The names of the option "a,_,b" as cells. Returns OK or USAGE. */
static enum status
by_option(struct source_table *t, const struct source_options *opt, struct error *err) {
    struct table_cell cells[TABLE_MAX_COLUMNS];
    size_t count = 0;
    const char *p = opt->columns;
    for (;;) {
        FAIL_IF(count == TABLE_MAX_COLUMNS, err, STATUS_USAGE, "--columns names more than %d",
                TABLE_MAX_COLUMNS);
        cells[count++] = (struct table_cell){.data = p, .size_bytes = strcspn(p, ",")};
        p += strcspn(p, ",");
        if (*p == '\0') {
            break;
        }
        p++;
    }
    enum status s = by_names(t, cells, count, opt, err);
    FAIL_IF(
        s == STATUS_END, err, STATUS_USAGE,
        "%s: --columns %.80s contains no %s column; set them with --caption-column and --%s-column",
        t->base.path, opt->columns, t->path_column == NO_COLUMN ? "path" : "caption",
        t->base.urls ? "url" : "image");
    return s;
}

static bool is_there(const struct source_table *t, const struct table_cell *c) {
    char name[PATH_MAX_BYTES];
    char path[PATH_MAX_BYTES];
    if (c->size_bytes == 0 || c->size_bytes >= sizeof(name)) {
        return false;
    }
    memcpy(name, c->data, c->size_bytes);
    name[c->size_bytes] = '\0';
    return path_join(path, sizeof(path), t->base.images, name, NULL) == STATUS_OK &&
           access(path, F_OK) == 0;
}

static bool is_address(const struct table_cell *c) {
    return (c->size_bytes > 7 && strncasecmp(c->data, "http://", 7) == 0) ||
           (c->size_bytes > 8 && strncasecmp(c->data, "https://", 8) == 0);
}

static void
vote(const struct source_table *t, struct votes *v, const struct table_cell *cells, size_t count) {
    if (count != v->columns) {
        return;
    }
    v->records++;
    for (size_t c = 0; c < count; c++) {
        struct table_cell path = table_path(&cells[c]);
        bool address = is_address(&path);
        v->addresses[c] += address;
        v->named[c] += !address && ends_like_image(path.data, path.size_bytes);
        v->there[c] += !address && is_there(t, &path);
    }
}

/* The column with most votes; NO_COLUMN when two have the same. */
static size_t winner(const unsigned *votes, size_t columns) {
    size_t best = 0;
    for (size_t c = 1; c < columns; c++) {
        best = votes[c] > votes[best] ? c : best;
    }
    for (size_t c = 0; c < columns; c++) {
        if (c != best && votes[c] == votes[best]) {
            return NO_COLUMN;
        }
    }
    return best;
}

static enum status cannot_tell(const struct source_table *t, struct error *err) {
    const char other[] = {'\'', t->delimiter, '\'', '\0'};
    return error_set(
        err, STATUS_CORRUPT,
        "%s: cannot tell the captions from the %s: it must have two columns separated by %s, or a "
        "header row with 'caption' and '%s'; or set --caption-column and --%s-column%s%.60s%s",
        t->base.path, t->base.urls ? "URLs" : "paths",
        t->delimiter == ','    ? "a comma"
        : t->delimiter == '\t' ? "a TAB"
                               : other,
        t->base.urls ? "url" : "path", t->base.urls ? "url" : "image",
        t->base.urls ? "" : " (paths are relative to ", t->base.urls ? "" : t->base.images,
        t->base.urls ? "" : ")");
}

/* The column whose cells look like what the table lists. Returns OK, or CORRUPT for URLs where
 * files are expected, and the other way round. */
static enum status
elect_path(const struct source_table *t, size_t *out, const struct votes *v, struct error *err) {
    const size_t urls = winner(v->addresses, v->columns);
    const bool has_urls = urls < NO_COLUMN && v->addresses[urls] > 0;
    if (t->base.urls) {
        *out = has_urls ? urls : NO_COLUMN;
        return has_urls ? STATUS_OK
                        : error_set(err, STATUS_CORRUPT,
                                    "%s: no column of its first lines contains URLs that begin "
                                    "with http:// or https://; set it with --url-column",
                                    t->base.path);
    }
    *out = winner(v->named, v->columns);
    *out = *out < NO_COLUMN ? *out : winner(v->there, v->columns);
    FAIL_IF(has_urls && (*out == NO_COLUMN || v->named[*out] + v->there[*out] == 0), err,
            STATUS_CORRUPT,
            "%s: contains URLs, not files; download and pack them with 'ccpack fetch'",
            t->base.path);
    return STATUS_OK;
}

static enum status by_votes(struct source_table *t,
                            const struct votes *v,
                            const struct source_options *opt,
                            struct error *err) {
    struct table_cell none[TABLE_MAX_COLUMNS] = {{.data = NULL}};
    size_t path;
    TRY(find_asked(t, &path, none, v->columns, opt->image_column, err));
    TRY(find_captions(t, none, v->columns, opt, err));
    if (path == NO_COLUMN && (v->columns != 2 || t->caption_count != 1)) {
        TRY(elect_path(t, &path, v, err));
    }
    enum status s = settle(t, path, v->columns, err);
    THEN(s, keep_columns(t, none, v->columns, opt, err));
    return s == STATUS_END ? cannot_tell(t, err) : s;
}

static enum status names_do_not_tell(const struct source_table *t, struct error *err) {
    const int which = t->path_column < NO_COLUMN ? 0 : t->base.urls ? 1 : 2;
    return error_set(err, STATUS_CORRUPT,
                     "%s: has no column with a usual name for %s; set it with --%s-column",
                     t->base.path, (const char *[]){"captions", "URLs", "paths"}[which],
                     (const char *[]){"caption", "url", "image"}[which]);
}

enum status table_columns_by_names(struct source_table *t,
                                   const struct table_cell *cells,
                                   size_t count,
                                   const struct source_options *opt,
                                   struct error *err) {
    const enum status s = by_names(t, cells, count, opt, err);
    return s == STATUS_END ? names_do_not_tell(t, err) : s;
}

/* Whether the first record names columns and is no row. */
static bool is_header(const struct source_table *t,
                      const struct table_cell *cells,
                      size_t count,
                      const struct source_options *opt) {
    return has_name(opt->image_column) || has_name(opt->caption_column) ||
           find_usual(t, cells, count, path_names(opt->urls), NO_COLUMN) < NO_COLUMN;
}

enum status
table_find_columns(struct source_table *t, const struct source_options *opt, struct error *err) {
    if (opt->columns) {
        return by_option(t, opt, err);
    }
    struct votes v = {0};
    for (int i = 0; i < LOOK_RECORDS; i++) {
        struct table_cell cells[TABLE_MAX_COLUMNS];
        enum status s = table_read(t, err);
        TRY(s);
        if (s == STATUS_END) {
            break;
        }
        size_t count = table_split(t, cells);
        if (count > TABLE_MAX_COLUMNS) {
            FAIL_IF(i == 0, err, STATUS_LIMIT, "%s: its first line has more than %d columns",
                    t->base.path, TABLE_MAX_COLUMNS);
            continue;
        }
        if (i == 0 && is_header(t, cells, count, opt)) {
            t->header = true;
            return table_columns_by_names(t, cells, count, opt, err);
        }
        v.columns = i == 0 ? count : v.columns;
        vote(t, &v, cells, count);
    }
    return by_votes(t, &v, opt, err);
}
