/*
 * bench_dataset DIR SAMPLES PER_SHARD [interleave|headers]: writes the indexes of a dataset of that
 * size into DIR (about 90 bytes per sample; the shards themselves are holes), then measures how
 * long it takes to open it, to look up samples and captions at random, and to plan a pass of 1,024
 * ranks: the first sample of every rank at every step, in a shuffled order, and where each of
 * 200,000 samples is delivered. With `interleave` the ids of neighbouring shards overlap, which is
 * the slow way to open. With `headers` indexes are holes after their headers, so that 400 million
 * samples fit on a small disk; then samples and captions are not looked up.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/rng.h"
#include "formats/dataset/dataset.h"
#include "formats/shard/shard_internal.h"
#include "loader/sampler.h"

enum { IMAGE_BYTES = 30000, FRAME_BYTES = IMAGE_BYTES + 400, LOOKUPS = 200000 };
enum { RANKS = 1024, RANK_BATCH = 32 };

static struct error err;

static void must(enum status s) {
    if (s < STATUS_OK) {
        fprintf(stderr, "bench_dataset: %s\n", err.text);
        exit(1);
    }
}

/* A caption of the usual length, a function of its id. */
static size_t make_caption(char out[128], uint64_t id) {
    static const char *const words[] = {"red",  "small", "old",   "wooden", "bright", "dog",
                                        "boat", "house", "child", "market", "river",  "table"};
    struct rng r;
    size_t n = 0;
    rng_init(&r, 1, RNG_CAPTION, id, 0);
    for (uint32_t k = 0; k < 9; k++) {
        n += (size_t)snprintf(out + n, 128 - n, "%s%s", k > 0 ? " " : "", words[rng_below(&r, 12)]);
    }
    return n;
}

static void put_chunks(struct byte_buffer *payload,
                       struct shard_index *x,
                       struct byte_buffer *texts,
                       const uint32_t *sizes,
                       size_t directory_at,
                       struct zstd_packer *packer) {
    struct byte_buffer chunk = {0};
    size_t chunks_at = payload->size_bytes;
    size_t text_at = 0;
    for (uint32_t c = 0; c < x->chunk_count; c++) {
        uint32_t from = c * INDEX_CHUNK_SAMPLES;
        uint32_t to = from + INDEX_CHUNK_SAMPLES < x->sample_count ? from + INDEX_CHUNK_SAMPLES
                                                                   : x->sample_count;
        size_t text_bytes = 0;
        chunk.size_bytes = 0;
        for (uint32_t i = from; i < to; i++) {
            must(byte_buffer_u32(&chunk, sizes[i], &err));
            text_bytes += sizes[i];
        }
        must(byte_buffer_append(&chunk, texts->data + text_at, text_bytes, &err));
        text_at += text_bytes;
        if (chunk.size_bytes > x->largest_chunk_bytes) {
            x->largest_chunk_bytes = (uint32_t)chunk.size_bytes;
        }
        must(zstd_packer_frame(packer, payload, chunk.data, chunk.size_bytes, &err));
        store_u32(payload->data + directory_at + 4 * ((size_t)c + 1),
                  (uint32_t)(payload->size_bytes - chunks_at));
    }
    byte_buffer_fini(&chunk);
}

/* The index of samples first, first + step, ... */
static void make_index(struct byte_buffer *payload,
                       struct shard_index *x,
                       uint64_t first,
                       uint64_t step,
                       uint32_t count,
                       struct zstd_packer *packer) {
    struct byte_buffer texts = {0};
    struct hasher *h = NULL;
    uint32_t *sizes = calloc(count, sizeof(*sizes));
    must(hasher_create(&h, &err));
    *x = (struct shard_index){
        .container = SHARD_CONTAINER_TAR_ZSTD,
        .sample_count = count,
        .text_count = count,
        .data_bytes = (uint64_t)count * FRAME_BYTES,
        .image_bytes = (uint64_t)count * IMAGE_BYTES,
        .first_id = first,
        .last_id = first + (count - 1) * step,
        .chunk_count = index_chunk_count(count),
        .largest_image_bytes = IMAGE_BYTES,
    };
    size_t directory_at = INDEX_HEADER_BYTES + (size_t)count * INDEX_RECORD_BYTES;
    payload->size_bytes = 0;
    must(byte_buffer_reserve(payload, directory_at + 4 * ((size_t)x->chunk_count + 1), &err));
    payload->size_bytes = directory_at + 4 * ((size_t)x->chunk_count + 1);
    memset(payload->data, 0, payload->size_bytes);
    for (uint32_t i = 0; i < count; i++) {
        char caption[128];
        struct shard_text text = {caption, make_caption(caption, first + i * step)};
        struct shard_record r = {
            .sample_id = first + i * step,
            .frame_offset = (uint64_t)i * FRAME_BYTES,
            .image_offset = (uint64_t)i * FRAME_BYTES + 380,
            .image_hash = i,
            .caption_hash = caption_hash_with(h, &text, 1),
            .frame_bytes = FRAME_BYTES,
            .image_bytes = IMAGE_BYTES,
            .first_text = i,
            .text_count = 1,
            .width_px = 256,
            .height_px = 256,
            .format = IMAGE_FORMAT_JPEG,
            .label = SHARD_NO_LABEL,
        };
        sizes[i] = (uint32_t)text.size_bytes;
        must(byte_buffer_append(&texts, caption, text.size_bytes, &err));
        shard_index_put_record(payload->data + INDEX_HEADER_BYTES + (size_t)i * INDEX_RECORD_BYTES,
                               &r);
    }
    put_chunks(payload, x, &texts, sizes, directory_at, packer);
    x->size_bytes = payload->size_bytes;
    x->body_hash =
        hash64(payload->data + INDEX_HEADER_BYTES, payload->size_bytes - INDEX_HEADER_BYTES);
    shard_index_put_header(payload->data, x);
    x->hash = load_u64(payload->data + INDEX_HEADER_BYTES - 8);
    hasher_destroy(h);
    byte_buffer_fini(&texts);
    free(sizes);
}

