/*
 * A run of the packer: make the plan, pack the rows, finish the dataset or keep what can be kept.
 */
#include "pack/pack.h"

#include <stdio.h>
#include <string.h>

#include "net/location.h"
#include "pack/fetch/fetch_internal.h"
#include "pack/options_internal.h"
#include "pack/run/decide_internal.h"
#include "pack/run/directory_internal.h"
#include "pack/run/ring_internal.h"

/* Whether the rows before a failure become a partial dataset: when the input failed or the run was
 * interrupted. A failed append leaves the dataset as it was. */
static bool keeps_rows(enum status s, const struct pack_commit *c) {
    return !c->opt->append && c->summary->rows > 0 &&
           (s == STATUS_CORRUPT || s == STATUS_NOTFOUND || s == STATUS_LIMIT ||
            s == STATUS_INTERRUPTED);
}

static void take_notes(struct pack_summary *out, const struct pack_plan *p) {
    memcpy(out->columns, p->columns, sizeof(out->columns));
    for (size_t i = 0; i < p->opt->source_count; i++) {
        if (p->notes[i] && out->notes++ == 0) {
            snprintf(out->note, sizeof(out->note), "%s", p->notes[i]);
        }
    }
}

static enum status pack_rows(struct pack_plan *p, struct pack_summary *out, struct error *err) {
    struct pack_commit c;
    enum status s = pack_commit_open(&c, p, out, err);
    if (s == STATUS_OK) {
        s = pack_ring_run(&c, err);
        take_notes(out, p);
        THEN(s, pack_judge(c.opt, out, err));
        if (s == STATUS_OK) {
            s = pack_commit_finish(&c, false, err);
        } else if (keeps_rows(s, &c)) {
            pack_commit_finish(&c, true, NULL);
        }
    }
    out->resume_with = s == STATUS_MISMATCH ? "--allow-duplicates" : out->resume_with;
    out->samples = s == STATUS_OK || out->is_dataset ? out->samples : c.finished_samples;
    out->bytes = c.finished_bytes;
    out->keeps_dataset = out->keeps_dataset && !out->is_dataset;
    pack_commit_close(&c);
    return s;
}

void pack_summary_of(struct pack_summary *out, const struct manifest *m) {
    for (size_t i = 0; i < m->source_count; i++) {
        out->rows += m->sources[i].rows;
    }
    out->samples = m->samples;
    out->rejected = out->rows > m->samples ? out->rows - m->samples : 0;
    out->texts = m->texts;
    out->bytes = m->bytes;
    out->shards = (uint32_t)m->shard_count;
    out->fingerprint = m->fingerprint;
    out->id_space = m->id_space;
    out->ids = m->samples;
    out->is_dataset = true;
}

/* The dataset is complete; the journal may still be there. */
static enum status
report_finished(const struct pack_plan *p, struct pack_summary *out, struct error *err) {
    const struct pack_options *o = p->opt;
    struct pack_contents c;
    pack_summary_of(out, &p->manifest);
    out->resumed = out->samples;
    out->resumed_bytes = out->bytes;
    out->was_finished = true;
    pack_directory_look(&c, &p->names, p->tars);
    if (!c.journal) {
        return STATUS_OK;
    }
    TRY(pack_remove(o->fs, o->directory, PACK_JOURNAL_NAME, err));
    return o->fs->sync_directory(o->fs->context, o->directory, err);
}

static enum status check_kinds(const struct pack_options *o, struct error *err) {
    for (size_t i = 0; i < o->source_count; i++) {
        enum source_kind kind;
        enum status s = source_kind_of(&kind, o->sources[i], err);
        if (s != STATUS_OK && (o->kind == SOURCE_AUTO || s != STATUS_CORRUPT)) {
            return s;
        }
        const bool remote = location_is_remote(o->sources[i]);
        FAIL_IF(o->part.count > 0 && o->ids != PACK_IDS_KEY && remote, err, STATUS_USAGE,
                "--part counts rows to assign ids, so every part would download all tars. If keys "
                "end in unique numbers, use --ids key, which assigns whole tars to parts; else "
                "make one dataset per machine, and train with --data A --data B");
        FAIL_IF(o->part.count > 0 && location_is_remote(o->sources[0]) != remote, err, STATUS_USAGE,
                "--part requires that all sources are remote, or none");
        FAIL_IF(
            o->part.count > 0 && strcmp(o->sources[i], "-") == 0, err, STATUS_USAGE,
            "--part counts the rows of all sources first, which is impossible for standard input");
    }
    return STATUS_OK;
}

static enum status check_options(const struct pack_options *o, struct error *err) {
    FAIL_IF(o->overwrite && (o->append || o->resume), err, STATUS_USAGE,
            "--overwrite and --%s exclude each other", o->append ? "append" : "resume");
    FAIL_IF(o->new_settings && !o->append, err, STATUS_USAGE, "--new-settings is for --append");
    FAIL_IF(o->append && o->part.count > 0, err, STATUS_USAGE,
            "--append and --part exclude each other: merge the "
            "parts, then append");
    FAIL_IF(o->dedup != PACK_DEDUP_NONE && o->part.count > 0, err, STATUS_USAGE,
            "--dedup and --part exclude each other: a part cannot see the images of other parts");
    FAIL_IF(!o->check && o->resize.kind != PACK_RESIZE_NONE, err, STATUS_USAGE,
            "--no-check and --resize exclude each other: resizing decodes every image");
    FAIL_IF(!o->check && o->phash, err, STATUS_USAGE,
            "--no-check and --phash exclude each other: a hash is computed from the pixels");
    FAIL_IF(o->filter.max_aspect != 0 && o->filter.max_aspect < 1, err, STATUS_USAGE,
            "--max-aspect %g: must be at least 1", o->filter.max_aspect);
    return STATUS_OK;
}

enum status pack_run(const struct pack_options *opt, struct pack_summary *out, struct error *err) {
    REQUIRE(opt && out && opt->fs && opt->directory && opt->sources && opt->source_count > 0);
    REQUIRE(opt->jobs >= 1 && opt->jobs <= PACK_MAX_JOBS && opt->created_by);
    REQUIRE(opt->shard_samples >= 1 && opt->shard_samples <= SHARD_MAX_SAMPLES);
    REQUIRE(opt->quality >= 1 && opt->quality <= 100);
    REQUIRE(opt->level >= SHARD_LEVEL_MIN && opt->level <= SHARD_LEVEL_MAX);
    REQUIRE(opt->container == SHARD_CONTAINER_TAR_ZSTD || opt->container == SHARD_CONTAINER_TAR);
    REQUIRE(!opt->fetch ||
            (opt->source_count == 1 && opt->ids == PACK_IDS_KEY && opt->part.count == 0));
    REQUIRE(opt->filter.max_pixels >= 1 && opt->filter.max_caption_bytes >= 1);
    struct pack_plan plan;
    memset(out, 0, sizeof(*out));
    TRY(check_options(opt, err));
    out->keeps_dataset = opt->append;
    out->unchanged = true;
    TRY(check_kinds(opt, err));
    enum status s = pack_plan_make(&plan, opt, opt->fetch ? fetch_open_source : source_open, err);
    out->unchanged = s != STATUS_OK;
    plan.committed = opt->fetch ? fetch_committed : NULL;
    THEN(s, plan.start == PACK_START_FINISHED ? report_finished(&plan, out, err)
                                              : pack_rows(&plan, out, err));
    pack_plan_fini(&plan);
    return s;
}
