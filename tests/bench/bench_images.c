/*
 * Decode and augmentation on one thread, over the JPEGs of plain tars held in memory:
 *
 *     bench_images SIZE_PX SECONDS FILE.tar...
 *
 * Prints pictures and megabytes of JPEG per second for a whole decode, for the decode of training
 * crops with and without reduced scales, and for decode and augmentation together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "augment/pipeline.h"
#include "formats/base/clock.h"
#include "formats/base/file_io.h"
#include "formats/image_codec.h"
#include "tests/support/tar.h"

enum { MAX_PICTURES = 100000, MAX_FILE_BYTES = 1 << 30 };

struct picture {
    const uint8_t *data;
    size_t size_bytes;
    int32_t width_px, height_px;
};

struct bench {
    struct picture *pictures;
    size_t count;
    struct image_decoder *decoder;
    struct augment_options options;
    struct augment_scratch scratch;
    uint8_t *slot;
    bool reduce; /* decode at 1/2, 1/4, 1/8 where the crop allows it */
    bool whole;
    bool decode_only;
};

static void die(const struct error *err) {
    fprintf(stderr, "bench_images: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static void load_tar(struct bench *b, const char *path) {
    struct error err = {0};
    struct byte_buffer file;
    if (file_read_all(file_posix(), &file, path, MAX_FILE_BYTES, &err) != STATUS_OK) {
        die(&err);
    }
    struct test_tar tar;
    struct test_tar_file f;
    test_tar_init(&tar, file.data, file.size_bytes);
    while (test_tar_next(&tar, &f) && b->count < MAX_PICTURES) {
        struct image_info info;
        if (image_probe(&info, f.data, f.size_bytes, NULL, NULL) == STATUS_OK) {
            b->pictures[b->count++] =
                (struct picture){f.data, f.size_bytes, info.width_px, info.height_px};
        }
    }
}

static void one_picture(struct bench *b, size_t index, uint64_t epoch) {
    const struct picture *p = &b->pictures[index];
    struct augment_params params;
    struct image_decode_options decode = {0};
    struct image_view view;
    struct image_box box;
    struct error err = {0};
    augment_draw(&params, &b->options, p->width_px, p->height_px, 1, epoch, index);
    if (!b->whole) {
        decode.region = params.region;
    }
    if (b->reduce) {
        decode.min_width_px = decode.min_height_px = b->options.size_px;
    }
    enum status s = image_decode(b->decoder, &view, &box, p->data, p->size_bytes, &decode, &err);
    if (s == STATUS_OK && !b->decode_only) {
        s = augment_apply(b->slot, &view, &box, &params, &b->options, &b->scratch, &err);
    }
    if (s != STATUS_OK) {
        die(&err);
    }
}

static void measure(struct bench *b, const char *what, double seconds) {
    for (size_t i = 0; i < b->count && i < 200; i++) {
        one_picture(b, i, 0);
    }
    double bytes = 0;
    size_t made = 0;
    int64_t begin = clock_thread_cpu_ns();
    double taken = 0;
    for (uint64_t epoch = 1; taken < seconds; epoch++) {
        for (size_t i = 0; i < b->count && taken < seconds; i++) {
            one_picture(b, i, epoch);
            bytes += (double)b->pictures[i].size_bytes;
            made++;
            taken = (double)(clock_thread_cpu_ns() - begin) * 1e-9;
        }
    }
    printf("%-34s %8.0f images/s %8.1f MB/s %8.1f us/image\n", what, (double)made / taken,
           bytes / taken * 1e-6, taken / (double)made * 1e6);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: bench_images SIZE_PX SECONDS FILE.tar...\n");
        return 64;
    }
    struct error err = {0};
    struct bench b = {.pictures = calloc(MAX_PICTURES, sizeof(struct picture))};
    augment_options_default(&b.options);
    augment_scratch_init(&b.scratch);
    b.options.size_px = atoi(argv[1]);
    double seconds = atof(argv[2]);
    if (b.options.size_px < 1 || b.options.size_px > AUGMENT_MAX_SIZE_PX) {
        fprintf(stderr, "bench_images: SIZE_PX is 1 to %d\n", AUGMENT_MAX_SIZE_PX);
        return 64;
    }
    b.slot = malloc((size_t)b.options.size_px * (size_t)b.options.size_px * 3);
    if (b.pictures == NULL || b.slot == NULL ||
        image_decoder_create(&b.decoder, NULL, &err) != STATUS_OK) {
        die(&err);
    }
    for (int i = 3; i < argc; i++) {
        load_tar(&b, argv[i]);
    }
    printf("%zu pictures, %d px\n", b.count, (int)b.options.size_px);
    b.decode_only = b.whole = true;
    measure(&b, "decode whole", seconds);
    b.whole = false;
    measure(&b, "decode crop", seconds);
    b.reduce = true;
    measure(&b, "decode crop, reduced", seconds);
    b.decode_only = b.reduce = false;
    measure(&b, "decode crop + augment", seconds);
    b.reduce = true;
    measure(&b, "decode crop, reduced + augment", seconds);
    b.options.kind = AUGMENT_SQUASH;
    measure(&b, "squash, reduced + augment", seconds);
    image_decoder_destroy(b.decoder);
    augment_scratch_fini(&b.scratch);
    free(b.slot);
    return EXIT_SUCCESS;
}
