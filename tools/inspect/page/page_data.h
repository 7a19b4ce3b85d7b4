/*
 * page_data: what a command passes to the program that writes its page: a JSON object with its
 * result and the images of its samples. ccstudy/command_page.py writes the page.
 *
 * Threading : single-owner.
 * Ownership : the data own their text until page_data_fini; arguments are borrowed for the call.
 * Untrusted : the images, which are decoded and re-encoded.
 */
#ifndef TOOLS_INSPECT_PAGE_PAGE_DATA_H
#define TOOLS_INSPECT_PAGE_PAGE_DATA_H

#include "formats/base/json_writer.h"
#include "formats/image/image_codec.h"
#include "tools/inspect/input.h"
#include "train/run/checkpoint.h"

enum { PAGE_IMAGE_PX = 192 };

struct page_data {
    struct json_writer json; /* fields of the open object */
    struct image_decoder *decoder;
    int32_t image_px; /* longer side of images; default PAGE_IMAGE_PX */
    const char *path;
};

/* Call before the work, instead of output_check_file: checks that the page can be written. path
 * NULL: no page. Returns OK, EXISTS, USAGE, or UNSUPPORTED (the program is missing). */
enum status page_check(const char *path, bool force, struct error *err);

/* On failure there is nothing to free. `path` is borrowed until page_data_write. */
enum status page_data_begin(struct page_data *d, const char *path, struct error *err);
void page_data_fini(struct page_data *d);

/* Writes the current sample of an input, or each of `ids` once, as an array, as thumbnail_write.
 * Sorts the ids. */
enum status page_data_sample(struct page_data *d,
                             struct input *in,
                             const struct sample_facts *f,
                             struct error *err);
enum status page_data_samples(struct page_data *d,
                              const char *key,
                              struct input *in,
                              uint64_t *ids,
                              size_t count,
                              struct error *err);

/* Writes the fields "checkpoint", "loss", "tau", "epoch" and "step". */
void page_data_checkpoint(struct page_data *d, const struct checkpoint *c, double tau);

/* Replaces this process by the program that writes the page; call it last, after everything on
 * stdout. Returns only on failure: IO, NOMEM, LIMIT or UNSUPPORTED. */
enum status page_data_write(struct page_data *d, struct error *err);

#endif
