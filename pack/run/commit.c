/*
 * Rows in order: frames go to shards, rejected rows to rejects.jsonl, a line to the journal for
 * each shard, and dataset.json is written when everything else is on the disk.
 */
#include "pack/run/commit_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset/dataset.h"
#include "formats/shard/shard_reader.h"
#include "pack/options_internal.h"
#include "pack/run/directory_internal.h"
#include "pack/run/identity_internal.h"

enum {
    MAX_CAPTION_BYTES = 16 << 20, /* of a shard, which stay in memory until it is finished */
    MAX_WAITING_BYTES = 64 << 20, /* of rejects before the first sample */
};

/* The value of ids that were in the dataset before this process. */
static const uint64_t SEEN_BEFORE = UINT64_MAX - 1;

/* ---- opening ---- */

static enum status remember_shard(struct pack_commit *c, const char *name, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct shard_reader *reader = NULL;
    TRY(path_join(path, sizeof(path), c->opt->directory, name, err));
    enum status s = shard_reader_open(&reader, c->fs, path, err);
    uint32_t count = s == STATUS_OK ? shard_reader_sample_count(reader) : 0;
    for (uint32_t i = 0; s == STATUS_OK && i < count; i++) {
        struct shard_record r;
        s = shard_reader_record(reader, i, &r, err);
        if (s == STATUS_OK && c->images) {
            s = hash_map_put(c->images, r.image_hash, r.sample_id, err);
        }
        if (s == STATUS_OK && c->ids) {
            s = hash_map_put(c->ids, r.sample_id, SEEN_BEFORE, err);
        }
    }
    shard_reader_close(reader);
    return s;
}

/* Ids and images of the samples that the dataset has already. */
static enum status open_maps(struct pack_commit *c, struct error *err) {
    if (c->opt->dedup == PACK_DEDUP_EXACT && !c->opt->fetch) {
        TRY(hash_map_create(&c->images, err));
    }
    /* The ids of a list that is fetched ascend: only those of earlier runs could come again. */
    const bool ascending = c->opt->fetch != NULL && !c->opt->append;
    if (c->opt->ids == PACK_IDS_KEY && c->opt->source_count > 0 && !ascending) {
        TRY(hash_map_create(&c->ids, err));
    }
    const struct manifest *m = &c->plan->manifest;
    for (size_t i = 0; (c->images || c->ids) && i < m->shard_count; i++) {
        TRY(remember_shard(c, m->shards[i].name, err));
    }
    for (size_t i = 0; c->ids && i < m->removed.count; i++) { /* never used again */
        TRY(hash_map_put(c->ids, m->removed.ids[i], SEEN_BEFORE, err));
    }
    return STATUS_OK;
}

/* The counts of the rows before the point where this process begins. */
static void take_counts(struct pack_commit *c) {
    const struct pack_plan *p = c->plan;
    struct pack_summary *sum = c->summary;
    for (size_t i = 0; i < c->opt->source_count; i++) {
        sum->rows += p->sources[i].rows;
    }
    for (int i = 0; i < REASON_COUNT; i++) {
        sum->rejected_by[i] = p->point.rejected_by[i];
        sum->rejected += p->point.rejected_by[i];
    }
    for (size_t i = p->old_shards; i < p->manifest.shard_count; i++) {
        sum->samples += p->manifest.shards[i].sample_count;
        sum->texts += p->manifest.shards[i].text_count;
        c->resumed_bytes += p->manifest.shards[i].size_bytes;
        sum->shards++;
    }
    sum->json_dropped = p->point.json_dropped;
    memcpy(sum->json_example, p->point.json_example, sizeof(sum->json_example));
    sum->resumed = sum->samples;
    sum->resumed_bytes = c->resumed_bytes;
    sum->bytes = c->resumed_bytes;
    c->finished_bytes = c->resumed_bytes;
    c->finished_samples = sum->samples;
    c->point = p->point;
}

/* Changes the directory; the second call does nothing. */
static enum status begin(struct pack_commit *c, struct error *err) {
    struct pack_plan *p = c->plan;
    if (c->begun) {
        return STATUS_OK;
    }
    c->begun = true;
    TRY(pack_directory_prepare(p, err));
    c->prepared = true;
    TRY(pack_rejects_open(&c->rejects, c->opt->append, err));
    if (p->start == PACK_START_NEW) {
        TRY(pack_journal_begin(c->fs, c->opt->directory, &p->head, p, err));
    }
    TRY(pack_journal_open(&c->journal, p, err));
    return pack_finisher_start(&c->finisher, &c->rejects, &c->journal, err);
}

