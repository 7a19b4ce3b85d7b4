/*
 * Detecting the kind of a source by the first bytes of a file or the content of a folder, and
 * opening it with the options that its kind has. Each kind has its own test; this file prepares
 * what the tests examine, and refuses files that no kind may accept. It is the one place that
 * refers to all kinds, and so to the library that reads archives.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/hash.h"
#include "formats/base/utf8.h"
#include "formats/image/image_codec.h"
#include "net/location.h"
#include "pack/source/source_internal.h"

const struct source_type *const source_types[SOURCE_KIND_COUNT] = {
#define X(name, type) [SOURCE_##name] = &source_type_##type,
    SOURCE_KIND_LIST(X)
#undef X
};

enum { HEAD_BYTES = 64 << 10 };

/* ---- JSON -------------------------------------------------------------------------------------
 * The head of a file may end anywhere, so it is not parsed. Only the keys of the first object and
 * of the entries of its "images" are examined. */

struct look {
    struct source_json_keys *keys;
    unsigned depth;
    bool closed;    /* the first object has ended */
    bool in_images; /* the last key of the first object was "images" */
};

static bool is_key(const char *key, size_t size_bytes, const char *const *names) {
    for (; *names; names++) {
        if (strlen(*names) == size_bytes && memcmp(key, *names, size_bytes) == 0) {
            return true;
        }
    }
    return false;
}

static void look_at_key(struct look *l, const char *key, size_t size_bytes) {
    static const char *const images[] = {"images", NULL};
    static const char *const annotations[] = {"annotations", NULL};
    static const char *const of_coco[] = {"file_name", NULL};
    static const char *const of_karpathy[] = {"filename", "sentences", "sentids", "split", NULL};
    if (l->depth == 1) {
        l->in_images = is_key(key, size_bytes, images);
        l->keys->images |= l->in_images;
        l->keys->annotations |= is_key(key, size_bytes, annotations);
        l->keys->image_or_caption |= is_key(key, size_bytes, source_image_names) ||
                                     is_key(key, size_bytes, source_caption_names);
    } else if (l->depth == 3 && l->in_images) { /* { "images": [ { */
        l->keys->annotations |= is_key(key, size_bytes, of_coco);
        l->keys->karpathy |= is_key(key, size_bytes, of_karpathy);
    }
}

/* The index of a string's closing quote, or `size` when there is none. */
static size_t end_of_string(const char *text, size_t at, size_t size) {
    while (at < size && text[at] != '"') {
        at += text[at] == '\\' ? 2 : 1;
    }
    return at < size ? at : size;
}

static void find_keys(struct source_json_keys *keys, const char *text, size_t size) {
    struct look l = {.keys = keys};
    for (size_t i = 0; i < size && !keys->more; i++) {
        char c = text[i];
        keys->more = l.closed && !source_is_space(c);
        if (c == '"') {
            size_t end = end_of_string(text, i + 1, size);
            size_t next = end + 1;
            while (next < size && source_is_space(text[next])) {
                next++;
            }
            if (next < size && text[next] == ':') {
                look_at_key(&l, text + i + 1, end - i - 1);
            }
            i = end;
        } else if (c == '{' || c == '[') {
            l.depth++;
        } else if (c == '}' || c == ']') {
            l.depth -= l.depth > 0;
            l.closed = l.depth == 0;
        }
    }
}

/* ---- the kinds ---- */

/* Finds the text of a file that holds no NUL. */
static void find_text(struct source_head *h) {
    static const char mark[] = "\xEF\xBB\xBF";
    if (memchr(h->data, '\0', h->size_bytes)) {
        return;
    }
    size_t at = h->size_bytes >= 3 && memcmp(h->data, mark, 3) == 0 ? 3 : 0;
    while (at < h->size_bytes && source_is_space((char)h->data[at])) {
        at++;
    }
    h->text = (const char *)h->data + at;
    h->text_bytes = h->size_bytes - at;
    if (h->text_bytes > 0 && h->text[0] == '{') {
        find_keys(&h->keys, h->text, h->text_bytes);
    }
}

