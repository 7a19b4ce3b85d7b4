/*
 * Where a run begins, depending on what its directory holds:
 *
 *                        nothing   a complete dataset   a partial one, or shards, with a journal
 *     (no option)        new       refused              refused
 *     --overwrite        new       new                  new
 *     --resume           new       finished             from the journal's end
 *     --append           refused   new rows             refused
 *     --append --resume  refused   new rows, from the end of an append's journal, or finished
 *
 * Nothing is changed here, so a run that is refused leaves everything as it is.
 */
#include "pack/run/decide_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/fetch/fetch.h"
#include "pack/journal/journal_internal.h"
#include "pack/options_internal.h"
#include "pack/run/dedup_internal.h"
#include "pack/run/directory_internal.h"
#include "pack/run/identity_internal.h"

static bool is_partial(const struct manifest *m) {
    return pack_manifest_option(m, PACK_SETTING_PARTIAL) != NULL;
}

/* ---- refusals ---- */

static enum status unfinished_writer(const struct pack_plan *p, struct error *err) {
    return error_set(err, STATUS_EXISTS,
                     "%s: contains shards of an unfinished program; --overwrite replaces them",
                     p->opt->directory);
}

static enum status
refuse(const struct pack_plan *p, const struct pack_contents *c, struct error *err) {
    const char *directory = p->opt->directory;
    if (c->journal) {
        struct pack_journal_kind kind;
        TRY(pack_journal_kind(&kind, p->opt->fs, directory, err));
        RETURN_IF(strcmp(kind.name, PACK_JOURNAL_WRITE) == 0, unfinished_writer(p, err));
        return error_set(
            err, STATUS_EXISTS,
            "%s: holds %s an unfinished run; resume it with %s, or replace it with --overwrite",
            directory, c->dataset ? "a dataset already, of" : "shards of",
            strcmp(kind.name, "merge") == 0    ? "ccpack merge"
            : strcmp(kind.name, "append") == 0 ? "--append --resume"
                                               : "--resume");
    }
    FAIL_IF(c->dataset, err, STATUS_EXISTS,
            "%s: holds a dataset already; %s, --overwrite replaces it", directory,
            p->opt->part.count > 0 ? "--resume does nothing if it is this part"
            : p->opt->fetch        ? "--retry adds rows that failed, --append those of another list"
                                   : "--append adds to it");
    FAIL_IF(c->shards, err, STATUS_EXISTS,
            "%s: holds shards of an unfinished run without a journal to resume from; replace them "
            "with --overwrite",
            directory);
    return error_set(err, STATUS_EXISTS,
                     "%s: is not empty, it holds '%.80s'; --overwrite packs into it and removes "
                     "only files that ccpack made",
                     directory, c->foreign ? c->foreign : (const char *)p->names.data);
}

/* A tar with the name that a shard would get, which may be anybody's. */
static enum status
check_tars(const struct pack_plan *p, const struct pack_contents *c, struct error *err) {
    if (!c->tar || p->opt->container != SHARD_CONTAINER_TAR) {
        return STATUS_OK;
    }
    return error_set(err, STATUS_EXISTS,
                     "%s/%.80s: has the name of a shard, but belongs to no dataset made by ccpack; "
                     "move it away, or pack into another directory",
                     p->opt->directory, c->tar);
}

/* ---- a new dataset ---- */

/* Every part first counts the rows of all sources and reads their classes, so ids and labels are
 * those of a run over everything. */
static enum status find_part(struct pack_plan *p, struct error *err) {
    size_t count = p->opt->source_count;
    p->totals = calloc(count, sizeof(*p->totals));
    TRY_MEMORY(p->totals, err, "out of memory for rows");
    for (size_t i = 0; i < count; i++) {
        TRY(pack_identity_scan(&p->totals[i], p, i, true, err));
    }
    pack_part_locate(p);
    return pack_classes_publish(&p->classes, &p->manifest, pack_classes_count(&p->classes), err);
}

static enum status begin_new(struct pack_plan *p, struct error *err) {
    const struct pack_options *o = p->opt;
    TRY(pack_directory_check_sources(o, err));
    p->start = PACK_START_NEW;
    TRY(manifest_init(&p->manifest, o->container, o->created_by, err));
    TRY(pack_journal_head(&p->head, o, NULL, 0, err));
    if (pack_part_is_whole(o)) {
        pack_part_locate(p);
        return STATUS_OK;
    }
    return o->part.count > 0 ? find_part(p, err) : STATUS_OK;
}