enum status pack_commit_open(struct pack_commit *c,
                             struct pack_plan *plan,
                             struct pack_summary *summary,
                             struct error *err) {
    memset(c, 0, sizeof(*c));
    c->plan = plan;
    c->opt = plan->opt;
    c->fs = plan->opt->fs;
    c->summary = summary;
    const struct pack_options *o = c->opt;
    take_counts(c);
    summary->has_journal = plan->start == PACK_START_RESUME;
    TRY(shard_frame_builder_create(&c->builder, o->container, o->level, err));
    TRY(open_maps(c, err));
    TRY(pack_keys_init(&c->keys, err));
    pack_rejects_init(&c->rejects, c->fs, o->directory, plan->point.rejects_bytes);
    return plan->start == PACK_START_RESUME ? begin(c, err) : STATUS_OK;
}

/* ---- rejects ---- */

/* The most frequent fault, so that the message alone suggests a cause. */
static const char *commonest(const struct pack_summary *s) {
    int most = REASON_NONE;
    for (int i = 0; i < REASON_COUNT; i++) {
        bool more = s->rejected_by[i] > s->rejected_by[most];
        most = more && !pack_reason_is_choice((enum source_reason)i) ? i : most;
    }
    return source_reason_name((enum source_reason)most);
}

static uint64_t bad_rows(const struct pack_summary *s) {
    uint64_t bad = s->rejected;
    for (int i = 0; i < REASON_COUNT; i++) {
        bad -= pack_reason_is_choice((enum source_reason)i) ? s->rejected_by[i] : 0;
    }
    return bad;
}

bool pack_summary_looks_like_folders(const struct pack_summary *s) {
    return s->missing_in_folders > 0 && s->missing_in_folders > bad_rows(s) / 2;
}

/* Whether most bad rows name files that do not exist. */
static bool is_wrong_folder(const struct pack_summary *s) {
    return s->absent > bad_rows(s) / 2;
}

/* What may be wrong, after the message; empty: not known. */
static const char *hint(char out[320], const struct pack_options *o, const struct pack_summary *s) {
    out[0] = '\0';
    if (pack_summary_looks_like_folders(s)) {
        strcpy(out, "; if the folders in a tar are classes, --from folders makes them labels");
    } else if (is_wrong_folder(s)) {
        snprintf(out, 320,
                 "; %s%.60s lacks %" PRIu64 " of %" PRIu64
                 " images, the first is %.120s; --images names the folder to which paths are "
                 "relative",
                 o->images ? "" : "the folder of the source", o->images ? o->images : "", s->absent,
                 s->rows, s->absent_example);
    }
    return out;
}

static enum status
too_many(const struct pack_options *o, const struct pack_summary *s, struct error *err) {
    char allowed[40], why[320];
    bool nothing = s->samples == 0 && s->reject_example[0] != '\0';
    if (o->max_bad.percent >= 0) {
        snprintf(allowed, sizeof(allowed), "%g%%", o->max_bad.percent);
    } else {
        snprintf(allowed, sizeof(allowed), "%" PRIu64, o->max_bad.rows);
    }
    char list[160];
    snprintf(list, sizeof(list), "%.100s/%s lists them with reasons", o->directory,
             PACK_REJECTS_NAME);
    bool example = nothing && !is_wrong_folder(s); /* else the hint has one */
    return error_set(
        err, STATUS_CORRUPT,
        "%" PRIu64 " of %" PRIu64
        " rows are unusable, more than --max-bad %s allows (most of them %s); %s%s%s%s",
        bad_rows(s), s->rows, allowed, commonest(s), nothing ? "nothing was packed" : list,
        example ? "; the first is " : "", example ? s->reject_example : "", hint(why, o, s));
}

enum status pack_judge(const struct pack_options *o, struct pack_summary *s, struct error *err) {
    const struct pack_max_bad *m = &o->max_bad;
    uint64_t count = bad_rows(s);
    bool bad =
        m->percent >= 0 ? (double)count * 100 > m->percent * (double)s->rows : count > m->rows;
    if (!bad || o->on_bad != PACK_ON_BAD_SKIP) {
        return STATUS_OK;
    }
    s->resume_with = "a larger --max-bad";
    return too_many(o, s, err);
}

