/*
 * Reads the parts and checks that they are those of one run: all finished, each once, none missing.
 * Everything that is wrong is reported at once, with the parts that have to be packed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pack/journal/journal_internal.h"
#include "pack/merge/merge_internal.h"
#include "pack/options_internal.h"

static enum status set_why(struct merge_part *part, const char *text, struct error *err) {
    part->why = strdup(text);
    return part->why ? STATUS_OK
                     : error_set(err, STATUS_NOMEM, "out of memory for %s", part->directory);
}

/* The part of a directory whose run has not ended well, or has not ended. */
static enum status set_unfinished(struct merge *m, struct merge_part *part, struct error *err) {
    struct error busy = {0};
    struct file *lock = NULL;
    if (m->fs->lock_directory(m->fs->context, &lock, part->directory, &busy) == STATUS_EXISTS) {
        return set_why(part, busy.text, err);
    }
    m->fs->close(lock);
    error_set(&busy, STATUS_MISMATCH, "%.400s: its run ended early", part->directory);
    return set_why(part, busy.text, err);
}

static enum status set_no_part(struct merge_part *part, const char *what, struct error *err) {
    struct error why = {0};
    part->number = (struct pack_part){0};
    error_set(&why, STATUS_MISMATCH, "%.300s: %s", part->directory, what);
    return set_why(part, why.text, err);
}

static enum status set_number(struct merge_part *part, const char *text, struct error *err) {
    struct error ignored;
    if (text && pack_parse_part(&part->number, text, &ignored) == STATUS_OK) {
        return STATUS_OK;
    }
    return set_no_part(part, "is not a part of a dataset; parts are made by ccpack --part K/N",
                       err);
}

/* A directory without dataset.json. */
static enum status read_journal(struct merge *m, struct merge_part *part, struct error *err) {
    char path[PATH_MAX_BYTES];
    struct pack_journal_kind kind;
    bool exists = false;
    TRY(path_join(path, sizeof(path), part->directory, PACK_JOURNAL_NAME, err));
    TRY(m->fs->exists(m->fs->context, path, &exists, err));
    if (!exists) {
        TRY(m->fs->exists(m->fs->context, part->directory, &exists, err));
        return set_no_part(
            part, exists ? "holds no part: it has no " MANIFEST_NAME : "no such directory", err);
    }
    TRY(pack_journal_kind(&kind, m->fs, part->directory, err));
    TRY(set_number(part, kind.part, err));
    return part->number.count > 0 ? set_unfinished(m, part, err) : STATUS_OK;
}

static enum status read_part(struct merge *m, struct merge_part *part, struct error *err) {
    char path[PATH_MAX_BYTES];
    bool exists = false;
    TRY(path_join(path, sizeof(path), part->directory, MANIFEST_NAME, err));
    TRY(m->fs->exists(m->fs->context, path, &exists, err));
    if (!exists) {
        return read_journal(m, part, err);
    }
    TRY(manifest_read(&part->manifest, m->fs, part->directory, err));
    TRY(set_number(part, pack_manifest_option(&part->manifest, PACK_SETTING_PART), err));
    if (pack_manifest_option(&part->manifest, PACK_SETTING_PARTIAL) && part->number.count > 0) {
        return set_unfinished(m, part, err);
    }
    part->finished = part->number.count > 0;
    return STATUS_OK;
}

/* What is no part comes first. */
static int by_number(const void *a, const void *b) {
    const struct merge_part *x = a;
    const struct merge_part *y = b;
    if (x->number.number != y->number.number) {
        return x->number.number < y->number.number ? -1 : 1;
    }
    return strcmp(x->directory, y->directory);
}

static enum status differ(const struct merge_part *a,
                          const struct merge_part *b,
                          const char *what,
                          const char *of_a,
                          const char *of_b,
                          struct error *err) {
    return error_set(
        err, STATUS_MISMATCH, "%.80s and %.80s are from different runs: %.60s is %.60s and %.60s",
        a->directory, b->directory, what, of_a ? of_a : "not given", of_b ? of_b : "not given");
}

static enum status compare_options(const struct merge_part *a,
                                   const struct merge_part *b,
                                   bool turned,
                                   struct error *err) {
    const struct merge_part *x = turned ? b : a;
    const struct merge_part *y = turned ? a : b;
    for (size_t i = 0; i < x->manifest.option_count; i++) {
        const struct manifest_option *o = &x->manifest.options[i];
        const char *other = pack_manifest_option(&y->manifest, o->name);
        RETURN_IF(strcmp(o->name, PACK_SETTING_PART) != 0 &&
                      (!other || strcmp(o->value, other) != 0),
                  differ(a, b, o->name, turned ? other : o->value, turned ? o->value : other, err));
    }
    return STATUS_OK;
}

