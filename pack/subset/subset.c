/*
 * The plan follows from the index alone, so that a resumed subset finds the same shards:
 *
 *     ids   3 5 8 | 9 20 21 | 22 ...      at most shard_samples and shard_size_bytes in each
 *     shard     0 |       1 |  2 ...
 *
 * A shard that exists under its final name is complete, and is kept if it has the samples of the
 * plan.
 */
#include "pack/subset/subset.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/sort.h"
#include "formats/columns/columns.h"
#include "formats/dataset/dataset_reader.h"
#include "formats/dataset/dataset_tokenizer.h"
#include "formats/shard/shard_writer.h"
#include "pack/options_internal.h"
#include "pack/run/keys_internal.h"
#include "pack/run/output_internal.h"

struct subset {
    const struct pack_subset_options *opt;
    const struct file_system *fs, *source_fs;
    struct dataset *source;
    struct dataset_reader *reader;
    struct manifest manifest; /* the source's, until its shards are exchanged */
    struct manifest now;      /* the new shards */
    struct pack_output output;
    struct pack_keys keys; /* samples of one key may come from several shards */
    int level;
    struct shard_frame_builder *builder;
    struct shard_frame frame;
    struct pack_subset_progress done;
};

void pack_subset_options_default(struct pack_subset_options *opt) {
    *opt = (struct pack_subset_options){
        .fs = file_posix(),
        .shard_samples = 10000,
        .shard_size_bytes = UINT64_C(1) << 30,
        .created_by = "ccpack " CCSTREAM_VERSION,
    };
}

/* ---- one shard ---- */

/* How many ids from `first` on go into one shard. */
static enum status
plan_shard(uint64_t *count, const struct subset *x, uint64_t first, struct error *err) {
    const struct pack_subset_options *o = x->opt;
    struct dataset_sample sample;
    uint64_t bytes = 0;
    *count = 0;
    while (first + *count < o->id_count && *count < o->shard_samples) {
        TRY(dataset_find(x->source, o->ids[first + *count], &sample, err));
        if (*count > 0 && bytes + sample.image_bytes > o->shard_size_bytes) {
            break;
        }
        bytes += sample.image_bytes;
        (*count)++;
    }
    return STATUS_OK;
}

static enum status copy_sample(struct subset *x,
                               struct shard_writer *w,
                               const struct dataset_sample *sample,
                               struct error *err) {
    struct sample_view v;
    TRY(dataset_reader_get(x->reader, sample, &v, err));
    char key[SHARD_MAX_KEY_BYTES + 1];
    struct shard_sample copy = shard_sample_of(&v);
    pack_keys_unique(&x->keys, key, copy.key, copy.sample_id);
    copy.key = key;
    TRY(shard_frame_build(x->builder, &x->frame, &copy, err));
    FAIL_IF(!shard_writer_fits(w, &x->frame), err, STATUS_LIMIT,
            "%s: the captions of %" PRIu32
            " samples do not fit in a shard; use a smaller --shard-samples",
            x->opt->directory, x->opt->shard_samples);
    TRY(shard_writer_add(w, &x->frame, err));
    return pack_keys_add(&x->keys, &x->frame, err);
}

static void advance(struct subset *x, const struct dataset_sample *sample) {
    x->done.samples++;
    x->done.bytes += sample->image_bytes;
    if (x->opt->progress && (x->done.samples % 64 == 0 || x->done.samples == x->opt->id_count)) {
        x->opt->progress(x->opt->cookie, &x->done);
    }
}

static enum status write_shard(struct subset *x,
                               struct shard_summary *out,
                               uint64_t first,
                               uint64_t count,
                               struct error *err) {
    struct shard_writer *w = NULL;
    TRY(pack_keys_clear(&x->keys, err));
    TRY(shard_writer_open(&w, x->fs, x->opt->directory, PACK_SHARD_NAME,
                          (uint32_t)x->now.shard_count, x->output.container, x->level, err));
    enum status s = STATUS_OK;
    for (uint64_t i = first; s == STATUS_OK && i < first + count; i++) {
        struct dataset_sample sample;
        s = pack_check_stop(x->opt->interrupted, x->opt->cookie, err);
        THEN(s, dataset_find(x->source, x->opt->ids[i], &sample, err));
        THEN(s, copy_sample(x, w, &sample, err));
        if (s == STATUS_OK) {
            advance(x, &sample);
        }
    }
    THEN(s, shard_writer_finish(w, out, err));
    shard_writer_close(w);
    return s;
}

/* ---- a shard that an interrupted call has left ---- */

static bool holds_plan(struct subset *x, struct shard_reader *r, uint64_t first, uint64_t count) {
    bool equal = shard_reader_sample_count(r) == count;
    for (uint32_t i = 0; equal && i < count; i++) {
        struct shard_record record;
        struct dataset_sample sample;
        equal = shard_reader_record(r, i, &record, NULL) == STATUS_OK &&
                record.sample_id == x->opt->ids[first + i] &&
                dataset_find(x->source, record.sample_id, &sample, NULL) == STATUS_OK &&
                record.image_hash == sample.image_hash &&
                record.caption_hash == sample.caption_hash;
        if (equal) {
            advance(x, &sample);
        }
    }
    return equal;
}