static enum status plan_new(struct pack_plan *p, const struct pack_contents *c, struct error *err) {
    /* A fetch that packed nothing left its list of rejects, which the next one replaces. */
    const bool only_rejects =
        p->opt->fetch && c->rejects && p->names.size_bytes == sizeof(PACK_REJECTS_NAME);
    RETURN_IF(!p->opt->overwrite && p->names.size_bytes > 0 && !only_rejects, refuse(p, c, err));
    TRY(check_tars(p, c, err));
    return begin_new(p, err);
}

/* ---- --resume ---- */

static enum status other_options(const struct pack_plan *p,
                                 const char *name,
                                 const char *was,
                                 const char *is,
                                 bool may_differ,
                                 struct error *err) {
    char remedy[120] = "";
    if (may_differ) {
        strcpy(remedy, "; omit it to use the dataset's, or add --new-settings");
    } else if (was != NULL && strcmp(name, "container") != 0) {
        snprintf(remedy, sizeof(remedy), "; add --%.40s %.60s", name, was);
    }
    return error_set(err, STATUS_MISMATCH,
                     "%s: the dataset was made with other options: --%s was %.60s, is %.60s%s",
                     p->opt->directory, name, was ? was : "not given", is ? is : "not given",
                     remedy);
}

static enum status
compare_container(const struct pack_plan *p, const struct manifest *m, struct error *err) {
    return m->container == p->opt->container
               ? STATUS_OK
               : other_options(p, "container", shard_container_name(m->container),
                               shard_container_name(p->opt->container), false, err);
}

/* A retry reads the list as it was read before; it and an append exclude as much. */
static enum status compare_list(const struct pack_plan *p,
                                const struct manifest *m,
                                const struct pack_settings *l,
                                struct error *err) {
    for (size_t i = 0; pack_list_settings[i + 1]; i++) { /* the last may differ */
        const char *name = pack_list_settings[i];
        const char *was = pack_manifest_in_force(m, name);
        const char *is = pack_settings_value(l, name);
        const bool differs = was && is ? strcmp(was, is) != 0 : was != is;
        /* lists that were appended may have other columns */
        RETURN_IF(fetch_options_of(p->opt->fetch)->retry && differs &&
                      was == pack_manifest_option(m, name),
                  other_options(p, name, was, is, false, err));
    }
    const bool excludes = pack_manifest_in_force(m, "opt-out") != NULL;
    RETURN_IF(excludes && !pack_settings_value(l, "opt-out"),
              other_options(p, "opt-out", "FILE", NULL, false, err));
    return STATUS_OK;
}

/* Compares the settings of an append with the dataset's. */
static enum status
compare_shared(const struct pack_plan *p, const struct manifest *m, struct error *err) {
    const bool writer = p->opt->source_count == 0; /* its samples are not filtered */
    const size_t count =
        p->opt->new_settings || writer ? PACK_FIXED_SETTINGS : PACK_SHARED_SETTINGS;
    struct pack_settings l;
    pack_settings_of(&l, p->opt);
    for (size_t i = 0; i < count; i++) {
        const char *name = pack_append_settings[i];
        const char *was = pack_manifest_in_force(m, name);
        const char *is = pack_settings_value(&l, name);
        RETURN_IF(was && is ? strcmp(was, is) != 0 : was != is,
                  other_options(p, name, was, is, i >= PACK_FIXED_SETTINGS, err));
    }
    return p->opt->fetch ? compare_list(p, m, &l, err) : STATUS_OK;
}

/* Compares all settings with those in dataset.json. */
static enum status
compare_stored(const struct pack_plan *p, const struct manifest *m, struct error *err) {
    struct pack_settings l;
    pack_settings_of(&l, p->opt);
    TRY(compare_container(p, m, err));
    for (size_t i = 0; i < l.count; i++) {
        const char *was = pack_manifest_option(m, l.items[i].name);
        RETURN_IF(l.items[i].stored && (!was || strcmp(was, l.items[i].value) != 0),
                  other_options(p, l.items[i].name, was, l.items[i].value, false, err));
    }
    for (size_t i = 0; i < m->option_count; i++) {
        const char *name = m->options[i].name;
        RETURN_IF(strcmp(name, PACK_SETTING_PARTIAL) != 0 && !pack_settings_value(&l, name),
                  other_options(p, name, m->options[i].value, NULL, false, err));
    }
    return STATUS_OK;
}

