/*
 * One row on any thread: load its file, decode the image, resize it if the options say so, and
 * build the frame.
 */
#include "pack/run/worker_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "augment/resize.h"
#include "formats/image/image_codec.h"
#include "pack/run/dedup_internal.h"
#include "pack/run/filter_internal.h"
#include "pack/run/metadata_internal.h"
#include "pack/run/phash_internal.h"

/* Capacity that a worker keeps of its buffers after a large image. */
enum { KEEP_DECODER_BYTES = 8 << 20, KEEP_PIXELS_BYTES = 2 << 20 };

/* Work that takes less than this needs no budget: each job has one such image at most. */
enum { SMALL_BYTES = 1 << 20 };

struct pack_worker {
    const struct pack_options *opt;
    struct pack_budget *budget;
    struct pack_keys *keys;
    const struct dedup *dedup;
    struct image_limits limits;
    struct image_decoder *decoder;
    struct shard_frame_builder *builder;
    struct resize_workspace workspace;
    uint8_t *pixels; /* of the resized image */
    size_t pixels_bytes;
    struct json_writer json; /* of members that are added */
};

enum status pack_worker_create(struct pack_worker **out,
                               const struct pack_options *opt,
                               struct pack_budget *budget,
                               struct pack_keys *keys,
                               const struct dedup *dedup,
                               struct error *err) {
    *out = NULL;
    struct pack_worker *w = calloc(1, sizeof(*w));
    TRY_MEMORY(w, err, "out of memory for a packing thread");
    w->opt = opt;
    w->budget = budget;
    w->keys = keys;
    w->dedup = dedup;
    image_limits_default(&w->limits);
    w->limits.max_memory_bytes = PACK_IMAGE_MEMORY_BYTES;
    resize_workspace_init(&w->workspace);
    json_writer_init(&w->json, 0);
    enum status s = image_decoder_create(&w->decoder, &w->limits, err);
    THEN(s, shard_frame_builder_create(&w->builder, opt->container, opt->level, err));
    RETURN_CREATED(s, out, w, pack_worker_destroy);
}

void pack_worker_destroy(struct pack_worker *w) {
    if (w) {
        image_decoder_destroy(w->decoder);
        shard_frame_builder_destroy(w->builder);
        resize_workspace_fini(&w->workspace);
        free(w->pixels);
        json_writer_fini(&w->json);
        free(w);
    }
}

/* An image's failure rejects the row; only a lack of memory ends the run. */
static enum status judge(struct source_row *row, enum status s, struct error *err) {
    switch (s) {
    case STATUS_UNSUPPORTED:
        source_row_reject(row, REASON_IMAGE_UNSUPPORTED, "%.200s", err->text);
        break;
    case STATUS_LIMIT:
        source_row_reject(row, REASON_IMAGE_LIMIT, "%.200s", err->text);
        break;
    case STATUS_CORRUPT:
        source_row_reject(row, REASON_IMAGE_DAMAGED, "%.200s", err->text);
        break;
    default:
        return s;
    }
    memset(err, 0, sizeof(*err));
    return STATUS_OK;
}

static enum status make_room(struct pack_worker *w, size_t size_bytes, struct error *err) {
    if (size_bytes <= w->pixels_bytes) {
        return STATUS_OK;
    }
    uint8_t *grown = realloc(w->pixels, size_bytes);
    TRY_MEMORY(grown, err, "out of memory for an image of %zu bytes", size_bytes);
    w->pixels = grown;
    w->pixels_bytes = size_bytes;
    return STATUS_OK;
}

/* Encodes the decoded image as a new JPEG. Images that are small enough are encoded too, so
 * that a resized dataset holds only baseline JPEGs without metadata. */
