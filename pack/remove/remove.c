/*
 * remove lists samples in the manifest; compact makes shards without them:
 *
 *     shard-000001 (100 samples, 3 removed) --> shard-000007 (97)
 *     shard-000004 (2 samples, 2 removed)   --> nothing
 *
 * New shards get the numbers after the largest one, so that the old dataset is whole until
 * dataset.json names the new ones.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/columns/columns.h"
#include "formats/dataset/dataset.h"
#include "formats/dataset/manifest.h"
#include "formats/shard/shard_reader.h"
#include "formats/shard/shard_writer.h"
#include "formats/tokenizer/token_cache.h"
#include "pack/options_internal.h"
#include "pack/pack.h"
#include "pack/remove/remove.h"

/* Locks the directory and reads its manifest, which must be of a complete dataset. On failure *lock
 * may be set, and must be closed. */
static enum status pack_remove_begin(struct file **lock,
                                     struct manifest *m,
                                     const struct pack_remove_options *o,
                                     struct error *err) {
    char path[PATH_MAX_BYTES];
    bool unfinished = false;
    TRY(o->fs->lock_directory(o->fs->context, lock, o->directory, err));
    TRY(path_join(path, sizeof(path), o->directory, PACK_JOURNAL_NAME, err));
    TRY(o->fs->exists(o->fs->context, path, &unfinished, err));
    FAIL_IF(unfinished, err, STATUS_EXISTS,
            "%s: holds an unfinished run: complete it with its command and --resume", o->directory);
    TRY(manifest_read(m, o->fs, o->directory, err));
    if (pack_manifest_option(m, PACK_SETTING_PART)) {
        manifest_fini(m);
        return error_set(err, STATUS_MISMATCH,
                         "%s: is a part of a dataset: remove samples after 'ccpack merge'",
                         o->directory);
    }
    return STATUS_OK;
}

/* Seals the manifest with this fingerprint, and writes it unless it is a dry run. */
static enum status pack_remove_publish(struct manifest *m,
                                       uint64_t fingerprint,
                                       const struct pack_remove_options *o,
                                       struct error *err) {
    char *created_by = strdup(o->created_by);
    TRY_MEMORY(created_by, err, "out of memory for the manifest");
    free(m->created_by);
    m->created_by = created_by;
    TRY(manifest_seal(m, fingerprint, err));
    return o->dry_run ? STATUS_OK : manifest_write(m, o->fs, o->directory, err);
}

/* Adds the ids to the removed ones of `m`, which `d` does not have yet. */
static enum status mark(struct manifest *m,
                        const struct dataset *d,
                        const struct pack_remove_options *o,
                        struct pack_remove_summary *out,
                        struct error *err) {
    TRY(manifest_add_removed(m, o->ids, o->id_count, err));
    for (size_t i = 0; i < m->removed.count; i++) {
        struct dataset_sample sample;
        const uint64_t id = m->removed.ids[i];
        if (manifest_is_removed(dataset_manifest(d), id)) {
            continue;
        }
        FAIL_IF(dataset_find(d, id, &sample, err) != STATUS_OK, err, STATUS_NOTFOUND,
                "%s: there is no sample %" PRIu64 "; nothing was removed", o->directory, id);
        out->removed++;
        out->image_bytes += sample.image_bytes;
        m->removed.texts += sample.text_count;
    }
    m->removed.samples += out->removed;
    m->removed.image_bytes += out->image_bytes;
    return STATUS_OK;
}

static enum status remove_from(struct manifest *m,
                               const struct pack_remove_options *o,
                               struct pack_remove_summary *out,
                               struct error *err) {
    struct dataset *d = NULL;
    uint64_t fingerprint = m->fingerprint;
    out->old_fingerprint = m->fingerprint;
    TRY(dataset_open(&d, o->directory, o->fs, err));
    for (size_t i = 0; i < o->id_count; i++) {
        out->before += manifest_is_removed(m, o->ids[i]);
    }
    enum status s = mark(m, d, o, out, err);
    dataset_close(d);
    if (s == STATUS_OK && out->removed > 0) {
        s = dataset_fingerprint_of(&fingerprint, m, o->directory, o->fs, err);
    }
    if (s == STATUS_OK && out->removed > 0) {
        s = pack_remove_publish(m, fingerprint, o, err);
    }
    out->samples = m->samples;
    out->fingerprint = fingerprint;
    return s;
}