/* *found: the shard exists with its sidecar, which is published after it, and is the one of the
 * plan. */
static enum status keep_shard(struct subset *x,
                              bool *found,
                              struct shard_summary *out,
                              uint64_t first,
                              uint64_t count,
                              struct error *err) {
    char name[SHARD_MAX_NAME_BYTES + 1];
    char path[PATH_MAX_BYTES];
    char sidecar[PATH_MAX_BYTES];
    struct shard_reader *reader = NULL;
    TRY(shard_file_name(name, sizeof(name), PACK_SHARD_NAME, (uint32_t)x->now.shard_count,
                        x->output.container, err));
    TRY(path_join(path, sizeof(path), x->opt->directory, name, err));
    TRY(shard_index_name(sidecar, sizeof(sidecar), path, err));
    TRY(x->fs->exists(x->fs->context, sidecar, found, err));
    if (!*found) {
        return STATUS_OK;
    }
    TRY(shard_reader_open(&reader, x->fs, path, err));
    enum status s =
        holds_plan(x, reader, first, count)
            ? shard_reader_summary(reader, out, err)
            : error_set(err, STATUS_CORRUPT,
                        "%s: was not written by the interrupted subset; --overwrite replaces it",
                        path);
    shard_reader_close(reader);
    return s;
}

static enum status make_shards(struct subset *x, struct error *err) {
    uint64_t count = 0;
    for (uint64_t first = 0; first < x->opt->id_count; first += count) {
        struct shard_summary summary;
        bool found = false;
        TRY(plan_shard(&count, x, first, err));
        if (x->output.resumes) {
            TRY(keep_shard(x, &found, &summary, first, count, err));
        }
        if (!found) {
            TRY(write_shard(x, &summary, first, count, err));
        }
        TRY(manifest_add_shard(&x->now, &summary, err));
    }
    return STATUS_OK;
}

/* ---- the whole ---- */

enum { CHOICE_BYTES = 80 };

/* Names the chosen samples and the dataset that they are of. */
static void describe_choice(char out[CHOICE_BYTES], const struct subset *x) {
    const uint64_t ids = hash64(x->opt->ids, (size_t)x->opt->id_count * sizeof(*x->opt->ids));
    snprintf(out, CHOICE_BYTES, "%016" PRIx64 " of %016" PRIx64, ids,
             dataset_fingerprint(x->source));
}

/* Identifies what is copied, so that only the same subset is resumed. */
static void make_head(struct subset *x) {
    struct json_writer *w = &x->output.head;
    char choice[CHOICE_BYTES];
    describe_choice(choice, x);
    pack_output_head(&x->output, x->opt->created_by);
    json_string(w, PACK_SETTING_SUBSET, choice);
    json_u64(w, "shard_samples", x->opt->shard_samples);
    json_u64(w, "shard_size_bytes", x->opt->shard_size_bytes);
    json_close_object(w);
}

static enum status check_ids(const struct subset *x, struct error *err) {
    const struct pack_subset_options *o = x->opt;
    for (uint64_t i = 0; i < o->id_count; i++) {
        struct dataset_sample sample;
        REQUIRE(i == 0 || o->ids[i - 1] < o->ids[i]);
        TRY(dataset_find(x->source, o->ids[i], &sample, err));
    }
    return STATUS_OK;
}

static bool has_samples(const void *cookie, const struct manifest *there) {
    const struct subset *x = cookie;
    const char *choice_there = pack_manifest_option(there, PACK_SETTING_SUBSET);
    char choice[CHOICE_BYTES];
    describe_choice(choice, x);
    return choice_there && strcmp(choice_there, choice) == 0 && there->samples == x->opt->id_count;
}

static enum status open_source(struct subset *x, struct error *err) {
    FAIL_IF(pack_directory_is_same(x->opt->source, x->opt->directory), err, STATUS_USAGE,
            "%s: a subset needs its own directory", x->opt->directory);
    TRY(dataset_open(&x->source, x->opt->source, x->source_fs, err));
    TRY(manifest_read(&x->manifest, x->source_fs, x->opt->source, err));
    FAIL_IF(pack_manifest_option(&x->manifest, PACK_SETTING_PART), err, STATUS_MISMATCH,
            "%s: is a part of a dataset: take subsets after 'ccpack merge'", x->opt->source);
    TRY(check_ids(x, err));
    TRY(dataset_reader_create(&x->reader, x->source, err));
    x->output.container = x->manifest.container == SHARD_CONTAINER_TAR ? SHARD_CONTAINER_TAR
                                                                       : SHARD_CONTAINER_TAR_ZSTD;
    x->level = pack_manifest_level(&x->manifest);
    x->done.total_samples = x->opt->id_count;
    return manifest_init(&x->now, x->output.container, x->opt->created_by, err);
}

