/*
 * Detects the kind of a source by the first bytes of a file or the content of a folder. Each kind
 * has its own test. This file prepares what the tests examine, and refuses files that no kind may
 * accept.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/image/image_codec.h"
#include "pack/source/source_internal.h"

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
    static const char *const row[] = {"image", "caption", "file_name", "text", NULL};
    static const char *const of_coco[] = {"file_name", NULL};
    static const char *const of_karpathy[] = {"filename", "sentences", "sentids", "split", NULL};
    if (l->depth == 1) {
        l->in_images = is_key(key, size_bytes, images);
        l->keys->images |= l->in_images;
        l->keys->annotations |= is_key(key, size_bytes, annotations);
        l->keys->image_or_caption |= is_key(key, size_bytes, row);
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

static enum status
ask_kinds(enum source_kind *out, const struct source_head *h, struct error *err) {
    for (int kind = SOURCE_AUTO + 1; kind < SOURCE_KIND_COUNT; kind++) {
        if (source_types[kind]->detect(h)) {
            *out = (enum source_kind)kind;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_CORRUPT,
                     "%s: neither tar or zip (plain, .gz, .zst) nor TSV, CSV, JSON or a CIFAR "
                     "binary; --from names its kind",
                     h->path);
}

static enum status judge_head(enum source_kind *out, struct source_head *h, struct error *err) {
    FAIL_IF(h->size_bytes == 0, err, STATUS_CORRUPT, "%s: the file is empty", h->path);
    FAIL_IF(h->size_bytes >= 4 && memcmp(h->data, "PAR1", 4) == 0, err, STATUS_CORRUPT,
            "%s: a parquet file; if it is a list of URLs and captions, convert it to "
            "CSV, for example with pandas or DuckDB, for 'ccpack fetch'",
            h->path);
    FAIL_IF(image_format_of(h->data, h->size_bytes) != IMAGE_FORMAT_UNKNOWN, err, STATUS_CORRUPT,
            "%s: a single picture; name its tar, its table or the parent of its class "
            "folder",
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
    if (strcmp(path, "-") == 0) {
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
    FAIL_IF(!S_ISREG(info.st_mode), err, STATUS_CORRUPT, "%s: is not a file; a tar can come as '-'",
            path);
    return judge_file(out, path, err);
}
