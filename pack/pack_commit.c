/*
 * The ordered end of the packer: frames into shards, bad rows into rejects.jsonl, and dataset.json
 * when everything else is on the disk.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dataset.h"
#include "pack/pack_internal.h"

enum status pack_parse_max_bad(struct pack_max_bad *out, const char *text, struct error *err) {
    REQUIRE(out && text);
    *out = (struct pack_max_bad){.percent = -1};
    char *end = NULL;
    size_t length = strlen(text);
    bool plain = length > 0 && length < 20 && text[0] != '%' && text[0] != '.' &&
                 strspn(text, "0123456789.") + (strchr(text, '%') ? 1 : 0) == length;
    if (plain && text[length - 1] == '%') {
        out->percent = strtod(text, &end);
        if (end == text + length - 1 && out->percent <= 100) {
            return STATUS_OK;
        }
    } else if (plain) {
        out->rows = strtoull(text, &end, 10);
        if (*end == '\0') {
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_USAGE,
                     "--max-bad %.40s: a count such as 20 or a share from 0%% to 100%% is wanted",
                     text);
}

enum status pack_commit_open(struct pack_commit *c,
                             const struct pack_options *opt,
                             struct pack_summary *summary,
                             struct error *err) {
    memset(c, 0, sizeof(*c));
    c->opt = opt;
    c->fs = opt->fs;
    c->summary = summary;
    char path[PATH_MAX_BYTES];
    json_writer_init(&c->line, 0);
    TRY(manifest_init(&c->manifest, SHARD_CONTAINER_TAR_ZSTD, opt->created_by, err));
    TRY(shard_frame_builder_create(&c->builder, SHARD_CONTAINER_TAR_ZSTD, opt->level, err));
    TRY(pack_directory_prepare(opt, err));
    TRY(path_join(path, sizeof(path), opt->directory, PACK_REJECTS_NAME ".tmp", err));
    return c->fs->open(c->fs->context, &c->rejects, path, FILE_REPLACE, err);
}

/* Under its final name the list is whole: it holds every bad row of a run that has ended. */
static enum status publish_rejects(struct pack_commit *c, struct error *err) {
    char temporary[PATH_MAX_BYTES];
    char path[PATH_MAX_BYTES];
    const struct file_system *fs = c->fs;
    TRY(path_join(path, sizeof(path), c->opt->directory, PACK_REJECTS_NAME, err));
    TRY(path_join(temporary, sizeof(temporary), c->opt->directory, PACK_REJECTS_NAME ".tmp", err));
    TRY(fs->sync(c->rejects, err));
    TRY(fs->rename(fs->context, temporary, path, err));
    fs->close(c->rejects);
    c->rejects = NULL;
    return fs->sync_directory(fs->context, c->opt->directory, err);
}

static void discard_rejects(struct pack_commit *c) {
    char temporary[PATH_MAX_BYTES];
    if (c->rejects && path_join(temporary, sizeof(temporary), c->opt->directory,
                                PACK_REJECTS_NAME ".tmp", NULL) == STATUS_OK) {
        c->fs->close(c->rejects);
        c->fs->remove(c->fs->context, temporary, NULL);
    }
}

/* The commonest fault, so that the message alone tells what to look for. */
static const char *commonest(const struct pack_summary *s) {
    int most = REASON_NONE;
    for (int i = 0; i < REASON_COUNT; i++) {
        most = s->rejected_by[i] > s->rejected_by[most] ? i : most;
    }
    return source_reason_name((enum source_reason)most);
}

static enum status too_many(const struct pack_commit *c, struct error *err) {
    char allowed[40];
    if (c->opt->max_bad.percent >= 0) {
        snprintf(allowed, sizeof(allowed), "%g%%", c->opt->max_bad.percent);
    } else {
        snprintf(allowed, sizeof(allowed), "%" PRIu64, c->opt->max_bad.rows);
    }
    return error_set(err, STATUS_CORRUPT,
                     "%" PRIu64 " of %" PRIu64
                     " rows are bad, more than --max-bad %s allows (most of "
                     "them %s); "
                     "%s/%s says what is wrong with each",
                     c->summary->rejected, c->summary->rows, allowed, commonest(c->summary),
                     c->opt->directory, PACK_REJECTS_NAME);
}