/* The first bad row stands for all where there is no list. */
static void note_reject(struct pack_summary *s, const char *source, const struct source_row *row) {
    if (s->reject_example[0] == '\0' && !pack_reason_is_choice(row->reason)) {
        snprintf(s->reject_example, sizeof(s->reject_example),
                 "%.100s: row %" PRIu64 ", key '%.60s': %s%s%.200s", source, row->row, row->key,
                 source_reason_name(row->reason), row->detail[0] != '\0' ? ": " : "", row->detail);
    }
}

static enum status
add_reject(struct pack_commit *c, const struct pack_item *item, struct error *err) {
    const struct source_row *row = &item->row;
    const char *source = c->opt->sources[item->source];
    c->summary->rejected++;
    c->summary->rejected_by[row->reason]++;
    if (row->absent && c->summary->absent++ == 0) {
        snprintf(c->summary->absent_example, sizeof(c->summary->absent_example), "%.239s",
                 row->path);
    }
    c->summary->missing_in_folders +=
        row->reason == REASON_CAPTION_MISSING && strchr(row->key, '/') != NULL;
    TRY(pack_rejects_add(&c->rejects, source, row, err));
    if (c->rejects.waiting.size_bytes > MAX_WAITING_BYTES) {
        TRY(begin(c, err));
    }
    note_reject(c->summary, source, row);
    if (pack_reason_is_choice(row->reason)) {
        return STATUS_OK;
    }
    c->summary->resume_with = c->opt->on_bad == PACK_ON_BAD_FAIL ? "--on-bad skip" : NULL;
    FAIL_IF(c->opt->on_bad == PACK_ON_BAD_FAIL, err, STATUS_CORRUPT,
            "%.100s: row %" PRIu64 ", key '%.80s': %s%s%.200s; --on-bad skip omits "
            "such rows",
            source, row->row, row->key, source_reason_name(row->reason),
            row->detail[0] != '\0' ? ": " : "", row->detail);
    if (c->opt->max_bad.percent >= 0 && c->summary->rows < PACK_PERCENT_AFTER_ROWS) {
        return STATUS_OK;
    }
    return pack_judge(c->opt, c->summary, err);
}

/* ---- shards ---- */

/* Adds a finished shard to the manifest and the summary. */
static enum status
count_shard(struct pack_commit *c, const struct shard_summary *shard, struct error *err) {
    TRY(manifest_add_shard(&c->plan->manifest, shard, err));
    c->summary->shards++;
    c->finished_bytes += shard->size_bytes;
    c->finished_samples += shard->sample_count;
    c->summary->bytes = c->finished_bytes;
    return STATUS_OK;
}

/* Waits for the shard that the finisher has, if there is one. */
static enum status take_finished(struct pack_commit *c, struct error *err) {
    struct shard_summary shard;
    if (!c->begun) {
        return STATUS_OK;
    }
    enum status s = pack_finisher_take(&c->finisher, &shard, err);
    if (s == STATUS_END) {
        return STATUS_OK;
    }
    TRY(s);
    c->pending_bytes = 0;
    if (c->plan->committed) {
        c->plan->committed(c->opt->fetch, c->handed_row);
    }
    return count_shard(c, &shard, err);
}

/* Refuses a run that will make too many shards long before it does. */
static enum status check_shard_count(const struct pack_commit *c, struct error *err) {
    enum { FIRST = 100, MARGIN = 2 };
    uint32_t old = c->plan->old_shards;
    double made = c->plan->manifest.shard_count - old + 1; /* with the one that ends now */
    double expected = c->done > 0 ? old + made / c->done : 0;
    if (made < FIRST || expected < (double)MARGIN * MANIFEST_MAX_SHARDS) {
        return STATUS_OK;
    }
    return error_set(err, STATUS_LIMIT,
                     "the run would write about %.0f shards, the limit is %d: use a larger "
                     "--shard-samples or --shard-size and start again",
                     expected, MANIFEST_MAX_SHARDS);
}

/* Hands the shard to the finisher. The point in its journal line is before the row that did not
 * fit. */
static enum status finish_shard(struct pack_commit *c, struct error *err) {
    TRY(take_finished(c, err));
    TRY(check_shard_count(c, err));
    TRY(pack_journal_point(&c->journal, &c->finisher.point, &c->plan->manifest, &c->point,
                           c->plan->sources, err));
    c->summary->has_journal = true; /* there may be a shard now, so the journal is needed */
    c->handed_row = c->point.row;
    c->pending_bytes = shard_writer_data_bytes(c->writer);
    pack_finisher_give(&c->finisher, c->writer);
    c->writer = NULL;
    c->plan->next_number++;
    return STATUS_OK;
}