/* Refuses UTF-16 and UTF-32, which are recognised by their byte order mark, or by every other byte
 * of the first being NUL. */
static enum status
check_encoding(const char *path, const uint8_t *data, size_t size_bytes, struct error *err) {
    static const struct {
        const char *mark, *name;
        size_t mark_bytes;
    } known[] = {{"\xFF\xFE\0\0", "UTF-32LE", 4},
                 {"\0\0\xFE\xFF", "UTF-32BE", 4},
                 {"\xFF\xFE", "UTF-16LE", 2},
                 {"\xFE\xFF", "UTF-16BE", 2}};
    enum { LOOK_BYTES = 16 };
    const char *name = NULL;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]) && !name; i++) {
        const size_t n = known[i].mark_bytes;
        name = size_bytes >= n && memcmp(data, known[i].mark, n) == 0 ? known[i].name : NULL;
    }
    size_t nuls[2] = {0};
    for (size_t i = 0; i < LOOK_BYTES && i < size_bytes; i++) {
        nuls[i % 2] += data[i] == 0;
    }
    if (!name && size_bytes >= LOOK_BYTES && nuls[0] + nuls[1] == LOOK_BYTES / 2) {
        name = nuls[1] == LOOK_BYTES / 2   ? "UTF-16LE"
               : nuls[0] == LOOK_BYTES / 2 ? "UTF-16BE"
                                           : NULL;
    }
    FAIL_IF(name, err, STATUS_CORRUPT,
            "%.200s: its first bytes are text in %s; only UTF-8 is read; convert it: iconv -f %s "
            "-t UTF-8 FILE >NEW",
            path, name, name);
    return STATUS_OK;
}

/* A file of no kind: names the NUL if all before it is text. */
static enum status check_nul(const struct source_head *h, struct error *err) {
    const uint8_t *nul = memchr(h->data, '\0', h->size_bytes);
    const size_t before = nul ? (size_t)(nul - h->data) : 0;
    bool text = before > 0 && utf8_valid_prefix((const char *)h->data, before) == before;
    for (size_t i = 0; i < before; i++) {
        text = text && (h->data[i] >= ' ' || source_is_space((char)h->data[i]));
    }
    FAIL_IF(text, err, STATUS_CORRUPT,
            "%.200s: a NUL at byte %zu, so it is not text; if NULs are a mistake, remove them: tr "
            "-d '\\000' <FILE >NEW",
            h->path, before);
    return STATUS_OK;
}

static enum status
ask_kinds(enum source_kind *out, const struct source_head *h, struct error *err) {
    for (int kind = SOURCE_AUTO + 1; kind < SOURCE_KIND_COUNT; kind++) {
        if (source_types[kind]->detect(h)) {
            *out = (enum source_kind)kind;
            return STATUS_OK;
        }
    }
    if (h->size_bytes > 0) {
        TRY(check_encoding(h->path, h->data, h->size_bytes, err));
        TRY(check_nul(h, err));
    }
    return error_set(err, STATUS_CORRUPT,
                     "%s: neither a tar or zip (plain, .gz, .zst) nor TSV, CSV, JSON, Parquet or a "
                     "CIFAR binary; set its kind with --from",
                     h->path);
}

static enum status judge_head(enum source_kind *out, struct source_head *h, struct error *err) {
    FAIL_IF(h->size_bytes == 0, err, STATUS_CORRUPT, "%s: the file is empty", h->path);
    FAIL_IF(image_format_of(h->data, h->size_bytes) != IMAGE_FORMAT_UNKNOWN, err, STATUS_CORRUPT,
            "%s: a single image; pass its tar, its table or the parent of its class folder",
            h->path);
    find_text(h);
    return ask_kinds(out, h, err);
}

