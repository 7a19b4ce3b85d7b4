/*
 * Reads the parts and checks that they are those of one run, each once, none missing.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "pack/merge/merge_internal.h"
#include "pack/options_internal.h"

static enum status read_part(struct merge *m, struct merge_part *part, struct error *err) {
    struct error ignored;
    TRY(manifest_read(&part->manifest, m->fs, part->directory, err));
    const char *text = pack_manifest_option(&part->manifest, PACK_SETTING_PART);
    if (!text || pack_parse_part(&part->number, text, &ignored) != STATUS_OK) {
        return error_set(err, STATUS_MISMATCH,
                         "%s: is no part of a dataset; ccpack --part K/N makes parts",
                         part->directory);
    }
    if (pack_manifest_option(&part->manifest, PACK_SETTING_PARTIAL)) {
        return error_set(err, STATUS_CORRUPT,
                         "%s: part %s is partial: its run ended early; ccpack --resume with its "
                         "options completes it",
                         part->directory, text);
    }
    return STATUS_OK;
}

static int by_number(const void *a, const void *b) {
    uint32_t x = ((const struct merge_part *)a)->number.number;
    uint32_t y = ((const struct merge_part *)b)->number.number;
    return x < y ? -1 : x > y;
}

/* Checks that each of 1 to N is there once. Requires parts sorted by number. */
static enum status check_numbers(const struct merge *m, struct error *err) {
    const uint32_t count = m->parts[0].number.count;
    size_t given = m->opt->part_count;
    for (size_t i = 0; i < given; i++) {
        const struct merge_part *p = &m->parts[i];
        if (p->number.count != count) {
            return error_set(err, STATUS_MISMATCH,
                             "%s is part %" PRIu32 "/%" PRIu32 " and %s part %" PRIu32 "/%" PRIu32
                             ": they are of different runs",
                             m->parts[0].directory, m->parts[0].number.number, count, p->directory,
                             p->number.number, p->number.count);
        }
        if (i > 0 && m->parts[i - 1].number.number == p->number.number) {
            return error_set(err, STATUS_MISMATCH, "%s and %s are both part %" PRIu32 "/%" PRIu32,
                             m->parts[i - 1].directory, p->directory, p->number.number, count);
        }
    }
    uint32_t missing = 1;
    while (missing <= given && m->parts[missing - 1].number.number == missing) {
        missing++;
    }
    if (given < count) {
        return error_set(err, STATUS_MISMATCH,
                         "part %" PRIu32 "/%" PRIu32 " is missing: %zu of %" PRIu32 " are given",
                         missing, count, given, count);
    }
    return STATUS_OK;
}

static enum status differ(const struct merge_part *a,
                          const struct merge_part *b,
                          const char *what,
                          const char *of_a,
                          const char *of_b,
                          struct error *err) {
    return error_set(
        err, STATUS_MISMATCH, "%.80s and %.80s are of different runs: %.60s is %.60s and %.60s",
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
        if (strcmp(o->name, PACK_SETTING_PART) != 0 && (!other || strcmp(o->value, other) != 0)) {
            return differ(a, b, o->name, turned ? other : o->value, turned ? o->value : other, err);
        }
    }
    return STATUS_OK;
}

static enum status
compare_parts(const struct merge_part *a, const struct merge_part *b, struct error *err) {
    const struct manifest *x = &a->manifest;
    const struct manifest *y = &b->manifest;
    if (x->container != y->container) {
        return differ(a, b, "the container", shard_container_name(x->container),
                      shard_container_name(y->container), err);
    }
    TRY(compare_options(a, b, false, err));
    TRY(compare_options(a, b, true, err));
    for (size_t i = 0; i < x->source_count || i < y->source_count; i++) {
        const char *p = i < x->source_count ? x->sources[i].name : NULL;
        const char *q = i < y->source_count ? y->sources[i].name : NULL;
        if (!p || !q || strcmp(p, q) != 0) {
            return differ(a, b, "a source", p, q, err);
        }
        uint64_t u = x->sources[i].content;
        uint64_t v = y->sources[i].content;
        if (u != 0 && v != 0 && u != v) {
            return error_set(err, STATUS_MISMATCH,
                             "%.80s and %.80s are of different runs: source '%.80s' had other rows",
                             a->directory, b->directory, p);
        }
    }
    for (size_t i = 0; i < x->class_count || i < y->class_count; i++) {
        const char *p = i < x->class_count ? x->classes[i] : NULL;
        const char *q = i < y->class_count ? y->classes[i] : NULL;
        if (!p || !q || strcmp(p, q) != 0) {
            return differ(a, b, "a class", p, q, err);
        }
    }
    return STATUS_OK;
}

/* Whether two paths name the same folder. */
static bool is_same_folder(const char *a, const char *b) {
    char *x = realpath(a, NULL);
    char *y = realpath(b, NULL);
    bool same = x && y ? strcmp(x, y) == 0 : strcmp(a, b) == 0;
    free(x);
    free(y);
    return same;
}

enum status merge_read_parts(struct merge *m, struct error *err) {
    size_t count = m->opt->part_count;
    m->parts = calloc(count, sizeof(*m->parts));
    if (!m->parts) {
        return error_set(err, STATUS_NOMEM, "out of memory for %zu parts", count);
    }
    for (size_t i = 0; i < count; i++) {
        m->parts[i].directory = m->opt->parts[i];
        if (is_same_folder(m->opt->parts[i], m->opt->directory)) {
            return error_set(err, STATUS_USAGE, "%s: is a part and cannot be the result too",
                             m->opt->directory);
        }
        TRY(read_part(m, &m->parts[i], err));
        m->done.total_shards += m->parts[i].manifest.shard_count;
    }
    qsort(m->parts, count, sizeof(*m->parts), by_number);
    TRY(check_numbers(m, err));
    for (size_t i = 1; i < count; i++) {
        TRY(compare_parts(&m->parts[0], &m->parts[i], err));
    }
    return STATUS_OK;
}