static enum status make_jpeg(struct pack_worker *w,
                             struct pack_item *item,
                             const struct image_view *view,
                             const struct image_box *box,
                             int32_t width_px,
                             int32_t height_px,
                             struct error *err) {
    struct image_view out = *view;
    bool as_it_is = box->x == 0 && box->y == 0 && box->width == width_px &&
                    box->height == height_px && view->width_px == width_px &&
                    view->height_px == height_px;
    if (!as_it_is) {
        size_t stride_bytes = (size_t)width_px * 3;
        TRY(make_room(w, stride_bytes * (size_t)height_px, err));
        out = (struct image_view){w->pixels, width_px, height_px, stride_bytes};
        TRY(resize_image(&out, view, box, NULL, RESIZE_BICUBIC, false, &w->workspace, err));
    }
    if (w->opt->phash) {
        const struct image_box whole = {0, 0, width_px, height_px};
        TRY(pack_phash(&item->phash, &out, &whole, &w->workspace, err));
    }
    item->resized.size_bytes = 0;
    TRY(image_encode_jpeg(&item->resized, &out, w->opt->quality, err));
    item->sample.image = item->resized.data;
    item->sample.image_bytes = item->resized.size_bytes;
    item->sample.format = IMAGE_FORMAT_JPEG;
    item->sample.width_px = (uint32_t)width_px;
    item->sample.height_px = (uint32_t)height_px;
    item->sample.flags = SHARD_FLAG_REENCODED;
    return STATUS_OK;
}

/* Stores the image's own bytes. */
static void take_bytes(struct pack_item *item, const struct image_info *info, uint32_t flags) {
    item->sample.image = item->row.image.data;
    item->sample.image_bytes = item->row.image.size_bytes;
    item->sample.format = info->format;
    item->sample.width_px = (uint32_t)info->width_px;
    item->sample.height_px = (uint32_t)info->height_px;
    item->sample.flags = flags;
}

static enum status work_on(struct pack_worker *w,
                           struct pack_item *item,
                           const struct image_info *info,
                           const struct image_decode_options *how,
                           int32_t width_px,
                           int32_t height_px,
                           struct error *err) {
    const struct byte_buffer *image = &item->row.image;
    struct image_view view;
    struct image_box box;
    TRY(image_decode(w->decoder, &view, &box, image->data, image->size_bytes, how, err));
    if (w->opt->resize.kind != PACK_RESIZE_NONE) {
        return make_jpeg(w, item, &view, &box, width_px, height_px, err);
    }
    take_bytes(item, info, 0);
    return w->opt->phash ? pack_phash(&item->phash, &view, &box, &w->workspace, err) : STATUS_OK;
}

/* An upper bound on decoding and resizing: in addition to decoding an image as wide as the new one
 * and as high as the decoded one, the new one, and the encoder's memory. */
static uint64_t resize_memory_bytes(uint64_t decode_bytes, int32_t width_px, int32_t height_px) {
    return decode_bytes + 2 * 3 * (uint64_t)width_px * (uint64_t)height_px;
}

/* Frees what a large image needed before its work is given back. */
static void trim_worker(struct pack_worker *w) {
    image_decoder_trim(w->decoder, KEEP_DECODER_BYTES);
    if (w->workspace.capacity_bytes > KEEP_PIXELS_BYTES) {
        resize_workspace_fini(&w->workspace);
        resize_workspace_init(&w->workspace);
    }
    if (w->pixels_bytes > KEEP_PIXELS_BYTES) {
        free(w->pixels);
        w->pixels = NULL;
        w->pixels_bytes = 0;
    }
}

