/*
 * captions: all captions of a dataset in the order of text ids, as stored or cleaned.
 *
 * Threading : one owner.
 * Ownership : borrows the dataset and the progress line. A text is valid until the next call.
 */
#ifndef TOOLS_CCPACK_CAPTIONS_H
#define TOOLS_CCPACK_CAPTIONS_H

#include "formats/dataset/dataset.h"
#include "tools/cli/cli.h"

struct caption_walk {
    const struct dataset *dataset;
    struct cli_progress *progress;
    bool clean;
    struct caption_reader *reader;
    uint64_t position; /* of the next sample */
    uint32_t caption;  /* the next one of the sample */
    uint64_t count;    /* captions given */
    struct dataset_sample sample;
    char *cleaned;
    size_t cleaned_bytes;
};

/* Returns OK or NOMEM. */
enum status caption_walk_init(struct caption_walk *w,
                              const struct dataset *d,
                              bool clean,
                              struct cli_progress *progress,
                              struct error *err);
void caption_walk_fini(struct caption_walk *w);

/* The next caption. `walk` is a struct caption_walk, so that a tokenizer can use this as its
 * source. Returns OK, END, INTERRUPTED (Ctrl-C), NOMEM or CORRUPT. */
enum status caption_walk_next(void *walk, const char **text, size_t *size_bytes, struct error *err);

#endif