/* Whether the dataset's last sources are those of the run; `differs` is the first that is not. */
static enum status ends_with_sources(bool *out,
                                     struct pack_plan *p,
                                     const struct manifest *m,
                                     size_t *differs,
                                     struct error *err) {
    size_t count = p->opt->source_count;
    *out = count <= m->source_count;
    *differs = 0;
    for (size_t i = 0; *out && i < count; i++) {
        const struct manifest_source *was = &m->sources[m->source_count - count + i];
        char name[PACK_SOURCE_NAME_BYTES];
        pack_source_name(name, p->opt->sources[i]);
        *differs = i;
        *out = strcmp(name, was->name) == 0;
        if (*out) {
            TRY(pack_identity_matches(out, p, i, was, err));
        }
    }
    return STATUS_OK;
}

/* The dataset is what the run would make. */
static void take_whole(struct pack_plan *p, struct manifest *old) {
    manifest_fini(&p->manifest);
    p->manifest = *old;
    memset(old, 0, sizeof(*old));
    p->start = PACK_START_FINISHED;
}

/* A dataset without a journal: is it what this run would make? */
static enum status plan_finished(struct pack_plan *p, struct manifest *old, struct error *err) {
    size_t differs = 0;
    bool same = false;
    FAIL_IF(is_partial(old), err, STATUS_EXISTS,
            "%s: is a partial dataset without a journal to resume from; --overwrite restarts it",
            p->opt->directory);
    TRY(ends_with_sources(&same, p, old, &differs, err));
    const char *first = p->opt->sources[differs];
    FAIL_IF(old->source_count != p->opt->source_count, err, STATUS_MISMATCH,
            "%s: the dataset was made from %zu source%s, not from these %zu; the first that "
            "differs is %.80s",
            p->opt->directory, old->source_count, old->source_count == 1 ? "" : "s",
            p->opt->source_count, first);
    FAIL_IF(!same, err, STATUS_MISMATCH,
            "%s: the dataset is complete, and was not made from %.80s: its source number %zu has "
            "another name or content; --append adds this one, --overwrite replaces the dataset",
            p->opt->directory, first, differs + 1);
    TRY(compare_stored(p, old, err));
    take_whole(p, old);
    return STATUS_OK;
}

/* Checks that the shards of the journal exist with their sizes. */
static enum status check_shards(const struct pack_plan *p, struct error *err) {
    for (size_t i = p->old_shards; i < p->manifest.shard_count; i++) {
        const struct shard_summary *shard = &p->manifest.shards[i];
        char path[PATH_MAX_BYTES];
        uint64_t size_bytes = 0;
        TRY(path_join(path, sizeof(path), p->opt->directory, shard->name, err));
        TRY(file_size(p->opt->fs, &size_bytes, path, err));
        FAIL_IF(size_bytes != shard->size_bytes, err, STATUS_CORRUPT,
                "%s: has %" PRIu64 " bytes, the journal says %" PRIu64
                "; it cannot be resumed; --overwrite restarts it",
                path, size_bytes, shard->size_bytes);
    }
    return STATUS_OK;
}

/* The sources before the point, which are not read again, and one that is read from there on. */
static enum status check_sources(struct pack_plan *p, struct error *err) {
    const size_t end = p->point.source + (p->point.place.offset_bytes > 0);
    for (size_t i = p->first.source; i < end; i++) {
        struct manifest_source is;
        const struct manifest_source *was = &p->sources[i];
        TRY(pack_identity_sample(&is, p->opt->sources[i], err));
        FAIL_IF(was->bytes != is.bytes || was->sample_hash != is.sample_hash, err, STATUS_MISMATCH,
                "%s: is not the source that was packed: its %" PRIu64
                " bytes differ from the packed ones; --resume requires the same source; "
                "--overwrite restarts it",
                p->opt->sources[i], is.bytes);
    }
    return STATUS_OK;
}

