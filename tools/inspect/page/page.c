/*
 * page: DATA grows in a json_writer, the static header in a buffer; page_end joins them with the
 * viewer. DATA is made harmless there, as a whole: outside of strings JSON has none of the
 * characters that are replaced.
 */
#include "tools/inspect/page/page.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/file_io.h"
#include "formats/base/redact.h"
#include "formats/base/sha256.h"
#include "formats/base/utf8.h"
#include "tools/cli/cli.h"
#include "tools/cli/cli_text.h"
#include "tools/inspect/page/thumbnail.h"
#include "tools/inspect/page/viewer.h"

enum { PLAIN_WIDTH = 640, PLAIN_ROW = 20, PLAIN_LEFT = 120 };

static const char HEAD[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
    "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; script-src 'sha256-";
static const char AFTER_HASH[] = "'\">\n<meta name=\"generator\" content=\"";

/* ---- text ---- */

static void put(struct page *p, struct byte_buffer *out, const void *data, size_t size_bytes) {
    if (p->status == STATUS_OK) {
        p->status = byte_buffer_append(out, data, size_bytes, &p->error);
    }
}

static void put_raw(struct page *p, struct byte_buffer *out, const char *text) {
    put(p, out, text, strlen(text));
}

static void put_number(struct page *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put_number(struct page *p, const char *fmt, ...) {
    char text[160];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    put_raw(p, &p->head, text);
}

/* What stands for a character in HTML; NULL: itself. */
static const char *in_html(uint32_t code) {
    return code == '<'   ? "&lt;"
           : code == '>' ? "&gt;"
           : code == '&' ? "&amp;"
           : code == '"' ? "&quot;"
                         : NULL;
}

static const char *in_data(uint32_t code) {
    return code == '<' ? "\\u003c" : NULL;
}

/* What stands for a control character: a space, or its number where it would change the direction
 * of writing, so that a name does not read as another. */
static const char *in_place_of(uint32_t control, char mark[16]) {
    (void)snprintf(mark, 16, control < 0xA0 ? " " : "[U+%04X]", (unsigned)control);
    return mark;
}

/* Appends a text with its characters replaced. Bytes that are not UTF-8 become U+FFFD. */
static void put_escaped(struct page *p,
                        struct byte_buffer *out,
                        const char *text,
                        size_t size_bytes,
                        const char *(*escape)(uint32_t code)) {
    size_t from = 0;
    for (size_t at = 0; at < size_bytes;) {
        size_t n;
        const uint32_t code = utf8_decode(text + at, size_bytes - at, &n);
        char mark[16];
        const char *other = code == UTF8_NO_CHARACTER               ? "\xEF\xBF\xBD"
                            : code != '\n' && utf8_is_control(code) ? in_place_of(code, mark)
                                                                    : escape(code);
        if (other != NULL) {
            put(p, out, text + from, at - from);
            put_raw(p, out, other);
            from = at + n;
        }
        at += n;
    }
    put(p, out, text + from, size_bytes - from);
}

static void put_html(struct page *p, struct byte_buffer *out, const char *text) {
    put_escaped(p, out, text, strlen(text), in_html);
}

/* ---- the page ---- */

void page_begin(struct page *p, const char *title) {
    memset(p, 0, sizeof *p);
    p->image_px = PAGE_IMAGE_PX;
    p->images_until_bytes = PAGE_MAX_BYTES;
    p->caption_characters = PAGE_CAPTION_CHARACTERS;
    (void)snprintf(p->title, sizeof p->title, "%s", title);
    (void)redact_locations(p->title);
    json_writer_init(&p->json, PAGE_MAX_BYTES);
    byte_buffer_init(&p->head, PAGE_MAX_BYTES);
    p->status = image_decoder_create(&p->decoder, NULL, &p->error);
    json_open_object(&p->json, NULL);
    json_u64(&p->json, "format", 1);
    json_string(&p->json, "title", p->title);
}

void page_fini(struct page *p) {
    json_writer_fini(&p->json);
    byte_buffer_fini(&p->head);
    image_decoder_destroy(p->decoder);
    memset(p, 0, sizeof *p);
}

struct json_writer *page_json(struct page *p) {
    return &p->json;
}

/* The writer escapes control characters as \uXXXX; what stands for them here is readable. */
static void put_data(struct page *p, struct byte_buffer *out) {
    const char *text = (const char *)p->json.out.data;
    const size_t size_bytes = p->json.out.size_bytes;
    size_t from = 0;
    for (size_t at = 0; at + 1 < size_bytes; at++) {
        if (text[at] == '\\' && text[at + 1] == 'u' && at + 6 <= size_bytes) {
            char digits[5] = "";
            char mark[16];
            memcpy(digits, text + at + 2, 4);
            put_escaped(p, out, text + from, at - from, in_data);
            put_raw(p, out, in_place_of((uint32_t)strtoul(digits, NULL, 16), mark));
            from = at + 6;
        }
        at += text[at] == '\\' ? 1 : 0; /* what it escapes */
    }
    put_escaped(p, out, text + from, size_bytes - from, in_data);
}

/* Browsers run only the script with this hash, and no handler of an attribute. */
static void put_script_hash(struct page *p, struct byte_buffer *out) {
    uint8_t digest[SHA256_BYTES];
    struct sha256 hash;
    sha256_init(&hash);
    sha256_update(&hash, "\n", 1);
    sha256_update(&hash, viewer_js, viewer_js_bytes);
    sha256_final(&hash, digest);
    if (p->status == STATUS_OK) {
        p->status = base64_append(out, digest, sizeof digest, &p->error);
    }
}

static void put_page(struct page *p, struct byte_buffer *out) {
    put_raw(p, out, HEAD);
    put_script_hash(p, out);
    put_raw(p, out, AFTER_HASH);
    put_raw(p, out, cli_command_name());
    put_raw(p, out, "\">\n<title>");
    put_html(p, out, p->title);
    put_raw(p, out, "</title>\n<style>\n");
    put(p, out, viewer_css, viewer_css_bytes);
    put_raw(p, out, "</style></head><body>\n<h1>");
    put_html(p, out, p->title);
    put_raw(p, out, "</h1>\n");
    put(p, out, p->head.data, p->head.size_bytes);
    put_raw(p, out,
            "<noscript><p>Everything else on this page needs JavaScript.</p></noscript>\n"
            "<script type=\"application/json\" id=\"ccstream-page\">");
    put_data(p, out);
    put_raw(p, out, "</script>\n<script>\n");
    put(p, out, viewer_js, viewer_js_bytes);
    put_raw(p, out, "</script></body></html>\n");
}

enum status page_end(struct page *p, const char *path, struct error *err) {
    struct byte_buffer out;
    byte_buffer_init(&out, PAGE_MAX_BYTES);
    if (p->has_sections) {
        json_close_array(&p->json);
        json_close_object(&p->json);
        json_close_array(&p->json);
    }
    json_close_object(&p->json);
    if (p->status == STATUS_OK) {
        p->status = json_writer_status(&p->json, &p->error);
    }
    put_page(p, &out);
    enum status s = p->status == STATUS_OK
                        ? file_make_parents(file_posix(), path, err)
                        : error_set(err, p->status, "%s: %s", path, p->error.text);
    THEN(s, file_write_atomic(file_posix(), path, out.data, out.size_bytes, err));
    byte_buffer_fini(&out);
    return s;
}

void page_section(struct page *p, const char *title, bool folded) {
    struct json_writer *j = &p->json;
    if (p->has_sections) {
        json_close_array(j);
        json_close_object(j);
    } else {
        json_open_array(j, "sections");
        p->has_sections = true;
    }
    json_open_object(j, NULL);
    json_string(j, "title", title);
    json_bool(j, "folded", folded);
    json_open_array(j, "items");
}

void page_item(struct page *p, const char *kind, const char *title) {
    json_open_object(&p->json, NULL);
    json_string(&p->json, "kind", kind);
    if (title != NULL) {
        json_string(&p->json, "title", title);
    }
}

/* ---- texts and tables ---- */

/* key NULL: in an array. */
static void write_text(struct page *p, const char *key, const char *fmt, va_list args) {
    char *text;
    if (vasprintf(&text, fmt, args) < 0) {
        p->status = error_set(&p->error, STATUS_NOMEM, "out of memory for a text");
        return;
    }
    json_string(&p->json, key, text);
    free(text);
}

static void put_text(struct page *p, bool small, const char *fmt, va_list args) {
    page_item(p, "text", NULL);
    write_text(p, "text", fmt, args);
    json_bool(&p->json, "small", small);
    json_close_object(&p->json);
}

void page_text(struct page *p, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    put_text(p, false, fmt, args);
    va_end(args);
}

void page_note(struct page *p, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    put_text(p, true, fmt, args);
    va_end(args);
}

static const char *cell_of(const struct page_table *t, size_t row, size_t column) {
    const char *text = t->cells[row * t->column_count + column];
    return text != NULL ? text : "";
}

static void write_table(struct page *p, const struct page_table *t) {
    struct json_writer *j = &p->json;
    json_open_array(j, "columns");
    for (size_t k = 0; k < t->column_count; k++) {
        json_open_object(j, NULL);
        json_string(j, "name", t->columns[k]);
        json_close_object(j);
    }
    json_close_array(j);
    json_open_array(j, "rows");
    for (size_t i = 0; i < t->row_count; i++) {
        json_open_array(j, NULL);
        for (size_t k = 0; k < t->column_count; k++) {
            json_location(j, NULL, cell_of(t, i, k));
        }
        json_close_array(j);
    }
    json_close_array(j);
}

void page_table(struct page *p, const struct page_table *t) {
    page_item(p, "table", t->title);
    write_table(p, t);
    json_close_object(&p->json);
}

static void put_element(struct page *p, const char *open, const char *text, const char *close) {
    char shown[PATH_MAX_BYTES];
    (void)snprintf(shown, sizeof shown, "%s", text);
    (void)redact_locations(shown); /* datasets are named in tables */
    put_raw(p, &p->head, open);
    put_html(p, &p->head, shown);
    put_raw(p, &p->head, close);
}

void page_summary(struct page *p, const struct page_table *t) {
    const bool tiles = t->row_count == 1;
    json_open_object(&p->json, "summary");
    write_table(p, t);
    json_close_object(&p->json);
    if (t->title != NULL) {
        put_element(p, "<p class=\"note\">", t->title, "</p>\n");
    }
    put_raw(p, &p->head, tiles ? "<dl class=\"tiles\">" : "<div class=\"scroll\"><table><tr>");
    for (size_t k = 0; k < t->column_count; k++) {
        if (!tiles) {
            put_element(p, "<th>", t->columns[k], "</th>");
        } else if (cell_of(t, 0, k)[0] != '\0') {
            put_element(p, "<div><dt>", t->columns[k], "</dt>");
            put_element(p, "<dd>", cell_of(t, 0, k), "</dd></div>\n");
        }
    }
    for (size_t i = 0; i < t->row_count && !tiles; i++) {
        put_raw(p, &p->head, "</tr>\n<tr>");
        for (size_t k = 0; k < t->column_count; k++) {
            put_element(p, "<td>", cell_of(t, i, k), "</td>");
        }
    }
    put_raw(p, &p->head, tiles ? "</dl>\n" : "</tr></table></div>\n");
}

void page_fact(struct page *p, const char *name, const char *value) {
    json_open_array(&p->json, NULL);
    json_string(&p->json, NULL, name);
    json_string(&p->json, NULL, value);
    json_close_array(&p->json);
}

void page_value(struct page *p, const char *key, const struct json_value *v) {
    char *text = json_value_text(v);
    if (text != NULL) {
        json_raw(&p->json, key, text, strlen(text));
    } else {
        p->status = error_set(&p->error, STATUS_NOMEM, "out of memory for a JSON value");
    }
    free(text);
}

int page_excerpt_bytes(struct shard_text text, size_t most) {
    size_t end = 0;
    for (size_t i = 0; i < most && end < text.size_bytes; i++) {
        size_t n;
        (void)utf8_decode(text.data + end, text.size_bytes - end, &n);
        end += n;
    }
    return (int)end;
}

void page_excerpt(struct page *p, const char *key, struct shard_text text, size_t most) {
    char *copy;
    const int end = page_excerpt_bytes(text, most);
    if ((size_t)end == text.size_bytes || p->status != STATUS_OK) {
        json_string_n(&p->json, key, text.data, (size_t)end);
    } else if (asprintf(&copy, "%.*s\xE2\x80\xA6", end, text.data) >= 0) {
        json_string(&p->json, key, copy);
        free(copy);
    } else {
        p->status = error_set(&p->error, STATUS_NOMEM, "out of memory for a text");
    }
}

/* ---- images ---- */

void page_images(struct page *p, const char *title, const char *layout) {
    page_item(p, "images", title);
    json_string(&p->json, "layout", layout);
    json_open_array(&p->json, "items");
}

void page_images_end(struct page *p) {
    json_close_array(&p->json);
    json_close_object(&p->json);
}

void page_card(struct page *p,
               const char *mark,
               const void *image,
               size_t image_bytes,
               struct shard_text caption) {
    json_open_object(&p->json, NULL);
    if (p->group[0] != '\0') {
        json_string(&p->json, "group", p->group);
    }
    if (mark != NULL) {
        json_string(&p->json, "mark", mark);
    }
    if (image_bytes > 0) {
        page_image(p, image, image_bytes);
    }
    page_excerpt(p, "caption", caption, p->caption_characters);
    p->has_lines = false;
}

void page_line(struct page *p, const char *mark, const char *fmt, ...) {
    va_list args;
    if (!p->has_lines) {
        json_open_array(&p->json, "lines");
        p->has_lines = true;
    }
    if (mark != NULL) {
        json_open_object(&p->json, NULL);
        json_string(&p->json, "mark", mark);
    }
    va_start(args, fmt);
    write_text(p, mark != NULL ? "text" : NULL, fmt, args);
    va_end(args);
    if (mark != NULL) {
        json_close_object(&p->json);
    }
}

void page_card_end(struct page *p) {
    if (p->has_lines) {
        json_close_array(&p->json);
        p->has_lines = false;
    }
    json_close_object(&p->json);
}

void page_image(struct page *p, const void *data, size_t size_bytes) {
    struct byte_buffer uri;
    struct error err = {0};
    if (p->status != STATUS_OK) {
        return;
    }
    if (p->json.out.size_bytes > p->images_until_bytes) {
        json_string(&p->json, "missing", "image omitted");
        return;
    }
    byte_buffer_init(&uri, 0);
    if (thumbnail_make(&uri, p->decoder, p->image_px, data, size_bytes, &err) != STATUS_OK) {
        json_string(&p->json, "missing", err.text);
    } else {
        json_string_n(&p->json, "src", (const char *)uri.data, uri.size_bytes);
        if (!p->has_plain) {
            put_raw(p, &p->head, "<figure class=\"plain\"><img alt=\"\" src=\"");
            put(p, &p->head, uri.data, uri.size_bytes);
            put_raw(p, &p->head, "\"></figure>\n");
            p->has_plain = true;
        }
    }
    byte_buffer_fini(&uri);
}

/* ---- figures ---- */

/* What is seen without the viewer. */
static void draw_plain(struct page *p, const struct page_bars *b) {
    double most = 0.0;
    for (size_t i = 0; i < b->count; i++) {
        most = fmax(most, b->values[i]);
    }
    put_element(p, "<figure class=\"plain\"><figcaption>", b->title, "</figcaption>");
    put_number(p, "<svg viewBox=\"0 0 %d %zu\" font-size=\"13\" fill=\"currentColor\">",
               PLAIN_WIDTH, PLAIN_ROW * b->count);
    for (size_t i = 0; i < b->count; i++) {
        const double value = isfinite(b->values[i]) ? b->values[i] : 0.0;
        const double width = most > 0.0 ? (PLAIN_WIDTH - 2 * PLAIN_LEFT) * value / most : 0.0;
        put_number(p, "<text y=\"%zu\">", PLAIN_ROW * i + 14);
        put_element(p, "", b->names[i], "</text>");
        put_number(p,
                   "<rect x=\"%d\" y=\"%zu\" width=\"%.1f\" height=\"%d\" "
                   "fill=\"var(--c1)\"/>",
                   PLAIN_LEFT, PLAIN_ROW * i, width, PLAIN_ROW - 3);
        put_number(p, "<text x=\"%.1f\" y=\"%zu\">%.6g</text>", PLAIN_LEFT + width + 5,
                   PLAIN_ROW * i + 14, value);
    }
    put_raw(p, &p->head, "</svg></figure>\n");
    p->has_plain = true;
}

static void write_axis(struct page *p, const char *key, const char *title) {
    json_open_object(&p->json, key);
    json_string(&p->json, "title", title);
    json_close_object(&p->json);
}

void page_bars(struct page *p, const struct page_bars *b) {
    struct json_writer *j = &p->json;
    if (!p->has_plain) {
        draw_plain(p, b);
    }
    page_item(p, "bars", b->title);
    write_axis(p, "x", b->x);
    write_axis(p, "y", b->y);
    json_open_array(j, "series");
    json_open_object(j, NULL);
    json_string(j, "name", "");
    json_strings(j, "x", b->names, b->count);
    json_strings(j, "texts", b->texts, b->count);
    json_open_array(j, "y");
    for (size_t i = 0; i < b->count; i++) {
        json_double(j, NULL, b->values[i]); /* null where it is not finite */
    }
    json_close_array(j);
    json_close_object(j);
    json_close_array(j);
    json_bool(j, "horizontal", true);
    if (b->note != NULL) {
        json_string(j, "note", b->note);
    }
    json_close_object(j);
}