enum status pack_remove_samples(const struct pack_remove_options *opt,
                                struct pack_remove_summary *out,
                                struct error *err) {
    REQUIRE(opt && out && opt->fs && opt->directory && opt->created_by);
    struct file *lock = NULL;
    struct manifest m = {0};
    memset(out, 0, sizeof(*out));
    enum status s = pack_remove_begin(&lock, &m, opt, err);
    if (s == STATUS_OK) {
        s = remove_from(&m, opt, out, err);
        manifest_fini(&m);
    }
    opt->fs->close(lock);
    return s;
}

enum { NUMBER_DIGITS = 6, MAX_NUMBER = 999999 };

struct compact {
    const struct pack_remove_options *o;
    const struct file_system *fs;
    struct manifest old;
    struct manifest now; /* only its shards are its own until the old one is given up */
    uint64_t listed[MAX_NUMBER / 64 + 1]; /* bits: numbers of the dataset's shards */
    uint32_t next_number;
    int level;
    struct shard_frame_builder *builder;
    struct shard_frame frame;
    struct pack_remove_summary *out;
};

/* "shard-000012.tar": its number, and the size of "shard". False for other names. */
static bool split_name(const char *name, size_t *prefix_bytes, uint32_t *number) {
    const char *dash = strrchr(name, '-');
    if (!dash || dash == name || strspn(dash + 1, "0123456789") != NUMBER_DIGITS) {
        return false;
    }
    const char *ending = dash + 1 + NUMBER_DIGITS;
    *prefix_bytes = (size_t)(dash - name);
    *number = (uint32_t)strtoul(dash + 1, NULL, 10);
    return strcmp(ending, ".tar.zst") == 0 || strcmp(ending, ".tar") == 0;
}

/* ---- one shard ---- */

static enum status copy_sample(struct compact *c,
                               struct shard_writer *w,
                               struct shard_reader *reader,
                               uint32_t i,
                               struct error *err) {
    struct sample_view v;
    TRY(shard_reader_get(reader, i, &v, err));
    const struct shard_sample sample = shard_sample_of(&v);
    TRY(shard_frame_build(c->builder, &c->frame, &sample, err));
    return shard_writer_add(w, &c->frame, err);
}

/* Writes the shard again without removed samples. */
static enum status rewrite(struct compact *c,
                           struct shard_reader *reader,
                           const struct shard_summary *old,
                           struct error *err) {
    char prefix[SHARD_MAX_NAME_BYTES + 1];
    struct shard_writer *w = NULL;
    struct shard_summary summary;
    size_t prefix_bytes = 0;
    uint32_t number = 0;
    FAIL_IF(!split_name(old->name, &prefix_bytes, &number) || c->next_number > MAX_NUMBER, err,
            STATUS_LIMIT, "%s: no further shard name is available", old->name);
    memcpy(prefix, old->name, prefix_bytes);
    prefix[prefix_bytes] = '\0';
    TRY(shard_writer_open(&w, c->fs, c->o->directory, prefix, c->next_number, c->old.container,
                          c->level, err));
    enum status s = STATUS_OK;
    for (uint32_t i = 0; s == STATUS_OK && i < shard_reader_sample_count(reader); i++) {
        struct shard_record record;
        s = pack_check_stop(c->o->interrupted, c->o->cookie, err);
        THEN(s, shard_reader_record(reader, i, &record, err));
        if (s == STATUS_OK && !manifest_is_removed(&c->old, record.sample_id)) {
            s = copy_sample(c, w, reader, i, err);
        }
    }
    THEN(s, shard_writer_finish(w, &summary, err));
    shard_writer_close(w);
    TRY(s);
    c->next_number++;
    return manifest_add_shard(&c->now, &summary, err);
}

static enum status
compact_shard(struct compact *c, const struct shard_summary *old, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct shard_reader *reader = NULL;
    uint32_t removed = 0;
    TRY(path_join(path, sizeof(path), c->o->directory, old->name, err));
    TRY(shard_reader_open(&reader, c->fs, path, err));
    enum status s = STATUS_OK;
    const uint32_t count = shard_reader_sample_count(reader);
    for (uint32_t i = 0; s == STATUS_OK && i < count; i++) {
        struct shard_record record;
        s = shard_reader_record(reader, i, &record, err);
        if (s == STATUS_OK && manifest_is_removed(&c->old, record.sample_id)) {
            removed++;
            c->out->image_bytes += record.image_bytes;
        }
    }
    c->out->removed += removed;
    c->out->shards += removed > 0;
    if (s == STATUS_OK && removed == 0) {
        s = manifest_add_shard(&c->now, old, err);
    } else if (s == STATUS_OK && removed < count && !c->o->dry_run) {
        s = rewrite(c, reader, old, err);
    }
    shard_reader_close(reader);
    return s;
}

