/*
 * page_data: what a command hands over to the program that writes its page: one JSON object with
 * its result and the images of the samples that it names. ccstudy/command_page.py makes the page.
 *
 * Threading : single-owner.
 * Ownership : the data own their text until page_data_fini; all arguments are borrowed.
 * Untrusted : the images, which are decoded and encoded again.
 */
#ifndef TOOLS_INSPECT_PAGE_PAGE_DATA_H
#define TOOLS_INSPECT_PAGE_PAGE_DATA_H

#include "formats/base/json_writer.h"
#include "formats/image/image_codec.h"
#include "tools/inspect/input.h"
#include "train/run/checkpoint.h"

enum { PAGE_IMAGE_PX = 192 };

struct page_data {
    struct json_writer json; /* members of the object, which is open */
    struct image_decoder *decoder;
    int32_t image_px; /* longer side of images; PAGE_IMAGE_PX */
    const char *path;
};

/* Before the work, instead of output_check_file: whether this page may be written, and can be.
 * path NULL: none is wanted. Returns OK, EXISTS, USAGE, or UNSUPPORTED without the program. */
enum status page_check(const char *path, bool force, struct error *err);

/* On failure there is nothing to free. `path` must stay until page_data_write. */
enum status page_data_begin(struct page_data *d, const char *path, struct error *err);
void page_data_fini(struct page_data *d);

/* The current sample of an input, or every one of `ids`, once each, as an array: as
 * thumbnail_write does. Sorts the ids. */
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

/* Members "checkpoint", "loss", "tau", "epoch" and "step". */
void page_data_checkpoint(struct page_data *d, const struct checkpoint *c, double tau);

/* The command's last act, after everything on stdout: this process becomes the program that writes
 * the page. Returns only where that fails: IO, NOMEM, LIMIT or UNSUPPORTED. */
enum status page_data_write(struct page_data *d, struct error *err);

#endif
