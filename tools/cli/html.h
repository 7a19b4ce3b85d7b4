/*
 * html: pages that hold their pictures: one file that a browser shows without anything beside it.
 *
 * Threading : single-owner.
 * Ownership : the page owns its text until html_fini.
 * Untrusted : texts and pictures: texts are escaped, pictures decoded and made anew.
 */
#ifndef TOOLS_CLI_HTML_H
#define TOOLS_CLI_HTML_H

#include <stddef.h>

#include "formats/base/bytes.h"
#include "formats/base/file_io.h"
#include "formats/image/image_codec.h"

enum { HTML_MAX_BYTES = 512 << 20, HTML_IMAGE_PX = 192 };

struct html_page {
    struct byte_buffer out;
    struct image_decoder *decoder;
    enum status status; /* of the first call that failed; later ones do nothing */
    struct error error;
};

/* Begins a page. What goes wrong is reported by html_write. */
void html_init(struct html_page *p, const char *title);
void html_fini(struct html_page *p);

/* Markup as it is, with printf's formats for numbers; texts from outside go through html_text. */
void html_markup(struct html_page *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A text, escaped. */
void html_text(struct html_page *p, const char *text, size_t size_bytes);

/* A picture as an <img> whose longer side is at most HTML_IMAGE_PX; one that does not decode as a
 * note that says so. */
void html_image(struct html_page *p, const void *data, size_t size_bytes);

/* Ends the page and writes it atomically. Returns OK, IO, NOMEM or LIMIT. */
enum status html_write(struct html_page *p, const char *path, struct error *err);

#endif
