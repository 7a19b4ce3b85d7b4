/*
 * A run of the packer whose rows come from calls instead of sources: plan, commit and worker are
 * those of pack_run, with options that name no source.
 *
 *     any thread        slot: fill the row, pack_worker_check        decode
 *     with the mutex    id and key, frame, pack_commit_add_sample    compress, store
 */
#include "pack/writer/writer.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/hash_map.h"
#include "pack/options_internal.h"
#include "pack/run/commit_internal.h"
#include "pack/run/decide_internal.h"
#include "pack/run/directory_internal.h"
#include "pack/run/worker_internal.h"
#include "pack/source/source_internal.h"

/* Threads whose images the budget admits together; more of them wait for each other. */
enum { BUDGET_JOBS = 16 };

/* ---- ids ---- */

struct id_range {
    uint64_t first, end; /* end: the first id after it */
};

/* The ids that were used: those that ascend as ranges, so that consecutive ones take no memory, the
 * others in a map. All zero: empty. */
struct id_set {
    struct byte_buffer ranges; /* each a struct id_range, ascending */
    uint64_t end;              /* greater than every id in the ranges */
    struct hash_map *others;   /* ids that were added after a greater one; NULL: none */
};

static void fini_ids(struct id_set *s) {
    byte_buffer_fini(&s->ranges);
    hash_map_destroy(s->others);
    memset(s, 0, sizeof(*s));
}

static struct id_range *range_at(const struct id_set *s, size_t i) {
    return (struct id_range *)(void *)s->ranges.data + i;
}

