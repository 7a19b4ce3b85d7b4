/* Samples out of a counter, and the writer's normal use to put them into shards. */
#include "tests/support/make_shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/rng.h"

static size_t image_size(uint64_t id, struct rng *r) {
    static const size_t edges[] = {1,      511,    512,    513,    131071, 131072,
                                   131073, 262144, 262145, 300000, 4096,   26000};
    return id % 7 == 3 ? edges[id / 7 % (sizeof(edges) / sizeof(edges[0]))]
                       : 200 + rng_below(r, 3000);
}

static void fill_texts(struct made_sample *out, struct rng *r) {
    uint64_t id = out->sample.sample_id;
    size_t count = id % 11 == 0 ? 0 : id % 5 == 0 ? MADE_MAX_CAPTIONS : 1;
    for (size_t k = 0; k < count; k++) {
        int n = snprintf(out->captions[k], sizeof(out->captions[k]),
                         "caption %zu of %" PRIu64 ": a %s thing, na\xC3\xAFve %u", k, id,
                         rng_below(r, 2) ? "red" : "blue", rng_below(r, 100000));
        out->texts[k] = (struct shard_text){out->captions[k], id % 13 == 1 ? 0 : (size_t)n};
    }
    out->sample.captions = out->texts;
    out->sample.caption_count = count;
    if (id % 3 != 0) {
        int n = snprintf(out->json, sizeof(out->json),
                         "{\"url\":\"http://example.org/%u.jpg\",\"width\":640,\"key\":\"%s\"}",
                         rng_u32(r), out->key);
        out->sample.json = (struct shard_text){out->json, (size_t)n};
    }
}

void make_sample_sized(struct made_sample *out, uint64_t id, uint64_t seed, size_t image_bytes) {
    struct rng r;
    memset(out, 0, sizeof(*out));
    rng_init(&r, seed, RNG_AUGMENT, id, 7);
    snprintf(out->key, sizeof(out->key), "k%09" PRIu64, id);
    size_t size = image_bytes > 0 ? image_bytes : image_size(id, &r);
    out->image = malloc(size);
    for (size_t i = 0; out->image && i < size; i++) {
        out->image[i] = (uint8_t)(i % 4 == 0 ? rng_u32(&r) : (i * 37) >> 3);
    }
    out->sample = (struct shard_sample){
        .sample_id = id,
        .key = out->key,
        .image = out->image,
        .image_bytes = size,
        .format = (enum image_format)(id % 5),
        .width_px = (uint32_t)(id % 300),
        .height_px = (uint32_t)(id % 200),
        .flags = (uint32_t)(id % 4),
        .label = id % 6 == 0 ? SHARD_NO_LABEL : (int32_t)(id % 10),
    };
    fill_texts(out, &r);
}

void make_sample(struct made_sample *out, uint64_t id, uint64_t seed) {
    make_sample_sized(out, id, seed, 0);
}

void made_sample_fini(struct made_sample *s) {
    free(s->image);
    s->image = NULL;
}

void make_shards_default(struct make_shards *how) {
    *how = (struct make_shards){
        .name = "made",
        .samples = 100,
        .step = 1,
        .samples_per_shard = 100,
        .seed = 1,
        .level = SHARD_LEVEL_DEFAULT,
        .container = SHARD_CONTAINER_TAR_ZSTD,
    };
}

static enum status fill_shard(struct shard_writer *w,
                              struct shard_frame_builder *b,
                              struct shard_frame *frame,
                              uint64_t from,
                              uint64_t to,
                              const struct make_shards *how,
                              struct error *err) {
    for (uint64_t i = from; i < to; i++) {
        struct made_sample s;
        make_sample_sized(&s, how->first_id + i * how->step, how->seed, how->image_bytes);
        enum status status = shard_frame_build(b, frame, &s.sample, err);
        if (status == STATUS_OK) {
            status = shard_writer_add(w, frame, err);
        }
        made_sample_fini(&s);
        TRY(status);
    }
    return STATUS_OK;
}

static enum status make_one(struct manifest *m,
                            const struct file_system *fs,
                            const char *directory,
                            uint32_t number,
                            uint64_t from,
                            uint64_t to,
                            const struct make_shards *how,
                            struct error *err) {
    struct shard_writer *w = NULL;
    struct shard_frame_builder *b = NULL;
    struct shard_frame frame = {0};
    struct shard_summary summary;
    enum status s =
        shard_writer_open(&w, fs, directory, how->name, number, how->container, how->level, err);
    if (s == STATUS_OK) {
        s = shard_frame_builder_create(&b, how->container, how->level, err);
    }
    if (s == STATUS_OK) {
        s = fill_shard(w, b, &frame, from, to, how, err);
    }
    if (s == STATUS_OK) {
        s = shard_writer_finish(w, &summary, err);
    }
    if (s == STATUS_OK) {
        s = manifest_add_shard(m, &summary, err);
    }
    shard_frame_fini(&frame);
    shard_frame_builder_destroy(b);
    shard_writer_close(w);
    return s;
}

enum status
made_frame_bytes(struct byte_buffer *out, const struct shard_frame *f, struct error *err) {
    struct shard_piece piece;
    for (size_t i = 0; shard_frame_piece(f, i, &piece); i++) {
        TRY(byte_buffer_append(out, piece.data, piece.size_bytes, err));
    }
    return STATUS_OK;
}

enum status make_shards_into(struct manifest *m,
                             const struct file_system *fs,
                             const char *directory,
                             uint32_t first_number,
                             const struct make_shards *how,
                             struct error *err) {
    uint32_t number = first_number;
    for (uint64_t from = 0; from < how->samples; from += how->samples_per_shard) {
        uint64_t to = from + how->samples_per_shard;
        to = to < how->samples ? to : how->samples;
        TRY(make_one(m, fs, directory, number++, from, to, how, err));
    }
    return STATUS_OK;
}

static enum status fill_dataset(struct manifest *m,
                                const struct file_system *fs,
                                const char *directory,
                                const struct make_shards *how,
                                struct error *err) {
    uint64_t fingerprint = 0;
    TRY(make_shards_into(m, fs, directory, 0, how, err));
    TRY(manifest_add_source(m, "made.tsv", how->first_id + how->samples * how->step, err));
    TRY(manifest_add_option(m, "resize", "none", err));
    TRY(dataset_fingerprint_of(&fingerprint, m, directory, fs, err));
    TRY(manifest_seal(m, fingerprint, err));
    return manifest_write(m, fs, directory, err);
}

enum status make_dataset(const struct file_system *fs,
                         const char *directory,
                         const struct make_shards *how,
                         struct error *err) {
    struct manifest m;
    TRY(fs->make_directory(fs->context, directory, err));
    TRY(manifest_init(&m, how->container, "ccpack 0.1.0", err));
    enum status s = fill_dataset(&m, fs, directory, how, err);
    manifest_fini(&m);
    return s;
}