/* Finishes the shard at hand, or writes the point alone when there is none. */
static enum status finish_all(struct pack_commit *c, bool partial, struct error *err) {
    struct shard_summary shard;
    if (c->writer && !partial) {
        TRY(finish_shard(c, err));
        return take_finished(c, err);
    }
    TRY(take_finished(c, err));
    if (!partial) { /* only rejects since the last shard */
        TRY(pack_journal_point(&c->journal, &c->finisher.point, &c->plan->manifest, &c->point,
                               c->plan->sources, err));
        TRY(pack_rejects_sync(&c->rejects, err));
        c->summary->has_journal = true;
        return pack_journal_add(&c->journal, NULL, &c->finisher.point, err);
    }
    if (!c->writer) {
        return STATUS_OK;
    }
    /* An incomplete shard gets no line in the journal; a resumed run makes it again. */
    c->summary->has_journal = true;
    TRY(shard_writer_finish(c->writer, &shard, err));
    return count_shard(c, &shard, err);
}

static bool takes(const struct pack_commit *c, const struct shard_frame *f) {
    uint64_t held = shard_writer_data_bytes(c->writer);
    return shard_writer_sample_count(c->writer) < c->opt->shard_samples &&
           held < c->opt->shard_size_bytes &&
           f->record.frame_bytes <= c->opt->shard_size_bytes - held &&
           shard_writer_caption_bytes(c->writer) + f->texts.size_bytes <= MAX_CAPTION_BYTES &&
           shard_writer_fits(c->writer, f);
}

/* Decides on the key, and builds the frame again where the worker chose another one. */
static enum status choose_key(struct pack_commit *c, struct pack_item *item, struct error *err) {
    return pack_keys_choose(&c->keys, item)
               ? shard_frame_build(c->builder, &item->frame, &item->sample, err)
               : STATUS_OK;
}

static void count_dropped_json(struct pack_commit *c, const struct pack_item *item) {
    struct pack_summary *sum = c->summary;
    if (item->row.json_problem[0] == '\0') {
        return;
    }
    if (sum->json_dropped++ == 0) {
        snprintf(sum->json_example, sizeof(sum->json_example), "%.80s row %" PRIu64 ": %s",
                 c->opt->sources[item->source], item->row.row, item->row.json_problem);
    }
}

/* A repeated id ends the run with a message that names both rows. */
static enum status
check_id(struct pack_commit *c, const struct pack_item *item, struct error *err) {
    enum { ROW_BITS = 40 };
    if (!c->ids) {
        return STATUS_OK;
    }
    uint64_t first = hash_map_get(c->ids, item->id);
    if (first == HASH_MAP_NONE) {
        uint64_t row = item->row.row & ((UINT64_C(1) << ROW_BITS) - 1);
        return hash_map_put(c->ids, item->id, (uint64_t)item->source << ROW_BITS | row, err);
    }
    c->summary->resume_with = "";
    char place[200] = "an earlier sample has or had it";
    if (first != SEEN_BEFORE) {
        snprintf(place, sizeof(place), "%.120s: row %" PRIu64 " has it",
                 c->opt->sources[first >> ROW_BITS], first & ((UINT64_C(1) << ROW_BITS) - 1));
    }
    return error_set(err, STATUS_CORRUPT,
                     "%.120s: row %" PRIu64 ": the id %" PRIu64 " of key '%.80s' is repeated: %s; "
                     "--ids row numbers rows instead",
                     c->opt->sources[item->source], item->row.row, item->id, item->row.key, place);
}

static bool is_duplicate(struct pack_commit *c, struct pack_item *item) {
    if (!c->images) {
        return false;
    }
    uint64_t first = hash_map_get(c->images, item->frame.record.image_hash);
    if (first == HASH_MAP_NONE) {
        return false;
    }
    source_row_reject(&item->row, REASON_DUPLICATE, "its image is that of sample %" PRIu64, first);
    return true;
}

