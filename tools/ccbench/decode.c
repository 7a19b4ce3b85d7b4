/*
 * ccbench decode: how fast this machine decodes the JPEGs of a dataset from memory and does nothing
 * else: at full size, a half, a quarter, and only the middle. It explains the loader's limit, and
 * shows what packing at another size would gain.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/base/clock.h"
#include "formats/base/rng.h"
#include "formats/image/image_codec.h"
#include "tools/ccbench/ccbench_internal.h"
#include "tools/cli/path_kind.h"
#include "tools/inspect/samples.h"

enum { MAX_MEMORY_MIB = 256 };

struct options {
    uint64_t threads;
    uint64_t samples;
    uint64_t seconds_ms;
    bool json;
};

static const struct cli_option rows[] = {
    {"threads", 't', CLI_U64, CLI_FIELD(struct options, threads), .min = "1", .max = "1024",
     .default_text = "1", .metavar = "N", .help = "threads, each with its own decoder"},
    {"samples", 0, CLI_U64, CLI_FIELD(struct options, samples), .min = "1", .max = "65536",
     .default_text = "2000", .metavar = "N",
     .help = "number of random images to decode; limited to 256 MiB in total"},
    {"seconds", 0, CLI_U64, CLI_FIELD(struct options, seconds_ms), .unit = CLI_UNIT_MS,
     .min = "50ms", .max = "1h", .default_text = "8", .metavar = "T",
     .help = "duration of the measurement"},
    {"json", 0, CLI_FLAG, CLI_FIELD(struct options, json), .help = "one JSON object on one line"},
};

static const struct cli_program program = {
    .name = "ccbench decode",
    .purpose =
        "measures the decoding of a dataset's JPEGs, in images and bytes per second and core",
    .usage = CLI_TEXTS("DIR [--threads N] [--json]"),
    .notes = CLI_TEXTS("MB/s are megabytes of JPEG; decoding time is proportional to them. half "
                       "and quarter decode at that scale; crop decodes the central half of the "
                       "image's area at full size and skips the rest if the format allows it."),
    CLI_OPTIONS(rows),
    .arguments = {1, 1},
};

enum way { WAY_FULL, WAY_HALF, WAY_QUARTER, WAY_CROP, WAY_COUNT };
static const char *const way_names[WAY_COUNT] = {"full", "half", "quarter", "crop"};

struct image {
    uint8_t *data;
    uint32_t size_bytes;
    int32_t width_px, height_px;
};

struct images {
    struct image *items;
    uint32_t count;
    uint64_t skipped; /* not JPEG, or damaged */
    uint64_t bytes;
};

/* --- images --- */

static enum status
read_image(struct image *p, const struct dataset *d, uint64_t position, struct error *err) {
    struct dataset_sample s;
    struct image_info info;
    TRY(dataset_sample_at(d, position, &s, err));
    TRY(bench_read_span(&p->data, dataset_shard_path(d, s.shard), &s, err));
    TRY(shard_image_compact(p->data, s.image_span_bytes, s.image_bytes, err));
    TRY(image_probe(&info, p->data, s.image_bytes, NULL, err));
    FAIL_IF(info.format != IMAGE_FORMAT_JPEG, err, STATUS_UNSUPPORTED, "not a JPEG");
    p->size_bytes = s.image_bytes;
    p->width_px = info.width_px;
    p->height_px = info.height_px;
    return STATUS_OK;
}

static enum status
read_images(struct images *out, const struct dataset *d, uint64_t wanted, struct error *err) {
    uint64_t n = dataset_sample_count(d);
    struct permutation order;
    FAIL_IF(n == 0, err, STATUS_USAGE, "the dataset has no samples");
    permutation_init(&order, n, 0, 0);
    out->items = calloc(wanted, sizeof(*out->items));
    TRY_MEMORY(out->items, err, "out of memory for the images");
    for (uint64_t i = 0; i < n && out->count < wanted; i++) {
        struct image *p = &out->items[out->count];
        struct error why = {0};
        enum status s = read_image(p, d, permutation_at(&order, i), &why);
        if (s == STATUS_CORRUPT || s == STATUS_UNSUPPORTED || s == STATUS_LIMIT) {
            free(p->data);
            *p = (struct image){0};
            out->skipped++;
            continue;
        }
        out->count++;
        if (s < STATUS_OK) {
            *err = why;
            return s;
        }
        out->bytes += p->size_bytes;
        if (out->bytes > (uint64_t)MAX_MEMORY_MIB << 20) {
            break;
        }
        FAIL_IF(cli_interrupted(), err, STATUS_INTERRUPTED, "interrupted");
    }
    return out->count > 0 ? STATUS_OK
                          : error_set(err, STATUS_USAGE, "the dataset has no JPEG that decodes");
}

static void free_images(struct images *p) {
    for (uint32_t i = 0; p->items != NULL && i < p->count; i++) {
        free(p->items[i].data);
    }
    free(p->items);
}

/* --- decoding --- */

struct worker {
    struct bench_worker base;
    const struct images *images;
    enum way way;
    uint32_t first; /* image to start with, a different one for each thread */
    int64_t end_ns;
    uint64_t count, bytes;
    int64_t cpu_ns;
};