/* In place of the one that a subset of a subset inherits. */
static enum status record_choice(struct subset *x, struct error *err) {
    struct manifest *m = &x->manifest;
    char choice[CHOICE_BYTES];
    describe_choice(choice, x);
    for (size_t i = 0; i < m->option_count; i++) {
        if (strcmp(m->options[i].name, PACK_SETTING_SUBSET) == 0) {
            free(m->options[i].value);
            m->options[i].value = strdup(choice);
            return m->options[i].value ? STATUS_OK : error_set(err, STATUS_NOMEM, "out of memory");
        }
    }
    return manifest_add_option(m, PACK_SETTING_SUBSET, choice, err);
}

/* The source's manifest with the new shards, and a generation of its own. */
static enum status write_manifest(struct subset *x, struct error *err) {
    struct manifest *m = &x->manifest;
    uint64_t fingerprint = 0;
    pack_exchange_shards(m, &x->now);
    m->container = x->output.container;
    free(m->base); /* its shards are here */
    m->base = NULL;
    m->shrank = true;
    TRY(record_choice(x, err));
    TRY(manifest_set_tokenizer(m, NULL, NULL, 0, err));
    TRY(dataset_fingerprint_of(&fingerprint, m, x->opt->directory, x->fs, err));
    TRY(manifest_seal(m, fingerprint, err));
    return manifest_write(m, x->fs, x->opt->directory, err);
}

static enum status copy_tokenizer(struct subset *x, struct error *err) {
    struct tokenizer *t = NULL;
    TRY(dataset_tokenizer_open(&t, x->opt->source, dataset_manifest(x->source), x->source_fs, err));
    enum status s = t ? dataset_tokenizer_store(t, x->opt->directory, x->fs, true, err) : STATUS_OK;
    tokenizer_close(t);
    return s;
}

static bool is_chosen(const void *cookie, uint64_t id) {
    const struct pack_subset_options *o = cookie;
    return bsearch(&id, o->ids, (size_t)o->id_count, sizeof(id), compare_u64);
}

static enum status copy_columns(struct subset *x, struct error *err) {
    const struct column_copy how = {.from_fs = x->source_fs,
                                    .fs = x->fs,
                                    .from = &x->opt->source,
                                    .from_count = 1,
                                    .to = x->opt->directory,
                                    .keep = is_chosen,
                                    .cookie = x->opt};
    return column_copy_all(&how, err);
}

static enum status run(struct subset *x, struct pack_summary *out, struct error *err) {
    TRY(open_source(x, err));
    make_head(x);
    TRY(pack_output_look(&x->output, has_samples, x, err));
    if (x->output.finished) {
        manifest_fini(&x->manifest);
        memset(&x->manifest, 0, sizeof(x->manifest));
        TRY(manifest_read(&x->manifest, x->fs, x->opt->directory, err));
        out->was_finished = true;
    } else {
        TRY(pack_keys_init(&x->keys, err));
        TRY(shard_frame_builder_create(&x->builder, x->output.container, x->level, err));
        TRY(pack_output_begin(&x->output, err));
        out->has_journal = true;
        TRY(make_shards(x, err));
        TRY(x->fs->sync_directory(x->fs->context, x->opt->directory, err));
        TRY(write_manifest(x, err));
    }
    if (x->output.has_journal) { /* else the directory is complete, and the user's */
        TRY(copy_tokenizer(x, err));
        TRY(copy_columns(x, err));
    }
    TRY(pack_output_end(&x->output, err));
    out->has_journal = false;
    pack_summary_of(out, &x->manifest);
    out->rows = out->samples; /* samples that were not chosen are no rejected rows */
    out->rejected = 0;
    return STATUS_OK;
}

enum status
pack_subset(const struct pack_subset_options *opt, struct pack_summary *out, struct error *err) {
    REQUIRE(opt && out && opt->fs && opt->source && opt->directory && opt->created_by);
    REQUIRE(opt->ids && opt->id_count > 0 && opt->shard_samples > 0 && opt->shard_size_bytes > 0);
    memset(out, 0, sizeof(*out));
    struct subset *x = calloc(1, sizeof(*x));
    TRY_MEMORY(x, err, "out of memory for the subset");
    x->opt = opt;
    x->fs = opt->fs;
    x->source_fs = path_is_remote(opt->source) ? file_system_of(opt->source) : opt->fs;
    pack_output_init(&x->output, opt->fs, opt->directory, "subset");
    x->output.overwrite = opt->overwrite;
    enum status s = run(x, out, err);
    pack_output_fini(&x->output);
    shard_frame_fini(&x->frame);
    shard_frame_builder_destroy(x->builder);
    pack_keys_fini(&x->keys);
    dataset_reader_destroy(x->reader);
    dataset_close(x->source);
    manifest_fini(&x->manifest);
    manifest_fini(&x->now);
    free(x);
    return s;
}