/* Decodes the image, which finds any damage, and fills its part of the sample. */
static enum status decode(struct pack_worker *w,
                          struct pack_item *item,
                          const struct image_info *info,
                          struct error *err) {
    int32_t width_px = info->width_px;
    int32_t height_px = info->height_px;
    bool resizes = w->opt->resize.kind != PACK_RESIZE_NONE;
    struct image_decode_options how = {.check_only = !resizes && !w->opt->phash};
    if (pack_resize_size(&width_px, &height_px, &w->opt->resize)) {
        how.min_width_px = width_px;
        how.min_height_px = height_px;
    } else if (!resizes) {
        how.min_width_px = PHASH_MIN_SIDE_PX;
        how.min_height_px = PHASH_MIN_SIDE_PX;
    }
    uint64_t bytes = image_decode_memory_bytes(info, &how);
    if (resizes) {
        bytes = resize_memory_bytes(bytes, width_px, height_px);
    }
    FAIL_IF(bytes > PACK_IMAGE_MEMORY_BYTES, err, STATUS_LIMIT,
            "needs %" PRIu64 " MiB to %s, the limit is %d MiB", bytes >> 20,
            resizes ? "resize" : "decode", PACK_IMAGE_MEMORY_BYTES >> 20);
    bool gated = bytes > SMALL_BYTES;
    if (gated) {
        pack_budget_take_work(w->budget, bytes);
    }
    enum status s = work_on(w, item, info, &how, width_px, height_px, err);
    if (gated) {
        trim_worker(w);
        pack_budget_give_work(w->budget, bytes);
    }
    return s;
}

static enum status take_image(struct pack_worker *w, struct pack_item *item, struct error *err) {
    const struct byte_buffer *image = &item->row.image;
    struct image_info info;
    TRY(image_probe(&info, image->data, image->size_bytes, &w->limits, err));
    pack_filter_image(&item->row, &w->opt->filter, info.width_px, info.height_px);
    if (item->row.reason != REASON_NONE) {
        return STATUS_OK;
    }
    if (!w->opt->check) {
        take_bytes(item, &info, SHARD_FLAG_UNCHECKED);
        return STATUS_OK;
    }
    return decode(w, item, &info, err);
}

static enum status add_phash(struct pack_worker *w, struct pack_item *item, struct error *err) {
    char text[17];
    snprintf(text, sizeof(text), "%016" PRIx64, item->phash);
    return w->opt->phash ? pack_metadata_add(&item->row, "phash", text, &w->json, err) : STATUS_OK;
}

static void take_texts(struct pack_item *item) {
    const struct source_row *row = &item->row;
    const char *text = (const char *)row->text.data;
    for (uint32_t i = 0; i < row->caption_count; i++) {
        item->captions[i] = (struct shard_text){text, row->caption_size_bytes[i]};
        text += row->caption_size_bytes[i];
    }
    item->sample.captions = item->captions;
    item->sample.caption_count = row->caption_count;
    item->sample.json = (struct shard_text){0};
    if (row->json.size_bytes > 0) {
        item->sample.json = (struct shard_text){(const char *)row->json.data, row->json.size_bytes};
    }
}

enum status pack_worker_check(struct pack_worker *w, struct pack_item *item, struct error *err) {
    TRY(source_row_load(&item->row, err));
    if (w->opt->ids == PACK_IDS_KEY && !item->row.has_number) {
        source_row_reject(&item->row, REASON_KEY_NOT_NUMBER, "'%.80s'", item->row.key);
    }
    pack_filter_captions(&item->row, &w->opt->filter);
    if (item->row.reason != REASON_NONE) {
        return STATUS_OK;
    }
    TRY(dedup_add(w->dedup, item->source, &item->row, err));
    TRY(judge(&item->row, take_image(w, item, err), err));
    if (item->row.reason != REASON_NONE) {
        return STATUS_OK;
    }
    TRY(add_phash(w, item, err));
    TRY(pack_keys_keep(&item->row, &w->json, err));
    take_texts(item);
    return STATUS_OK;
}

static enum status run(struct pack_worker *w, struct pack_item *item, struct error *err) {
    TRY(pack_worker_check(w, item, err));
    if (item->row.reason != REASON_NONE) {
        return STATUS_OK;
    }
    item->sample.sample_id = item->id;
    pack_keys_choose(w->keys, item);
    item->sample.label = item->label;
    return shard_frame_build(w->builder, &item->frame, &item->sample, err);
}

void pack_worker_run(struct pack_worker *w, struct pack_item *item) {
    memset(&item->error, 0, sizeof(item->error));
    item->status = run(w, item, &item->error);
}
