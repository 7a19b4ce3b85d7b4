/*
 * A manifest and one mapped index per shard, turned into one list by id.
 *
 * Packers write ascending ids, so the shards' id ranges follow each other, and a position is found
 * by a search over the shards alone:
 *
 *     ranks:   shard 0        shard 1        shard 2           by first id
 *     ids      0 ...... 9,991 10,000 .. 19,998 20,001 ...
 *     position 0 ........ 9,9xx ...
 *
 * Only where ranges overlap (numeric keys as ids, merged parts), or where samples that were removed
 * are still in shards, are all records read at open and sorted into a table of places
 * (dataset_merge.c).
 */
#include "formats/dataset/dataset.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset_internal.h"
#include "formats/tokenizer/token_cache.h"

enum { MAX_MAPPED = 50000 };

static const char no_memory[] = "out of memory for the dataset's tables";

/* Reads a part of a file. */
static enum status read_part(struct file_map *out,
                             const struct file_system *fs,
                             struct file *f,
                             const char *path,
                             uint64_t offset,
                             uint64_t size_bytes,
                             struct error *err) {
    size_t got = 0;
    FAIL_IF(size_bytes > UINT32_MAX, err, STATUS_CORRUPT,
            "%s: has %" PRIu64 " bytes, which is not a valid size of an index", path, size_bytes);
    byte_buffer_init(&out->read, UINT32_MAX);
    TRY(byte_buffer_reserve(&out->read, (size_t)size_bytes, err));
    TRY(fs->pread(f, out->read.data, &got, (size_t)size_bytes, offset, err));
    FAIL_IF(got != size_bytes, err, STATUS_CORRUPT, "%s: is being truncated", path);
    out->bytes = out->read.data;
    out->size_bytes = size_bytes;
    return STATUS_OK;
}

/* ---- one shard --------------------------------------------------------------------------------
 */

/* Takes over the mapping when it holds the index that the manifest names. */
static enum status adopt(struct dataset_shard *shard,
                         enum shard_container container,
                         struct file_map *m,
                         const struct shard_summary *expected,
                         struct error *err) {
    struct shard_index x;
    TRY(shard_index_parse(&x, shard->path, m->bytes, m->size_bytes, err));
    FAIL_IF(x.container != container || x.hash != expected->index_hash ||
                x.sample_count != expected->sample_count || x.text_count != expected->text_count ||
                x.image_bytes != expected->image_bytes || x.first_id != expected->first_id ||
                x.last_id != expected->last_id ||
                shard_index_file_bytes(&x) != expected->size_bytes,
            err, STATUS_MISMATCH, "%s: its index is not the one that " MANIFEST_NAME " names%s",
            shard->path, shard_container_changed(container));
    shard->index = x;
    shard->mapping = *m;
    memset(m, 0, sizeof(*m));
    return STATUS_OK;
}

/* A sidecar is mapped, because it is replaced and never truncated. An index inside a shard is read,
 * so that truncating the open shard gives a read error and does not kill the process. Beyond
 * MAX_MAPPED shards sidecars are read too: Linux allows a process 65,530 mappings. */
static enum status open_sidecar(struct dataset_shard *shard,
                                const char *of,
                                bool map,
                                enum shard_container container,
                                const struct file_system *fs,
                                const struct shard_summary *expected,
                                struct error *err) {
    char path[PATH_MAX_BYTES];
    struct file_map m = {0};
    TRY(shard_index_name(path, sizeof(path), of, err));
    enum status s =
        map ? file_map_open(&m, fs, path, err) : file_read_all(fs, &m.read, path, UINT32_MAX, err);
    if (!map) {
        m.bytes = m.read.data;
        m.size_bytes = m.read.size_bytes;
    }
    THEN(s, adopt(shard, container, &m, expected, err));
    file_map_close(&m);
    return s;
}

static enum status open_embedded(struct dataset_shard *shard,
                                 enum shard_container container,
                                 const struct file_system *fs,
                                 struct file *f,
                                 const struct shard_summary *expected,
                                 struct error *err) {
    struct file_map m = {0};
    struct shard_tail tail;
    TRY(shard_tail_find(fs, f, shard->path, expected->size_bytes, &tail, err));
    enum status s = read_part(&m, fs, f, shard->path, tail.index_offset, tail.index_bytes, err);
    THEN(s, adopt(shard, container, &m, expected, err));
    file_map_close(&m);
    return s;
}

