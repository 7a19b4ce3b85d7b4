/*
 * Karpathy's split files of Flickr8k, Flickr30k and COCO:
 *
 *     {"images": [{"filepath": "val2014", "filename": "1.jpg", "cocoid": 1, "imgid": 0,
 *                  "split": "train", "sentences": [{"raw": "A dog."}, ...]}]}
 *
 * The file is read whole. The rows are the pictures of the chosen splits, in the file's order, each
 * with all its sentences. Pictures of other splits are no rows and have no numbers. The path is
 * filepath/filename, or filename without a filepath. The key is cocoid, or else imgid, or else the
 * file's name.
 */
#include <stdio.h>
#include <string.h>

#include "pack/source/source_internal.h"

struct source_karpathy {
    struct source base;
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
        source_row_set_number_key(row, id);
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
    source_row_set_path(row, s, path, strlen(path));
    return take_sentences(row, image, err);
}

/* The split of picture i; NULL: none. */
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
    return error_set(err, STATUS_USAGE, "%s: no picture is of split '%.*s': there are %s",
                     k->base.path, name_bytes < 40 ? (int)name_bytes : 40, name,
                     found[0] ? found : "none at all");
}

/* Checks that every chosen split has a picture. Returns OK or USAGE. */
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

static void karpathy_close(struct source *s) {
    json_document_destroy(((struct source_karpathy *)s)->document);
}

static enum status
karpathy_open(struct source *s, const struct source_options *opt, struct error *err) {
    struct source_karpathy *k = (struct source_karpathy *)s;
    TRY(source_parse_images(s, &k->document, &k->images,
                            "not a Karpathy split file: a list \"images\" is required", err));
    k->image_count = json_value_count(k->images);
    k->split = opt->split;
    return k->split ? check_splits(k, err) : STATUS_OK;
}

static bool karpathy_detect(const struct source_head *h) {
    return h->keys.karpathy && !h->keys.annotations;
}

const struct source_type source_type_karpathy = {
    .options = SOURCE_HAS_SPLIT,
    .struct_bytes = sizeof(struct source_karpathy),
    .detect = karpathy_detect,
    .open = karpathy_open,
    .next = karpathy_next,
    .close = karpathy_close,
};