/* The same with a hole for what follows the header: an index of no chunk of captions. */
static void
make_header(struct byte_buffer *payload, struct shard_index *x, uint64_t first, uint32_t count) {
    *x = (struct shard_index){
        .container = SHARD_CONTAINER_TAR_ZSTD,
        .sample_count = count,
        .text_count = count,
        .data_bytes = (uint64_t)count * FRAME_BYTES,
        .image_bytes = (uint64_t)count * IMAGE_BYTES,
        .first_id = first,
        .last_id = first + count - 1,
        .chunk_count = index_chunk_count(count),
        .largest_image_bytes = IMAGE_BYTES,
        .largest_chunk_bytes = 1,
    };
    x->size_bytes = INDEX_HEADER_BYTES + (uint64_t)count * INDEX_RECORD_BYTES +
                    4 * ((uint64_t)x->chunk_count + 1);
    payload->size_bytes = 0;
    must(byte_buffer_reserve(payload, INDEX_HEADER_BYTES, &err));
    payload->size_bytes = INDEX_HEADER_BYTES;
    shard_index_put_header(payload->data, x);
    x->hash = load_u64(payload->data + INDEX_HEADER_BYTES - 8);
}

static void write_indexes(const char *dir,
                          uint64_t samples,
                          uint32_t per_shard,
                          bool interleave,
                          bool headers) {
    struct manifest m;
    struct byte_buffer payload;
    struct zstd_packer *packer = NULL;
    char path[PATH_MAX_BYTES];
    byte_buffer_init(&payload, UINT32_MAX);
    must(file_posix()->make_directory(NULL, dir, &err));
    must(manifest_init(&m, SHARD_CONTAINER_TAR_ZSTD, "bench_dataset", &err));
    must(zstd_packer_create(&packer, 3, &err));
    uint32_t shards = (uint32_t)((samples + per_shard - 1) / per_shard);
    for (uint32_t k = 0; k < shards; k++) {
        struct shard_index x;
        struct shard_summary s = {.hash = k};
        uint64_t from = (uint64_t)k * per_shard;
        uint32_t count = samples - from < per_shard ? (uint32_t)(samples - from) : per_shard;
        if (headers) {
            make_header(&payload, &x, from, count);
        } else {
            make_index(&payload, &x, interleave ? k : from, interleave ? shards : 1, count, packer);
        }
        must(shard_file_name(s.name, sizeof(s.name), "bench", k, SHARD_CONTAINER_TAR_ZSTD, &err));
        s.size_bytes = shard_index_file_bytes(&x);
        s.index_hash = x.hash;
        s.image_bytes = x.image_bytes;
        s.first_id = x.first_id;
        s.last_id = x.last_id;
        s.sample_count = x.sample_count;
        s.text_count = x.text_count;
        must(path_join(path, sizeof(path), dir, s.name, &err));
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (fd < 0 || ftruncate(fd, (off_t)s.size_bytes) != 0) {
            must(error_set_errno(&err, "%s", path));
        }
        close(fd);
        char name[PATH_MAX_BYTES];
        must(shard_index_name(name, sizeof(name), path, &err));
        FILE *f = fopen(name, "wb");
        if (!f || fwrite(payload.data, 1, payload.size_bytes, f) != payload.size_bytes ||
            fflush(f) != 0 || ftruncate(fileno(f), (off_t)x.size_bytes) != 0 || fclose(f) != 0) {
            must(error_set_errno(&err, "%s", name));
        }
        must(manifest_add_shard(&m, &s, &err));
    }
    must(manifest_seal(&m, 1, &err));
    must(manifest_write(&m, file_posix(), dir, &err));
    manifest_fini(&m);
    zstd_packer_destroy(packer);
    byte_buffer_fini(&payload);
}