static enum status add_sample(struct pack_commit *c, struct pack_item *item, struct error *err) {
    struct shard_record *record = &item->frame.record;
    TRY(choose_key(c, item, err));
    if (c->writer && !takes(c, &item->frame)) {
        TRY(finish_shard(c, err));
        TRY(pack_keys_clear(&c->keys, err));
        TRY(choose_key(c, item, err));
    }
    if (!c->writer) {
        TRY(begin(c, err));
        TRY(shard_writer_open(&c->writer, c->fs, c->opt->directory, PACK_SHARD_NAME,
                              c->plan->next_number, c->opt->container, c->opt->level, err));
    }
    enum status s = shard_writer_add(c->writer, &item->frame, err);
    if (s != STATUS_OK) { /* EXISTS: all keys that the row could get are taken */
        return s == STATUS_EXISTS ? STATUS_CORRUPT : s;
    }
    TRY(pack_keys_add(&c->keys, &item->frame, err));
    if (c->images) {
        TRY(hash_map_put(c->images, record->image_hash, record->sample_id, err));
    }
    c->summary->samples++;
    count_dropped_json(c, item);
    c->summary->texts += item->sample.caption_count;
    c->summary->bytes = c->finished_bytes + c->pending_bytes + shard_writer_data_bytes(c->writer);
    return STATUS_OK;
}

/* Moves the point past the row. */
static void move_on(struct pack_commit *c, const struct pack_item *item) {
    struct pack_summary *sum = c->summary;
    struct pack_point *p = &c->point;
    c->plan->sources[item->source].rows++;
    c->plan->sources[item->source].content = item->content;
    p->source = item->source;
    p->row = item->row.row + 1;
    p->content = item->content;
    p->place = item->place;
    sum->next_bytes = p->place.offset_bytes;
    p->rejects_bytes = c->rejects.size_bytes;
    memcpy(p->rejected_by, sum->rejected_by, sizeof(p->rejected_by));
    p->json_dropped = sum->json_dropped;
    memcpy(p->json_example, sum->json_example, sizeof(p->json_example));
    p->ignored = item->ignored;
}

/* Reports early that the finisher has failed. */
static enum status check_finisher(struct pack_commit *c, struct error *err) {
    bool failed = atomic_load_explicit(&c->finisher.failed, memory_order_relaxed);
    return failed ? take_finished(c, err) : STATUS_OK;
}

enum status
pack_commit_add_sample(struct pack_commit *c, struct pack_item *item, struct error *err) {
    TRY(check_finisher(c, err));
    return add_sample(c, item, err);
}

enum status pack_commit_add(struct pack_commit *c, struct pack_item *item, struct error *err) {
    c->summary->rows++;
    TRY(check_finisher(c, err));
    TRY(pack_classes_publish(&c->plan->classes, &c->plan->manifest, item->class_count, err));
    enum status s = STATUS_OK;
    if (item->row.reason == REASON_NONE && item->status != STATUS_OK) {
        return error_pass(err, item->status, &item->error);
    }
    if (item->row.reason != REASON_NONE || is_duplicate(c, item)) {
        s = add_reject(c, item, err);
    } else {
        s = check_id(c, item, err);
        THEN(s, add_sample(c, item, err));
    }
    move_on(c, item);
    return s;
}

/* ---- the end ---- */

static enum status add_sources(struct pack_commit *c, struct error *err) {
    struct manifest *m = &c->plan->manifest;
    for (size_t i = 0; i < c->opt->source_count; i++) {
        char name[PACK_SOURCE_NAME_BYTES];
        pack_source_name(name, c->opt->sources[i]);
        const struct manifest_source *is =
            c->plan->totals ? &c->plan->totals[i] : &c->plan->sources[i];
        TRY(manifest_add_source(m, name, c->plan->sources[i].rows, err));
        struct manifest_source *out = &m->sources[m->source_count - 1];
        out->bytes = is->bytes;
        out->sample_hash = is->sample_hash;
        out->content = is->content;
    }
    return STATUS_OK;
}

/* Options of an append that differ from those in force are recorded as NAME@GENERATION. */
static enum status add_options(struct pack_commit *c, struct error *err) {
    struct manifest *m = &c->plan->manifest;
    struct pack_settings l;
    pack_settings_of(&l, c->opt);
    for (size_t i = 0; i < l.count; i++) {
        const struct pack_setting *s = &l.items[i];
        const char *was = pack_manifest_in_force(m, s->name);
        if (!s->stored || (was && strcmp(was, s->value) == 0)) {
            continue;
        }
        char name[64];
        snprintf(name, sizeof(name), "%s", s->name);
        if (c->opt->append) {
            snprintf(name, sizeof(name), "%s@%zu", s->name, m->generation_count + 1);
        }
        TRY(manifest_add_option(m, name, s->value, err));
    }
    size_t count = c->opt->append && c->opt->source_count > 0 ? m->option_count : 0;
    for (size_t i = 0; i < count; i++) {
        char name[64], at[64];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(m->options[i].name, "@"),
                 m->options[i].name);
        snprintf(at, sizeof(at), "%.40s@%zu", name, m->generation_count + 1);
        if (pack_manifest_in_force(m, name) && !pack_settings_value(&l, name)) {
            TRY(manifest_add_option(m, at, PACK_NOT_GIVEN, err));
        }
    }
    return STATUS_OK;
}

