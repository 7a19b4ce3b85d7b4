/*
 * Merging parts into one dataset.
 *
 *     part-2/shard-000000  --.
 *     part-1/shard-000000  --+--> OUT/shard-000000 (of part 1)   hard links, or copies
 *     part-1/shard-000001  --'        shard-000001 (of part 1)
 *                                     shard-000002 (of part 2)
 *
 * The journal's head identifies the parts by their content. A file with its final name is complete,
 * so a resumed merge keeps the shards that exist and makes the rest.
 */
#include "pack/merge/merge.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/columns/columns.h"
#include "formats/dataset/dataset.h"
#include "pack/merge/merge_internal.h"
#include "pack/options_internal.h"
#include "pack/run/rejects_internal.h"

void pack_merge_options_default(struct pack_merge_options *opt) {
    *opt = (struct pack_merge_options){
        .fs = file_posix(),
        .created_by = "ccpack " CCSTREAM_VERSION,
    };
}

static enum status check_stop(const struct merge *m, struct error *err) {
    return pack_check_stop(m->opt->interrupted, m->opt->cookie, err);
}

/* ---- what is merged ---- */

/* A hash over the shards of a part. */
static uint64_t shards_hash(const struct manifest *m) {
    uint64_t sum = m->shard_count;
    for (size_t i = 0; i < m->shard_count; i++) {
        uint8_t bytes[16];
        store_u64(bytes, sum);
        store_u64(bytes + 8, m->shards[i].hash);
        sum = hash64(bytes, sizeof(bytes));
    }
    return sum;
}

/* Identifies the parts, so that only a merge of the same parts is resumed. */
static void make_head(struct merge *m) {
    struct json_writer *w = &m->output.head;
    pack_output_head(&m->output, m->opt->created_by);
    json_open_array(w, "parts");
    for (size_t i = 0; i < m->opt->part_count; i++) {
        const struct manifest *p = &m->parts[i].manifest;
        json_open_object(w, NULL);
        json_hex64(w, "fingerprint", p->fingerprint);
        json_hex64(w, "shards", shards_hash(p));
        json_close_object(w);
    }
    json_close_array(w);
    json_close_object(w);
}

static bool is_merged(const void *cookie, const struct manifest *there) {
    return merge_is_of_parts(cookie, there);
}

/* ---- files ---- */

/* Called for each piece of a copy. */
static enum status
watch_copy(void *cookie, const void *data, size_t size_bytes, struct error *err) {
    struct merge *m = cookie;
    hasher_update(m->hasher, data, size_bytes);
    m->done.bytes += size_bytes;
    return check_stop(m, err);
}

/* Copies m->from to m->to. `hash` NULL: not known. */
static enum status
copy_file(struct merge *m, uint64_t size_bytes, const uint64_t *hash, struct error *err) {
    struct file_draft draft;
    TRY(file_draft_open(&draft, m->fs, m->to, err));
    hasher_reset(m->hasher);
    enum status s = file_append(m->fs, draft.file, m->from, size_bytes, watch_copy, m, err);
    if (s == STATUS_OK && hash && hasher_value(m->hasher) != *hash) {
        s = error_set(
            err, STATUS_CORRUPT,
            "%s: its hash differs from the one in dataset.json; run ccdump verify for details",
            m->from);
    }
    return file_draft_close(&draft, s, err);
}

/* Links or copies the part's file at m->from. A file that exists is complete. */
static enum status take_file(struct merge *m,
                             const char *name,
                             uint64_t size_bytes,
                             const uint64_t *hash,
                             struct error *err) {
    struct error why = {0};
    bool exists = false;
    TRY(path_join(m->to, sizeof(m->to), m->opt->directory, name, err));
    TRY(m->fs->exists(m->fs->context, m->to, &exists, err));
    if (exists) {
        return STATUS_OK;
    }
    enum status s = m->fs->hard_link(m->fs->context, m->from, m->to, &why);
    if (s == STATUS_UNSUPPORTED) {
        return copy_file(m, size_bytes, hash, err);
    }
    return s != STATUS_OK ? error_pass(err, s, &why) : s;
}