/* Of the processor: the thread is one, and other programs may run. */
static double now_s(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Memory of the process's own, without files that are mapped. */
static double own_mib(void) {
    char line[200];
    double kib = 0.0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        (void)sscanf(line, "RssAnon: %lf", &kib);
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return kib / 1024.0;
}

static void measure_open(struct dataset **d, const char *dir) {
    struct rusage usage;
    const double before = own_mib();
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        dataset_close(*d);
        const double start = now_s();
        must(dataset_open(d, dir, NULL, &err));
        best = now_s() - start < best ? now_s() - start : best;
    }
    getrusage(RUSAGE_SELF, &usage);
    printf("open          %.3f ms, best of 5; %.1f MiB of its own, %ld MiB resident at most\n",
           best * 1e3, own_mib() - before, usage.ru_maxrss / 1024);
}

static void measure_samples(struct dataset *d) {
    struct caption_reader *captions = NULL;
    struct rng r;
    const uint64_t n = dataset_sample_count(d);
    must(caption_reader_create(&captions, d, &err));
    rng_init(&r, 1, RNG_ORDER, 0, 0);
    double start = now_s();
    for (int i = 0; i < LOOKUPS; i++) {
        struct dataset_sample s;
        must(dataset_sample_at(d, rng_u64(&r) % n, &s, &err));
    }
    printf("sample        %.3f us at random\n", (now_s() - start) * 1e6 / LOOKUPS);
    start = now_s();
    for (int i = 0; i < LOOKUPS / 10; i++) {
        struct dataset_sample s;
        struct shard_text text;
        must(dataset_sample_at(d, rng_u64(&r) % n, &s, &err));
        must(caption_reader_get(captions, &s, 0, &text, &err));
    }
    printf("caption       %.3f us at random\n", (now_s() - start) * 1e6 / (LOOKUPS / 10));
    uint64_t fingerprint = 0;
    start = now_s();
    must(dataset_compute_fingerprint(d, &fingerprint, &err));
    printf("fingerprint   %.3f s for %" PRIu64 " samples\n", now_s() - start, n);
    caption_reader_destroy(captions);
}

/* The order of one epoch on RANKS ranks, and the way back from samples to their steps. */
static void measure_plan(uint64_t n) {
    struct sampler s;
    struct loader_options o;
    struct rng r;
    const uint64_t batch = n / 16 < RANKS * RANK_BATCH ? n / 16 : RANKS * RANK_BATCH;
    const double none = 0.0; /* weight */
    uint64_t sum = 0;
    uint64_t steps = 0;
    loader_options_default(&o);
    o.batch_count = (uint32_t)batch;
    o.world = batch < RANKS ? 1 : RANKS;
    o.batch_count -= o.batch_count % o.world;
    double start = now_s();
    for (uint32_t rank = 0; rank < o.world; rank++) {
        o.rank = rank;
        must(sampler_init(&s, &n, &none, 1, &o, &err));
        steps = s.steps_per_epoch;
        for (uint64_t step = 0; step < steps; step++) {
            struct sampler_batch b;
            must(sampler_batch_at(&s, step, &b));
            sum += sampler_place_at(&s, &b, 0).ordinal;
        }
    }
    printf("plan          %.3f s for %" PRIu64 " steps of %u ranks (%" PRIx64 ")\n",
           now_s() - start, steps, (unsigned)o.world, sum);
    rng_init(&r, 2, RNG_ORDER, 0, 0);
    start = now_s();
    for (int i = 0; i < LOOKUPS; i++) {
        struct sampler_visit v;
        const struct sampler_place place = {0, rng_u64(&r) % n};
        if (sampler_find(&s, place, 0, &v) == STATUS_OK) { /* not in a last batch that is dropped */
            sum += v.row;
        }
    }
    printf("find          %.3f us a sample (%" PRIx64 ")\n", (now_s() - start) * 1e6 / LOOKUPS,
           sum);
}

static void measure(const char *dir, bool headers) {
    struct dataset *d = NULL;
    measure_open(&d, dir);
    if (!headers) {
        measure_samples(d);
    }
    measure_plan(dataset_sample_count(d));
    dataset_close(d);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: bench_dataset DIR SAMPLES PER_SHARD [interleave|headers]\n"
                        "       bench_dataset DIR 0 0 [headers]     measures what is there\n");
        return 64;
    }
    uint64_t samples = strtoull(argv[2], NULL, 10);
    uint32_t per_shard = (uint32_t)strtoul(argv[3], NULL, 10);
    if (samples > 0 && (per_shard < 1 || per_shard > SHARD_MAX_SAMPLES)) {
        fprintf(stderr, "bench_dataset: PER_SHARD must be 1 to %d\n", SHARD_MAX_SAMPLES);
        return 64;
    }
    const bool headers = argc > 4 && strcmp(argv[4], "headers") == 0;
    if (samples > 0) {
        write_indexes(argv[1], samples, per_shard, argc > 4 && !headers, headers);
    }
    measure(argv[1], headers);
    return 0;
}