enum status pack_commit_judge(const struct pack_commit *c, struct error *err) {
    const struct pack_max_bad *m = &c->opt->max_bad;
    const struct pack_summary *s = c->summary;
    bool bad = m->percent >= 0 ? (double)s->rejected * 100 > m->percent * (double)s->rows
                               : s->rejected > m->rows;
    return bad ? too_many(c, err) : STATUS_OK;
}

static enum status
add_reject(struct pack_commit *c, const struct pack_item *item, struct error *err) {
    const struct source_row *row = &item->row;
    c->summary->rejected++;
    c->summary->rejected_by[row->reason]++;
    json_writer_reset(&c->line);
    json_open_object(&c->line, NULL);
    json_string(&c->line, "source", c->opt->sources[item->source]);
    json_u64(&c->line, "row", row->row);
    json_string(&c->line, "key", row->key);
    json_string(&c->line, "reason", source_reason_name(row->reason));
    json_string(&c->line, "detail", row->detail);
    json_close_object(&c->line);
    json_newline(&c->line);
    TRY(json_writer_status(&c->line, err));
    TRY(c->fs->write(c->rejects, c->line.out.data, c->line.out.size_bytes, err));
    if (c->opt->max_bad.percent >= 0 && c->summary->rows < PACK_PERCENT_AFTER_ROWS) {
        return STATUS_OK;
    }
    return pack_commit_judge(c, err);
}

static enum status finish_shard(struct pack_commit *c, struct error *err) {
    if (!c->writer) {
        return STATUS_OK;
    }
    struct shard_summary shard;
    enum status s = shard_writer_finish(c->writer, &shard, err);
    shard_writer_close(c->writer);
    c->writer = NULL;
    TRY(s);
    TRY(manifest_add_shard(&c->manifest, &shard, err));
    c->summary->shards++;
    c->finished_bytes += shard.size_bytes;
    c->finished_samples += shard.sample_count;
    c->summary->bytes = c->finished_bytes;
    return STATUS_OK;
}

static bool takes(const struct pack_commit *c, const struct shard_frame *f) {
    uint64_t held = shard_writer_data_bytes(c->writer);
    return shard_writer_sample_count(c->writer) < c->opt->shard_samples &&
           held < c->opt->shard_size_bytes &&
           f->bytes.size_bytes <= c->opt->shard_size_bytes - held &&
           shard_writer_fits(c->writer, f);
}

