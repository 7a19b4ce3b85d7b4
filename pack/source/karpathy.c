/*
 * Karpathy's split files of Flickr8k, Flickr30k and COCO:
 *
 *     {"images": [{"filepath": "val2014", "filename": "1.jpg", "cocoid": 1, "imgid": 0,
 *                  "split": "train", "sentences": [{"raw": "A dog."}, ...]}]}
 *
 * The file is read whole. The rows are the pictures of the splits that are asked for, in the file's
 * order, each with all its sentences; pictures of other splits are no rows, so that numbers count
 * within the choice. The path is filepath/filename where there is a filepath; the key is cocoid, or
 * else imgid, or else the file's name.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/json/json_reader.h"
#include "pack/source/source_internal.h"

struct source_karpathy {
    struct source base;
    char path[PATH_MAX_BYTES];
    char images_folder[PATH_MAX_BYTES];
    struct json_document *document;
    const struct json_value *images;
    size_t image_count;
    size_t next;       /* index in "images" */
    const char *split; /* comma-separated; NULL: all */
};

/* Whether `name` is one of the comma-separated names. */
static bool is_listed(const char *list, const char *name, size_t size_bytes) {
    while (*list != '\0') {
        size_t n = strcspn(list, ",");
        if (n == size_bytes && memcmp(list, name, n) == 0) {
            return true;
        }
        list += n + (list[n] == ',');
    }
    return false;
}

static bool is_chosen(const struct source_karpathy *k, const struct json_value *image) {
    size_t size_bytes = 0;
    const char *split = json_value_string(json_value_get(image, "split"), &size_bytes);
    return !k->split || (split && is_listed(k->split, split, size_bytes));
}

static void set_key(struct source_row *row, const struct json_value *image, const char *name) {
    uint64_t id;
    if (json_value_u64(json_value_get(image, "cocoid"), &id) ||
        json_value_u64(json_value_get(image, "imgid"), &id)) {
        char digits[24];
        int n = snprintf(digits, sizeof(digits), "%" PRIu64, id);
        source_row_set_key(row, digits, (size_t)n);
        return;
    }
    source_row_set_stem(row, name, strlen(name));
}

static enum status
take_sentences(struct source_row *row, const struct json_value *image, struct error *err) {
    const struct json_value *sentences = json_value_get(image, "sentences");
    for (size_t i = 0; i < json_value_count(sentences); i++) {
        size_t size_bytes = 0;
        const struct json_value *raw = json_value_get(json_value_at(sentences, i), "raw");
        const char *text = json_value_string(raw, &size_bytes);
        if (!text) {
            source_row_reject(row, REASON_ROW_BAD, "sentence %zu has no \"raw\"", i);
            return STATUS_OK;
        }
        TRY(source_row_add_caption(row, text, size_bytes, err));
    }
    if (json_value_count(sentences) == 0) {
        source_row_reject(row, REASON_CAPTION_MISSING, "no \"sentences\"");
    }
    return STATUS_OK;
}

static enum status karpathy_next(struct source *s, struct source_row *row, struct error *err) {
    struct source_karpathy *k = (struct source_karpathy *)s;
    const struct json_value *image = NULL;
    bool chosen = false;
    while (!chosen && k->next < k->image_count) {
        image = json_value_at(k->images, k->next++);
        chosen = is_chosen(k, image);
    }
    if (!chosen) {
        return STATUS_END;
    }
    s->position_bytes =
        (uint64_t)((double)s->size_bytes * (double)k->next / (double)k->image_count);
    size_t name_bytes = 0;
    size_t folder_bytes = 0;
    const char *name = json_value_string(json_value_get(image, "filename"), &name_bytes);
    const char *folder = json_value_string(json_value_get(image, "filepath"), &folder_bytes);
    if (!name) {
        source_row_reject(row, REASON_ROW_BAD, "entry %zu of \"images\" has no filename",
                          k->next - 1);
        return STATUS_OK;
    }
    set_key(row, image, name);
    char path[PATH_MAX_BYTES];
    if (path_join(path, sizeof(path), folder ? folder : "", name, NULL) != STATUS_OK) {
        source_row_reject(row, REASON_ROW_BAD, "its path is too long");
        return STATUS_OK;
    }
    source_row_set_path(row, k->images_folder, path, strlen(path));
    return take_sentences(row, image, err);
}

