/*
 * sample_work: calls the functions of formats/ and augment/ that make a training sample. All random
 * draws are keyed by (seed, epoch, sample id), crops also by view, so neither the thread nor the
 * time of the work matters.
 */
#include "loader/sample_work.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "augment/pipeline.h"
#include "formats/base/hash.h"
#include "formats/base/rng.h"
#include "formats/dataset/dataset.h"
#include "formats/image/image_codec.h"
#include "formats/tokenizer/tokenizer.h"
#include "loader/caption_columns_internal.h"
#include "loader/text_internal.h"

struct sample_work {
    struct loader_options opt;
    struct augment_options augment;
    const struct sources *sources;
    const struct tokenizer *tokenizer;
    struct image_decoder *decoder;
    struct caption_reader *captions[LOADER_MAX_SOURCES];
    struct text_cache caches[LOADER_MAX_SOURCES];
    bool logged_cache; /* that a row of one is damaged */
    struct text_workspace *text;
    struct column_workspace *columns;
    struct augment_workspace workspace;
    uint8_t *rgb;               /* (S, S, 3) for hooks.pixels; NULL without */
    struct shard_text text_now; /* of the last sample_work_text, borrowed; NULL: none */
};

enum status sample_work_create(struct sample_work **out,
                               const struct loader_options *opt,
                               const struct sources *sources,
                               const struct tokenizer *tokenizer,
                               struct error *err) {
    REQUIRE(out != NULL && opt != NULL && sources != NULL);
    *out = NULL;
    struct sample_work *w = calloc(1, sizeof(*w));
    TRY_MEMORY(w != NULL, err, "out of memory for a decoding thread");
    enum status s;
    w->opt = *opt;
    w->sources = sources;
    w->tokenizer = tokenizer;
    augment_options_default(&w->augment, opt->augment);
    w->augment.size_px = (int32_t)opt->image_size_px;
    if (opt->crop_max > 0.0) {
        w->augment.crop.scale_min = opt->crop_min;
        w->augment.crop.scale_max = opt->crop_max;
    }
    if (opt->interpolation != 0) {
        w->augment.filter = opt->interpolation;
    }
    augment_workspace_init(&w->workspace);
    if (opt->hooks.pixels != NULL) {
        w->rgb = malloc((size_t)3 * opt->image_size_px * opt->image_size_px);
        s = w->rgb != NULL ? STATUS_OK : error_set(err, STATUS_NOMEM, "out of memory for pixels");
        TRY_OR_FAIL(s, s);
    }
    TRY_OR_FAIL(s, image_decoder_create(&w->decoder, NULL, err));
    for (uint32_t i = 0; i < sources->count; i++) {
        const struct dataset *d = sources->items[i].dataset;
        TRY_OR_FAIL(s, caption_reader_create(&w->captions[i], d, err));
        if (tokenizer != NULL) {
            struct error why = {0};
            (void)text_cache_init(&w->caches[i], d, tokenizer, opt->clean_captions, &why);
        }
    }
    TRY_OR_FAIL(s, text_workspace_create(&w->text, err));
    TRY_OR_FAIL(s, column_workspace_create(&w->columns, err));
fail:
    RETURN_CREATED(s, out, w, sample_work_destroy);
}

void sample_work_destroy(struct sample_work *w) {
    if (w == NULL) {
        return;
    }
    image_decoder_destroy(w->decoder);
    for (uint32_t i = 0; i < LOADER_MAX_SOURCES; i++) {
        caption_reader_destroy(w->captions[i]);
    }
    text_workspace_destroy(w->text);
    column_workspace_destroy(w->columns);
    augment_workspace_fini(&w->workspace);
    free(w->rgb);
    free(w);
}

/* The size that crops are drawn for. It comes from the index where that has one; the decoder then
 * detects a file whose header has another size. */
