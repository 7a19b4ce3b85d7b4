/*
 * classes: see the header. Ordinals sorted by label, and where each class begins:
 *
 *   members   | 3 7 9 12 | 0 1 2 | 4 5 6 8 10 11 |      ordinals, ascending in each class
 *   starts    0          4       7               13     [class_count + 1]
 *   blocks    0          2       3               6      blocks of 2 before each class
 */
#include "loader/classes_internal.h"

#include <stdlib.h>

#include "formats/base/sort.h"

struct member {
    uint64_t ordinal;
    int32_t label;
};

static int by_label(const void *a, const void *b) {
    const struct member *x = a;
    const struct member *y = b;
    if (x->label != y->label) {
        return x->label < y->label ? -1 : 1;
    }
    return (x->ordinal > y->ordinal) - (x->ordinal < y->ordinal);
}

static enum status
read_labels(struct member *out, const struct sources *s, uint64_t count, struct error *err) {
    for (uint64_t i = 0; i < count; i++) {
        struct source_sample sample;
        TRY(sources_sample_at(s, 0, i, &sample, err));
        FAIL_IF(sample.sample.label < 0, err, STATUS_USAGE,
                "%s: sample %llu has no label; blocks of one class require a label for every "
                "sample (pack class folders or CIFAR files)",
                s->items[0].directory, (unsigned long long)sample.sample.sample_id);
        out[i] = (struct member){.ordinal = i, .label = sample.sample.label};
    }
    sort_in_place(out, count, sizeof *out, by_label);
    return STATUS_OK;
}

/* Requires memory for `count` classes. */
static enum status divide(struct classes *c,
                          const struct member *sorted,
                          uint64_t count,
                          const char *directory,
                          struct error *err) {
    for (uint64_t i = 0; i < count;) {
        const uint64_t first = i;
        while (i < count && sorted[i].label == sorted[first].label) {
            c->members[i] = sorted[i].ordinal;
            i++;
        }
        FAIL_IF(i - first < c->block_count, err, STATUS_USAGE,
                "%s: class %d has %llu samples, fewer than a block of %u (an anchor and its "
                "positives): use smaller blocks or omit the class",
                directory, (int)sorted[first].label, (unsigned long long)(i - first),
                (unsigned)c->block_count);
        c->class_count++;
        c->starts[c->class_count] = i;
        c->blocks[c->class_count] = c->blocks[c->class_count - 1] + (i - first) / c->block_count;
    }
    return c->class_count >= 2
               ? STATUS_OK
               : error_set(err, STATUS_USAGE,
                           "%s: all samples have the same class, so there are no negatives",
                           directory);
}

enum status classes_create(struct classes **out,
                           const struct sources *sources,
                           uint32_t block_count,
                           struct error *err) {
    REQUIRE(block_count >= 1);
    *out = NULL;
    FAIL_IF(sources->count > 1, err, STATUS_USAGE,
            "blocks of one class require a single dataset, not a mix: labels of several datasets "
            "are unrelated");
    const uint64_t count = sources->live_counts[0];
    struct classes *c = calloc(1, sizeof *c);
    struct member *sorted = calloc(count + 1, sizeof *sorted);
    enum status s = STATUS_NOMEM;
    if (c != NULL && sorted != NULL) {
        c->block_count = block_count;
        c->members = calloc(count + 1, sizeof *c->members);
        c->starts = calloc(count + 1, sizeof *c->starts);
        c->blocks = calloc(count + 1, sizeof *c->blocks);
    }
    if (c == NULL || c->members == NULL || c->starts == NULL || c->blocks == NULL) {
        (void)error_set(err, s, "out of memory for the classes of %llu samples",
                        (unsigned long long)count);
    } else {
        s = read_labels(sorted, sources, count, err);
        THEN(s, divide(c, sorted, count, sources->items[0].directory, err));
    }
    free(sorted);
    RETURN_CREATED(s, out, c, classes_destroy);
}

void classes_destroy(struct classes *c) {
    if (c != NULL) {
        free(c->members);
        free(c->starts);
        free(c->blocks);
        free(c);
    }
}