static enum status judge_file(enum source_kind *out, const char *path, struct error *err) {
    const struct file_system *fs = file_posix();
    struct source_head h = {.path = path};
    struct file *f = NULL;
    uint8_t *data = malloc(HEAD_BYTES);
    TRY_MEMORY(data, err, "%s: out of memory", path);
    enum status s = fs->open(fs->context, &f, path, FILE_READ, err);
    THEN(s, fs->size(f, &h.file_bytes, err));
    THEN(s, fs->pread(f, data, &h.size_bytes, HEAD_BYTES, 0, err));
    if (s == STATUS_OK) {
        h.data = data;
        s = judge_head(out, &h, err);
    }
    fs->close(f);
    free(data);
    return s;
}

enum status source_kind_of(enum source_kind *out, const char *path, struct error *err) {
    REQUIRE(out && path);
    *out = SOURCE_WDS;
    if (strcmp(path, "-") == 0 || location_is_remote(path)) {
        return STATUS_OK;
    }
    struct stat info;
    if (stat(path, &info) != 0) {
        return error_set_errno(err, "%s: cannot read it", path);
    }
    if (S_ISDIR(info.st_mode)) {
        const struct source_head h = {.path = path, .is_folder = true};
        return ask_kinds(out, &h, err);
    }
    FAIL_IF(!S_ISREG(info.st_mode), err, STATUS_CORRUPT,
            "%s: is not a file; pass a tar on standard input as '-'", path);
    return judge_file(out, path, err);
}

/* ---- opening ---- */

/* Names that no column or member can have. */
static enum status
check_names(const char *option, const char *list, size_t max_bytes, struct error *err) {
    FAIL_IF(list && strlen(list) > max_bytes, err, STATUS_USAGE,
            "--%s: '%.80s' is longer than %zu bytes", option, list, max_bytes);
    for (const char *at = list; at && *at != '\0';) {
        const size_t n = strcspn(at, ",");
        FAIL_IF(n == 0 || n > SOURCE_MAX_NAME_BYTES || strcmp(at + n, ",") == 0, err, STATUS_USAGE,
                "--%s %.80s: each name must have from 1 to %d bytes", option, list,
                SOURCE_MAX_NAME_BYTES);
        at += n + (at[n] == ',');
    }
    return STATUS_OK;
}

/* Refuses options that this kind does not have, and names that no column or member can have. */
static enum status check_options(const char *path,
                                 enum source_kind kind,
                                 const struct source_options *opt,
                                 struct error *err) {
    const struct {
        const char *name, *value;
        unsigned bit;
    } all[] = {
        {"split", opt->split, SOURCE_HAS_SPLIT},
        {"columns", opt->columns, SOURCE_HAS_COLUMNS},
        {"delimiter", opt->delimiter, SOURCE_HAS_DELIMITER},
        {"group-captions",
         opt->grouping == SOURCE_GROUP_AUTO ? NULL : source_grouping_names[opt->grouping],
         SOURCE_HAS_GROUPING},
        {"caption-lines", opt->lines == SOURCE_LINES_AUTO ? NULL : source_lines_names[opt->lines],
         SOURCE_HAS_LINES},
        {"split-names",
         opt->split_names == SOURCE_SPLIT_FIRST_DOT ? NULL
                                                    : source_name_split_names[opt->split_names],
         SOURCE_HAS_NAME_SPLIT},
        {"caption-column", opt->caption_column, SOURCE_HAS_CAPTION_COLUMN},
        {opt->urls ? "url-column" : "image-column", opt->image_column, SOURCE_HAS_IMAGE_COLUMN},
        {"keep-columns", opt->keep_columns, SOURCE_HAS_KEEP},
    };
    FAIL_IF(opt->urls && (source_types[kind]->options & SOURCE_HAS_URLS) == 0, err, STATUS_USAGE,
            "%s: a source of kind %s is not a list of URLs: pass a TSV, CSV or Parquet file", path,
            source_kind_names[kind]);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        FAIL_IF(all[i].value && (source_types[kind]->options & all[i].bit) == 0, err, STATUS_USAGE,
                "%s: --%s does not apply to sources of kind %s", path, all[i].name,
                source_kind_names[kind]);
        FAIL_IF(all[i].value && all[i].value[0] == '\0', err, STATUS_USAGE, "--%s is empty",
                all[i].name);
    }
    TRY(check_names("keep-columns", opt->keep_columns, SOURCE_MAX_LINE_BYTES, err));
    TRY(check_names("caption-column", opt->caption_column, SOURCE_MAX_NAMES_BYTES, err));
    return check_names(opt->urls ? "url-column" : "image-column", opt->image_column,
                       SOURCE_MAX_NAME_BYTES, err);
}