static enum status continue_run(struct pack_plan *p, struct error *err) {
    p->start = PACK_START_RESUME;
    TRY(pack_journal_read(p, err));
    TRY(check_sources(p, err));
    return check_shards(p, err);
}

static enum status plan_resume(struct pack_plan *p,
                               const struct pack_contents *c,
                               struct manifest *old,
                               struct error *err) {
    const struct pack_options *o = p->opt;
    if (!c->journal) {
        if (c->dataset) {
            return plan_finished(p, old, err);
        }
        RETURN_IF(c->shards || c->foreign, refuse(p, c, err));
        return begin_new(p, err);
    }
    struct pack_journal_kind kind;
    TRY(pack_journal_kind(&kind, o->fs, o->directory, err));
    RETURN_IF(strcmp(kind.name, PACK_JOURNAL_WRITE) == 0, unfinished_writer(p, err));
    FAIL_IF(strcmp(kind.name, "pack") != 0, err, STATUS_MISMATCH,
            "%s: contains %s that did not finish; %s resumes it", o->directory,
            strcmp(kind.name, "merge") == 0 ? "a merge" : "an append",
            strcmp(kind.name, "merge") == 0 ? "ccpack merge" : "--append --resume");
    TRY(manifest_init(&p->manifest, o->container, o->created_by, err));
    TRY(pack_journal_head(&p->head, o, NULL, 0, err));
    TRY(continue_run(p, err));
    if (c->dataset && !is_partial(old)) { /* only the journal was left to be removed */
        take_whole(p, old);
    }
    return STATUS_OK;
}

/* ---- --append ---- */

/* The old dataset becomes the beginning of the new one. */
static enum status take_old(struct pack_plan *p, struct manifest *old, struct error *err) {
    char *created_by = strdup(p->opt->created_by);
    TRY_MEMORY(created_by, err, "out of memory for the manifest");
    manifest_fini(&p->manifest);
    p->manifest = *old;
    memset(old, 0, sizeof(*old));
    struct manifest *m = &p->manifest;
    free(m->created_by);
    m->created_by = created_by;
    p->old_shards = (uint32_t)m->shard_count;
    for (size_t i = 0; i < m->shard_count; i++) {
        uint32_t number = 0;
        if (pack_shard_number(&number, m->shards[i].name, true) && number >= p->next_number) {
            p->next_number = number + 1;
        }
    }
    for (size_t i = 0; i < m->source_count; i++) {
        p->old_rows += m->sources[i].rows;
    }
    return STATUS_OK;
}

/* The size of the dataset's list of rejects. */
static enum status measure_rejects(struct pack_plan *p, struct error *err) {
    char path[PATH_MAX_BYTES];
    const struct file_system *fs = p->opt->fs;
    bool exists = false;
    TRY(path_join(path, sizeof(path), p->opt->directory, PACK_REJECTS_NAME, err));
    TRY(fs->exists(fs->context, path, &exists, err));
    return exists ? file_size(fs, &p->point.rejects_bytes, path, err) : STATUS_OK;
}

static enum status check_appendable(const struct pack_plan *p,
                                    const struct pack_contents *c,
                                    const struct manifest *old,
                                    struct error *err) {
    const char *directory = p->opt->directory;
    if (!c->dataset) {
        const char *what =
            p->opt->fetch ? "dataset whose gaps --retry could fill" : "dataset to append to";
        const char *help = c->journal ? "; use --resume alone to continue the run that started one"
                           : p->opt->fetch ? "; omit --retry to fetch the whole list"
                                           : "";
        return error_set(err, STATUS_NOTFOUND, "%s: holds no %s%s", directory, what, help);
    }
    FAIL_IF(is_partial(old), err, STATUS_MISMATCH,
            "%s: is a partial dataset; complete it first: --resume with the options of "
            "the run that made it",
            directory);
    FAIL_IF(pack_manifest_option(old, PACK_SETTING_PART), err, STATUS_MISMATCH,
            "%s: is a part of a dataset; ccpack merge must complete it first", directory);
    TRY(check_tars(p, c, err));
    TRY(pack_directory_check_sources(p->opt, err));
    TRY(compare_container(p, old, err));
    return compare_shared(p, old, err);
}