/* A dataset of an earlier version has no hashes. */
static bool is_same_source(const struct manifest_source *a, const struct manifest_source *b) {
    bool same_rows = a->content == 0 || b->content == 0 || a->content == b->content;
    bool same_bytes = a->bytes == 0 || b->bytes == 0 ||
                      (a->bytes == b->bytes && a->sample_hash == b->sample_hash);
    return same_rows && same_bytes;
}

static enum status
compare_parts(const struct merge_part *a, const struct merge_part *b, struct error *err) {
    const struct manifest *x = &a->manifest;
    const struct manifest *y = &b->manifest;
    RETURN_IF(x->container != y->container,
              differ(a, b, "the container", shard_container_name(x->container),
                     shard_container_name(y->container), err));
    TRY(compare_options(a, b, false, err));
    TRY(compare_options(a, b, true, err));
    for (size_t i = 0; i < x->source_count || i < y->source_count; i++) {
        const char *p = i < x->source_count ? x->sources[i].name : NULL;
        const char *q = i < y->source_count ? y->sources[i].name : NULL;
        RETURN_IF(!p || !q || strcmp(p, q) != 0, differ(a, b, "a source", p, q, err));
        FAIL_IF(!is_same_source(&x->sources[i], &y->sources[i]), err, STATUS_MISMATCH,
                "%.80s and %.80s are from different runs: source '%.80s' differs or has changed in "
                "between",
                a->directory, b->directory, p);
    }
    for (size_t i = 0; i < x->class_count || i < y->class_count; i++) {
        const char *p = i < x->class_count ? x->classes[i] : NULL;
        const char *q = i < y->class_count ? y->classes[i] : NULL;
        RETURN_IF(!p || !q || strcmp(p, q) != 0, differ(a, b, "a class", p, q, err));
    }
    return STATUS_OK;
}

/* ---- all together ---- */

/* Counts the problems while it reports them. */
struct check {
    const struct merge *merge;
    const struct merge_part *parts; /* those that are parts, by number */
    size_t given;
    uint32_t count; /* N */
    uint64_t found[PACK_MERGE_FOREIGN + 1];
};

static void report(struct check *c,
                   enum pack_merge_fault fault,
                   const struct merge_part *part,
                   const char *text) {
    const struct pack_merge_options *o = c->merge->opt;
    const struct pack_merge_problem p = {
        .fault = fault,
        .first = part->number.number,
        .last = part->number.number,
        .count = part->number.count,
        .directory = part->directory,
        .text = text,
    };
    c->found[fault]++;
    if (o->problem) {
        o->problem(o->cookie, &p);
    }
}

static void report_missing(struct check *c, uint32_t first, uint32_t last) {
    const struct pack_merge_options *o = c->merge->opt;
    char text[64];
    if (first > last) {
        return;
    }
    snprintf(text, sizeof(text), first < last ? "parts %" PRIu32 "-%" PRIu32 : "part %" PRIu32,
             first, last);
    const struct pack_merge_problem p = {PACK_MERGE_MISSING, first, last, c->count, NULL, text};
    c->found[PACK_MERGE_MISSING] += (uint64_t)last - first + 1;
    if (o->problem) {
        o->problem(o->cookie, &p);
    }
}

static void find_missing(struct check *c) {
    uint32_t next = 1;
    for (size_t i = 0; i < c->given; i++) {
        const uint32_t number = c->parts[i].number.number;
        report_missing(c, next, number - 1);
        next = number + 1;
    }
    report_missing(c, next, c->count);
}

static void find_unfinished(struct check *c) {
    for (size_t i = 0; i < c->given; i++) {
        if (!c->parts[i].finished) {
            report(c, PACK_MERGE_UNFINISHED, &c->parts[i], c->parts[i].why);
        }
    }
}

static void find_repeated(struct check *c) {
    for (size_t i = 1; i < c->given; i++) {
        const struct merge_part *p = &c->parts[i];
        struct error why = {0};
        if (p[-1].number.number == p->number.number) {
            error_set(&why, STATUS_MISMATCH, "%.180s and %.180s are both part %" PRIu32 "/%" PRIu32,
                      p[-1].directory, p->directory, p->number.number, c->count);
            report(c, PACK_MERGE_REPEATED, p, why.text);
        }
    }
}

