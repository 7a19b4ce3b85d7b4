/* Images of a few soft waves, encoded as JPEG; one in nine is noise and larger than a block of
 * the shard format, so that its bytes lie in several pieces. */
#include "tests/support/image_dataset.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/rng.h"
#include "formats/dataset/dataset.h"
#include "formats/shard/shard_writer.h"
#include "formats/tokenizer/tokenizer.h"

/* This file also serves programs that are no test cases, so it ends them by itself. */
#define MUST(expr)                                                                                 \
    do {                                                                                           \
        if ((expr) < STATUS_OK) {                                                                  \
            fprintf(stderr, "image_dataset: %s: %s\n", #expr, err.text);                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { MAX_CAPTIONS = 3, CAPTION_BYTES = 96, LARGE_PX = 280 };

void image_dataset_default(struct image_dataset *how) {
    *how = (struct image_dataset){
        .samples = 100,
        .id_step = 3,
        .samples_per_shard = 40,
        .tokenizer = true,
        .container = SHARD_CONTAINER_TAR_ZSTD,
    };
}

static uint32_t caption_text(char out[CAPTION_BYTES], uint64_t i, uint32_t k) {
    static const char *const things[] = {"dog", "red car", "tree", "Mountain", "old house", "cup"};
    static const char *const places[] = {"on the grass", "near a lake", "in the city", "at night"};
    int n = snprintf(out, CAPTION_BYTES, "A %s %s, view %u; number %" PRIu64 "!", things[i % 6],
                     places[(i / 6 + k) % 4], k, i);
    return (uint32_t)n;
}

static uint32_t caption_count(uint64_t i) {
    return (uint32_t)(i % (MAX_CAPTIONS + 1));
}

static void draw_image(struct byte_buffer *jpeg, int32_t *width, int32_t *height, uint64_t i) {
    bool is_large = i % 9 == 4;
    struct rng r;
    rng_init(&r, 5, RNG_INIT, i, 0);
    *width = is_large ? LARGE_PX : 30 + (int32_t)rng_below(&r, 150);
    *height = is_large ? LARGE_PX : 30 + (int32_t)rng_below(&r, 150);
    struct error err = {0};
    uint8_t *pixels = malloc((size_t)(*width * *height * 3));
    MUST(pixels != NULL ? STATUS_OK : STATUS_NOMEM);
    for (int32_t y = 0; y < *height; y++) {
        for (int32_t x = 0; x < *width; x++) {
            uint8_t *at = pixels + 3 * (y * *width + x);
            for (int32_t c = 0; c < 3; c++) {
                at[c] = is_large ? (uint8_t)rng_u32(&r)
                                 : (uint8_t)(x * (c + 1) + y * (3 - c) + (int32_t)i * 17);
            }
        }
    }
    struct image_view view = {pixels, *width, *height, (size_t)*width * 3};
    MUST(image_encode_jpeg(jpeg, &view, is_large ? 100 : 85, &err));
    free(pixels);
}

static void add_image(struct shard_writer *w,
                      struct shard_frame_builder *b,
                      struct shard_frame *frame,
                      uint64_t i,
                      uint64_t step) {
    char key[32];
    char text[MAX_CAPTIONS][CAPTION_BYTES];
    struct shard_text captions[MAX_CAPTIONS];
    struct byte_buffer jpeg;
    struct error err = {0};
    int32_t width;
    int32_t height;
    byte_buffer_init(&jpeg, 0);
    draw_image(&jpeg, &width, &height, i);
    for (uint32_t k = 0; k < caption_count(i); k++) {
        captions[k] = (struct shard_text){text[k], caption_text(text[k], i, k)};
    }
    snprintf(key, sizeof(key), "p%06" PRIu64, i);
    struct shard_sample sample = {
        .sample_id = i * step,
        .key = key,
        .image = jpeg.data,
        .image_bytes = jpeg.size_bytes,
        .format = IMAGE_FORMAT_JPEG,
        /* Now and then the index does not know the size. */
        .width_px = i % 8 == 5 ? 0 : (uint32_t)width,
        .height_px = i % 8 == 5 ? 0 : (uint32_t)height,
        .label = i % 7 == 3 ? SHARD_NO_LABEL : (int32_t)(i % 10),
        .captions = captions,
        .caption_count = caption_count(i),
    };
    MUST(shard_frame_build(b, frame, &sample, &err));
    MUST(shard_writer_add(w, frame, &err));
    byte_buffer_fini(&jpeg);
}

static void make_shard(struct manifest *m,
                       const char *directory,
                       uint32_t number,
                       uint64_t from,
                       uint64_t to,
                       const struct image_dataset *how) {
    struct shard_writer *w = NULL;
    struct shard_frame_builder *b = NULL;
    struct shard_frame frame = {0};
    struct shard_summary summary;
    struct error err = {0};
    MUST(shard_writer_open(&w, file_posix(), directory, "images", number, how->container, 1, &err));
    MUST(shard_frame_builder_create(&b, how->container, 1, &err));
    for (uint64_t i = from; i < to; i++) {
        add_image(w, b, &frame, i, how->id_step);
    }
    MUST(shard_writer_finish(w, &summary, &err));
    MUST(manifest_add_shard(m, &summary, &err));
    shard_frame_fini(&frame);
    shard_frame_builder_destroy(b);
    shard_writer_close(w);
}

struct caption_walk {
    uint64_t i, samples;
    uint32_t k;
    char text[CAPTION_BYTES];
};

static enum status
next_caption(void *cookie, const char **text, size_t *size_bytes, struct error *err) {
    struct caption_walk *walk = cookie;
    (void)err;
    while (walk->i < walk->samples && walk->k >= caption_count(walk->i)) {
        walk->i++;
        walk->k = 0;
    }
    if (walk->i >= walk->samples) {
        return STATUS_END;
    }
    *size_bytes = caption_text(walk->text, walk->i, walk->k++);
    *text = walk->text;
    return STATUS_OK;
}

static void make_tokenizer(const char *directory, uint64_t samples) {
    struct caption_walk walk = {.samples = samples};
    struct tokenizer_source source = {next_caption, &walk};
    struct tokenizer_train_options opt;
    struct byte_buffer model;
    struct error err = {0};
    uint32_t pieces = 0;
    char path[PATH_MAX_BYTES];
    tokenizer_train_options_default(&opt);
    opt.vocab_size = 120;
    byte_buffer_init(&model, 0);
    MUST(tokenizer_train(&model, &pieces, &source, &opt, &err));
    MUST(path_join(path, sizeof(path), directory, "tokenizer.model", &err));
    MUST(file_write_atomic(file_posix(), path, model.data, model.size_bytes, &err));
    byte_buffer_fini(&model);
}

void image_dataset_make(const char *directory, const struct image_dataset *how) {
    const struct file_system *fs = file_posix();
    struct manifest m;
    struct error err = {0};
    uint64_t fingerprint = 0;
    uint32_t number = 0;
    MUST(fs->make_directory(fs->context, directory, &err));
    MUST(manifest_init(&m, how->container, "test", &err));
    for (uint64_t from = 0; from < how->samples; from += how->samples_per_shard) {
        uint64_t to = from + how->samples_per_shard;
        make_shard(&m, directory, number++, from, to < how->samples ? to : how->samples, how);
    }
    MUST(dataset_fingerprint_of(&fingerprint, &m, directory, fs, &err));
    MUST(manifest_seal(&m, fingerprint, &err));
    MUST(manifest_write(&m, fs, directory, &err));
    manifest_fini(&m);
    if (how->tokenizer) {
        make_tokenizer(directory, how->samples);
    }
}

void image_dataset_damage(const char *directory, uint64_t sample_id) {
    struct dataset *d = NULL;
    struct dataset_sample sample;
    struct error err = {0};
    static const uint8_t junk[16] = {0xff, 0x00, 0xff, 0xd9, 1, 2, 3};
    MUST(dataset_open(&d, directory, NULL, &err));
    uint64_t position = 0;
    do {
        MUST(dataset_sample_at(d, position++, &sample, &err));
    } while (sample.sample_id != sample_id);
    int fd = open(dataset_shard_path(d, sample.shard), O_WRONLY);
    off_t at = (off_t)(sample.image_offset + sample.image_bytes / 2);
    bool written = fd >= 0 && pwrite(fd, junk, sizeof(junk), at) == (ssize_t)sizeof(junk);
    MUST(written ? STATUS_OK : error_set_errno(&err, "cannot damage %s", directory));
    close(fd);
    dataset_close(d);
}

void image_dataset_damage_record(const char *directory, uint64_t number) {
    enum { HEADER_BYTES = 128, RECORD_BYTES = 64, HASH_AT = 16 }; /* formats/SHARD_FORMAT.md */
    struct dataset *d = NULL;
    struct dataset_sample sample;
    struct error err = {0};
    char path[PATH_MAX_BYTES];
    uint8_t byte = 0;
    MUST(dataset_open(&d, directory, NULL, &err));
    MUST(dataset_sample_at(d, number, &sample, &err));
    MUST(shard_index_name(path, sizeof(path), dataset_shard_path(d, sample.shard), &err));
    int fd = open(path, O_RDWR);
    off_t at = (off_t)HEADER_BYTES + (off_t)sample.index_in_shard * RECORD_BYTES + HASH_AT;
    bool written = fd >= 0 && pread(fd, &byte, 1, at) == 1;
    byte ^= 1;
    written = written && pwrite(fd, &byte, 1, at) == 1;
    MUST(written ? STATUS_OK : error_set_errno(&err, "cannot damage %s", path));
    close(fd);
    dataset_close(d);
}