/* Class folders in a tar or zip have a reader of their own. */
static const struct source_type *find_type(enum source_kind kind, const char *path) {
    const struct source_type *type = source_types[kind];
    struct stat info;
    bool is_file = strcmp(path, "-") == 0 || (stat(path, &info) == 0 && !S_ISDIR(info.st_mode));
    return type->of_file && is_file ? type->of_file : type;
}

static enum status open_source(struct source *s,
                               const char *path,
                               const struct source_options *opt,
                               struct error *err) {
    TRY(path_join(s->path, sizeof(s->path), "", path, err));
    s->urls = opt->urls;
    s->follow_links = opt->follow_links;
    s->lines = opt->lines;
    s->keep = opt->keep_columns;
    if (opt->images) {
        struct stat info;
        FAIL_IF(stat(opt->images, &info) != 0 || !S_ISDIR(info.st_mode), err, STATUS_NOTFOUND,
                "--images %.200s: no such folder", opt->images);
        TRY(path_join(s->images, sizeof(s->images), "", opt->images, err));
    } else {
        TRY(path_directory(s->images, sizeof(s->images), path, err));
    }
    return s->type->open(s, opt, err);
}

/* The encoding of a file whose kind was not detected, but named. */
static enum status check_text_file(const char *path, struct error *err) {
    uint8_t head[16];
    size_t size_bytes = 0;
    struct file *f = NULL;
    TRY(file_posix()->open(file_posix()->context, &f, path, FILE_READ, err));
    enum status s = file_posix()->pread(f, head, &size_bytes, sizeof(head), 0, err);
    file_posix()->close(f);
    THEN(s, check_encoding(path, head, size_bytes, err));
    return s;
}

enum status source_open(struct source **out,
                        const char *path,
                        const struct source_options *opt,
                        struct error *err) {
    REQUIRE(out && path && opt);
    *out = NULL;
    enum source_kind kind = opt->kind;
    if (kind == SOURCE_AUTO) {
        TRY(source_kind_of(&kind, path, err));
    }
    REQUIRE(kind > SOURCE_AUTO && kind < SOURCE_KIND_COUNT);
    TRY(check_options(path, kind, opt, err));
    if (source_types[kind]->find_file) {
        char file[PATH_MAX_BYTES];
        struct source_options how = *opt;
        how.images = opt->images ? opt->images : path;
        TRY(source_types[kind]->find_file(file, &how.kind, path, err));
        return source_open(out, file, &how, err);
    }
    if (opt->kind >= SOURCE_KARPATHY) { /* and the kinds after it: text */
        TRY(check_text_file(path, err));
    }
    const struct source_type *type = find_type(kind, path);
    struct source *s = calloc(1, type->struct_bytes);
    TRY_MEMORY(s, err, "%s: out of memory", path);
    s->type = type;
    s->content = hash64(NULL, 0);
    if (opt->from) {
        s->rows = opt->from->rows;
        s->content = opt->from->content;
        s->joined = opt->from->joined;
        s->ignored = opt->from->ignored;
    }
    json_writer_init(&s->json, 0);
    enum status status = open_source(s, path, opt, err);
    RETURN_CREATED(status, out, s, source_close);
}