static void find_foreign(struct check *c) {
    const struct merge_part *first = NULL;
    for (size_t i = 0; i < c->given; i++) {
        struct error why = {0};
        const struct merge_part *p = &c->parts[i];
        if (first && p->finished && compare_parts(first, p, &why) != STATUS_OK) {
            report(c, PACK_MERGE_FOREIGN, p, why.text);
        }
        first = first || !p->finished ? first : p;
    }
}

/* All parts must have one N; without that, no number means anything. */
static enum status check_counts(const struct check *c, struct error *err) {
    const struct merge_part *first = c->parts;
    for (size_t i = 1; i < c->given; i++) {
        const struct merge_part *p = &c->parts[i];
        FAIL_IF(p->number.count != c->count, err, STATUS_MISMATCH,
                "%.150s is part %" PRIu32 "/%" PRIu32 " and %.150s part %" PRIu32 "/%" PRIu32
                ": they are from different runs",
                first->directory, first->number.number, c->count, p->directory, p->number.number,
                p->number.count);
    }
    return STATUS_OK;
}

static enum status conclude(const struct check *c, struct error *err) {
    static const char *const names[] = {"not a part", "missing", "unfinished", "repeated",
                                        "of another run"};
    char count[16] = "";
    char text[160] = "";
    size_t at = 0;
    for (int i = PACK_MERGE_NO_PART; i <= PACK_MERGE_FOREIGN; i++) {
        if (c->found[i] > 0) {
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%" PRIu64 " %s",
                                   at > 0 ? ", " : "", c->found[i], names[i]);
        }
    }
    if (at == 0) {
        return STATUS_OK;
    }
    if (c->count > 0) {
        snprintf(count, sizeof(count), "%" PRIu32 " ", c->count);
    }
    return error_set(err, STATUS_MISMATCH, "cannot merge the %sparts: %s", count, text);
}

static enum status check_parts(struct merge *m, struct error *err) {
    struct check c = {.merge = m, .parts = m->parts, .given = m->opt->part_count};
    while (c.given > 0 && c.parts->number.count == 0) {
        report(&c, PACK_MERGE_NO_PART, c.parts, c.parts->why);
        c.parts++;
        c.given--;
    }
    if (c.given > 0) {
        c.count = c.parts->number.count;
        TRY(check_counts(&c, err));
        find_missing(&c);
        find_unfinished(&c);
        find_repeated(&c);
        find_foreign(&c);
    }
    return conclude(&c, err);
}

enum status merge_read_parts(struct merge *m, struct error *err) {
    size_t count = m->opt->part_count;
    m->parts = calloc(count, sizeof(*m->parts));
    TRY_MEMORY(m->parts, err, "out of memory for %zu parts", count);
    for (size_t i = 0; i < count; i++) {
        m->parts[i].directory = m->opt->parts[i];
        FAIL_IF(pack_directory_is_same(m->opt->parts[i], m->opt->directory), err, STATUS_USAGE,
                "%s: is a part and cannot also be the result", m->opt->directory);
        TRY(read_part(m, &m->parts[i], err));
        m->done.total_shards += m->parts[i].manifest.shard_count;
    }
    qsort(m->parts, count, sizeof(*m->parts), by_number);
    return check_parts(m, err);
}

bool merge_is_of_parts(const struct merge *m, const struct manifest *whole) {
    const struct merge_part as_part = {.directory = m->opt->directory, .manifest = *whole};
    size_t at = 0;
    if (compare_parts(&m->parts[0], &as_part, NULL) != STATUS_OK || whole->generation_count != 1 ||
        whole->shard_count != m->done.total_shards) {
        return false;
    }
    for (size_t i = 0; i < m->opt->part_count; i++) {
        const struct manifest *p = &m->parts[i].manifest;
        for (size_t k = 0; k < p->shard_count; k++) {
            if (p->shards[k].hash != whole->shards[at++].hash) {
                return false;
            }
        }
    }
    return true;
}

void merge_free_parts(struct merge *m) {
    for (size_t i = 0; m->parts && i < m->opt->part_count; i++) {
        manifest_fini(&m->parts[i].manifest);
        free(m->parts[i].why);
    }
    free(m->parts);
}
