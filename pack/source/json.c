/*
 * A list of objects, as in the training files of NUCLR and ALBEF, or one object after another, as
 * in JSON lines:
 *
 *     [{"image": "000/1.jpg", "caption": "a dog", "image_id": 7}, ...]
 *
 * `image` and `caption` may have other usual names (columns.c), such as file_name and text in
 * Hugging Face's metadata.jsonl; the first element decides. Every element is a row. `caption` is a
 * string or a list of strings. The key is image_id, a number
 * or a string, or else the name of the image's file. An object with other members is packed with
 * its sample.
 *
 * The file may be of any size. Brackets and quotes are followed to find the end of an element, and
 * one element is parsed at a time. So a bad element is one bad row, but the syntax between elements
 * must be right.
 */
#include <inttypes.h>
#include <string.h>

#include "pack/source/text_internal.h"

struct source_json {
    struct source base;
    char image_member[SOURCE_MAX_NAME_BYTES + 1];
    char caption_member[SOURCE_MAX_NAMES_BYTES + 1];
    struct source_blocks blocks;
    bool list; /* elements in [ ], separated by commas */
    bool any;  /* an element was found */
    bool at_end;
    struct byte_buffer text; /* the element */
    uint64_t text_offset;    /* where it begins in the file */
    bool too_long;
};

/* Finds the next byte that is not white space, without taking it. Returns OK, END or IO. */
static enum status next_byte(struct source_json *j, uint8_t *out, struct error *err) {
    struct source_blocks *b = &j->blocks;
    for (;;) {
        enum status s = source_blocks_fill(b, err);
        if (s != STATUS_OK) {
            return s;
        }
        while (b->at < b->got && source_is_space((char)b->block[b->at])) {
            b->at++;
        }
        if (b->at < b->got) {
            *out = b->block[b->at];
            return STATUS_OK;
        }
    }
}

static enum status wrong(const struct source_json *j, const char *what, struct error *err) {
    return error_set(err, STATUS_CORRUPT, "%s: at byte %" PRIu64 ", after row %" PRIu64 ": %s",
                     j->base.path, source_blocks_position(&j->blocks), j->base.rows, what);
}

/* Copies the element at the current byte to j->text; of one that is too long only the beginning. */
static enum status take_element(struct source_json *j, struct error *err) {
    struct source_blocks *b = &j->blocks;
    uint8_t first = b->block[b->at];
    struct json_scan scan = json_scan_begin(first);
    bool ended = false;
    j->text.size_bytes = 0;
    j->text_offset = source_blocks_position(b);
    j->too_long = false;
    while (!ended) {
        enum status s = source_blocks_fill(b, err);
        TRY(s);
        if (s == STATUS_END) {
            if (scan.scalar) {
                break;
            }
            return wrong(j, "the file ends within an object", err);
        }
        size_t n = json_scan_bytes(&scan, b->block + b->at, b->got - b->at, &ended);
        size_t room = SOURCE_MAX_JSON_BYTES - j->text.size_bytes;
        j->too_long |= n > room;
        TRY(byte_buffer_append(&j->text, b->block + b->at, n < room ? n : room, err));
        b->at += n;
    }
    return STATUS_OK;
}

/* After the list only white space may follow. */
static enum status take_end(struct source_json *j, struct error *err) {
    uint8_t c = 0;
    if (j->list) {
        j->blocks.at++;
    }
    enum status s = next_byte(j, &c, err);
    TRY(s);
    j->at_end = true;
    return s == STATUS_END ? s : wrong(j, "there is more data after the list", err);
}

/* Moves to the next element. Returns OK, END, CORRUPT or IO. */
static enum status find_element(struct source_json *j, struct error *err) {
    uint8_t c = 0;
    if (j->at_end) {
        return STATUS_END;
    }
    enum status s = next_byte(j, &c, err);
    TRY(s);
    if (s == STATUS_END) {
        j->at_end = true;
        return j->list ? wrong(j, "the file ends within the list", err) : STATUS_END;
    }
    if (j->list && c == ']') {
        return take_end(j, err);
    }
    if (j->list && j->any) {
        if (c != ',') {
            return wrong(j, "a comma or the end of the list is expected", err);
        }
        j->blocks.at++;
        s = next_byte(j, &c, err);
        TRY(s);
        if (s == STATUS_END) {
            return wrong(j, "the file ends within the list", err);
        }
    }
    if (c == ',' || c == ']' || c == '}' || c == ':') {
        return wrong(j, "an element is expected", err);
    }
    j->any = true;
    return STATUS_OK;
}

static enum status next_element(struct source_json *j, struct error *err) {
    enum status s = find_element(j, err);
    return s == STATUS_OK ? take_element(j, err) : s;
}

static void
set_key(struct source_row *row, const struct json_value *id, const char *path, size_t path_bytes) {
    uint64_t number;
    size_t size_bytes = 0;
    const char *text = json_value_string(id, &size_bytes);
    if (json_value_u64(id, &number)) {
        source_row_set_number_key(row, number);
    } else if (text && size_bytes > 0) {
        source_row_set_key(row, text, size_bytes);
    } else {
        source_row_set_stem(row, path, path_bytes);
    }
}