static struct image_decode_options options_of(enum way way, const struct image *p) {
    struct image_decode_options how = {0};
    int32_t parts = way == WAY_HALF ? 2 : 4;
    if (way == WAY_HALF || way == WAY_QUARTER) {
        how.min_width_px = (p->width_px + parts - 1) / parts;
        how.min_height_px = (p->height_px + parts - 1) / parts;
    } else if (way == WAY_CROP) {
        int32_t w = (int32_t)(p->width_px * 0.7071) + 1;
        int32_t h = (int32_t)(p->height_px * 0.7071) + 1;
        w = w < p->width_px ? w : p->width_px;
        h = h < p->height_px ? h : p->height_px;
        how.region = (struct image_rect){(p->width_px - w) / 2, (p->height_px - h) / 2, w, h};
    }
    return how;
}

static void *work(void *arg) {
    struct worker *w = arg;
    struct image_decoder *decoder = NULL;
    w->base.status = image_decoder_create(&decoder, NULL, &w->base.err);
    int64_t begin_ns = clock_thread_cpu_ns();
    uint32_t at = w->first;
    while (w->base.status == STATUS_OK && clock_now_ns() < w->end_ns && !cli_interrupted()) {
        const struct image *p = &w->images->items[at];
        struct image_decode_options how = options_of(w->way, p);
        struct image_view view;
        enum status s =
            image_decode(decoder, &view, NULL, p->data, p->size_bytes, &how, &w->base.err);
        if (s == STATUS_NOMEM || s == STATUS_INVALID) {
            w->base.status = s;
        }
        w->count += s == STATUS_OK;
        w->bytes += s == STATUS_OK ? p->size_bytes : 0;
        at = (at + 1) % w->images->count;
    }
    w->cpu_ns = clock_thread_cpu_ns() - begin_ns;
    image_decoder_destroy(decoder);
    return NULL;
}

struct rate {
    double images_per_s; /* of one core */
    double mb_per_s;
};

/* Rates are per CPU second, so that other programs do not count. */
static enum status measure(struct rate *out,
                           const struct images *images,
                           struct worker *workers,
                           uint32_t threads,
                           enum way way,
                           int64_t ns,
                           struct error *err) {
    uint64_t count = 0;
    uint64_t bytes = 0;
    int64_t cpu_ns = 0;
    int64_t end_ns = clock_now_ns() + ns;
    for (uint32_t i = 0; i < threads; i++) {
        workers[i] = (struct worker){.images = images,
                                     .way = way,
                                     .first = (uint32_t)((uint64_t)i * images->count / threads),
                                     .end_ns = end_ns};
    }
    TRY(bench_run_threads(workers, sizeof(*workers), threads, work, err));
    for (uint32_t i = 0; i < threads; i++) {
        count += workers[i].count;
        bytes += workers[i].bytes;
        cpu_ns += workers[i].cpu_ns;
    }
    double seconds = (double)cpu_ns / 1e9;
    *out = (struct rate){seconds > 0 ? (double)count / seconds : 0,
                         seconds > 0 ? (double)bytes / 1e6 / seconds : 0};
    return STATUS_OK;
}

/* --- result --- */

static enum status print_result(const struct rate rates[WAY_COUNT],
                                const struct images *p,
                                const struct options *o,
                                struct error *err) {
    struct json_writer w;
    cli_begin_json(&w);
    json_u64(&w, "images", p->count);
    json_u64(&w, "image_bytes", p->bytes);
    json_u64(&w, "skipped", p->skipped);
    json_u64(&w, "threads", o->threads);
    for (int i = 0; i < WAY_COUNT; i++) {
        json_open_object(&w, way_names[i]);
        json_double(&w, "images_per_s_per_core", rates[i].images_per_s);
        json_double(&w, "mb_per_s_per_core", rates[i].mb_per_s);
        json_close_object(&w);
    }
    return end_result(&w, o->json, err);
}

static enum status measure_all(const struct images *p, const struct options *o, struct error *err) {
    struct rate rates[WAY_COUNT];
    struct worker *workers = calloc(o->threads, sizeof(*workers));
    TRY_MEMORY(workers, err, "out of memory for %" PRIu64 " threads", o->threads);
    enum status s = STATUS_OK;
    for (int i = 0; i < WAY_COUNT && s == STATUS_OK; i++) {
        s = measure(&rates[i], p, workers, (uint32_t)o->threads, (enum way)i,
                    (int64_t)o->seconds_ms * 1000000 / WAY_COUNT, err);
    }
    free(workers);
    TRY(s);
    return print_result(rates, p, o, err);
}

static enum status run(const void *options, const struct cli_arguments *a, struct error *err) {
    const struct options *o = options;
    struct dataset *d = NULL;
    struct images images = {0};
    cli_signals_install();
    TRY(path_check_dataset(a->items[0], err));
    TRY(dataset_open(&d, a->items[0], NULL, err));
    enum status s = read_images(&images, d, o->samples, err);
    dataset_close(d);
    THEN(s, measure_all(&images, o, err));
    free_images(&images);
    return s;
}

CLI_MAIN(ccbench_decode, program, struct options, run)
