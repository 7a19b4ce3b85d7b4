/*
 * bench_shard open DIR         writes a shard of 10,000 samples into DIR, and measures how long it
 *                              takes to open it
 * bench_shard overhead DATASET bytes per sample that are no image, beside what `zstd -3` takes for
 *                              each sample's captions and JSON alone
 * bench_shard frames DATASET [LEVEL]
 *                              processor time to build a sample's frame, of all samples
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <zstd.h>

#include "formats/base/clock.h"
#include "formats/dataset/dataset.h"
#include "formats/shard/shard_reader.h"
#include "formats/shard/shard_writer.h"
#include "tests/support/make_shards.h"

enum { SHARD_SAMPLES = 10000, IMAGE_BYTES = 300, REPEATS = 10 };

static struct error err;

static void must(enum status s) {
    if (s < STATUS_OK) {
        fprintf(stderr, "bench_shard: %s\n", err.text);
        exit(1);
    }
}

/* ---- open ------------------------------------------------------------------------------------ */

static int measure_open(const char *directory) {
    struct make_shards how;
    struct manifest m;
    char path[PATH_MAX_BYTES];
    double best = 1e9;
    make_shards_default(&how);
    how.samples = SHARD_SAMPLES;
    how.samples_per_shard = SHARD_SAMPLES;
    how.image_bytes = IMAGE_BYTES;
    must(file_posix()->make_directory(NULL, directory, &err));
    for (int c = SHARD_CONTAINER_TAR_ZSTD; c <= SHARD_CONTAINER_TAR; c++) {
        how.container = (enum shard_container)c;
        must(manifest_init(&m, how.container, "bench_shard", &err));
        must(make_shards_into(&m, file_posix(), directory, 0, &how, &err));
        must(path_join(path, sizeof(path), directory, m.shards[0].name, &err));
        for (int i = 0; i < REPEATS; i++) {
            struct shard_reader *r = NULL;
            int64_t start = clock_now_ns();
            must(shard_reader_open(&r, file_posix(), path, &err));
            double ms = (double)(clock_now_ns() - start) * 1e-6;
            best = ms < best ? ms : best;
            shard_reader_close(r);
        }
        printf("open          %.3f ms, %s, best of %d\n", best, shard_container_name(how.container),
               REPEATS);
        manifest_fini(&m);
    }
    return 0;
}

/* ---- samples of a dataset ---------------------------------------------------------------------
 */

/* Calls `take` with every sample. */
static void each_sample(const struct dataset *d,
                        void (*take)(void *cookie, const struct sample_view *v),
                        void *cookie) {
    for (uint32_t k = 0; k < dataset_shard_count(d); k++) {
        struct shard_reader *r = NULL;
        must(shard_reader_open(&r, file_posix(), dataset_shard_path(d, k), &err));
        for (uint32_t i = 0; i < shard_reader_sample_count(r); i++) {
            struct sample_view v;
            must(shard_reader_get(r, i, &v, &err));
            take(cookie, &v);
        }
        shard_reader_close(r);
    }
}

enum { ZSTD_CHECKSUM_BYTES = 4 }; /* which the program adds, and the plain function does not */

struct texts {
    struct byte_buffer text, packed;
    uint64_t bytes;
};

static void pack_texts(void *cookie, const struct sample_view *v) {
    struct texts *t = cookie;
    t->text.size_bytes = 0;
    for (size_t k = 0; k < v->caption_count; k++) {
        must(byte_buffer_append(&t->text, v->captions[k].data, v->captions[k].size_bytes, &err));
    }
    must(byte_buffer_append(&t->text, v->json.data, v->json.size_bytes, &err));
    must(byte_buffer_reserve(&t->packed, ZSTD_compressBound(t->text.size_bytes), &err));
    t->bytes += ZSTD_CHECKSUM_BYTES + ZSTD_compress(t->packed.data, t->packed.capacity_bytes,
                                                    t->text.data, t->text.size_bytes, 3);
}

static int measure_overhead(const char *directory) {
    struct dataset *d = NULL;
    struct texts t = {0};
    must(dataset_open(&d, directory, NULL, &err));
    each_sample(d, pack_texts, &t);
    const struct manifest *m = dataset_manifest(d);
    double samples = m->samples > 0 ? (double)m->samples : 1;
    double beside = (double)(m->bytes - m->image_bytes) / samples;
    double texts = (double)t.bytes / samples;
    printf("no image      %.1f bytes a sample\nzstd -3       %.1f of its captions and JSON alone\n"
           "overhead      %.1f\n",
           beside, texts, beside - texts);
    byte_buffer_fini(&t.text);
    byte_buffer_fini(&t.packed);
    dataset_close(d);
    return 0;
}

/* Samples in memory. */
struct samples {
    struct shard_sample *items;
    size_t count;
};

static void *copy(const void *data, size_t size_bytes) {
    char *out = malloc(size_bytes + 1);
    if (!out) {
        must(error_set(&err, STATUS_NOMEM, "out of memory for the samples"));
    }
    if (size_bytes > 0) {
        memcpy(out, data, size_bytes);
    }
    out[size_bytes] = '\0';
    return out;
}

static void keep_sample(void *cookie, const struct sample_view *v) {
    struct samples *s = cookie;
    struct shard_text *captions = copy(v->captions, v->caption_count * sizeof(*captions));
    for (size_t k = 0; k < v->caption_count; k++) {
        captions[k].data = copy(captions[k].data, captions[k].size_bytes);
    }
    s->items[s->count++] = (struct shard_sample){
        .sample_id = v->record.sample_id,
        .key = copy(v->key, strlen(v->key)),
        .image = copy(v->image, v->image_bytes),
        .image_bytes = v->image_bytes,
        .format = v->record.format,
        .label = v->record.label,
        .captions = captions,
        .caption_count = v->caption_count,
        .json = {v->json.data ? copy(v->json.data, v->json.size_bytes) : NULL, v->json.size_bytes},
    };
}

static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int measure_frames(const char *directory, int level) {
    struct dataset *d = NULL;
    struct samples s = {0};
    struct shard_frame_builder *b = NULL;
    struct shard_frame frame = {0};
    double best = 1e9;
    uint64_t bytes = 0;
    must(dataset_open(&d, directory, NULL, &err));
    s.items = calloc(dataset_sample_count(d) + 1, sizeof(*s.items));
    each_sample(d, keep_sample, &s);
    must(shard_frame_builder_create(&b, SHARD_CONTAINER_TAR_ZSTD, level, &err));
    for (int i = 0; i < REPEATS; i++) {
        double start = processor_seconds();
        bytes = 0;
        for (size_t k = 0; k < s.count; k++) {
            must(shard_frame_build(b, &frame, &s.items[k], &err));
            bytes += frame.record.frame_bytes - s.items[k].image_bytes;
        }
        double seconds = processor_seconds() - start;
        best = seconds < best ? seconds : best;
    }
    printf("frame         %.2f us of processor time, %.1f bytes beside the image, level %d\n",
           best * 1e6 / (double)s.count, (double)bytes / (double)s.count, level);
    return 0; /* the samples go with the process */
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "open") == 0) {
        return measure_open(argv[2]);
    }
    if (argc == 3 && strcmp(argv[1], "overhead") == 0) {
        return measure_overhead(argv[2]);
    }
    if ((argc == 3 || argc == 4) && strcmp(argv[1], "frames") == 0) {
        return measure_frames(argv[2], argc == 4 ? atoi(argv[3]) : 3);
    }
    fprintf(stderr, "usage: bench_shard open DIR | overhead DATASET | frames DATASET [LEVEL]\n");
    return 64;
}