static enum status take_object(struct source_json *j,
                               struct source_row *row,
                               const struct json_value *v,
                               struct error *err) {
    size_t size_bytes = 0;
    const char *path = json_value_string(json_value_get(v, j->image_member), &size_bytes);
    if (!path) {
        source_row_reject(row, REASON_ROW_BAD, "%s '%s'",
                          json_value_is_object(v) ? "an object without a string" : "no object with",
                          j->image_member);
        return STATUS_OK;
    }
    const struct json_value *id = json_value_get(v, "image_id");
    set_key(row, id, path, size_bytes);
    source_row_set_path(row, &j->base, path, size_bytes);
    TRY(source_row_add_json_captions(row, v, j->caption_member, err));
    size_t known = id ? 3 : 2;
    if (j->base.keep) {
        return source_row_keep_members(row, &j->base, v, "", err);
    }
    if (json_value_count(v) > known) {
        return byte_buffer_append(&row->json, j->text.data, j->text.size_bytes, err);
    }
    return STATUS_OK;
}

static enum status json_next(struct source *s, struct source_row *row, struct error *err) {
    struct source_json *j = (struct source_json *)s;
    enum status status = next_element(j, err);
    s->position_bytes = source_blocks_position(&j->blocks);
    if (status != STATUS_OK) {
        return status;
    }
    row->raw = j->text.data;
    row->raw_bytes = j->text.size_bytes;
    if (s->sparse) {
        return STATUS_OK;
    }
    if (j->too_long) {
        source_row_reject(row, REASON_ROW_BAD,
                          "the object at byte %" PRIu64 " has more than %d bytes", j->text_offset,
                          SOURCE_MAX_JSON_BYTES);
        return STATUS_OK;
    }
    struct json_document *document = NULL;
    struct error why = {0};
    status = json_document_parse(&document, "object", j->text.data, j->text.size_bytes, &why);
    FAIL_IF(status == STATUS_NOMEM, err, status, "%s", why.text);
    if (status != STATUS_OK) {
        source_row_reject(row, REASON_ROW_BAD, "at byte %" PRIu64 ": %.160s", j->text_offset,
                          why.text);
        return STATUS_OK;
    }
    status = take_object(j, row, json_document_root(document), err);
    json_document_destroy(document);
    return status;
}

/* Returns to the start, before the first element. */
static enum status rewind_json(struct source_json *j, struct error *err) {
    uint8_t c = 0;
    j->any = false;
    j->at_end = false;
    TRY(source_blocks_rewind(&j->blocks, err));
    enum status s = next_byte(j, &c, err);
    TRY(s);
    j->list = s == STATUS_OK && c == '[';
    j->blocks.at += j->list;
    return STATUS_OK;
}

/* The first of the usual names that the object has; NULL: none. */
static const char *find_usual(const struct json_value *object, const char *const *names) {
    while (*names && !json_value_get(object, *names)) {
        names++;
    }
    return *names;
}

/* Without options, the first element decides which of the usual names the members have. */
static void choose_members(struct source_json *j,
                           const struct source_options *opt,
                           const struct json_value *first) {
    const char *image = find_usual(first, source_image_names);
    const char *caption = find_usual(first, source_caption_names);
    if (!opt->image_column && image) {
        strcpy(j->image_member, image);
    }
    if (!opt->caption_column && caption) {
        strcpy(j->caption_member, caption);
    }
}

/* The first element must be such an object, or the source is refused. If it cannot be parsed, it is
 * a bad row like any other. */
static enum status
check_first(struct source_json *j, const struct source_options *opt, struct error *err) {
    enum status s = next_element(j, err);
    FAIL_IF(s == STATUS_END, err, STATUS_CORRUPT, "%s: an empty list", j->base.path);
    TRY(s);
    struct json_document *document = NULL;
    struct error why = {0};
    bool known = true;
    s = json_document_parse(&document, "object", j->text.data, j->text.size_bytes, &why);
    if (s == STATUS_OK) {
        const struct json_value *root = json_document_root(document);
        choose_members(j, opt, root);
        source_say_members(&j->base, root, j->image_member, j->caption_member, "image_id");
        known = json_value_get(root, j->image_member) != NULL;
        json_document_destroy(document);
    }
    FAIL_IF(s == STATUS_NOMEM, err, s, "%s", why.text);
    FAIL_IF(!known, err, STATUS_CORRUPT,
            "%s: expected objects with '%s' (a path) and '%s', but the first element has none; set "
            "other fields with --image-column and --caption-column",
            j->base.path, j->image_member, j->caption_member);
    return STATUS_OK;
}

static void json_close(struct source *s) {
    struct source_json *j = (struct source_json *)s;
    source_blocks_close(&j->blocks);
    byte_buffer_fini(&j->text);
}

static enum status
json_open(struct source *s, const struct source_options *opt, struct error *err) {
    struct source_json *j = (struct source_json *)s;
    byte_buffer_init(&j->text, SOURCE_MAX_JSON_BYTES);
    strcpy(j->image_member, opt->image_column ? opt->image_column : "image");
    strcpy(j->caption_member, opt->caption_column ? opt->caption_column : "caption");
    TRY(source_blocks_open(&j->blocks, s->path, err));
    s->size_bytes = j->blocks.size_bytes;
    TRY(rewind_json(j, err));
    TRY(check_first(j, opt, err));
    return rewind_json(j, err);
}

/* Objects that are neither Karpathy's nor COCO's. */
static bool json_detect(const struct source_head *h) {
    return h->text_bytes > 0 && (h->text[0] == '[' || h->text[0] == '{');
}

const struct source_type source_type_json = {
    .options = SOURCE_HAS_CAPTION_COLUMN | SOURCE_HAS_IMAGE_COLUMN | SOURCE_HAS_KEEP,
    .struct_bytes = sizeof(struct source_json),
    .detect = json_detect,
    .open = json_open,
    .next = json_next,
    .close = json_close,
};
