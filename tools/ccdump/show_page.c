/*
 * show_page: an image beside what is known of its sample.
 */
#include "tools/ccdump/show_page.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/json/json_reader.h"
#include "tools/cli/cli.h"
#include "tools/inspect/page/page.h"

enum { IMAGE_PX = 320, IMAGES_UNTIL_BYTES = 920 << 10, TEXT_CHARACTERS = 4000 };

static void
put_facts(struct page *p, const struct sample_facts *f, const struct sample_content *content) {
    char text[160];
    json_open_array(page_json(p), "facts");
    page_fact(p, "key", content->key);
    if (f->image_bytes > 0) {
        (void)snprintf(text, sizeof text, "%" PRIu32 " x %" PRIu32 " %s, %s%s%s", f->width_px,
                       f->height_px, image_format_name(f->format), cli_format_bytes(f->image_bytes),
                       (f->flags & SHARD_FLAG_REENCODED) != 0 ? ", re-encoded by the packer" : "",
                       (f->flags & SHARD_FLAG_UNCHECKED) != 0 ? ", not decoded by the packer" : "");
        page_fact(p, "image", text);
    }
    if (f->label != SHARD_NO_LABEL) {
        (void)snprintf(text, sizeof text, "%" PRId32 " %.120s", f->label,
                       f->class_name != NULL ? f->class_name : "");
        page_fact(p, "label", text);
    }
    if (f->problem != NULL) {
        page_fact(p, "cannot be packed", f->problem);
    }
    page_fact(p, "file", f->file);
    (void)snprintf(text, sizeof text, "%" PRIu64, f->offset);
    page_fact(p, "byte", text);
    (void)snprintf(text, sizeof text, "%016" PRIx64, f->image_hash);
    page_fact(p, "xxh64", text);
    json_close_array(page_json(p));
}

/* Metadata that are not a JSON object are shown as they are. */
static void put_metadata(struct page *p, struct shard_text json) {
    struct json_document *d = NULL;
    if (json.data == NULL) {
        return;
    }
    page_item(p, "facts", "Metadata");
    if (json_document_parse(&d, "meta", json.data, json.size_bytes, NULL) == STATUS_OK &&
        json_value_is_object(json_document_root(d))) {
        page_value(p, "object", json_document_root(d));
    } else {
        json_open_object(page_json(p), "object");
        page_excerpt(p, "text", json, TEXT_CHARACTERS);
        json_close_object(page_json(p));
    }
    json_close_object(page_json(p));
    json_document_destroy(d);
}

static enum status
put_sample(struct page *p, struct input *in, const struct sample_facts *f, struct error *err) {
    struct sample_content content;
    char title[48];
    TRY(input_read(in, &content, err));
    (void)snprintf(title, sizeof title, "Sample %" PRIu64, f->id);
    page_section(p, title, false);
    page_images(p, NULL, "wide");
    page_card(p, NULL, content.image, f->image_bytes,
              f->caption_count > 0 ? content.captions[0] : (struct shard_text){"", 0});
    put_facts(p, f, &content);
    for (uint32_t k = 1; k < f->caption_count; k++) {
        page_line(p, NULL, "%.*s", page_excerpt_bytes(content.captions[k], TEXT_CHARACTERS),
                  content.captions[k].data);
    }
    page_card_end(p);
    page_images_end(p);
    put_metadata(p, content.json);
    return STATUS_OK;
}

enum status show_page_write(const char *path,
                            struct input *in,
                            const struct sample_facts *first,
                            uint64_t count,
                            struct error *err) {
    struct page p;
    struct sample_facts f = *first;
    enum status s = STATUS_OK;
    page_begin(&p, in->path);
    p.image_px = IMAGE_PX;
    p.images_until_bytes = IMAGES_UNTIL_BYTES;
    p.caption_characters = TEXT_CHARACTERS;
    for (uint64_t i = 0; i < count && s == STATUS_OK; i++) {
        s = i > 0 ? input_next(in, &f, err) : STATUS_OK;
        THEN(s, put_sample(&p, in, &f, err));
    }
    if (s == STATUS_OK || s == STATUS_END) {
        s = file_make_parents(file_posix(), path, err);
        s = s == STATUS_OK ? page_end(&p, path, err) : s;
    }
    page_fini(&p);
    return s;
}