static enum status image_size(int32_t *width_px,
                              int32_t *height_px,
                              const struct dataset_sample *sample,
                              const uint8_t *image,
                              bool as_stored,
                              struct error *err) {
    if (sample->width_px > 0 && sample->height_px > 0 && !as_stored) {
        *width_px = (int32_t)sample->width_px;
        *height_px = (int32_t)sample->height_px;
        return STATUS_OK;
    }
    struct image_info info;
    TRY(image_probe(&info, image, sample->image_bytes, NULL, err));
    *width_px = as_stored ? info.raw_width_px : info.width_px;
    *height_px = as_stored ? info.raw_height_px : info.height_px;
    return STATUS_OK;
}

/* One decode for all views: of the part of the image that covers the crops of all of them. */
static enum status make_views(struct sample_work *w,
                              uint8_t *const out_views[AUGMENT_MAX_VIEWS],
                              const struct dataset_sample *sample,
                              const uint8_t *image,
                              uint64_t epoch,
                              uint32_t positive,
                              struct error *err) {
    int32_t width_px = 0;
    int32_t height_px = 0;
    TRY(image_size(&width_px, &height_px, sample, image, w->opt.as_stored, err));
    struct augment_params params[AUGMENT_MAX_VIEWS];
    for (uint32_t v = 0; v < w->opt.views; v++) {
        augment_draw(&params[v], &w->augment, width_px, height_px, w->opt.seed,
                     w->opt.fixed_views ? 0 : epoch, sample->sample_id, positive + v);
    }
    struct augment_part part;
    augment_decode(&part, params, (int)w->opt.views);
    struct image_decode_options how = {
        .region = part.region,
        .min_width_px = part.min_width_px,
        .min_height_px = part.min_height_px,
        .as_stored = w->opt.as_stored,
    };
    struct image_view pixels;
    struct image_box box;
    TRY(image_decode(w->decoder, &pixels, &box, image, sample->image_bytes, &how, err));
    for (uint32_t v = 0; v < w->opt.views; v++) {
        TRY(augment_apply(w->rgb != NULL ? w->rgb : out_views[v], &pixels, &box, &part, &params[v],
                          &w->augment, &w->workspace, err));
        if (w->rgb != NULL) {
            w->opt.hooks.pixels(w->opt.hooks.cookie, out_views[v], w->rgb);
        }
    }
    return STATUS_OK;
}

enum status sample_work_image(struct sample_work *w,
                              uint8_t *const out_views[AUGMENT_MAX_VIEWS],
                              const struct source_sample *source,
                              uint8_t *span,
                              uint64_t epoch,
                              uint32_t positive,
                              struct error *err) {
    const struct dataset_sample *sample = &source->sample;
    TRY(shard_image_compact(span, sample->image_span_bytes, sample->image_bytes, err));
    if (w->opt.verify_images) {
        uint64_t hash = hash64(span, sample->image_bytes);
        FAIL_IF(hash != sample->image_hash, err, STATUS_CORRUPT,
                "the image's hash is %016" PRIx64 ", the index has %016" PRIx64, hash,
                sample->image_hash);
    }
    return w->opt.views > 0 ? make_views(w, out_views, sample, span, epoch, positive, err)
                            : STATUS_OK;
}

unsigned sample_work_ignored(const struct sample_work *w) {
    return image_decoder_ignored(w->decoder);
}

/* False where the caption must be tokenized: there is no cache, or its row is damaged. */
static bool use_cached(struct sample_work *w,
                       int32_t *out_row,
                       int32_t *out_length,
                       uint32_t source,
                       uint64_t text_id) {
    struct error why = {0};
    const struct text_cache *cache = &w->caches[source];
    if (cache->cache == NULL) {
        return false;
    }
    if (text_cache_row(cache, out_row, out_length, w->tokenizer, text_id, w->opt.max_tokens,
                       &why) == STATUS_OK) {
        return true;
    }
    if (!w->logged_cache) {
        log_write(w->opt.log, LOG_LEVEL_WARN, "captions with damaged cache rows are tokenized: %s",
                  why.text);
        w->logged_cache = true;
    }
    return false;
}

/* Which of `count` captions row `positive` of a sample has: each of those that are equal to it
 * modulo `positives` as likely, by a draw of its own. */
