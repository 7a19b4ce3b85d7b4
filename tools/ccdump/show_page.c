/*
 * show_page: a picture beside what is known of its sample.
 */
#include "tools/ccdump/show_page.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "tools/cli/cli.h"
#include "tools/cli/html_json.h"

enum { PICTURE_PX = 320, PICTURES_UNTIL_BYTES = 960 << 10, TEXT_CHARACTERS = 4000 };

static void put_fact(struct html_page *p, const char *name, const char *value) {
    html_raw(p, "<div><dt>");
    html_raw(p, name);
    html_raw(p, "</dt><dd>");
    html_excerpt(p, (struct shard_text){value, strlen(value)}, TEXT_CHARACTERS);
    html_raw(p, "</dd></div>\n");
}

static void
put_facts(struct html_page *p, const struct sample_facts *f, const struct sample_content *content) {
    char text[160];
    char bytes[CLI_TEXT_BYTES];
    html_raw(p, "<dl>\n");
    put_fact(p, "key", content->key);
    if (f->image_bytes > 0) {
        (void)snprintf(text, sizeof text, "%" PRIu32 " x %" PRIu32 " %s, %s%s%s", f->width_px,
                       f->height_px, image_format_name(f->format),
                       cli_format_bytes(bytes, f->image_bytes),
                       (f->flags & SHARD_FLAG_REENCODED) != 0 ? ", re-encoded by the packer" : "",
                       (f->flags & SHARD_FLAG_UNCHECKED) != 0 ? ", not decoded by the packer" : "");
        put_fact(p, "picture", text);
    }
    if (f->label != SHARD_NO_LABEL) {
        (void)snprintf(text, sizeof text, "%" PRId32 " %.120s", f->label,
                       f->class_name != NULL ? f->class_name : "");
        put_fact(p, "label", text);
    }
    if (f->problem != NULL) {
        put_fact(p, "cannot be packed", f->problem);
    }
    put_fact(p, "file", f->file);
    (void)snprintf(text, sizeof text, "%" PRIu64, f->offset);
    put_fact(p, "byte", text);
    (void)snprintf(text, sizeof text, "%016" PRIx64, f->image_hash);
    put_fact(p, "xxh64", text);
    html_raw(p, "</dl>\n");
}

/* Metadata that are no JSON object are shown as they are. */
static void put_metadata(struct html_page *p, struct shard_text json) {
    struct json_document *d = NULL;
    if (json.data == NULL) {
        return;
    }
    html_raw(p, "<details open><summary>Metadata</summary>\n");
    if (json_document_parse(&d, "meta", json.data, json.size_bytes, NULL) == STATUS_OK &&
        json_value_is_object(json_document_root(d))) {
        html_json_facts(p, json_document_root(d));
    } else {
        html_raw(p, "<p>");
        html_excerpt(p, json, TEXT_CHARACTERS);
        html_raw(p, "</p>\n");
    }
    json_document_destroy(d);
    html_raw(p, "</details>\n");
}

static enum status
put_sample(struct html_page *p, struct input *in, const struct sample_facts *f, struct error *err) {
    struct sample_content content;
    const struct shard_text none = {"", 0};
    TRY(input_read(in, &content, err));
    html_markup(p, "<h2>Sample %" PRIu64 "</h2>\n<div class=\"sample\"><div>", f->id);
    if (f->image_bytes > 0) {
        html_image(p, content.image, f->image_bytes,
                   f->caption_count > 0 ? content.captions[0] : none);
    }
    html_raw(p, "</div><div>\n<ol>\n");
    for (uint32_t k = 0; k < f->caption_count; k++) {
        html_raw(p, "<li>");
        html_excerpt(p, content.captions[k], TEXT_CHARACTERS);
        html_raw(p, "</li>\n");
    }
    html_raw(p, "</ol>\n");
    put_facts(p, f, &content);
    put_metadata(p, content.json);
    html_raw(p, "</div></div>\n");
    return STATUS_OK;
}

enum status show_page_write(const char *path,
                            struct input *in,
                            const struct sample_facts *first,
                            uint64_t count,
                            struct error *err) {
    struct html_page p;
    struct sample_facts f = *first;
    enum status s = STATUS_OK;
    html_init(&p, in->path);
    p.image_px = PICTURE_PX;
    p.images_until_bytes = PICTURES_UNTIL_BYTES;
    for (uint64_t i = 0; i < count && s == STATUS_OK; i++) {
        s = i > 0 ? input_next(in, &f, err) : STATUS_OK;
        if (s == STATUS_OK) {
            s = put_sample(&p, in, &f, err);
        }
    }
    if (s == STATUS_OK || s == STATUS_END) {
        s = file_make_parents(file_posix(), path, err);
        s = s == STATUS_OK ? html_write(&p, path, err) : s;
    }
    html_fini(&p);
    return s;
}