static enum status take_index(struct merge *m,
                              const struct merge_part *part,
                              const char *old,
                              const char *name,
                              struct error *err) {
    char index[SHARD_MAX_NAME_BYTES + 8];
    uint64_t size_bytes = 0;
    bool exists = false;
    TRY(shard_index_name(index, sizeof(index), old, err));
    TRY(path_join(m->from, sizeof(m->from), part->directory, index, err));
    TRY(m->fs->exists(m->fs->context, m->from, &exists, err));
    if (!exists) {
        return STATUS_OK; /* the shard holds its index too */
    }
    TRY(file_size(m->fs, &size_bytes, m->from, err));
    TRY(shard_index_name(index, sizeof(index), name, err));
    return take_file(m, index, size_bytes, NULL, err);
}

static enum status take_shard(struct merge *m,
                              const struct merge_part *part,
                              const struct shard_summary *shard,
                              struct error *err) {
    struct shard_summary summary = *shard;
    uint64_t size_bytes = 0;
    TRY(shard_file_name(summary.name, sizeof(summary.name), PACK_SHARD_NAME,
                        (uint32_t)m->manifest.shard_count, part->manifest.container, err));
    TRY(path_join(m->from, sizeof(m->from), part->directory, shard->name, err));
    TRY(file_size(m->fs, &size_bytes, m->from, err));
    FAIL_IF(size_bytes != shard->size_bytes, err, STATUS_CORRUPT,
            "%s: has %" PRIu64 " bytes, dataset.json says %" PRIu64, m->from, size_bytes,
            shard->size_bytes);
    TRY(take_file(m, summary.name, size_bytes, &shard->hash, err));
    TRY(take_index(m, part, shard->name, summary.name, err));
    return manifest_add_shard(&m->manifest, &summary, err);
}

static enum status take_shards(struct merge *m, struct error *err) {
    for (size_t i = 0; i < m->opt->part_count; i++) {
        const struct merge_part *part = &m->parts[i];
        for (size_t k = 0; k < part->manifest.shard_count; k++) {
            TRY(check_stop(m, err));
            TRY(take_shard(m, part, &part->manifest.shards[k], err));
            m->done.shards++;
            if (m->opt->progress) {
                m->opt->progress(m->opt->cookie, &m->done);
            }
        }
    }
    return m->fs->sync_directory(m->fs->context, m->opt->directory, err);
}

/* Appends the list of rejects of a part. */
static enum status append_rejects(struct merge *m,
                                  struct file *out,
                                  const struct merge_part *part,
                                  struct error *err) {
    uint64_t size_bytes = 0;
    TRY(path_join(m->from, sizeof(m->from), part->directory, PACK_REJECTS_NAME, err));
    TRY(file_size(m->fs, &size_bytes, m->from, err));
    return file_append(m->fs, out, m->from, size_bytes, watch_copy, m, err);
}

/* The parts' lists of rejects one after the other, in the order of the rows. */
static enum status take_rejects(struct merge *m, struct error *err) {
    struct file_draft draft;
    TRY(path_join(m->to, sizeof(m->to), m->opt->directory, PACK_REJECTS_NAME, err));
    TRY(file_draft_open(&draft, m->fs, m->to, err));
    enum status s = STATUS_OK;
    for (size_t i = 0; s == STATUS_OK && i < m->opt->part_count; i++) {
        s = append_rejects(m, draft.file, &m->parts[i], err);
    }
    return file_draft_close(&draft, s, err);
}

/* ---- the manifest ---- */