/* A remote tar is, until it is read, what the manifest says; its index is in the directory. */
static enum status open_based(struct dataset *d,
                              struct dataset_shard *shard,
                              const char *directory,
                              const struct shard_summary *expected,
                              struct error *err) {
    char path[PATH_MAX_BYTES];
    char index[PATH_MAX_BYTES];
    const struct file_system *fs = file_system_of(shard->path);
    FAIL_IF(!fs->expect, err, STATUS_UNSUPPORTED,
            "%s/" MANIFEST_NAME
            ": its tars are at %.100s, and this program cannot read remote data",
            directory, d->manifest.base);
    TRY(fs->expect(fs->context, shard->path, expected->etag, expected->size_bytes, directory, err));
    TRY(path_join(path, sizeof(path), directory, expected->name, err));
    TRY(shard_index_name(index, sizeof(index), path, err));
    shard->index_path = strdup(index);
    TRY_MEMORY(shard->index_path, err, no_memory);
    return open_sidecar(shard, path, shard - d->shards < MAX_MAPPED, d->manifest.container, d->fs,
                        expected, err);
}

static enum status open_shard(struct dataset *d,
                              struct dataset_shard *shard,
                              const char *directory,
                              const struct shard_summary *expected,
                              struct error *err) {
    char path[PATH_MAX_BYTES];
    struct file *f = NULL;
    uint64_t size = 0;
    const char *base = d->manifest.base;
    TRY(path_join(path, sizeof(path), base ? base : directory, expected->name, err));
    shard->path = strdup(path);
    TRY_MEMORY(shard->path, err, no_memory);
    if (base) {
        return open_based(d, shard, directory, expected, err);
    }
    TRY(d->fs->open(d->fs->context, &f, path, FILE_READ, err));
    enum status s = d->fs->size(f, &size, err);
    if (s == STATUS_OK && size != expected->size_bytes) {
        s = error_set(err, STATUS_CORRUPT,
                      "%s: has %" PRIu64 " bytes, " MANIFEST_NAME " says %" PRIu64 "%s", path, size,
                      expected->size_bytes, shard_container_changed(d->manifest.container));
    }
    enum shard_container container = d->manifest.container;
    bool map = shard - d->shards < MAX_MAPPED;
    if (s == STATUS_OK && container == SHARD_CONTAINER_TAR_FOREIGN) {
        s = open_sidecar(shard, path, map, container, d->fs, expected, err);
    } else if (s == STATUS_OK &&
               open_sidecar(shard, path, map, container, d->fs, expected, NULL) != STATUS_OK) {
        /* A sidecar that is missing or another one's costs nothing but the detour. */
        s = open_embedded(shard, container, d->fs, f, expected, err);
    }
    d->fs->close(f);
    return s;
}

/* ---- the list by id ---------------------------------------------------------------------------
 */

struct rank_key {
    uint64_t first_id;
    uint32_t shard;
};

static int by_first_id(const void *a, const void *b) {
    const struct rank_key *x = a;
    const struct rank_key *y = b;
    if (x->first_id != y->first_id) {
        return x->first_id < y->first_id ? -1 : 1;
    }
    return x->shard < y->shard ? -1 : x->shard > y->shard;
}

/* Ranks the shards by their first id. *overlap: whether ranges of ids overlap. */
static enum status rank_shards(struct dataset *d, bool *overlap, struct error *err) {
    size_t count = d->shard_count > 0 ? d->shard_count : 1;
    struct rank_key *keys = calloc(count, sizeof(*keys));
    d->ranks = calloc(count, sizeof(*d->ranks));
    if (!keys || !d->ranks) {
        free(keys);
        return error_set(err, STATUS_NOMEM, no_memory);
    }
    for (uint32_t i = 0; i < d->shard_count; i++) {
        keys[i] = (struct rank_key){d->shards[i].index.first_id, i};
    }
    qsort(keys, d->shard_count, sizeof(*keys), by_first_id);
    uint64_t position = 0;
    uint64_t text = 0;
    *overlap = false;
    for (uint32_t k = 0; k < d->shard_count; k++) {
        struct dataset_shard *s = &d->shards[keys[k].shard];
        d->ranks[k] = keys[k].shard;
        if (k > 0 && s->index.first_id <= d->shards[d->ranks[k - 1]].index.last_id) {
            *overlap = true;
        }
        s->first_position = position;
        s->first_text = text;
        position += s->index.sample_count;
        text += s->index.text_count;
    }
    free(keys);
    return STATUS_OK;
}

