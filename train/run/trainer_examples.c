/*
 * trainer_examples: what captions find, as one image: a row for each caption, first its own
 * image, then those found, the nearest first; green: it is the caption's own, red: it is not. The
 * captions are a text beside it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "formats/image/image_codec.h"
#include "loader/fetch.h"
#include "train/run/trainer_internal.h"

enum {
    SIDE_PX = 96,
    FRAME_PX = 3,
    TILE_PX = SIDE_PX + 2 * FRAME_PX,
    COLUMNS = 1 + EXAMPLES_FOUND,
    MAX_TEXT_BYTES = 1 << 20
};

struct sheet {
    uint8_t *pixels; /* (height_px, width_px, 3) */
    uint32_t width_px, height_px;
};

static void
put_tile(struct sheet *s, int64_t row, int64_t column, const uint8_t *image, uint32_t frame_rgb) {
    for (int y = 0; y < TILE_PX; y++) {
        uint8_t *to = s->pixels + 3 * ((row * TILE_PX + y) * s->width_px + column * TILE_PX);
        for (int x = 0; x < TILE_PX; x++) {
            to[3 * x] = (uint8_t)(frame_rgb >> 16);
            to[3 * x + 1] = (uint8_t)(frame_rgb >> 8);
            to[3 * x + 2] = (uint8_t)frame_rgb;
        }
        if (y >= FRAME_PX && y < FRAME_PX + SIDE_PX) {
            memcpy(to + 3 * FRAME_PX, image + 3 * (ptrdiff_t)(y - FRAME_PX) * SIDE_PX, 3 * SIDE_PX);
        }
    }
}

/* The row of one example. */
static enum status draw_row(struct sheet *s,
                            struct fetcher *f,
                            const struct examples *x,
                            const struct embeddings *e,
                            int64_t row,
                            struct error *err) {
    enum { WHITE = 0xFFFFFF, GREEN = 0x2E9E4F, RED = 0xD03B3B };
    const struct example *q = &x->items[row];
    uint64_t ids[COLUMNS] = {e->sample_ids[e->owner[q->query]]};
    struct loader_batch batch;
    for (int64_t k = 0; k < x->found_count; k++) {
        ids[1 + k] = e->sample_ids[q->found[k]];
    }
    TRY(loader_fetch(f, &batch, NULL, ids, NULL, (uint32_t)x->found_count + 1, 0, err));
    for (int64_t k = 0; k <= x->found_count; k++) {
        const bool right = k > 0 && examples_is_right(e, true, q->query, q->found[k - 1]);
        put_tile(s, row, k, batch.images + 3 * k * SIDE_PX * SIDE_PX,
                 k == 0  ? WHITE
                 : right ? GREEN
                         : RED);
    }
    return STATUS_OK;
}

static enum status draw(struct byte_buffer *jpeg,
                        struct sheet *s,
                        const char *directory,
                        const struct examples *x,
                        const struct embeddings *e,
                        struct error *err) {
    struct loader *l = NULL;
    struct fetcher *f = NULL;
    struct loader_options o;
    loader_options_default(&o);
    o.batch_count = 1;
    o.drop_last = false;
    o.image_size_px = SIDE_PX;
    o.augment = AUGMENT_EVAL_CROP;
    o.captions = LOADER_CAPTIONS_NONE;
    o.threads = 1;
    const struct fetch_options fetch = {.max_count = COLUMNS,
                                        .augment = AUGMENT_EVAL_CROP,
                                        .views = 1,
                                        .captions = LOADER_CAPTIONS_NONE};
    s->width_px = (uint32_t)(x->found_count + 1) * TILE_PX;
    s->height_px = (uint32_t)x->count * TILE_PX;
    s->pixels = calloc(s->height_px, (size_t)3 * s->width_px);
    enum status status = s->pixels != NULL ? loader_open(&l, directory, &o, err)
                                           : error_set(err, STATUS_NOMEM, "out of memory");
    THEN(status, fetcher_open(&f, l, &fetch, err));
    for (int64_t row = 0; row < x->count && status == STATUS_OK; row++) {
        status = draw_row(s, f, x, e, row, err);
    }
    fetcher_close(f);
    loader_close(l);
    const struct image_view view = {s->pixels, s->width_px, s->height_px, (size_t)3 * s->width_px};
    return status == STATUS_OK ? image_encode_jpeg(jpeg, &view, IMAGE_JPEG_QUALITY_DEFAULT, err)
                               : status;
}

/* A line for each caption: its number, itself, and the rank of its own image. */
static enum status list(struct byte_buffer *text,
                        const char *directory,
                        const struct examples *x,
                        const struct embeddings *e,
                        struct error *err) {
    struct dataset *d = NULL;
    struct caption_reader *r = NULL;
    enum status s = dataset_open(&d, directory, NULL, err);
    THEN(s, caption_reader_create(&r, d, err));
    for (int64_t i = 0; i < x->count && s == STATUS_OK; i++) {
        const int64_t query = x->items[i].query;
        const uint64_t id = e->sample_ids[e->owner[query]];
        struct dataset_sample sample;
        struct shard_text caption;
        char end[64];
        const int size =
            snprintf(end, sizeof end, " (own image: number %" PRId64 ")\n", x->items[i].rank);
        s = dataset_find(d, id, &sample, err);
        THEN(s, caption_reader_get(r, &sample, (uint32_t)examples_caption_of(e, query), &caption,
                                   err));
        THEN(s, byte_buffer_append(text, "1. ", 3, err));
        THEN(s, byte_buffer_append(text, caption.data, caption.size_bytes, err));
        THEN(s, byte_buffer_append(text, end, (size_t)size, err));
    }
    caption_reader_destroy(r);
    dataset_close(d);
    return s;
}

/* No reason to end a run: said once, as the next evaluation is likely to fail the same way. */
static void miss(struct trainer *t, const struct error *why) {
    if (!t->missed_examples) {
        t->missed_examples = true;
        log_write(t->options.log, LOG_LEVEL_WARN,
                  "no example image in the event files after step %" PRIu64 " (reported once): %s",
                  t->step, why->text);
    }
}

enum status trainer_show_examples(struct trainer *t,
                                  const struct examples *x,
                                  const struct embeddings *e,
                                  struct error *err) {
    struct sheet sheet = {0};
    struct byte_buffer jpeg;
    struct byte_buffer text;
    struct error why = {0};
    byte_buffer_init(&jpeg, 1 << 26);
    byte_buffer_init(&text, MAX_TEXT_BYTES);
    enum status s = draw(&jpeg, &sheet, t->options.val, x, e, &why);
    THEN(s, list(&text, t->options.val, x, e, &why));
    if (s == STATUS_OK) {
        s = metrics_image(t->metrics, t->step,
                          &(struct events_image){.tag = "examples/t2i",
                                                 .jpeg = jpeg.data,
                                                 .jpeg_bytes = jpeg.size_bytes,
                                                 .width_px = sheet.width_px,
                                                 .height_px = sheet.height_px,
                                                 .text = (const char *)text.data,
                                                 .text_bytes = text.size_bytes},
                          err);
    } else {
        miss(t, &why);
        s = STATUS_OK;
    }
    byte_buffer_fini(&jpeg);
    byte_buffer_fini(&text);
    free(sheet.pixels);
    return s;
}
