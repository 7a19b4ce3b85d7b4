#include "tools/ccpack/captions.h"

#include <stdlib.h>
#include <string.h>

#include "augment/caption.h"

enum status caption_walk_init(struct caption_walk *w,
                              const struct dataset *d,
                              bool clean,
                              struct cli_progress *progress,
                              struct error *err) {
    *w = (struct caption_walk){.dataset = d, .clean = clean, .progress = progress};
    return caption_reader_create(&w->reader, d, err);
}

void caption_walk_fini(struct caption_walk *w) {
    caption_reader_destroy(w->reader);
    free(w->cleaned);
    memset(w, 0, sizeof(*w));
}

/* Moves to the next sample with a caption; END after the last. */
static enum status find_caption(struct caption_walk *w, struct error *err) {
    while (w->caption == w->sample.text_count) {
        if (w->position == dataset_sample_count(w->dataset)) {
            return STATUS_END;
        }
        TRY(dataset_sample_at(w->dataset, w->position++, &w->sample, err));
        w->caption = 0;
    }
    return STATUS_OK;
}

static enum status
clean(struct caption_walk *w, const char **text, size_t *size_bytes, struct error *err) {
    size_t bound = CAPTION_CLEAN_BOUND_BYTES(*size_bytes);
    if (bound > w->cleaned_bytes) {
        char *grown = realloc(w->cleaned, bound);
        TRY_MEMORY(grown, err, "out of memory for a caption");
        w->cleaned = grown;
        w->cleaned_bytes = bound;
    }
    *size_bytes = caption_clean(w->cleaned, *text, *size_bytes);
    *text = w->cleaned;
    return STATUS_OK;
}

enum status
caption_walk_next(void *walk, const char **text, size_t *size_bytes, struct error *err) {
    struct caption_walk *w = walk;
    struct shard_text caption;
    FAIL_IF(cli_interrupted(), err, STATUS_INTERRUPTED, "interrupted");
    enum status s = find_caption(w, err);
    if (s != STATUS_OK) {
        return s;
    }
    TRY(caption_reader_get(w->reader, &w->sample, w->caption++, &caption, err));
    *text = caption.data;
    *size_bytes = caption.size_bytes;
    if (w->clean) {
        TRY(clean(w, text, size_bytes, err));
    }
    w->count++;
    cli_progress_update(w->progress, w->count, dataset_text_count(w->dataset), 0, NULL);
    return STATUS_OK;
}
