/*
 * page: one HTML file with data as JSON and the viewer that draws it; README.md defines the format.
 *
 * Threading : single-owner.
 * Ownership : the page owns its text until page_fini; all arguments are borrowed for the call.
 * Untrusted : all texts: page_end escapes them, and replaces control characters; and images, which
 * are decoded and encoded again.
 *
 *     struct page p;
 *     page_begin(&p, "title");
 *     page_summary(&p, &table);
 *     page_section(&p, "Training");
 *     page_figure(&p, &figure);
 *     status = page_end(&p, "page.html", err);
 *     page_fini(&p);
 *
 * Failures are sticky; page_end reports the first.
 */
#ifndef TOOLS_INSPECT_PAGE_PAGE_H
#define TOOLS_INSPECT_PAGE_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/bytes.h"
#include "formats/base/json_writer.h"
#include "formats/base/status.h"
#include "formats/image/image_codec.h"
#include "formats/json/json_reader.h"
#include "formats/shard/shard.h"

enum { PAGE_MAX_BYTES = 512 << 20, PAGE_IMAGE_PX = 192, PAGE_CAPTION_CHARACTERS = 240 };

struct page {
    struct json_writer json; /* DATA */
    struct byte_buffer head; /* what follows the title, as HTML */
    char title[256];
    struct image_decoder *decoder;
    int32_t image_px;          /* longer side of images; PAGE_IMAGE_PX */
    size_t images_until_bytes; /* a page that is larger has no further images; PAGE_MAX_BYTES */
    size_t caption_characters; /* that are shown of a longer one; PAGE_CAPTION_CHARACTERS */
    bool has_sections, has_plain, has_lines;
    char group[512]; /* heading of images that follow; "": none */
    enum status status;
    struct error error;
};

void page_begin(struct page *p, const char *title);
void page_fini(struct page *p);

/* Writes the page atomically. Returns OK, IO, NOMEM or LIMIT. */
enum status page_end(struct page *p, const char *path, struct error *err);

/* The writer of DATA, for items that have no function here. */
struct json_writer *page_json(struct page *p);

/* Cells are texts; NULL or "": empty. */
struct page_table {
    const char *title;
    const char *const *columns; /* (column_count) */
    size_t column_count;
    const char *const *cells; /* (row_count, column_count) */
    size_t row_count;
};

/* Before the first section. Of one row, empty cells are omitted. */
void page_summary(struct page *p, const struct page_table *t);

/* Begins a section, and ends the one before. title NULL: none. folded: closed until clicked. Items
 * need a section. */
void page_section(struct page *p, const char *title, bool folded);

/* Opens an item; json_close_object(page_json(p)) closes it. title NULL: none. */
void page_item(struct page *p, const char *kind, const char *title);
/* The same of images; `items` is open, and json_close_array comes first. layout: "cards", "rows" or
 * "wide". */
void page_images(struct page *p, const char *title, const char *layout);
void page_images_end(struct page *p);

/* One of these images, opened for further members
 * and then lines. mark: "right", "wrong", "own" or NULL. image_bytes 0: none. Images of one
 * page->group stand together below that name. */
void page_card(struct page *p,
               const char *mark,
               const void *image,
               size_t image_bytes,
               struct shard_text caption);
void page_line(struct page *p, const char *mark, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void page_card_end(struct page *p);

void page_table(struct page *p, const struct page_table *t);
/* A paragraph; page_note: in small print. */
void page_text(struct page *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void page_note(struct page *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A fact: a name and a value, in an open array of them. */
void page_fact(struct page *p, const char *name, const char *value);
/* A member that was read as JSON; NULL: null. */
void page_value(struct page *p, const char *key, const struct json_value *v);

/* Members of an open object: a text of at most `most` characters, and an image with a longer side
 * of at most image_px, or the reason why it does not decode. */
void page_excerpt(struct page *p, const char *key, struct shard_text text, size_t most);
/* Bytes of the first `most` characters, for formats with %.*s. */
int page_excerpt_bytes(struct shard_text text, size_t most);
void page_image(struct page *p, const void *data, size_t size_bytes);

/* Horizontal bars, the first at the top. */
struct page_bars {
    const char *title, *note;
    const char *x, *y;        /* titles of the axes of names and of values */
    const char *const *names; /* (count) */
    const double *values;     /* (count); not finite: no bar */
    const char *const *texts; /* (count): shown beside the values */
    size_t count;
};
void page_bars(struct page *p, const struct page_bars *b);

#endif