/* ---- open -------------------------------------------------------------------------------------
 */

static enum status open_shards(struct dataset *d, const char *directory, struct error *err) {
    const struct manifest *m = &d->manifest;
    bool overlap = false;
    d->shards = calloc(m->shard_count > 0 ? m->shard_count : 1, sizeof(*d->shards));
    TRY_MEMORY(d->shards, err, no_memory);
    d->shard_count = (uint32_t)m->shard_count;
    uint64_t samples = 0;
    for (uint32_t i = 0; i < d->shard_count; i++) {
        struct dataset_shard *s = &d->shards[i];
        TRY(open_shard(d, s, directory, &m->shards[i], err));
        samples += s->index.sample_count;
        if (s->index.largest_image_bytes > d->max_image_bytes) {
            d->max_image_bytes = s->index.largest_image_bytes;
        }
        if (s->index.largest_chunk_bytes > d->max_chunk_bytes) {
            d->max_chunk_bytes = s->index.largest_chunk_bytes;
        }
    }
    d->manifest.samples = samples; /* also of an unsealed manifest */
    TRY(rank_shards(d, &overlap, err));
    return overlap || d->manifest.removed.samples > 0 ? dataset_merge(d, err) : STATUS_OK;
}

static void open_tokens(struct dataset *d, const char *directory) {
    char path[PATH_MAX_BYTES];
    bool exists = false;
    struct error *err = &d->tokens_error;
    if (path_join(path, sizeof(path), directory, TOKEN_CACHE_NAME, err) != STATUS_OK ||
        d->fs->exists(d->fs->context, path, &exists, err) != STATUS_OK) {
        return;
    }
    if (!exists) {
        (void)error_set(err, STATUS_NOTFOUND, "%s: is missing", path);
        return;
    }
    (void)token_cache_open(&d->tokens, path, d->fs, err);
}

enum status dataset_open(struct dataset **out,
                         const char *directory,
                         const struct file_system *fs,
                         struct error *err) {
    REQUIRE(out && directory);
    *out = NULL;
    struct dataset *d = calloc(1, sizeof(*d));
    TRY_MEMORY(d, err, no_memory);
    d->fs = fs ? fs : file_system_of(directory);
    enum status s = manifest_read(&d->manifest, d->fs, directory, err);
    THEN(s, open_shards(d, directory, err));
    if (s == STATUS_OK) {
        open_tokens(d, directory);
    }
    RETURN_CREATED(s, out, d, dataset_close);
}

static void close_tables(struct dataset *d) {
    for (uint32_t i = 0; i < d->shard_count; i++) {
        free(d->shards[i].path);
        free(d->shards[i].index_path);
        file_map_close(&d->shards[i].mapping);
    }
    free(d->shards);
    free(d->ranks);
    free(d->places);
    free(d->first_texts);
}

void dataset_close(struct dataset *d) {
    if (d) {
        close_tables(d);
        token_cache_close(d->tokens);
        manifest_fini(&d->manifest);
        free(d);
    }
}

const struct token_cache *dataset_token_cache(const struct dataset *d, struct error *why) {
    if (!d->tokens && why) {
        *why = d->tokens_error;
    }
    return d->tokens;
}

uint64_t dataset_sample_count(const struct dataset *d) {
    return d->manifest.samples;
}

uint64_t dataset_text_count(const struct dataset *d) {
    return d->manifest.texts;
}

uint64_t dataset_id_space(const struct dataset *d) {
    return d->manifest.id_space;
}

uint64_t dataset_fingerprint(const struct dataset *d) {
    return d->manifest.fingerprint;
}