/* ---- what is deleted ---- */

static enum status delete_file(struct compact *c, const char *path, struct error *err) {
    bool exists = false;
    TRY(c->fs->exists(c->fs->context, path, &exists, err));
    if (!exists) {
        return STATUS_OK;
    }
    c->out->deleted++;
    return c->o->dry_run ? STATUS_OK : c->fs->remove(c->fs->context, path, err);
}

/* A leftover has only samples that were removed or are in the dataset; what has others is not ours.
 */
static enum status is_leftover(bool *out,
                               const struct compact *c,
                               const struct dataset *d,
                               const char *path,
                               struct error *err) {
    struct shard_reader *reader = NULL;
    *out = false;
    enum status s = shard_reader_open(&reader, c->fs, path, NULL);
    if (s != STATUS_OK) {
        return s == STATUS_NOMEM ? error_set(err, s, "%s: out of memory", path) : STATUS_OK;
    }
    *out = true;
    for (uint32_t i = 0; *out && i < shard_reader_sample_count(reader); i++) {
        struct shard_record record;
        struct dataset_sample sample;
        *out = shard_reader_record(reader, i, &record, NULL) == STATUS_OK &&
               (manifest_is_removed(dataset_manifest(d), record.sample_id) ||
                (dataset_find(d, record.sample_id, &sample, NULL) == STATUS_OK &&
                 sample.image_hash == record.image_hash &&
                 sample.caption_hash == record.caption_hash));
    }
    shard_reader_close(reader);
    return STATUS_OK;
}

/* Whether a shard of the dataset has this number, under any name. */
static bool is_listed(const struct compact *c, uint32_t number) {
    return (c->listed[number / 64] >> number % 64 & 1u) != 0;
}

static void list_numbers(struct compact *c, const struct manifest *m) {
    memset(c->listed, 0, sizeof(c->listed));
    for (size_t i = 0; i < m->shard_count; i++) {
        size_t prefix_bytes = 0;
        uint32_t number = 0;
        if (split_name(m->shards[i].name, &prefix_bytes, &number)) {
            c->listed[number / 64] |= UINT64_C(1) << number % 64;
        }
    }
}

/* Deletes `name` if it is a shard that is not in the dataset any more. */
static enum status
delete_leftover(struct compact *c, const struct dataset *d, const char *name, struct error *err) {
    char path[PATH_MAX_BYTES];
    char sidecar[PATH_MAX_BYTES];
    size_t prefix_bytes = 0;
    uint32_t number = 0;
    bool leftover = false;
    if (!split_name(name, &prefix_bytes, &number) || !shard_name_is_valid(name) ||
        is_listed(c, number)) {
        return STATUS_OK;
    }
    TRY(path_join(path, sizeof(path), c->o->directory, name, err));
    TRY(is_leftover(&leftover, c, d, path, err));
    if (!leftover) {
        return STATUS_OK;
    }
    TRY(shard_index_name(sidecar, sizeof(sidecar), path, err));
    TRY(delete_file(c, sidecar, err));
    return delete_file(c, path, err);
}

/* Temporary files of a compaction that was killed. */
static enum status delete_temporary(struct compact *c, const char *name, struct error *err) {
    char path[PATH_MAX_BYTES];
    char plain[SHARD_MAX_NAME_BYTES + 1];
    size_t prefix_bytes = 0;
    uint32_t number = 0;
    const size_t size = file_draft_name_bytes(name);
    if (size == 0 || size >= sizeof(plain)) {
        return STATUS_OK;
    }
    memcpy(plain, name, size);
    plain[size] = '\0';
    if (!split_name(plain, &prefix_bytes, &number)) {
        return STATUS_OK;
    }
    TRY(path_join(path, sizeof(path), c->o->directory, name, err));
    return delete_file(c, path, err);
}

/* Rows of removed captions are in a token cache of an earlier state. */
static enum status
delete_stale_cache(struct compact *c, const struct dataset *d, struct error *err) {
    char path[PATH_MAX_BYTES];
    const struct token_cache *cache = dataset_token_cache(d, NULL);
    if (cache && token_cache_key(cache)->fingerprint == dataset_fingerprint(d)) {
        return STATUS_OK;
    }
    TRY(path_join(path, sizeof(path), c->o->directory, TOKEN_CACHE_NAME, err));
    return delete_file(c, path, err);
}

