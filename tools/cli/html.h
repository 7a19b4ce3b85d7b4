/*
 * html: a page in one file that contains its pictures.
 *
 * Threading : single-owner.
 * Ownership : the page owns its text until html_fini.
 * Untrusted : texts, which are escaped, and pictures, which are decoded and encoded again.
 */
#ifndef TOOLS_CLI_HTML_H
#define TOOLS_CLI_HTML_H

#include <stddef.h>

#include "formats/base/bytes.h"
#include "formats/base/file_io.h"
#include "formats/image/image_codec.h"
#include "formats/shard/shard.h"

enum { HTML_MAX_BYTES = 512 << 20, HTML_IMAGE_PX = 192, HTML_ALT_CHARACTERS = 300 };

struct html_page {
    struct byte_buffer out;
    struct image_decoder *decoder;
    int32_t image_px;          /* longer side of pictures; HTML_IMAGE_PX */
    size_t images_until_bytes; /* a page that is larger shows captions in place of more pictures;
                                  HTML_MAX_BYTES */
    enum status status;        /* of the first call that failed; later calls do nothing */
    struct error error;
};

/* Begins a page. html_write reports failures of this and all other functions. */
void html_init(struct html_page *p, const char *title);
void html_fini(struct html_page *p);

/* Appends markup with printf formats for numbers. Untrusted texts must go through html_text. */
void html_markup(struct html_page *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Append markup of any length as it is. */
void html_raw(struct html_page *p, const char *markup);
void html_bytes(struct html_page *p, const void *markup, size_t size_bytes);

/* Appends a text, escaped. Control characters become spaces, as do those that change the direction
 * of writing; bytes that are not UTF-8 become U+FFFD. */
void html_text(struct html_page *p, const char *text, size_t size_bytes);

/* The same of at most `most` characters; an ellipsis stands for the rest. */
void html_excerpt(struct html_page *p, struct shard_text text, size_t most);

/* Appends a paragraph in small print: markup, then a text. */
void html_note(struct html_page *p, const char *markup, const char *text);

/* Appends a picture as an <img> with a longer side of at most image_px, or the reason why it
 * does not decode. alt: what stands for it where it is not seen, its caption. */
void html_image(struct html_page *p, const void *data, size_t size_bytes, struct shard_text alt);

/* Ends the page and writes it atomically. Returns OK, IO, NOMEM or LIMIT. */
enum status html_write(struct html_page *p, const char *path, struct error *err);

#endif
