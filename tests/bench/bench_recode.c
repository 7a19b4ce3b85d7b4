/*
 * The work of packing images alone: every image of plain tars in memory is decoded once, or
 * decoded, scaled to a shorter side, and encoded again:
 *
 *     bench_recode SHORT_PX|0 QUALITY THREADS FILE.tar...
 *
 * Prints one line: seconds from the first image to the last, and images per second. Images
 * that do not decode are counted and skipped, as the packer does.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "augment/resize.h"
#include "formats/base/clock.h"
#include "formats/base/file_io.h"
#include "formats/image/image_codec.h"
#include "tests/support/tar.h"

enum { MAX_IMAGES = 1 << 20, MAX_FILE_BYTES = 1 << 30, MAX_THREADS = 64 };

struct image {
    const uint8_t *data;
    size_t size_bytes;
};

static struct image images[MAX_IMAGES];
static size_t image_count;
static int32_t short_px;
static int32_t quality;
static atomic_size_t next_image; /* relaxed: a ticket, nothing is published by it */
static atomic_size_t bad_count;

struct worker {
    pthread_t thread;
    struct image_decoder *decoder;
    struct resize_workspace workspace;
    struct byte_buffer jpeg;
    uint8_t *pixels;
    size_t pixels_bytes;
};

static void die(const struct error *err) {
    fprintf(stderr, "bench_recode: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static void load_tar(const char *path) {
    struct error err = {0};
    struct byte_buffer file;
    struct test_tar tar;
    struct test_tar_file f;
    if (file_read_all(file_posix(), &file, path, MAX_FILE_BYTES, &err) != STATUS_OK) {
        die(&err);
    }
    test_tar_init(&tar, file.data, file.size_bytes);
    while (test_tar_next(&tar, &f) && image_count < MAX_IMAGES) {
        if (image_format_of(f.data, f.size_bytes) != IMAGE_FORMAT_UNKNOWN) {
            images[image_count++] = (struct image){f.data, f.size_bytes};
        }
    }
}

static enum status encode(struct worker *w,
                          const struct image_view *view,
                          const struct image_box *box,
                          int32_t width_px,
                          int32_t height_px,
                          struct error *err) {
    size_t size_bytes = (size_t)width_px * (size_t)height_px * 3;
    if (size_bytes > w->pixels_bytes) {
        free(w->pixels);
        w->pixels = malloc(size_bytes);
        w->pixels_bytes = size_bytes;
        if (w->pixels == NULL) {
            return error_set(err, STATUS_NOMEM, "out of memory");
        }
    }
    struct image_view out = {w->pixels, width_px, height_px, (size_t)width_px * 3};
    TRY(resize_image(&out, view, box, NULL, RESIZE_BICUBIC, false, &w->workspace, err));
    w->jpeg.size_bytes = 0;
    return image_encode_jpeg(&w->jpeg, &out, quality, err);
}

static enum status one_image(struct worker *w, const struct image *p, struct error *err) {
    struct image_decode_options how = {0};
    struct image_info info;
    struct image_view view;
    struct image_box box;
    int32_t width_px = 0;
    int32_t height_px = 0;
    TRY(image_probe(&info, p->data, p->size_bytes, NULL, err));
    if (short_px > 0) {
        resize_short_size(&width_px, &height_px, info.width_px, info.height_px, short_px);
        how.min_width_px = width_px;
        how.min_height_px = height_px;
    }
    TRY(image_decode(w->decoder, &view, &box, p->data, p->size_bytes, &how, err));
    return short_px > 0 ? encode(w, &view, &box, width_px, height_px, err) : STATUS_OK;
}

static void *worker_main(void *cookie) {
    struct worker *w = cookie;
    for (;;) {
        size_t i = atomic_fetch_add_explicit(&next_image, 1, memory_order_relaxed);
        if (i >= image_count) {
            return NULL;
        }
        if (one_image(w, &images[i], NULL) != STATUS_OK) {
            atomic_fetch_add_explicit(&bad_count, 1, memory_order_relaxed);
        }
    }
}

int main(int argc, char **argv) {
    static struct worker workers[MAX_THREADS];
    struct error err = {0};
    if (argc < 5 || atoi(argv[3]) < 1 || atoi(argv[3]) > MAX_THREADS) {
        fprintf(stderr, "usage: bench_recode SHORT_PX|0 QUALITY THREADS FILE.tar...\n");
        return 64;
    }
    short_px = atoi(argv[1]);
    quality = atoi(argv[2]);
    size_t threads = (size_t)atoi(argv[3]);
    for (int i = 4; i < argc; i++) {
        load_tar(argv[i]);
    }
    for (size_t i = 0; i < threads; i++) {
        resize_workspace_init(&workers[i].workspace);
        byte_buffer_init(&workers[i].jpeg, 0);
        if (image_decoder_create(&workers[i].decoder, NULL, &err) != STATUS_OK) {
            die(&err);
        }
    }
    int64_t begin_ns = clock_now_ns();
    for (size_t i = 0; i < threads; i++) {
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) != 0) {
            fprintf(stderr, "bench_recode: cannot start a thread\n");
            return EXIT_FAILURE;
        }
    }
    for (size_t i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
    }
    double seconds = (double)(clock_now_ns() - begin_ns) * 1e-9;
    printf("%.3f s  %.0f images/s  (%zu images, %zu bad)\n", seconds, (double)image_count / seconds,
           image_count, atomic_load_explicit(&bad_count, memory_order_relaxed));
    return EXIT_SUCCESS;
}
