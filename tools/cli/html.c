/*
 * html: a style sheet, escaped text, and pictures as small JPEGs in base64.
 */
#include "tools/cli/html.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "augment/resize.h"
#include "formats/base/utf8.h"
#include "tools/cli/cli_text.h"

enum { QUALITY = 80, MAX_MARKUP_BYTES = 1024 };

/* Rows of 2, 3 or 6 cards by the width of the window: pages with 6 or 12 have no ragged row. */
static const char STYLE[] =
    ":root{color-scheme:light dark;--text:#1d2126;--soft:#56606b;--line:#d0d6dd;--back:#fff;"
    "--card:#f5f7f9;--right:#0a6b39;--wrong:#96302f;"
    "--c1:#0072b2;--c2:#d55e00;--c3:#009e73;--c4:#cc79a7;"
    "--c5:#8a6d00;--c6:#56b4e9;--c7:#e69f00;--c8:#777}"
    "@media(prefers-color-scheme:dark){:root{--text:#e6e8eb;--soft:#a6afb9;--line:#3c444d;"
    "--back:#15181c;--card:#1f242a;--right:#62d497;--wrong:#f3a5a3;"
    "--c1:#4da6e0;--c2:#f28144;--c3:#2cc295;--c4:#e3a1c6;"
    "--c5:#c4a63a;--c6:#9ad4f7;--c7:#f5c04f;--c8:#a3a3a3}}"
    "*{box-sizing:border-box}"
    "body{font:16px/1.45 system-ui,sans-serif;margin:0 auto;max-width:1240px;padding:1rem;"
    "color:var(--text);background:var(--back)}"
    "h1{font-size:1.5rem;margin:.5rem 0;overflow-wrap:anywhere}h2{font-size:1.25rem;margin:2.5rem "
    "0 .5rem}"
    "h3{font-size:1rem;margin:1.5rem 0 .4rem;overflow-wrap:anywhere}h3 .number{font-weight:400}"
    "dl{display:flex;flex-wrap:wrap;gap:.4rem 2rem;margin:0 0 1rem}"
    "dt{font-size:.8rem;color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}"
    "table{border-collapse:collapse;margin:0 0 1rem}"
    "caption{text-align:left;color:var(--soft);padding:0 0 .3rem;position:sticky;left:0;"
    "max-width:calc(100vw - 2rem)}"
    "th{white-space:nowrap}th,td{padding:.15rem .75rem .15rem "
    "0;text-align:left}td{font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".runs{font-size:.85rem}.runs td,.runs tr+tr th{vertical-align:top}"
    ".runs tr+tr th{font-weight:400;white-space:normal;overflow-wrap:anywhere;min-width:8rem}"
    ".grid,.wide{display:grid;gap:.75rem;grid-template-columns:repeat(2,minmax(0,1fr))}"
    ".wide{grid-template-columns:minmax(0,1fr)}"
    "@media(min-width:700px){.wide{grid-template-columns:repeat(2,minmax(0,1fr))}}"
    "@media(min-width:600px){.grid{grid-template-columns:repeat(3,minmax(0,1fr))}}"
    "@media(min-width:1000px){.grid{grid-template-columns:repeat(6,minmax(0,1fr))}}"
    "figure{margin:0;border:1px solid var(--line);border-radius:6px;padding:8px;"
    "background:var(--card)}"
    "figure.own{background:none}figure.right{border:2px solid var(--right);padding:7px}"
    "figure img{width:100%;height:9rem;object-fit:contain;display:block;margin:0 0 6px}"
    "figcaption{font-size:.85rem;overflow-wrap:anywhere}"
    ".scroll{overflow-x:auto}.chart>svg{width:100%;height:auto;display:block}"
    ".legend{display:flex;flex-wrap:wrap;gap:.15rem 1rem;font-size:.85rem;margin:0 0 .3rem}"
    ".legend span{overflow-wrap:anywhere}.legend "
    "svg{width:32px;height:14px;margin-right:.4rem;vertical-align:-2px}"
    ".chart{container-type:inline-size;position:relative}"
    "@container(max-width:480px){.chart>svg{font-size:19px}}"
    ".chart .cursor{stroke:var(--soft);stroke-dasharray:3 3;display:none}"
    ".chart .values{display:none;position:absolute;z-index:1;pointer-events:none;"
    "white-space:pre-wrap;overflow-wrap:anywhere;max-width:60%;width:max-content;font-size:.8rem;"
    "padding:.3rem .5rem;border:1px solid var(--line);"
    "border-radius:4px;background:var(--back)}"
    ".chart figcaption{font-weight:600;margin:0 0 .3rem}"
    "summary{cursor:pointer;font-size:.85rem;color:var(--soft)}"
    "figure p.number{font-size:.85rem;margin:.1rem 0 .4rem}"
    ".bars{width:100%;font-size:.85rem;margin:0}.bars th{font-weight:400;text-align:right}"
    ".bars td{text-align:right;padding-left:.5rem}.bars .bar{width:100%;padding-left:0}"
    ".bar div{background:var(--c1);height:.8rem;min-width:1px;border-radius:0 2px 2px 0;"
    "print-color-adjust:exact;-webkit-print-color-adjust:exact}"
    ".sample{display:grid;gap:1rem 1.5rem;margin:0 0 2rem}.sample img{max-width:100%;height:auto;"
    "border-radius:6px}.sample ol{padding-left:1.2rem;margin:0 0 1rem}"
    "@media(min-width:700px){.sample{grid-template-columns:20rem minmax(0,1fr)}}"
    ".tiles{gap:.75rem 2.25rem}.tiles dd{font-size:1.2rem;font-variant-numeric:tabular-nums}"
    ".row{display:grid;grid-template-columns:8rem minmax(0,1fr);gap:.75rem}"
    ".row img{width:100%;height:8rem;object-fit:contain}"
    "ol{margin:0;padding-left:1.5rem;overflow-wrap:anywhere}"
    "pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:0 0 1rem;padding:.5rem .75rem;"
    "border:1px solid var(--line);border-radius:6px;background:var(--card);font-size:.85rem}"
    ".mark{font-weight:600}.right .mark{color:var(--right)}.wrong .mark{color:var(--wrong)}"
    ".number{color:var(--soft);font-variant-numeric:tabular-nums}";

