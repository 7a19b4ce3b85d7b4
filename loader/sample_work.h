/*
 * sample_work: the work on one sample whose bytes are in memory: the image is verified, decoded,
 * cropped and scaled, and a caption is chosen, cleaned and tokenized. The loader's threads call it,
 * and so does the benchmark that measures these functions without a loader.
 *
 * Threading : one owner; distinct objects are independent.
 * Ownership : borrows the sources and the tokenizer for its life; outputs are the caller's memory.
 * Untrusted : image bytes and captions.
 */
#ifndef LOADER_SAMPLE_WORK_H
#define LOADER_SAMPLE_WORK_H

#include <stdint.h>

#include "formats/base/status.h"
#include "loader/loader.h"
#include "loader/sources.h"

struct sample_work; /* opaque */

/* Uses image_size_px, augment, crop_min, crop_max, interpolation, caption, hooks, views,
 * fixed_views, positives, captions, pair_noise, seed, max_tokens, clean_captions and verify_images
 * of `opt`. `tokenizer` may be NULL. Returns OK, NOMEM or INVALID. */
enum status sample_work_create(struct sample_work **out,
                               const struct loader_options *opt,
                               const struct sources *sources,
                               const struct tokenizer *tokenizer,
                               struct error *err);
void sample_work_destroy(struct sample_work *w); /* accepts NULL */

/* Writes S * S * 3 pixels, or the output of hooks.pixels, to out_views[v] for each view v of row
 * `positive` of the sample. `span` holds image_span_bytes bytes as read from the shard; they are
 * rearranged in place, and a second call with them gives the same result. Returns OK, NOMEM, or
 * CORRUPT, UNSUPPORTED or LIMIT for an image that cannot be used. */
enum status sample_work_image(struct sample_work *w,
                              uint8_t *const out_views[AUGMENT_MAX_VIEWS],
                              const struct source_sample *source,
                              uint8_t *span,
                              uint64_t epoch,
                              uint32_t positive,
                              struct error *err);

/* image_decoder_ignored of the last image. */
unsigned sample_work_ignored(const struct sample_work *w);

/* Writes max_tokens ids, the number of tokens before the padding, and which caption of its sample
 * it is (0 without captions). Returns OK, NOMEM or CORRUPT. */
enum status sample_work_text(struct sample_work *w,
                             int32_t *out_row,
                             int32_t *out_length,
                             uint64_t *out_text_id,
                             uint32_t *out_caption,
                             const struct source_sample *source,
                             uint64_t epoch,
                             uint32_t positive,
                             struct error *err);

/* Calls hooks.sample, if there is one, with the caption of the last sample_work_text and the image
 * that `span` has after sample_work_image. Returns OK or what the hook returns. */
enum status sample_work_hook(struct sample_work *w,
                             uint32_t slot,
                             uint32_t row,
                             const struct source_sample *source,
                             const uint8_t *span,
                             struct error *err);

#endif