/* After the manifest: a file that nothing names any more. */
static enum status clean_up(struct compact *c, struct error *err) {
    struct byte_buffer names = {0};
    struct dataset *d = NULL;
    TRY(dataset_open(&d, c->o->directory, c->fs, err));
    list_numbers(c, dataset_manifest(d));
    byte_buffer_init(&names, 0);
    enum status s = c->fs->list(c->fs->context, c->o->directory, &names, err);
    for (size_t at = 0; s == STATUS_OK && at < names.size_bytes;) {
        const char *name = (const char *)names.data + at;
        at += strlen(name) + 1;
        s = delete_leftover(c, d, name, err);
        THEN(s, delete_temporary(c, name, err));
    }
    THEN(s, delete_stale_cache(c, d, err));
    if (s == STATUS_OK && !c->o->dry_run) {
        s = c->fs->sync_directory(c->fs->context, c->o->directory, err);
    }
    byte_buffer_fini(&names);
    dataset_close(d);
    return s;
}

/* ---- the whole ---- */

static void prepare(struct compact *c) {
    c->level = pack_manifest_level(&c->old);
    for (size_t i = 0; i < c->old.shard_count; i++) {
        size_t prefix_bytes = 0;
        uint32_t number_of = 0;
        if (split_name(c->old.shards[i].name, &prefix_bytes, &number_of) &&
            number_of >= c->next_number) {
            c->next_number = number_of + 1;
        }
    }
}

/* Puts the new shards into the manifest, and writes it if the samples are the same. */
static enum status publish(struct compact *c, struct error *err) {
    struct manifest *m = &c->old;
    uint64_t fingerprint = 0;
    pack_exchange_shards(m, &c->now);
    TRY(dataset_fingerprint_of(&fingerprint, m, c->o->directory, c->fs, err));
    FAIL_IF(fingerprint != m->fingerprint, err, STATUS_CORRUPT,
            "%s: the rewritten shards have the fingerprint %016" PRIx64 ", not %016" PRIx64
            "; the dataset has not changed; run ccdump verify to find the fault",
            c->o->directory, fingerprint, m->fingerprint);
    return pack_remove_publish(m, fingerprint, c->o, err);
}

static bool is_kept(const void *cookie, uint64_t id) {
    return !manifest_is_removed(cookie, id);
}

static enum status compact_columns(struct compact *c, struct error *err) {
    const struct column_copy how = {.from_fs = c->fs,
                                    .fs = c->fs,
                                    .from = &c->o->directory,
                                    .from_count = 1,
                                    .to = c->o->directory,
                                    .keep = is_kept,
                                    .cookie = &c->old};
    return column_copy_all(&how, err);
}

static enum status compact_all(struct compact *c, struct error *err) {
    const struct manifest *m = &c->old;
    c->out->old_fingerprint = m->fingerprint;
    c->out->fingerprint = m->fingerprint;
    c->out->samples = m->samples;
    if (m->removed.samples > 0) {
        FAIL_IF(m->container == SHARD_CONTAINER_TAR_FOREIGN, err, STATUS_UNSUPPORTED,
                "%s: its tars belong to other programs and are never written to; use ccpack -o DIR "
                "to pack them without the removed samples",
                c->o->directory);
        prepare(c);
        TRY(shard_frame_builder_create(&c->builder, m->container, c->level, err));
        for (size_t i = 0; i < m->shard_count; i++) {
            TRY(compact_shard(c, &m->shards[i], err));
            if (c->o->progress) {
                c->o->progress(c->o->cookie, i + 1, m->shard_count);
            }
        }
        if (c->o->dry_run) {
            return STATUS_OK;
        }
        TRY(publish(c, err));
    }
    TRY(m->removed.count > 0 && !c->o->dry_run ? compact_columns(c, err) : STATUS_OK);
    return m->removed.count > 0 ? clean_up(c, err) : STATUS_OK;
}

enum status pack_compact(const struct pack_remove_options *opt,
                         struct pack_remove_summary *out,
                         struct error *err) {
    REQUIRE(opt && out && opt->fs && opt->directory && opt->created_by);
    struct file *lock = NULL;
    struct compact *c = calloc(1, sizeof(*c));
    TRY_MEMORY(c, err, "out of memory to compact a dataset");
    c->o = opt;
    c->fs = opt->fs;
    c->out = out;
    memset(out, 0, sizeof(*out));
    enum status s = pack_remove_begin(&lock, &c->old, opt, err);
    if (s == STATUS_OK) {
        s = compact_all(c, err);
        shard_frame_fini(&c->frame);
        shard_frame_builder_destroy(c->builder);
        manifest_fini(&c->now);
        manifest_fini(&c->old);
    }
    opt->fs->close(lock);
    free(c);
    return s;
}
