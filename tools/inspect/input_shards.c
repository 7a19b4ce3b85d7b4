/*
 * Samples of shards: a dataset is read through its mapped indexes, a single shard through its
 * reader. A dataset opens a shard when one of its samples is read, and keeps a few open, because
 * consecutive ids may be in different shards.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset_reader.h"
#include "tools/inspect/input_internal.h"

struct dataset_input {
    struct input base;
    struct dataset *dataset;
    struct caption_reader *captions;
    struct dataset_reader *reader;
    struct dataset_sample current;
};

struct shard_input {
    struct input base;
    struct shard_reader *reader;
    uint32_t current;
};

/* ---- a dataset ------------------------------------------------------------------------------- */

static void dataset_input_close(struct input *in) {
    struct dataset_input *d = (struct dataset_input *)in;
    dataset_reader_destroy(d->reader);
    caption_reader_destroy(d->captions);
    dataset_close(d->dataset);
    free(d);
}

static enum status
dataset_choose(struct input *in, struct sample_facts *out, uint64_t position, struct error *err) {
    struct dataset_input *d = (struct dataset_input *)in;
    if (position >= in->sample_count) {
        return STATUS_END;
    }
    struct dataset_sample *s = &d->current;
    TRY(dataset_sample_at(d->dataset, position, s, err));
    *out = (struct sample_facts){
        .position = position,
        .id = s->sample_id,
        .first_text_id = s->first_text_id,
        .offset = s->image_offset,
        .image_hash = s->image_hash,
        .caption_hash = s->caption_hash,
        .file = input_file_name(dataset_shard_path(d->dataset, s->shard)),
        .caption_count = s->text_count,
        .image_bytes = s->image_bytes,
        .width_px = s->width_px,
        .height_px = s->height_px,
        .format = s->format,
        .flags = s->flags,
        .label = s->label,
        .class_name = input_class_name(in, s->label),
    };
    return STATUS_OK;
}

static enum status
dataset_caption(struct input *in, struct shard_text *out, uint32_t k, struct error *err) {
    struct dataset_input *d = (struct dataset_input *)in;
    return caption_reader_get(d->captions, &d->current, k, out, err);
}

static void take_view(struct sample_content *out, const struct sample_view *v) {
    *out = (struct sample_content){v->key, v->captions, v->json, v->image};
}

static enum status dataset_read(struct input *in, struct sample_content *out, struct error *err) {
    struct dataset_input *d = (struct dataset_input *)in;
    struct sample_view view;
    TRY(dataset_reader_get(d->reader, &d->current, &view, err));
    take_view(out, &view);
    return STATUS_OK;
}

enum status input_open_dataset(struct input **out, const char *path, struct error *err) {
    static const struct input_ops ops = {dataset_input_close, dataset_choose, dataset_caption,
                                         dataset_read};
    struct dataset_input *d = calloc(1, sizeof(*d));
    enum status s;
    TRY_MEMORY(d, err, "%s: out of memory", path);
    TRY_OR_FAIL(s, dataset_open(&d->dataset, path, NULL, err));
    TRY_OR_FAIL(s, caption_reader_create(&d->captions, d->dataset, err));
    TRY_OR_FAIL(s, dataset_reader_create(&d->reader, d->dataset, err));
    const struct manifest *m = dataset_manifest(d->dataset);
    d->base = (struct input){.kind = INPUT_DATASET,
                             .ops = &ops,
                             .manifest = m,
                             .container = shard_container_name(m->container),
                             .path = path,
                             .sample_count = dataset_sample_count(d->dataset)};
    *out = &d->base;
    return STATUS_OK;
fail:
    dataset_input_close(&d->base);
    return s;
}

/* ---- one shard ------------------------------------------------------------------------------- */

static void shard_input_close(struct input *in) {
    struct shard_input *s = (struct shard_input *)in;
    shard_reader_close(s->reader);
    free(s);
}

static enum status
shard_choose(struct input *in, struct sample_facts *out, uint64_t position, struct error *err) {
    struct shard_input *s = (struct shard_input *)in;
    struct shard_record r;
    if (position >= in->sample_count) {
        return STATUS_END;
    }
    s->current = (uint32_t)position;
    TRY(shard_reader_record(s->reader, s->current, &r, err));
    *out = (struct sample_facts){
        .position = position,
        .id = r.sample_id,
        .first_text_id = r.first_text,
        .offset = r.image_offset,
        .image_hash = r.image_hash,
        .caption_hash = r.caption_hash,
        .file = input_file_name(in->path),
        .caption_count = r.text_count,
        .image_bytes = r.image_bytes,
        .width_px = r.width_px,
        .height_px = r.height_px,
        .format = r.format,
        .flags = r.flags,
        .label = r.label,
    };
    return STATUS_OK;
}

static enum status
shard_caption(struct input *in, struct shard_text *out, uint32_t k, struct error *err) {
    struct shard_input *s = (struct shard_input *)in;
    return shard_reader_caption(s->reader, s->current, k, out, err);
}

static enum status shard_read(struct input *in, struct sample_content *out, struct error *err) {
    struct shard_input *s = (struct shard_input *)in;
    struct sample_view view;
    TRY(shard_reader_get(s->reader, s->current, &view, err));
    take_view(out, &view);
    return STATUS_OK;
}

enum status input_open_shard(struct input **out, const char *path, struct error *err) {
    static const struct input_ops ops = {shard_input_close, shard_choose, shard_caption,
                                         shard_read};
    struct shard_input *s = calloc(1, sizeof(*s));
    TRY_MEMORY(s, err, "%s: out of memory", path);
    const enum status status = shard_reader_open(&s->reader, file_posix(), path, err);
    if (status != STATUS_OK) {
        shard_input_close(&s->base);
        return status;
    }
    s->base = (struct input){.kind = INPUT_SHARD,
                             .ops = &ops,
                             .container = shard_container_name(shard_reader_container(s->reader)),
                             .path = path,
                             .sample_count = shard_reader_sample_count(s->reader)};
    *out = &s->base;
    return STATUS_OK;
}
