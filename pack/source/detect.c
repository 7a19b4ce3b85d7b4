/*
 * Telling kinds of sources apart: by the first bytes of a file, by what is in a folder. Names count
 * only for CIFAR's files, whose bytes say nothing of themselves.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/image/image_codec.h"
#include "pack/source/source_internal.h"

enum { HEAD_BYTES = 64 << 10, LOOK_LINES = 100 };

struct head {
    const char *path;
    const uint8_t *data;
    size_t size_bytes;
    uint64_t file_bytes;
};

static bool begins(const struct head *h, const char *magic, size_t size_bytes) {
    return h->size_bytes >= size_bytes && memcmp(h->data, magic, size_bytes) == 0;
}

/* A tar header's checksum, for tars from before "ustar": fields as they are, its own as spaces. */
static bool is_tar_header(const uint8_t *p, size_t size_bytes) {
    if (size_bytes < 512 || p[0] == '\0') {
        return false;
    }
    unsigned long sum = 0;
    for (size_t i = 0; i < 512; i++) {
        sum += i >= 148 && i < 156 ? ' ' : p[i];
    }
    char field[9] = {0};
    memcpy(field, p + 148, 8);
    return strtoul(field, NULL, 8) == sum;
}

static bool is_archive(const struct head *h) {
    return begins(h, "\x1F\x8B", 2) || begins(h, "\x28\xB5\x2F\xFD", 4) || begins(h, "PK\3\4", 4) ||
           is_tar_header(h->data, h->size_bytes);
}

/* ---- JSON -------------------------------------------------------------------------------------
 * The head of a file may end anywhere, so it is not parsed: only its keys are looked at, those of
 * the first object and those of the entries of its "images". */

struct json_look {
    unsigned depth;
    bool closed;         /* the first object has ended */
    bool more;           /* and something follows it */
    bool in_images;      /* the last key of the first object was "images" */
    bool images;         /* it has that key */
    bool coco, karpathy; /* a key says so */
    bool row;            /* the first object has the keys of a row */
};

static bool is_key(const char *key, size_t size_bytes, const char *const *names) {
    for (; *names; names++) {
        if (strlen(*names) == size_bytes && memcmp(key, *names, size_bytes) == 0) {
            return true;
        }
    }
    return false;
}

static void look_at_key(struct json_look *l, const char *key, size_t size_bytes) {
    static const char *const images[] = {"images", NULL};
    static const char *const annotations[] = {"annotations", NULL};
    static const char *const row[] = {"image", "caption", NULL};
    static const char *const of_coco[] = {"file_name", NULL};
    static const char *const of_karpathy[] = {"filename", "sentences", "sentids", "split", NULL};
    if (l->depth == 1) {
        l->in_images = is_key(key, size_bytes, images);
        l->images |= l->in_images;
        l->coco |= is_key(key, size_bytes, annotations);
        l->row |= is_key(key, size_bytes, row);
    } else if (l->depth == 3 && l->in_images) { /* { "images": [ { */
        l->coco |= is_key(key, size_bytes, of_coco);
        l->karpathy |= is_key(key, size_bytes, of_karpathy);
    }
}

/* The index of a string's closing quote, or `size` when it is cut. */
static size_t end_of_string(const char *text, size_t at, size_t size) {
    while (at < size && text[at] != '"') {
        at += text[at] == '\\' ? 2 : 1;
    }
    return at < size ? at : size;
}

static void look_at_json(struct json_look *l, const char *text, size_t size) {
    for (size_t i = 0; i < size && !l->more; i++) {
        char c = text[i];
        l->more = l->closed && !source_is_space(c);
        if (c == '"') {
            size_t end = end_of_string(text, i + 1, size);
            size_t next = end + 1;
            while (next < size && source_is_space(text[next])) {
                next++;
            }
            if (next < size && text[next] == ':') {
                look_at_key(l, text + i + 1, end - i - 1);
            }
            i = end;
        } else if (c == '{' || c == '[') {
            l->depth++;
        } else if (c == '}' || c == ']') {
            l->depth -= l->depth > 0;
            l->closed = l->depth == 0;
        }
    }
}