/* A key that the shard has already gets the id behind it, which costs building the frame again. */
static enum status add_frame(struct pack_commit *c, struct pack_item *item, struct error *err) {
    struct error why = {0};
    enum status s = shard_writer_add(c->writer, &item->frame, &why);
    for (int attempt = 0; s == STATUS_EXISTS && c->opt->ids == PACK_IDS_ROW && attempt < 4;
         attempt++) {
        char key[SHARD_MAX_KEY_BYTES + 32];
        int end = snprintf(key, sizeof(key), "-%" PRIu64 "%.*s", item->id, attempt, "----");
        int kept = SHARD_MAX_KEY_BYTES - end;
        snprintf(key, sizeof(key), "%.*s-%" PRIu64 "%.*s", kept, item->key, item->id, attempt,
                 "----");
        item->sample.key = key;
        TRY(shard_frame_build(c->builder, &item->frame, &item->sample, err));
        memset(&why, 0, sizeof(why));
        s = shard_writer_add(c->writer, &item->frame, &why);
    }
    if (s == STATUS_EXISTS) {
        return error_set(err, STATUS_CORRUPT,
                         "%s: row %" PRIu64 ": the id %" PRIu64 " of key '%.80s' comes twice; "
                         "--ids row numbers rows instead",
                         c->opt->sources[item->source], item->row.row, item->id, item->row.key);
    }
    if (s != STATUS_OK && err) {
        *err = why;
    }
    return s;
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

static enum status add_sample(struct pack_commit *c, struct pack_item *item, struct error *err) {
    if (c->writer && !takes(c, &item->frame)) {
        TRY(finish_shard(c, err));
    }
    if (!c->writer) {
        TRY(shard_writer_open(&c->writer, c->fs, c->opt->directory, PACK_SHARD_NAME,
                              c->summary->shards, SHARD_CONTAINER_TAR_ZSTD, c->opt->level, err));
    }
    TRY(add_frame(c, item, err));
    c->summary->samples++;
    count_dropped_json(c, item);
    c->summary->texts += item->sample.caption_count;
    c->summary->bytes = c->finished_bytes + shard_writer_data_bytes(c->writer);
    return STATUS_OK;
}

enum status pack_commit_add(struct pack_commit *c, struct pack_item *item, struct error *err) {
    c->summary->rows++;
    if (item->row.reason != REASON_NONE) {
        return add_reject(c, item, err);
    }
    if (item->status != STATUS_OK) {
        if (err) {
            *err = item->error;
        }
        return item->status;
    }
    return add_sample(c, item, err);
}

static enum status
add_option_u64(struct manifest *m, const char *name, uint64_t value, struct error *err) {
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    return manifest_add_option(m, name, text, err);
}

static enum status
describe(struct pack_commit *c, const uint64_t *rows, size_t sources, struct error *err) {
    struct manifest *m = &c->manifest;
    const struct pack_options *o = c->opt;
    for (size_t i = 0; i < sources; i++) {
        const char *slash = strrchr(o->sources[i], '/');
        const char *name = slash ? slash + 1 : o->sources[i];
        TRY(manifest_add_source(m, strcmp(name, "-") == 0 ? "stdin" : name, rows[i], err));
    }
    TRY(manifest_add_option(m, "ids", o->ids == PACK_IDS_KEY ? "key" : "row", err));
    if (o->resize_short_px > 0) {
        char text[32];
        snprintf(text, sizeof(text), "short:%" PRId32, o->resize_short_px);
        TRY(manifest_add_option(m, "resize", text, err));
        TRY(add_option_u64(m, "quality", (uint64_t)o->quality, err));
    } else {
        TRY(manifest_add_option(m, "resize", "none", err));
    }
    TRY(add_option_u64(m, "shard-samples", o->shard_samples, err));
    return add_option_u64(m, "shard-size", o->shard_size_bytes, err);
}

enum status pack_commit_finish(struct pack_commit *c,
                               const uint64_t *rows,
                               size_t sources,
                               bool partial,
                               struct error *err) {
    TRY(finish_shard(c, err));
    TRY(publish_rejects(c, err));
    if (c->summary->samples == 0) {
        return error_set(err, STATUS_CORRUPT,
                         "not one of %" PRIu64 " rows can be used; %s/%s says "
                         "what is wrong with each",
                         c->summary->rows, c->opt->directory, PACK_REJECTS_NAME);
    }
    TRY(describe(c, rows, sources, err));
    if (partial) {
        TRY(manifest_add_option(&c->manifest, "partial", "yes", err));
    }
    enum status s = dataset_fingerprint_of(&c->summary->fingerprint, &c->manifest,
                                           c->opt->directory, c->fs, err);
    if (s == STATUS_EXISTS) { /* a key that is an id, in two shards */
        if (err) {
            size_t end = strlen(err->text);
            snprintf(err->text + end, sizeof(err->text) - end, "; --ids row numbers rows instead");
            err->status = STATUS_CORRUPT;
        }
        return STATUS_CORRUPT;
    }
    TRY(s);
    TRY(manifest_seal(&c->manifest, c->summary->fingerprint, err));
    TRY(manifest_write(&c->manifest, c->fs, c->opt->directory, err));
    c->summary->is_dataset = true;
    return STATUS_OK;
}

void pack_commit_close(struct pack_commit *c) {
    shard_writer_close(c->writer);
    discard_rejects(c);
    shard_frame_builder_destroy(c->builder);
    manifest_fini(&c->manifest);
    json_writer_fini(&c->line);
    memset(c, 0, sizeof(*c));
}