static uint32_t draw_caption(struct rng *r, uint32_t count, uint32_t positive, uint32_t positives) {
    uint32_t k = 0;
    for (uint32_t row = 0; row <= positive; row++) {
        const uint32_t first = row % count;
        k = first + positives * rng_below(r, (count - 1 - first) / positives + 1);
    }
    return k;
}

/* The sample whose captions `own` has: itself, or by pair_noise another one. */
static enum status find_captions(const struct sample_work *w,
                                 struct source_sample *out,
                                 const struct source_sample *own,
                                 struct error *err) {
    const uint64_t live_count = w->sources->live_counts[own->source];
    struct rng r;
    *out = *own;
    rng_init(&r, w->opt.seed, RNG_PAIR_NOISE, 0, own->sample.sample_id);
    if (rng_uniform(&r) >= w->opt.pair_noise || live_count < 2) {
        return STATUS_OK;
    }
    while (out->sample.sample_id == own->sample.sample_id) {
        /* The bias of the remainder is below n / 2^64. */
        TRY(sources_sample_at(w->sources, own->source, rng_u64(&r) % live_count, out, err));
    }
    return STATUS_OK;
}

enum status sample_work_text(struct sample_work *w,
                             int32_t *out_row,
                             int32_t *out_length,
                             uint64_t *out_text_id,
                             uint32_t *out_caption,
                             const struct source_sample *source,
                             uint64_t epoch,
                             uint32_t positive,
                             struct error *err) {
    *out_text_id = LOADER_NO_TEXT;
    *out_caption = 0;
    *out_length = 0;
    w->text_now = (struct shard_text){.data = NULL, .size_bytes = 0};
    if (w->opt.captions == LOADER_CAPTIONS_NONE) {
        memset(out_row, 0, w->opt.max_tokens * sizeof(*out_row));
        return STATUS_OK;
    }
    struct source_sample other;
    TRY(find_captions(w, &other, source, err));
    const struct dataset_sample *sample = &other.sample;
    struct shard_text text = {.data = NULL, .size_bytes = 0};
    struct rng r;
    rng_init(&r, w->opt.seed, RNG_CAPTION, epoch, source->sample.sample_id);
    if (w->sources->captions != NULL) {
        const uint64_t own = sample->sample_id - w->sources->items[source->source].id_offset;
        for (uint32_t row = 0; row <= positive; row++) { /* each with a draw of its own */
            TRY(caption_columns_draw(w->sources->captions, &text, w->columns, source->source, own,
                                     row, sample->text_count > 0, &r, out_caption, err));
        }
    }
    if (text.data == NULL && sample->text_count > 0) {
        const uint32_t k = w->opt.caption >= 0
                               ? (uint32_t)w->opt.caption % sample->text_count
                               : draw_caption(&r, sample->text_count, positive, w->opt.positives);
        *out_text_id = sample->first_text_id + k;
        *out_caption = k;
        const bool cached =
            use_cached(w, out_row, out_length, source->source, *out_text_id - other.text_offset);
        if (w->opt.hooks.sample != NULL || (w->tokenizer != NULL && !cached)) {
            TRY(caption_reader_get(w->captions[source->source], sample, k, &text, err));
        }
        w->text_now = text;
        if (cached) {
            return STATUS_OK;
        }
    }
    w->text_now = text;
    return text_to_row(w->text, out_row, out_length, w->tokenizer,
                       text.data != NULL ? text.data : "", text.size_bytes, w->opt.max_tokens,
                       w->opt.clean_captions, err);
}

enum status sample_work_hook(struct sample_work *w,
                             uint32_t slot,
                             uint32_t row,
                             const struct source_sample *source,
                             const uint8_t *span,
                             struct error *err) {
    const struct loader_hooks *h = &w->opt.hooks;
    return h->sample == NULL ? STATUS_OK
                             : h->sample(h->cookie, slot, row, h->wants_image ? span : NULL,
                                         source->sample.image_bytes, w->text_now.data,
                                         w->text_now.size_bytes, err);
}