static bool has_id(const struct id_set *s, uint64_t id) {
    const size_t count = s->ranges.size_bytes / sizeof(struct id_range);
    size_t low = 0, high = count;
    while (low < high) { /* the first range that ends after the id */
        size_t middle = low + (high - low) / 2;
        if (range_at(s, middle)->end <= id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (low < count && range_at(s, low)->first <= id) ||
           (s->others && hash_map_get(s->others, id) != HASH_MAP_NONE);
}

/* Adds the ids from `first` to `end` - 1, none of which it has; one id, or all beyond the others.
 * Returns OK, NOMEM or LIMIT. */
static enum status add_ids(struct id_set *s, uint64_t first, uint64_t end, struct error *err) {
    const struct id_range range = {first, end};
    const size_t count = s->ranges.size_bytes / sizeof(range);
    if (first < s->end) {
        TRY(s->others ? STATUS_OK : hash_map_create(&s->others, err));
        return hash_map_put(s->others, first, 0, err);
    }
    if (count > 0 && s->end == first) {
        range_at(s, count - 1)->end = end;
    } else {
        TRY(byte_buffer_append(&s->ranges, &range, sizeof(range), err));
    }
    s->end = end;
    return STATUS_OK;
}

/* ---- the writer ---- */

/* What one thread needs to check a sample. */
struct slot {
    struct pack_worker *worker;
    struct pack_item item;
    struct slot *next; /* of the free ones */
};

struct pack_writer {
    struct pack_options options;
    char *directory;
    struct pack_plan plan;
    uint32_t first_number; /* of the writer's first shard */
    uint64_t first_id;     /* with append: ids below are the dataset's */
    struct pack_budget budget;

    pthread_mutex_t mutex; /* guards everything below, and the plan */
    struct pack_summary summary;
    struct pack_commit commit;
    struct slot *free_slots;
    struct id_set ids;
    struct hash_map *keys; /* hashes of the keys that were given */
    int32_t last_label;    /* the largest */
    bool has_keys;         /* all samples so far have one, else none has */
    bool has_classes, finished;
    enum status failure; /* why the writer has ended; OK: it has not */
    struct error why;
};

/* ---- open and close ---- */

/* The dataset that an append adds to was made with ids by row or by key, and stays so. */
static enum status adopt_ids(struct pack_options *o, struct error *err) {
    struct manifest m = {0};
    TRY(manifest_read(&m, o->fs, o->directory, err));
    const char *ids = pack_manifest_option(&m, "ids");
    o->ids = ids && strcmp(ids, "key") == 0 ? PACK_IDS_KEY : PACK_IDS_ROW;
    manifest_fini(&m);
    return STATUS_OK;
}

static enum status refuse_content(const struct pack_options *o, struct error *err) {
    struct byte_buffer names = {0};
    byte_buffer_init(&names, 0);
    enum status s = pack_directory_list(&names, o->fs, o->directory, err);
    if (s == STATUS_OK && names.size_bytes > 0) {
        s = error_set(
            err, STATUS_EXISTS,
            "%s: is not empty; `overwrite` replaces a dataset in it, `append` adds to one",
            o->directory);
    }
    byte_buffer_fini(&names);
    return s;
}

static enum status open_directory(struct pack_writer *w, struct error *err) {
    struct pack_options *o = &w->options;
    if (o->append) {
        TRY(adopt_ids(o, err));
    } else {
        TRY(o->overwrite ? STATUS_OK : refuse_content(o, err));
        TRY(pack_directory_make(o->fs, o->directory, err));
    }
    TRY(pack_plan_make(&w->plan, o, NULL, err));
    w->first_number = w->plan.next_number;
    const uint64_t id_space = w->plan.manifest.id_space;
    w->first_id = w->plan.old_rows > id_space ? w->plan.old_rows : id_space;
    if (w->first_id > 0) {
        TRY(add_ids(&w->ids, 0, w->first_id, err));
    }
    return pack_commit_open(&w->commit, &w->plan, &w->summary, err);
}

enum status pack_writer_open(struct pack_writer **out,
                             const char *directory,
                             const struct pack_options *opt,
                             struct error *err) {
    REQUIRE(out && directory && opt && opt->fs && opt->created_by && opt->source_count == 0);
    REQUIRE(opt->shard_samples >= 1 && opt->shard_samples <= SHARD_MAX_SAMPLES);
    REQUIRE(opt->level >= SHARD_LEVEL_MIN && opt->level <= SHARD_LEVEL_MAX);
    REQUIRE(opt->container == SHARD_CONTAINER_TAR_ZSTD || opt->container == SHARD_CONTAINER_TAR);
    *out = NULL;
    FAIL_IF(opt->append && opt->overwrite, err, STATUS_USAGE,
            "append and overwrite exclude each other");
    struct pack_writer *w = calloc(1, sizeof(*w));
    if (!w || !(w->directory = strdup(directory))) {
        free(w);
        return error_set(err, STATUS_NOMEM, "out of memory for a writer");
    }
    w->options = *opt;
    w->options.directory = w->directory;
    w->last_label = SHARD_NO_LABEL;
    byte_buffer_init(&w->ids.ranges, SIZE_MAX / 2);
    pthread_mutex_init(&w->mutex, NULL);
    pack_budget_init(&w->budget, BUDGET_JOBS);
    enum status s = open_directory(w, err);
    RETURN_CREATED(s, out, w, pack_writer_close);
}

static void destroy_slot(struct slot *slot) {
    if (slot) {
        pack_worker_destroy(slot->worker);
        pack_item_fini(&slot->item);
        free(slot);
    }
}

void pack_writer_close(struct pack_writer *w) {
    if (!w) {
        return;
    }
    bool undo = w->commit.prepared && !w->summary.is_dataset;
    if (w->commit.plan) {
        pack_commit_close(&w->commit);
    }
    if (undo) {
        w->plan.next_number = w->first_number;
        w->plan.tars = w->options.container == SHARD_CONTAINER_TAR;
        pack_directory_undo(&w->plan, NULL);
    }
    if (w->plan.opt) {
        pack_plan_fini(&w->plan);
    }
    while (w->free_slots) {
        struct slot *slot = w->free_slots;
        w->free_slots = slot->next;
        destroy_slot(slot);
    }
    fini_ids(&w->ids);
    hash_map_destroy(w->keys);
    pack_budget_fini(&w->budget);
    pthread_mutex_destroy(&w->mutex);
    free(w->directory);
    free(w);
}

/* ---- one sample: any thread ---- */

static enum status take_slot(struct pack_writer *w, struct slot **out, struct error *err) {
    pthread_mutex_lock(&w->mutex);
    struct slot *slot = w->free_slots;
    w->free_slots = slot ? slot->next : NULL;
    pthread_mutex_unlock(&w->mutex);
    *out = slot;
    if (slot) {
        return STATUS_OK;
    }
    slot = calloc(1, sizeof(*slot));
    TRY_MEMORY(slot, err, "out of memory for a sample");
    pack_item_init(&slot->item);
    enum status s = pack_worker_create(&slot->worker, &w->options, &w->budget, NULL, NULL, err);
    RETURN_CREATED(s, out, slot, destroy_slot);
}

static void give_slot(struct pack_writer *w, struct slot *slot) {
    pack_item_trim(&slot->item);
    pthread_mutex_lock(&w->mutex);
    slot->next = w->free_slots;
    w->free_slots = slot;
    pthread_mutex_unlock(&w->mutex);
}

static enum status
check_values(struct pack_writer *w, const struct pack_writer_sample *in, struct error *err) {
    const size_t classes = pack_classes_count(&w->plan.classes);
    FAIL_IF(!in->image || in->image_bytes == 0, err, STATUS_INVALID, "the sample has no image");
    FAIL_IF(in->key && !shard_key_is_valid(in->key), err, STATUS_INVALID,
            "the key '%.100s' is not 1 to %d bytes of printable ASCII without space "
            ". / and \\",
            in->key, SHARD_MAX_KEY_BYTES);
    FAIL_IF(in->label < SHARD_NO_LABEL || in->label >= MANIFEST_MAX_CLASSES, err, STATUS_INVALID,
            "label %" PRId32 ": must be from 0 to %d, or %d: none", in->label,
            MANIFEST_MAX_CLASSES - 1, SHARD_NO_LABEL);
    FAIL_IF(classes > 0 && in->label >= (int64_t)classes, err, STATUS_INVALID,
            "label %" PRId32 " is not among the %zu classes: set their names first", in->label,
            classes);
    FAIL_IF(in->id != PACK_WRITER_NEXT_ID && in->id > SHARD_MAX_ID, err, STATUS_LIMIT,
            "id %" PRIu64 ": the largest is %" PRIu64, in->id, SHARD_MAX_ID);
    return STATUS_OK;
}

static enum status
take_json(struct source_row *row, const struct shard_text *json, struct error *err) {
    size_t at = 0;
    while (at < json->size_bytes && source_is_space(json->data[at])) {
        at++;
    }
    if (json->size_bytes > 0 && (at == json->size_bytes || json->data[at] != '{')) {
        return error_set(err, STATUS_CORRUPT, "the metadata is not a JSON object");
    }
    row->json_unchecked = json->size_bytes > 0;
    return byte_buffer_append(&row->json, json->data, json->size_bytes, err);
}

static enum status
fill_row(struct source_row *row, const struct pack_writer_sample *in, struct error *err) {
    source_row_reset(row, 0);
    TRY(byte_buffer_append(&row->image, in->image, in->image_bytes, err));
    for (size_t i = 0; i < in->caption_count; i++) {
        const struct shard_text *text = &in->captions[i];
        TRY(source_row_add_caption(row, text->data, text->size_bytes, err));
    }
    return take_json(row, &in->json, err);
}

/* A rejected row is a refused sample. */
static enum status judge(const struct source_row *row, struct error *err) {
    enum status s = STATUS_CORRUPT;
    switch (row->reason) {
    case REASON_NONE:
        if (row->json_problem[0] == '\0') {
            return STATUS_OK;
        }
        return error_set(err, s, "the metadata is not valid JSON: %.200s", row->json_problem);
    case REASON_IMAGE_UNSUPPORTED:
        s = STATUS_UNSUPPORTED;
        break;
    case REASON_IMAGE_LIMIT:
    case REASON_IMAGE_LARGE:
    case REASON_CAPTION_LIMIT:
        s = STATUS_LIMIT;
        break;
    default:
        break;
    }
    return error_set(err, s, "%s: %.300s", source_reason_name(row->reason), row->detail);
}

static enum status check_sample(struct pack_writer *w,
                                struct slot *slot,
                                const struct pack_writer_sample *in,
                                struct error *err) {
    struct pack_item *item = &slot->item;
    TRY(check_values(w, in, err));
    TRY(fill_row(&item->row, in, err));
    TRY(pack_worker_check(slot->worker, item, err));
    return judge(&item->row, err);
}

/* ---- one sample: with the mutex ---- */

static enum status choose_id(const struct pack_writer *w,
                             struct pack_item *item,
                             const struct pack_writer_sample *in,
                             struct error *err) {
    item->id = in->id != PACK_WRITER_NEXT_ID ? in->id : w->ids.end;
    FAIL_IF(item->id > SHARD_MAX_ID, err, STATUS_LIMIT, "no id is left after %" PRIu64,
            SHARD_MAX_ID);
    FAIL_IF(item->id < w->first_id, err, STATUS_EXISTS,
            "id %" PRIu64 ": new ids must be at least %" PRIu64, item->id, w->first_id);
    FAIL_IF(has_id(&w->ids, item->id), err, STATUS_EXISTS, "id %" PRIu64 ": another sample has it",
            item->id);
    return STATUS_OK;
}

static enum status choose_key(struct pack_writer *w,
                              struct pack_item *item,
                              const struct pack_writer_sample *in,
                              struct error *err) {
    FAIL_IF(w->summary.samples > 0 && (in->key != NULL) != w->has_keys, err, STATUS_INVALID,
            "the sample has %s key, unlike earlier samples", in->key ? "a" : "no");
    if (!in->key) {
        source_row_set_number_key(&item->row, item->id);
    } else {
        if (!w->keys) {
            TRY(hash_map_create(&w->keys, err));
        }
        FAIL_IF(hash_map_get(w->keys, hash64(in->key, strlen(in->key))) != HASH_MAP_NONE, err,
                STATUS_EXISTS, "key '%s': another sample has it", in->key);
        source_row_set_key(&item->row, in->key, strlen(in->key));
    }
    pack_keys_choose(&w->commit.keys, item);
    return STATUS_OK;
}

static enum status
store(struct pack_writer *w, struct pack_item *item, bool has_key, struct error *err) {
    TRY(add_ids(&w->ids, item->id, item->id + 1, err));
    w->has_keys = has_key;
    if (has_key) {
        TRY(hash_map_put(w->keys, hash64(item->key, strlen(item->key)), item->id, err));
    }
    TRY(pack_commit_add_sample(&w->commit, item, err));
    w->last_label = item->label > w->last_label ? item->label : w->last_label;
    return STATUS_OK;
}

/* Remembers the failure that ended the writer, and repeats it. */
static enum status end(struct pack_writer *w, enum status s, const struct error *why) {
    if (w->failure == STATUS_OK) {
        w->failure = s;
        w->why = *why;
    }
    return s;
}

static enum status check_alive(const struct pack_writer *w, struct error *err) {
    FAIL_IF(w->failure != STATUS_OK, err, w->failure, "%s", w->why.text);
    FAIL_IF(w->finished, err, STATUS_INVALID, "%s: the dataset is finished", w->directory);
    return STATUS_OK;
}

static enum status commit_sample(struct pack_writer *w,
                                 struct pack_item *item,
                                 const struct pack_writer_sample *in,
                                 struct error *err) {
    TRY(check_alive(w, err));
    TRY(choose_id(w, item, in, err));
    TRY(choose_key(w, item, in, err));
    item->label = in->label;
    item->sample.sample_id = item->id;
    item->sample.label = item->label;
    TRY(shard_frame_build(w->commit.builder, &item->frame, &item->sample, err));
    struct error why = {0};
    enum status s = store(w, item, in->key != NULL, &why);
    return s == STATUS_OK ? s : error_set(err, end(w, s, &why), "%s", why.text);
}

enum status pack_writer_add(struct pack_writer *w,
                            uint64_t *id,
                            const struct pack_writer_sample *sample,
                            struct error *err) {
    REQUIRE(w && id && sample && (sample->captions || sample->caption_count == 0));
    struct slot *slot = NULL;
    *id = 0;
    TRY(take_slot(w, &slot, err));
    enum status s = check_sample(w, slot, sample, err);
    if (s == STATUS_OK) {
        pthread_mutex_lock(&w->mutex);
        s = commit_sample(w, &slot->item, sample, err);
        pthread_mutex_unlock(&w->mutex);
        *id = s == STATUS_OK ? slot->item.id : 0;
    }
    give_slot(w, slot);
    return s;
}

/* ---- the end ---- */

enum status pack_writer_set_classes(struct pack_writer *w,
                                    const char *const *names,
                                    size_t count,
                                    struct error *err) {
    REQUIRE(w && (names || count == 0));
    TRY(check_alive(w, err));
    FAIL_IF(w->has_classes || count < w->plan.manifest.class_count, err, STATUS_INVALID,
            w->has_classes ? "classes are set already"
                           : "the dataset has more classes than are given");
    FAIL_IF(w->last_label >= (int64_t)count, err, STATUS_INVALID,
            "a sample has label %" PRId32 ", and there are names for %zu classes", w->last_label,
            count);
    w->has_classes = true;
    for (size_t i = 0; i < count; i++) {
        uint64_t place = 0;
        struct error why = {0};
        enum status s = pack_classes_add(&w->plan.classes, names[i], &place, &why);
        if (s == STATUS_OK && place != i) {
            s = error_set(&why, STATUS_INVALID,
                          "class %zu, '%.100s', is class %" PRIu64 " of the dataset", i, names[i],
                          place);
        }
        if (s != STATUS_OK) { /* some of the names are in */
            return error_set(err, end(w, s, &why), "%s", why.text);
        }
    }
    return STATUS_OK;
}

/* Later packing into the directory counts rows, and gives ids after them. */
static enum status add_source(struct pack_writer *w, struct error *err) {
    const bool by_row = w->options.ids == PACK_IDS_ROW;
    const uint64_t rows = by_row ? w->ids.end - w->plan.old_rows : w->summary.samples;
    return manifest_add_source(&w->plan.manifest, PACK_WRITER_SOURCE, rows, err);
}

enum status pack_writer_finish(struct pack_writer *w, struct error *err) {
    REQUIRE(w);
    TRY(check_alive(w, err));
    FAIL_IF(w->summary.samples == 0, err, STATUS_INVALID, "%s: no sample was added", w->directory);
    struct error why = {0};
    enum status s = add_source(w, &why);
    THEN(s, pack_commit_finish(&w->commit, false, &why));
    FAIL_IF(s != STATUS_OK, err, end(w, s, &why), "%s", why.text);
    w->finished = true;
    return STATUS_OK;
}

const struct manifest *pack_writer_manifest(const struct pack_writer *w) {
    return &w->plan.manifest;
}