static enum status write_manifest(struct pack_commit *c, bool partial, struct error *err) {
    struct manifest *m = &c->plan->manifest;
    TRY(add_sources(c, err));
    TRY(add_options(c, err));
    if (partial) {
        TRY(manifest_add_option(m, PACK_SETTING_PARTIAL, "yes", err));
    }
    TRY(dataset_fingerprint_of(&c->summary->fingerprint, m, c->opt->directory, c->fs, err));
    TRY(manifest_seal(m, c->summary->fingerprint, err));
    TRY(manifest_write(m, c->fs, c->opt->directory, err));
    c->summary->id_space = m->id_space;
    c->summary->ids = m->samples;
    c->summary->is_dataset = true;
    return STATUS_OK;
}

static enum status remove_journal(struct pack_commit *c, struct error *err) {
    pack_journal_close(&c->journal);
    TRY(pack_remove(c->fs, c->opt->directory, PACK_JOURNAL_NAME, err));
    c->summary->has_journal = false;
    return c->fs->sync_directory(c->fs->context, c->opt->directory, err);
}

static enum status no_sample(struct pack_commit *c, struct error *err) {
    const struct pack_summary *s = c->summary;
    FAIL_IF(s->rows == 0, err, STATUS_CORRUPT, "the sources contain no images: nothing to pack");
    char why[320];
    bool example = s->reject_example[0] != '\0' && !is_wrong_folder(s);
    return error_set(err, STATUS_CORRUPT,
                     "none of the %" PRIu64 " rows is usable; nothing was packed%s%s%s", s->rows,
                     example ? "; the first error: " : "", example ? s->reject_example : "",
                     hint(why, c->opt, s));
}

/* A fetch that packed nothing leaves its list, beside the ledger. */
static enum status list_rejects(struct pack_commit *c, struct error *err) {
    TRY(begin(c, err));
    return pack_rejects_publish(&c->rejects, err);
}

enum status pack_commit_finish(struct pack_commit *c, bool partial, struct error *err) {
    bool is_part = c->opt->part.count > 0;
    if (!partial) {
        struct pack_classes *all = &c->plan->classes;
        TRY(pack_classes_publish(all, &c->plan->manifest, pack_classes_count(all), err));
        c->point.source = c->opt->source_count;
        c->point.row = 0;
    }
    if (c->summary->samples == 0 && !is_part) {
        c->summary->has_journal = false;
        TRY(c->opt->fetch && !c->opt->append && !partial ? list_rejects(c, err) : STATUS_OK);
        return no_sample(c, err);
    }
    TRY(begin(c, err));
    TRY(finish_all(c, partial, err));
    TRY(pack_identity_check_read(c->plan, err));
    TRY(pack_rejects_publish(&c->rejects, err));
    TRY(write_manifest(c, partial, err));
    c->summary->has_journal = true;
    return partial ? STATUS_OK : remove_journal(c, err);
}

/* Without a finished shard there is nothing to resume. */
static void discard(struct pack_commit *c) {
    const struct file_system *fs = c->fs;
    const char *directory = c->opt->directory;
    bool begun = c->rejects.file != NULL;
    pack_rejects_close(&c->rejects);
    pack_journal_close(&c->journal);
    pack_remove(fs, directory, PACK_JOURNAL_NAME, NULL);
    if (begun) {
        pack_remove(fs, directory, PACK_REJECTS_TEMPORARY, NULL);
    }
}

void pack_commit_close(struct pack_commit *c) {
    struct pack_summary *sum = c->summary;
    pack_finisher_stop(&c->finisher);
    shard_writer_close(c->writer);
    if (c->journal.plan && !sum->has_journal && !sum->is_dataset) {
        discard(c);
    }
    pack_rejects_close(&c->rejects);
    pack_journal_close(&c->journal);
    shard_frame_builder_destroy(c->builder);
    hash_map_destroy(c->images);
    hash_map_destroy(c->ids);
    pack_keys_fini(&c->keys);
    memset(c, 0, sizeof(*c));
}