/* Limits of the manifest that the run would meet at its end. */
static enum status
check_limits(const struct pack_options *o, const struct manifest *old, struct error *err) {
    FAIL_IF(old->source_count + o->source_count > MANIFEST_MAX_SOURCES, err, STATUS_LIMIT,
            "%zu sources: a dataset has at most %d", old->source_count + o->source_count,
            MANIFEST_MAX_SOURCES);
    FAIL_IF(old->generation_count == MANIFEST_MAX_GENERATIONS ||
                old->shard_count == MANIFEST_MAX_SHARDS,
            err, STATUS_LIMIT,
            "%s: has %zu generations and %zu shards; at most %d and %d are possible", o->directory,
            old->generation_count, old->shard_count, MANIFEST_MAX_GENERATIONS, MANIFEST_MAX_SHARDS);
    return STATUS_OK;
}

static enum status plan_append(struct pack_plan *p,
                               const struct pack_contents *c,
                               struct manifest *old,
                               struct error *err) {
    const struct pack_options *o = p->opt;
    struct pack_journal_kind kind = {.name = ""};
    TRY(check_appendable(p, c, old, err));
    if (c->journal) {
        TRY(pack_journal_kind(&kind, o->fs, o->directory, err));
    }
    size_t generations = old->generation_count;
    bool resumes = o->resume && strcmp(kind.name, "append") == 0;
    if (resumes && kind.generations > 0 && kind.generations < generations) {
        p->start = PACK_START_FINISHED;
        TRY(take_old(p, old, err));
        TRY(pack_journal_head(&p->head, o, &p->manifest, (size_t)kind.generations, err));
        return pack_journal_compare(p, err);
    }
    if (o->resume && !resumes && generations > 1) {
        size_t differs = 0;
        bool same = false;
        TRY(ends_with_sources(&same, p, old, &differs, err));
        if (same) {
            p->start = PACK_START_FINISHED;
            return take_old(p, old, err);
        }
    }
    TRY(take_old(p, old, err));
    TRY(check_limits(o, &p->manifest, err));
    TRY(pack_journal_head(&p->head, o, &p->manifest, generations, err));
    if (resumes) {
        TRY(continue_run(p, err));
    } else {
        p->start = PACK_START_NEW;
        TRY(measure_rejects(p, err));
    }
    return pack_identity_check_new(p, err);
}

/* ---- the whole ---- */

/* Reads the manifest, where there is one, and finds out whether shards there are .tar. */
static enum status look_inside(struct pack_plan *p,
                               const struct pack_contents *c,
                               struct manifest *old,
                               struct error *err) {
    const struct pack_options *o = p->opt;
    enum status s = STATUS_OK;
    if (c->dataset) {
        s = manifest_read(old, o->fs, o->directory, err);
        p->tars = s == STATUS_OK && old->container == SHARD_CONTAINER_TAR;
    }
    if (s == STATUS_OK && c->journal) {
        struct pack_journal_kind kind;
        s = pack_journal_kind(&kind, o->fs, o->directory, err);
        p->tars = p->tars || kind.tars;
    }
    bool needed = o->resume || o->append;
    bool content = s == STATUS_CORRUPT || s == STATUS_VERSION || s == STATUS_LIMIT;
    if (content && !needed) { /* not needed: it is replaced, or the run is refused */
        if (err) {
            memset(err, 0, sizeof(*err));
        }
        return STATUS_OK;
    }
    return s;
}

static enum status decide(struct pack_plan *p, struct manifest *old, struct error *err) {
    struct pack_contents c;
    pack_directory_look(&c, &p->names, false);
    TRY(look_inside(p, &c, old, err));
    pack_directory_look(&c, &p->names, p->tars);
    TRY(pack_identity_check_names(p, err));
    if (p->opt->append) {
        return plan_append(p, &c, old, err);
    }
    return p->opt->resume ? plan_resume(p, &c, old, err) : plan_new(p, &c, err);
}