static enum source_kind judge_object(const char *text, size_t size) {
    struct json_look l = {0};
    look_at_json(&l, text, size);
    if (l.karpathy && !l.coco) {
        return SOURCE_KARPATHY;
    }
    if (l.coco || l.images) {
        return SOURCE_COCO;
    }
    return l.more || l.row ? SOURCE_JSON : SOURCE_COCO;
}

/* ---- tables -----------------------------------------------------------------------------------
 */

/* TSV where most lines have a TAB; else CSV where the first has what parts its cells. */
static enum source_kind judge_table(const char *text, size_t size, bool whole) {
    unsigned lines = 0;
    unsigned tabs = 0;
    bool first_parted = false;
    for (size_t at = 0; at < size && lines < LOOK_LINES;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t n = end ? (size_t)(end - text) - at : size - at;
        if (!end && lines > 0 && !whole) {
            break; /* cut */
        }
        tabs += memchr(text + at, '\t', n) != NULL;
        for (size_t i = at; i < at + n && lines == 0; i++) {
            first_parted |= text[i] == ',' || text[i] == ';' || text[i] == '|';
        }
        lines += n > 0;
        at += n + 1;
    }
    return tabs * 2 < lines && first_parted ? SOURCE_CSV : SOURCE_TSV;
}

static enum status judge_head(enum source_kind *out, const struct head *h, struct error *err) {
    if (h->size_bytes == 0) {
        return error_set(err, STATUS_CORRUPT, "%s: the file is empty", h->path);
    }
    if (begins(h, "PAR1", 4)) {
        return error_set(err, STATUS_CORRUPT,
                         "%s: a parquet file: a list of addresses and captions, as a rule; "
                         "img2dataset fetches the pictures, and its tars are packed",
                         h->path);
    }
    if (image_format_of(h->data, h->size_bytes) != IMAGE_FORMAT_UNKNOWN) {
        return error_set(err, STATUS_CORRUPT,
                         "%s: a single picture; name its tar, its table or its class folder's "
                         "parent",
                         h->path);
    }
    if (is_archive(h)) {
        *out = SOURCE_WDS;
        return STATUS_OK;
    }
    if (source_is_cifar(h->path, h->file_bytes)) {
        *out = SOURCE_CIFAR;
        return STATUS_OK;
    }
    if (memchr(h->data, '\0', h->size_bytes)) {
        return error_set(err, STATUS_CORRUPT,
                         "%s: neither tar or zip (plain, .gz, .zst) nor TSV, CSV, JSON or a CIFAR "
                         "binary; --from says which it is",
                         h->path);
    }
    const char *text = (const char *)h->data;
    size_t at = begins(h, "\xEF\xBB\xBF", 3) ? 3 : 0;
    while (at < h->size_bytes && source_is_space(text[at])) {
        at++;
    }
    if (at < h->size_bytes && text[at] == '[') {
        *out = SOURCE_JSON;
    } else if (at < h->size_bytes && text[at] == '{') {
        *out = judge_object(text + at, h->size_bytes - at);
    } else {
        *out = judge_table(text + at, h->size_bytes - at, h->size_bytes == h->file_bytes);
    }
    return STATUS_OK;
}

static enum status judge_file(enum source_kind *out, const char *path, struct error *err) {
    const struct file_system *fs = file_posix();
    struct head h = {.path = path};
    struct file *f = NULL;
    uint8_t *data = malloc(HEAD_BYTES);
    if (!data) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory", path);
    }
    enum status s = fs->open(fs->context, &f, path, FILE_READ, err);
    if (s == STATUS_OK) {
        s = fs->size(f, &h.file_bytes, err);
    }
    if (s == STATUS_OK) {
        s = fs->pread(f, data, &h.size_bytes, HEAD_BYTES, 0, err);
    }
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
    if (strcmp(path, "-") == 0) {
        return STATUS_OK;
    }
    struct stat info;
    if (stat(path, &info) != 0) {
        return error_set_errno(err, "%s: cannot read it", path);
    }
    if (S_ISDIR(info.st_mode)) {
        *out = source_is_cifar_folder(path) ? SOURCE_CIFAR : SOURCE_FOLDERS;
        return STATUS_OK;
    }
    if (!S_ISREG(info.st_mode)) {
        return error_set(err, STATUS_CORRUPT, "%s: is not a file; a tar can come as '-'", path);
    }
    return judge_file(out, path, err);
}