static enum status describe(struct merge *m, struct error *err) {
    const struct manifest *first = &m->parts[0].manifest;
    for (size_t i = 0; i < first->source_count; i++) {
        uint64_t rows = 0;
        const struct manifest_source *read = &first->sources[i]; /* by a part that has rows of it */
        for (size_t k = 0; k < m->opt->part_count; k++) {
            const struct manifest_source *s = &m->parts[k].manifest.sources[i];
            rows += s->rows;
            read = s->rows > 0 ? s : read;
        }
        TRY(manifest_add_source(&m->manifest, first->sources[i].name, rows, err));
        struct manifest_source *out = &m->manifest.sources[i];
        out->bytes = read->bytes;
        out->sample_hash = read->sample_hash;
        out->content = read->content;
    }
    for (size_t i = 0; i < first->option_count; i++) {
        const struct manifest_option *o = &first->options[i];
        if (strcmp(o->name, PACK_SETTING_PART) != 0) {
            TRY(manifest_add_option(&m->manifest, o->name, o->value, err));
        }
    }
    for (size_t i = 0; i < first->class_count; i++) {
        TRY(manifest_add_class(&m->manifest, first->classes[i], err));
    }
    return STATUS_OK;
}

static enum status write_manifest(struct merge *m, struct error *err) {
    const char *directory = m->opt->directory;
    uint64_t print = 0;
    enum status s = dataset_fingerprint_of(&print, &m->manifest, directory, m->fs, err);
    if (s == STATUS_EXISTS) {
        if (err) {
            size_t end = strlen(err->text);
            snprintf(err->text + end, sizeof(err->text) - end,
                     "; the parts are not from the same run, or --ids key found a repeated id");
            err->status = STATUS_MISMATCH;
        }
        return STATUS_MISMATCH;
    }
    TRY(s);
    TRY(manifest_seal(&m->manifest, print, err));
    return manifest_write(&m->manifest, m->fs, directory, err);
}

static enum status take_columns(struct merge *m, struct error *err) {
    const struct column_copy how = {.from_fs = m->fs,
                                    .fs = m->fs,
                                    .from = m->opt->parts,
                                    .from_count = m->opt->part_count,
                                    .to = m->opt->directory,
                                    .fingerprint = m->manifest.fingerprint};
    return column_copy_all(&how, err);
}

static enum status run(struct merge *m, struct pack_summary *out, struct error *err) {
    TRY(merge_read_parts(m, err));
    m->output.container = m->parts[0].manifest.container;
    make_head(m);
    TRY(pack_output_look(&m->output, is_merged, m, err));
    if (m->output.finished) {
        TRY(manifest_read(&m->manifest, m->fs, m->opt->directory, err));
        out->was_finished = true;
    } else {
        TRY(hasher_create(&m->hasher, err));
        TRY(manifest_init(&m->manifest, m->parts[0].manifest.container, m->opt->created_by, err));
        TRY(pack_output_begin(&m->output, err));
        out->has_journal = true;
        TRY(take_shards(m, err));
        TRY(take_rejects(m, err));
        TRY(describe(m, err));
        TRY(write_manifest(m, err));
    }
    TRY(m->output.has_journal ? take_columns(m, err) : STATUS_OK);
    TRY(pack_output_end(&m->output, err));
    out->has_journal = false;
    pack_summary_of(out, &m->manifest);
    return STATUS_OK;
}

enum status
pack_merge(const struct pack_merge_options *opt, struct pack_summary *out, struct error *err) {
    REQUIRE(opt && out && opt->fs && opt->directory && opt->parts && opt->part_count > 0);
    REQUIRE(opt->created_by);
    memset(out, 0, sizeof(*out));
    struct merge *m = calloc(1, sizeof(*m));
    TRY_MEMORY(m, err, "out of memory for the merge");
    m->opt = opt;
    m->fs = opt->fs;
    pack_output_init(&m->output, opt->fs, opt->directory, "merge");
    m->output.overwrite = opt->overwrite;
    enum status s = run(m, out, err);
    pack_output_fini(&m->output);
    merge_free_parts(m);
    hasher_destroy(m->hasher);
    manifest_fini(&m->manifest);
    free(m);
    return s;
}