/* Skips the rows before the point. After an interruption they must be those that were packed. */
static enum status skip_rows(struct pack_plan *p, struct error *err) {
    enum { ROWS_AT_A_TIME = 4096 };
    const char *path = p->opt->sources[p->point.source];
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    uint64_t left = p->point.row - source_rows_read(p->opened);
    while (left > 0) {
        uint64_t skipped = 0;
        uint64_t piece = left < ROWS_AT_A_TIME ? left : ROWS_AT_A_TIME;
        enum status s = source_skip(p->opened, piece, &skipped, err);
        FAIL_IF(s == STATUS_END, err, STATUS_MISMATCH,
                "%s: has %" PRIu64
                " rows, fewer than when it was packed: it is not the same source",
                name, source_rows_read(p->opened));
        TRY(s);
        left -= skipped;
        FAIL_IF(pack_plan_must_stop(p), err, STATUS_INTERRUPTED, "stopped on request");
    }
    bool packed = p->point.source != p->first.source || p->point.row != p->first.row;
    if (packed && source_content(p->opened) != p->point.content) {
        uint64_t position = 0, size_bytes = 0;
        source_position(p->opened, &position, &size_bytes);
        return error_set(err, STATUS_MISMATCH,
                         "%s: is not the source that was packed: its first %" PRIu64
                         " rows, up to byte %" PRIu64
                         ", differ from the packed ones; --resume requires the same source; "
                         "--overwrite restarts it",
                         name, p->point.row, position);
    }
    return STATUS_OK;
}

/* Prepares what the reader and the committing thread begin with. */
static enum status prepare_reading(struct pack_plan *p, struct error *err) {
    for (size_t i = pack_classes_count(&p->classes); i < p->manifest.class_count; i++) {
        TRY(pack_classes_append(&p->classes, p->manifest.classes[i], err));
    }
    bool done = p->point.source == p->end.source && p->point.row == p->end.row;
    if (done || p->point.source == p->opt->source_count) {
        return STATUS_OK;
    }
    if (p->opt->dedup == PACK_DEDUP_EXACT && !p->opt->fetch) {
        TRY(dedup_find(&p->dedup, p, err));
    }
    struct source_options how;
    pack_plan_source_options(&how, p);
    how.from = p->point.place.offset_bytes > 0 ? &p->point.place : NULL;
    TRY(p->open_source(&p->opened, p->opt->sources[p->point.source], &how, err));
    return skip_rows(p, err);
}

enum status pack_plan_make(struct pack_plan *p,
                           const struct pack_options *opt,
                           pack_open_source *open_source,
                           struct error *err) {
    struct manifest old = {0};
    memset(p, 0, sizeof(*p));
    p->opt = opt;
    p->open_source = open_source;
    p->end.source = opt->source_count;
    pack_classes_init(&p->classes);
    byte_buffer_init(&p->head, PACK_JOURNAL_MAX_BYTES);
    byte_buffer_init(&p->names, 0);
    p->sources = calloc(opt->source_count + 1, sizeof(*p->sources)); /* a writer has none */
    p->notes = calloc(opt->source_count + 1, sizeof(*p->notes));
    TRY_MEMORY(p->sources && p->notes, err, "out of memory for rows");
    TRY(check_limits(opt, &old, err));
    TRY(opt->fs->exists(opt->fs->context, opt->directory, &p->existed, err));
    if (p->existed) {
        TRY(opt->fs->lock_directory(opt->fs->context, &p->lock, opt->directory, err));
    }
    TRY(pack_directory_list(&p->names, opt->fs, opt->directory, err));
    if (opt->fetch) {
        pack_directory_forget(&p->names, FETCH_DIRECTORY);
    }
    enum status s = decide(p, &old, err);
    if (s == STATUS_OK && p->start != PACK_START_FINISHED) {
        s = prepare_reading(p, err);
    }
    manifest_fini(&old);
    return s;
}

void pack_plan_fini(struct pack_plan *p) {
    p->opt->fs->close(p->lock);
    source_close(p->opened);
    dedup_destroy(p->dedup);
    manifest_fini(&p->manifest);
    pack_classes_fini(&p->classes);
    byte_buffer_fini(&p->head);
    byte_buffer_fini(&p->names);
    free(p->sources);
    for (size_t i = 0; p->notes && i < p->opt->source_count; i++) {
        free(p->notes[i]);
    }
    free(p->notes);
    free(p->totals);
}