/* A string of its own, as C11 promises no longer ones. */
static const char PRINT_STYLE[] =
    "@media print{body{max-width:none;padding:0;font-size:11pt}"
    "figure,.row,.grid,tr,dl div{break-inside:avoid}figure "
    "img{height:5.5rem}h2,h3,figcaption{break-after:avoid}"
    ".together{display:inline-block;width:100%}" /* what Chromium does not tear apart */
    ".rows{display:block;columns:2}.rows .row{display:flex;margin:0 0 .75rem}"
    ".rows .row>:first-child{width:6rem;flex:none}"
    "details::details-content{content-visibility:visible;block-size:auto}"
    ".wide{grid-template-columns:repeat(2,minmax(0,1fr))}"
    ".grid{grid-template-columns:repeat(6,minmax(0,1fr))}.chart details{display:none}}";

void html_bytes(struct html_page *p, const void *data, size_t size_bytes) {
    if (p->status == STATUS_OK) {
        p->status = byte_buffer_append(&p->out, data, size_bytes, &p->error);
    }
}

void html_raw(struct html_page *p, const char *markup) {
    html_bytes(p, markup, strlen(markup));
}

void html_markup(struct html_page *p, const char *fmt, ...) {
    char text[MAX_MARKUP_BYTES];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    html_bytes(p, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
}

void html_text(struct html_page *p, const char *text, size_t size_bytes) {
    for (size_t i = 0; i < size_bytes;) {
        size_t n;
        const uint32_t code = utf8_decode(text + i, size_bytes - i, &n);
        const char *escaped = code == '<'                 ? "&lt;"
                              : code == '>'               ? "&gt;"
                              : code == '&'               ? "&amp;"
                              : code == '"'               ? "&quot;"
                              : code == UTF8_NO_CHARACTER ? "\xEF\xBF\xBD"
                              : code == '\n'              ? "\n"
                              : cli_is_control(code)      ? " "
                                                          : NULL;
        html_bytes(p, escaped != NULL ? escaped : text + i, escaped != NULL ? strlen(escaped) : n);
        i += n;
    }
}

void html_excerpt(struct html_page *p, struct shard_text text, size_t most) {
    size_t end = 0;
    for (size_t i = 0; i < most && end < text.size_bytes; i++) {
        size_t n;
        (void)utf8_decode(text.data + end, text.size_bytes - end, &n);
        end += n;
    }
    html_text(p, text.data, end);
    html_raw(p, end < text.size_bytes ? "&hellip;" : "");
}

void html_init(struct html_page *p, const char *title) {
    memset(p, 0, sizeof *p);
    p->image_px = HTML_IMAGE_PX;
    p->images_until_bytes = HTML_MAX_BYTES;
    byte_buffer_init(&p->out, HTML_MAX_BYTES);
    p->status = image_decoder_create(&p->decoder, NULL, &p->error);
    html_raw(p, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>");
    html_text(p, title, strlen(title));
    html_raw(p, "</title><style>");
    html_raw(p, STYLE);
    html_raw(p, PRINT_STYLE);
    html_raw(p, "</style></head><body>\n<h1>");
    html_text(p, title, strlen(title));
    html_raw(p, "</h1>\n");
}

void html_fini(struct html_page *p) {
    byte_buffer_fini(&p->out);
    image_decoder_destroy(p->decoder);
    memset(p, 0, sizeof *p);
}

void html_note(struct html_page *p, const char *markup, const char *text) {
    html_raw(p, "<p class=\"number\">");
    html_raw(p, markup);
    html_text(p, text, strlen(text));
    html_raw(p, "</p>\n");
}

static void append_base64(struct html_page *p, const uint8_t *data, size_t size_bytes) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size_bytes; i += 3) {
        const size_t left = size_bytes - i;
        const uint32_t group = (uint32_t)data[i] << 16 |
                               (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                               (left > 2 ? (uint32_t)data[i + 2] : 0);
        const char four[4] = {digits[group >> 18], digits[group >> 12 & 63],
                              left > 1 ? digits[group >> 6 & 63] : '=',
                              left > 2 ? digits[group & 63] : '='};
        html_bytes(p, four, sizeof four);
    }
}

/* Encodes the picture as a small JPEG. */
static enum status make_small(struct html_page *p,
                              struct byte_buffer *jpeg,
                              const void *data,
                              size_t size_bytes,
                              struct error *err) {
    struct image_info info;
    struct image_view view;
    struct image_box box;
    TRY(image_probe(&info, data, size_bytes, NULL, err));
    const int32_t longer = info.width_px > info.height_px ? info.width_px : info.height_px;
    const int32_t most = longer < p->image_px ? longer : p->image_px;
    const int32_t width = (int32_t)((int64_t)info.width_px * most / longer);
    const int32_t height = (int32_t)((int64_t)info.height_px * most / longer);
    const struct image_decode_options how = {.min_width_px = width > 0 ? width : 1,
                                             .min_height_px = height > 0 ? height : 1};
    TRY(image_decode(p->decoder, &view, &box, data, size_bytes, &how, err));
    struct image_view out = {.width_px = how.min_width_px,
                             .height_px = how.min_height_px,
                             .stride_bytes = (size_t)how.min_width_px * 3};
    out.data = malloc(out.stride_bytes * (size_t)out.height_px);
    if (out.data == NULL) {
        return error_set(err, STATUS_NOMEM, "out of memory for a picture");
    }
    struct resize_scratch scratch;
    resize_scratch_init(&scratch);
    enum status s = resize_image(&out, &view, &box, NULL, RESIZE_BICUBIC, false, &scratch, err);
    if (s == STATUS_OK) {
        s = image_encode_jpeg(jpeg, &out, QUALITY, err);
    }
    resize_scratch_fini(&scratch);
    free(out.data);
    return s;
}

void html_image(struct html_page *p, const void *data, size_t size_bytes, struct shard_text alt) {
    struct byte_buffer jpeg;
    struct error err = {0};
    if (p->status != STATUS_OK) {
        return;
    }
    if (p->out.size_bytes > p->images_until_bytes) {
        html_note(p, "picture omitted", "");
        return;
    }
    byte_buffer_init(&jpeg, 0);
    const enum status s = make_small(p, &jpeg, data, size_bytes, &err);
    if (s == STATUS_OK) {
        html_raw(p, "<img alt=\"");
        html_excerpt(p, alt, HTML_ALT_CHARACTERS);
        html_raw(p, "\" src=\"data:image/jpeg;base64,");
        append_base64(p, jpeg.data, jpeg.size_bytes);
        html_raw(p, "\">");
    } else {
        html_note(p, "", err.text);
    }
    byte_buffer_fini(&jpeg);
}

enum status html_write(struct html_page *p, const char *path, struct error *err) {
    html_raw(p, "</body></html>\n");
    if (p->status != STATUS_OK) {
        return error_set(err, p->status, "%s: %s", path, p->error.text);
    }
    return file_write_atomic(file_posix(), path, p->out.data, p->out.size_bytes, err);
}
