/*
 * Karpathy's split files of Flickr8k, Flickr30k and COCO:
 *
 *     {"images": [{"filepath": "val2014", "filename": "1.jpg", "cocoid": 1, "imgid": 0,
 *                  "split": "train", "sentences": [{"raw": "A dog."}, ...]}]}
 *
 * The file is read whole, and parsed image by image. An image that is not valid JSON is a bad
 * row, whatever splits are chosen. The rows are the images of the chosen splits, in the file's
 * order, each with all its sentences. Images of other splits are no rows and have no numbers. The
 * path is filepath/filename, or filename without a filepath. The key is cocoid, or else imgid, or
 * else the file's name.
 */
#include <stdio.h>
#include <string.h>

#include "pack/source/text_internal.h"

struct source_karpathy {
    struct source base;
    struct byte_buffer text;
    struct json_parts images;
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

static const char used_members[] = "filename,filepath,sentences,sentids";

/* Fills a row with an image. */
static enum status take_image(struct source_karpathy *k,
                              struct source_row *row,
                              const struct json_value *image,
                              struct error *err) {
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
    source_row_set_path(row, &k->base, path, strlen(path));
    TRY(source_row_keep_members(row, &k->base, image, used_members, err));
    return take_sentences(row, image, err);
}

static enum status karpathy_next(struct source *s, struct source_row *row, struct error *err) {
    struct source_karpathy *k = (struct source_karpathy *)s;
    while (k->next < k->images.count) {
        struct json_document *document = NULL;
        size_t i = k->next++;
        s->position_bytes = k->images.items[i].offset + (uint64_t)k->images.items[i].size_bytes;
        TRY(json_parts_parse_row(&document, row, &k->text, &k->images, i, err));
        if (!document) {
            return STATUS_OK;
        }
        const struct json_value *image = json_document_root(document);
        bool chosen = is_chosen(k, image);
        enum status status = chosen ? take_image(k, row, image, err) : STATUS_OK;
        json_document_destroy(document);
        if (chosen) {
            return status;
        }
    }
    s->position_bytes = s->size_bytes;
    return STATUS_END;
}

/* Which of the chosen splits have an image, and the names of all that have one. */
struct splits {
    bool has[64]; /* in the order of the option; those beyond are not checked */
    char found[120];
};

static void add_split(struct splits *out, const char *chosen, const char *name, size_t size_bytes) {
    size_t at = strlen(out->found);
    if (!is_listed(out->found, name, size_bytes) && size_bytes + 2 <= sizeof(out->found) - at) {
        snprintf(out->found + at, sizeof(out->found) - at, "%s%s", at > 0 ? "," : "", name);
    }
    for (size_t i = 0; *chosen != '\0' && i < 64; i++) {
        size_t n = strcspn(chosen, ",");
        out->has[i] |= n == size_bytes && memcmp(chosen, name, n) == 0;
        chosen += n + (chosen[n] == ',');
    }
}

/* Checks that every chosen split has an image. Returns OK, USAGE or NOMEM. */
static enum status check_splits(const struct source_karpathy *k, struct error *err) {
    struct splits splits = {.found = ""};
    for (size_t i = 0; i < k->images.count; i++) {
        struct json_document *document = NULL;
        enum status s = json_part_parse(&document, &k->text, &k->images.items[i], NULL);
        FAIL_IF(s == STATUS_NOMEM, err, s, "%s: out of memory", k->base.path);
        if (s == STATUS_OK) {
            size_t size_bytes = 0;
            const char *name = json_value_string(
                json_value_get(json_document_root(document), "split"), &size_bytes);
            if (name) {
                add_split(&splits, k->split, name, size_bytes);
            }
            json_document_destroy(document);
        }
    }
    const char *p = k->split;
    for (size_t i = 0; *p != '\0' && i < 64; i++) {
        size_t n = strcspn(p, ",");
        FAIL_IF(!splits.has[i], err, STATUS_USAGE,
                "%s: no image of split '%.*s'; the splits are %s", k->base.path,
                n < 40 ? (int)n : 40, p, splits.found[0] ? splits.found : "none");
        p += n + (p[n] == ',');
    }
    return STATUS_OK;
}

static void karpathy_close(struct source *s) {
    struct source_karpathy *k = (struct source_karpathy *)s;
    byte_buffer_fini(&k->text);
    json_parts_fini(&k->images);
}

static enum status
karpathy_open(struct source *s, const struct source_options *opt, struct error *err) {
    struct source_karpathy *k = (struct source_karpathy *)s;
    TRY(file_read_all(file_posix(), &k->text, s->path, SOURCE_MAX_WHOLE_BYTES, err));
    s->size_bytes = k->text.size_bytes;
    enum status status = json_parts_find(&k->images, s->path, &k->text, "images", err);
    FAIL_IF(status == STATUS_NOTFOUND, err, STATUS_CORRUPT,
            "%s: not a Karpathy split file: a list \"images\" is required", s->path);
    TRY(status);
    struct json_document *first = NULL;
    if (k->images.count > 0 &&
        json_part_parse(&first, &k->text, k->images.items, NULL) == STATUS_OK) {
        source_say_members(s, json_document_root(first), "filename", "", used_members);
    }
    json_document_destroy(first);
    k->split = opt->split;
    return k->split ? check_splits(k, err) : STATUS_OK;
}

static bool karpathy_detect(const struct source_head *h) {
    return h->keys.karpathy && !h->keys.annotations;
}

const struct source_type source_type_karpathy = {
    .options = SOURCE_HAS_SPLIT | SOURCE_HAS_KEEP,
    .struct_bytes = sizeof(struct source_karpathy),
    .detect = karpathy_detect,
    .open = karpathy_open,
    .next = karpathy_next,
    .close = karpathy_close,
};