uint32_t dataset_shard_count(const struct dataset *d) {
    return d->shard_count;
}

uint32_t dataset_max_image_span_bytes(const struct dataset *d) {
    return shard_image_span_bytes(d->manifest.container, d->max_image_bytes);
}

const struct manifest *dataset_manifest(const struct dataset *d) {
    return &d->manifest;
}

const char *dataset_shard_path(const struct dataset *d, uint32_t shard) {
    return shard < d->shard_count ? d->shards[shard].path : NULL;
}

/* ---- samples ----------------------------------------------------------------------------------
 */

/* The last rank whose shard begins at or before `position`. */
static uint32_t shard_of_position(const struct dataset *d, uint64_t position) {
    uint32_t low = 0;
    uint32_t high = d->shard_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (d->shards[d->ranks[middle]].first_position <= position) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return d->ranks[low];
}

enum status dataset_sample_at(const struct dataset *d,
                              uint64_t position,
                              struct dataset_sample *out,
                              struct error *err) {
    REQUIRE(d && out && position < d->manifest.samples);
    struct dataset_place place;
    struct shard_record r;
    if (d->places) {
        place = d->places[position];
    } else {
        place.shard = shard_of_position(d, position);
        place.index = (uint32_t)(position - d->shards[place.shard].first_position);
    }
    const struct dataset_shard *shard = &d->shards[place.shard];
    TRY(shard_index_record(&shard->index, place.index, &r, err));
    *out = (struct dataset_sample){
        .sample_id = r.sample_id,
        .position = position,
        .image_offset = r.image_offset,
        .image_hash = r.image_hash,
        .caption_hash = r.caption_hash,
        .first_text_id = d->places ? d->first_texts[position] : shard->first_text + r.first_text,
        .text_count = r.text_count,
        .shard = place.shard,
        .index_in_shard = place.index,
        .image_bytes = r.image_bytes,
        .image_span_bytes = shard_image_span_bytes(shard->index.container, r.image_bytes),
        .width_px = r.width_px,
        .height_px = r.height_px,
        .format = r.format,
        .flags = r.flags,
        .label = r.label,
    };
    return STATUS_OK;
}

enum status dataset_find(const struct dataset *d,
                         uint64_t sample_id,
                         struct dataset_sample *out,
                         struct error *err) {
    REQUIRE(d && out);
    uint64_t low = 0;
    uint64_t high = d->manifest.samples;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        TRY(dataset_sample_at(d, middle, out, err));
        if (out->sample_id == sample_id) {
            return STATUS_OK;
        }
        if (out->sample_id < sample_id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return error_set(err, STATUS_NOTFOUND, "there is no sample %" PRIu64, sample_id);
}

/* ---- fingerprint ------------------------------------------------------------------------------
 */

enum status dataset_compute_fingerprint(const struct dataset *d, uint64_t *out, struct error *err) {
    REQUIRE(d && out);
    struct hasher *h = NULL;
    enum status s = hasher_create(&h, err);
    for (uint64_t position = 0; s == STATUS_OK && position < d->manifest.samples; position++) {
        struct dataset_sample sample;
        uint8_t bytes[24];
        s = dataset_sample_at(d, position, &sample, err);
        if (s == STATUS_OK) {
            store_u64(bytes, sample.sample_id);
            store_u64(bytes + 8, sample.image_hash);
            store_u64(bytes + 16, sample.caption_hash);
            hasher_update(h, bytes, sizeof(bytes));
        }
    }
    if (s == STATUS_OK) {
        *out = hasher_value(h);
    }
    hasher_destroy(h);
    return s;
}

enum status dataset_fingerprint_of(uint64_t *out,
                                   const struct manifest *m,
                                   const char *directory,
                                   const struct file_system *fs,
                                   struct error *err) {
    REQUIRE(out && m && directory);
    struct dataset d = {.fs = fs ? fs : file_system_of(directory),
                        .manifest = *m}; /* the caller's, borrowed */
    enum status s = open_shards(&d, directory, err);
    THEN(s, dataset_compute_fingerprint(&d, out, err));
    close_tables(&d);
    return s;
}
