/*
 * gradient_data: pictures through the augmentation of the loader, or through the loader itself.
 */
#include "tools/ccstudy/gradient_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "augment/pipeline.h"
#include "formats/base/rng.h"
#include "loader/fetch.h"
#include "loader/loader.h"

enum { BLOBS = 6, SOURCE_SHARE = 2 /* side of a generated picture over that of its views */ };

static enum status
take(struct gradient_data *out, uint32_t count, uint32_t size_px, struct error *err) {
    *out = (struct gradient_data){.count = count, .size_px = size_px};
    out->pixels = calloc(GRADIENT_KINDS * (size_t)count, (size_t)size_px * size_px * 3);
    return out->pixels != NULL ? STATUS_OK
                               : error_set(err, STATUS_NOMEM, "no memory for %u pictures", count);
}

void gradient_data_fini(struct gradient_data *d) {
    free(d->pixels);
    *d = (struct gradient_data){0};
}

static uint8_t *row_of(const struct gradient_data *d, enum gradient_kind kind, uint32_t i) {
    return d->pixels + ((size_t)kind * d->count + i) * d->size_px * d->size_px * 3;
}

/* ---- generated ---- */

static void paint(uint8_t *pixels, int32_t side, struct rng *r) {
    double colour[BLOBS + 1][3];
    double x[BLOBS];
    double y[BLOBS];
    double sharpness[BLOBS];
    for (int k = 0; k <= BLOBS; k++) {
        for (int c = 0; c < 3; c++) {
            colour[k][c] = 255.0 * rng_uniform(r);
        }
    }
    for (int k = 0; k < BLOBS; k++) {
        const double radius = (0.06 + 0.2 * rng_uniform(r)) * side;
        x[k] = rng_uniform(r) * side;
        y[k] = rng_uniform(r) * side;
        sharpness[k] = 1.0 / (2.0 * radius * radius);
    }
    for (int32_t i = 0; i < side * side; i++) {
        double value[3] = {colour[BLOBS][0], colour[BLOBS][1], colour[BLOBS][2]};
        for (int k = 0; k < BLOBS; k++) {
            const double dx = i % side - x[k];
            const double dy = i / side - y[k];
            const double cover = exp(-(dx * dx + dy * dy) * sharpness[k]);
            for (int c = 0; c < 3; c++) {
                value[c] += cover * (colour[k][c] - value[c]);
            }
        }
        for (int c = 0; c < 3; c++) {
            pixels[3 * i + c] = (uint8_t)(value[c] + 0.5);
        }
    }
}

/* The kind's row of picture i. */
static enum status augment(struct gradient_data *d,
                           enum gradient_kind kind,
                           uint32_t i,
                           const struct image_view *picture,
                           uint64_t seed,
                           struct augment_scratch *scratch,
                           struct error *err) {
    struct augment_options how;
    struct augment_params params;
    struct augment_part part;
    augment_options_default(&how, kind == GRADIENT_PLAIN ? AUGMENT_EVAL_CROP : AUGMENT_SIMCLR);
    how.size_px = (int32_t)d->size_px;
    augment_draw(&params, &how, picture->width_px, picture->height_px, seed, 0, i,
                 kind == GRADIENT_SECOND ? 1 : 0);
    augment_decode(&part, &params, 1);
    const struct image_rect *region = &part.region;
    const struct image_box box = {region->x, region->y, region->width, region->height};
    return augment_apply(row_of(d, kind, i), picture, &box, &part, &params, &how, scratch, err);
}

enum status gradient_data_draw(struct gradient_data *out,
                               uint32_t count,
                               uint32_t size_px,
                               uint64_t seed,
                               struct error *err) {
    const int32_t side = (int32_t)(SOURCE_SHARE * size_px);
    const struct image_view picture = {.data = malloc((size_t)side * (size_t)side * 3),
                                       .width_px = side,
                                       .height_px = side,
                                       .stride_bytes = 3 * (size_t)side};
    struct augment_scratch scratch;
    augment_scratch_init(&scratch);
    enum status s = take(out, count, size_px, err);
    if (s == STATUS_OK && picture.data == NULL) {
        s = error_set(err, STATUS_NOMEM, "no memory for a picture of %d pixels", (int)side);
    }
    for (uint32_t i = 0; i < count && s == STATUS_OK; i++) {
        struct rng r;
        rng_init(&r, seed, RNG_STUDY, count, i);
        paint(picture.data, side, &r);
        for (int kind = 0; kind < GRADIENT_KINDS && s == STATUS_OK; kind++) {
            s = augment(out, (enum gradient_kind)kind, i, &picture, seed, &scratch, err);
        }
    }
    augment_scratch_fini(&scratch);
    free(picture.data);
    if (s != STATUS_OK) {
        gradient_data_fini(out);
    }
    return s;
}

/* ---- of a dataset ---- */

static enum status read_one(struct gradient_data *d,
                            uint32_t i,
                            struct loader *l,
                            struct fetcher *f,
                            struct error *err) {
    const size_t bytes = (size_t)d->size_px * d->size_px * 3;
    struct loader_batch batch;
    struct loader_batch plain;
    TRY(loader_acquire(l, &batch, err));
    const uint64_t id = batch.sample_ids[0];
    memcpy(row_of(d, GRADIENT_FIRST, i), batch.images, bytes);
    memcpy(row_of(d, GRADIENT_SECOND, i), batch.images2, bytes);
    loader_release(l, &batch);
    TRY(loader_fetch(f, &plain, NULL, &id, 1, 0, err));
    memcpy(row_of(d, GRADIENT_PLAIN, i), plain.images, bytes);
    return STATUS_OK;
}

enum status gradient_data_read(struct gradient_data *out,
                               const char *directory,
                               uint32_t count,
                               uint32_t size_px,
                               uint64_t seed,
                               struct error *err) {
    struct loader_options how;
    struct loader_info info;
    struct loader *l = NULL;
    struct fetcher *f = NULL;
    const struct fetch_options plain = {
        .max_count = 1, .augment = AUGMENT_EVAL_CROP, .views = 1, .captions = LOADER_CAPTIONS_NONE};
    enum status s;
    loader_options_default(&how);
    how.batch_count = 1;
    how.image_size_px = size_px;
    how.augment = AUGMENT_SIMCLR;
    how.captions = LOADER_CAPTIONS_NONE;
    how.order = LOADER_ORDER_SEQUENTIAL;
    how.views = 2;
    how.seed = seed;
    how.threads = 1;
    TRY(take(out, count, size_px, err));
    TRY_OR_FAIL(s, loader_open(&l, directory, &how, err));
    loader_info(l, &info);
    if (info.sample_count < count) {
        s = error_set(err, STATUS_USAGE, "%s has %llu pictures, fewer than --samples %u", directory,
                      (unsigned long long)info.sample_count, count);
        goto fail;
    }
    TRY_OR_FAIL(s, fetcher_open(&f, l, &plain, err));
    for (uint32_t i = 0; i < count && s == STATUS_OK; i++) {
        s = read_one(out, i, l, f, err);
    }
fail:
    fetcher_close(f);
    loader_close(l);
    if (s != STATUS_OK) {
        gradient_data_fini(out);
    }
    return s;
}