static void karpathy_close(struct source *s) {
    struct source_karpathy *k = (struct source_karpathy *)s;
    json_document_destroy(k->document);
    free(k);
}

static const struct source_ops karpathy_ops = {karpathy_next, NULL, karpathy_close};

/* The split of picture i; NULL when it says none. */
static const char *split_of(const struct source_karpathy *k, size_t i, size_t *size_bytes) {
    return json_value_string(json_value_get(json_value_at(k->images, i), "split"), size_bytes);
}

static bool is_split(const struct source_karpathy *k, const char *name, size_t name_bytes) {
    for (size_t i = 0; i < k->image_count; i++) {
        size_t size_bytes = 0;
        const char *split = split_of(k, i, &size_bytes);
        if (split && size_bytes == name_bytes && memcmp(split, name, name_bytes) == 0) {
            return true;
        }
    }
    return false;
}

static enum status unknown_split(const struct source_karpathy *k,
                                 const char *name,
                                 size_t name_bytes,
                                 struct error *err) {
    char found[120] = "";
    for (size_t i = 0; i < k->image_count; i++) {
        size_t size_bytes = 0;
        size_t at = strlen(found);
        const char *split = split_of(k, i, &size_bytes);
        if (split && !is_listed(found, split, size_bytes) && size_bytes + 2 <= sizeof(found) - at) {
            snprintf(found + at, sizeof(found) - at, "%s%s", at > 0 ? "," : "", split);
        }
    }
    return error_set(err, STATUS_USAGE, "%s: no picture is of split '%.*s': there are %s", k->path,
                     name_bytes < 40 ? (int)name_bytes : 40, name,
                     found[0] ? found : "none at all");
}

/* Every split that is asked for must be that of a picture. Returns OK or USAGE. */
static enum status check_splits(const struct source_karpathy *k, struct error *err) {
    for (const char *p = k->split; *p != '\0';) {
        size_t n = strcspn(p, ",");
        if (!is_split(k, p, n)) {
            return unknown_split(k, p, n, err);
        }
        p += n + (p[n] == ',');
    }
    return STATUS_OK;
}

static enum status open_karpathy(struct source_karpathy *k,
                                 const char *path,
                                 const struct source_options *opt,
                                 struct error *err) {
    struct byte_buffer text = {0};
    TRY(path_join(k->path, sizeof(k->path), "", path, err));
    TRY(source_images_folder(k->images_folder, sizeof(k->images_folder), path, opt, err));
    TRY(file_read_all(file_posix(), &text, path, SOURCE_MAX_COCO_BYTES, err));
    k->base.size_bytes = text.size_bytes;
    enum status s = json_document_parse(&k->document, path, text.data, text.size_bytes, err);
    byte_buffer_fini(&text);
    TRY(s);
    k->images = json_value_get(json_document_root(k->document), "images");
    k->image_count = json_value_count(k->images);
    if (!json_value_is_array(k->images)) {
        return error_set(err, STATUS_CORRUPT,
                         "%s: not a Karpathy split file: a list \"images\" is wanted", path);
    }
    k->split = opt->split;
    return k->split ? check_splits(k, err) : STATUS_OK;
}

enum status source_open_karpathy(struct source **out,
                                 const char *path,
                                 const struct source_options *opt,
                                 struct error *err) {
    struct source_karpathy *k = calloc(1, sizeof(*k));
    if (!k) {
        return error_set(err, STATUS_NOMEM, "%s: out of memory", path);
    }
    k->base.ops = &karpathy_ops;
    enum status s = open_karpathy(k, path, opt, err);
    if (s != STATUS_OK) {
        karpathy_close(&k->base);
        return s;
    }
    *out = &k->base;
    return STATUS_OK;
}
