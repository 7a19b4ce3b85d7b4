/*
 * Decode and augmentation on one thread, over the JPEGs of plain tars held in memory:
 *
 *     bench_images SIZE_PX SECONDS FILE.tar...
 *
 * Prints images and megabytes of JPEG per second for a whole decode, for the decode of training
 * crops with and without reduced scales, and for each kind of augmentation with its decode and
 * alone (one view). bench_steps has its single steps. Rounds over the same few hundred images:
 * the fastest counts, the median stands beside it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "augment/pipeline.h"
#include "formats/base/clock.h"
#include "formats/base/file_io.h"
#include "formats/image/image_codec.h"
#include "tests/support/tar.h"

enum { MAX_IMAGES = 100000, MAX_FILE_BYTES = 1 << 30, ROUND_IMAGES = 300, MAX_ROUNDS = 1000 };

struct image {
    const uint8_t *data;
    size_t size_bytes;
    int32_t width_px, height_px;
};

struct bench {
    struct image *images;
    size_t count;
    struct image_decoder *decoder;
    struct augment_options options;
    struct augment_workspace workspace;
    uint8_t *slot;
    struct image_view view;
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
    while (test_tar_next(&tar, &f) && b->count < MAX_IMAGES) {
        struct image_info info;
        if (image_probe(&info, f.data, f.size_bytes, NULL, NULL) == STATUS_OK) {
            b->images[b->count++] =
                (struct image){f.data, f.size_bytes, info.width_px, info.height_px};
        }
    }
}

static void one_image(struct bench *b, size_t index, uint64_t epoch) {
    const struct image *p = &b->images[index];
    struct augment_params params;
    struct image_decode_options decode = {0};
    struct image_view view;
    struct image_box box;
    struct error err = {0};
    struct augment_part part;
    augment_draw(&params, &b->options, p->width_px, p->height_px, 1, epoch, index, 0);
    augment_decode(&part, &params, 1);
    if (!b->whole) {
        decode.region = part.region;
    }
    if (b->reduce) {
        decode.min_width_px = part.min_width_px;
        decode.min_height_px = part.min_height_px;
    }
    enum status s = image_decode(b->decoder, &view, &box, p->data, p->size_bytes, &decode, &err);
    if (s == STATUS_OK && !b->decode_only) {
        s = augment_apply(b->slot, &view, &box, &part, &params, &b->options, &b->workspace, &err);
    }
    if (s != STATUS_OK) {
        die(&err);
    }
}

/* An image that is decoded already. */
static void one_augmentation(struct bench *b, size_t index, uint64_t epoch) {
    const struct image_view *v = &b->view;
    struct augment_params params;
    struct augment_part part;
    struct error err = {0};
    augment_draw(&params, &b->options, v->width_px, v->height_px, 1, epoch, index, 0);
    augment_decode(&part, &params, 1);
    struct image_box box = {part.region.x, part.region.y, part.region.width, part.region.height};
    if (augment_apply(b->slot, v, &box, &part, &params, &b->options, &b->workspace, &err) !=
        STATUS_OK) {
        die(&err);
    }
}

static int by_size(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static void measure(struct bench *b,
                    const char *what,
                    void (*one)(struct bench *, size_t, uint64_t),
                    double seconds) {
    static double rounds[MAX_ROUNDS];
    size_t count = b->count < ROUND_IMAGES ? b->count : ROUND_IMAGES;
    size_t step = b->count / count;
    size_t done = 0;
    double bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += (double)b->images[i * step].size_bytes;
        one(b, i * step, 0);
    }
    int64_t begin = clock_thread_cpu_ns();
    while (done < MAX_ROUNDS && (double)(clock_thread_cpu_ns() - begin) * 1e-9 < seconds) {
        int64_t round_begin = clock_thread_cpu_ns();
        for (size_t i = 0; i < count; i++) {
            one(b, i * step, 1);
        }
        rounds[done++] = (double)(clock_thread_cpu_ns() - round_begin) * 1e-9;
    }
    qsort(rounds, done, sizeof(rounds[0]), by_size);
    double best = rounds[0];
    printf("%-32s %7.0f images/s (median %7.0f) %7.1f MB/s %7.1f us/image\n", what,
           (double)count / best, (double)count / rounds[done / 2], bytes / best * 1e-6,
           best / (double)count * 1e6);
}

static void measure_kinds(struct bench *b,
                          const char *before,
                          void (*one)(struct bench *, size_t, uint64_t),
                          double seconds) {
    int32_t size_px = b->options.size_px;
    for (int i = 0; AUGMENT_KIND_NAMES[i] != NULL; i++) {
        char what[64];
        enum augment_kind kind;
        (void)augment_kind_of(&kind, AUGMENT_KIND_NAMES[i]);
        augment_options_default(&b->options, kind);
        b->options.size_px = size_px;
        (void)snprintf(what, sizeof(what), "%s%s", before, AUGMENT_KIND_NAMES[i]);
        measure(b, what, one, seconds);
    }
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: bench_images SIZE_PX SECONDS FILE.tar...\n");
        return 64;
    }
    struct error err = {0};
    struct bench b = {.images = calloc(MAX_IMAGES, sizeof(struct image))};
    augment_options_default(&b.options, AUGMENT_TRAIN);
    augment_workspace_init(&b.workspace);
    b.options.size_px = atoi(argv[1]);
    double seconds = atof(argv[2]);
    if (b.options.size_px < 1 || b.options.size_px > AUGMENT_MAX_SIZE_PX) {
        fprintf(stderr, "bench_images: SIZE_PX is 1 to %d\n", AUGMENT_MAX_SIZE_PX);
        return 64;
    }
    b.slot = malloc((size_t)b.options.size_px * (size_t)b.options.size_px * 3);
    if (b.images == NULL || b.slot == NULL ||
        image_decoder_create(&b.decoder, NULL, &err) != STATUS_OK) {
        die(&err);
    }
    for (int i = 3; i < argc; i++) {
        load_tar(&b, argv[i]);
    }
    if (b.count == 0) {
        fprintf(stderr, "bench_images: no images in these tars\n");
        return EXIT_FAILURE;
    }
    printf("%zu images, %d px\n", b.count, (int)b.options.size_px);
    b.decode_only = b.whole = true;
    measure(&b, "decode whole", one_image, seconds);
    b.whole = false;
    measure(&b, "decode crop", one_image, seconds);
    b.reduce = true;
    measure(&b, "decode crop, reduced", one_image, seconds);
    b.decode_only = b.reduce = false;
    measure(&b, "decode crop + augment", one_image, seconds);
    b.reduce = true;
    measure_kinds(&b, "decode, reduced + ", one_image, seconds);
    const struct image *p = &b.images[0];
    if (image_decode(b.decoder, &b.view, NULL, p->data, p->size_bytes, NULL, &err) != STATUS_OK) {
        die(&err);
    }
    printf("augmentation alone, of %d x %d pixels:\n", (int)b.view.width_px, (int)b.view.height_px);
    measure_kinds(&b, "", one_augmentation, seconds);
    image_decoder_destroy(b.decoder);
    augment_workspace_fini(&b.workspace);
    free(b.slot);
    return EXIT_SUCCESS;
}
